/* Downloads against a small real HTTP server that resumes, refuses, lies and breaks off as told. */
#include "agent/session/download.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tests/support/file_server.h"

static void test_whole(void **state)
{
    struct place *place = *state;
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    assert_non_null(strstr(place->server.last_request, "Authorization: Bearer rvn_test_token\r\n"));
    assert_null(strstr(place->server.last_request, "Range:"));
    expect_done(place);
}

static void test_resume(void **state)
{
    struct place *place = *state;
    put_part(place, place->server.content, 123456);
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    assert_non_null(strstr(place->server.last_request, "Range: bytes=123456-\r\n"));
    expect_done(place);
    put_part(place, place->server.content, 1000); /* a server that ignores Range */
    assert_int_equal(run(place, MANNER_NO_RANGE), STATUS_OK);
    expect_done(place);
}

/* A 416's text must not end up in the file, and a complete .part needs no request. */
static void pain_D1_a_416_is_no_content(void **state)
{
    struct place *place = *state;
    put_part(place, place->server.content, BYTES);
    unsigned before = place->server.requests;
    assert_int_equal(run(place, MANNER_416), STATUS_OK);
    assert_int_equal(place->server.requests, before);
    expect_done(place);
    put_part(place, place->server.content, 5000);
    assert_int_equal(run(place, MANNER_416), STATUS_TRUNCATED);
    assert_int_equal(part_bytes(place), 0); /* starts again */
    assert_int_equal(run(place, MANNER_416), STATUS_OK);
    expect_done(place);
}

static void test_error_pages(void **state)
{
    struct place *place = *state;
    static const struct {
        enum manner manner;
        enum status status;
    } cases[] = {
        {MANNER_HTML, STATUS_UNAVAILABLE},     {MANNER_500, STATUS_UNAVAILABLE},
        {MANNER_401, STATUS_DENIED},           {MANNER_CHUNKED, STATUS_CORRUPT},
        {MANNER_REDIRECT, STATUS_UNAVAILABLE},
    };
    for (size_t start = 0; start <= 7777; start += 7777) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            put_part(place, place->server.content, start);
            assert_int_equal(run(place, cases[i].manner), cases[i].status);
            assert_int_equal(access(place->path, F_OK), -1);
            assert_int_equal(part_bytes(place), start); /* untouched */
        }
    }
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    expect_done(place);
}

static void test_wrong_content(void **state)
{
    struct place *place = *state;
    assert_int_equal(run(place, MANNER_HTML_SIZED), STATUS_CORRUPT);
    assert_int_equal(access(place->path, F_OK), -1);
    assert_int_equal(part_bytes(place), 0);
    put_part(place, place->server.content + 1, 40000); /* a .part file of something else */
    assert_int_equal(run(place, MANNER_GOOD), STATUS_CORRUPT);
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    expect_done(place);
    put_part(place, place->server.content, 40000);
    assert_int_equal(run(place, MANNER_WRONG_RANGE), STATUS_CORRUPT);
    assert_int_equal(access(place->path, F_OK), -1);
    uint8_t *longer = calloc(1, BYTES + 9);
    put_part(place, longer, BYTES + 9);
    free(longer);
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    expect_done(place);
}

/* Every attempt gets half of the rest: the bytes that came are never asked for again. */
static void test_truncated(void **state)
{
    struct place *place = *state;
    size_t have = 0;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(run(place, MANNER_TRUNCATED), STATUS_TRUNCATED);
        assert_int_equal(access(place->path, F_OK), -1);
        assert_true(part_bytes(place) > have);
        have = part_bytes(place);
    }
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    expect_done(place);
}

static struct download make_replica_download(struct place *place, char etag_path[PATH_BYTES])
{
    struct download download = make_download(place);
    snprintf(etag_path, PATH_BYTES, "%s/file.etag", place->dir);
    download.sha256 = NULL;
    download.etag_path = etag_path;
    return download;
}

/* A replica changes on the server: a half file of the old one is not continued with the new one. */
static void test_etag(void **state)
{
    struct place *place = *state;
    char etag_path[PATH_BYTES];
    struct download download = make_replica_download(place, etag_path);
    struct error err = {0};
    put_part(place, "left over", 9); /* of unknown content: not used */
    place->server.manner = MANNER_TRUNCATED;
    assert_int_equal(download_run(&download, &err), STATUS_TRUNCATED);
    assert_null(strstr(place->server.last_request, "Range:"));
    place->server.content[0] ^= 1;
    sha256_of(place->server.content, BYTES, place->sha256);
    place->server.etag = "\"two\"";
    place->server.manner = MANNER_WRONG_ETAG; /* a cache that does not know If-Range */
    assert_int_equal(download_run(&download, &err), STATUS_CORRUPT);
    assert_non_null(strstr(place->server.last_request, "If-Range: \"one\""));
    assert_int_equal(part_bytes(place), 0);
    put_part(place, place->server.content, 5000);
    place->server.manner = MANNER_GOOD;
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_non_null(strstr(place->server.last_request, "If-Range: \"one\""));
    expect_done(place);
}

/* The process is killed in the middle; the next one goes on at the byte. */
static void test_etag_survives_a_kill(void **state)
{
    struct place *place = *state;
    char etag_path[PATH_BYTES], range[64];
    struct download download = make_replica_download(place, etag_path);
    struct error err = {0};
    place->server.manner = MANNER_STALLED;
    pid_t child = fork();
    if (child == 0)
        _exit(download_run(&download, &err) ? 1 : 0);
    while (part_bytes(place) < BYTES / 2)
        usleep(1000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    place->server.manner = MANNER_GOOD;
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    snprintf(range, sizeof range, "Range: bytes=%d-\r\n", BYTES / 2);
    assert_non_null(strstr(place->server.last_request, range));
    assert_non_null(strstr(place->server.last_request, "If-Range: \"one\"\r\n"));
    expect_done(place);
}

/* Progress stays within 0 … 100 %, also with a resume; a removed cache is fetched again. */
static void pain_D3_progress_and_cancel(void **state)
{
    struct place *place = *state;
    struct watch watch = {.cancel = true};
    struct download download = make_download(place);
    download.progress = on_progress;
    download.is_cancelled = is_cancelled;
    download.user = &watch;
    struct error err = {0};
    place->server.manner = MANNER_GOOD;
    assert_int_equal(download_run(&download, &err), STATUS_CLOSED);
    assert_int_equal(access(place->path, F_OK), -1);
    watch.cancel = false;
    put_part(place, place->server.content, 200000);
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_false(watch.wrong);
    assert_int_equal(watch.last, BYTES);
    expect_done(place); /* removes it */
    watch.last = 0;
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_false(watch.wrong);
    expect_done(place);
}

static void test_nobody_listens(void **state)
{
    struct place *place = *state;
    struct download download = make_download(place);
    struct error err = {0};
    place->sources[0].url = "http://127.0.0.1:1/x";
    assert_int_equal(download_run(&download, &err), STATUS_UNAVAILABLE);
    place->sources[0].url = "file:///etc/passwd";
    assert_int_not_equal(download_run(&download, &err), STATUS_OK);
    assert_int_equal(access(place->path, F_OK), -1);
}

int main(void)
{
    forget_environment();
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_whole),
        TEST(test_resume),
        TEST(pain_D1_a_416_is_no_content),
        TEST(test_error_pages),
        TEST(test_wrong_content),
        TEST(test_truncated),
        TEST(test_etag),
        TEST(test_etag_survives_a_kill),
        TEST(pain_D3_progress_and_cancel),
        TEST(test_nobody_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
