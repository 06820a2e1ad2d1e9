/* Downloads from several sources, within limits, and by ways that are not straight: mirrors, caps,
 * a full disk, proxies, certificates. */
#include "agent/session/download.h"

#include "common/base/clock.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mount.h>

#include <cmocka.h>
#include <libwebsockets.h>

#include "tests/support/file_server.h"
#include "tests/support/peer.h"

/* --- several sources -------------------------------------------------------------------------- */

static int setup_mirrors(void **state)
{
    if (setup(state))
        return -1;
    struct place *place = *state;
    for (size_t i = 0; i < 2; i++) {
        if (start_server(&place->mirrors[i]))
            return -1;
        snprintf(place->urls[i], sizeof place->urls[i], "http://127.0.0.1:%u/mirror",
                 place->mirrors[i].port);
    }
    return 0;
}

static int teardown_mirrors(void **state)
{
    struct place *place = *state;
    stop_server(&place->mirrors[0]);
    stop_server(&place->mirrors[1]);
    return teardown(state);
}

static struct download make_mirrored(struct place *place, struct download_history *history,
                                     struct watch *watch)
{
    struct download download = make_download(place);
    place->sources[2] = place->sources[0];
    place->sources[0] = (struct download_source){place->urls[0], NULL};
    place->sources[1] = (struct download_source){place->urls[1], NULL};
    download.source_count = 3;
    download.history = history;
    download.progress = on_progress;
    download.user = watch;
    download.stall_s = 1;
    return download;
}

/* Each bad manner of the first mirror: the second one goes on where it can, nobody else is asked,
 * and only the coordinator ever sees the credential. */
static void test_next_mirror(void **state)
{
    struct place *place = *state;
    static const struct {
        enum manner manner;
        bool unfit, resumed;
    } cases[] = {
        {MANNER_GOOD, false, false},   {MANNER_HTML, false, false},
        {MANNER_500, false, false},    {MANNER_401, true, false},
        {MANNER_CHUNKED, true, false}, {MANNER_REDIRECT, false, false},
        {MANNER_LONGER, true, false},  {MANNER_HTML_SIZED, true, false},
        {MANNER_DAMAGED, true, false}, {MANNER_TRUNCATED, false, true},
        {MANNER_STALLED, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct download_history history = {0};
        struct watch watch = {0};
        struct download download = make_mirrored(place, &history, &watch);
        struct error err = {0};
        place->mirrors[0].manner = cases[i].manner;
        place->mirrors[0].last_request[0] = place->mirrors[1].last_request[0] = '\0';
        if (download_run(&download, &err))
            fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(place->server.requests, 0);
        assert_null(strstr(place->mirrors[0].last_request, "Authorization"));
        assert_null(strstr(place->mirrors[1].last_request, "Authorization"));
        assert_int_equal(strstr(place->mirrors[1].last_request, "Range: bytes=150000-") != NULL,
                         cases[i].resumed);
        assert_int_equal(history.unfit, cases[i].unfit);
        assert_false(watch.wrong);
        assert_int_equal(watch.last, BYTES);
        expect_done(place);
    }
}

/* All others are gone, so the coordinator is asked, and at once from then on. */
static void pain_A19_all_mirrors_gone(void **state)
{
    struct place *place = *state;
    struct download_history history = {0};
    struct watch watch = {0};
    struct error err = {0};
    struct download download = make_mirrored(place, &history, &watch);
    place->mirrors[0].manner = place->mirrors[1].manner = MANNER_500;
    place->server.manner = MANNER_TRUNCATED;
    assert_int_equal(download_run(&download, &err), STATUS_TRUNCATED);
    assert_int_equal(place->mirrors[0].requests + place->mirrors[1].requests, 3);
    assert_int_equal(place->server.requests, 1);
    place->server.manner = MANNER_NO_RANGE; /* starts again at 0: no progress backwards */
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_int_equal(place->mirrors[0].requests + place->mirrors[1].requests, 3);
    assert_non_null(strstr(place->server.last_request, "Authorization: Bearer rvn_test_token\r\n"));
    assert_false(watch.wrong);
    expect_done(place);

    /* If the coordinator cannot be reached either, it may be our own line: mirrors count again. */
    place->server.manner = MANNER_500;
    history = (struct download_history){0};
    assert_int_equal(download_run(&download, &err), STATUS_UNAVAILABLE);
    place->mirrors[0].manner = MANNER_GOOD;
    unsigned before = place->server.requests;
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_int_equal(place->server.requests, before);
    expect_done(place);
}

/* One mirror's bytes are wrong, another one completes the file: nobody knows whose fault it is; it
 * ends with the right file all the same. */
static void test_mixed_sources(void **state)
{
    struct place *place = *state;
    struct download_history history = {0};
    struct watch watch = {0};
    struct error err = {0};
    struct download download = make_mirrored(place, &history, &watch);
    put_part(place, place->server.content + 1, 70000); /* somebody's nonsense */
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_int_equal(history.unfit, 0);
    assert_int_equal(history.mirror_failures, 1);
    assert_false(watch.wrong);
    expect_done(place);
    place->sources[0].url = "file:///etc/passwd";
    place->sources[1].url = "http://127.0.0.1:1/x";
    history = (struct download_history){0};
    watch = (struct watch){0};
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_int_equal(history.unfit, 1);
    expect_done(place);
}

/* --- limits ----------------------------------------------------------------------------------- */

static void test_rate_cap(void **state)
{
    struct place *place = *state;
    struct download download = make_download(place);
    struct error err = {0};
    place->server.manner = MANNER_GOOD;
    download.bytes_per_s_max = 150000;
    int64_t start_us = clock_monotonic_us();
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    double seconds = (double)(clock_monotonic_us() - start_us) / 1e6;
    print_message("           %.0f kB/s\n", BYTES / 1e3 / seconds);
    assert_true(seconds > 1.2 && seconds < 4);
    expect_done(place);
}

static void test_disk_too_small(void **state)
{
    struct place *place = *state;
    struct error err = {0};
    struct download download = make_download(place);
    download.bytes = 1ull << 60;
    assert_int_equal(download_run(&download, &err), STATUS_NO_SPACE);
    assert_int_equal(place->server.requests, 0);
    print_message("           %s\n", err.text);
    assert_non_null(strstr(err.text, place->path));
    assert_non_null(strstr(err.text, "1152921504674 MB are needed"));
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", place->dir, "tmpfs", 0, "size=1m")) {
        print_message("           (no tmpfs here: not root)\n");
        return;
    }
    assert_int_equal(run(place, MANNER_GOOD), STATUS_NO_SPACE); /* it would fit, but little stays */
    assert_int_equal(place->server.requests, 0);
    assert_int_equal(access(place->path, F_OK), -1);
    assert_int_equal(umount(place->dir), 0);
}

/* --- proxies and TLS -------------------------------------------------------------------------- */

static void expect_failure(struct place *place, const struct route *route, const char *url,
                           const char *words)
{
    struct download download = make_download(place);
    struct error err = {0};
    place->sources[0].url = url;
    download.route = route;
    download.stall_s = 2;
    assert_int_equal(download_run(&download, &err), STATUS_UNAVAILABLE);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    assert_null(strstr(err.text, "s3cret"));
    print_message("           %s\n", err.text);
}

/* What the WebSocket goes through, files go through. */
static void pain_E13_proxies_for_files(void **state)
{
    struct place *place = *state;
    struct route route = {0};
    struct download download = make_download(place);
    struct error err = {0};
    snprintf(route.proxy, sizeof route.proxy, "http://anna:s3cret@127.0.0.1:%u",
             place->server.port);
    download.route = &route;
    place->sources[0].url = "http://far.example/x";
    place->server.manner = MANNER_GOOD;
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_non_null(strstr(place->server.last_request, "GET http://far.example/x HTTP/1.1\r\n"));
    assert_non_null(
        strstr(place->server.last_request, "Proxy-Authorization: Basic YW5uYTpzM2NyZXQ=\r\n"));
    expect_done(place);

    setenv("no_proxy", "127.0.0.1", 1);
    place->sources[0].url = place->url;
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_non_null(strstr(place->server.last_request, "GET /x HTTP/1.1\r\n"));
    assert_null(strstr(place->server.last_request, "Proxy-Authorization"));
    expect_done(place);
    unsetenv("no_proxy");

    setenv("http_proxy", "http://anna:s3cret@127.0.0.1:1", 1);
    expect_failure(place, NULL, place->url, "cannot reach the proxy 127.0.0.1:1: ");
    strcpy(route.proxy, "none");
    place->sources[0].url = place->url;
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    expect_done(place);
    unsetenv("http_proxy");

    snprintf(route.proxy, sizeof route.proxy, "http://127.0.0.1:%u", place->server.port);
    place->server.manner = MANNER_407;
    expect_failure(place, &route, "http://far.example/x", "wants a user name and password (407)");
    expect_failure(place, &route, "https://far.example/x", "wants a user name and password (407)");
    struct peer proxy;
    peer_start(&proxy, peer_forbid);
    snprintf(route.proxy, sizeof route.proxy, "127.0.0.1:%u", proxy.port);
    expect_failure(place, &route, "https://far.example/x", "refuses this connection (403)");
    peer_stop(&proxy);
}

static void put_response(struct place *place)
{
    char name[PATH_BYTES], head[128];
    snprintf(name, sizeof name, "%s/response", place->dir);
    int fd = open(name, O_WRONLY | O_CREAT, 0600);
    snprintf(head, sizeof head, "HTTP/1.0 200 OK\r\nContent-Length: %u\r\n\r\n", BYTES);
    peer_say(fd, head);
    peer_send(fd, place->server.content, BYTES);
    close(fd);
}

static void pain_E15_each_wrong_certificate_for_files(void **state)
{
    struct place *place = *state;
    static const struct {
        const char *certificate, *words;
    } cases[] = {
        {"old", "has expired"},
        {"new", "is not valid yet"},
        {"other", "is for another host name"},
        {"good", ""},
    };
    struct route route = {0};
    struct peer_tls tls;
    char url[128];
    peer_make_certificate(place->dir, "good", "localhost", -2, 30);
    peer_make_certificate(place->dir, "old", "localhost", -30, -2);
    peer_make_certificate(place->dir, "new", "localhost", 700, 800);
    peer_make_certificate(place->dir, "other", "other.example", -2, 30);
    put_response(place);
    peer_tls_start(&tls, place->dir, "good", "-HTTP");
    snprintf(url, sizeof url, "https://localhost:%u/response", tls.port);
    expect_failure(place, NULL, url, "no authority that this PC knows");
    peer_tls_stop(&tls);
    snprintf(route.ca_file, sizeof route.ca_file, "%s/ca.pem", place->dir);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        peer_tls_start(&tls, place->dir, cases[i].certificate, "-HTTP");
        snprintf(url, sizeof url, "https://localhost:%u/response", tls.port);
        if (cases[i].words[0])
            expect_failure(place, &route, url, cases[i].words);
        else {
            /* The good one, through a proxy as well. */
            struct peer proxy;
            peer_start(&proxy, peer_proxy);
            proxy.wanted = "Basic YW5uYTpzM2NyZXQ=";
            snprintf(route.proxy, sizeof route.proxy, "anna:s3cret@127.0.0.1:%u", proxy.port);
            struct download download = make_download(place);
            struct error err = {0};
            place->sources[0].url = url;
            download.route = &route;
            if (download_run(&download, &err))
                fail_msg("%s", err.text);
            assert_int_equal(proxy.connections, 1);
            expect_done(place);
            peer_stop(&proxy);
            route.proxy[0] = '\0';
        }
        peer_tls_stop(&tls);
    }
    struct peer plain;
    peer_start(&plain, peer_mail_server);
    snprintf(url, sizeof url, "https://localhost:%u/x", plain.port);
    expect_failure(place, &route, url, "does not speak TLS: is http:// meant");
    peer_stop(&plain);
    strcpy(route.ca_file, "/no/such.pem");
    struct download download = make_download(place);
    struct error err = {0};
    download.route = &route;
    assert_int_not_equal(download_run(&download, &err), STATUS_OK);
    assert_non_null(strstr(err.text, "cannot read the setting ca_file = /no/such.pem"));
}

int main(void)
{
    forget_environment();
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define MIRRORS(name) cmocka_unit_test_setup_teardown(name, setup_mirrors, teardown_mirrors)
        MIRRORS(test_next_mirror),        MIRRORS(pain_A19_all_mirrors_gone),
        MIRRORS(test_mixed_sources),      TEST(test_rate_cap),
        TEST(pain_E13_proxies_for_files), TEST(pain_E15_each_wrong_certificate_for_files),
        TEST(test_disk_too_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
