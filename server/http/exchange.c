/* http_exchange: one HTTP request and its response, driven by libmicrohttpd's callbacks:
 *
 *   headers ─► checks (headers.c) ─► body ─► route ─┬─► answered at once
 *                                                   └─► text thread (text_work.c), suspended ─┐
 *         ┌──────────────────────────────────────────────── resumed when the text is read ◄───┘
 *         ├─► an error, or the answer of /tokenize or /detokenize
 *         └─► completion ─► suspended ─┐
 *         ┌────────────────────────────┘ resumed when the completion has changed
 *         └─► response queued; a stream's reader takes events, and suspends when there are none
 *
 * Callbacks of a completion only put its exchange on the list `changed_exchanges`. http_turn
 * resumes the connections, so libmicrohttpd is never entered from inside the gateway. */
#include "server/http/internal.h"

#include "common/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* Retry-After of a server that stops: after this time its successor is up. */
#define DRAIN_RETRY_S 5
/* If a request is refused by its headers, a body of at most this size is read and dropped. With a
 * larger one the connection closes, and a client that sends before it reads may miss the answer. */
#define DROPPED_BYTES_MAX 65536

/* --- watching the sockets of requests that wait --- */

void http_exchange_watch(struct exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    x->fd = info != NULL ? info->connect_fd : -1;
    struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = x};
    x->socket_watched = x->fd >= 0 && epoll_ctl(x->http->epoll, EPOLL_CTL_ADD, x->fd, &event) == 0;
    if (!x->socket_watched)
        log_warn("request %s: its connection cannot be watched: %s; if its client leaves, it goes "
                 "on",
                 x->request_id, strerror(errno));
}

void http_exchange_unwatch(struct exchange *x)
{
    if (x->socket_watched)
        epoll_ctl(x->http->epoll, EPOLL_CTL_DEL, x->fd, NULL);
    x->socket_watched = false;
}

void http_exchange_enter(struct exchange *x, enum http_client_state state)
{
    if (x->client != NULL)
        http_client_state_set(x->client, state, x->http->now_us);
}

void http_exchange_suspend(struct exchange *x)
{
    x->suspended = true;
    http_exchange_enter(x, HTTP_CLIENT_WORKING);
    MHD_suspend_connection(x->connection);
}

void http_exchange_resume(struct exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    http_exchange_enter(x, HTTP_CLIENT_ANSWERING);
    MHD_resume_connection(x->connection);
}

/* Puts the exchange on the list of those whose completions have changed; http_turn handles them. */
static void exchange_changed(void *self)
{
    struct exchange *x = self;
    if (x->is_changed)
        return;
    x->is_changed = true;
    x->next_changed = x->http->changed_exchanges;
    x->http->changed_exchanges = x;
}

static void exchange_forget_changed(struct exchange *x)
{
    struct exchange **link = &x->http->changed_exchanges;
    while (x->is_changed && *link != x)
        link = &(*link)->next_changed;
    if (x->is_changed)
        *link = x->next_changed;
    x->is_changed = false;
}

/* Cancels the completion, if there is one, and frees its output that was not read. */
static void drop_completion(struct exchange *x)
{
    http_text_drop(x);
    http_exchange_unwatch(x);
    exchange_forget_changed(x);
    http_stream_end(x);
    completion_close(x->completion);
    x->completion = NULL;
    http_unread_drop(x);
}

/* See the header. */
void http_exchange_gone(struct exchange *x)
{
    x->client_gone = true;
    drop_completion(x);
    http_exchange_resume(x);
}

/* Frees the body, which has been parsed or will not be parsed. */
static void body_free(struct exchange *x)
{
    x->http->bodies_bytes -= x->body.bytes;
    text_done(&x->body);
}

enum MHD_Result http_answer_completion(struct exchange *x, const struct http_text_kind *kind)
{
    struct http *h = x->http;
    struct api_error error = {0};
    if (h->refuses) {
        api_error_set(&error, 503, NULL, "the server is stopping");
        error.retry_after_s = DRAIN_RETRY_S;
        return http_answer_error(x, &error);
    }
    h->ready_once |= gateway_ready(h->options.gateway);
    if (!h->ready_once) {
        char why[400];
        http_health_text(x, why, sizeof(why));
        api_error_set(&error, 503, NULL, "not ready yet: %s", why);
        error.retry_after_s = 1;
        return http_answer_error(x, &error);
    }
    return http_text_begin(x, kind);
}

enum MHD_Result http_completion_begin(struct exchange *x, struct served_model *model,
                                      struct completion_input *input)
{
    struct http *h = x->http;
    struct api_error error = {0};
    metrics_counter_add(h->options.metrics, METRICS_UNKNOWN_FIELDS,
                        completion_input_unknown_fields(input));
    const struct completion_start start = {.model = model,
                                           .input = input,
                                           .request_id = x->request_id,
                                           .api_key_index = x->api_key_index,
                                           .arrived_us = x->arrived_us,
                                           .facts = &x->facts,
                                           .changed = exchange_changed,
                                           .self = x};
    x->opened_us = clock_now_us(h->options.clock);
    if (!completion_open(&h->completions, &start, &x->completion, &error))
        return http_answer_error(x, &error);
    if (completion_is_stream(x->completion))
        http_stream_begin(x);
    if (completion_status_known(x->completion))
        return http_answer_begun(x);
    http_exchange_watch(x);
    http_exchange_suspend(x);
    return MHD_YES;
}

/* --- the daemon's callbacks --- */

/* Takes the client's id if every log line, URL and table can contain it unchanged: no quotation
 * marks, spaces or control characters. Otherwise draws an id. */
static void request_id_set(struct exchange *x)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "-_.~:@+/=";
    const char *given = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "x-request-id");
    size_t length = given != NULL ? strspn(given, good) : 0;
    uint64_t id[2];
    if (length > 0 && length < GATEWAY_CLIENT_ID_BYTES && given[length] == 0) {
        snprintf(x->request_id, sizeof(x->request_id), "%s", given);
        return;
    }
    completion_id_draw(&x->http->completions, id);
    snprintf(x->request_id, sizeof(x->request_id), "%016llx%08llx", (unsigned long long)id[0],
             (unsigned long long)(id[1] & 0xffffffffu));
}

/* Returns true if the text begins with `digits` hexadecimal digits in lower case that are not all
 * zeros, and then `end`. */
static bool is_trace_part(const char *text, size_t digits, char end)
{
    return strspn(text, "0123456789abcdef") == digits && strspn(text, "0") < digits &&
           text[digits] == end;
}

/* Reads the header traceparent: VERSION-TRACE-PARENT-FLAGS. Higher versions may have more text
 * after the flags. */
static void trace_set(struct exchange *x)
{
    const char *at = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "traceparent");
    if (at == NULL || strlen(at) < 55 || strspn(at, "0123456789abcdef") != 2 || at[2] != '-' ||
        strncmp(at, "ff", 2) == 0 || !is_trace_part(at + 3, 32, '-') ||
        !is_trace_part(at + 36, 16, '-'))
        return;
    snprintf(x->trace_id, sizeof(x->trace_id), "%.32s", at + 3);
    snprintf(x->trace_parent, sizeof(x->trace_parent), "%.16s", at + 36);
    x->trace_unwanted = strchr("13579bdf", at[54]) == NULL; /* The lowest bit of the flags. */
}

/* Refuses a request whose body is still arriving: frees the part that has arrived; the rest will be
 * dropped. */
static void refuse_rest(struct exchange *x, const struct api_error *error)
{
    body_free(x);
    x->refusal = malloc(sizeof(*x->refusal));
    if (x->refusal != NULL)
        *x->refusal = *error;
    else
        x->client_gone = true;
}

/* The headers have arrived: opens the exchange and refuses what can be refused before the body is
 * read. */
static enum MHD_Result exchange_open(struct http *h, struct MHD_Connection *connection,
                                     const char *target, const char *method, const char *version,
                                     void **out)
{
    const char *url = http_target_path(target);
    struct exchange *x = calloc(1, sizeof(*x));
    if (x == NULL)
        return MHD_NO;
    x->http = h;
    x->connection = connection;
    x->fd = -1;
    x->api_key_index = API_KEY_NONE;
    x->began_us = clock_now_us(h->options.clock);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const struct http_connection *of = info != NULL ? info->socket_context : NULL;
    x->client = of != NULL ? of->client : NULL;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON);
    x->from_admin_socket = info != NULL && info->daemon == h->admin_daemon;
    if (x->client != NULL)
        http_client_request_set(x->client, x);
    x->is_http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    x->body_bytes_max = h->options.config->http.body_bytes_max;
    x->route = http_route_find(h, url, x->path_tail);
    x->next = h->exchanges;
    if (x->next != NULL)
        x->next->previous = x;
    h->exchanges = x;
    request_id_set(x);
    trace_set(x);
    *out = x;
    struct api_error error = {0};
    bool good = http_headers_check(x, target, method, &error);
    if (!http_audit_open(x, url, method))
        good = api_error_set(&error, 503, NULL, "out of memory");
    http_exchange_enter(x, HTTP_CLIENT_RECEIVING);
    if (good)
        return MHD_YES;
    if (x->body_expected == 0 || x->body_expected > DROPPED_BYTES_MAX)
        return http_answer_error(x, &error);
    refuse_rest(x, &error);
    return MHD_YES;
}

static void body_add(struct exchange *x, const char *data, size_t bytes)
{
    struct http *h = x->http;
    struct api_error error = {0};
    if (x->client != NULL)
        http_client_bytes_add(x->client, bytes, h->now_us);
    if (x->refusal != NULL) {
        x->dropped_bytes += bytes;
        if (x->dropped_bytes > x->body_bytes_max) /* Only a chunked body can be this long. */
            x->client_gone = true;
    }
    if (x->refusal != NULL || x->client_gone)
        return;
    if (bytes > x->body_bytes_max - x->body.bytes)
        http_body_too_large(x, &error);
    else
        http_bodies_fit(h, x->body.bytes + bytes, bytes, &error);
    if (error.status != 0) {
        refuse_rest(x, &error);
        return;
    }
    size_t before = x->body.bytes;
    text_add(&x->body, data, bytes);
    h->bodies_bytes += x->body.bytes - before;
}

enum MHD_Result http_on_request(void *self, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_bytes, void **state)
{
    struct http *h = self;
    struct exchange *x = *state;
    if (x == NULL)
        return exchange_open(h, connection, url, method, version, state);
    if (*upload_bytes > 0) {
        body_add(x, upload, *upload_bytes);
        *upload_bytes = 0;
        return x->client_gone ? MHD_NO : MHD_YES;
    }
    if (x->client_gone)
        return MHD_NO;
    if (x->text_work != NULL) /* The connection was resumed. */
        return http_text_answer(x);
    if (x->completion != NULL) /* The connection was resumed. */
        return http_answer_begun(x);
    if (x->refusal != NULL)
        return http_answer_error(x, x->refusal);
    struct api_error error = {0};
    if (x->body.broken)
        api_error_set(&error, 503, NULL, "out of memory");
    else
        http_access_check_again(x, &error);
    if (error.status != 0)
        return http_answer_error(x, &error);
    x->arrived_us = clock_now_us(h->options.clock);
    enum MHD_Result result = x->is_preflight ? http_answer_preflight(x) : x->route->answer(x);
    body_free(x);
    return result;
}

void http_on_completed(void *self, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode why)
{
    (void)connection;
    (void)why;
    struct http *h = self;
    struct exchange *x = *state;
    if (x == NULL)
        return;
    *state = NULL;
    http_audit_write(x, 0);
    *(x->previous != NULL ? &x->previous->next : &h->exchanges) = x->next;
    if (x->next != NULL)
        x->next->previous = x->previous;
    drop_completion(x);
    http_record_write(x);
    http_exchange_enter(x, HTTP_CLIENT_IDLE);
    if (x->client != NULL)
        http_client_request_set(x->client, NULL);
    if (x->status_code != 0)
        metrics_http_done(h->options.metrics, x->status_code);
    body_free(x);
    free(x->refusal);
    if (x->api_key_index != API_KEY_NONE)
        api_keys_index_release(h->options.keys, x->api_key_index);
    if (x->counts_as_open)
        h->open_answers--;
    free(x);
}
