/* Tests of profile.c: the table is sound, scripts and --links are read and refused as they
 * should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/netlab/profile.h"

#include <string.h>

static void every_profile_of_the_table_is_sound(void **state)
{
    (void)state;
    static const char *const names[] = {
#define PROFILE(name, down, up, rtt, jitter, loss, burst, queue, script, text) name,
#include "tests/netlab/profiles.def"
#undef PROFILE
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct plan plan = {.number = 7};
        struct error err = {0};
        if (profile_find(names[i], &plan, &err) != STATUS_OK)
            fail_msg("%s: %s", names[i], err.text);
        assert_int_equal(plan.number, 7);
        assert_string_equal(plan.profile, names[i]);
        for (int way = 0; way < WAY_COUNT; way++)
            assert_true(plan.base[way].rate_mbit > 0 && plan.base[way].queue_ms > 0);
    }
    struct plan plan = {0};
    struct error err;
    assert_int_equal(profile_find("carrier", &plan, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "bad-evening"));
}

static void a_bad_evening_is_bad_for_a_third_of_the_time(void **state)
{
    (void)state;
    struct plan plan = {0};
    struct shape shapes[WAY_COUNT];
    int64_t end_ms;
    assert_int_equal(profile_find("bad-evening", &plan, NULL), STATUS_OK);
    assert_int_equal(plan.script.cycle_ms, 60000);
    assert_int_equal(script_phase_at(&plan.script, 0, &end_ms), 0);
    assert_int_equal(end_ms, 40000);
    assert_int_equal(script_phase_at(&plan.script, 39999, &end_ms), 0);
    assert_int_equal(script_phase_at(&plan.script, 40000, &end_ms), 1);
    assert_int_equal(end_ms, 60000);
    assert_int_equal(script_phase_at(&plan.script, 60000 * 1000 + 59999, &end_ms), 1);
    assert_int_equal(end_ms, 60000 * 1001);
    assert_int_equal(script_phase_at(&plan.script, 60000 * 1001, &end_ms), 0);
    assert_int_equal(phase_apply(&plan.script.phases[1], plan.base, shapes, NULL), STATUS_OK);
    assert_true(shapes[WAY_DOWN].rate_mbit > 9.99 && shapes[WAY_DOWN].rate_mbit < 10.01);
    assert_true(shapes[WAY_UP].rate_mbit > 0.99 && shapes[WAY_UP].rate_mbit < 1.01);
    assert_true(shapes[WAY_UP].burst_share > 0.029 && shapes[WAY_UP].burst_packets > 7.9);
}

static void scripts_are_read_and_refused(void **state)
{
    (void)state;
    struct plan plan = {0};
    struct script script;
    struct error err;
    assert_int_equal(profile_find("home50", &plan, NULL), STATUS_OK);
    assert_int_equal(
        script_parse("1.5s down; 0.1s reset rate=5  loss=1%;2s", plan.base, &script, &err),
        STATUS_OK);
    assert_int_equal(script.phase_count, 3);
    assert_int_equal(script.cycle_ms, 3600);
    assert_true(script.phases[0].down && !script.phases[0].reset && script.phases[1].reset);
    assert_string_equal(script.phases[1].settings, "rate=5 loss=1%");
    assert_int_equal(script_parse("none", plan.base, &script, &err), STATUS_OK);
    assert_int_equal(script.phase_count, 0);
    static const char *const bad[] = {"soon down", "10 down",     "0s down",      "-1s",
                                      "nans down", "5s sideways", "5s rate=fast", "99999999s",
                                      "5s; ;5s",   "5s loss=3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (script_parse(bad[i], plan.base, &script, &err) == STATUS_OK)
            fail_msg("'%s' was accepted", bad[i]);
    assert_int_equal(script_parse("1s;1s;1s;1s;1s;1s;1s;1s;1s;1s;1s;1s;1s;1s;1s;1s;1s", plan.base,
                                  &script, &err),
                     STATUS_TOO_LARGE);
}

static void links_are_read(void **state)
{
    (void)state;
    static struct plan plans[LINKS_MAX];
    size_t count;
    struct error err = {0};
    if (plans_parse("c1:cable,c12:home50,rate-up=5,script=2s;1s down,c3:flapping,script=none",
                    plans, &count, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(count, 3);
    assert_int_equal(plans[0].number, 1);
    assert_int_equal(plans[1].number, 12);
    assert_true(plans[1].base[WAY_UP].rate_mbit < 5.1);
    assert_true(plans[1].base[WAY_DOWN].rate_mbit > 49);
    assert_int_equal(plans[1].script.phase_count, 2);
    assert_string_equal(plans[2].profile, "flapping");
    assert_int_equal(plans[2].script.phase_count, 0);
}

static void wrong_links_are_refused_with_a_cure(void **state)
{
    (void)state;
    static const struct {
        const char *links, *word;
    } cases[] = {
        {"", "write for example"},
        {"c1", "neither LINK:PROFILE"},
        {"c1:carrier", "profiles are"},
        {"hub:lan", "links are c1 to c250"},
        {"c0:lan", "links are c1"},
        {"c251:lan", "links are c1"},
        {"c1x:lan", "links are c1"},
        {"c1:lan,c1:dsl", "named twice"},
        {"rate=5,c1:lan", "before any"},
        {"c1:lan,rate=fast", "Mbit/s such as"},
        {"c1:lan,speed=3", "settings are"},
        {"c1:lan,script=5s up", "key=value"},
        {"c18446744073709551617:lan", "links are c1"},
    };
    static struct plan plans[LINKS_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t count = 99;
        struct error err = {0};
        if (plans_parse(cases[i].links, plans, &count, &err) == STATUS_OK)
            fail_msg("'%s' was accepted", cases[i].links);
        if (!strstr(err.text, cases[i].word))
            fail_msg("'%s': '%s' is not in: %s", cases[i].links, cases[i].word, err.text);
        assert_int_equal(count, 99);
    }
    char many[LINKS_MAX * 12 + 16];
    size_t length = 0, count;
    for (unsigned i = 1; i <= LINKS_MAX + 1; i++)
        length +=
            (size_t)snprintf(many + length, sizeof many - length, "%sc%u:lan", i > 1 ? "," : "", i);
    struct error err;
    assert_int_equal(plans_parse(many, plans, &count, &err), STATUS_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_profile_of_the_table_is_sound),
        cmocka_unit_test(a_bad_evening_is_bad_for_a_third_of_the_time),
        cmocka_unit_test(scripts_are_read_and_refused),
        cmocka_unit_test(links_are_read),
        cmocka_unit_test(wrong_links_are_refused_with_a_cure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
