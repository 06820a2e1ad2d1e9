/* The link through proxies and TLS of every kind, and many times in vain. */
#include "tests/unit/agent/session/link_fixture.h"

/* --- proxies ---------------------------------------------------------------------------------- */

static void expect_no_secret(void)
{
    assert_null(strstr(place.watch.why, "s3cret"));
    assert_null(strstr(place.watch.why, "anna"));
}

static void pain_E13_proxies(void **state)
{
    (void)state;
    struct peer proxy;
    peer_start(&place.peer, echo);
    peer_start(&proxy, peer_proxy);
    char text[128];
    proxy.wanted = "Basic YW5uYTpzM2NyZXQ6"; /* anna:s3cret: */
    snprintf(text, sizeof text, "http://anna:s3cret%%3a@127.0.0.1:%u", proxy.port);
    setenv("http_proxy", text, 1);
    dial_peer();
    expect_echo();
    assert_int_equal(proxy.connections, 1);
    assert_non_null(strstr(proxy.head, "CONNECT 127.0.0.1:"));
    link_drop(place.link);
    run_for(100);

    setenv("no_proxy", "example.org, 127.0.0.0/8", 1);
    dial_peer();
    expect_echo();
    assert_int_equal(proxy.connections, 1);
    link_drop(place.link);
    run_for(100);
    unsetenv("no_proxy");

    proxy.wanted = "Basic xyz";
    dial_peer();
    expect_closed("does not accept the user name and password it was given (407)");
    expect_no_secret();
    snprintf(text, sizeof text, "127.0.0.1:%u", proxy.port);
    setenv("http_proxy", text, 1);
    dial_peer();
    expect_closed("wants a user name and password (407)");
    proxy.wanted = NULL;
    dial_host(false, "127.0.0.1", peer_dead_port());
    expect_closed("refuses this connection (502)");
    peer_stop(&proxy);
    dial_peer();
    expect_closed("cannot reach the proxy 127.0.0.1:");
    peer_start(&proxy, peer_forbid);
    snprintf(text, sizeof text, "http://127.0.0.1:%u", proxy.port);
    setenv("all_proxy", text, 1);
    unsetenv("http_proxy");
    dial_peer();
    expect_closed("refuses this connection (403); ask who runs it");
    setenv("all_proxy", "http://anna:s3cret@no-such-host.invalid:3128", 1);
    dial_peer();
    expect_closed("no address is known for the proxy no-such-host.invalid:3128");
    expect_no_secret();
    setenv("all_proxy", "ftp://anna:s3cret@a:1", 1);
    dial_peer();
    expect_closed("all_proxy: the proxy's scheme is not known");
    expect_no_secret();
    forget_environment();
    peer_stop(&proxy);
    peer_stop(&place.peer);
}

/* --- TLS -------------------------------------------------------------------------------------- */

static void expect_tls(const char *dir, const char *certificate, const char *host,
                       const char *words)
{
    struct peer_tls tls;
    peer_tls_start(&tls, dir, certificate, "-quiet");
    dial_host(true, host, tls.port);
    expect_closed(words);
    peer_tls_stop(&tls);
}

struct tls_echo {
    struct peer_tls *tls;
    char head[4096];
};

static void *tls_echo_thread(void *user)
{
    struct tls_echo *echo_state = user;
    echo_on(echo_state->tls->in, echo_state->tls->out, echo_state->head);
    return NULL;
}

static void expect_tls_echo(const char *dir)
{
    struct peer_tls tls;
    peer_tls_start(&tls, dir, "good", "-quiet");
    struct tls_echo echo_state = {.tls = &tls};
    pthread_t thread;
    pthread_create(&thread, NULL, tls_echo_thread, &echo_state);
    dial_host(true, "localhost", tls.port);
    expect_echo();
    link_close(place.link, 4000);
    assert_true(run_until(&place.watch.closed, 1));
    kill(tls.pid, SIGKILL); /* which ends the thread */
    pthread_join(thread, NULL);
    peer_tls_stop(&tls);
}

/* Pain E13 for wss: TLS with the coordinator inside the proxy's tunnel. */
static void expect_tls_echo_through_a_proxy(const char *dir)
{
    struct peer proxy;
    char text[128];
    peer_start(&proxy, peer_proxy);
    proxy.wanted = "Basic YW5uYTpzM2NyZXQ="; /* anna:s3cret */
    snprintf(text, sizeof text, "http://anna:s3cret@127.0.0.1:%u", proxy.port);
    setenv("https_proxy", text, 1);
    expect_tls_echo(dir);
    assert_int_equal(proxy.connections, 1);
    assert_non_null(strstr(proxy.head, "CONNECT localhost:"));
    forget_environment();
    peer_stop(&proxy);
}

static void pain_E15_each_wrong_certificate_in_its_own_words(void **state)
{
    (void)state;
    char dir[] = "/tmp/raven_link_XXXXXX";
    assert_non_null(mkdtemp(dir));
    peer_make_certificate(dir, "good", "localhost", -2, 30);
    peer_make_certificate(dir, "old", "localhost", -30, -2);
    peer_make_certificate(dir, "new", "localhost", 700, 800);
    peer_make_certificate(dir, "other", "other.example", -2, 30);

    expect_tls(dir, "good", "localhost", "no authority that this PC knows signed");
    link_free(place.link);
    place.link = NULL;
    snprintf(place.settings.route.ca_file, sizeof place.settings.route.ca_file, "%s/ca.pem", dir);
    expect_tls(dir, "old", "localhost", "has expired");
    expect_tls(dir, "new", "localhost", "is not valid yet: set this PC's clock");
    expect_tls(dir, "other", "localhost", "is for another host name");
    peer_start(&place.peer, peer_mail_server);
    dial_host(true, "localhost", place.peer.port);
    expect_closed("does not speak TLS: is http:// meant");
    peer_stop(&place.peer);
    peer_start(&place.peer, close_at_once);
    dial_host(true, "localhost", place.peer.port);
    expect_closed("closed the connection"); /* in the handshake, or before it */
    peer_stop(&place.peer);
    dial_host(true, "[::1]", 443);
    expect_closed("a host name is needed, not an IPv6 address");

    expect_tls_echo(dir);
    expect_tls_echo_through_a_proxy(dir);
    struct error err;
    assert_int_equal(file_remove_tree(dir, &err), STATUS_OK);
}

static void test_bad_ca_file(void **state)
{
    (void)state;
    strcpy(place.settings.route.ca_file, "/no/such/file.pem");
    dial_host(true, "localhost", 443);
    expect_closed("cannot read the setting ca_file = /no/such/file.pem");
}

/* --- leaks ------------------------------------------------------------------------------------ */

static void attempt(uint16_t port)
{
    dial_host(false, "127.0.0.1", port);
    assert_true(run_until(&place.watch.closed, 1));
}

/* No memory is lost however often the coordinator cannot be reached. */
static void expect_no_growth(const char *what, uint16_t port, int warm_up, int attempts)
{
    for (int i = 0; i < warm_up; i++)
        attempt(port);
    run_for(100);
    long before = process_rss_kib();
    int files = process_open_files();
    int64_t start_us = clock_monotonic_us();
    for (int i = 0; i < attempts; i++)
        attempt(port);
    double seconds = (double)(clock_monotonic_us() - start_us) / 1e6;
    run_for(100);
    print_message("           %d attempts (%s) in %.1f s: %+ld KiB, %+d descriptors\n", attempts,
                  what, seconds, process_rss_kib() - before, process_open_files() - files);
    assert_true(process_open_files() <= files);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(process_rss_kib() - before < 1024);
#endif
}

static void pain_E19_attempts_in_vain_leave_nothing_behind(void **state)
{
    (void)state;
    expect_no_growth("refused", peer_dead_port(), 500, 10000);
    peer_start(&place.peer, close_at_once);
    expect_no_growth("closed at once", place.peer.port, 500, 2000);
    peer_stop(&place.peer);
    peer_start(&place.peer, say_404);
    expect_no_growth("404", place.peer.port, 500, 2000);
    peer_stop(&place.peer);
}

int main(void)
{
    forget_environment();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(pain_E13_proxies),
        TEST(pain_E15_each_wrong_certificate_in_its_own_words),
        TEST(test_bad_ca_file),
        TEST(pain_E19_attempts_in_vain_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
