/* Parses the coordinator's URL. Any thread. Paths, queries and user names are refused rather than
 * ignored: an invite pasted into the URL must not end up in a config file. */
#include "agent/session/url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool host_is_plain(const char *host, size_t bytes, bool ipv6)
{
    if (bytes == 0)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)host[i];
        bool ok = ipv6 ? isxdigit(c) || c == ':' || c == '.' : isalnum(c) || strchr("-._", c);
        if (!ok || c == '\0')
            return false;
    }
    return true;
}

static bool parse_port(const char *text, size_t bytes, uint16_t *ret)
{
    unsigned long port = 0;
    if (bytes == 0 || bytes > 5)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        port = port * 10 + (unsigned long)(text[i] - '0');
    }
    if (port == 0 || port > 65535)
        return false;
    *ret = (uint16_t)port;
    return true;
}

/* rest: what follows "://"; writes how many bytes host and port take. */
static enum status parse_authority(const char *rest, const char *whose, struct url *url,
                                   size_t *ret_bytes, struct error *err)
{
    size_t bytes = strcspn(rest, "/");
    bool ipv6 = rest[0] == '[';
    size_t host_bytes = ipv6 ? strcspn(rest, "]") : strcspn(rest, ":/");
    const char *host = ipv6 ? rest + 1 : rest;
    const char *after = rest + host_bytes + (ipv6 && rest[host_bytes] == ']');
    host_bytes -= ipv6;
    if (after > rest + bytes || (ipv6 && after[-1] != ']') || host_bytes >= sizeof url->host ||
        !host_is_plain(host, host_bytes, ipv6))
        return error_set(err, STATUS_INVALID, "%s has no valid host name", whose);
    if (after < rest + bytes &&
        (*after != ':' || !parse_port(after + 1, (size_t)(rest + bytes - after - 1), &url->port)))
        return error_set(err, STATUS_INVALID, "%s has no valid port (1 to 65535)", whose);
    memcpy(url->host, host, host_bytes);
    snprintf(url->authority, sizeof url->authority, ipv6 ? "[%s]:%u" : "%s:%u", url->host,
             (unsigned)url->port);
    snprintf(url->base, sizeof url->base, "%s://%.*s", url->tls ? "https" : "http",
             (int)sizeof url->base - 9, url->authority);
    *ret_bytes = bytes;
    return STATUS_OK;
}

static enum status parse(const char *text, const char *whose, struct url *url,
                         const char **ret_path, struct error *err)
{
    const char *rest;
    if (strncasecmp(text, "http://", 7) == 0) {
        rest = text + 7;
        url->port = 80;
    } else if (strncasecmp(text, "https://", 8) == 0) {
        rest = text + 8;
        url->tls = true;
        url->port = 443;
    } else {
        return error_set(err, STATUS_INVALID, "%s must start with http:// or https://", whose);
    }
    size_t bytes = 0;
    enum status status = parse_authority(rest, whose, url, &bytes, err);
    if (!status)
        *ret_path = rest + bytes;
    return status;
}

enum status url_parse(const char *text, struct url *ret, struct error *err)
{
    struct url url = {0};
    const char *path;
    enum status status = parse(text, "the coordinator's URL", &url, &path, err);
    if (status)
        return status;
    if (path[0] == '/' && path[1] != '\0')
        return error_set(err, STATUS_INVALID,
                         "the coordinator's URL must end after the host and port");
    *ret = url;
    return STATUS_OK;
}

enum status url_parse_file(const char *text, struct url *ret, struct error *err)
{
    struct url url = {0};
    const char *path;
    enum status status = parse(text, "the file's URL", &url, &path, err);
    if (!status)
        *ret = url;
    return status;
}
