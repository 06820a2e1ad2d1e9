/* Chooses the proxy. Any thread. Own code where curl would read the environment by itself, because
 * the WebSocket does not go through curl's rules; handing both the same answer is what keeps them
 * together. As in curl, HTTP_PROXY in capitals is not read: a CGI program can be made to set it. */
#include "agent/session/proxy.h"

#include "common/base/bytes.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PORT 1080
#define CURE "use proxy = http://[user:password@]host:port, or none"

/* --- the proxy's address ---------------------------------------------------------------------- */

static int hex_value(char c)
{
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                        : -1;
}

static bool decode(const char *text, size_t bytes, char ret[PROXY_SECRET_BYTES])
{
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '%' && i + 2 < bytes && hex_value(text[i + 1]) >= 0 &&
            hex_value(text[i + 2]) >= 0) {
            c = (char)(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
            i += 2;
        }
        if (length + 1 >= PROXY_SECRET_BYTES || iscntrl((unsigned char)c))
            return false;
        ret[length++] = c;
    }
    ret[length] = '\0';
    return true;
}

static bool take_scheme(const char **text, const char **ret)
{
    static const char *const known[] = {"http", "socks4", "socks4a", "socks5", "socks5h"};
    const char *end = strstr(*text, "://");
    *ret = known[0];
    if (!end)
        return true;
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        size_t bytes = strlen(known[i]);
        if ((size_t)(end - *text) == bytes && strncasecmp(*text, known[i], bytes) == 0) {
            *ret = known[i];
            *text = end + 3;
            return true;
        }
    }
    return false;
}

enum status proxy_parse(const char *text, struct proxy *ret, struct error *err)
{
    struct proxy proxy = {.used = true};
    const char *scheme;
    if (strncasecmp(text, "https://", 8) == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "a proxy that is itself reached by TLS is not supported; " CURE);
    if (!take_scheme(&text, &scheme))
        return error_set(err, STATUS_INVALID, "the proxy's scheme is not known; " CURE);
    const char *at = strrchr(text, '@');
    if (at) {
        size_t bytes = (size_t)(at - text);
        const char *colon = memchr(text, ':', bytes);
        size_t user_bytes = colon ? (size_t)(colon - text) : bytes;
        if (!decode(text, user_bytes, proxy.user) ||
            (colon && !decode(colon + 1, bytes - user_bytes - 1, proxy.password)))
            return error_set(err, STATUS_INVALID,
                             "the proxy's user name or password is too long or malformed");
        text = at + 1;
    }
    char address[URL_BASE_BYTES];
    struct url url;
    if (snprintf(address, sizeof address, "http://%s", text) >= (int)sizeof address ||
        url_parse(address, &url, NULL))
        return error_set(err, STATUS_INVALID, "the proxy's address is not valid; " CURE);
    bool ipv6 = strchr(url.host, ':') != NULL;
    if (!strchr(ipv6 ? strchr(text, ']') : text, ':'))
        url.port = DEFAULT_PORT;
    snprintf(proxy.name, sizeof proxy.name, ipv6 ? "[%s]:%u" : "%s:%u", url.host,
             (unsigned)url.port);
    snprintf(proxy.url, sizeof proxy.url, "%s://%s", scheme, proxy.name);
    *ret = proxy;
    return STATUS_OK;
}

/* --- no_proxy --------------------------------------------------------------------------------- */

static bool in_network(const char *host, char *network)
{
    char *slash = strchr(network, '/');
    uint8_t a[16], b[16];
    *slash = '\0';
    int family = strchr(host, ':') ? AF_INET6 : AF_INET;
    unsigned long all = family == AF_INET6 ? 128 : 32;
    char *end;
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (inet_pton(family, host, a) != 1 || inet_pton(family, network, b) != 1 || *end ||
        end == slash + 1 || bits > all)
        return false;
    for (unsigned long bit = 0; bit < bits; bit++)
        if (((a[bit / 8] ^ b[bit / 8]) >> (7 - bit % 8)) & 1)
            return false;
    return true;
}

/* Cuts ":port" off the entry; false when it is there and names another port. */
static bool port_fits(char *entry, uint16_t port)
{
    char *colon = strrchr(entry, ':');
    bool bracketed = entry[0] == '[';
    if (!colon || (bracketed && colon[-1] != ']') || (!bracketed && strchr(entry, ':') != colon))
        return true; /* no port, or an IPv6 address without one */
    *colon = '\0';
    return strtoul(colon + 1, NULL, 10) == port;
}

static bool entry_fits(char *entry, const char *host, uint16_t port)
{
    if (strcmp(entry, "*") == 0)
        return true;
    if (!port_fits(entry, port))
        return false;
    if (entry[0] == '[') {
        entry++;
        entry[strcspn(entry, "]")] = '\0';
    }
    if (strchr(entry, '/'))
        return in_network(host, entry);
    while (*entry == '*' || *entry == '.')
        entry++;
    size_t bytes = strlen(entry), host_bytes = strlen(host);
    while (bytes > 0 && entry[bytes - 1] == '.')
        bytes--;
    while (host_bytes > 0 && host[host_bytes - 1] == '.')
        host_bytes--;
    if (bytes == 0 || bytes > host_bytes ||
        strncasecmp(host + host_bytes - bytes, entry, bytes) != 0)
        return false;
    struct in_addr unused;
    return bytes == host_bytes ||
           (host[host_bytes - bytes - 1] == '.' && inet_pton(AF_INET, host, &unused) != 1);
}

bool proxy_is_excluded(const char *no_proxy, const char *host, uint16_t port)
{
    char entry[URL_BASE_BYTES];
    for (const char *at = no_proxy; *at;) {
        at += strspn(at, ", \t");
        size_t bytes = strcspn(at, ", \t");
        if (bytes > 0 && bytes < sizeof entry) {
            memcpy(entry, at, bytes);
            entry[bytes] = '\0';
            if (entry_fits(entry, host, port))
                return true;
        }
        at += bytes;
    }
    return false;
}

/* --- the choice ------------------------------------------------------------------------------- */

static const char *first_set(const char *const names[], size_t count, const char **ret_name)
{
    for (size_t i = 0; i < count; i++) {
        const char *value = getenv(names[i]);
        *ret_name = names[i];
        if (value && value[0])
            return value;
    }
    return NULL;
}

enum status proxy_choose(const char *option, const struct url *url, struct proxy *ret,
                         struct error *err)
{
    static const char *const tls_names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    static const char *const plain_names[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
    static const char *const exclusions[] = {"no_proxy", "NO_PROXY"};
    const char *origin = "the setting proxy", *unused;
    if (!option || !option[0])
        option = url->tls ? first_set(tls_names, COUNT_OF(tls_names), &origin)
                          : first_set(plain_names, COUNT_OF(plain_names), &origin);
    const char *excluded = first_set(exclusions, COUNT_OF(exclusions), &unused);
    if (!option || strcmp(option, PROXY_NONE) == 0 ||
        (excluded && proxy_is_excluded(excluded, url->host, url->port))) {
        *ret = (struct proxy){0};
        return STATUS_OK;
    }
    struct error cause = {0};
    enum status status = proxy_parse(option, ret, &cause);
    return status ? error_set(err, status, "%s: %s", origin, cause.text) : STATUS_OK;
}
