/* Tests of wire.c: round trip of every message, every refusal of wire.h, random damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/rng.h"
#include "common/wire/wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Fills every field with its extreme value: longest text, 2^53 - 1, all bits of hex and hash. */
static void fill(struct wire_message *m, enum wire_type type)
{
    memset(m, 0, sizeof *m);
    m->type = type;
    switch (type) {
#define MESSAGE(name, sender, purpose) case WIRE_##name:
#define FIELD_TEXT(m_, name, max) memset(m->m_.name, 'a' + (max) % 26, max);
#define FIELD_U64(m_, name) m->m_.name = (UINT64_C(1) << 53) - 1;
#define FIELD_F64(m_, name) m->m_.name = -0.1;
#define FIELD_BOOL(m_, name) m->m_.name = true;
#define FIELD_HEX(m_, name, count) memset(m->m_.name, 0xF3, count);
#define FIELD_HASH(m_, name) m->m_.name = UINT64_C(0x0123456789ABCDEF);
#define END(name) break;
#include "common/wire/messages.def"
    case WIRE_NONE:
    case WIRE_TYPE_COUNT:
        break;
    }
}

static void every_message_survives_the_round_trip(void **state)
{
    (void)state;
    static struct wire_message sent, got;
    for (int type = WIRE_NONE + 1; type < WIRE_TYPE_COUNT; type++) {
        struct buffer text;
        struct error err;
        buffer_init(&text, WIRE_TEXT_BYTES_MAX);
        fill(&sent, (enum wire_type)type);
        memset(&got, 0xEE, sizeof got);
        assert_int_equal(wire_encode(&sent, &text), STATUS_OK);
        assert_int_equal(wire_decode((char *)text.data, text.bytes, WIRE_FROM_BOTH, &got, &err),
                         STATUS_OK);
        assert_memory_equal(&sent, &got, sizeof sent);
        buffer_done(&text);
    }
}

static void json_is_what_the_protocol_says(void **state)
{
    (void)state;
    struct wire_message m;
    struct buffer text;
    memset(&m, 0, sizeof m);
    m.type = WIRE_delta;
    m.delta.stream = 7;
    (void)text_copy(m.delta.job, sizeof m.delta.job, "job_\"x\"");
    m.delta.hash = 0xAB;
    buffer_init(&text, 1000);
    assert_int_equal(wire_encode(&m, &text), STATUS_OK);
    assert_string_equal(buffer_text(&text),
                        "{\"type\":\"delta\",\"stream\":7,\"job\":\"job_\\\"x\\\"\",\"version\":0,"
                        "\"bytes\":0,\"from\":0,\"hash\":\"00000000000000ab\"}");
    buffer_done(&text);
    assert_string_equal(wire_type_name(WIRE_delta), "delta");
    assert_string_equal(wire_type_name(WIRE_NONE), "?");
    assert_string_equal(wire_type_name((enum wire_type) - 5), "?");
    assert_string_equal(wire_type_name(WIRE_TYPE_COUNT), "?");
}

static void encode_refuses_what_json_cannot_say(void **state)
{
    (void)state;
    static struct wire_message m;
    struct buffer text;
    buffer_init(&text, WIRE_TEXT_BYTES_MAX);
    assert_int_equal(buffer_append(&text, "x", 1), STATUS_OK);
    fill(&m, WIRE_progress);
    m.progress.loss = NAN;
    assert_int_equal(wire_encode(&m, &text), STATUS_INVALID);
    m.progress.loss = INFINITY;
    assert_int_equal(wire_encode(&m, &text), STATUS_INVALID);
    m.progress.loss = 1;
    m.progress.step = UINT64_C(1) << 53;
    assert_int_equal(wire_encode(&m, &text), STATUS_INVALID);
    fill(&m, WIRE_wait);
    memset(m.wait.reason, 0xFF, 3); /* no UTF-8 */
    assert_int_equal(wire_encode(&m, &text), STATUS_INVALID);
    memset(m.wait.reason, 'x', sizeof m.wait.reason); /* no NUL */
    assert_int_equal(wire_encode(&m, &text), STATUS_INVALID);
    fill(&m, WIRE_job);
    memset(m.job.spec, 1, sizeof m.job.spec - 1); /* 6 bytes each in JSON */
    assert_int_equal(wire_encode(&m, &text), STATUS_TOO_LARGE);
    m.type = WIRE_NONE;
    assert_int_equal(wire_encode(&m, &text), STATUS_INVALID);
    assert_int_equal(text.bytes, 1);
    buffer_done(&text);
}

static enum status decode(const char *text, enum wire_sender sender, struct error *err)
{
    /* An exact heap copy without a NUL: the sanitizer sees any read beyond. */
    size_t bytes = strlen(text);
    char *copy = malloc(bytes + (bytes == 0));
    memcpy(copy, text, bytes);
    static struct wire_message untouched, got;
    memset(&untouched, 0x55, sizeof untouched);
    memcpy(&got, &untouched, sizeof got);
    enum status status = wire_decode(copy, bytes, sender, &got, err);
    if (status != STATUS_OK)
        assert_memory_equal(&got, &untouched, sizeof got);
    free(copy);
    return status;
}

#define REQUEST "{\"type\":\"request\",\"steps\":1,\"k\":1,\"nonce\":"

static void hostile_texts_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *text, *expected;
    } cases[] = {
        {"", "not JSON"},
        {"[]", "no JSON object"},
        {"7", "not JSON"},
        {"{}", "without a type"},
        {"{\"type\":7}", "without a type"},
        {"{\"type\":\"request\"}", "request.nonce is missing"},
        {REQUEST "null}", "request.nonce must be an integer"},
        {REQUEST "\"1\"}", "request.nonce must be an integer"},
        {REQUEST "1.0}", "request.nonce must be an integer"},
        {REQUEST "-1}", "request.nonce must be 0 to 2^53 - 1"},
        {REQUEST "9007199254740992}", "request.nonce must be 0 to 2^53 - 1"},
        {REQUEST "99999999999999999999}", "not JSON"},
        {REQUEST "1,\"nonce\":2}", "not JSON"},
        {REQUEST "1}{}", "not JSON"},
        {REQUEST "1}\n garbage", "not JSON"},
        {REQUEST "1,\"x\":\"\\u0000\"}", "not JSON"},
        {REQUEST "1,\"x\":\"\xff\"}", "not JSON"},
        {REQUEST "1,\"x\":[[[[1]]]]}", "nested deeper"},
        {REQUEST "1,\"x\":\"", "not JSON"},
        {REQUEST "1,\"x\":\"\\", "not JSON"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err;
        assert_int_equal(decode(cases[i].text, WIRE_FROM_BOTH, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i].expected))
            fail_msg("case %zu: %s", i, err.text);
    }
    assert_int_equal(decode(REQUEST "1}", WIRE_FROM_AGENT, NULL), STATUS_OK);
    assert_int_equal(decode(REQUEST "9007199254740991}", WIRE_FROM_AGENT, NULL), STATUS_OK);
    assert_int_equal(decode(REQUEST "1,\"new\":[[[\"[[[{\\\"{\"]]]}", WIRE_FROM_AGENT, NULL),
                     STATUS_OK); /* a newer peer's field, brackets in text */
}

static void the_wrong_sender_and_unknown_types_are_refused(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(decode(REQUEST "1}", WIRE_FROM_COORDINATOR, &err), STATUS_DENIED);
    assert_int_equal(decode("{\"type\":\"bye\",\"code\":3,\"reason\":\"\",\"retry_ms\":0}",
                            WIRE_FROM_AGENT, &err),
                     STATUS_OK);
    assert_int_equal(decode("{\"type\":\"bye\",\"code\":3,\"reason\":\"\",\"retry_ms\":0}",
                            WIRE_FROM_COORDINATOR, &err),
                     STATUS_OK);
    assert_int_equal(decode("{\"type\":\"later\\u001b[2J\"}", WIRE_FROM_AGENT, &err),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'later?[2J'"));
}

static void field_kinds_are_strict(void **state)
{
    (void)state;
    struct error err;
    char text[512];
    const char *delta = "{\"type\":\"delta\",\"stream\":1,\"job\":\"%s\",\"version\":1,\"bytes\":1,"
                        "\"from\":0,\"hash\":\"%s\"}";
    char job[33];
    memset(job, 'j', 32);
    job[32] = '\0';
    (void)snprintf(text, sizeof text, delta, job + 1, "0123456789abcdef");
    assert_int_equal(decode(text, WIRE_FROM_COORDINATOR, &err), STATUS_OK);
    (void)snprintf(text, sizeof text, delta, job, "0123456789abcdef");
    assert_int_equal(decode(text, WIRE_FROM_COORDINATOR, &err), STATUS_INVALID);
    assert_string_equal(err.text, "delta.job is too long");
    const char *const bad_hashes[] = {"", "0123456789abcde", "0123456789abcdef0",
                                      "0123456789abcdeg"};
    for (size_t i = 0; i < COUNT_OF(bad_hashes); i++) {
        (void)snprintf(text, sizeof text, delta, job + 1, bad_hashes[i]);
        assert_int_equal(decode(text, WIRE_FROM_COORDINATOR, &err), STATUS_INVALID);
        assert_string_equal(err.text, "delta.hash must be hex digits of the exact length");
    }
    const char *progress = "{\"type\":\"progress\",\"lease\":\"\",\"step\":1,\"step_ms\":1,"
                           "\"utilisation\":0,\"loss\":%s,"
                           "\"samples_per_s\":1,\"rtt_ms\":1e3,\"version\":1}";
    (void)snprintf(text, sizeof text, progress, "2"); /* other JSON writers drop the point */
    assert_int_equal(decode(text, WIRE_FROM_AGENT, &err), STATUS_OK);
    (void)snprintf(text, sizeof text, progress, "1e999");
    assert_int_equal(decode(text, WIRE_FROM_AGENT, &err), STATUS_INVALID);
    (void)snprintf(text, sizeof text, progress, "\"2\"");
    assert_int_equal(decode(text, WIRE_FROM_AGENT, &err), STATUS_INVALID);
    assert_string_equal(err.text, "progress.loss must be a finite number");
}

static void deep_nesting_and_large_texts_never_reach_the_parser(void **state)
{
    (void)state;
    struct error err;
    char *text = malloc(WIRE_TEXT_BYTES_MAX + 2);
    memset(text, '[', WIRE_TEXT_BYTES_MAX + 1);
    text[WIRE_TEXT_BYTES_MAX + 1] = '\0';
    assert_int_equal(decode(text, WIRE_FROM_AGENT, &err), STATUS_TOO_LARGE);
    text[WIRE_TEXT_BYTES_MAX] = '\0';
    assert_int_equal(decode(text, WIRE_FROM_AGENT, &err), STATUS_INVALID);
    assert_string_equal(err.text, "control message nested deeper than 4");
    free(text);
}

static void random_damage_never_crashes(void **state)
{
    (void)state;
    static struct wire_message m, got;
    struct rng rng;
    rng_seed(&rng, 5);
    fill(&m, WIRE_hello);
    struct buffer text;
    buffer_init(&text, WIRE_TEXT_BYTES_MAX);
    assert_int_equal(wire_encode(&m, &text), STATUS_OK);
    char *copy = malloc(text.bytes);
    for (int i = 0; i < 20000; i++) {
        size_t bytes = 1 + rng_below(&rng, text.bytes);
        memcpy(copy, text.data, bytes);
        for (uint64_t edits = 1 + rng_below(&rng, 3); edits > 0; edits--)
            copy[rng_below(&rng, bytes)] = "\"\\{}[],:0e-\xff"[rng_below(&rng, 12)];
        enum status status = wire_decode(copy, bytes, WIRE_FROM_AGENT, &got, NULL);
        assert_true(status == STATUS_OK || status == STATUS_INVALID ||
                    status == STATUS_UNSUPPORTED || status == STATUS_DENIED);
    }
    free(copy);
    buffer_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_survives_the_round_trip),
        cmocka_unit_test(json_is_what_the_protocol_says),
        cmocka_unit_test(encode_refuses_what_json_cannot_say),
        cmocka_unit_test(hostile_texts_are_refused),
        cmocka_unit_test(the_wrong_sender_and_unknown_types_are_refused),
        cmocka_unit_test(field_kinds_are_strict),
        cmocka_unit_test(deep_nesting_and_large_texts_never_reach_the_parser),
        cmocka_unit_test(random_damage_never_crashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
