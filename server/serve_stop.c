/* serve_stop: the end of `cleave serve`:
 *
 *   SIGTERM ─► giving notice: /health reports the drain, so that load balancers send nothing more
 *           ─► (server/drain_notice_ms is over)
 *           ─► draining: running requests continue, new ones are refused
 *           ─► (no request is running, or server/drain_ms is over, or a second SIGTERM)
 *           ─► stopping: the remaining requests end with an error, machines are asked to end
 *           ─► (they have ended, or are killed after STOP_US_MAX or at a third SIGTERM) ─► end
 */
#include "server/serve_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define STOP_US_MAX 5000000 /* machines that have not ended by then are killed */

static void parts_stop(struct serve *s)
{
    http_refuse_begin(s->http);
    http_accept_stop(s->http);
    gateway_stop(s->gateway); /* clients are told while the machines end */
    for (struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m))
        if (m->config.local)
            gateway_machine_shutdown(s->gateway, m);
    gateway_turn(s->gateway);
    launcher_stop(s->launcher);
    s->stop_deadline_us = serve_now_us() + STOP_US_MAX;
}

static void refusal_begin(struct serve *s)
{
    char text[96];
    uint32_t running = http_open_answers(s->http);
    snprintf(text, sizeof(text), "drains: refuses new requests, %u are running", running);
    notify_stopping(&s->notify, text);
    log_info("refuses new requests, %u are running", running);
    http_refuse_begin(s->http);
    s->refusal_us = -1;
}

static void drain_begin(struct serve *s, int number)
{
    const uint32_t notice_ms = s->config->server.drain_notice_ms;
    log_info("%s: drains; a second one stops now", strsignal(number));
    http_drain_begin(s->http);
    s->refusal_us = serve_now_us() + (int64_t)notice_ms * 1000;
    s->drain_deadline_us = s->refusal_us + (int64_t)s->config->server.drain_ms * 1000;
    if (notice_ms == 0) {
        refusal_begin(s);
        return;
    }
    notify_stopping(&s->notify, "drains: /health says so, new requests are still served");
    log_info("/health says that it drains; new requests are refused in %u ms", notice_ms);
}

/* Returns the status for the audit log. */
static unsigned reload_on_hangup(struct serve *s, const struct audit_actor *actor)
{
    struct text answer = {0};
    struct error error; /* the log says why */
    enum status status = ST_NO_RESOURCE;
    if (s->drain_deadline_us >= 0 || s->stop_deadline_us >= 0) {
        log_warn("SIGHUP: the server is stopping, nothing is read again");
    } else {
        notify_reloading(&s->notify, serve_now_us());
        status = serve_reload(s, false, actor, &answer, &error);
        notify_ready(&s->notify, status == ST_OK ? "has read its config again"
                                                 : "refused a changed config: see the log");
    }
    text_done(&answer);
    return serve_admin_status(status);
}

static void signal_actor(const struct signalfd_siginfo *info, struct audit_actor *out)
{
    *out = (struct audit_actor){.address = "signal", .is_administrator = true};
    if (info->ssi_code == SI_KERNEL) /* Ctrl-C, or the terminal has closed */
        snprintf(out->name, sizeof(out->name), "terminal");
    else
        snprintf(out->name, sizeof(out->name), "uid %u pid %u", info->ssi_uid, info->ssi_pid);
}

void serve_signals_turn(struct serve *s)
{
    struct signalfd_siginfo info;
    struct audit_actor actor;
    while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        unsigned status = 200;
        signal_actor(&info, &actor);
        if (info.ssi_signo == SIGUSR1) {
            serve_dump_begin(s);
            audit_write(&actor, "requests logged", "", 200);
            continue;
        }
        if (info.ssi_signo == SIGHUP) {
            status = reload_on_hangup(s, &actor);
        } else if (s->stop_deadline_us >= 0) {
            launcher_kill(s->launcher); /* the third signal */
        } else if (s->drain_deadline_us >= 0) {
            log_info("%s again, stops now", strsignal((int)info.ssi_signo));
            parts_stop(s);
        } else {
            drain_begin(s, (int)info.ssi_signo);
        }
        audit_write(&actor, info.ssi_signo == SIGHUP ? "reload" : "stop", "", status);
    }
}

static void timeout_shorten(int *timeout_ms, int64_t left_us)
{
    if (*timeout_ms < 0 || left_us / 1000 < *timeout_ms)
        *timeout_ms = (int)(left_us / 1000) + 1;
}

/* Goes from notice to draining and from there to stopping when it is time. */
static void drain_turn(struct serve *s, int *timeout_ms)
{
    int64_t now_us = serve_now_us();
    if (s->refusal_us > now_us) {
        timeout_shorten(timeout_ms, s->refusal_us - now_us);
        return;
    }
    if (s->refusal_us >= 0)
        refusal_begin(s);
    int64_t left_us = s->drain_deadline_us - now_us;
    uint32_t running = http_open_answers(s->http);
    if (running == 0 || left_us <= 0) {
        if (running > 0)
            log_warn("%u requests did not finish within server/drain_ms", running);
        log_info("stops");
        parts_stop(s);
    } else {
        timeout_shorten(timeout_ms, left_us);
    }
}

/* See serve_internal.h. */
bool serve_stop_turn(struct serve *s, int *timeout_ms)
{
    if (s->failed && s->stop_deadline_us < 0)
        parts_stop(s);
    if (s->drain_deadline_us >= 0 && s->stop_deadline_us < 0)
        drain_turn(s, timeout_ms);
    if (s->stop_deadline_us < 0)
        return false;
    int64_t left_us = s->stop_deadline_us - serve_now_us();
    if (left_us <= 0 && launcher_running_count(s->launcher) > 0) {
        log_warn("machines that did not end within %d s are killed: %u", STOP_US_MAX / 1000000,
                 launcher_running_count(s->launcher));
        launcher_kill(s->launcher);
        left_us = 100000;
    }
    if (left_us >= 0)
        timeout_shorten(timeout_ms, left_us);
    return launcher_running_count(s->launcher) == 0;
}
