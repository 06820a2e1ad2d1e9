/* libcurl's proxy and TLS options, and its failures in words. Any thread. Surprising decision: each
 * way a certificate can be wrong has its own sentence, because the cures have nothing in common
 * (the clock, the store, the URL), and "peer certificate cannot be authenticated" helps nobody. */
#include "agent/session/route.h"

#include <errno.h>
#include <openssl/x509_vfy.h> /* numbers only: libcurl hands OpenSSL's through */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum status set_proxy(CURL *curl, const struct proxy *proxy)
{
    /* The empty strings keep libcurl from reading the environment itself. */
    bool failed =
        curl_easy_setopt(curl, CURLOPT_PROXY, proxy->used ? proxy->url : "") ||
        curl_easy_setopt(curl, CURLOPT_NOPROXY, "") ||
        (proxy->user[0] && (curl_easy_setopt(curl, CURLOPT_PROXYUSERNAME, proxy->user) ||
                            curl_easy_setopt(curl, CURLOPT_PROXYPASSWORD, proxy->password) ||
                            curl_easy_setopt(curl, CURLOPT_PROXYAUTH, CURLAUTH_BASIC)));
    return failed ? STATUS_NO_MEMORY : STATUS_OK;
}

enum status route_check_ca_file(const struct route *route, struct error *err)
{
    if (!route || !route->ca_file[0] || access(route->ca_file, R_OK) == 0)
        return STATUS_OK;
    return error_set_errno(err, errno, "cannot read the setting ca_file = %.200s", route->ca_file);
}

enum status route_apply(const struct route *route, const struct url *url, CURL *curl,
                        struct proxy *ret_proxy, struct error *err)
{
    enum status status = proxy_choose(route ? route->proxy : NULL, url, ret_proxy, err);
    if (!status)
        status = route_check_ca_file(route, err);
    if (status)
        return status;
    if (set_proxy(curl, ret_proxy) || curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1l) ||
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2l) ||
        (route && route->ca_file[0] && curl_easy_setopt(curl, CURLOPT_CAINFO, route->ca_file)))
        return error_set(err, STATUS_NO_MEMORY, "no memory for the connection");
    return STATUS_OK;
}

/* --- words ------------------------------------------------------------------------------------ */

enum status route_explain_refusal(long http_code, const struct proxy *proxy, struct error *err)
{
    if (http_code == 407 && proxy->user[0])
        return error_set(err, STATUS_UNAVAILABLE,
                         "the proxy %s does not accept the user name and password it was given "
                         "(407); correct the setting proxy",
                         proxy->name);
    if (http_code == 407)
        return error_set(err, STATUS_UNAVAILABLE,
                         "the proxy %s wants a user name and password (407); set proxy = "
                         "http://user:password@host:port",
                         proxy->name);
    return error_set(err, STATUS_UNAVAILABLE,
                     "the proxy %s refuses this connection (%ld); ask who runs it to allow it, or "
                     "add the coordinator to no_proxy",
                     proxy->name, http_code);
}

static void clock_text(char ret[32])
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(ret, 32, "%Y-%m-%d %H:%M UTC", &tm);
}

static enum status explain_certificate(CURL *curl, const char *details, const struct url *url,
                                       struct error *err)
{
    long verified = X509_V_OK;
    curl_easy_getinfo(curl, CURLINFO_SSL_VERIFYRESULT, &verified);
    const char *where = url->authority;
    char now[32];
    clock_text(now);
    if (strstr(details, "host name") || strstr(details, "subject name"))
        return error_set(err, STATUS_UNAVAILABLE,
                         "the certificate of %s is for another host name: use the name in it, or "
                         "have it made for %s",
                         where, url->host);
    switch (verified) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return error_set(err, STATUS_UNAVAILABLE,
                         "the certificate of %s has expired: renew it there, or set this PC's "
                         "clock, which says %s",
                         where, now);
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return error_set(err, STATUS_UNAVAILABLE,
                         "the certificate of %s is not valid yet: set this PC's clock, which says "
                         "%s",
                         where, now);
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        return error_set(err, STATUS_UNAVAILABLE,
                         "no authority that this PC knows signed the certificate of %s: set "
                         "ca_file to its CA, or update the package ca-certificates",
                         where);
    default:
        return error_set(err, STATUS_UNAVAILABLE, "the certificate of %s is not valid: %.100s",
                         where, details);
    }
}

static enum status explain_tls(const char *details, const struct url *url, struct error *err)
{
    if (strstr(details, "alert"))
        return error_set(err, STATUS_UNAVAILABLE, "%s refuses the TLS connection: %.120s",
                         url->authority, details);
    if (strstr(details, "wrong version number") || strstr(details, "packet length") ||
        strstr(details, "unknown protocol") || strstr(details, "unexpected message") ||
        strstr(details, "http request"))
        return error_set(err, STATUS_UNAVAILABLE,
                         "%s does not speak TLS: is http:// meant instead of https://, or another "
                         "port?",
                         url->authority);
    return error_set(err, STATUS_UNAVAILABLE,
                     "%s closed the connection during the TLS handshake; if it stays so, check "
                     "the URL's port and whether it is https there",
                     url->authority);
}

static enum status explain_timeout(CURL *curl, const struct url *url, const struct proxy *proxy,
                                   struct error *err)
{
    curl_off_t connected_us = 0;
    curl_easy_getinfo(curl, CURLINFO_CONNECT_TIME_T, &connected_us);
    if (connected_us > 0 && !proxy->used)
        return error_set(err, STATUS_TIMEOUT, "%s took the connection but then said nothing",
                         url->authority);
    return error_set(err, STATUS_TIMEOUT,
                     "%s%s does not answer; is it switched on, and does a firewall let this PC "
                     "through?",
                     proxy->used ? "the proxy " : "", proxy->used ? proxy->name : url->authority);
}

static enum status explain_connect(CURL *curl, const struct url *url, const struct proxy *proxy,
                                   struct error *err)
{
    long error = 0;
    curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &error);
    const char *why =
        error == ECONNREFUSED || error == 0 ? "the connection was refused" : strerror((int)error);
    if (proxy->used)
        return error_set(err, STATUS_UNAVAILABLE,
                         "cannot reach the proxy %s: %s; check the setting proxy (none switches "
                         "proxies off)",
                         proxy->name, why);
    return error_set(err, STATUS_UNAVAILABLE, "cannot reach %s: %s", url->authority, why);
}

enum status route_explain(CURL *curl, CURLcode code, const char *details, const struct url *url,
                          const struct proxy *proxy, struct error *err)
{
    long proxy_code = 0;
    curl_easy_getinfo(curl, CURLINFO_HTTP_CONNECTCODE, &proxy_code);
    if (proxy->used && proxy_code > 0 && proxy_code / 100 != 2)
        return route_explain_refusal(proxy_code, proxy, err);
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
        return error_set(err, STATUS_UNAVAILABLE,
                         "no address is known for the host name %s; is this PC online, and is the "
                         "name right?",
                         url->host);
    case CURLE_COULDNT_RESOLVE_PROXY:
        return error_set(err, STATUS_UNAVAILABLE,
                         "no address is known for the proxy %s; check the setting proxy (none "
                         "switches proxies off)",
                         proxy->name);
    case CURLE_COULDNT_CONNECT:
        return explain_connect(curl, url, proxy, err);
    case CURLE_PROXY:
        return error_set(err, STATUS_UNAVAILABLE, "the proxy %s refuses this connection: %.120s",
                         proxy->name, details);
    case CURLE_OPERATION_TIMEDOUT:
        return explain_timeout(curl, url, proxy, err);
    case CURLE_PEER_FAILED_VERIFICATION:
        return explain_certificate(curl, details, url, err);
    case CURLE_SSL_CONNECT_ERROR:
        return explain_tls(details, url, err);
    case CURLE_SSL_CACERT_BADFILE:
        return error_set(err, STATUS_UNAVAILABLE,
                         "the setting ca_file names a file without a usable certificate");
    case CURLE_OUT_OF_MEMORY:
        return error_set(err, STATUS_NO_MEMORY, "no memory for the connection");
    default:
        break;
    }
    if (proxy->used && proxy_code == 0 &&
        (code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING))
        return error_set(err, STATUS_UNAVAILABLE, "the proxy %s broke the connection off",
                         proxy->name);
    if (code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING)
        return error_set(err, STATUS_UNAVAILABLE, "%s closed the connection without an answer",
                         url->authority);
    return error_set(err, STATUS_UNAVAILABLE, "%s: %s", url->authority, curl_easy_strerror(code));
}
