/* http_headers: the checks that need only a request's headers. A request that fails one of them is
 * refused before its body is read, so that it costs no memory. */
#include "server/http/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct header_count {
    const char *name;
    uint32_t count;
    const char *first; /* Value of the first header with this name. */
};

static enum MHD_Result header_count(void *self, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    (void)kind;
    struct header_count *c = self;
    if (strcasecmp(name, c->name) == 0 && c->count++ == 0)
        c->first = value;
    return MHD_YES;
}

static struct header_count headers_named(struct exchange *x, const char *name)
{
    struct header_count c = {.name = name};
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, header_count, &c);
    return c;
}

/* Stops at the first header whose name is not a token (RFC 9110, section 5.6.2), for example
 * "Content-Length ", which libmicrohttpd takes for another header than Content-Length. */
static enum MHD_Result name_check(void *self, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    static const char token[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "!#$%&'*+-.^_`|~";
    (void)kind;
    (void)value;
    bool *good = self;
    *good = name[0] != 0 && name[strspn(name, token)] == 0;
    return *good ? MHD_YES : MHD_NO;
}

/* Returns where the host begins in a request target that is a URL; 0 = the target is a path. */
static size_t target_host(const char *target)
{
    if (strncasecmp(target, "http://", 7) == 0)
        return 7;
    return strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
}

const char *http_target_path(const char *target)
{
    size_t host = target_host(target);
    const char *path = host > 0 ? strchr(target + host, '/') : target;
    return path != NULL ? path : "/";
}

/* Returns true if the target names no host, or this one. */
static bool target_fits(const char *target, const char *host)
{
    size_t at = target_host(target);
    size_t length = strcspn(target + at, "/");
    return at == 0 || (strlen(host) == length && strncasecmp(target + at, host, length) == 0);
}

static bool refuse_framing(struct exchange *x, struct api_error *error, const char *text)
{
    x->closes_connection = true; /* it is not known where the next request begins */
    return api_error_set(error, 400, NULL, "%s", text);
}

/* Refuses what a proxy in front may read differently (RFC 9112, section 6.3): where one request
 * ends and the next begins, and for which host a request is. libmicrohttpd checks that
 * Content-Length is a number. */
static bool framing_check(struct exchange *x, const char *target, struct api_error *error)
{
    struct header_count length = headers_named(x, "Content-Length");
    struct header_count encoding = headers_named(x, "Transfer-Encoding");
    struct header_count host = headers_named(x, "Host");
    bool names_good = true;
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, name_check, &names_good);
    if (!names_good)
        return refuse_framing(x, error,
                              "the name of a header has a character that names cannot have");
    if (length.count > 1)
        return refuse_framing(x, error, "more than one Content-Length header");
    if (encoding.count > 0 && length.count > 0)
        return refuse_framing(x, error,
                              "both Content-Length and Transfer-Encoding: want one of them");
    if (encoding.count > 1 || (encoding.count == 1 && strcasecmp(encoding.first, "chunked") != 0))
        return refuse_framing(x, error, "Transfer-Encoding must be \"chunked\"");
    if (host.count > 1)
        return refuse_framing(x, error, "more than one Host header");
    if (host.count == 0 && !x->is_http_1_0)
        return refuse_framing(x, error, "the Host header is missing");
    if (host.count > 0 && !target_fits(target, host.first))
        return refuse_framing(x, error, "the URL and the Host header name different hosts");
    x->body_expected = encoding.count > 0 ? UINT64_MAX
                       : length.count > 0 ? strtoull(length.first, NULL, 10)
                                          : 0;
    return true;
}

static bool route_check(struct exchange *x, const char *url, const char *method,
                        struct api_error *error)
{
    static const char models[] = "/v1/models/";
    if (x->route == NULL && strncmp(url, models, sizeof(models) - 1) == 0) {
        api_error_set(error, 404, "model", "there is no model '%.128s' here",
                      url + sizeof(models) - 1);
        error->code = "model_not_found";
        return false;
    }
    if (x->route == NULL)
        return api_error_set(error, 404, NULL, "there is no %.200s here", url);
    if (!http_route_allows(x->route, method))
        return api_error_set(error, 405, NULL, "%.16s is not allowed for %s: want %s", method,
                             x->route->path, x->route->allow);
    return true;
}

/* A body must be announced as JSON. A web page can send a body of another type, or without a type,
 * to any address without asking first (CORS), but not this one. */
static bool type_check(struct exchange *x, struct api_error *error)
{
    static const char json[] = "application/json";
    if (x->body_expected == 0)
        return true;
    const char *coding =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Encoding");
    if (coding != NULL && strcasecmp(coding, "identity") != 0)
        return api_error_set(error, 415, NULL,
                             "Content-Encoding is '%.64s': want a body that is not compressed",
                             coding);
    const char *type = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Type");
    size_t length = type != NULL ? strcspn(type, "; \t") : 0;
    if (length == sizeof(json) - 1 && strncasecmp(type, json, length) == 0)
        return true;
    if (type == NULL || type[0] == 0)
        return api_error_set(error, 415, NULL, "there is no Content-Type: want application/json");
    return api_error_set(error, 415, NULL, "Content-Type is '%.64s': want application/json", type);
}

bool http_body_too_large(struct exchange *x, struct api_error *error)
{
    return api_error_set(error, 413, NULL,
                         "the body is larger than %llu bytes (http/body_bytes_max)",
                         (unsigned long long)x->body_bytes_max);
}

bool http_bodies_fit(const struct http *h, uint64_t body_bytes, uint64_t bytes,
                     struct api_error *error)
{
    const struct config *config = h->options.config;
    uint64_t max = config->http.bodies_bytes_max;
    if (max < config->http.body_bytes_max)
        max = config->http.body_bytes_max;
    if (body_bytes <= HTTP_LARGE_BYTES)
        max += max / 16;
    if (h->bodies_bytes <= max && bytes <= max - h->bodies_bytes)
        return true;
    api_error_set(error, 503, NULL,
                  "too many requests are being received (http/bodies_bytes_max): try again");
    error->retry_after_s = 1;
    return false;
}

static bool size_check(struct exchange *x, struct api_error *error)
{
    if (x->body_expected == 0 || x->body_expected == UINT64_MAX)
        return true;
    if (x->body_expected > x->body_bytes_max)
        return http_body_too_large(x, error);
    return http_bodies_fit(x->http, x->body_expected, x->body_expected, error);
}

/* A request that may take long needs a place that is not kept for others. */
static bool place_check(struct exchange *x, struct api_error *error)
{
    if (x->client == NULL || x->route->access != HTTP_KEY || http_client_work_begin(x->client))
        return true;
    x->closes_connection = true;
    api_error_set(error, 503, NULL, "all connections are in use (http/connections_max): try again");
    error->retry_after_s = 1;
    return false;
}

bool http_headers_check(struct exchange *x, const char *target, const char *method,
                        struct api_error *error)
{
    const char *url = http_target_path(target);
    if (!framing_check(x, target, error))
        return false;
    x->is_preflight = http_web_is_preflight(x, method);
    if (x->is_preflight)
        return true;
    return http_access_check(x, error) && route_check(x, url, method, error) &&
           place_check(x, error) && type_check(x, error) && size_check(x, error);
}
