/* http_web: scripts of web pages of other sites (CORS). A browser runs such a script's request only
 * if the answer names the page's site in Access-Control-Allow-Origin; before most requests, the
 * browser asks with the method OPTIONS. http/web_origins has the sites. Only the API can be used,
 * not /admin. */
#include "server/http/internal.h"

#include <string.h>

#define HEADERS_BYTES_MAX 1024
/* Seconds for which a browser need not ask again. */
#define MAX_AGE "600"

static const char *header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

bool http_web_origin_named(const struct exchange *x, const char *origin)
{
    size_t bytes = strlen(origin);
    for (const char *at = x->http->options.config->http.web_origins; *at != 0;) {
        size_t length = strcspn(at, " ");
        if (length == bytes && bytes > 1 && memcmp(at, origin, bytes) == 0)
            return true;
        at += length;
        at += strspn(at, " ");
    }
    return false;
}

/* Returns the site of the page that sends this request, if the page may use the route; NULL = no
 * page, or one that may not. */
static const char *page_origin(const struct exchange *x)
{
    const char *origin = header(x, "Origin");
    bool api = x->route != NULL &&
               (x->route->access == HTTP_OPEN || x->route->access == HTTP_KEY) &&
               !x->from_admin_socket;
    bool all = strcmp(x->http->options.config->http.web_origins, "*") == 0 &&
               x->http->options.keys != NULL && api_keys_configured(x->http->options.keys);
    return origin != NULL && api && (all || http_web_origin_named(x, origin)) ? origin : NULL;
}

bool http_web_is_preflight(const struct exchange *x, const char *method)
{
    return strcmp(method, "OPTIONS") == 0 && x->body_expected == 0 && page_origin(x) != NULL &&
           header(x, "Access-Control-Request-Method") != NULL;
}

void http_web_headers_add(const struct exchange *x, struct MHD_Response *response)
{
    if (x->http->options.config->http.web_origins[0] == 0)
        return;
    const char *origin = page_origin(x);
    MHD_add_response_header(response, "Vary", "Origin");
    if (origin == NULL)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Access-Control-Expose-Headers",
                            "x-request-id, Retry-After, x-ratelimit-limit-requests, "
                            "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
                            "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
                            "x-ratelimit-reset-tokens");
}

void http_web_answer_add(const struct exchange *x, struct MHD_Response *response)
{
    const char *wanted = header(x, "Access-Control-Request-Headers");
    MHD_add_response_header(response, "Access-Control-Allow-Methods", x->route->allow);
    MHD_add_response_header(response, "Access-Control-Max-Age", MAX_AGE);
    if (wanted != NULL && strlen(wanted) <= HEADERS_BYTES_MAX)
        MHD_add_response_header(response, "Access-Control-Allow-Headers", wanted);
}
