/* A real server without database and core: framing tricks on raw sockets, limits, Host and Origin,
 * credentials, sessions, static files. What needs the database is in api_test.c. */
#include "tests/unit/coordinator/http/fixture.h"

#include <poll.h>
#include <sys/stat.h>

#define JSON "Content-Type: application/json\r\n"

struct world {
    struct site site;
    struct auth *auth;
    char key[AUTH_SECRET_BYTES], reader[AUTH_SECRET_BYTES], agent[AUTH_SECRET_BYTES];
    char dir[64];
};

static void add_key(struct world *world, const char *id, uint32_t scopes,
                    char ret[AUTH_SECRET_BYTES])
{
    uint8_t hash[SHA256_BYTES];
    auth_secret_make("sk", ret);
    auth_secret_hash(ret, hash);
    assert_int_equal(auth_key_add(world->auth, id, hash, scopes, INT64_MAX), STATUS_OK);
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[PATH_BYTES];
    assert_int_equal(path_format(path, "%s/%s", dir, name), STATUS_OK);
    assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, NULL), STATUS_OK);
}

static int open_world(void **state)
{
    static const char *const hosts[] = {"raven.example", NULL};
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    strcpy(world->dir, "/tmp/raven-http-XXXXXX");
    assert_non_null(mkdtemp(world->dir));
    write_file(world->dir, "index.html", "<!doctype html>INDEX");
    write_file(world->dir, "app-0123456789ab.js", "PLAIN");
    write_file(world->dir, "app-0123456789ab.js.gz", "PACKED");
    write_file(world->dir, "THIRD_PARTY_LICENSES.txt", "MIT");
    assert_int_equal(auth_create(&world->auth), STATUS_OK);
    add_key(world, "key_01JD0000000000000000000000", SCOPE_ALL, world->key);
    add_key(world, "key_01JD0000000000000000000001", SCOPE_JOBS_READ, world->reader);
    assert_int_equal(
        auth_agent_token_make(world->auth, "vol_01JD0000000000000000000000", world->agent),
        STATUS_OK);
    struct http_options options = {.auth = world->auth,
                                   .web_dir = world->dir,
                                   .artifacts_dir = world->dir,
                                   .artifact_bytes_max = 1 << 20,
                                   .allowed_hosts = hosts};
    site_open(&world->site, &options);
    *state = world;
    return 0;
}

static int close_world(void **state)
{
    struct world *world = *state;
    site_close(&world->site);
    auth_free(world->auth);
    assert_int_equal(file_remove_tree(world->dir, NULL), STATUS_OK);
    free(world);
    return 0;
}

static struct answer ask(struct world *world, const char *method, const char *path,
                         const char *head, const char *body)
{
    return site_ask(&world->site, method, path, head, body, body ? strlen(body) : 0);
}

static struct answer ask_as(struct world *world, const char *key, const char *method,
                            const char *path)
{
    char head[256];
    snprintf(head, sizeof head, "Authorization: Bearer %s\r\n", key);
    return ask(world, method, path, head, NULL);
}

/* --- framing --------------------------------------------------------------------------------- */

/* Each request smuggles a second one in its body or lies about its length. Whatever is answered,
 * the connection must end and the smuggled request must never be answered. */
static const struct {
    const char *name, *bytes;
    int status; /* of the only answer; 0: none is needed */
} tricks[] = {
    {"two lengths 5 30",
     "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 30\r\n"
     "\r\nhelloGET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     400},
    {"two lengths 43 5",
     "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 43\r\nContent-Length: 5\r\n"
     "\r\nhelloGET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     400},
    {"length and chunked",
     "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 6\r\n"
     "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/version HTTP/1.1\r\nHost: "
     "127.0.0.1\r\n\r\n",
     400},
    {"unknown coding",
     "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n"
     "Transfer-Encoding: xchunked\r\n\r\nabcdGET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     400},
    {"space before the colon",
     "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n"
     "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\nGET /v1/version HTTP/1.1\r\nHost: "
     "127.0.0.1\r\n\r\n",
     400},
    {"chunked on a GET",
     "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
     "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     400},
    {"length on a GET",
     "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 48\r\n\r\n"
     "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     400},
    {"length on a DELETE",
     "DELETE /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 48\r\n\r\n"
     "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     401},
    {"length on a PATCH",
     "PATCH /v1/artifacts/x/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 48\r\n\r\n"
     "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     401},
    {"length on an unknown method",
     "BREW /pot HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 48\r\n\r\n"
     "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     404},
    {"length +5",
     "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: +5\r\n\r\nhello"
     "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     0},
    {"length 0x5",
     "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0x5\r\n\r\nhello"
     "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     0},
    {"length overflows",
     "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999\r\n\r\n"
     "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     0},
    {"no Host", "GET /v1/version HTTP/1.1\r\n\r\n", 0},
    {"two Hosts", "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\n\r\n", 400},
    {"HTTP/1.0", "GET /v1/version HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", 400},
    {"negative chunk",
     "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"
     "hello\r\n0\r\n\r\nGET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     400},
    {"chunk overflows",
     "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
     "fffffffffffffffff\r\nhello\r\n0\r\n\r\nGET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
     400},
    {"NUL in the path", "GET /v1/version%00b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400},
    {"escaped slash", "GET /v1%2fversion HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400},
    {"dots", "GET /v1/../v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400},
    {"absolute target", "GET http://evil/v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400},
    {"bad name", "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\nA{B: c\r\n\r\n", 400},
};

static void test_no_trick_is_answered_twice(void **state)
{
    struct world *world = *state;
    for (size_t i = 0; i < COUNT_OF(tricks); i++) {
        int fd = site_dial(&world->site);
        send_all(fd, tricks[i].bytes, strlen(tricks[i].bytes));
        struct answer first = read_answer(fd, false);
        if (tricks[i].status && first.status != tricks[i].status)
            fail_msg("%s: %d", tricks[i].name, first.status);
        if (first.body && strstr(first.body, "\"protocol\""))
            fail_msg("%s: the request was served", tricks[i].name);
        if (tricks[i].status)
            assert_string_equal(answer_header(&first, "Content-Type"), "application/problem+json");
        struct answer second = read_answer(fd, false);
        if (second.status)
            fail_msg("%s: a second answer, %d", tricks[i].name, second.status);
        answer_done(&first);
        answer_done(&second);
        close(fd);
    }
}

/* Odd but unambiguous: served once, and the connection goes on in step. */
static void test_odd_framing_stays_in_step(void **state)
{
    static const char *const odd[] = {
        "GET /v1/version HTTP/1.1\nHost: 127.0.0.1\n\n",
        "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\nA: b\r\n c\r\n\r\n",
    };
    struct world *world = *state;
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        int fd = site_dial(&world->site);
        send_all(fd, odd[i], strlen(odd[i]));
        struct answer answer = read_answer(fd, false);
        assert_true(answer.status == 0 || answer.status == 200 || answer.status == 400);
        if (answer.status == 200) {
            struct pollfd one = {.fd = fd, .events = POLLIN};
            assert_int_equal(poll(&one, 1, 50), 0); /* nothing more comes */
        }
        answer_done(&answer);
        close(fd);
    }
}

static void test_keep_alive(void **state)
{
    struct world *world = *state;
    static const char *const requests[] = {
        "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET /v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Content-Length: 2\r\n\r\n{}",
        "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    };
    static const int status[] = {200, 404, 401, 200, 422, 200};
    int fd = site_dial(&world->site);
    for (size_t i = 0; i < COUNT_OF(requests); i++) {
        send_all(fd, requests[i], strlen(requests[i]));
        expect(read_answer(fd, false), status[i], NULL);
    }
    for (size_t i = 0; i < COUNT_OF(requests); i++) /* and all at once */
        send_all(fd, requests[i], strlen(requests[i]));
    for (size_t i = 0; i < COUNT_OF(requests); i++)
        expect(read_answer(fd, false), status[i], NULL);
    close(fd);
}

/* --- limits ---------------------------------------------------------------------------------- */

static void test_large_headers_and_targets(void **state)
{
    struct world *world = *state;
    char *head = malloc(50000);
    assert_non_null(head);
    for (size_t bytes = 10000; bytes <= 40000; bytes += 10000) {
        int fd = site_dial(&world->site);
        int length = snprintf(head, 50000, "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\nA: ");
        memset(head + length, 'a', bytes);
        strcpy(head + length + bytes, "\r\n\r\n");
        send_all(fd, head, strlen(head));
        struct answer answer = read_answer(fd, false);
        assert_int_equal(answer.status, bytes == 10000 ? 200 : 431);
        answer_done(&answer);
        close(fd);
    }
    int length = snprintf(head, 50000, "GET /");
    memset(head + length, 'a', 3000);
    strcpy(head + length + 3000, " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    int fd = site_dial(&world->site);
    send_all(fd, head, strlen(head));
    expect(read_answer(fd, false), 400, "/problems/invalid-request");
    close(fd);
    free(head);
}

static void test_large_body_is_refused_before_it_comes(void **state)
{
    struct world *world = *state;
    static const char head[] =
        "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\n" JSON "Content-Length: 1048577\r\n\r\n";
    int fd = site_dial(&world->site);
    send_all(fd, head, sizeof head - 1); /* and not one byte of the body */
    struct answer answer = read_answer(fd, false);
    assert_int_equal(answer.status, 413);
    assert_non_null(strstr(answer.body, "/problems/too-large"));
    assert_string_equal(answer_header(&answer, "Connection"), "close");
    answer_done(&answer);
    close(fd);

    char *body = malloc(1048576);
    assert_non_null(body);
    memset(body, ' ', 1048576);
    memcpy(body, "{\"key\":\"x\"", 10);
    body[1048575] = '}';
    expect(site_ask(&world->site, "POST", "/v1/session", JSON, body, 1048576), 401, NULL);
    free(body);
}

static void test_broken_bodies(void **state)
{
    struct world *world = *state;
    expect(ask(world, "POST", "/v1/session", JSON, "{\n\"key\" 1}"), 400, "Line 2, column");
    expect(ask(world, "POST", "/v1/session", JSON, ""), 400, "empty");
    expect(ask(world, "POST", "/v1/session", JSON, "[1]"), 400, "object");
    expect(ask(world, "POST", "/v1/session", "Content-Type: text/plain\r\n", "{}"), 415,
           "application/json");
    expect(ask(world, "POST", "/v1/session", "", "{}"), 415, NULL);
    expect(ask(world, "POST", "/v1/session", "Content-Type: application/jsonp\r\n", "{}"), 415,
           NULL);
    expect(ask(world, "POST", "/v1/session", "Content-Type: application/json; charset=utf-8\r\n",
               "{\"nothing\":1,\"key\":[]}"),
           422, "\"pointer\":\"/nothing\"");
}

/* --- who may ask ----------------------------------------------------------------------------- */

static void test_hosts(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *host;
        int status;
    } cases[] = {{"evil.example", 403},   {"raven.example", 200}, {"raven.example:443", 200},
                 {"localhost:8080", 200}, {"[::1]:1", 200},       {"raven.example.evil", 403}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[128];
        int fd = site_dial(&world->site);
        snprintf(text, sizeof text, "GET /v1/version HTTP/1.1\r\nHost: %s\r\n\r\n", cases[i].host);
        send_all(fd, text, strlen(text));
        expect(read_answer(fd, false), cases[i].status, NULL);
        close(fd);
    }
    assert_true(http_origin_is_ours(world->site.http, "https://raven.example", "raven.example"));
    assert_false(http_origin_is_ours(world->site.http, "https://evil.example", "evil.example"));
    assert_false(http_origin_is_ours(world->site.http, "https://evil.example", "raven.example"));
}

static void test_credentials_and_scopes(void **state)
{
    struct world *world = *state;
    expect(ask(world, "GET", "/v1/me", "", NULL), 401, "/problems/unauthenticated");
    expect(ask(world, "GET", "/v1/me", "Authorization: Basic eDp5\r\n", NULL), 401, NULL);
    expect(ask(world, "GET", "/v1/me", "Authorization: Bearer\r\n", NULL), 401, NULL);
    expect(ask_as(world, "rvn_sk_x", "GET", "/v1/me"), 401, NULL);
    expect(ask_as(world, world->key, "GET", "/v1/me"), 200, "\"jobs:write\"");
    struct answer me = ask_as(world, world->reader, "GET", "/v1/me");
    assert_int_equal(me.status, 200);
    assert_non_null(strstr(me.body, "\"scopes\":[\"jobs:read\"]"));
    answer_done(&me);
    expect(ask_as(world, world->reader, "GET", "/v1/volunteers"), 403, "volunteers:read");
    expect(ask_as(world, world->reader, "GET", "/v1/artifacts/x/content"), 403, "artifacts:read");
    expect(ask_as(world, world->agent, "GET", "/v1/me"), 403, "/problems/forbidden-scope");
    expect(ask_as(world, world->agent, "GET", "/v1/artifacts"), 403, NULL);
    expect(ask_as(world, world->agent, "DELETE", "/v1/session"), 403, NULL);
    expect(ask_as(world, world->agent, "GET", "/v1/artifacts/x/content"), 404, NULL);
    expect(ask_as(world, world->agent, "GET", "/v1/jobs/x/replica"), 404, NULL);
}

/* Signs in and returns the cookie header line. */
static void sign_in(struct world *world, char *ret, size_t bytes)
{
    char body[160];
    snprintf(body, sizeof body, "{\"key\":\"%s\"}", world->key);
    struct answer answer = ask(world, "POST", "/v1/session", JSON, body);
    assert_int_equal(answer.status, 201);
    assert_null(strstr(answer.body, world->key));
    const char *cookie = answer_header(&answer, "Set-Cookie");
    assert_non_null(cookie);
    assert_non_null(strstr(cookie, "; HttpOnly; SameSite=Strict; Path=/"));
    assert_null(strstr(cookie, "Secure"));
    snprintf(ret, bytes, "Cookie: theme=dark; %.*s\r\n", (int)strcspn(cookie, ";"), cookie);
    answer_done(&answer);
}

static void test_sessions_and_origins(void **state)
{
    struct world *world = *state;
    char cookie[256], head[512];
    sign_in(world, cookie, sizeof cookie);
    expect(ask(world, "GET", "/v1/me", cookie, NULL), 200, "key_");
    /* A wrong key does not fall back to the cookie. */
    snprintf(head, sizeof head, "%sAuthorization: Bearer rvn_sk_wrong\r\n", cookie);
    expect(ask(world, "GET", "/v1/me", head, NULL), 401, NULL);
    expect(ask(world, "DELETE", "/v1/session", cookie, NULL), 403, "/problems/forbidden-origin");
    static const char *const foreign[] = {"https://evil.example", "null", "http://127.0.0.1",
                                          "http://raven.example"};
    for (size_t i = 0; i < COUNT_OF(foreign); i++) {
        snprintf(head, sizeof head, "%sOrigin: %s\r\n", cookie, foreign[i]);
        expect(ask(world, "DELETE", "/v1/session", head, NULL), 403, NULL);
    }
    expect(ask(world, "GET", "/v1/me", cookie, NULL), 200, NULL); /* still signed in */
    snprintf(head, sizeof head, "%sOrigin: http://127.0.0.1:%u\r\n", cookie, world->site.port);
    struct answer gone = ask(world, "DELETE", "/v1/session", head, NULL);
    assert_int_equal(gone.status, 204);
    assert_non_null(strstr(answer_header(&gone, "Set-Cookie"), "Max-Age=0"));
    answer_done(&gone);
    expect(ask(world, "GET", "/v1/me", cookie, NULL), 401, NULL);
    /* Signing in from another site is refused too. */
    expect(ask(world, "POST", "/v1/session", JSON "Origin: https://evil.example\r\n", "{}"), 403,
           NULL);
    expect(ask(world, "GET", "/v1/me", "Cookie: raven_session=\r\n", NULL), 401, NULL);
    expect(ask(world, "GET", "/v1/me", "Cookie: xraven_session=a; raven_sessionx=b\r\n", NULL), 401,
           NULL);
}

static void test_wrong_credentials_are_slowed(void **state)
{
    struct world *world = *state;
    int limited = 0;
    for (int i = 0; i < 40; i++) {
        struct answer answer = ask_as(world, "rvn_sk_x", "GET", "/v1/me");
        assert_true(answer.status == 401 || answer.status == 429);
        if (answer.status == 429) {
            limited++;
            assert_string_equal(answer_header(&answer, "Retry-After"), "60");
        }
        answer_done(&answer);
    }
    assert_true(limited >= 20);
    expect(ask_as(world, world->key, "GET", "/v1/me"), 200, NULL);
}

/* --- answers --------------------------------------------------------------------------------- */

static void test_every_answer_is_guarded(void **state)
{
    static const char *const paths[] = {"/", "/v1/version", "/nothing", "/v1/me"};
    struct world *world = *state;
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        struct answer answer = ask(world, "GET", paths[i], "X-Request-Id: abc-1.2_x\r\n", NULL);
        assert_string_equal(answer_header(&answer, "X-Content-Type-Options"), "nosniff");
        assert_string_equal(answer_header(&answer, "Referrer-Policy"), "no-referrer");
        assert_string_equal(answer_header(&answer, "X-Frame-Options"), "DENY");
        assert_non_null(strstr(answer_header(&answer, "Content-Security-Policy"),
                               "default-src 'none'; script-src 'self'"));
        assert_string_equal(answer_header(&answer, "X-Request-Id"), "abc-1.2_x");
        assert_null(answer_header(&answer, "Access-Control-Allow-Origin"));
        answer_done(&answer);
    }
    struct answer forged = ask(world, "GET", "/v1/version", "X-Request-Id: a b\r\n", NULL);
    assert_memory_equal(answer_header(&forged, "X-Request-Id"), "req_", 4);
    answer_done(&forged);
}

static void test_problems(void **state)
{
    struct world *world = *state;
    struct answer answer = ask(world, "PUT", "/v1/jobs", "", NULL);
    assert_int_equal(answer.status, 405);
    assert_string_equal(answer_header(&answer, "Allow"), "POST, GET, HEAD");
    assert_string_equal(answer_header(&answer, "Content-Type"), "application/problem+json");
    assert_non_null(strstr(answer.body, "\"type\":\"/problems/method-not-allowed\""));
    assert_non_null(strstr(answer.body, "\"instance\":\"/v1/jobs\""));
    assert_non_null(strstr(answer.body, "\"request_id\":\"req_"));
    answer_done(&answer);
    expect(ask(world, "GET", "/problems/too-large", "", NULL), 200, "1 MiB");
    expect(ask(world, "GET", "/problems/none", "", NULL), 404, NULL);
    expect(ask(world, "GET", "/%ff%fe", "", NULL), 404, "/problems/not-found");
    expect(ask(world, "GET", "/v1/version?x=1", "", NULL), 400, "parameter x");
    expect(ask_as(world, world->key, "GET", "/v1/jobs?limit=1&limit=2"), 400, "limit");
    expect(ask_as(world, world->key, "GET", "/v1/jobs?limit=0"), 400, "1 to 200");
    expect(ask_as(world, world->key, "GET", "/v1/jobs?limit=-1"), 400, NULL);
    expect(ask_as(world, world->key, "GET", "/v1/jobs?cursor=art_x"), 400,
           "/problems/invalid-cursor");
    expect(ask_as(world, world->key, "GET", "/v1/jobs?state=broken"), 400, "completed");
    char head[256];
    snprintf(head, sizeof head, JSON "Authorization: Bearer %s\r\n", world->key);
    expect(ask(world, "POST", "/v1/jobs", head, "{}"), 400, "/problems/idempotency-key-missing");
}

static void test_static_files(void **state)
{
    struct world *world = *state;
    struct answer page = ask(world, "GET", "/", "", NULL);
    assert_string_equal(page.body, "<!doctype html>INDEX");
    assert_string_equal(answer_header(&page, "Content-Type"), "text/html; charset=utf-8");
    assert_string_equal(answer_header(&page, "Cache-Control"), "no-cache");
    char head[1100];
    snprintf(head, sizeof head, "If-None-Match: %s\r\n", answer_header(&page, "ETag"));
    answer_done(&page);
    expect(ask(world, "GET", "/", head, NULL), 304, NULL);
    expect(ask(world, "GET", "/jobs/job_01JD0000000000000000000000", "", NULL), 200, "INDEX");
    expect(ask(world, "GET", "/setup", "", NULL), 200, "INDEX");
    expect(ask(world, "GET", "/login?kiosk=1", "", NULL), 200, "INDEX");
    expect(ask(world, "HEAD", "/login", "", NULL), 200, NULL);
    expect(ask(world, "POST", "/login", JSON, "{}"), 404, NULL);
    expect(ask(world, "GET", "/jobsx", "", NULL), 404, NULL);
    expect(ask(world, "GET", "/app-0123456789ab.js.gz", "", NULL), 404, NULL);
    expect(ask(world, "GET", "/.hidden", "", NULL), 404, NULL);

    struct answer plain = ask(world, "GET", "/app-0123456789ab.js", "", NULL);
    assert_string_equal(plain.body, "PLAIN");
    assert_string_equal(answer_header(&plain, "Cache-Control"),
                        "public, max-age=31536000, immutable");
    assert_null(answer_header(&plain, "Content-Encoding"));
    answer_done(&plain);
    struct answer packed =
        ask(world, "GET", "/app-0123456789ab.js", "Accept-Encoding: br, gzip\r\n", NULL);
    assert_string_equal(packed.body, "PACKED");
    assert_string_equal(answer_header(&packed, "Content-Encoding"), "gzip");
    assert_string_equal(answer_header(&packed, "Vary"), "Accept-Encoding");
    answer_done(&packed);
    struct answer text = ask(world, "GET", "/THIRD_PARTY_LICENSES.txt", "", NULL);
    assert_string_equal(answer_header(&text, "Cache-Control"), "no-cache");
    answer_done(&text);
}

static void test_without_a_dashboard(void **state)
{
    struct world *world = *state;
    struct site site;
    struct http_options options = {
        .auth = world->auth, .artifacts_dir = world->dir, .artifact_bytes_max = 1};
    site_open(&site, &options);
    expect(site_ask(&site, "GET", "/", "", NULL, 0), 200, "--web");
    expect(site_ask(&site, "GET", "/jobs/x", "", NULL, 0), 200, "dashboard");
    site_close(&site);
    struct http *http = NULL;
    struct error err = {0};
    options.web_dir = "/nowhere";
    assert_int_equal(http_start(&options, &http, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere"));
}

/* Connections in every stage while the server stops: nothing hangs, nothing leaks. */
static void test_stopping_with_open_connections(void **state)
{
    static const char *const stages[] = {
        "",
        "GET /v1",
        "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\n" JSON
        "Content-Length: 100\r\n\r\n{\"key\"",
        "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\n" JSON
        "Content-Length: 11\r\n\r\n{\"key\":\"x\"}",
    };
    struct world *world = *state;
    for (int round = 0; round < 5; round++) {
        struct site site;
        int fds[40];
        struct http_options options = {
            .auth = world->auth, .artifacts_dir = world->dir, .artifact_bytes_max = 1};
        site_open(&site, &options);
        for (size_t i = 0; i < COUNT_OF(fds); i++) {
            const char *text = stages[i % COUNT_OF(stages)];
            fds[i] = site_dial(&site);
            if (text[0])
                send_all(fds[i], text, strlen(text));
        }
        site_close(&site);
        for (size_t i = 0; i < COUNT_OF(fds); i++)
            close(fds[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_trick_is_answered_twice),
        cmocka_unit_test(test_odd_framing_stays_in_step),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_large_headers_and_targets),
        cmocka_unit_test(test_large_body_is_refused_before_it_comes),
        cmocka_unit_test(test_broken_bodies),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_credentials_and_scopes),
        cmocka_unit_test(test_sessions_and_origins),
        cmocka_unit_test(test_every_answer_is_guarded),
        cmocka_unit_test(test_problems),
        cmocka_unit_test(test_static_files),
        cmocka_unit_test(test_without_a_dashboard),
        cmocka_unit_test(test_stopping_with_open_connections),
        cmocka_unit_test(test_wrong_credentials_are_slowed),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
