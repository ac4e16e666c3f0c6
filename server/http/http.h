/* http: the HTTP side of the gateway. It owns libmicrohttpd's daemons, their connections, and the
 * HTTP requests from their headers until their responses were sent or the clients have gone.
 * server/serve*.c call the functions on the gateway's event loop thread. http does not talk to
 * machines (server/gateway/ does). */
#ifndef SERVER_HTTP_HTTP_H
#define SERVER_HTTP_HTTP_H

#include "common/clock.h"
#include "common/status.h"
#include "common/text.h"
#include "config/config.h"
#include "events/event_log.h"
#include "events/ledger.h"
#include "events/spans.h"
#include "server/api/audit.h"
#include "server/api/keys.h"
#include "server/api/served_model.h"
#include "server/gateway/gateway.h"
#include "server/metrics/metrics.h"

struct http;

/* What an administrator does to a machine. */
enum http_admin_verb { HTTP_ADMIN_DRAIN, HTTP_ADMIN_UNDRAIN, HTTP_ADMIN_ADD, HTTP_ADMIN_REMOVE };

/* What an administrator wants to read. */
struct http_admin_view {
    enum {
        HTTP_ADMIN_REQUESTS,  /* The latest requests. */
        HTTP_ADMIN_DECISIONS, /* The latest events and actions of the schedulers. */
        HTTP_ADMIN_CONFIG,    /* The config in effect. */
        HTTP_ADMIN_LOG,       /* The latest lines of the log, as text. */
    } kind;
    /* HTTP_ADMIN_REQUESTS only. See struct history_query (server/gateway/history.h). */
    const char *id;
    uint32_t requests_max;
    bool with_events;
};

/* The actions of the endpoints under /admin, called from http_turn. They append a JSON object to
 * *answer (for HTTP_ADMIN_LOG, lines of text). On failure, functions with `error` fill *error and
 * return false; functions without `error` set answer->broken. */
struct http_admin {
    /* GET /admin/state */
    void (*state)(void *self, struct text *answer);
    /* GET /admin/requests, /admin/decisions, /admin/config and /admin/log. */
    void (*view)(void *self, const struct http_admin_view *view, struct text *answer);
    /* POST /admin/reload. is_dry_run: POST /admin/reload/dry-run, which changes nothing. actor: the
     * administrator, for the audit lines. */
    bool (*reload)(void *self, bool is_dry_run, const struct audit_actor *actor,
                   struct text *answer, struct api_error *error);
    /* Changes a machine. name: the machine's name, not for HTTP_ADMIN_ADD. body[0..bytes): the
     * request's body (JSON), only for HTTP_ADMIN_ADD. */
    bool (*machine)(void *self, enum http_admin_verb verb, const char *name, const char *body,
                    size_t bytes, struct text *answer, struct api_error *error);
    void *self; /* First argument of the functions. */
};

/* http adds a reference to `model`. The other pointers are not owned, and must outlive http. */
struct http_options {
    const struct config *config;
    struct gateway *gateway;
    struct served_model *model; /* Model of new requests until http_model_use. */
    struct metrics *metrics;
    struct api_keys *keys; /* NULL = none. */
    struct ledger *ledger; /* NULL = none. */
    struct spans *spans;   /* NULL = none. */
    const struct clock *clock;
    struct http_admin admin;
    bool tls;      /* Serve over TLS with the certificate of http_tls_use (tls.h). */
    int listen_fd; /* A listening socket, which http takes over. */
    /* A listening Unix socket for administrators, which http takes over; 0 or -1 = none. */
    int admin_fd;
};

/* Begins to accept connections. On failure returns ST_IO, ST_NO_MEMORY or ST_NO_RESOURCE, with the
 * reason in *error; the listening sockets still belong to the caller. */
enum status http_open(const struct http_options *options, struct http **out, struct error *error);
/* Cancels requests, closes connections, and waits for running jobs (text_jobs.h). NULL is fine. */
void http_close(struct http *h);

/* Sets where the access log is written: to `file` (not owned; NULL = no file), and to the process's
 * log if to_stderr. Before the first call there is no access log. */
void http_access_log_set(struct http *h, struct event_log *file, bool to_stderr);

/* Sets the model of new requests, and adds a reference to it. */
void http_model_use(struct http *h, struct served_model *model);

/* Ends unfinished requests whose secret is revoked (api_keys_revoked): a stream that has begun gets
 * an error event, any other request a 401. Call it after api_keys_apply. */
void http_keys_changed(struct http *h);

/* After this call /health answers 503 "draining", and each connection closes after its next answer.
 * Requests are still served. */
void http_drain_begin(struct http *h);
/* Does what http_drain_begin does, and refuses new completions and embeddings with a 503. */
void http_refuse_begin(struct http *h);
/* Returns the number of requests whose body went to the text threads (such as completions and
 * /tokenize) and whose clients do not have the whole answer yet. */
uint32_t http_open_answers(const struct http *h);

/* Accepts no more connections, and closes the listening sockets. Open connections continue. */
void http_accept_stop(struct http *h);

/* Returns a descriptor for the event loop (level-triggered). */
int http_fd(struct http *h);
/* Does the work that is due. Call it when the descriptor is readable, after gateway_turn, and after
 * the returned number of milliseconds; -1 = no time limit. */
int http_turn(struct http *h);

#endif
