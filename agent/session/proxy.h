/* Which proxy, if any, leads to a host: the option `proxy`, else the environment (http_proxy,
 * https_proxy, all_proxy), unless no_proxy takes the host out. The one decision for the WebSocket
 * and for downloads, so that both always go the same way. Any thread; reads the environment. */
#ifndef RAVEN_AGENT_SESSION_PROXY_H
#define RAVEN_AGENT_SESSION_PROXY_H

#include "agent/session/url.h"
#include "common/base/status.h"

#include <stdbool.h>

#define PROXY_NONE "none" /* the option's value that switches every proxy off */
#define PROXY_OPTION_BYTES 400
#define PROXY_SECRET_BYTES 128

struct proxy {
    bool used;
    char url[URL_BASE_BYTES + 16]; /* scheme://host:port, without credentials */
    char name[URL_BASE_BYTES];     /* host:port, for people */
    char user[PROXY_SECRET_BYTES], password[PROXY_SECRET_BYTES]; /* decoded; never log them */
};

/* [http|socks4|socks4a|socks5|socks5h://][user[:password]@]host[:port]; the port defaults to 1080
 * as in curl. err never shows the text itself: it may hold a password. */
enum status proxy_parse(const char *text, struct proxy *ret, struct error *err) MUST_CHECK;

/* Whether the list (commas or spaces between names, addresses, 10.0.0.0/8, each with an optional
 * :port; "*" is everything) takes this host out. A name stands for its subdomains as well. */
bool proxy_is_excluded(const char *no_proxy, const char *host, uint16_t port);

/* option: the setting; "" or NULL leaves the choice to the environment. */
enum status proxy_choose(const char *option, const struct url *url, struct proxy *ret,
                         struct error *err) MUST_CHECK;

#endif
