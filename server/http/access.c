/* http_access: which client may use which endpoint. With API keys, the client's key decides.
 * Without keys, every client may use every endpoint, except that /admin is for this host only. */
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

/* /admin without keys: only from loopback, and not from a web page. A browser sends Origin, and no
 * web page may use the loopback of the computer that shows it. */
static bool admin_without_keys(struct exchange *x, struct api_error *error)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info == NULL || !is_loopback(info->client_addr))
        return api_error_set(error, 403, NULL,
                             "without API keys (server/api_keys_file) %s is for this computer only",
                             x->route->path);
    if (MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Origin") != NULL)
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
        return access != HTTP_ADMIN || admin_without_keys(x, error);
    const char *given =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Authorization");
    if (!api_keys_find(keys, given, &x->key)) {
        api_error_set(error, 401, NULL, "%s",
                      given == NULL ? "an API key is wanted: Authorization: Bearer KEY"
                                    : "this API key is not known here");
        error->code = "invalid_api_key";
        return false;
    }
    const struct api_key_rules *rules = api_keys_rules(keys, x->key);
    if (access == HTTP_ADMIN && !rules->admin)
        return api_error_set(error, 403, NULL, "key %s may not use %s: want \"admin\": true",
                             rules->name, x->route->path);
    if (access == HTTP_METRICS && !rules->admin && !rules->metrics)
        return api_error_set(error, 403, NULL, "key %s may not read %s: want \"metrics\": true",
                             rules->name, x->route->path);
    return true;
}
