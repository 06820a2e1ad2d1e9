/* Tests of shape.c: every setting in its units, refusals that name field, value and cure, and the
 * sums * behind queue and bursts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/netlab/shape.h"

#include <math.h>
#include <string.h>

static const struct shape line = {.rate_mbit = 100, .delay_ms = 10, .queue_ms = 200};

static bool is_near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

/* Both ways of a line of 100 Mbit/s with these settings, separated by blanks. */
static void set_all(struct shape shapes[WAY_COUNT], const char *settings)
{
    const struct shape base[WAY_COUNT] = {line, line};
    char copy[256], *save;
    struct error err;
    memcpy(shapes, base, sizeof base);
    (void)snprintf(copy, sizeof copy, "%s", settings);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        if (shape_set(shapes, base, WAYS_BOTH, word, &err) != STATUS_OK)
            fail_msg("%s: %s", word, err.text);
}

static void settings_have_the_units_people_write(void **state)
{
    (void)state;
    struct shape s[WAY_COUNT];
    set_all(s, "rate=5.5 rtt=80 jitter=2ms loss=0.5% reorder=1% gap=7 duplicate=100% queue=256KB");
    for (int way = 0; way < WAY_COUNT; way++) {
        assert_true(is_near(s[way].rate_mbit, 5.5) && is_near(s[way].delay_ms, 40));
        assert_true(is_near(s[way].jitter_ms, 2) && is_near(s[way].loss, 0.005));
        assert_true(is_near(s[way].reorder, 0.01) && is_near(s[way].gap_ms, 7));
        assert_true(is_near(s[way].duplicate, 1) && is_near(s[way].queue_kb, 256));
    }
    set_all(s, "rate=0 delay=3ms burst=3%/8/50% queue=100KB queue=50ms");
    assert_true(is_near(s[0].rate_mbit, 0) && is_near(s[0].delay_ms, 3));
    assert_true(is_near(s[0].burst_share, 0.03) && is_near(s[0].burst_packets, 8));
    assert_true(is_near(s[0].burst_loss, 0.5));
    assert_true(is_near(s[0].queue_ms, 50) && is_near(s[0].queue_kb, 0));
    set_all(s, "burst=3%/8 burst=0%");
    assert_true(is_near(s[0].burst_share, 0));
}

static void a_share_of_the_rate_is_of_the_lines_own(void **state)
{
    (void)state;
    struct shape s[WAY_COUNT];
    set_all(s, "rate=3 rate=10%");
    assert_true(is_near(s[WAY_UP].rate_mbit, 10));
}

static void directions_are_kept_apart(void **state)
{
    (void)state;
    struct shape s[WAY_COUNT];
    struct error err;
    set_all(s, "rate-up=5 loss-down=1%");
    assert_true(is_near(s[WAY_UP].rate_mbit, 5) && is_near(s[WAY_DOWN].rate_mbit, 100));
    assert_true(is_near(s[WAY_UP].loss, 0) && is_near(s[WAY_DOWN].loss, 0.01));
    const struct shape base[WAY_COUNT] = {line, line};
    assert_int_equal(shape_set(s, base, WAYS_DOWN, "delay=99", &err), STATUS_OK);
    assert_true(is_near(s[WAY_DOWN].delay_ms, 99) && is_near(s[WAY_UP].delay_ms, 10));
    assert_int_equal(shape_set(s, base, WAYS_DOWN, "delay-up=9", &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "named twice"));
}

static void refusals_name_field_value_and_cure_and_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *setting, *word;
    } cases[] = {
        {"loss=3", "loss: '3'"},
        {"loss=101%", "percent such as"},
        {"loss=-1%", "loss: '-1%'"},
        {"loss=nan%", "loss: 'nan%'"},
        {"rate=fast", "rate: 'fast'"},
        {"rate=1e300", "at most 10000"},
        {"rate=0.001", "rate: '0.001'"},
        {"rate=0.001%", "rate: '0.001%'"},
        {"rate=", "rate: ''"},
        {"rate=0x10Q", "Mbit/s such as"},
        {"rtt=20s", "there and back"},
        {"delay=70000", "delay: '70000'"},
        {"burst=3%", "burst: '3%'"},
        {"burst=99%/2", "SHARE%/PACKETS"},
        {"burst=3%/0.5", "burst"},
        {"burst=0%/4", "burst: '0%/4'"},
        {"burst=3%/8/50", "burst"},
        {"queue=200", "256KB"},
        {"queue=0ms", "queue: '0ms'"},
        {"queue=99999KB", "queue"},
        {"speed=5", "'speed'"},
        {"rate-side=5", "settings are rate, delay"},
        {"rate", "'rate' is not"},
        {"=5", "key=value"},
        {"", "key=value"},
        {"-up=5", "there is no setting"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct shape s[WAY_COUNT] = {line, line};
        const struct shape before[WAY_COUNT] = {line, line};
        struct error err = {0};
        if (shape_set(s, before, WAYS_BOTH, cases[i].setting, &err) == STATUS_OK)
            fail_msg("%s was accepted", cases[i].setting);
        if (!strstr(err.text, cases[i].word))
            fail_msg("%s: '%s' is not in: %s", cases[i].setting, cases[i].word, err.text);
        assert_memory_equal(s, before, sizeof s);
    }
}

static void the_queue_is_time_at_the_lines_own_rate(void **state)
{
    (void)state;
    struct shape shape = line;
    assert_int_equal(shape_queue_bytes(&shape, 100), 2500000);
    shape.rate_mbit = 10; /* a slow phase has the same buffer */
    assert_int_equal(shape_queue_bytes(&shape, 100), 2500000);
    shape.queue_kb = 64;
    assert_int_equal(shape_queue_bytes(&shape, 100), 65536);
    shape.queue_kb = 0.1;
    assert_int_equal(shape_queue_bytes(&shape, 100), 3000);
    shape = (struct shape){.queue_ms = 60000};
    assert_int_equal(shape_queue_bytes(&shape, 10000), 16384 * 1024);
}

static void the_burst_chain_has_its_share_and_length(void **state)
{
    (void)state;
    double enter, leave;
    struct shape shape = {.burst_share = 0.2, .burst_packets = 10, .burst_loss = 1};
    shape_burst_chain(&shape, &enter, &leave);
    assert_true(is_near(leave, 0.1) && is_near(enter / (enter + leave), 0.2));
    shape = (struct shape){0};
    shape_burst_chain(&shape, &enter, &leave);
    assert_true(is_near(enter, 0) && is_near(leave, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_have_the_units_people_write),
        cmocka_unit_test(a_share_of_the_rate_is_of_the_lines_own),
        cmocka_unit_test(directions_are_kept_apart),
        cmocka_unit_test(refusals_name_field_value_and_cure_and_change_nothing),
        cmocka_unit_test(the_queue_is_time_at_the_lines_own_rate),
        cmocka_unit_test(the_burst_chain_has_its_share_and_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
