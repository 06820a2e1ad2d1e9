/* The board's JSON, and the text made from it, also when the JSON is hostile. */
#include "agent/status/status.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_json(void **state)
{
    (void)state;
    struct status_board *board;
    assert_int_equal(status_board_create(&board), STATUS_OK);
    struct status_fields *fields = status_board_lock(board);
    strcpy(fields->state, "training");
    strcpy(fields->why, "a \"quoted\"\nreason");
    fields->version = 12;
    fields->loss = NAN;
    fields->samples_per_s = 3.5;
    status_board_unlock(board);
    struct buffer json, text;
    buffer_init(&json, 10000);
    buffer_init(&text, 10000);
    assert_int_equal(status_board_json(board, &json), STATUS_OK);
    json_t *object = json_loadb((char *)json.data, json.bytes, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(object, "state")), "training");
    assert_int_equal(json_integer_value(json_object_get(object, "version")), 12);
    assert_true(json_is_null(json_object_get(object, "loss")));
    json_decref(object);
    struct error err = {0};
    assert_int_equal(status_text_of_json((char *)json.data, json.bytes, &text, &err), STATUS_OK);
    const char *lines = buffer_text(&text);
    assert_non_null(strstr(lines, "model version"));
    assert_null(strstr(lines, "training loss")); /* null says nothing */
    buffer_done(&json);
    buffer_done(&text);
    status_board_free(board);
}

static void test_hostile_answers(void **state)
{
    (void)state;
    static const char *const cases[] = {"", "[]", "{", "nonsense", "{\"state\":1,\"state\":2}"};
    struct buffer text;
    buffer_init(&text, 1000);
    struct error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(status_text_of_json(cases[i], strlen(cases[i]), &text, &err),
                         STATUS_CORRUPT);
    const char *types = "{\"state\":{},\"version\":\"x\",\"loss\":[]}";
    assert_int_equal(status_text_of_json(types, strlen(types), &text, &err), STATUS_OK);
    buffer_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_hostile_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
