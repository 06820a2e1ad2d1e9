/* Host and Origin checks. Pure functions, any thread. Its surprise: every numeric address and
 * "localhost" pass, with any port (forwarded ports are common), because DNS rebinding needs a name
 * that the attacker controls; all other names must have been configured. */
#include "coordinator/http/hosts.h"

#include "common/base/bytes.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

#define NAME_BYTES 256

/* "" or ":" and 1 … 5 digits. */
static bool is_port(const char *text)
{
    size_t digits = 0;
    if (text[0] == 0)
        return true;
    if (*text++ != ':')
        return false;
    while (isdigit((unsigned char)text[digits]))
        digits++;
    return digits >= 1 && digits <= 5 && text[digits] == 0;
}

/* The name without port and brackets; false when host has another shape. */
static bool split(const char *host, char ret_name[NAME_BYTES], bool *ret_is_v6)
{
    bool is_v6 = host[0] == '[';
    const char *name = is_v6 ? host + 1 : host;
    size_t bytes = strcspn(name, is_v6 ? "]" : ":");
    const char *rest = name + bytes;
    if (is_v6 && *rest++ != ']')
        return false;
    if (bytes == 0 || bytes >= NAME_BYTES || !is_port(rest))
        return false;
    memcpy(ret_name, name, bytes);
    ret_name[bytes] = 0;
    *ret_is_v6 = is_v6;
    return true;
}

bool host_is_allowed(const char *host, const char *const *extra)
{
    char name[NAME_BYTES];
    struct in6_addr address;
    bool is_v6;
    if (!split(host, name, &is_v6))
        return false;
    if (is_v6)
        return inet_pton(AF_INET6, name, &address) == 1;
    if (strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, &address) == 1)
        return true;
    for (; extra && *extra; extra++)
        if (strcasecmp(strchr(*extra, ':') ? host : name, *extra) == 0)
            return true;
    return false;
}

bool origin_is_of_host(const char *origin, const char *host)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < COUNT_OF(schemes); i++) {
        size_t bytes = strlen(schemes[i]);
        if (strncmp(origin, schemes[i], bytes) == 0)
            return strcasecmp(origin + bytes, host) == 0;
    }
    return false;
}
