/* Tests of requests.c, link.c and report.c on links whose devices are socket pairs: outages,
 * resets, * scripts, commands that are done for all links or none, and what statistics and events
 * tell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/netlab/requests.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS INT64_C(1000000)

struct rig {
    struct link links[2];
    struct events events;
    struct links view;
    int ends[2][WAY_COUNT]; /* what the hub and the client would see */
    struct buffer answer;
    struct error err;
};

static struct rig *rig_create(const char *links)
{
    static struct plan plans[LINKS_MAX];
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->view = (struct links){.links = rig->links, .events = &rig->events, .hub_fd = 123};
    buffer_init(&rig->answer, 1 << 20);
    assert_int_equal(plans_parse(links, plans, &rig->view.count, &rig->err), STATUS_OK);
    assert_true(rig->view.count <= 2);
    for (size_t i = 0; i < rig->view.count; i++) {
        assert_int_equal(link_init(&rig->links[i], &plans[i], 1, &rig->events), STATUS_OK);
        for (int way = 0; way < WAY_COUNT; way++) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
            rig->links[i].fds[way] = pair[0];
            rig->ends[i][way] = pair[1];
        }
        link_refresh(&rig->links[i], 0, true);
    }
    return rig;
}

static void rig_free(struct rig *rig)
{
    for (size_t i = 0; i < rig->view.count; i++) {
        link_done(&rig->links[i]);
        for (int way = 0; way < WAY_COUNT; way++)
            (void)close(rig->ends[i][way]);
    }
    buffer_done(&rig->answer);
    free(rig);
}

/* One request, its words separated by blanks. */
static enum status request(struct rig *rig, const char *text, int64_t now_ns)
{
    char copy[256], *words[16], *save;
    size_t count = 0;
    int fd = -1;
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        words[count++] = word;
    buffer_clear(&rig->answer);
    rig->err.text[0] = 0;
    return requests_handle(&rig->view, words, count, now_ns, &rig->answer, &fd, &rig->err);
}

static void refused(struct rig *rig, const char *text, const char *word)
{
    if (request(rig, text, 0) == STATUS_OK)
        fail_msg("'%s' was accepted", text);
    if (!strstr(rig->err.text, word))
        fail_msg("'%s': '%s' is not in: %s", text, word, rig->err.text);
}

/* Does a packet from the hub reach the client of link 0? */
static bool passes(struct rig *rig, int64_t now_ns)
{
    char data[64] = {0x45};
    struct link *link = &rig->links[0];
    assert_int_equal(write(rig->ends[0][WAY_DOWN], data, sizeof data), sizeof data);
    if (now_ns >= link->change_ns)
        link_refresh(link, now_ns, false);
    link_read(link, WAY_DOWN, now_ns);
    link_write(link, now_ns + 1000 * MS);
    return read(rig->ends[0][WAY_UP], data, sizeof data) == (ssize_t)sizeof data;
}

static json_t *ask_json(struct rig *rig, const char *text, int64_t now_ns)
{
    assert_int_equal(request(rig, text, now_ns), STATUS_OK);
    json_t *document = json_loadb((const char *)rig->answer.data, rig->answer.bytes, 0, NULL);
    assert_non_null(document);
    return document;
}

static json_int_t number_at(json_t *object, const char *a, const char *b, const char *c)
{
    object = json_object_get(object, a);
    object = b ? json_object_get(object, b) : object;
    object = c ? json_object_get(object, c) : object;
    assert_true(json_is_integer(object));
    return json_integer_value(object);
}

static void an_outage_ends_by_itself_and_is_told(void **state)
{
    (void)state;
    struct rig *rig = rig_create("c1:home50,c2:dsl");
    assert_true(passes(rig, 10 * MS));
    assert_int_equal(request(rig, "outage c1 5000", 1000 * MS), STATUS_OK);
    assert_false(passes(rig, 1001 * MS));
    assert_false(passes(rig, 5999 * MS));
    assert_true(passes(rig, 6000 * MS));
    json_t *stats = ask_json(rig, "stats --json c1", 7000 * MS);
    assert_int_equal(json_array_size(json_object_get(stats, "links")), 1);
    json_t *link = json_array_get(json_object_get(stats, "links"), 0);
    assert_int_equal(number_at(link, "outages", NULL, NULL), 1);
    assert_int_equal(number_at(link, "outage_ms", NULL, NULL), 5000);
    assert_int_equal(number_at(link, "down", "drops", "outage"), 2);
    assert_int_equal(number_at(link, "down", "packets_out", NULL), 2);
    json_decref(stats);
    json_t *events = ask_json(rig, "events --json", 7000 * MS);
    json_t *list = json_object_get(events, "events");
    json_t *end = json_array_get(list, json_array_size(list) - 1);
    assert_string_equal(json_string_value(json_object_get(end, "event")), "outage_end");
    assert_int_equal(number_at(end, "duration_ms", NULL, NULL), 5000);
    assert_int_equal(number_at(end, "packets_dropped", NULL, NULL), 2);
    json_decref(events);
    assert_int_equal(request(rig, "stats", 7000 * MS), STATUS_OK);
    assert_int_equal(request(rig, "events c2", 7000 * MS), STATUS_OK);
    rig_free(rig);
}

static void down_lasts_until_up(void **state)
{
    (void)state;
    struct rig *rig = rig_create("c1:home50");
    assert_int_equal(request(rig, "down all", 0), STATUS_OK);
    assert_false(passes(rig, 100000 * MS));
    assert_int_equal(request(rig, "up c1", 100001 * MS), STATUS_OK);
    assert_true(passes(rig, 100001 * MS));
    assert_int_equal(request(rig, "outage c1 5000", 200000 * MS), STATUS_OK);
    assert_int_equal(request(rig, "up c1", 200001 * MS), STATUS_OK);
    assert_true(passes(rig, 200001 * MS));
    assert_int_equal(rig->links[0].outage_count, 2);
    rig_free(rig);
}

static void a_script_takes_the_line_away_and_gives_it_back(void **state)
{
    (void)state;
    struct rig *rig = rig_create("c1:home50,script=2s;1s down rate=5");
    assert_true(passes(rig, 1999 * MS));
    assert_false(passes(rig, 2000 * MS));
    assert_true(rig->links[0].directions[WAY_UP].shape.rate_mbit < 5.1);
    assert_int_equal(request(rig, "set c1 both rate=7", 2500 * MS), STATUS_OK);
    assert_true(rig->links[0].directions[WAY_UP].shape.rate_mbit < 5.1); /* the phase is on top */
    assert_true(passes(rig, 3000 * MS));
    assert_true(rig->links[0].directions[WAY_UP].shape.rate_mbit > 6.9);
    assert_int_equal(request(rig, "profile c1 flapping", 59000 * MS), STATUS_OK);
    assert_false(passes(rig, 59001 * MS)); /* the clock of scripts is the lab's */
    assert_true(passes(rig, 60000 * MS));
    assert_int_equal(request(rig, "profile c1 home50", 115000 * MS), STATUS_OK);
    assert_true(passes(rig, 115000 * MS));
    assert_true(rig->links[0].change_ns == NEVER_NS);
    rig_free(rig);
}

static void a_reset_answers_tcp_and_lets_the_rest_pass(void **state)
{
    (void)state;
    struct rig *rig = rig_create("c1:home50");
    uint8_t data[64] = {0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 1, 2};
    data[32] = 0x50;
    data[33] = 0x10;
    assert_int_equal(request(rig, "reset c1 1000", 0), STATUS_OK);
    assert_true(passes(rig, MS));
    assert_int_equal(write(rig->ends[0][WAY_DOWN], data, 40), 40);
    link_read(&rig->links[0], WAY_DOWN, MS);
    assert_int_equal(read(rig->ends[0][WAY_DOWN], data, sizeof data), 40);
    assert_int_equal(data[33], 4);
    assert_int_equal(read(rig->ends[0][WAY_UP], data, sizeof data), 40);
    assert_int_equal(rig->links[0].directions[WAY_DOWN].counters.drops[DROP_RESET], 1);
    link_refresh(&rig->links[0], 1000 * MS, false);
    assert_false(rig->links[0].is_resetting);
    rig_free(rig);
}

static void all_links_are_changed_or_none(void **state)
{
    (void)state;
    struct rig *rig = rig_create("c1:home50,c2:lan,rate=0");
    /* c2 has no limit of which 10 % could be taken. */
    refused(rig, "set all both delay=77 rate=10%", "rate: '10%'");
    assert_true(rig->links[0].plan.base[WAY_UP].delay_ms < 11);
    assert_int_equal(request(rig, "set all up delay=77 loss=1%", 0), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        assert_true(rig->links[i].directions[WAY_UP].shape.delay_ms > 76);
        assert_true(rig->links[i].directions[WAY_DOWN].shape.delay_ms < 11);
    }
    rig_free(rig);
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    struct rig *rig = rig_create("c1:home50,c2:dsl");
    refused(rig, "", "no command");
    refused(rig, "explode c1", "no command 'explode'");
    refused(rig, "set", "write raven-netlab set LINK");
    refused(rig, "set c1 up", "write raven-netlab set LINK");
    refused(rig, "set c9 up rate=5", "the links are c1, c2");
    refused(rig, "set c1 sideways rate=5", "write up, down or both");
    refused(rig, "set c1 up rate-down=5", "named twice");
    refused(rig, "outage c1", "outage LINK|all MS");
    refused(rig, "outage c1 soon", "MS: 'soon'");
    refused(rig, "outage c1 -5", "MS: '-5'");
    refused(rig, "outage c1 nan", "MS: 'nan'");
    refused(rig, "outage c1 5 6", "wrong number of words");
    refused(rig, "reset all 0", "MS: '0'");
    refused(rig, "profile c1 carrier", "the profiles are");
    refused(rig, "stats c9", "the links are");
    refused(rig, "enter all", "one place");
    refused(rig, "enter c9", "the links are");
    assert_int_equal(rig->events.count, 0);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_outage_ends_by_itself_and_is_told),
        cmocka_unit_test(down_lasts_until_up),
        cmocka_unit_test(a_script_takes_the_line_away_and_gives_it_back),
        cmocka_unit_test(a_reset_answers_tcp_and_lets_the_rest_pass),
        cmocka_unit_test(all_links_are_changed_or_none),
        cmocka_unit_test(wrong_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
