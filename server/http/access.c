/* http_access: which client may use which endpoint. With API keys, the client's key decides.
 * Without keys, every client may use every endpoint, except that web pages of other sites may not,
 * and that /admin is for this host only. */
#include "server/http/internal.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof(v4));
        return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
    }
    struct sockaddr_in6 v6;
    if (address->sa_family != AF_INET6)
        return false;
    memcpy(&v6, address, sizeof(v6));
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
}

static const char *header(struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static bool peer_is_loopback(struct exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info != NULL && is_loopback(info->client_addr);
}

/* True if the client asked for this host by a name or address that only this host has. */
static bool host_is_loopback(struct exchange *x)
{
    const char *host = header(x, "Host");
    char address[LIMIT_ADDRESS_BYTES];
    if (host == NULL || strlen(host) + sizeof(":80") > sizeof(address))
        return false;
    bool port = strrchr(host, ':') != NULL && host[strlen(host) - 1] != ']';
    snprintf(address, sizeof(address), "%s%s", host, port ? "" : ":80");
    return config_address_is_loopback(address);
}

/* Without keys, a browser on this host could be made to use the API by any web page that it shows.
 * A browser names the page's site in Origin: it must be this server. On loopback, its name must be
 * one that only this host has, because a hostile site's name may lead to 127.0.0.1 as well. */
static bool page_check(struct exchange *x, struct api_error *error)
{
    const char *origin = header(x, "Origin");
    if (origin == NULL)
        return true;
    const char *host = header(x, "Host");
    const char *site = strstr(origin, "://");
    if (host != NULL && site != NULL && strcmp(site + 3, host) == 0 &&
        (!peer_is_loopback(x) || host_is_loopback(x)))
        return true;
    return api_error_set(error, 403, NULL,
                         "without API keys (server/api_keys_file) web pages of other sites "
                         "(Origin: %.128s) may not use this server",
                         origin);
}

/* /admin without keys: only from loopback, and not from a web page. A browser sends Origin, and no
 * web page may use the loopback of the computer that shows it. */
static bool admin_without_keys(struct exchange *x, struct api_error *error)
{
    if (!peer_is_loopback(x))
        return api_error_set(error, 403, NULL,
                             "without API keys (server/api_keys_file) %s is for this computer only",
                             x->route->path);
    if (header(x, "Origin") != NULL)
        return api_error_set(error, 403, NULL, "%s is not for web pages", x->route->path);
    return true;
}

bool http_access_check(struct exchange *x, struct api_error *error)
{
    const struct api_keys *keys = x->http->options.keys;
    enum http_access access = x->route != NULL ? x->route->access : HTTP_KEY;
    if (access == HTTP_OPEN)
        return true;
    if (keys == NULL || !api_keys_wanted(keys))
        return access == HTTP_ADMIN ? admin_without_keys(x, error) : page_check(x, error);
    const char *given = header(x, "Authorization");
    if (!api_keys_find(keys, given, &x->key)) {
        api_error_set(error, 401, NULL, "%s",
                      given == NULL ? "an API key is wanted: Authorization: Bearer KEY"
                                    : "this API key is not known here");
        error->code = "invalid_api_key";
        return false;
    }
    if (x->client != NULL)
        http_client_know(x->client);
    const struct api_key_rules *rules = api_keys_rules(keys, x->key);
    if (access == HTTP_ADMIN && !rules->admin)
        return api_error_set(error, 403, NULL, "key %s may not use %s: want \"admin\": true",
                             rules->name, x->route->path);
    if (access == HTTP_METRICS && !rules->admin && !rules->metrics)
        return api_error_set(error, 403, NULL, "key %s may not read %s: want \"metrics\": true",
                             rules->name, x->route->path);
    return true;
}
