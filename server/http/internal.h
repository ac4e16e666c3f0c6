/* http_internal: private to http.c (the daemon and its loop), exchange.c (one request), headers.c
 * (checks before a body is read), answer.c (responses), access.c (access checks), audit.c
 * (audit lines), text_work.c (work for the text threads), web.c (pages of other sites), pings.c (comments in streams), routes.c
 * (endpoints), page.c (GET /) and admin.c (endpoints under /admin). No other file of the product includes it; tests
 * read the counters of struct http. Everything runs on the gateway's loop thread, except the
 * functions that text_work.c gives to text_jobs.h. */
#ifndef SERVER_HTTP_INTERNAL_H
#define SERVER_HTTP_INTERNAL_H

#include "server/api/audit.h"
#include "server/api/tokenize.h"
#include "server/http/clients.h"
#include "server/http/completion.h"
#include "server/http/http.h"
#include "server/http/text_jobs.h"

#include <microhttpd.h>

/* A body of more bytes is large: it can take a text thread for long (8 MiB take seconds). */
#define HTTP_LARGE_BYTES 65536

struct exchange; /* An HTTP request and its response. */
struct http_text_work;

struct http {
    struct http_options options;
    struct MHD_Daemon *daemon;
    struct MHD_Daemon *admin_daemon; /* Serves http/admin_socket; NULL = none. */
    int epoll; /* Holds the daemon's own epoll descriptor and the sockets of waiting requests. */
    struct completion_server completions; /* Its model is the one that clients are told about. */
    struct exchange *exchanges;           /* All of them, linked by next. */
    struct exchange *changed; /* Exchanges whose completions have news, linked by next_changed. */
    uint32_t open_answers;    /* Completions whose clients have not yet got everything. */
    /* All streams, linked by newer and older: the one that was written to longest ago is first. */
    struct exchange *quietest, *loudest;
    struct http_clients *clients;
    struct text_jobs *text_jobs;
    uint64_t unread_bytes; /* Bytes of all answers that clients have not read. */
    uint64_t bodies_bytes; /* Bytes of all bodies that have not been parsed yet. */
    bool draining;
    bool was_ready;
};

struct route;

struct exchange {
    struct http *http;
    struct exchange *next, *previous; /* In the list http->exchanges. */
    struct MHD_Connection *connection;
    struct http_client *client; /* NULL = there was no memory to count this connection. */
    bool from_socket;           /* It came through http/admin_socket. */
    bool is_http_1_0;           /* As nginx speaks to servers behind it. */
    int fd;
    const struct route *route; /* NULL = no such path. */
    uint32_t key;              /* API key index, or API_KEY_NONE. */
    bool key_revoked;          /* The key was removed from the key file, or got another secret. */
    bool is_administrator;     /* It may use /admin. */
    bool is_question;          /* A browser's OPTIONS request (web.c). */
    struct http_audit *audit;  /* The audit line to be written; NULL = none, or written. */
    struct text body;          /* Counted in http->bodies_bytes. */
    uint64_t body_bytes_max;   /* http/body_bytes_max when the headers arrived. */
    uint64_t body_expected;    /* Content-Length; UINT64_MAX = chunked. */
    /* The error that answers this request after the rest of its body, which is not kept; NULL =
     * none. */
    struct api_error *refusal;
    bool closes;                 /* The connection closes after the answer. */
    int64_t arrived_us;          /* When its last byte had arrived. */
    struct http_text_work *work; /* Its body is with the text threads, or has been; NULL = none. */
    struct completion *completion;
    struct text answer;     /* A whole answer that the client reads in pieces. */
    uint64_t unread_bytes;  /* Of the answer or the stream; counted in http->unread_bytes. */
    size_t piece_bytes;     /* Bytes that libmicrohttpd took last. */
    uint64_t checked_bytes; /* Of the stream: written when it was checked last. */
    uint64_t excused_bytes; /* Up to this byte, the stream was written at once. */
    bool answers;           /* Counted in http->open_answers. */
    bool watched;           /* Its socket is in http->epoll. */
    bool suspended;
    bool gone;       /* The client has gone, or is too slow. */
    bool is_changed; /* In the list http->changed. */
    struct exchange *next_changed;
    bool streams; /* In the list of streams of struct http. */
    struct exchange *older, *newer;
    int64_t wrote_us;            /* When the last event of the stream was written. */
    char tail[LIMIT_NAME_BYTES]; /* The rest of the URL after a route that ends with a slash. */
    unsigned code;
    char request_id[GATEWAY_NAME_BYTES];
    bool request_id_given; /* The client chose request_id. */
};

enum http_access {
    HTTP_OPEN,    /* for every client: is the server alive */
    HTTP_KEY,     /* for every API key */
    HTTP_METRICS, /* for keys that may see the load of all users */
    HTTP_ADMIN,   /* for keys that may change the cluster */
};

struct route {
    const char *path;
    enum http_access access;
    const char *allow; /* "GET, HEAD" */
    enum MHD_Result (*answer)(struct exchange *exchange);
};

/* Returns the route of a path; NULL = none. A trailing slash is ignored. /v1/models/NAME matches
 * the served name only. A route whose path ends with a slash takes one more part, which is copied
 * to `tail`. "/" exists if the config allows the page (page.c). */
const struct route *http_route_find(const struct http *h, const char *url,
                                    char tail[LIMIT_NAME_BYTES]);
bool http_route_allows(const struct route *route, const char *method);

/* Queues a whole response; the body is copied. */
enum MHD_Result http_answer(struct exchange *exchange, unsigned code, const char *content_type,
                            const char *body, size_t bytes);
/* Adds the headers that all responses have, queues the response, and releases it. */
enum MHD_Result http_answer_response(struct exchange *exchange, unsigned code,
                                     struct MHD_Response *response);
/* Queues a whole JSON response from a text, which is emptied. */
enum MHD_Result http_answer_json(struct exchange *exchange, unsigned code, struct text *body);
enum MHD_Result http_answer_error(struct exchange *exchange, const struct api_error *error);
/* Queues the answer to a browser's OPTIONS request. */
enum MHD_Result http_answer_question(struct exchange *exchange);
/* text_work.c: gives the body to the text threads, and suspends the connection. */
struct http_text_kind;
extern const struct http_text_kind http_text_completion, http_text_chat, http_text_responses,
    http_text_messages, http_text_embeddings, http_text_count, http_text_tokenize,
    http_text_detokenize;
enum MHD_Result http_text_begin(struct exchange *exchange, const struct http_text_kind *kind);
void http_text_collect(struct http *h); /* Resumes the exchanges whose work is done. */
/* Answers, or begins the completion. Requires that the connection was resumed. */
enum MHD_Result http_text_answer(struct exchange *exchange);
void http_text_drop(struct exchange *exchange); /* The client has gone. Without work: nothing. */
/* Submits a completion, whose input it takes over. */
enum MHD_Result http_completion_begin(struct exchange *exchange, struct served_model *model,
                                      struct completion_input *input);
/* Watch for the end of a suspended connection. */
void http_exchange_watch(struct exchange *exchange);
void http_exchange_unwatch(struct exchange *exchange);
/* Begins the response of a completion, whose status is known. */
enum MHD_Result http_answer_begun(struct exchange *exchange);
/* Keep the order of streams: the stream begins, has an event, ends (also if it has not begun). */
void http_stream_begin(struct exchange *exchange);
void http_stream_wrote(struct exchange *exchange);
void http_stream_end(struct exchange *exchange);
/* Writes a comment to each stream that has had no event for http/ping_ms. Returns the milliseconds
 * until the next call; -1 = none. */
int http_pings_write(struct http *h);
/* Counts the unread bytes of an exchange again. */
void http_unread_count(struct exchange *exchange);
/* Frees what is unread. The exchange's completion is closed. */
void http_unread_drop(struct exchange *exchange);
/* Closes the connection of a stream whose client does not keep up. */
void http_answer_backlog_check(struct exchange *exchange);
/* Closes connections while all unread answers together are larger than http/answers_bytes_max. */
void http_answers_check(struct http *h);

/* Parses and starts a completion; suspends the connection until there is something to send. */
enum MHD_Result http_answer_completion(struct exchange *exchange,
                                       const struct http_text_kind *kind);

/* --- admin.c --- */

enum MHD_Result http_answer_state(struct exchange *exchange);
enum MHD_Result http_answer_reload(struct exchange *exchange);
enum MHD_Result http_answer_drain(struct exchange *exchange);
enum MHD_Result http_answer_undrain(struct exchange *exchange);
enum MHD_Result http_answer_machine_add(struct exchange *exchange);
enum MHD_Result http_answer_machine_remove(struct exchange *exchange);

/* --- page.c --- */

/* True if the config (http/page) allows GET /. */
bool http_page_served(const struct http *h);
enum MHD_Result http_page_answer(struct exchange *exchange);

/* --- audit.c --- */

/* Prepares the audit line of a request to a path under /admin; does nothing for other paths. Call
 * it when exchange->route is known. Returns false without memory. */
bool http_audit_open(struct exchange *exchange, const char *url, const char *method);
/* Sets what the request is about, if its URL does not say so. */
void http_audit_target_set(struct exchange *exchange, const char *target);
/* Finds out which party has sent the request. */
void http_audit_actor(const struct exchange *exchange, struct audit_actor *out);
/* Writes the line, once. status: 0 = the client has left before it had an answer. */
void http_audit_write(struct exchange *exchange, unsigned status);

/* --- headers.c --- */

/* Checks everything that the headers of a request show: its framing, access, route, method, type
 * and size. Sets exchange->key and exchange->body_expected. On false, *error is the answer. */
bool http_headers_check(struct exchange *exchange, const char *url, const char *method,
                        struct api_error *error);
/* Fills *error and returns false: the body is too large. */
bool http_body_too_large(struct exchange *exchange, struct api_error *error);
/* True if this many more bytes of a body, which then has body_bytes bytes, may be kept:
 * http/bodies_bytes_max bytes in all, but always enough for one body. Bodies that are not large may
 * use a sixteenth more, so that large ones do not keep them out. */
bool http_bodies_fit(const struct http *h, uint64_t body_bytes, uint64_t bytes,
                     struct api_error *error);

/* --- web.c --- */

/* True if http/web_origins names the site; "*" does not count. */
bool http_web_origin_named(const struct exchange *exchange, const char *origin);
/* True if a browser asks whether a page may send a request, and the page may. */
bool http_web_is_question(const struct exchange *exchange, const char *method);
/* Adds the headers that let the page read a response. */
void http_web_headers_add(const struct exchange *exchange, struct MHD_Response *response);
/* Adds the headers that answer a browser's question. */
void http_web_answer_add(const struct exchange *exchange, struct MHD_Response *response);

/* --- access.c --- */

/* True if this client may use exchange->route. With API keys it sets exchange->key, except for
 * routes that are open to all. On false, *error is a 401 or 403. */
bool http_access_check(struct exchange *exchange, struct api_error *error);
/* Checks again when the body has arrived: true if the exchange's key was not revoked and still has
 * the right. On false, *error is a 401 or 403. */
bool http_access_check_again(struct exchange *exchange, struct api_error *error);
bool http_peer_is_loopback(const struct exchange *exchange);

/* Writes what is missing. Only administrators get names and addresses of machines. */
void http_health_text(struct exchange *exchange, char *out, size_t capacity);

/* --- exchange.c --- */

enum MHD_Result http_on_request(void *self, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_bytes, void **state);
void http_on_completed(void *self, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode why);
void http_exchange_suspend(struct exchange *exchange);
/* The client of this request enters a state. */
void http_exchange_enter(struct exchange *exchange, enum http_client_state state);
/* Resumes a suspended connection. */
void http_exchange_resume(struct exchange *exchange);
/* Handles a client that has gone: cancels its completion, which frees its KV blocks on the machines
 * now; the connection closes in this iteration. */
void http_exchange_gone(struct exchange *exchange);

#endif
