/* http: the daemon, its loop, and the life of an exchange:
 *
 *   headers ─► body ─► route ─┬─► answered at once
 *                             └─► completion ─► suspended ─► (changed) resumed ─► response queued
 *                                                  ▲                  │ stream: reader takes
 * events, └──────────────────┘ suspends when there are none
 *
 * Callbacks of a completion only put its exchange on the `changed` list; http_turn resumes
 * connections and runs the daemon, so libmicrohttpd is never entered from inside the gateway. */
#include "server/http_internal.h"

#include "common/log.h"
#include "common/random.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* Events that a client has not read yet: a slower client is dropped, so that it cannot hold memory.
 */
#define BACKLOG_BYTES_MAX (1u << 20)
/* A keep-alive connection without a request, or a request that does not arrive, is closed after
 * this. */
#define IDLE_SECONDS_MAX 120

/* --- watching the sockets of requests that wait --- */

static void exchange_watch(struct exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    x->fd = info != NULL ? info->connect_fd : -1;
    struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = x};
    x->watched = x->fd >= 0 && epoll_ctl(x->http->epoll, EPOLL_CTL_ADD, x->fd, &event) == 0;
}

static void exchange_unwatch(struct exchange *x)
{
    if (x->watched)
        epoll_ctl(x->http->epoll, EPOLL_CTL_DEL, x->fd, NULL);
    x->watched = false;
}

static void exchange_suspend(struct exchange *x)
{
    x->suspended = true;
    MHD_suspend_connection(x->connection);
}

static void exchange_resume(struct exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    MHD_resume_connection(x->connection);
}

/* The completion has news: looked at in the next http_turn. */
static void exchange_changed(void *self)
{
    struct exchange *x = self;
    if (x->is_changed)
        return;
    x->is_changed = true;
    x->next_changed = x->http->changed;
    x->http->changed = x;
}

static void exchange_forget_changed(struct exchange *x)
{
    struct exchange **link = &x->http->changed;
    while (x->is_changed && *link != x)
        link = &(*link)->next_changed;
    if (x->is_changed)
        *link = x->next_changed;
    x->is_changed = false;
}

/* The client has gone: its blocks are freed in both pools now, the connection closes in this turn.
 */
static void exchange_gone(struct exchange *x)
{
    x->gone = true;
    exchange_unwatch(x);
    exchange_forget_changed(x);
    completion_close(x->completion);
    x->completion = NULL;
    exchange_resume(x);
}

/* --- responses --- */

static enum MHD_Result queue_response(struct exchange *x, unsigned code,
                                      struct MHD_Response *response)
{
    MHD_add_response_header(response, "x-request-id", x->request_id);
    x->code = code;
    enum MHD_Result result = MHD_queue_response(x->connection, code, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result http_answer(struct exchange *x, unsigned code, const char *content_type,
                            const char *body, size_t bytes)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", content_type);
    return queue_response(x, code, response);
}

enum MHD_Result http_answer_json(struct exchange *x, unsigned code, struct text *body)
{
    enum MHD_Result result = MHD_NO;
    if (!body->broken)
        result = http_answer(x, code, "application/json", body->data, body->bytes);
    text_done(body);
    return result;
}

enum MHD_Result http_answer_error(struct exchange *x, const struct api_error *error)
{
    struct text body = {0};
    api_error_write(error, &body);
    text_adds(&body, "\n");
    struct MHD_Response *response =
        body.broken ? NULL
                    : MHD_create_response_from_buffer(body.bytes, body.data, MHD_RESPMEM_MUST_COPY);
    text_done(&body);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "application/json");
    if (error->retry_after_s > 0) {
        char seconds[16];
        snprintf(seconds, sizeof(seconds), "%u", error->retry_after_s);
        MHD_add_response_header(response, "Retry-After", seconds);
    }
    if (error->status == 405 && x->route != NULL)
        MHD_add_response_header(response, "Allow", x->route->allow);
    if (error->status == 413) /* the rest of the body is not read */
        MHD_add_response_header(response, "Connection", "close");
    return queue_response(x, error->status, response);
}

/* libmicrohttpd asks for the next bytes of a stream. */
static ssize_t stream_read(void *self, uint64_t position, char *buffer, size_t capacity)
{
    (void)position;
    struct exchange *x = self;
    if (x->gone || x->completion == NULL)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t bytes = 0;
    const char *data = completion_output(x->completion, &bytes);
    if (bytes > 0) {
        bytes = bytes < capacity ? bytes : capacity;
        memcpy(buffer, data, bytes);
        completion_taken(x->completion, bytes);
        return (ssize_t)bytes;
    }
    if (completion_finished(x->completion))
        return MHD_CONTENT_READER_END_OF_STREAM;
    exchange_suspend(x);
    return 0;
}

static enum MHD_Result answer_stream(struct exchange *x)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, stream_read, x, NULL);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/event-stream");
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering",
                            "no"); /* proxies pass events on at once */
    return queue_response(x, 200, response);
}

/* The completion knows its status: begin to answer. */
static enum MHD_Result answer_begun(struct exchange *x)
{
    const struct api_error *error = completion_error(x->completion);
    if (error != NULL)
        return http_answer_error(x, error);
    if (completion_is_stream(x->completion))
        return answer_stream(x);
    size_t bytes = 0;
    const char *body = completion_output(x->completion, &bytes);
    return http_answer(x, 200, "application/json", body, bytes);
}

enum MHD_Result http_answer_completion(struct exchange *x, enum api_kind kind)
{
    struct http *h = x->http;
    struct api_request request;
    struct api_error error = {0};
    h->was_ready |= gateway_ready(h->options.gateway);
    if (!h->was_ready) {
        char why[400];
        gateway_health_text(h->options.gateway, why, sizeof(why));
        api_error_set(&error, 503, NULL, "not ready yet: %s", why);
        error.retry_after_s = 1;
        return http_answer_error(x, &error);
    }
    if (!api_request_parse(kind, x->body.data, x->body.bytes, &request, &error))
        return http_answer_error(x, &error);
    text_done(&x->body);
    if (request.model != NULL && request.model[0] != 0 &&
        strcmp(request.model, h->options.model_name) != 0) {
        api_error_set(&error, 404, "model", "there is no model '%.128s' here: it is '%s'",
                      request.model, h->options.model_name);
        error.code = "model_not_found";
    } else {
        completion_open(&h->completions, &request, x->arrived_us, exchange_changed, x,
                        &x->completion, &error);
    }
    api_request_done(&request);
    if (error.status != 0)
        return http_answer_error(x, &error);
    if (completion_begun(x->completion))
        return answer_begun(x);
    exchange_watch(x);
    exchange_suspend(x);
    return MHD_YES;
}

/* --- the daemon's callbacks --- */

static void request_id_set(struct exchange *x)
{
    const char *given = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "x-request-id");
    size_t length = given != NULL ? strlen(given) : 0;
    bool good = length > 0 && length <= 128;
    for (size_t i = 0; good && i < length; i++)
        good = given[i] > ' ' && given[i] < 127;
    if (good)
        snprintf(x->request_id, sizeof(x->request_id), "%s", given);
    else
        snprintf(x->request_id, sizeof(x->request_id), "req-%016llx",
                 (unsigned long long)random_at(x->http->completions.id_key + 1,
                                               x->http->completions.id_counter++));
}

static enum MHD_Result refuse(struct exchange *x, unsigned status, const char *text)
{
    struct api_error error;
    api_error_set(&error, status, NULL, "%s", text);
    return http_answer_error(x, &error);
}

static enum MHD_Result refuse_large(struct exchange *x)
{
    char text[128];
    snprintf(text, sizeof(text), "the body is larger than %llu bytes (http/body_bytes_max)",
             (unsigned long long)x->http->options.config->http.body_bytes_max);
    return refuse(x, 413, text);
}

/* The headers are here: open the exchange; what can be refused before the body is read, is. */
static enum MHD_Result exchange_open(struct http *h, struct MHD_Connection *connection,
                                     const char *url, void **out)
{
    struct exchange *x = calloc(1, sizeof(*x));
    if (x == NULL)
        return MHD_NO;
    x->http = h;
    x->connection = connection;
    x->fd = -1;
    x->route = http_route_find(url, h->options.model_name);
    h->open_requests++;
    request_id_set(x);
    *out = x;
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    if (length != NULL && strtoull(length, NULL, 10) > h->options.config->http.body_bytes_max)
        return refuse_large(x);
    return MHD_YES;
}

static enum MHD_Result on_request(void *self, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state)
{
    (void)version;
    struct http *h = self;
    struct exchange *x = *state;
    if (x == NULL)
        return exchange_open(h, connection, url, state);
    if (*upload_bytes > 0) {
        size_t room = h->options.config->http.body_bytes_max - x->body.bytes;
        if (*upload_bytes > room)
            x->body_too_large = true;
        else if (!x->body_too_large)
            text_add(&x->body, upload, *upload_bytes);
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (x->gone)
        return MHD_NO;
    if (x->completion != NULL) /* resumed */
        return answer_begun(x);
    if (x->body_too_large)
        return refuse_large(x);
    if (x->body.broken)
        return refuse(x, 503, "out of memory");
    if (x->route == NULL) {
        char text[256];
        snprintf(text, sizeof(text), "there is no %.200s here", url);
        return refuse(x, 404, text);
    }
    if (!http_route_allows(x->route, method)) {
        char text[256];
        snprintf(text, sizeof(text), "%.16s is not allowed for %s: want %s", method, x->route->path,
                 x->route->allow);
        return refuse(x, 405, text);
    }
    x->arrived_us = clock_now_us(h->options.clock);
    return x->route->answer(x);
}

static void on_completed(void *self, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    (void)connection;
    (void)why;
    struct http *h = self;
    struct exchange *x = *state;
    if (x == NULL)
        return;
    *state = NULL;
    exchange_unwatch(x);
    exchange_forget_changed(x);
    completion_close(x->completion);
    if (x->code != 0)
        metrics_http_done(h->options.metrics, x->code);
    text_done(&x->body);
    h->open_requests--;
    free(x);
}

static void on_daemon_log(void *self, const char *format, va_list args)
{
    (void)self;
    char line[512];
    vsnprintf(line, sizeof(line), format, args);
    line[strcspn(line, "\n")] = 0;
    log_debug("http %s", line);
}

/* --- life --- */

enum status http_listen(const char *address, int *fd_out, char bound_out[LIMIT_ADDRESS_BYTES],
                        struct error *error)
{
    char host[LIMIT_ADDRESS_BYTES];
    snprintf(host, sizeof(host), "%s", address);
    char *colon = strrchr(host, ':');
    if (colon == NULL)
        return error_set(error, ST_INVALID, "listen on %s: want ADDRESS:PORT", address);
    *colon = 0;
    char *name = host;
    if (host[0] == '[' && colon > host && colon[-1] == ']') {
        colon[-1] = 0;
        name = host + 1;
    }
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(name[0] != 0 ? name : NULL, colon + 1, &hints, &found);
    if (failed != 0)
        return error_set(error, ST_INVALID, "listen on %s: %s", address, gai_strerror(failed));
    enum status status = ST_OK;
    int one = 1;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1024) != 0)
        status = error_set(error, ST_IO, "listen on %s: %s", address, strerror(errno));
    struct sockaddr_storage bound;
    socklen_t bound_bytes = sizeof(bound);
    char number[8];
    if (status == ST_OK && (getsockname(fd, (struct sockaddr *)&bound, &bound_bytes) != 0 ||
                            getnameinfo((struct sockaddr *)&bound, bound_bytes, NULL, 0, number,
                                        sizeof(number), NI_NUMERICSERV) != 0))
        status = error_set(error, ST_IO, "listen on %s: its port cannot be read", address);
    freeaddrinfo(found);
    if (status != ST_OK) {
        if (fd >= 0)
            close(fd);
        return status;
    }
    bool brackets = strchr(name, ':') != NULL;
    snprintf(bound_out, LIMIT_ADDRESS_BYTES, "%s%.100s%s:%s", brackets ? "[" : "",
             name[0] != 0 ? name : "0.0.0.0", brackets ? "]" : "", number);
    *fd_out = fd;
    return ST_OK;
}

enum status http_open(const struct http_options *options, struct http **out, struct error *error)
{
    struct http *h = calloc(1, sizeof(*h));
    if (h == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    h->options = *options;
    h->completions = (struct completion_server){
        .gateway = options->gateway,
        .tokenizer = options->tokenizer,
        .chat = options->chat,
        .model_name = options->model_name,
    };
    enum status status = ST_OK;
    if (getrandom(&h->completions.id_key, sizeof(h->completions.id_key), 0) < 0)
        h->completions.id_key = (uint64_t)getpid();
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll < 0) {
        status = error_set(error, ST_IO, "epoll: %s", strerror(errno));
        goto undo_alloc;
    }
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, h,
        MHD_OPTION_EXTERNAL_LOGGER, on_daemon_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        options->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)options->config->http.connections_max, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS_MAX, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_END);
    if (h->daemon == NULL) {
        status = error_set(error, ST_IO, "the HTTP server cannot be started: %s", strerror(errno));
        goto undo_epoll;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (info == NULL || epoll_ctl(h->epoll, EPOLL_CTL_ADD, info->epoll_fd, &event) != 0) {
        status = error_set(error, ST_IO, "the HTTP server has no epoll");
        goto undo_daemon;
    }
    *out = h;
    return ST_OK;
undo_daemon:
    MHD_stop_daemon(h->daemon);
undo_epoll:
    close(h->epoll);
undo_alloc:
    free(h);
    return status;
}

void http_close(struct http *h)
{
    if (h == NULL)
        return;
    MHD_stop_daemon(h->daemon); /* on_completed runs for every open exchange */
    close(h->epoll);
    free(h);
}

void http_quiesce(struct http *h)
{
    MHD_socket fd = MHD_quiesce_daemon(h->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
}

uint32_t http_open_requests(const struct http *h)
{
    return h->open_requests;
}

int http_fd(struct http *h)
{
    return h->epoll;
}

/* Takes the news of completions: choices that a stop string ended are released, connections that
 * wait are resumed, readers that are too slow are dropped. */
static void take_changed(struct http *h)
{
    while (h->changed != NULL) {
        struct exchange *x = h->changed;
        h->changed = x->next_changed;
        x->is_changed = false;
        completion_turn(x->completion);
        size_t bytes = 0;
        completion_output(x->completion, &bytes);
        if (completion_is_stream(x->completion) && bytes > BACKLOG_BYTES_MAX) {
            log_warn("request %s dropped: its client has not read %zu bytes", x->request_id, bytes);
            shutdown(x->fd, SHUT_RDWR); /* libmicrohttpd waits for the socket: this wakes it */
            exchange_gone(x);
        } else if (completion_begun(x->completion)) {
            exchange_resume(x);
        }
    }
}

int http_turn(struct http *h)
{
    struct epoll_event events[64];
    int count = epoll_wait(h->epoll, events, 64, 0);
    for (int i = 0; i < count; i++)
        if (events[i].data.ptr != NULL)
            exchange_gone(events[i].data.ptr);
    take_changed(h);
    MHD_run(h->daemon);
    unsigned long long timeout_ms = 0;
    if (h->changed != NULL)
        return 0;
    if (MHD_get_timeout(h->daemon, &timeout_ms) != MHD_YES)
        return -1;
    return timeout_ms > 60000 ? 60000 : (int)timeout_ms;
}
