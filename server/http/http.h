/* http: the HTTP side of the gateway: libmicrohttpd with an external epoll, the routes, and each
 * request from its first byte until the client has the whole response or has gone. The files
 * server/serve*.c make every call, on the gateway's loop thread. It knows neither machines
 * (gateway.h) nor the text of answers (completion.h, server/api/).
 *
 * Why an external epoll and one thread: libmicrohttpd 0.9.75's own epoll thread stalls when the
 * number of ready events is a multiple of 128, and a resume from another thread loses wake-ups.
 * libmicrohttpd does not see the disconnect of a suspended connection, so our own epoll watches the
 * socket. */
#ifndef SERVER_HTTP_HTTP_H
#define SERVER_HTTP_HTTP_H

#include "common/clock.h"
#include "common/status.h"
#include "common/text.h"
#include "config/config.h"
#include "server/api/audit.h"
#include "server/api/keys.h"
#include "server/api/served_model.h"
#include "server/gateway/gateway.h"
#include "server/metrics/metrics.h"

struct http;

enum http_admin_verb { HTTP_ADMIN_DRAIN, HTTP_ADMIN_UNDRAIN, HTTP_ADMIN_ADD, HTTP_ADMIN_REMOVE };

/* The actions of the endpoints under /admin. Each fills *answer (a JSON object) and returns true,
 * or fills *error and returns false; `state` always succeeds. Called from http_turn. */
struct http_admin {
    void (*state)(void *self, struct text *answer);
    bool (*reload)(void *self, const struct audit_actor *actor, struct text *answer,
                   struct api_error *error);
    /* ADD uses the body; the others use the machine's name. */
    bool (*machine)(void *self, enum http_admin_verb verb, const char *name, const char *body,
                    size_t bytes, struct text *answer, struct api_error *error);
    void *self;
};

struct http_options {
    const struct config *config; /* Not owned, as everything below; must outlive http. */
    struct gateway *gateway;
    struct served_model *model; /* Model of new requests; changed by http_model_use. */
    struct metrics *metrics;
    struct api_keys *keys; /* NULL = no keys: every client may use the API. */
    const struct clock *clock;
    struct http_admin admin;
    bool tls;      /* Serve over TLS with the certificate of http_tls_use. */
    int listen_fd; /* From address_listen; http_close closes it. */
    /* A listening Unix socket, whose clients are administrators; http_close closes it. 0 = none. */
    int admin_fd;
};

enum status http_open(const struct http_options *options, struct http **out, struct error *error);
/* Cancels the requests in flight and closes their connections. NULL is fine. */
void http_close(struct http *h);

/* Sets the model of new requests, and takes a reference of its own. */
void http_model_use(struct http *h, struct served_model *model);

/* Ends the requests of keys that api_keys_apply has just revoked: a stream gets an error event, any
 * other request a 401. Call it after each api_keys_apply. */
void http_keys_changed(struct http *h);

/* Starts to refuse completions with 503 and Retry-After; /health reports the drain. Open requests
 * continue. */
void http_drain(struct http *h);
/* Completions whose clients have not yet got everything. */
uint32_t http_open_answers(const struct http *h);

/* Accepts no more connections; open ones continue. */
void http_quiesce(struct http *h);

/* Put the descriptor into the event loop (level-triggered). Call http_turn when it is readable,
 * after every gateway_turn, and after the time that http_turn returned (milliseconds; -1 = only
 * when readable). */
int http_fd(struct http *h);
int http_turn(struct http *h);

#endif
