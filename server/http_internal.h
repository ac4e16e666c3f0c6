/* http_internal: what http.c (the daemon and its loop), http_exchange.c (the life of a request),
 * http_access.c (who may) and http_routes.c (endpoints) share. */
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
    struct completion_server completions; /* its model is the one that clients are told of */
    struct exchange *changed; /* completions that have something new, linked by next_changed */
    uint32_t open_requests;
    uint32_t open_answers; /* of those, completions */
    bool draining;
    bool was_ready;
};

struct route;

struct exchange {
    struct http *http;
    struct MHD_Connection *connection;
    int fd;
    const struct route *route; /* NULL: no such path */
    uint32_t key;              /* whose it is, or API_KEY_NONE */
    struct text body;
    bool body_too_large;
    int64_t arrived_us; /* when its last byte was there */
    struct completion *completion;
    bool answers; /* it is one of http->open_answers */
    bool watched; /* its socket is in http->epoll */
    bool suspended;
    bool gone;       /* the client has gone, or is too slow */
    bool is_changed; /* in http->changed */
    struct exchange *next_changed;
    char tail[LIMIT_NAME_BYTES]; /* what comes after the path of a route that ends with a slash */
    unsigned code;
    char request_id[132];
};

enum http_access {
    HTTP_OPEN,    /* for everybody: whether we live */
    HTTP_KEY,     /* for every key */
    HTTP_METRICS, /* for keys that may see what all do */
    HTTP_ADMIN,   /* for keys that may change the cluster */
};

struct route {
    const char *path;
    enum http_access access;
    const char *allow; /* "GET, HEAD" */
    enum MHD_Result (*answer)(struct exchange *exchange);
};

/* The route of a path, or NULL. A trailing slash is not another path. /v1/models/NAME is one for
 * the served name. A route whose path ends with a slash takes one more part, which goes to `tail`.
 */
const struct route *http_route_find(const char *url, const char *model_name,
                                    char tail[LIMIT_NAME_BYTES]);
bool http_route_allows(const struct route *route, const char *method);

/* Queues a whole response; the body is copied. */
enum MHD_Result http_answer(struct exchange *exchange, unsigned code, const char *content_type,
                            const char *body, size_t bytes);
/* The same from a text, which is emptied. */
enum MHD_Result http_answer_json(struct exchange *exchange, unsigned code, struct text *body);
enum MHD_Result http_answer_error(struct exchange *exchange, const struct api_error *error);
/* Parses and starts a completion; suspends the connection until there is something to send. */
enum MHD_Result http_answer_completion(struct exchange *exchange, enum api_kind kind);

/* --- http_admin.c --- */

enum MHD_Result http_answer_state(struct exchange *exchange);
enum MHD_Result http_answer_reload(struct exchange *exchange);
enum MHD_Result http_answer_drain(struct exchange *exchange);
enum MHD_Result http_answer_undrain(struct exchange *exchange);
enum MHD_Result http_answer_machine_add(struct exchange *exchange);
enum MHD_Result http_answer_machine_remove(struct exchange *exchange);

/* --- http_access.c --- */

/* Whether this client may have x->route; fills x->key. False: *error is a 401 or 403. */
bool http_access_check(struct exchange *exchange, struct api_error *error);

/* --- http_exchange.c --- */

enum MHD_Result http_on_request(void *self, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_bytes, void **state);
void http_on_completed(void *self, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode why);
/* Lets a suspended connection go on. */
void http_exchange_resume(struct exchange *exchange);
/* The client has gone: its blocks are freed in both pools now, the connection closes in this turn.
 */
void http_exchange_gone(struct exchange *exchange);

#endif
