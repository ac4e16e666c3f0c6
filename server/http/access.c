/* http_access: which client may use which endpoint. With API keys, the client's key decides.
 * Without keys, every client may use every endpoint, except that web pages of other sites may not,
 * and that /admin is for this host only. */
#include "server/http/internal.h"

#include "common/date.h"

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

bool http_peer_is_loopback(const struct exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info != NULL && is_loopback(info->client_addr);
}

/* Returns true if the client asked for this host by a name or address that always means this
 * host. */
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

/* Without keys, any web page that a browser on this host shows could make the browser use the API.
 * The browser names the page's site in the header Origin. That site must be this server. For
 * requests over loopback, it must have a name that always means this host, because the name of a
 * hostile site may resolve to 127.0.0.1. */
static bool page_check(struct exchange *x, struct api_error *error)
{
    const char *origin = header(x, "Origin");
    if (origin == NULL || http_web_origin_named(x, origin))
        return true;
    const char *host = header(x, "Host");
    const char *site = strstr(origin, "://");
    if (host != NULL && site != NULL && strcmp(site + 3, host) == 0 &&
        (!http_peer_is_loopback(x) || host_is_loopback(x)))
        return true;
    return api_error_set(error, 403, NULL,
                         "without API keys (server/api_keys_file) web pages of other sites "
                         "(Origin: %.128s) may not use this server",
                         origin);
}

/* Returns a header that says that the request comes from a web page or through a proxy, whose
 * clients may be anywhere; NULL = none. */
static const char *forwarded_by(struct exchange *x)
{
    static const char *const names[] = {
        "Origin",    "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
        "X-Real-IP", "Via",       "Sec-Fetch-Site"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (header(x, names[i]) != NULL)
            return names[i];
    return NULL;
}

/* Checks a request to /admin without keys: only clients on this host that ask for this host may use
 * it. Requests through a proxy on this host are refused, because they may come from any client. */
static bool admin_without_keys(struct exchange *x, struct api_error *error)
{
    static const char where[] = "without API keys (server/api_keys_file)";
    const char *by = forwarded_by(x);
    if (x->from_admin_socket)
        return true;
    if (x->http->admin_daemon != NULL)
        return api_error_set(error, 403, NULL, "%s %s is at the socket http/admin_socket only",
                             where, x->route->path);
    if (!http_peer_is_loopback(x))
        return api_error_set(error, 403, NULL, "%s %s is for this computer only", where,
                             x->route->path);
    if (!host_is_loopback(x))
        return api_error_set(error, 403, NULL,
                             "%s %s is for this computer only: want a Host such as localhost",
                             where, x->route->path);
    if (x->is_http_1_0)
        return api_error_set(error, 403, NULL, "%s %s is not for proxies (HTTP/1.0): want HTTP/1.1",
                             where, x->route->path);
    if (by != NULL)
        return api_error_set(error, 403, NULL, "%s %s is not for web pages and proxies (header %s)",
                             where, x->route->path, by);
    return true;
}

/* Checks a request on the admin socket. Access is controlled by the mode of the socket's file. */
static bool socket_check(struct exchange *x, struct api_error *error)
{
    if (x->route == NULL || x->route->access != HTTP_KEY)
        return true;
    return api_error_set(error, 403, NULL,
                         "http/admin_socket serves /admin, /metrics and /health "
                         "only");
}

static bool is_administrator(struct exchange *x)
{
    const struct api_keys *keys = x->http->options.keys;
    struct api_error ignored;
    struct api_key_shown shown;
    if (x->from_admin_socket)
        return true;
    if (keys == NULL || !api_keys_configured(keys))
        return admin_without_keys(x, &ignored);
    return api_keys_find(keys, header(x, "Authorization"), header(x, "x-api-key"), &shown) &&
           !api_keys_expired(keys, shown.key_index) &&
           api_keys_settings(keys, shown.key_index)->admin;
}

void http_health_text(struct exchange *x, char *out, size_t capacity)
{
    if (is_administrator(x))
        gateway_health_text(x->http->options.gateway, out, capacity);
    else
        gateway_health_summary(x->http->options.gateway, out, capacity);
}

/* Checks what the key's settings allow. */
static bool rights_check(struct exchange *x, enum http_access access, struct api_error *error)
{
    const struct api_key_settings *settings =
        api_keys_settings(x->http->options.keys, x->api_key_index);
    x->is_administrator = settings->admin;
    if (access == HTTP_ADMIN && !settings->admin)
        return api_error_set(error, 403, NULL, "key %s may not use %s: want \"admin\": true",
                             settings->name, x->route->path);
    if (access == HTTP_METRICS && !settings->admin && !settings->metrics)
        return api_error_set(error, 403, NULL, "key %s may not read %s: want \"metrics\": true",
                             settings->name, x->route->path);
    return true;
}

bool http_access_check_again(struct exchange *x, struct api_error *error)
{
    if (x->api_key_index == API_KEY_NONE)
        return true;
    if (!x->key_revoked)
        return rights_check(x, x->route->access, error);
    api_error_set(error, 401, NULL, API_KEY_REVOKED_TEXT);
    error->code = "invalid_api_key";
    return false;
}

static bool expired_refuse(struct exchange *x, struct api_error *error)
{
    const struct api_key_settings *settings =
        api_keys_settings(x->http->options.keys, x->api_key_index);
    char date[DATE_BYTES];
    date_text(settings->expires, date);
    api_error_set(error, 401, NULL, "the API key %s expired at %s", settings->name, date);
    error->code = "api_key_expired";
    return false;
}

bool http_access_check(struct exchange *x, struct api_error *error)
{
    const struct api_keys *keys = x->http->options.keys;
    enum http_access access = x->route != NULL ? x->route->access : HTTP_KEY;
    x->is_administrator = x->from_admin_socket;
    if (x->from_admin_socket)
        return socket_check(x, error);
    if (access == HTTP_OPEN)
        return true;
    if (keys == NULL || !api_keys_configured(keys)) {
        if (access != HTTP_ADMIN)
            return page_check(x, error);
        x->is_administrator = admin_without_keys(x, error);
        return x->is_administrator;
    }
    const char *bearer = header(x, "Authorization"), *plain = header(x, "x-api-key");
    struct api_key_shown shown;
    if (!api_keys_find(keys, bearer, plain, &shown)) {
        api_error_set(error, 401, NULL, "%s",
                      bearer == NULL && plain == NULL
                          ? "an API key is wanted: Authorization: Bearer KEY"
                          : "this API key is not known here");
        error->code = "invalid_api_key";
        return false;
    }
    x->api_key_index = shown.key_index;
    x->api_key_secret = shown.secret_number;
    api_keys_index_hold(x->http->options.keys,
                        x->api_key_index); /* http_on_completed releases it */
    if (api_keys_expired(keys, x->api_key_index))
        return expired_refuse(x, error);
    if (x->client != NULL)
        http_client_key_shown(x->client);
    return rights_check(x, access, error);
}
