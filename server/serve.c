/* serve: starts everything, in the order that reports mistakes early and starts the machines soon:
 *
 *   options ─► HTTP's port ─► model file ─► machines start ─► (meanwhile) tokenizer, gateway, HTTP
 *   ─► loop
 *
 * The loop waits for five descriptors (signals, launcher, gateway, HTTP, and etcd's if there is
 * one) and serves each of them in that order: messages from machines reach clients in the same
 * iteration, and requests of clients leave in the next one. */
#include "server/serve_internal.h"

#include "common/secret.h"
#include "host/sandbox.h"
#include "server/http/tls.h"
#include "transport/address.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/* Descriptors that are not for clients: those of this process, and per machine its connection,
 * pidfd, pipe of keys, record of batches and, while it starts, a pipe and its config. */
#define FILES_BASE        24
#define FILES_PER_MACHINE 6
#define MODELS            2 /* at a time, during an update */
/* The latest lines of the log, for `cleave bundle`. */
#define LOG_KEPT_BYTES (64u << 10)
/* the ready line waits this long for machines that are not needed yet */
#define ALL_UP_US 2000000

/* ---- callbacks of the launcher ---- */

static void on_machine_ready(void *self, struct fleet_machine *machine, const char *address)
{
    struct serve *s = self;
    gateway_machine_address_set(s->gateway, machine, address);
}

static void on_machine_crashed(void *self, struct fleet_machine *machine, const char *how,
                               const uint64_t *ids, uint32_t count)
{
    struct serve *s = self;
    gateway_machine_crashed(s->gateway, machine, how, ids, count);
}

static void on_machine_ended(void *self, struct fleet_machine *machine, const char *reason)
{
    struct serve *s = self;
    gateway_machine_ended(s->gateway, machine, reason);
}

static void on_machine_given_up(void *self, struct fleet_machine *machine, const char *why)
{
    struct serve *s = self;
    const char *name = machine->config.name;
    gateway_machine_ended(s->gateway, machine, why);
    if (serve_update_machine_failed(s, machine, why))
        return;
    if (s->announced) {
        log_error("machine %s is given up: %s", name, why);
        return;
    }
    if (!s->failed)
        (void)error_set(&s->failure, ST_INVALID, "machine %s: %s", name, why);
    s->failed = true;
}

/* Gives a machine the model of its version. */
static void on_machine_prepare(void *self, const struct fleet_machine *machine,
                               struct config *config)
{
    const struct serve *s = self;
    bool other = s->other_version.number > 0 && machine->fixed_version == s->other_version.number;
    serve_model_config_put(other ? &s->other_version.config : &s->current.config, config);
    serve_members_prepare(s, config);
}

/* ---- starting ---- */

static enum status signals_open(struct serve *s, struct error *error)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return s->signal_fd >= 0 ? ST_OK : error_set(error, ST_IO, "signalfd: %s", strerror(errno));
}

rlim_t serve_files_of(uint32_t machine_count)
{
    return FILES_BASE + (rlim_t)FILES_PER_MACHINE * MODELS * machine_count;
}

/* Raises the limit of open files to what all connections and all machines need. If it stays too
 * low, the HTTP connections are limited, and the log says so, because machines must be able to
 * start and connect for any number of clients. */
static enum status files_open(struct serve *s, struct error *error)
{
    struct rlimit limit;
    rlim_t ours = serve_files_of(s->config->machine_count);
    rlim_t want = ours + s->config->http.connections_max;
    rlim_t most = serve_files_of(LIMIT_MACHINES) + s->config->http.connections_max;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return error_set(error, ST_IO, "getrlimit: %s", strerror(errno));
    if (limit.rlim_cur < most) {
        limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= want)
        return ST_OK;
    unsigned long long files = limit.rlim_cur;
    if (limit.rlim_cur <= ours)
        return error_set(error, ST_NO_RESOURCE,
                         "%llu open files are too few: want more than %llu (ulimit -n)", files,
                         (unsigned long long)ours);
    log_warn("%llu open files allow %llu HTTP connections, not %u as http/connections_max says "
             "(ulimit -n)",
             files, files - ours, (unsigned)s->config->http.connections_max);
    s->config->http.connections_max = (uint32_t)(limit.rlim_cur - ours);
    return ST_OK;
}

static enum status model_read(struct serve *s, struct error *error)
{
    s->version_last = 1;
    enum status status =
        serve_version_open(s->config, s->version_last, &s->current, &s->file, error);
    if (status != ST_OK)
        return status;
    serve_model_config_put(&s->current.config, s->config);
    return ST_OK;
}

static enum status machines_start(struct serve *s, struct error *error)
{
    enum status status = fleet_open(s->config, &s->fleet);
    if (status != ST_OK)
        return error_set(error, status, "machines: out of memory");
    for (struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m))
        m->fixed_version = m->config.local ? s->current.number : 0;
    struct launcher_options options = {
        .config = s->config,
        .fleet = s->fleet,
        .clock = &clock_system,
        .log_level = s->options.log_level_name,
        .cluster_keys = s->cluster_keys.count > 0 ? &s->cluster_keys : NULL,
        .events = {on_machine_ready, on_machine_crashed, on_machine_ended, on_machine_given_up},
        .config_prepare = on_machine_prepare,
        .self = s,
    };
    return launcher_open(&options, &s->launcher, error);
}

static enum status gateway_start(struct serve *s, struct error *error)
{
    enum status status = metrics_open(s->fleet, s->current.name, s->keys, &s->metrics);
    if (status != ST_OK)
        return error_set(error, status, "metrics: out of memory");
    struct gateway_options options = {
        .config = s->config,
        .fleet = s->fleet,
        .clock = &clock_system,
        .transport = &transport_ucx,
        .metadata_hash = s->current.metadata_hash,
        .context_tokens = s->current.context_tokens,
        .groups = s->current.groups,
        .metrics = s->metrics,
        .cluster_keys = s->cluster_keys.count > 0 ? &s->cluster_keys : NULL,
    };
    status = gateway_open(&options, &s->gateway, error);
    if (status == ST_OK)
        status = serve_events_open(s->config, &s->events, error);
    if (status != ST_OK)
        return status;
    gateway_events_set(s->gateway, s->events, true);
    metrics_reload_set(s->metrics, true, time(NULL));
    metrics_value_set(s->metrics, METRICS_CERTIFICATE_EXPIRES, (uint64_t)s->certificate_expires);
    for (struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m))
        if (!m->config.local)
            gateway_machine_address_set(s->gateway, m, m->config.address);
    return ST_OK;
}

static enum status http_start(struct serve *s, struct error *error)
{
    struct http_options options = {
        .config = s->config,
        .gateway = s->gateway,
        .model = s->current.served,
        .metrics = s->metrics,
        .keys = s->keys,
        .ledger = s->ledger,
        .spans = s->spans,
        .clock = &clock_system,
        .tls = s->tls,
        .admin = serve_admin_actions(s),
        .listen_fd = s->listen_fd,
        .admin_fd = s->admin_fd,
    };
    struct event_log *access;
    enum status status = serve_access_open(s->config, &access, error);
    if (status != ST_OK)
        return status;
    status = http_open(&options, &s->http, error);
    if (status != ST_OK)
        event_log_close(access);
    else
        serve_access_use(s, access);
    if (status == ST_OK)
        s->listen_fd = s->admin_fd = -1; /* http_close closes them */
    return status;
}

static enum status loop_open(struct serve *s, struct error *error)
{
    int fds[] = {s->signal_fd, launcher_fd(s->launcher), gateway_fd(s->gateway), http_fd(s->http),
                 s->watch != NULL ? watch_fd(s->watch) : -1};
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; s->epoll_fd >= 0 && i < sizeof(fds) / sizeof(fds[0]); i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        if (fds[i] >= 0 && epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fds[i], &event) != 0)
            return error_set(error, ST_IO, "epoll: %s", strerror(errno));
    }
    return s->epoll_fd >= 0 ? ST_OK : error_set(error, ST_IO, "epoll: %s", strerror(errno));
}

/* Opens the API keys and the certificate. */
static enum status access_open(struct serve *s, struct error *error)
{
    struct api_key_set *set = NULL;
    struct http_certificate *certificate = NULL;
    enum status status = api_keys_open(&s->keys);
    if (status != ST_OK)
        return error_set(error, status, "API keys: out of memory");
    status = serve_keys_read(s->config, &set, error);
    if (status != ST_OK) {
        error_prefix(error, "server/api_keys_file");
        return status;
    }
    api_keys_apply(s->keys, set);
    status = serve_certificate_read(s->config, &certificate, error);
    if (status != ST_OK)
        return status;
    s->tls = certificate != NULL;
    s->certificate_expires = s->tls ? http_certificate_expires(certificate) : 0;
    http_tls_use(certificate, serve_now_us());
    return ST_OK;
}

static enum status serve_open(struct serve *s, struct error *error)
{
    char sandbox[SANDBOX_TEXT_BYTES];
    sandbox_gateway_enter(s->config, sandbox);
    enum status status = signals_open(s, error);
    if (status == ST_OK)
        status = files_open(s, error);
    if (status == ST_OK)
        status = access_open(s, error);
    if (status == ST_OK)
        status = serve_cluster_keys_find(s, error);
    if (status == ST_OK)
        status = address_listen(s->config->http.listen, &s->listen_fd, s->http_address, error);
    if (status == ST_OK)
        status = serve_admin_socket_open(s, error);
    if (status == ST_OK)
        status = model_read(s, error);
    if (status == ST_OK)
        status = machines_start(s, error);
    if (status == ST_OK)
        status = serve_version_text_read(&s->current, s->file, error);
    if (status == ST_OK)
        status = gateway_start(s, error);
    if (status == ST_OK)
        status = serve_members_open(s, error);
    if (status == ST_OK)
        status = serve_ledger_open(s, error);
    if (status == ST_OK)
        status = serve_spans_open(s, error);
    if (status == ST_OK)
        status = http_start(s, error);
    model_file_close(s->file); /* all needed parts have been copied */
    s->file = NULL;
    if (status == ST_OK)
        status = loop_open(s, error);
    if (status == ST_OK)
        log_info("%s", sandbox);
    return status;
}

/* Closes everything that serve_open opened, in reverse order. */
static void serve_close(struct serve *s)
{
    http_close(s->http);
    serve_admin_socket_remove(s);
    http_tls_use(NULL, serve_now_us());
    launcher_close(s->launcher);
    serve_members_close(s);
    gateway_close(s->gateway);
    event_log_close(s->events);
    event_log_close(s->access);
    ledger_close(s->ledger);
    spans_close(s->spans);
    serve_dump_end(s);
    metrics_close(s->metrics);
    fleet_close(s->fleet);
    api_keys_close(s->keys);
    serve_version_done(&s->other_version);
    serve_version_done(&s->current);
    model_file_close(s->file);
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    if (s->admin_fd > 0)
        close(s->admin_fd);
    if (s->signal_fd >= 0)
        close(s->signal_fd);
}

/* ---- ready ---- */

static void machines_text(const struct serve *s, char *out, size_t capacity)
{
    size_t used = 0;
    out[0] = 0;
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        uint32_t count = 0;
        uint32_t up = 0;
        for (const struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
             m = fleet_next(s->fleet, m)) {
            count += m->config.pool == (enum pool)pool;
            up += m->config.pool == (enum pool)pool && fleet_machine_up(m);
        }
        if (count == 0 || used >= capacity)
            continue;
        int more = snprintf(out + used, capacity - used, "%u %s machine%s", count,
                            pool_name((enum pool)pool), count == 1 ? "" : "s");
        used += more > 0 ? (size_t)more : 0;
        if (up < count && used < capacity)
            used += (size_t)snprintf(out + used, capacity - used, " (%u missing)", count - up);
        if (used < capacity)
            used += (size_t)snprintf(out + used, capacity - used, ", ");
    }
}

static void announce(struct serve *s)
{
    char machines[256], status[512];
    const char *scheme = s->tls ? "https" : "http";
    machines_text(s, machines, sizeof(machines));
    printf("cleave is ready on %s://%s (%smodel %s, %.2f s)\n", scheme, s->http_address, machines,
           s->current.name, (double)(serve_now_us() - s->started_us) * 1e-6);
    if (!s->options.quiet)
        printf("\n  curl -N %s://%s/v1/chat/completions -H 'Content-Type: application/json' \\\n"
               "%s    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"What is "
               "gravity?\"}],\"max_tokens\":64,\"temperature\":0,\"stream\":true}'\n\n",
               scheme, s->http_address,
               api_keys_configured(s->keys) ? "    -H 'Authorization: Bearer KEY' \\\n" : "");
    fflush(stdout);
    snprintf(status, sizeof(status), "serves %s on %s://%s", s->current.name, scheme,
             s->http_address);
    notify_ready(&s->notify, status);
    s->announced = true;
}

/* Prints once that requests can be served: when all machines are up, or ALL_UP_US after the needed
 * ones are. Returns the milliseconds until the next call; -1 = none. */
static int announce_turn(struct serve *s)
{
    if (s->announced || s->stop_deadline_us >= 0 || !gateway_ready(s->gateway))
        return -1;
    if (s->servable_us < 0)
        s->servable_us = serve_now_us();
    bool all = true;
    for (const struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m))
        all = all && fleet_machine_up(m);
    int64_t left_us = s->servable_us + ALL_UP_US - serve_now_us();
    if (!all && left_us > 0)
        return (int)(left_us / 1000) + 1;
    announce(s);
    return -1;
}

/* ---- the loop ---- */

static int sooner(int a_ms, int b_ms)
{
    if (a_ms < 0 || b_ms < 0)
        return a_ms < 0 ? b_ms : a_ms;
    return a_ms < b_ms ? a_ms : b_ms;
}

/* Waits for an event. Returns when the event loop should have gone on: the time before which it
 * slept as it wanted to. What comes after that is a delay, such as of a host that stood still. */
static int64_t loop_sleep(struct serve *s, int timeout_ms)
{
    struct epoll_event events[5];
    int64_t until_us = serve_now_us() + (int64_t)timeout_ms * 1000;
    if (epoll_wait(s->epoll_fd, events, 5, timeout_ms) < 0 && errno != EINTR)
        log_error("epoll: %s", strerror(errno));
    int64_t now_us = serve_now_us();
    return timeout_ms >= 0 && until_us < now_us ? until_us : now_us;
}

static void loop(struct serve *s)
{
    int64_t begun_us = serve_now_us();
    for (;;) {
        serve_signals_turn(s);
        int timeout_ms = launcher_turn(s->launcher);
        timeout_ms = sooner(timeout_ms, gateway_turn(s->gateway));
        serve_keys_turn(s, serve_now_us());
        timeout_ms = sooner(timeout_ms, announce_turn(s));
        timeout_ms = sooner(timeout_ms, http_turn(s->http));
        timeout_ms = sooner(timeout_ms, serve_members_turn(s));
        serve_machines_turn(s);
        timeout_ms = sooner(timeout_ms, serve_dump_turn(s));
        timeout_ms = sooner(timeout_ms, serve_update_turn(s));
        timeout_ms = sooner(timeout_ms,
                            metrics_problems_turn(s->metrics, serve_now_us(), (int64_t)time(NULL)));
        timeout_ms = sooner(timeout_ms, notify_turn(&s->notify, serve_now_us()));
        if (serve_stop_turn(s, &timeout_ms))
            return;
        if (gateway_pending(s->gateway) || s->work_pending)
            timeout_ms = 0;
        s->work_pending = false;
        metrics_iteration_add(s->metrics, serve_now_us() - begun_us);
        begun_us = loop_sleep(s, timeout_ms);
    }
}

static int check_only(struct serve *s, struct error *error)
{
    if (access_open(s, error) != ST_OK || serve_cluster_keys_find(s, error) != ST_OK ||
        model_read(s, error) != ST_OK)
        return 1;
    if (serve_version_draft_check(s->config, -1, s->file, &s->current, error) != ST_OK)
        return 1;
    serve_options_print(s->config, s->config->model);
    return 0;
}

int serve_main(int argc, char **argv)
{
    struct serve *s = calloc(1, sizeof(*s));
    struct config *config = calloc(1, sizeof(*config));
    struct config *from_file = calloc(1, sizeof(*from_file));
    struct error error = {""};
    int result = 1;
    if (s == NULL || config == NULL || from_file == NULL)
        goto undo_memory;
    *s = (struct serve){.argc = argc,
                        .argv = argv,
                        .config = config,
                        .file_config = from_file,
                        .options = {.config = config},
                        .started_us = serve_now_us(),
                        .listen_fd = -1,
                        .signal_fd = -1,
                        .notify = {.fd = -1},
                        .epoll_fd = -1,
                        .servable_us = -1,
                        .drain_deadline_us = -1,
                        .refusal_us = -1,
                        .stop_deadline_us = -1};
    result = serve_options_parse(argc, argv, &s->options);
    if (result >= 0)
        goto undo_memory;
    *from_file = *config;
    s->is_loopback = config_is_loopback(config);
    log_open("gateway", s->options.log_level);
    log_keep(LOG_KEPT_BYTES);
    serve_log_configure(s);
    if (!config->cluster.core_dumps && secret_core_dumps_stop(&error) != ST_OK)
        log_warn("%s", error.text);
    notify_open(&s->notify);
    if (config->renamed_warning[0] != 0)
        log_warn("%s: %s", config->source, config->renamed_warning);
    if (s->options.check_only) {
        result = check_only(s, &error);
    } else if (serve_open(s, &error) == ST_OK) {
        loop(s);
        result = s->failed ? 1 : 0;
        error = s->failure;
    } else {
        result = 1;
    }
    serve_close(s);
    notify_close(&s->notify);
    if (result != 0) /* Last: after the lines of machines that end. */
        fprintf(stderr, "cleave serve: %s\n", error.text);

undo_memory:
    free(from_file);
    free(config);
    free(s);
    return result;
}
