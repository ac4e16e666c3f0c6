/* http: the daemon and its loop. exchange.c handles each request. */
#include "server/http/internal.h"

#include "common/log.h"
#include "server/http/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define RUNS_MAX 2 /* runs of the daemon per iteration */
/* A keep-alive connection without a request is closed after this time. */
#define IDLE_SECONDS_MAX 120
/* The minimum rate counts after this time. */
#define GRACE_SECONDS 30
/* Places for clients that are not tenants with work. */
#define PLACES_KEPT_MAX 64
/* Connections that were replaced, and are being closed, take no place but still have a socket. */
#define CLOSING_MAX 64

static void on_daemon_log(void *self, const char *format, va_list args)
{
    (void)self;
    char line[512];
    vsnprintf(line, sizeof(line), format, args);
    line[strcspn(line, "\n")] = 0;
    log_debug("http %s", line);
}

/* --- connections --- */

static enum MHD_Result on_accept(void *self, const struct sockaddr *address, socklen_t bytes)
{
    (void)bytes;
    struct http *h = self;
    return http_clients_admit(h->clients, address) ? MHD_YES : MHD_NO;
}

static void on_connection(void *self, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *h = self;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context != NULL)
            http_client_remove(*context);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *address =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (address != NULL && fd != NULL)
        *context = http_client_add(h->clients, address->client_addr, fd->connect_fd,
                                   clock_now_us(h->options.clock));
}

/* Drops a client. Its socket is shut down, which wakes libmicrohttpd, and its request frees its
 * memory now. */
static void on_client_close(void *self, struct http_client *client, const char *why)
{
    (void)self;
    struct exchange *x = http_client_request(client);
    if (x != NULL && x->refusal == NULL)
        log_warn("request %s dropped: %s", x->request_id, why);
    else /* a stranger, who could fill the log */
        log_debug("http connection closed: %s", why);
    shutdown(http_client_fd(client), SHUT_RDWR);
    if (x != NULL)
        http_exchange_gone(x);
}

static uint32_t part_of(uint32_t all, uint32_t divisor, uint32_t most)
{
    uint32_t part = all / divisor > 0 ? all / divisor : all > 1;
    return part < most ? part : most;
}

static enum status clients_open(struct http *h)
{
    const struct config *config = h->options.config;
    uint32_t places = config->http.connections_max;
    places -= part_of(places, 16, CLOSING_MAX);
    struct http_clients_options options = {
        .places = places,
        .places_kept = part_of(places, 16, PLACES_KEPT_MAX),
        .idle_us = IDLE_SECONDS_MAX * 1000000ll,
        .grace_us = GRACE_SECONDS * 1000000ll,
        .close = on_client_close,
        .self = h,
    };
    return http_clients_open(&options, &h->clients);
}

/* Closes clients that are too slow. Returns the milliseconds until the next call; -1 = none. */
static int clients_turn(struct http *h)
{
    const struct config *config = h->options.config;
    http_clients_limits_set(h->clients, config->http.connections_per_address_max,
                            config->http.headers_ms * 1000ll, config->http.bytes_per_second_min);
    http_answers_check(h);
    int64_t wait_us = http_clients_turn(h->clients, clock_now_us(h->options.clock));
    return wait_us < 0 ? -1 : wait_us / 1000 < 60000 ? (int)(wait_us / 1000) + 1 : 60000;
}

static struct MHD_Daemon *daemon_start(struct http *h)
{
    const struct http_options *options = &h->options;
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_PRIORITIES, 0, HTTP_TLS_PRIORITIES},
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)http_tls_pick},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        options->tls ? flags | MHD_USE_TLS : flags, 0, on_accept, h, http_on_request, h,
        MHD_OPTION_EXTERNAL_LOGGER, on_daemon_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        options->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)options->config->http.connections_max, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS_MAX, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, h, MHD_OPTION_ARRAY,
        options->tls ? tls : none, MHD_OPTION_END);
}

enum status http_open(const struct http_options *options, struct http **out, struct error *error)
{
    struct http *h = calloc(1, sizeof(*h));
    if (h == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    h->options = *options;
    h->completions = (struct completion_server){
        .gateway = options->gateway,
        .model = served_model_ref(options->model),
        .keys = options->keys,
    };
    enum status status = ST_OK;
    if (getrandom(&h->completions.id_key, sizeof(h->completions.id_key), 0) < 0)
        h->completions.id_key = (uint64_t)getpid();
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll < 0) {
        status = error_set(error, ST_IO, "epoll: %s", strerror(errno));
        goto undo_alloc;
    }
    status = clients_open(h);
    if (status != ST_OK) {
        status = error_set(error, status, "out of memory");
        goto undo_epoll;
    }
    clients_turn(h);
    h->daemon = daemon_start(h);
    if (h->daemon == NULL) {
        status = error_set(error, ST_IO, "the HTTP server cannot be started: %s", strerror(errno));
        goto undo_clients;
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
undo_clients:
    http_clients_close(h->clients);
undo_epoll:
    close(h->epoll);
undo_alloc:
    served_model_unref(h->completions.model);
    free(h);
    return status;
}

void http_close(struct http *h)
{
    if (h == NULL)
        return;
    MHD_stop_daemon(h->daemon); /* http_on_completed runs for every open exchange */
    http_clients_close(h->clients);
    close(h->epoll);
    served_model_unref(h->completions.model);
    free(h);
}

void http_model_use(struct http *h, struct served_model *model)
{
    served_model_ref(model);
    served_model_unref(h->completions.model);
    h->completions.model = model;
}

void http_quiesce(struct http *h)
{
    MHD_socket fd = MHD_quiesce_daemon(h->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
}

void http_drain(struct http *h)
{
    h->draining = true;
}

uint32_t http_open_answers(const struct http *h)
{
    return h->open_answers;
}

uint32_t http_open_requests(const struct http *h)
{
    return h->open_requests;
}

uint64_t http_unread_bytes(const struct http *h)
{
    return h->unread_bytes;
}

uint32_t http_clients_open_count(const struct http *h)
{
    return http_clients_count(h->clients);
}

uint64_t http_body_bytes(const struct http *h)
{
    return h->bodies_bytes;
}

int http_fd(struct http *h)
{
    return h->epoll;
}

/* Handles the completions that have news: ends choices at the gateway that a stop string ended,
 * resumes waiting connections, drops readers that are too slow. */
static void take_changed(struct http *h)
{
    while (h->changed != NULL) {
        struct exchange *x = h->changed;
        h->changed = x->next_changed;
        x->is_changed = false;
        completion_turn(x->completion);
        http_unread_count(x);
        if (completion_is_stream(x->completion))
            http_answer_backlog_check(x);
        if (x->completion != NULL && completion_begun(x->completion))
            http_exchange_resume(x);
    }
}

int http_turn(struct http *h)
{
    struct epoll_event events[64];
    int count = epoll_wait(h->epoll, events, 64, 0);
    for (int i = 0; i < count; i++)
        if (events[i].data.ptr != NULL)
            http_exchange_gone(events[i].data.ptr);
    take_changed(h);
    unsigned long long timeout_ms = 0;
    enum MHD_Result timed = MHD_YES;
    /* After a resume, libmicrohttpd serves one connection in its first run and reports that it is
     * not done. A second run serves the rest at once, without another loop iteration. */
    for (int run = 0; run < RUNS_MAX && timed == MHD_YES && timeout_ms == 0; run++) {
        MHD_run(h->daemon);
        timed = MHD_get_timeout(h->daemon, &timeout_ms);
    }
    int clients_ms = clients_turn(h);
    if (h->changed != NULL)
        return 0;
    if (timed != MHD_YES)
        return clients_ms;
    int daemon_ms = timeout_ms > 60000 ? 60000 : (int)timeout_ms;
    return clients_ms >= 0 && clients_ms < daemon_ms ? clients_ms : daemon_ms;
}
