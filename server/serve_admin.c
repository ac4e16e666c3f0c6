/* serve_admin_actions: the actions of the endpoints under /admin. */
#include "server/serve_internal.h"

#include "common/build_info.h"
#include "common/log.h"
#include "server/gateway/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned serve_admin_status(enum status status)
{
    switch (status) {
    case ST_OK:
        return 200;
    case ST_NO_RESOURCE:
        return 409;
    case ST_NO_MEMORY:
    case ST_IO:
        return 500;
    default:
        return 400;
    }
}

static bool fail(struct api_error *error, enum status status, const struct error *why)
{
    return api_error_set(error, serve_admin_status(status), NULL, "%s", why->text);
}

static bool stopping(const struct serve *s, struct api_error *error)
{
    if (s->drain_deadline_us < 0 && s->stop_deadline_us < 0)
        return false;
    api_error_set(error, 409, NULL, "the server is stopping");
    return true;
}

static bool reload(void *self, bool is_dry_run, const struct audit_actor *actor,
                   struct text *answer, struct api_error *error)
{
    struct serve *s = self;
    struct error why;
    if (stopping(s, error))
        return false;
    enum status status = serve_reload(s, is_dry_run, actor, answer, &why);
    return status == ST_OK || fail(error, status, &why);
}

/* Checks that the cluster would still be valid with `added` and without `removed`; NULL = none. */
static bool cluster_check(const struct serve *s, const struct config_machine *added,
                          const struct fleet_machine *removed, struct api_error *error)
{
    struct config *next = malloc(sizeof(*next));
    struct error why;
    if (next == NULL)
        return api_error_set(error, 503, NULL, "out of memory");
    *next = *s->config;
    fleet_config_write(s->fleet, next);
    for (const struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m))
        if (m == removed || fleet_machine_leaving(m))
            next->machines[m->index].name[0] = 0;
    if (added != NULL && next->machine_count < LIMIT_MACHINES)
        next->machines[next->machine_count++] = *added;
    enum status status = config_check(next, "the cluster", &why);
    bool loopback = status == ST_OK && config_is_loopback(next);
    free(next);
    if (status != ST_OK)
        return api_error_set(error, 409, NULL, "%s", why.text);
    if (s->is_loopback && !loopback)
        return api_error_set(error, 409, NULL,
                             "the gateway started with local machines only, which other computers "
                             "cannot reach: add the machine to the config file and restart");
    return true;
}

static bool machine_add(struct serve *s, const char *body, size_t bytes, struct text *answer,
                        struct api_error *error)
{
    struct config_machine machine;
    struct error why;
    enum status status = config_machine_parse(body, bytes, "machine", s->config, &machine, &why);
    if (status != ST_OK)
        return fail(error, status, &why);
    if (machine.local && serve_update_machine_name(s->current.number, machine.name, &why) != ST_OK)
        return fail(error, ST_INVALID, &why);
    if (fleet_find(s->fleet, machine.name) != NULL)
        return api_error_set(error, 409, NULL, "there is a machine %s already", machine.name);
    if (!cluster_check(s, &machine, NULL, error))
        return false;
    if (serve_machine_add(s, &machine, s->current.number, &why) == NULL)
        return fail(error, ST_NO_RESOURCE, &why);
    text_format_add(answer, "{\"machine\":\"%s\",\"state\":\"starting\"}", machine.name);
    return true;
}

/* Drains a machine, ends its drain, or removes it. */
static bool machine_change(struct serve *s, enum http_admin_verb verb, struct fleet_machine *m,
                           struct api_error *error)
{
    bool leaving = fleet_machine_leaving(m);
    if (verb == HTTP_ADMIN_REMOVE) {
        if (!leaving && !cluster_check(s, NULL, m, error))
            return false;
        if (!leaving)
            serve_machine_remove(s, m);
        return true;
    }
    if (!leaving) {
        gateway_machine_phase_set(s->gateway, m,
                                  verb == HTTP_ADMIN_DRAIN ? FLEET_DRAINING : FLEET_SERVING);
        return true;
    }
    if (verb == HTTP_ADMIN_DRAIN || serve_machine_keep(s, m))
        return true;
    return api_error_set(error, 409, NULL, "machine %s is ending already", m->config.name);
}

static bool on_machine(void *self, enum http_admin_verb verb, const char *name, const char *body,
                       size_t bytes, struct text *answer, struct api_error *error)
{
    struct serve *s = self;
    if (stopping(s, error))
        return false;
    if ((verb == HTTP_ADMIN_ADD || verb == HTTP_ADMIN_REMOVE) && s->update != SERVE_UPDATE_NONE)
        return api_error_set(error, 409, NULL,
                             "machines do not come or go while a model update is under way");
    if (verb == HTTP_ADMIN_ADD)
        return machine_add(s, body, bytes, answer, error);
    struct fleet_machine *m = fleet_find(s->fleet, name);
    if (m == NULL)
        return api_error_set(error, 404, NULL, "there is no machine \"%s\" here", name);
    if (!machine_change(s, verb, m, error))
        return false;
    const char *state = fleet_machine_leaving(m)    ? "leaving"
                        : fleet_machine_draining(m) ? "draining"
                                                    : "serving";
    log_info("machine %s is %s", name, state);
    text_format_add(answer, "{\"machine\":\"%s\",\"state\":\"%s\",\"idle\":%s}", name, state,
                    gateway_machine_idle(s->gateway, m) ? "true" : "false");
    return true;
}

#define KEY_ADD(name) text_format_add(out, ",\"" #name "\":%llu", (unsigned long long)counts->name);

#define KEY_GAUGE(name, kind, ...) KEY_GAUGE_##kind(name)
#define KEY_GAUGE_GAUGE(name)      KEY_ADD(name)
#define KEY_GAUGE_COUNTER(name)
#define KEY_COUNTER(name, kind, ...) KEY_COUNTER_##kind(name)
#define KEY_COUNTER_COUNTER(name)    KEY_ADD(name)
#define KEY_COUNTER_GAUGE(name)

static void keys_add(const struct serve *s, struct text *out)
{
    const char *before = "";
    text_string_add(out, ",\"keys\":[");
    for (uint32_t key = 0; key < api_keys_index_count(s->keys); key++) {
        const struct api_key_settings *settings = api_keys_settings(s->keys, key);
        if (settings == NULL)
            continue;
        const struct api_key_counts *counts = api_keys_counts(s->keys, key);
        text_format_add(out, "%s{\"name\":\"%s\",\"weight\":%u", before, settings->name,
                        settings->weight);
        KEY_COUNTERS(KEY_GAUGE)
        KEY_COUNTERS(KEY_COUNTER)
        text_string_add(out, "}");
        before = ",";
    }
    text_string_add(out, "]");
}

/* "0.1.0 (e2d051645f2a)" */
static void build_text(struct text *out)
{
    char text[128];
    const char *commit = build_info_commit();
    snprintf(text, sizeof(text), "%s%s%s%s", build_info_release(), commit[0] != 0 ? " (" : "",
             commit, commit[0] != 0 ? ")" : "");
    text_add_json_string(out, text, strlen(text));
}

static void state(void *self, struct text *answer)
{
    const struct serve *s = self;
    text_string_add(answer, "{\"version\":");
    build_text(answer);
    text_string_add(answer, ",\"config\":");
    text_add_json_string(answer, s->file_config->source, strlen(s->file_config->source));
    text_format_add(answer, ",\"slo\":{\"ttft_ms\":%u,\"tbt_ms\":%u}", s->config->slo.ttft_ms,
                    s->config->slo.tbt_ms);
    text_string_add(answer, ",\"model\":");
    text_add_json_string(answer, s->current.name, strlen(s->current.name));
    serve_update_state_write(s, answer);
    text_format_add(answer, ",\"uptime_s\":%.1f,\"stopping\":%s,\"tls\":%s,",
                    (double)(serve_now_us() - s->started_us) * 1e-6,
                    s->drain_deadline_us >= 0 || s->stop_deadline_us >= 0 ? "true" : "false",
                    s->tls ? "true" : "false");
    gateway_state_write(s->gateway, answer);
    keys_add(s, answer);
    text_string_add(answer, ",\"problems\":[");
    metrics_problems_write(s->metrics, serve_now_us(), answer);
    text_string_add(answer, "]}");
}

/* The config has paths of files with secrets, but no secrets. */
static void config_view(const struct serve *s, struct text *answer)
{
    char *text = NULL;
    size_t bytes = 0;
    struct config *config = malloc(sizeof(*config));
    FILE *file = open_memstream(&text, &bytes);
    if (config != NULL && file != NULL) {
        *config = *s->config;
        fleet_config_write(s->fleet, config);
        if (strchr(config->cluster.etcd_endpoints, '@') != NULL) /* http://USER:PASSWORD@… */
            snprintf(config->cluster.etcd_endpoints, sizeof(config->cluster.etcd_endpoints),
                     "(hidden)");
        if (strchr(config->log.otlp_endpoint, '@') != NULL)
            snprintf(config->log.otlp_endpoint, sizeof(config->log.otlp_endpoint), "(hidden)");
        answer->broken |= config_write(config, file) != ST_OK;
    }
    answer->broken |= config == NULL || file == NULL || fclose(file) != 0;
    if (!answer->broken)
        text_add(answer, text, bytes);
    free(text);
    free(config);
}

static void view(void *self, const struct http_admin_view *view, struct text *answer)
{
    const struct serve *s = self;
    if (view->kind == HTTP_ADMIN_CONFIG) {
        config_view(s, answer);
    } else if (view->kind == HTTP_ADMIN_LOG) {
        log_kept_write(answer);
    } else if (view->kind == HTTP_ADMIN_DECISIONS) {
        text_string_add(answer, "{");
        gateway_decisions_write(s->gateway, answer);
        text_string_add(answer, "}");
    } else {
        const struct history_query query = {.id = view->id,
                                            .requests_max = view->requests_max,
                                            .with_events = view->with_events,
                                            .separator = ",\n"};
        text_string_add(answer, "{");
        gateway_requests_write(s->gateway, &query, answer);
        text_string_add(answer, "}");
    }
}

struct http_admin serve_admin_actions(struct serve *s)
{
    return (struct http_admin){
        .state = state, .view = view, .reload = reload, .machine = on_machine, .self = s};
}
