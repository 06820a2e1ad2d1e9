/* Tests of coordinator/auth: secrets that are altered anywhere, expiry, one use, end of sessions.
 */
#include "coordinator/auth/auth.h"

#include "common/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define HOUR_MS 3600000

static int setup(void **state)
{
    struct auth *auth = NULL;
    if (auth_create(&auth))
        return -1;
    *state = auth;
    return 0;
}

static int teardown(void **state)
{
    auth_free(*state);
    return 0;
}

static void add_key(struct auth *auth, const char *id, uint32_t scopes, int64_t expires_wall_ms,
                    char ret_secret[AUTH_SECRET_BYTES])
{
    uint8_t hash[SHA256_BYTES];
    auth_secret_make("sk", ret_secret);
    auth_secret_hash(ret_secret, hash);
    assert_int_equal(auth_key_add(auth, id, hash, scopes, expires_wall_ms), STATUS_OK);
}

static void a_made_secret_has_the_documented_shape(void **state)
{
    (void)state;
    static const char *const kinds[] = {"sk", "inv", "set"};
    for (size_t i = 0; i < 3; i++) {
        char text[AUTH_SECRET_BYTES], other[AUTH_SECRET_BYTES];
        auth_secret_make(kinds[i], text);
        auth_secret_make(kinds[i], other);
        assert_int_equal(strlen(text), 4 + strlen(kinds[i]) + 1 + 8 + 1 + 43 + 1 + 6);
        assert_true(auth_secret_is_wellformed(text, kinds[i]));
        assert_false(auth_secret_is_wellformed(text, kinds[(i + 1) % 3]));
        assert_string_not_equal(text, other);
    }
}

static void the_checksum_is_crc32(void **state)
{
    (void)state; /* computed with zlib.crc32 of everything before the last underscore */
    assert_true(auth_secret_is_wellformed(
        "rvn_sk_01234567_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg_a933dc", "sk"));
}

static void every_altered_character_is_refused(void **state)
{
    (void)state;
    char text[AUTH_SECRET_BYTES];
    auth_secret_make("inv", text);
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        char right = text[i];
        for (int byte = 0; byte < 256; byte++) {
            if ((char)byte == right)
                continue;
            text[i] = (char)byte;
            assert_false(auth_secret_is_wellformed(text, "inv"));
        }
        text[i] = right;
    }
    text[length] = 'a';
    text[length + 1] = '\0';
    assert_false(auth_secret_is_wellformed(text, "inv"));
}

static void swapped_neighbours_are_refused(void **state)
{
    (void)state;
    char text[AUTH_SECRET_BYTES];
    auth_secret_make("sk", text);
    for (size_t i = 0; i + 1 < strlen(text); i++) {
        if (text[i] == text[i + 1])
            continue;
        char left = text[i];
        text[i] = text[i + 1];
        text[i + 1] = left;
        assert_false(auth_secret_is_wellformed(text, "sk"));
        text[i + 1] = text[i];
        text[i] = left;
    }
}

static void hostile_texts_are_not_wellformed(void **state)
{
    (void)state;
    static char huge[100000];
    memset(huge, 'a', sizeof huge - 1);
    memcpy(huge, "rvn_sk_", 7);
    assert_false(auth_secret_is_wellformed(huge, "sk"));
    assert_false(auth_secret_is_wellformed("", "sk"));
    assert_false(auth_secret_is_wellformed("rvn", "sk"));
    assert_false(auth_secret_is_wellformed("rvn_", "sk"));
    assert_false(auth_secret_is_wellformed("rvn_sk", "sk"));
    assert_false(auth_secret_is_wellformed("rvn_sk_", "sk"));
    assert_false(auth_secret_is_wellformed("Bearer rvn_sk_", "sk"));
}

static void scopes_go_both_ways(void **state)
{
    (void)state;
    char text[256];
    uint32_t scopes = 7;
    auth_scopes_format(SCOPE_ALL, text, sizeof text);
    assert_int_equal(auth_scopes_parse(text, &scopes), STATUS_OK);
    assert_int_equal(scopes, SCOPE_ALL);
    assert_int_equal(auth_scopes_parse("  jobs:read   keys:admin ", &scopes), STATUS_OK);
    assert_int_equal(scopes, SCOPE_JOBS_READ | SCOPE_KEYS_ADMIN);
    auth_scopes_format(scopes, text, sizeof text);
    assert_string_equal(text, "jobs:read keys:admin");
    assert_string_equal(auth_scope_name(SCOPE_EVENTS_READ), "events:read");
    assert_int_equal(auth_scopes_parse("jobs:read jobs:delete", &scopes), STATUS_INVALID);
    assert_int_equal(auth_scopes_parse("jobs:rea", &scopes), STATUS_INVALID);
    assert_int_equal(scopes, SCOPE_JOBS_READ | SCOPE_KEYS_ADMIN);
    assert_int_equal(auth_scopes_parse("", &scopes), STATUS_OK);
    assert_int_equal(scopes, SCOPE_NONE);
}

static void a_key_is_known_until_it_is_removed(void **state)
{
    struct auth *auth = *state;
    char secret[AUTH_SECRET_BYTES], stranger[AUTH_SECRET_BYTES];
    struct auth_principal who = {.scopes = 99};
    add_key(auth, "key_1", SCOPE_JOBS_READ, 0, secret);
    auth_secret_make("sk", stranger);
    assert_int_equal(auth_check_bearer(auth, stranger, &who), STATUS_DENIED);
    assert_int_equal(who.scopes, 99);
    assert_int_equal(auth_check_bearer(auth, secret, &who), STATUS_OK);
    assert_int_equal(who.kind, PRINCIPAL_KEY);
    assert_string_equal(who.id, "key_1");
    assert_int_equal(who.scopes, SCOPE_JOBS_READ);
    assert_int_equal(auth_key_count(auth), 1);
    auth_key_remove(auth, "key_1");
    assert_int_equal(auth_check_bearer(auth, secret, &who), STATUS_DENIED);
    assert_int_equal(auth_key_count(auth), 0);
}

static void adding_a_known_key_replaces_it(void **state)
{
    struct auth *auth = *state;
    char old_secret[AUTH_SECRET_BYTES], secret[AUTH_SECRET_BYTES];
    struct auth_principal who;
    add_key(auth, "key_1", SCOPE_ALL, 0, old_secret);
    add_key(auth, "key_1", SCOPE_JOBS_READ, 0, secret);
    assert_int_equal(auth_key_count(auth), 1);
    assert_int_equal(auth_check_bearer(auth, old_secret, &who), STATUS_DENIED);
    assert_int_equal(auth_check_bearer(auth, secret, &who), STATUS_OK);
    assert_int_equal(who.scopes, SCOPE_JOBS_READ);
}

static void an_expired_key_opens_nothing(void **state)
{
    struct auth *auth = *state;
    char secret[AUTH_SECRET_BYTES], session[64];
    struct auth_principal who = {.kind = PRINCIPAL_KEY, .id = "key_1", .scopes = SCOPE_ALL};
    add_key(auth, "key_1", SCOPE_ALL, clock_wall_ms() - 1, secret);
    assert_int_equal(auth_check_bearer(auth, secret, &who), STATUS_DENIED);
    assert_int_equal(auth_session_create(auth, &who, session), STATUS_DENIED);
    add_key(auth, "key_1", SCOPE_ALL, clock_wall_ms() + HOUR_MS, secret);
    assert_int_equal(auth_check_bearer(auth, secret, &who), STATUS_OK);
}

static void the_setup_token_works_once(void **state)
{
    struct auth *auth = *state;
    char token[AUTH_SECRET_BYTES], other[AUTH_SECRET_BYTES];
    uint8_t hash[SHA256_BYTES];
    auth_secret_make("set", token);
    auth_secret_make("set", other);
    auth_secret_hash(token, hash);
    assert_false(auth_setup_use(auth, token));
    auth_setup_arm(auth, hash, HOUR_MS);
    assert_false(auth_setup_use(auth, other));
    assert_false(auth_setup_use(auth, ""));
    assert_true(auth_setup_use(auth, token));
    assert_false(auth_setup_use(auth, token));
    auth_setup_arm(auth, hash, 0);
    assert_false(auth_setup_use(auth, token));
}

static void a_setup_token_is_no_bearer(void **state)
{
    struct auth *auth = *state;
    char token[AUTH_SECRET_BYTES];
    uint8_t hash[SHA256_BYTES];
    struct auth_principal who;
    auth_secret_make("set", token);
    auth_secret_hash(token, hash);
    auth_setup_arm(auth, hash, HOUR_MS);
    assert_int_equal(auth_key_add(auth, "key_odd", hash, SCOPE_ALL, 0), STATUS_OK);
    assert_int_equal(auth_check_bearer(auth, token, &who), STATUS_DENIED);
}

static void a_session_has_no_more_than_its_key(void **state)
{
    struct auth *auth = *state;
    char secret[AUTH_SECRET_BYTES], session[64], second[64];
    struct auth_principal who = {.kind = PRINCIPAL_KEY, .id = "key_1", .scopes = SCOPE_ALL}, seen;
    assert_int_equal(auth_session_create(auth, &who, session), STATUS_DENIED);
    add_key(auth, "key_1", SCOPE_JOBS_READ | SCOPE_EVENTS_READ, 0, secret);
    assert_int_equal(auth_session_create(auth, &who, session), STATUS_OK);
    assert_int_equal(strlen(session), 43);
    assert_int_equal(auth_check_session(auth, session, &seen), STATUS_OK);
    assert_int_equal(seen.kind, PRINCIPAL_BROWSER);
    assert_string_equal(seen.id, "key_1");
    assert_int_equal(seen.scopes, SCOPE_JOBS_READ | SCOPE_EVENTS_READ);
    assert_int_equal(auth_check_bearer(auth, session, &seen), STATUS_DENIED);
    assert_int_equal(auth_check_session(auth, secret, &seen), STATUS_DENIED);
    assert_int_equal(auth_session_create(auth, &who, second), STATUS_OK);
    auth_session_end(auth, session);
    assert_int_equal(auth_check_session(auth, session, &seen), STATUS_DENIED);
    assert_int_equal(auth_check_session(auth, second, &seen), STATUS_OK);
}

static void removing_a_key_ends_its_sessions_only(void **state)
{
    struct auth *auth = *state;
    char secret[AUTH_SECRET_BYTES], session_1[64], session_2[64];
    struct auth_principal key_1 = {.id = "key_1", .scopes = SCOPE_ALL}, seen;
    struct auth_principal key_2 = {.id = "key_2", .scopes = SCOPE_ALL};
    add_key(auth, "key_1", SCOPE_ALL, 0, secret);
    add_key(auth, "key_2", SCOPE_ALL, 0, secret);
    assert_int_equal(auth_session_create(auth, &key_1, session_1), STATUS_OK);
    assert_int_equal(auth_session_create(auth, &key_2, session_2), STATUS_OK);
    auth_key_remove(auth, "key_1");
    assert_int_equal(auth_check_session(auth, session_1, &seen), STATUS_DENIED);
    assert_int_equal(auth_check_session(auth, session_2, &seen), STATUS_OK);
}

static void sessions_are_bounded_and_the_newest_works(void **state)
{
    struct auth *auth = *state;
    char secret[AUTH_SECRET_BYTES], first[64], session[64];
    struct auth_principal key = {.id = "key_1", .scopes = SCOPE_ALL}, seen;
    add_key(auth, "key_1", SCOPE_ALL, 0, secret);
    assert_int_equal(auth_session_create(auth, &key, first), STATUS_OK);
    for (int i = 0; i < 4200; i++)
        assert_int_equal(auth_session_create(auth, &key, session), STATUS_OK);
    assert_int_equal(auth_check_session(auth, session, &seen), STATUS_OK);
    assert_int_equal(auth_check_session(auth, first, &seen), STATUS_DENIED);
}

static void an_agents_token_reads_artifacts_until_its_end(void **state)
{
    struct auth *auth = *state;
    char token[AUTH_SECRET_BYTES];
    struct auth_principal who;
    assert_int_equal(auth_agent_token_make(auth, "vol_1", token), STATUS_OK);
    assert_int_equal(auth_check_bearer(auth, token, &who), STATUS_OK);
    assert_int_equal(who.kind, PRINCIPAL_AGENT);
    assert_string_equal(who.id, "vol_1");
    assert_int_equal(who.scopes, SCOPE_ARTIFACTS_READ);
    auth_agent_token_end(auth, "unknown");
    assert_int_equal(auth_check_bearer(auth, token, &who), STATUS_OK);
    auth_agent_token_end(auth, token);
    assert_int_equal(auth_check_bearer(auth, token, &who), STATUS_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_made_secret_has_the_documented_shape),
        cmocka_unit_test(the_checksum_is_crc32),
        cmocka_unit_test(every_altered_character_is_refused),
        cmocka_unit_test(swapped_neighbours_are_refused),
        cmocka_unit_test(hostile_texts_are_not_wellformed),
        cmocka_unit_test(scopes_go_both_ways),
        cmocka_unit_test_setup_teardown(a_key_is_known_until_it_is_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(adding_a_known_key_replaces_it, setup, teardown),
        cmocka_unit_test_setup_teardown(an_expired_key_opens_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(the_setup_token_works_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_setup_token_is_no_bearer, setup, teardown),
        cmocka_unit_test_setup_teardown(a_session_has_no_more_than_its_key, setup, teardown),
        cmocka_unit_test_setup_teardown(removing_a_key_ends_its_sessions_only, setup, teardown),
        cmocka_unit_test_setup_teardown(sessions_are_bounded_and_the_newest_works, setup, teardown),
        cmocka_unit_test_setup_teardown(an_agents_token_reads_artifacts_until_its_end, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
