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

/* Bytes of a stream that its client has not read: a slower client is dropped, so that it cannot
 * hold memory. */
#define RUNS_MAX          2 /* runs of the daemon per iteration */
#define BACKLOG_BYTES_MAX (1u << 20)
/* A keep-alive connection without a request, or a request that does not arrive, is closed after
 * this time. */
#define IDLE_SECONDS_MAX 120

static void on_daemon_log(void *self, const char *format, va_list args)
{
    (void)self;
    char line[512];
    vsnprintf(line, sizeof(line), format, args);
    line[strcspn(line, "\n")] = 0;
    log_debug("http %s", line);
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
        options->tls ? flags | MHD_USE_TLS : flags, 0, NULL, NULL, http_on_request, h,
        MHD_OPTION_EXTERNAL_LOGGER, on_daemon_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        options->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)options->config->http.connections_max, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS_MAX, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED,
        http_on_completed, h, MHD_OPTION_ARRAY, options->tls ? tls : none, MHD_OPTION_END);
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
    h->daemon = daemon_start(h);
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
    served_model_unref(h->completions.model);
    free(h);
    return status;
}

void http_close(struct http *h)
{
    if (h == NULL)
        return;
    MHD_stop_daemon(h->daemon); /* http_on_completed runs for every open exchange */
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
        size_t bytes = 0;
        completion_output(x->completion, &bytes);
        if (completion_is_stream(x->completion) && bytes > BACKLOG_BYTES_MAX) {
            log_warn("request %s dropped: its client has not read %zu bytes", x->request_id, bytes);
            shutdown(x->fd, SHUT_RDWR); /* wakes libmicrohttpd, which waits for the socket */
            http_exchange_gone(x);
        } else if (completion_begun(x->completion)) {
            http_exchange_resume(x);
        }
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
    if (h->changed != NULL)
        return 0;
    if (timed != MHD_YES)
        return -1;
    return timeout_ms > 60000 ? 60000 : (int)timeout_ms;
}
