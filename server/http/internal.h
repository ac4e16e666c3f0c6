/* http_internal: struct http, struct exchange (one HTTP request with its response), and the
 * functions that the files of server/http/ that handle HTTP share. The functions declared here run
 * on the gateway's event loop thread; the work of a struct http_text_kind runs on text threads.
 * These files do not make the text of answers (completion.h). A function that returns enum
 * MHD_Result returns MHD_NO if there is no memory or the client has gone; libmicrohttpd then closes
 * the connection. */
#ifndef SERVER_HTTP_INTERNAL_H
#define SERVER_HTTP_INTERNAL_H

#include "server/api/audit.h"
#include "server/api/tokenize.h"
#include "server/http/clients.h"
#include "server/http/completion.h"
#include "server/http/http.h"
#include "server/http/text_jobs.h"

#include <microhttpd.h>

/* A body with more bytes is *large*: a text thread may need seconds for the body. */
#define HTTP_LARGE_BYTES 65536

struct exchange; /* An HTTP request and its response. */
struct http_text_work;

struct http {
    struct http_options options;
    struct MHD_Daemon *daemon;
    struct MHD_Daemon *admin_daemon; /* Serves http/admin_socket; NULL = none. */
    int64_t now_us;                  /* When the latest http_turn began. */
    int epoll; /* Has the daemons' epolls, text_jobs_fd, and the sockets of waiting requests. */
    struct completion_server completions;
    struct exchange *exchanges; /* All exchanges, linked by next. */
    /* Exchanges whose completions have called `changed`, linked by next_changed. */
    struct exchange *changed_exchanges;
    uint32_t open_answers; /* Exchanges with counts_as_open. */
    /* The list of streams, in the order of their latest events, linked by `newer` and `older`. */
    struct exchange *oldest_stream, *newest_stream;
    struct http_clients *clients;
    int handshakes_epoll; /* Has the sockets of suspended TLS handshakes. */
    struct text_jobs *text_jobs;
    uint64_t unread_bytes;        /* Sum of the exchanges' unread_bytes. */
    uint64_t bodies_bytes;        /* Bytes of bodies that have not been parsed. */
    struct event_log *access_log; /* NULL = none. */
    bool access_to_stderr;        /* Lines of the access log also go to the process's log. */
    uint64_t access_dropped; /* Dropped lines of `access_log` that the metrics count already. */
    bool access_warned;      /* A warning about dropped lines was logged. */
    uint64_t ledger_lost;    /* Lost answers of the ledger that the metrics count already. */
    bool ledger_warned;      /* It was logged that the ledger takes no lines. */
    uint64_t spans_dropped;  /* Dropped spans that the metrics count already. */
    bool spans_warned;       /* A warning about dropped spans was logged. */
    bool draining;           /* http_drain_begin or http_refuse_begin was called. */
    bool refuses;            /* http_refuse_begin was called. */
    bool ready_once; /* A completion found the gateway ready: later completions get no 503. */
};

/* A connection of the main daemon: libmicrohttpd's socket context. */
struct http_connection {
    struct http *http;
    struct MHD_Connection *mhd;
    struct http_client *client;
    bool handshake_watched; /* The socket is in http->handshakes_epoll. */
};

struct route;

/* One HTTP request with its response. */
struct exchange {
    struct http *http;
    struct exchange *next, *previous; /* In the list http->exchanges. */
    struct MHD_Connection *connection;
    struct http_client *client; /* NULL = over http/admin_socket, or memory was short. */
    bool from_admin_socket;     /* The request arrived over http/admin_socket. */
    bool is_http_1_0;           /* The client speaks HTTP/1.0. */
    int fd;                     /* The socket, once http_exchange_watch was called; -1 = not yet. */
    const struct route *route;  /* NULL = no such path. */
    uint32_t api_key_index;     /* API_KEY_NONE = none. */
    uint32_t api_key_secret;    /* secret_number of struct api_key_shown. */
    bool key_revoked;           /* The secret that the client has shown was revoked. */
    bool is_administrator;      /* The client has shown that it may use /admin. */
    bool is_preflight;          /* A browser's OPTIONS request (web.c). */
    struct http_audit *audit;   /* The prepared audit line; NULL = none, or written. */
    struct text body;           /* The body so far; its bytes count in http->bodies_bytes. */
    uint64_t body_bytes_max;    /* http/body_bytes_max when the headers arrived. */
    uint64_t dropped_bytes;     /* Bytes of the body that were dropped after its refusal. */
    uint64_t body_expected;     /* Content-Length; UINT64_MAX = chunked; 0 = no body. */
    struct api_error *refusal;  /* Error to send when the body's rest has arrived; NULL = none. */
    bool closes_connection;     /* The connection closes after the answer. */
    int64_t arrived_us;         /* When the whole request had arrived; 0 = not yet, or refused. */
    struct http_text_work *text_work; /* Work of the text threads on the body; NULL = none. */
    struct completion *completion;    /* NULL = none. */
    struct text answer;               /* A whole answer that the client reads in pieces. */
    /* Unread bytes of the completion's output, and all bytes of `answer`, also those that were
     * read; counted in http->unread_bytes. */
    uint64_t unread_bytes;
    size_t piece_bytes; /* Bytes of the latest piece that libmicrohttpd took. */
    /* Bytes of the stream at the latest http_answer_backlog_check. */
    uint64_t backlog_checked_bytes;
    /* Bytes of the stream at the end of the latest burst (many bytes written in one iteration). */
    uint64_t burst_end_bytes;
    bool counts_as_open; /* The exchange counts in http->open_answers. */
    bool socket_watched; /* The socket is in http->epoll. */
    bool suspended;      /* libmicrohttpd has suspended the connection. */
    bool client_gone;    /* The client has gone, or its connection must be closed. */
    bool is_changed;     /* The exchange is in the list http->changed_exchanges. */
    struct exchange *next_changed;
    bool streams;                     /* The exchange is in the list of streams. */
    struct exchange *older, *newer;   /* Neighbours in the list of streams. */
    int64_t last_event_us;            /* When the stream began or last wrote an event or ping. */
    char path_tail[LIMIT_NAME_BYTES]; /* See http_route_find. */
    unsigned status_code;             /* HTTP status of the queued response; 0 = none yet. */
    char request_id[GATEWAY_CLIENT_ID_BYTES];
    /* Parts of the header traceparent (W3C Trace Context); empty = no valid header. */
    char trace_id[33], trace_parent[17];
    bool trace_unwanted;           /* The header says that the trace is not recorded. */
    int64_t began_us;              /* When the headers had arrived. */
    int64_t opened_us;             /* When completion_open was called; 0 = never. */
    struct completion_facts facts; /* What logs say about the completion; see completion.h. */
    char error_text[128];          /* Message of the error that was sent; empty = none. */
};

/* Which clients may use a route, if there are API keys. Without API keys, and on
 * http/admin_socket, see access.c. */
enum http_access {
    HTTP_OPEN,    /* Every client. */
    HTTP_KEY,     /* Clients with any valid API key. */
    HTTP_METRICS, /* Clients whose key has the right `metrics` or `admin`. */
    HTTP_ADMIN,   /* Clients whose key has the right `admin`. */
};

/* One endpoint. */
struct route {
    const char *path;
    enum http_access access;
    const char *allow; /* The methods, such as "GET, HEAD". */
    /* Answers an exchange whose body has arrived, or begins work that will answer it. */
    enum MHD_Result (*answer)(struct exchange *exchange);
};

/* --- routes.c --- */

/* Returns the route of a URL's path; NULL = none. Slashes at the end are ignored. If a route's path
 * ends with a slash, the URL has one more part, which is copied to `path_tail`. For
 * /v1/models/NAME, `path_tail` is the number from served_model_find; a NAME that is not found has
 * no route. "/" has a route if http_page_served. */
const struct route *http_route_find(const struct http *h, const char *url,
                                    char path_tail[LIMIT_NAME_BYTES]);
bool http_route_allows(const struct route *route, const char *method);

/* --- handshakes.c --- */

enum status http_handshakes_open(struct http *h);
/* Ends all handshakes. Call it before the daemon is stopped. */
void http_handshakes_close(struct http *h);
/* Paces the TLS handshake of a new connection. */
void http_handshake_pace(struct http_connection *connection);
/* Resumes the suspended connections for which bytes have arrived. */
void http_handshakes_resume(struct http *h);

/* --- answer.c --- */

/* Queues a whole response; the body is copied. */
enum MHD_Result http_answer(struct exchange *exchange, unsigned code, const char *content_type,
                            const char *body, size_t bytes);
/* Adds headers such as x-request-id, and queues the response. Takes over `response`. */
enum MHD_Result http_answer_response(struct exchange *exchange, unsigned code,
                                     struct MHD_Response *response);
/* Queues a whole JSON response from a text, which is emptied. */
enum MHD_Result http_answer_json(struct exchange *exchange, unsigned code, struct text *body);
/* Queues the response of an error, in the form of the route's API. */
enum MHD_Result http_answer_error(struct exchange *exchange, const struct api_error *error);
/* Queues the answer to a browser's OPTIONS request. */
enum MHD_Result http_answer_preflight(struct exchange *exchange);
/* Queues the response of a completion: an error, a stream, or a whole body. For a whole body,
 * closes the completion. Requires completion_status_known. */
enum MHD_Result http_answer_begun(struct exchange *exchange);
/* Updates the count of the exchange's unread bytes. */
void http_unread_count(struct exchange *exchange);
/* Frees exchange->answer. Requires that the exchange has no completion. */
void http_unread_drop(struct exchange *exchange);
/* Closes the connection if more than 1 MiB of its stream is unread, not counting bytes up to the
 * end of the latest burst. */
void http_answer_backlog_check(struct exchange *exchange);
/* While the unread answers together are larger than http/answers_bytes_max, closes the connection
 * whose client has not read for the longest time. A single unread answer may be larger. */
void http_answers_check(struct http *h);

/* --- text_work.c --- */

/* What the text threads do with a body. */
struct http_text_kind;
extern const struct http_text_kind http_text_completion, http_text_chat, http_text_responses,
    http_text_messages, http_text_embeddings, http_text_count, http_text_tokenize,
    http_text_detokenize;
/* Gives the body to the text threads, and suspends the connection. Answers with an error if the
 * limits of the API key, the queue of the text threads, or the memory do not allow the work. */
enum MHD_Result http_text_begin(struct exchange *exchange, const struct http_text_kind *kind);
void http_text_collect(struct http *h); /* Resumes the connections whose work is done. */
/* Answers, or begins the completion. Call it when http_text_collect has resumed the connection. */
enum MHD_Result http_text_answer(struct exchange *exchange);
/* Cancels the exchange's work, if there is any. */
void http_text_drop(struct exchange *exchange);

/* --- pings.c --- */

void http_stream_begin(struct exchange *exchange); /* Puts the exchange into the list of streams. */
/* Records that an event was written. No effect if the exchange is not in the list. */
void http_stream_wrote(struct exchange *exchange);
/* Takes the exchange out of the list. No effect if the exchange is not in the list. */
void http_stream_end(struct exchange *exchange);
/* Writes an SSE comment, which clients ignore, to streams that have had no event for http/ping_ms.
 * Returns the milliseconds until the next call; -1 = none. */
int http_pings_write(struct http *h);

/* --- admin.c: the functions `answer` of the routes below /admin --- */

enum MHD_Result http_answer_state(struct exchange *exchange);
enum MHD_Result http_answer_requests(struct exchange *exchange);
enum MHD_Result http_answer_decisions(struct exchange *exchange);
enum MHD_Result http_answer_config(struct exchange *exchange);
enum MHD_Result http_answer_log(struct exchange *exchange);
enum MHD_Result http_answer_reload(struct exchange *exchange);
enum MHD_Result http_answer_reload_dry(struct exchange *exchange);
enum MHD_Result http_answer_drain(struct exchange *exchange);
enum MHD_Result http_answer_undrain(struct exchange *exchange);
enum MHD_Result http_answer_machine_add(struct exchange *exchange);
enum MHD_Result http_answer_machine_remove(struct exchange *exchange);

/* --- page.c --- */

/* Returns true if the config (http/page) allows GET /. */
bool http_page_served(const struct http *h);
/* The function `answer` of the route "/". */
enum MHD_Result http_page_answer(struct exchange *exchange);

/* --- audit.c --- */

/* Prepares the audit line of a request to /admin or a path below it; no effect for other paths.
 * Call it after exchange->route is set. Returns false if there is no memory. */
bool http_audit_open(struct exchange *exchange, const char *url, const char *method);
/* Replaces the target of the audit line, which at first is exchange->path_tail. */
void http_audit_target_set(struct exchange *exchange, const char *target);
/* Stores which administrator or client has sent the request. */
void http_audit_actor(const struct exchange *exchange, struct audit_actor *out);
/* Writes the prepared line, if any, once. status: an HTTP status; 0 = the client has left. */
void http_audit_write(struct exchange *exchange, unsigned status);

/* Writes the address of the exchange's client. */
void http_client_address(const struct exchange *exchange, char *out, size_t capacity);

/* --- records.c: the access log and the log of slow requests --- */

/* The phases of a request, in the order of time. */
enum http_phase {
    HTTP_PHASE_READ,     /* The client sent the body. */
    HTTP_PHASE_TEXT,     /* The body was parsed and became tokens. */
    HTTP_PHASE_QUEUE,    /* The request waited for machines. */
    HTTP_PHASE_RESERVE,  /* The request waited for KV memory of its token machine. */
    HTTP_PHASE_PROMPT,   /* The prompt machine computed the prompt. */
    HTTP_PHASE_TRANSFER, /* KV was still sent after the first token. */
    HTTP_PHASE_RESUME,   /* The answer waited to be resumed. */
    HTTP_PHASE_DECODE,   /* The token machine generated the answer. */
    HTTP_PHASE_SEND,     /* The rest of the time: the client read the rest of the answer. */
    HTTP_PHASE_COUNT
};

/* A request whose response has ended. The texts are not owned. */
struct http_record {
    const char *request_id;
    const char *trace_id, *trace_parent;  /* Empty = none. */
    const struct completion_facts *facts; /* All zeros if completion_open was not called. */
    const char *path;                     /* Path of the route. */
    const char *key_name;                 /* Name of the API key; empty = none. */
    const char *finish; /* As in completion_facts, or "error"; NULL = completion_open not called. */
    const char *error;  /* Message of the error; empty = none. */
    char client[LIMIT_ADDRESS_BYTES];
    unsigned status;        /* 0 = the client left before an answer was queued. */
    int64_t total_us;       /* From the arrival of the headers to the response's end. */
    int64_t first_token_us; /* From the arrival of the whole request; -1 = there was no token. */
    int64_t phases_us[HTTP_PHASE_COUNT]; /* Duration of each phase. */
};

/* Writes the access log's line and the spans of a request that has ended, and logs a slow request.
 * Call it after the completion was closed. Leaves out routes without HTTP_KEY, clients without a
 * known key (if there are keys), http/admin_socket, and a browser's OPTIONS requests. */
void http_record_write(struct exchange *exchange);
/* Updates the metrics about the ledger, the access log and the spans. Logs when losses begin, and
 * when the ledger takes no lines or takes lines again. */
void http_records_turn(struct http *h);

/* --- record_text.c, record_spans.c --- */

/* Returns the name of a phase, as in the access log. */
const char *http_phase_name(enum http_phase phase);

/* Appends the record as a JSON object. */
void http_record_json(const struct http_record *record, struct text *out);
/* Appends the record as a line of text. */
void http_record_line(const struct http_record *record, struct text *out);
/* Appends the sentence that says where the time of a slow request went. */
void http_record_slow(const struct http_record *record, struct text *out);
/* Appends the record as spans of OTLP (JSON objects, separated by commas): a span of the request,
 * and a span of each phase that took time. ids: 128 random bits. Returns the number of spans. */
uint32_t http_record_spans(const struct http_record *record, const uint64_t ids[2],
                           struct text *out);

/* --- headers.c --- */

/* Returns the path of a request target, which is a path or a URL (RFC 9112, section 3.2.2). */
const char *http_target_path(const char *target);
/* Checks the headers, such as access, method and size. Sets fields such as body_expected. Returns
 * false, with the answer in *error, if the request is refused. */
bool http_headers_check(struct exchange *exchange, const char *target, const char *method,
                        struct api_error *error);
/* Fills *error with the answer to a body that is too large. Returns false. */
bool http_body_too_large(struct exchange *exchange, struct api_error *error);
/* Returns false, with a 503 in *error, if there is no room for `bytes` more bytes of a body.
 * body_bytes: size of the body with these bytes. All bodies together may have http/bodies_bytes_max
 * bytes, or http/body_bytes_max if that is more. Bodies up to HTTP_LARGE_BYTES may use a sixteenth
 * more. */
bool http_bodies_fit(const struct http *h, uint64_t body_bytes, uint64_t bytes,
                     struct api_error *error);

/* --- web.c --- */

/* Returns true if http/web_origins names the site `origin`; "*" names no site. */
bool http_web_origin_named(const struct exchange *exchange, const char *origin);
/* Returns true if a browser asks (method OPTIONS) whether a page of another site may send a
 * request, and the answer is yes. */
bool http_web_is_preflight(const struct exchange *exchange, const char *method);
/* Adds the headers that let a web page of another site read the response, if the page may. */
void http_web_headers_add(const struct exchange *exchange, struct MHD_Response *response);
/* Adds the headers that answer a browser's OPTIONS request. */
void http_web_answer_add(const struct exchange *exchange, struct MHD_Response *response);

/* --- access.c --- */

/* Returns false, with a 401 or 403 in *error, if the client may not use exchange->route. If there
 * are API keys, sets the fields about the key, except for HTTP_OPEN and on http/admin_socket. */
bool http_access_check(struct exchange *exchange, struct api_error *error);
/* Returns false, with a 401 or 403 in *error, if the exchange's key was revoked or has lost the
 * right. Call it when the body has arrived, and when a text thread has read the body. */
bool http_access_check_again(struct exchange *exchange, struct api_error *error);
bool http_peer_is_loopback(const struct exchange *exchange);

/* Writes the text of /health: gateway_health_text for administrators, gateway_health_summary for
 * other clients. */
void http_health_text(struct exchange *exchange, char *out, size_t capacity);

/* --- exchange.c --- */

/* Callback of libmicrohttpd: called for the headers, the pieces of the body, and the end of a
 * request, and after its connection was resumed. */
enum MHD_Result http_on_request(void *self, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_bytes, void **state);
/* Callback of libmicrohttpd: the response was sent, or the connection has ended. */
void http_on_completed(void *self, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode reason);
/* Answers a request for a completion or embeddings: calls http_text_begin, or answers with a 503
 * (http->refuses, http->ready_once). */
enum MHD_Result http_answer_completion(struct exchange *exchange,
                                       const struct http_text_kind *kind);
/* Opens a completion, and takes over `input`. Answers if the completion cannot be opened or the
 * HTTP status is known; otherwise suspends the connection. */
enum MHD_Result http_completion_begin(struct exchange *exchange, struct served_model *model,
                                      struct completion_input *input);
/* Begins to watch whether the client of a suspended connection goes away. Logs a failure. */
void http_exchange_watch(struct exchange *exchange);
void http_exchange_unwatch(struct exchange *exchange); /* Ends http_exchange_watch. */
void http_exchange_suspend(struct exchange *exchange); /* Suspends the connection. */
/* Resumes the connection, if it is suspended. */
void http_exchange_resume(struct exchange *exchange);
/* Calls http_client_state_set for the exchange's client, if it has one. */
void http_exchange_enter(struct exchange *exchange, enum http_client_state state);
/* Handles a client that has gone, or whose connection must be closed: closes the completion, and
 * lets libmicrohttpd close the connection. */
void http_exchange_gone(struct exchange *exchange);

#endif
