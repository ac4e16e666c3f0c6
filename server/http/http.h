/* http: the HTTP side of the gateway. It owns libmicrohttpd's daemons, their connections, and each
 * HTTP request from its headers until its response was sent or the client has gone. The files
 * server/serve*.c make every call, on the gateway's event loop thread. http does not talk to
 * machines (server/gateway/ does), and does not make the text of answers (completion.h does).
 *
 * It uses an external epoll and one thread, because libmicrohttpd 0.9.75's own epoll thread stalls
 * when the number of ready events is a multiple of 128, and a resume from another thread loses
 * wake-ups. libmicrohttpd does not see the disconnect of a suspended connection, so our own epoll
 * watches the socket. */
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

/* The actions of the endpoints under /admin, called from http_turn. Each function appends a JSON
 * object to *answer (for HTTP_ADMIN_LOG, lines of text). A function with `error` returns true, or
 * fills *error and returns false. If a function without `error` fails, it sets answer->broken. */
struct http_admin {
    /* GET /admin/state */
    void (*state)(void *self, struct text *answer);
    /* GET /admin/requests, /admin/decisions, /admin/config and /admin/log. */
    void (*view)(void *self, const struct http_admin_view *view, struct text *answer);
    /* POST /admin/reload. is_dry_run: POST /admin/reload/dry-run, which changes nothing. actor: the
     * administrator, for the audit lines. */
    bool (*reload)(void *self, bool is_dry_run, const struct audit_actor *actor,
                   struct text *answer, struct api_error *error);
    /* Changes a machine. HTTP_ADMIN_ADD uses body[0..bytes), the request's body (JSON), and not
     * `name`; the other verbs use only `name`, the machine's name. */
    bool (*machine)(void *self, enum http_admin_verb verb, const char *name, const char *body,
                    size_t bytes, struct text *answer, struct api_error *error);
    void *self; /* First argument of the functions. */
};

/* The pointers are not owned and must outlive http, except `model`, to which http adds a
 * reference. */
struct http_options {
    const struct config *config;
    struct gateway *gateway;
    struct served_model *model; /* Model of new requests; changed by http_model_use. */
    struct metrics *metrics;
    struct api_keys *keys; /* NULL = no keys: every client may use the API. */
    struct ledger *ledger; /* NULL = none. */
    struct spans *spans;   /* NULL = none. */
    const struct clock *clock;
    struct http_admin admin;
    bool tls;      /* Serve over TLS with the certificate of http_tls_use (tls.h). */
    int listen_fd; /* A socket of address_listen; http_accept_stop or http_close closes it. */
    /* A listening Unix socket, whose clients are administrators; closed like listen_fd. 0 =
     * none. */
    int admin_fd;
};

/* Begins to accept connections. On failure returns ST_IO, ST_NO_MEMORY or ST_NO_RESOURCE, with the
 * reason in *error; the listening sockets then stay open, and the caller closes them. */
enum status http_open(const struct http_options *options, struct http **out, struct error *error);
/* Cancels the requests in flight and closes their connections. Waits for the running jobs of text
 * threads. NULL is fine. */
void http_close(struct http *h);

/* Sets where the lines of the access log are written: to `file` (not owned; NULL = no file), and to
 * the process's log if to_stderr. At first there is no access log. */
void http_access_log_set(struct http *h, struct event_log *file, bool to_stderr);

/* Sets the model of new requests, and adds a reference to it. */
void http_model_use(struct http *h, struct served_model *model);

/* Ends the unfinished requests of keys that api_keys_apply has just revoked: a stream that has
 * begun gets an error event, any other request a 401. Call it after each api_keys_apply. */
void http_keys_changed(struct http *h);

/* After this call /health answers 503 "draining", and each connection closes after its answer.
 * Requests are still served. */
void http_drain_begin(struct http *h);
/* As http_drain_begin, and completions are refused with 503 and Retry-After. Open requests
 * continue. */
void http_refuse_begin(struct http *h);
/* Returns the number of requests whose body went to a text thread (completions, /tokenize and the
 * like) and whose clients do not have the whole answer yet. */
uint32_t http_open_answers(const struct http *h);

/* Accepts no more connections, and closes the listening sockets. Open connections continue. */
void http_accept_stop(struct http *h);

/* Returns a descriptor for the event loop (level-triggered). Call http_turn when the descriptor is
 * readable, after every gateway_turn, and after the time that http_turn returned. */
int http_fd(struct http *h);
/* Does all work that is due. Returns the milliseconds until the next call; -1 = no time limit. */
int http_turn(struct http *h);

#endif
