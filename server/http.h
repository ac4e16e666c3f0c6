/* http: the HTTP side of the gateway: libmicrohttpd with an external epoll, run by the one loop
 * thread; routes; the life of each connection's request, from its first byte to the moment its
 * client has everything or has gone. It does not know machines (gateway.h) nor how answers are
 * worded (completion.h, api_*.h).
 *
 * Why external epoll and one thread: libmicrohttpd 0.9.75's own epoll thread stalls when the number
 * of ready events is a multiple of 128, and a resume from another thread loses wake-ups. A
 * suspended connection's disconnect is unseen by it: our own epoll watches the socket. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "common/clock.h"
#include "common/config.h"
#include "common/status.h"
#include "server/api_keys.h"
#include "server/gateway.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/text.h"

struct http;

enum http_admin_verb { HTTP_ADMIN_DRAIN, HTTP_ADMIN_UNDRAIN, HTTP_ADMIN_ADD, HTTP_ADMIN_REMOVE };

/* What the endpoints under /admin do. Each fills *answer (a JSON object) and returns true, or fills
 * *error (state always knows). Called from http_turn. */
struct http_admin {
    void (*state)(void *self, struct text *answer);
    bool (*reload)(void *self, struct text *answer, struct api_error *error);
    /* ADD has a body, the others a machine's name. */
    bool (*machine)(void *self, enum http_admin_verb verb, const char *name, const char *body,
                    size_t bytes, struct text *answer, struct api_error *error);
    void *self;
};

struct http_options {
    const struct config *config; /* kept, as is everything below */
    struct gateway *gateway;
    struct served_model *model; /* of new requests; see http_model_use */
    struct metrics *metrics;
    struct api_keys *keys; /* who may; NULL: everybody */
    const struct clock *clock;
    struct http_admin admin;
    bool tls;      /* with the certificate of http_tls_use */
    int listen_fd; /* from address_listen; closed by http_close */
};

enum status http_open(const struct http_options *options, struct http **out, struct error *error);
/* Requests that are in flight are released; their connections are closed. NULL is fine. */
void http_close(struct http *h);

/* What new requests get from now on; a reference of its own is taken. */
void http_model_use(struct http *h, struct served_model *model);

/* New requests are refused with 503 and Retry-After from now on, and /health says so; those that
 * are open go on. */
void http_drain(struct http *h);
/* Completions whose clients have not got everything yet. */
uint32_t http_open_answers(const struct http *h);

/* Accept no more connections; those that are open go on. */
void http_quiesce(struct http *h);
/* Requests that are not answered in full yet. */
uint32_t http_open_requests(const struct http *h);

/* Put the descriptor into the loop (level-triggered), and call turn when it is readable, after
 * every turn of the gateway, and after the time that turn returned (milliseconds; -1: only when
 * readable). */
int http_fd(struct http *h);
int http_turn(struct http *h);

#endif
