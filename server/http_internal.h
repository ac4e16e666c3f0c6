/* http_internal: what http.c (connections) and http_routes.c (endpoints) share. */
#ifndef SERVER_HTTP_INTERNAL_H
#define SERVER_HTTP_INTERNAL_H

#include "server/completion.h"
#include "server/http.h"

#include <microhttpd.h>

struct exchange; /* one HTTP request and its response */

struct http {
    struct http_options options;
    struct MHD_Daemon *daemon;
    int epoll; /* holds the daemon's own epoll and the sockets of requests that wait */
    struct completion_server completions;
    struct exchange *changed; /* completions that have something new, linked by next_changed */
    uint32_t open_requests;
    bool was_ready;
};

struct route;

struct exchange {
    struct http *http;
    struct MHD_Connection *connection;
    int fd;
    const struct route *route; /* NULL: no such path */
    struct text body;
    bool body_too_large;
    int64_t arrived_us; /* when its last byte was there */
    struct completion *completion;
    bool watched; /* its socket is in http->epoll */
    bool suspended;
    bool gone;       /* the client has gone, or is too slow */
    bool is_changed; /* in http->changed */
    struct exchange *next_changed;
    unsigned code;
    char request_id[132];
};

struct route {
    const char *path;
    const char *allow; /* "GET, HEAD" */
    enum MHD_Result (*answer)(struct exchange *exchange);
};

/* The route of a path, or NULL. A trailing slash is not another path. /v1/models/NAME is one for
 * the served name. */
const struct route *http_route_find(const char *url, const char *model_name);
bool http_route_allows(const struct route *route, const char *method);

/* Queues a whole response; the body is copied. */
enum MHD_Result http_answer(struct exchange *exchange, unsigned code, const char *content_type,
                            const char *body, size_t bytes);
/* The same from a text, which is emptied. */
enum MHD_Result http_answer_json(struct exchange *exchange, unsigned code, struct text *body);
enum MHD_Result http_answer_error(struct exchange *exchange, const struct api_error *error);
/* Parses and starts a completion; suspends the connection until there is something to send. */
enum MHD_Result http_answer_completion(struct exchange *exchange, enum api_kind kind);

#endif
