/* serve_reload: reads the config file, the API keys, the certificate and the cluster keys again.
 * First everything is read and checked, then everything is changed, so an error changes nothing.
 * Values that cannot change while serving stay, and the answer names them. */
#include "server/serve_internal.h"

#include "common/secret.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct reload {
    struct serve *s;
    bool is_dry_run; /* Only say what would change. */
    const struct audit_actor *actor;
    struct config *next;
    struct api_key_set *keys;
    struct http_certificate *certificate;
    struct event_log *events;
    struct event_log *access;
    int ledger_fd;                   /* The ledger's file, opened again; -1 = no ledger. */
    struct secret_keys cluster_keys; /* count 0 = as before. */
    enum serve_update_plan plan;
    struct serve_version version; /* Version to begin (SERVE_PLAN_BEGIN). */
    struct config *read;          /* `next` as it was read. */
    struct text changed;          /* JSON strings, separated by commas. */
    struct text later;
    struct text restart;
};

static void line_add(const struct reload *r, struct text *list, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a line to the answer and, unless the reload is dry, to the log. */
static void line_add(const struct reload *r, struct text *list, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    text_string_add(list, list->bytes > 0 ? "," : "");
    text_add_json_string(list, line, strlen(line));
    if (!r->is_dry_run)
        log_info("reload: %s", line);
}

static void audit(const struct reload *r, const char *act, const char *target, unsigned status)
{
    if (!r->is_dry_run)
        audit_write(r->actor, act, target, status);
}

/* ---- reading ---- */

/* Checks the machines of the new config. If all were local at the start, UCX uses loopback only and
 * the cluster key is random, so remote machines need a restart. */
static enum status machines_check(const struct reload *r, struct error *error)
{
    const struct serve *s = r->s;
    const struct config *next = r->next;
    uint32_t count = fleet_present_count(s->fleet);
    if (s->is_loopback && !config_is_loopback(next))
        return error_set(error, ST_INVALID,
                         "%s: machines: the gateway started with local machines only, which other "
                         "computers cannot reach: restart it",
                         next->source);
    for (uint32_t i = 0; i < next->machine_count; i++) {
        const struct fleet_machine *known = fleet_find(s->fleet, next->machines[i].name);
        count += known == NULL;
        if (known != NULL && known->phase == FLEET_ENDING)
            return error_set(error, ST_NO_RESOURCE,
                             "machines/%s is still ending: try again in a moment",
                             next->machines[i].name);
    }
    if (count > LIMIT_MACHINES)
        return error_set(error, ST_NO_RESOURCE,
                         "%u machines, including those that are leaving: want at most %d", count,
                         LIMIT_MACHINES);
    return ST_OK;
}

static enum status reload_read(struct reload *r, struct error *error)
{
    struct serve *s = r->s;
    struct serve_options options = {.config = r->next};
    enum status status = serve_options_reparse(s->argc, s->argv, &options, error);
    if (status == ST_OK)
        *r->read = *r->next;
    if (status == ST_OK)
        status = serve_update_plan(s, r->next, &r->plan, &r->version, error);
    if (status == ST_OK)
        status = machines_check(r, error);
    if (status == ST_OK)
        status = serve_keys_read(r->next, &r->keys, error);
    if (status == ST_OK)
        status = serve_certificate_read(r->next, &r->certificate, error);
    if (status == ST_OK)
        status = serve_cluster_keys_read(s, &r->cluster_keys, error);
    if (status == ST_OK)
        status = serve_events_open(r->next, &r->events, error);
    if (status == ST_OK)
        status = serve_access_open(r->next, &r->access, error);
    if (status == ST_OK && s->ledger != NULL)
        status = ledger_file_open(s->ledger, &r->ledger_fd, error);
    return status;
}

/* ---- changing ---- */

static void on_change(void *self, const struct config_change *change)
{
    struct reload *r = self;
    if (change->reload == CONFIG_RELOAD_YES)
        line_add(r, &r->changed, "%s: %s, was %s", change->path, change->new_value,
                 change->old_value);
    else if (change->reload == CONFIG_RELOAD_MACHINES)
        line_add(r, &r->later, "%s: %s, was %s", change->path, change->new_value,
                 change->old_value);
    else
        line_add(r, &r->restart, "%s: stays %s, not %s", change->path, change->old_value,
                 change->new_value);
    if (change->reload == CONFIG_RELOAD_YES || change->reload == CONFIG_RELOAD_MACHINES)
        audit(r, "config changed", change->path, 200);
}

/* Changes the certificate. Whether the daemon serves with TLS cannot change. */
static void certificate_change(struct reload *r)
{
    struct serve *s = r->s;
    if (s->tls == (r->certificate != NULL)) {
        if (!s->tls)
            return;
        line_add(r, &r->changed, "server/tls_certificate_file: read again");
        if (r->is_dry_run)
            return;
        s->certificate_expires = http_certificate_expires(r->certificate);
        metrics_value_set(s->metrics, METRICS_CERTIFICATE_EXPIRES,
                          (uint64_t)s->certificate_expires);
        http_tls_use(r->certificate, serve_now_us());
        r->certificate = NULL;
        audit(r, "TLS certificate read again", "", 200);
        return;
    }
    line_add(r, &r->restart, "server/tls_certificate_file: stays %s TLS",
             s->tls ? "with" : "without");
    memcpy(r->next->server.tls_certificate_file, s->file_config->server.tls_certificate_file,
           sizeof(r->next->server.tls_certificate_file));
    memcpy(r->next->server.tls_key_file, s->file_config->server.tls_key_file,
           sizeof(r->next->server.tls_key_file));
}

static void on_key_change(void *self, const char *name, const char *how)
{
    const struct reload *r = self;
    char act[AUDIT_ACT_BYTES];
    if (r->is_dry_run)
        return;
    snprintf(act, sizeof(act), "API key %s", how);
    audit(r, act, name, 200);
}

static void keys_change(struct reload *r)
{
    if (r->keys != NULL)
        line_add(r, &r->changed, "server/api_keys_file: read again");
    if (api_key_set_diff(r->s->keys, r->keys, on_key_change, r) != ST_OK)
        log_warn("reload: out of memory for the list of changed API keys");
    if (r->is_dry_run)
        return;
    api_keys_apply(r->s->keys, r->keys);
    r->keys = NULL;
    http_keys_changed(r->s->http);
    serve_keys_expiry_log(r->s);
}

/* The machines that this process has started get the keys from it. */
static void cluster_keys_change(struct reload *r)
{
    char ids[SECRET_KEYS_TEXT_BYTES];
    struct serve *s = r->s;
    struct error error;
    if (r->cluster_keys.count == 0)
        return;
    if (r->is_dry_run) {
        secret_keys_text(&r->cluster_keys, ids);
        line_add(r, &r->changed, "cluster/key_file: keys %s", ids);
        return;
    }
    if (gateway_cluster_keys_set(s->gateway, &r->cluster_keys, &error) != ST_OK) {
        log_error("cluster/key_file: not read again: %s", error.text);
        audit(r, "cluster keys changed", "", 500);
        return;
    }
    s->cluster_keys = r->cluster_keys;
    launcher_keys_send(s->launcher);
    secret_keys_text(&s->cluster_keys, ids);
    line_add(r, &r->changed, "cluster/key_file: keys %s", ids);
    audit(r, "cluster keys changed", ids, 200);
}

/* Uses the event log, the access log and the ledger that were opened again, even if their names are
 * the same, because the files may have been moved (logrotate). The old logs first write what they
 * still hold. An event log whose file was not moved goes on, so that it can still be replayed from
 * the gateway's start. */
static void logs_change(struct reload *r)
{
    struct serve *s = r->s;
    if (s->events == NULL || r->events == NULL || !event_log_same_file(s->events, r->events)) {
        event_log_close(s->events);
        gateway_events_set(s->gateway, r->events, false);
        s->events = r->events;
        r->events = NULL;
    }
    serve_access_use(s, r->access);
    r->access = NULL;
    if (r->ledger_fd >= 0)
        ledger_file_use(s->ledger, r->ledger_fd);
    r->ledger_fd = -1;
}

/* `local` cannot change: it decides which process starts the machine. */
static void machine_change(struct reload *r, struct fleet_machine *m,
                           const struct config_machine *next)
{
    struct serve *s = r->s;
    struct config_machine *now = &m->config;
    if (fleet_machine_leaving(m)) {
        if (!r->is_dry_run)
            serve_machine_keep(s, m);
        line_add(r, &r->changed, "machines/%s: stays", now->name);
        audit(r, "machine kept", now->name, 200);
    }
    if (now->pool != next->pool) {
        line_add(r, &r->changed, "machines/%s: pool %s, was %s", now->name, pool_name(next->pool),
                 pool_name(now->pool));
        audit(r, "machine moved to another pool", now->name, 200);
        if (!r->is_dry_run)
            gateway_machine_home_set(s->gateway, m, next->pool);
    }
    if (now->local != next->local) {
        line_add(r, &r->restart, "machines/%s/local: stays %s", now->name,
                 now->local ? "true" : "false");
        return;
    }
    config_machine_diff(now, next, on_change, r);
    if (r->is_dry_run)
        return;
    bool moved = !now->local && strcmp(now->address, next->address) != 0;
    *now = *next;
    if (moved)
        gateway_machine_address_set(s->gateway, m, now->address);
}

/* Whether another version starts, or would start after a dry reload. */
static bool version_starts(const struct reload *r)
{
    if (r->is_dry_run && r->plan == SERVE_PLAN_BEGIN)
        return true;
    return r->s->update == SERVE_UPDATE_STARTING && !(r->is_dry_run && r->plan == SERVE_PLAN_BACK);
}

/* New machines are added before others are removed, so that there is no gap. serve_update.c handles
 * local machines of a version other than the current one. While a new version starts, machines that
 * the file no longer names continue to serve. */
static void machines_change(struct reload *r)
{
    struct serve *s = r->s;
    struct error error;
    bool starting = version_starts(r);
    uint32_t version = starting ? s->other_version.number : s->current.number;
    for (uint32_t i = 0; i < r->next->machine_count; i++) {
        const struct config_machine *next = &r->next->machines[i];
        struct fleet_machine *known = fleet_find(s->fleet, next->name);
        if (known != NULL)
            machine_change(r, known, next);
        if (known != NULL ||
            (!r->is_dry_run && serve_machine_add(s, next, version, &error) == NULL))
            continue;
        line_add(r, &r->changed, "machines/%s: added to pool %s", next->name,
                 pool_name(next->pool));
        audit(r, "machine added", next->name, 200);
    }
    for (struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL && !starting;
         m = fleet_next(s->fleet, m)) {
        if (fleet_machine_leaving(m) || (m->config.local && m->fixed_version != version) ||
            m->member != FLEET_MEMBER_NONE || config_machine_find(r->next, m->config.name) >= 0)
            continue;
        line_add(r, &r->changed, "machines/%s: drains, then leaves", m->config.name);
        audit(r, "machine removed", m->config.name, 200);
        if (!r->is_dry_run)
            serve_machine_remove(s, m);
    }
}

/* Keeps the parts of the config that belong to a model until the new one serves. */
static void model_keep(struct reload *r)
{
    struct serve_model_config from_file;
    serve_model_config_get(r->s->file_config, &from_file);
    serve_model_config_put(&from_file, r->next);
}

static void model_change(struct reload *r)
{
    struct serve *s = r->s;
    if (r->is_dry_run) {
        if (r->plan == SERVE_PLAN_BACK)
            line_add(r, &r->changed, "model: back to %s", r->next->model);
        else if (r->plan == SERVE_PLAN_BEGIN)
            line_add(r, &r->changed, "model: %s starts beside %s", r->next->model,
                     s->current.config.model);
    } else if (r->plan == SERVE_PLAN_BACK) {
        serve_update_back(s);
        line_add(r, &r->changed, "model: back to %s, version %u", s->current.name,
                 s->current.number);
        audit(r, "model update taken back", s->current.name, 200);
    } else if (r->plan == SERVE_PLAN_BEGIN) {
        line_add(r, &r->changed, "model: %s starts as version %u beside %s",
                 s->other_version.config.model, s->other_version.number, s->current.config.model);
        audit(r, "model update begun", s->other_version.name, 200);
    }
    if (version_starts(r))
        model_keep(r);
}

static void reload_apply(struct reload *r)
{
    struct serve *s = r->s;
    bool opened = r->next->cluster.allow_insecure && !s->config->cluster.allow_insecure;
    model_change(r);
    certificate_change(r);
    keys_change(r);
    cluster_keys_change(r);
    config_diff(s->file_config, r->next, on_change, r);
    if (r->is_dry_run) {
        if (r->plan != SERVE_PLAN_KEEP)
            machines_change(r);
        return;
    }
    config_reload_copy(s->file_config, r->next);
    config_reload_copy(s->config, r->next);
    serve_model_config_get(s->config, &s->current.config);
    serve_model_config_get(s->file_config, &s->current.from_file);
    if (r->plan != SERVE_PLAN_KEEP)
        machines_change(r);
    memcpy(s->file_config->machines, r->read->machines, sizeof(s->file_config->machines));
    s->file_config->machine_count = r->read->machine_count;
    gateway_configure(s->gateway);
    serve_log_configure(s);
    if (opened && s->watch != NULL)
        watch_report_again(s->watch); /* machines of etcd that were refused may be usable now */
    logs_change(r);
}

static void list_add(struct text *answer, const char *before, const char *name,
                     const struct text *list)
{
    text_format_add(answer, "%s\"%s\":[", before, name);
    text_add(answer, list->bytes > 0 ? list->data : "", list->bytes);
    text_string_add(answer, "]");
}

enum status serve_reload(struct serve *s, bool is_dry_run, const struct audit_actor *actor,
                         struct text *answer, struct error *error)
{
    struct reload r = {.s = s,
                       .is_dry_run = is_dry_run,
                       .actor = actor,
                       .ledger_fd = -1,
                       .next = calloc(1, sizeof(*r.next)),
                       .read = calloc(1, sizeof(*r.read))};
    enum status status = ST_NO_MEMORY;
    if (r.next == NULL || r.read == NULL)
        error_set(error, status, "out of memory");
    else
        status = reload_read(&r, error);
    if (status == ST_OK && !is_dry_run &&
        r.plan == SERVE_PLAN_BEGIN) /* the last step that can fail */
        status = serve_update_begin(s, &r.version, r.next->server.update_ms, error);
    if (status == ST_OK) {
        reload_apply(&r);
        list_add(answer, "{", "changed", &r.changed);
        list_add(answer, ",", "for_machines_that_start", &r.later);
        list_add(answer, ",", "needs_restart", &r.restart);
        text_string_add(answer, is_dry_run ? ",\"dry_run\":true}" : "}");
    }
    if (!is_dry_run && status == ST_OK)
        log_info("reload: done");
    else if (!is_dry_run)
        log_warn("reload: nothing is changed: %s", error->text);
    if (!is_dry_run)
        metrics_reload_set(s->metrics, status == ST_OK, time(NULL));
    text_done(&r.changed);
    text_done(&r.later);
    text_done(&r.restart);
    api_key_set_free(r.keys);
    http_certificate_free(r.certificate);
    event_log_close(r.events);
    event_log_close(r.access);
    if (r.ledger_fd >= 0)
        close(r.ledger_fd);
    secret_wipe(&r.cluster_keys, sizeof(r.cluster_keys));
    serve_version_done(&r.version);
    free(r.read);
    free(r.next);
    return status;
}
