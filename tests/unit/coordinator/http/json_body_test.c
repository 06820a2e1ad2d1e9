/* Bodies from strangers: depth, duplicates, broken text with its place, complaints about fields. */
#include "coordinator/http/json_body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parses(const char *text, struct error *err)
{
    json_t *json = NULL;
    bool ok = json_body_parse(text, strlen(text), &json, err) == STATUS_OK;
    assert_int_equal(ok, json != NULL);
    json_decref(json);
    return ok;
}

static void test_shapes(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "[]",
        "1",
        "null",
        "\"x\"",
        "{",
        "{}}",
        "{} x",
        "{\"a\":1,\"a\":2}",
        "{a:1}",
        "{\"a\":1,}",
        "{\"a\":NaN}",
        "{\"a\":1e999}",
        "{\"a\":\"\\u0000\"}",
        "{\"\xff\":1}",
        "{\"a\":99999999999999999999}",
    };
    struct error err;
    (void)state;
    assert_true(parses("{}", &err));
    assert_true(parses(" {\"a\":[{\"b\":\"[[[{{{\\\"\"}]} ", &err));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(parses(bad[i], &err));
    assert_false(parses("{\n  \"a\": ?\n}", &err));
    assert_non_null(strstr(err.text, "Line 2, column"));
}

static void test_depth(void **state)
{
    struct error err;
    char text[400];
    (void)state;
    for (unsigned depth = 30; depth <= 34; depth++) {
        size_t n = 0;
        memcpy(text, "{\"a\":", 5);
        n = 5;
        memset(text + n, '[', depth - 1);
        n += depth - 1;
        memset(text + n, ']', depth - 1);
        n += depth - 1;
        text[n++] = '}';
        text[n] = 0;
        assert_int_equal(parses(text, &err), depth <= JSON_DEPTH_MAX);
    }
    size_t bytes = 1000000;
    char *deep = malloc(bytes + 1);
    assert_non_null(deep);
    memset(deep, '[', bytes);
    deep[bytes] = 0;
    assert_false(parses(deep, &err));
    memset(deep, '{', bytes);
    assert_false(parses(deep, &err));
    free(deep);
}

static void test_fields(void **state)
{
    struct spec_complaints list = {0};
    json_t *json =
        json_loads("{\"text\":\"\xc3\xa4\xc3\xb6\",\"number\":7,\"wrong\":[],\"a/b~c\":1,"
                   "\"negative\":-1,\"empty\":\"\",\"real\":1.5}",
                   0, NULL);
    (void)state;
    assert_non_null(json);
    assert_string_equal(json_field_text(json, "text", 2, true, &list), "\xc3\xa4\xc3\xb6");
    assert_int_equal(json_field_number(json, "number", 1, 7, true, 0, &list), 7);
    assert_int_equal(json_field_number(json, "absent", 1, 7, false, 3, &list), 3);
    assert_null(json_field_text(json, "absent", 2, false, &list));
    assert_int_equal(list.count, 0);

    assert_null(json_field_text(json, "text", 1, true, &list));
    assert_null(json_field_text(json, "wrong", 9, true, &list));
    assert_null(json_field_text(json, "absent", 9, true, &list));
    assert_null(json_field_text(json, "empty", 9, true, &list));
    assert_int_equal(json_field_number(json, "number", 8, 9, true, 5, &list), 5);
    assert_int_equal(json_field_number(json, "number", 1, 6, true, 5, &list), 5);
    assert_int_equal(json_field_number(json, "negative", 0, 6, true, 5, &list), 5);
    assert_int_equal(json_field_number(json, "real", 0, 6, true, 5, &list), 5);
    assert_int_equal(list.count, 8);
    assert_string_equal(list.items[0].code, "max");
    assert_string_equal(list.items[0].pointer, "/text");
    assert_string_equal(list.items[2].code, "missing");

    list.count = 0;
    json_fields_known(json, "text number wrong negative empty real", &list);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0].pointer, "/a~1b~0c");
    assert_string_equal(list.items[0].code, "unknown");
    json_decref(json);
}

/* More unknown fields, with longer names, than a list can hold. */
static void test_a_flood_of_unknown_fields(void **state)
{
    struct spec_complaints list = {0};
    json_t *json = json_object();
    char name[304];
    (void)state;
    for (int i = 0; i < 200; i++) {
        memset(name, i % 2 ? '/' : 'x', sizeof name);
        snprintf(name + 290, 14, "%d", i);
        json_object_set_new(json, name, json_null());
    }
    json_fields_known(json, "a", &list);
    assert_int_equal(list.count, SPEC_COMPLAINTS_MAX);
    for (uint32_t i = 0; i < list.count; i++)
        assert_true(strlen(list.items[i].pointer) < sizeof list.items[i].pointer);
    json_decref(json);
}

static void test_values(void **state)
{
    json_t *value = json_number(0.0 / 0.0);
    (void)state;
    assert_true(json_is_null(value));
    value = json_time(0);
    assert_true(json_is_null(value));
    value = json_time(1500);
    assert_string_equal(json_string_value(value), "1970-01-01T00:00:01.500Z");
    json_decref(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_fields), cmocka_unit_test(test_a_flood_of_unknown_fields),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
