/* http: the daemon and its loop. exchange.c handles each request.
 *
 * It uses an external epoll and one thread, because libmicrohttpd 0.9.75's own epoll thread stalls
 * when the number of ready events is a multiple of 128, and a resume from another thread loses
 * wake-ups. libmicrohttpd does not see the disconnect of a suspended connection, so our own epoll
 * watches the socket. */
#include "server/http/internal.h"

#include "common/log.h"
#include "server/http/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define RUNS_MAX 2 /* Most runs of the daemon in one iteration of the event loop. */
/* A keep-alive connection without a request is closed after this time. */
#define IDLE_SECONDS_MAX      120
#define ADMIN_CONNECTIONS_MAX 16
/* The minimum rate is checked after this time. */
#define GRACE_SECONDS 30
/* Most places that are kept for short requests. */
#define PLACES_KEPT_MAX 64
/* Most sockets for connections without a place: replaced ones that are being closed, and new ones
 * that wait. */
#define BEYOND_MAX 64

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
    return http_clients_admit(h->clients, address, h->now_us) ? MHD_YES : MHD_NO;
}

static void on_connection(void *self, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *h = self;
    struct http_connection *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (c != NULL)
            http_client_remove(c->client);
        free(c);
        *context = NULL;
        return;
    }
    /* libmicrohttpd 1.0 returns the same union from each call, so what it holds is copied first. */
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info != NULL ? info->client_addr : NULL;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (address == NULL || info == NULL || (c = calloc(1, sizeof(*c))) == NULL)
        return;
    *c = (struct http_connection){.http = h, .mhd = connection};
    c->client = http_client_add(h->clients, address, info->connect_fd, h->now_us);
    if (c->client == NULL) {
        free(c);
        return;
    }
    *context = c;
    if (h->options.tls)
        http_handshake_pace(c);
}

/* Closes a client's connection: shuts its socket down, which wakes libmicrohttpd, and frees the
 * memory of its request now. */
static void on_client_close(void *self, struct http_client *client, const char *why)
{
    (void)self;
    struct exchange *x = http_client_request(client);
    if (x != NULL && x->refusal == NULL)
        log_warn("request %s dropped: %s", x->request_id, why);
    else /* A client without a request: it could fill the log. */
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
    uint32_t beyond = part_of(places, 16, BEYOND_MAX);
    places -= beyond;
    struct http_clients_options options = {
        .connections_max = places,
        .connections_surplus = beyond,
        .connections_reserved = part_of(places, 16, PLACES_KEPT_MAX),
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
    int64_t wait_us = http_clients_turn(h->clients, h->now_us);
    return wait_us < 0 ? -1 : wait_us / 1000 < 60000 ? (int)(wait_us / 1000) + 1 : 60000;
}

/* --- the daemons --- */

/* Starts a daemon; its connections are those of a listening socket. The daemon owns a duplicate of
 * the socket: if the start fails, libmicrohttpd 1.0 closes its socket, and 0.9 leaves it open. Then
 * the duplicate stays open until the process ends. */
static struct MHD_Daemon *daemon_start(struct http *h, int listen_fd, unsigned flags,
                                       unsigned connections_max, MHD_AcceptPolicyCallback accept,
                                       struct MHD_OptionItem *more)
{
    int own = fcntl(listen_fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return NULL;
    return MHD_start_daemon(
        flags | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, accept, h,
        http_on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_daemon_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, own, MHD_OPTION_CONNECTION_LIMIT, connections_max,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS_MAX, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, h, MHD_OPTION_ARRAY, more, MHD_OPTION_END);
}

static struct MHD_Daemon *main_daemon_start(struct http *h)
{
    const struct http_options *options = &h->options;
    struct MHD_OptionItem more[] = {
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, h},
        {options->tls ? MHD_OPTION_HTTPS_PRIORITIES : MHD_OPTION_END, 0, HTTP_TLS_PRIORITIES},
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)http_tls_pick},
        {MHD_OPTION_END, 0, NULL},
    };
    return daemon_start(h, options->listen_fd, options->tls ? MHD_USE_TLS : 0,
                        options->config->http.connections_max, on_accept, more);
}

static struct MHD_Daemon *admin_daemon_start(struct http *h)
{
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    return daemon_start(h, h->options.admin_fd, 0, ADMIN_CONNECTIONS_MAX, NULL, none);
}

/* Puts the daemon's own epoll descriptor into ours. */
static bool daemon_watch(struct http *h, struct MHD_Daemon *daemon)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    return info != NULL && epoll_ctl(h->epoll, EPOLL_CTL_ADD, info->epoll_fd, &event) == 0;
}

static void daemons_stop(struct http *h)
{
    if (h->admin_daemon != NULL)
        MHD_stop_daemon(h->admin_daemon);
    if (h->daemon != NULL)
        MHD_stop_daemon(h->daemon); /* http_on_completed runs for every open exchange */
}

static enum status daemons_start(struct http *h, struct error *error)
{
    h->daemon = main_daemon_start(h);
    if (h->daemon == NULL)
        return error_set(error, ST_IO, "the HTTP server cannot be started: %s", strerror(errno));
    if (h->options.admin_fd > 0) {
        h->admin_daemon = admin_daemon_start(h);
        if (h->admin_daemon == NULL)
            return error_set(error, ST_IO, "the HTTP server cannot use http/admin_socket: %s",
                             strerror(errno));
    }
    if (!daemon_watch(h, h->daemon) ||
        (h->admin_daemon != NULL && !daemon_watch(h, h->admin_daemon)))
        return error_set(error, ST_IO, "the HTTP server has no epoll");
    return ST_OK;
}

static enum status text_jobs_start(struct http *h, struct error *error)
{
    enum status status = text_jobs_open(h->options.config->http.text_threads, &h->text_jobs, error);
    if (status != ST_OK)
        return status;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, text_jobs_fd(h->text_jobs), &event) == 0)
        return ST_OK;
    text_jobs_stop(h->text_jobs);
    text_jobs_close(h->text_jobs);
    return error_set(error, ST_IO, "epoll: %s", strerror(errno));
}

/* Requires that no exchange is left. */
static void text_jobs_end(struct http *h)
{
    text_jobs_stop(h->text_jobs);
    http_text_collect(h);
    text_jobs_close(h->text_jobs);
}

enum status http_open(const struct http_options *options, struct http **out, struct error *error)
{
    struct http *h = calloc(1, sizeof(*h));
    if (h == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    h->options = *options;
    h->now_us = clock_now_us(options->clock);
    h->completions = (struct completion_server){
        .gateway = options->gateway,
        .model = served_model_ref(options->model),
        .keys = options->keys,
        .config = options->config,
        .ledger = options->ledger,
    };
    enum status status = ST_OK;
    secret_random(h->completions.id_secret, sizeof(h->completions.id_secret));
    secret_random(h->completions.seed_secret, sizeof(h->completions.seed_secret));
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll < 0) {
        status = error_set(error, ST_IO, "epoll: %s", strerror(errno));
        goto undo_alloc;
    }
    status = text_jobs_start(h, error);
    if (status != ST_OK)
        goto undo_epoll;
    status = clients_open(h);
    if (status != ST_OK) {
        status = error_set(error, status, "out of memory");
        goto undo_jobs;
    }
    clients_turn(h);
    status = http_handshakes_open(h);
    if (status != ST_OK) {
        status = error_set(error, status, "epoll: %s", strerror(errno));
        goto undo_clients;
    }
    status = daemons_start(h, error);
    if (status != ST_OK)
        goto undo_daemons;
    close(options->listen_fd);
    if (options->admin_fd > 0)
        close(options->admin_fd);
    *out = h;
    return ST_OK;
undo_daemons:
    daemons_stop(h);
    http_handshakes_close(h);
undo_clients:
    http_clients_close(h->clients);
undo_jobs:
    text_jobs_end(h);
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
    for (struct exchange *x = h->exchanges; x != NULL; x = x->next)
        http_exchange_gone(x); /* libmicrohttpd aborts if a connection is suspended */
    http_handshakes_close(h);
    daemons_stop(h);
    text_jobs_end(h);
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

void http_keys_changed(struct http *h)
{
    for (struct exchange *x = h->exchanges; x != NULL; x = x->next) {
        const struct api_key_shown shown = {x->api_key_index, x->api_key_secret};
        if (x->key_revoked || !api_keys_revoked(h->options.keys, &shown))
            continue;
        x->key_revoked = true;
        if (x->completion != NULL)
            completion_revoke(x->completion);
    }
}

void http_accept_stop(struct http *h)
{
    struct MHD_Daemon *daemons[] = {h->daemon, h->admin_daemon};
    for (int i = 0; i < 2 && daemons[i] != NULL; i++) {
        MHD_socket fd = MHD_quiesce_daemon(daemons[i]);
        if (fd != MHD_INVALID_SOCKET)
            close(fd);
    }
}

void http_drain_begin(struct http *h)
{
    h->draining = true;
}

void http_refuse_begin(struct http *h)
{
    h->draining = h->refuses = true;
}

uint32_t http_open_answers(const struct http *h)
{
    return h->open_answers;
}

int http_fd(struct http *h)
{
    return h->epoll;
}

/* Handles the completions that have changed: releases gateway requests of choices that a stop
 * string has ended, resumes waiting connections, and closes connections whose clients read too
 * slowly. */
static void changed_handle(struct http *h)
{
    while (h->changed_exchanges != NULL) {
        struct exchange *x = h->changed_exchanges;
        h->changed_exchanges = x->next_changed;
        x->is_changed = false;
        completion_turn(x->completion);
        http_unread_count(x);
        http_stream_wrote(x);
        if (completion_is_stream(x->completion))
            http_answer_backlog_check(x);
        if (x->completion != NULL && completion_status_known(x->completion))
            http_exchange_resume(x);
    }
}

/* Returns the milliseconds until the next call; -1 = when a socket is ready. */
static int daemon_run(struct MHD_Daemon *daemon)
{
    unsigned long long timeout_ms = 0;
    enum MHD_Result timed = MHD_YES;
    /* After a resume, libmicrohttpd serves one connection in its first run and reports that it is
     * not done. A second run serves the rest at once, without another loop iteration. */
    for (int run = 0; run < RUNS_MAX && timed == MHD_YES && timeout_ms == 0; run++) {
        MHD_run(daemon);
        timed = MHD_get_timeout(daemon, &timeout_ms);
    }
    if (timed != MHD_YES)
        return -1;
    return timeout_ms > 60000 ? 60000 : (int)timeout_ms;
}

static int sooner(int a_ms, int b_ms)
{
    if (a_ms < 0 || b_ms < 0)
        return a_ms < 0 ? b_ms : a_ms;
    return a_ms < b_ms ? a_ms : b_ms;
}

int http_turn(struct http *h)
{
    struct epoll_event events[64];
    int count = epoll_wait(h->epoll, events, 64, 0);
    h->now_us = clock_now_us(h->options.clock);
    for (int i = 0; i < count; i++)
        if (events[i].data.ptr != NULL)
            http_exchange_gone(events[i].data.ptr);
    http_text_collect(h);
    http_records_turn(h);
    int ping_ms = http_pings_write(h);
    changed_handle(h);
    http_handshakes_resume(h);
    int timeout_ms = daemon_run(h->daemon);
    if (h->admin_daemon != NULL)
        timeout_ms = sooner(timeout_ms, daemon_run(h->admin_daemon));
    timeout_ms = sooner(sooner(timeout_ms, clients_turn(h)), ping_ms);
    return h->changed_exchanges != NULL ? 0 : timeout_ms;
}
