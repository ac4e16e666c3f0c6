/* serve_update: replaces the served model by another one without a pause:
 *
 *   reload with another `model` ─► the file is read, memory is counted
 *     ─► STARTING: local machines of the new version start beside the old ones; remote machines
 *        that come back with the new model belong to it
 *     ─► (all its local machines are up, and a pair could serve, for STEADY_US) new requests get
 *        the new version
 *     ─► DRAINING: the old version finishes its requests and gets no new ones
 *     ─► (it has none left, or server/drain_ms is over) ENDING: its machines end ─► NONE
 *
 * A new version that does not come up is given up after server/update_ms, or at once when one of
 * its machines cannot start; the old version serves all the time. A reload with the model before
 * goes back: in STARTING it ends the new version, in DRAINING it exchanges the two. A version keeps
 * its number. Its local machines are called NAME.NUMBER; those of version 1 are called NAME. */
#include "server/serve_internal.h"

#include "common/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time for which a new version must be ready, so that one that dies at once never gets a request.
 */
#define STEADY_US 1000000

enum status serve_update_machine_name(uint32_t version, char name[LIMIT_NAME_BYTES],
                                      struct error *error)
{
    char whole[LIMIT_NAME_BYTES + 16];
    if (version == 1)
        return ST_OK;
    snprintf(whole, sizeof(whole), "%s.%u", name, version);
    if (strlen(whole) >= LIMIT_NAME_BYTES)
        return error_set(error, ST_TOO_LARGE,
                         "machines/%s: version %u of it would be named %s: want at most %d letters",
                         name, version, whole, LIMIT_NAME_BYTES - 1);
    memcpy(name, whole, strlen(whole) + 1);
    return ST_OK;
}

/* ---- planning ---- */

static bool same_file(const struct serve_version *version, const char *path)
{
    return version->number > 0 && strcmp(version->config.model, path) == 0;
}

static void count_change(void *self, const struct config_change *change)
{
    (void)change;
    ++*(uint32_t *)self;
}

/* True if two configs, as they were read, have the same machines. */
static bool same_machines(const struct config *a, const struct config *b)
{
    uint32_t changes = a->machine_count != b->machine_count;
    for (uint32_t i = 0; i < a->machine_count && changes == 0; i++) {
        int other = config_machine_find(b, a->machines[i].name);
        if (other < 0 || b->machines[other].pool != a->machines[i].pool)
            return false;
        config_machine_diff(&a->machines[i], &b->machines[other], count_change, &changes);
    }
    return changes == 0;
}

static enum status machine_count_check(const struct serve *s, const struct config *next,
                                       struct error *error)
{
    uint32_t count = fleet_present_count(s->fleet);
    uint32_t more = 0;
    for (uint32_t i = 0; i < next->machine_count; i++)
        more += fleet_find(s->fleet, next->machines[i].name) == NULL;
    if (count + more <= LIMIT_MACHINES)
        return ST_OK;
    return error_set(
        error, ST_NO_RESOURCE,
        "model: the update needs %u machines beside the %u that are there: want at most %d", more,
        count, LIMIT_MACHINES);
}

/* Checks that the memory for the new version's local machines is available beside the old ones. */
static enum status memory_check(const struct config *next, const struct serve_version *version,
                                struct error *error)
{
    struct config_host_memory memory = {0};
    uint64_t available;
    for (uint32_t i = 0; i < next->machine_count; i++)
        if (next->machines[i].local)
            config_machine_memory_add(next, &next->machines[i], &version->file_bytes, &memory);
    const uint64_t weights = memory.weights_and_process_bytes, kv = memory.kv_bytes;
    if (!next->server.update_memory_check || memory_available("", &available) != ST_OK ||
        weights + kv <= available)
        return ST_OK;
    return error_set(error, ST_NO_RESOURCE,
                     "model: the machines of %s take %" PRIu64 " MiB (weights %" PRIu64
                     ", KV %" PRIu64 ") beside those that serve, and %" PRIu64
                     " MiB are available: smaller pools or kv/memory, or "
                     "server/update_memory_check: false",
                     version->config.model, (weights + kv) >> 20, weights >> 20, kv >> 20,
                     available >> 20);
}

static enum status names_set(struct config *next, uint32_t version, struct error *error)
{
    enum status status = ST_OK;
    for (uint32_t i = 0; i < next->machine_count && status == ST_OK; i++)
        if (next->machines[i].local)
            status = serve_update_machine_name(version, next->machines[i].name, error);
    return status;
}

/* Checks that no new local machine would have the name of an existing machine or of another one in
 * the file, because it would be taken for that machine. */
static enum status names_check(const struct serve *s, const struct config *next, uint32_t version,
                               struct error *error)
{
    for (uint32_t i = 0; i < next->machine_count; i++) {
        const char *name = next->machines[i].name;
        uint32_t count = fleet_find(s->fleet, name) != NULL;
        for (uint32_t k = 0; k < next->machine_count; k++)
            count += strcmp(next->machines[k].name, name) == 0;
        if (next->machines[i].local && count > 1)
            return error_set(
                error, ST_INVALID,
                "machines/%s: a machine of version %u would have the same name: want another name",
                name, version);
    }
    return ST_OK;
}

static enum status plan_new(struct serve *s, struct config *next, struct serve_version *version,
                            struct error *error)
{
    struct model_file *file = NULL;
    enum status status = serve_version_open(next, s->version_last + 1, version, &file, error);
    if (status == ST_OK)
        status = serve_version_text_read(version, file, error);
    if (status == ST_OK)
        status = serve_version_draft_check(next, -1, file, version, error);
    model_file_close(file);
    if (status == ST_OK)
        status = names_set(next, version->number, error);
    if (status == ST_OK)
        status = names_check(s, next, version->number, error);
    if (status == ST_OK)
        status = machine_count_check(s, next, error);
    if (status == ST_OK)
        status = memory_check(next, version, error);
    if (status != ST_OK)
        serve_version_done(version);
    return status;
}

static enum status other_update_refuse(const struct serve *s, const char *path, struct error *error)
{
    if (s->update == SERVE_UPDATE_ENDING)
        return error_set(error, ST_NO_RESOURCE,
                         "model: the machines of %s are still ending: try again in a moment",
                         s->other_version.config.model);
    bool starting = s->update == SERVE_UPDATE_STARTING;
    const struct serve_version *from = starting ? &s->current : &s->other_version;
    const struct serve_version *to = starting ? &s->other_version : &s->current;
    return error_set(
        error, ST_NO_RESOURCE,
        "model = \"%s\": an update from %s to %s is under way: wait for its end, or go "
        "back first",
        path, from->config.model, to->config.model);
}

enum status serve_update_plan(struct serve *s, struct config *next,
                              enum serve_update_plan *plan_out, struct serve_version *version_out,
                              struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    const struct serve_version *target =
        s->update == SERVE_UPDATE_STARTING ? &s->other_version : &s->current;
    bool running = s->update == SERVE_UPDATE_STARTING || s->update == SERVE_UPDATE_DRAINING;
    enum status status = serve_model_path(next, path, error);
    if (status != ST_OK)
        return status;
    if (same_file(target, path)) {
        *plan_out = running ? SERVE_PLAN_KEEP : SERVE_PLAN_NONE;
        if (running && !same_machines(s->file_config, next))
            return error_set(error, ST_NO_RESOURCE,
                             "pools and machines cannot change while a model update is under way");
        return names_set(next, target->number, error);
    }
    if (running && same_file(target == &s->other_version ? &s->current : &s->other_version, path)) {
        const struct serve_version *back =
            target == &s->other_version ? &s->current : &s->other_version;
        *plan_out = SERVE_PLAN_BACK;
        return names_set(next, back->number, error);
    }
    if (s->update != SERVE_UPDATE_NONE)
        return other_update_refuse(s, path, error);
    *plan_out = SERVE_PLAN_BEGIN;
    return plan_new(s, next, version_out, error);
}

/* ---- the course of an update ---- */

static void update_state_set(struct serve *s, enum serve_update update, uint32_t allowed_ms)
{
    s->update = update;
    s->update_begun_us = serve_now_us();
    s->update_deadline_us = s->update_begun_us + (int64_t)allowed_ms * 1000;
    s->work_pending = true;
}

enum status serve_update_begin(struct serve *s, struct serve_version *version, uint32_t update_ms,
                               struct error *error)
{
    struct gateway_model model = {.metadata_hash = version->metadata_hash,
                                  .context_tokens = version->context_tokens,
                                  .groups = version->groups,
                                  .kv = version->config.kv};
    enum status status = gateway_version_open(s->gateway, version->number, &model, error);
    if (status != ST_OK)
        return status;
    s->version_last = version->number;
    s->other_version = *version;
    *version = (struct serve_version){.number = 0};
    s->update_failed = false;
    s->update_text[0] = 0;
    s->update_ready_us = -1;
    update_state_set(s, SERVE_UPDATE_STARTING, update_ms);
    log_info("model update: version %u, %s, starts beside version %u, %s", s->other_version.number,
             s->other_version.config.model, s->current.number, s->current.config.model);
    return ST_OK;
}

/* Ends the machines of the other version, which has no requests. */
static void other_end(struct serve *s)
{
    for (struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m))
        if (m->fixed_version == s->other_version.number && !fleet_machine_leaving(m))
            serve_machine_remove(s, m);
    update_state_set(s, SERVE_UPDATE_ENDING, 0);
}

/* Exchanges the versions: new requests get the other one, and the present one finishes its
 * requests. */
static void versions_exchange(struct serve *s)
{
    struct serve_version old = s->current;
    s->current = s->other_version;
    s->other_version = old;
    gateway_version_use(s->gateway, s->current.number);
    serve_model_config_put(&s->current.config, s->config);
    serve_model_config_put(&s->current.from_file, s->file_config);
    http_model_use(s->http, s->current.served);
    metrics_model_set(s->metrics, s->current.name);
    update_state_set(s, SERVE_UPDATE_DRAINING, s->config->server.drain_ms);
    log_info("model update: new requests get version %u, %s; %u of version %u, %s, go on to their "
             "end",
             s->current.number, s->current.name,
             gateway_version_requests(s->gateway, s->other_version.number), s->other_version.number,
             s->other_version.name);
}

void serve_update_back(struct serve *s)
{
    if (s->update == SERVE_UPDATE_DRAINING) {
        snprintf(s->update_text, sizeof(s->update_text), "went back to version %u",
                 s->other_version.number);
        versions_exchange(s);
        return;
    }
    snprintf(s->update_text, sizeof(s->update_text), "version %u, %s, was cancelled",
             s->other_version.number, s->other_version.name);
    log_info("model update: %s", s->update_text);
    gateway_version_stop(s->gateway, s->other_version.number, "its model is not served any more");
    other_end(s);
}

bool serve_update_machine_failed(struct serve *s, const struct fleet_machine *machine,
                                 const char *why)
{
    if (s->other_version.number == 0 || machine->fixed_version != s->other_version.number)
        return false;
    if (s->update != SERVE_UPDATE_STARTING) {
        log_error("machine %s is given up: %s", machine->config.name, why);
        return true;
    }
    s->update_failed = true;
    s->work_pending = true;
    snprintf(s->update_text, sizeof(s->update_text), "machine %s: %.400s", machine->config.name,
             why);
    return true;
}

static void update_give_up(struct serve *s, const char *why)
{
    char text[sizeof(s->update_text)];
    snprintf(text, sizeof(text), "version %u, %s, is given up: %.480s", s->other_version.number,
             s->other_version.name, why);
    memcpy(s->update_text, text, sizeof(text));
    log_error("model update: %s; version %u, %s, goes on", text, s->current.number,
              s->current.name);
    other_end(s);
}

static void starting_turn(struct serve *s)
{
    char why[480];
    bool ready = gateway_version_paired(s->gateway, s->other_version.number);
    for (const struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m))
        if (m->fixed_version == s->other_version.number)
            ready = ready && fleet_machine_up(m);
    if (!ready)
        s->update_ready_us = -1;
    else if (s->update_ready_us < 0)
        s->update_ready_us = serve_now_us();
    if (s->update_failed) {
        snprintf(why, sizeof(why), "%.479s", s->update_text);
        update_give_up(s, why);
    } else if (ready && serve_now_us() - s->update_ready_us >= STEADY_US) {
        versions_exchange(s);
    } else if (serve_now_us() >= s->update_deadline_us) {
        char missing[240];
        gateway_version_health_text(s->gateway, s->other_version.number, missing, sizeof(missing));
        snprintf(why, sizeof(why), "it does not serve after server/update_ms: %s", missing);
        update_give_up(s, why);
    }
}

/* Removes remote machines that the config file no longer names; they served the old version to its
 * end. */
static void remote_leave(struct serve *s)
{
    for (struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m))
        if (!m->config.local && m->member == FLEET_MEMBER_NONE && !fleet_machine_leaving(m) &&
            config_machine_find(s->file_config, m->config.name) < 0)
            serve_machine_remove(s, m);
}

static void draining_turn(struct serve *s)
{
    uint32_t open = gateway_version_requests(s->gateway, s->other_version.number);
    if (open > 0 && serve_now_us() < s->update_deadline_us)
        return;
    if (open > 0) {
        log_warn("model update: %u requests of version %u did not finish within server/drain_ms",
                 open, s->other_version.number);
        gateway_version_stop(s->gateway, s->other_version.number,
                             "the model was updated, and server/drain_ms is over");
        s->update_deadline_us = INT64_MAX; /* the next iteration finds none */
        s->work_pending = true;
        return;
    }
    log_info("model update: version %u, %s, has no requests any more: its machines end",
             s->other_version.number, s->other_version.name);
    remote_leave(s);
    other_end(s);
}

static void ending_turn(struct serve *s)
{
    if (gateway_version_requests(s->gateway, s->other_version.number) > 0)
        return;
    bool has_machines = false;
    for (struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m)) {
        if (m->fixed_version != s->other_version.number)
            continue;
        has_machines = true;
        if (!fleet_machine_leaving(m)) /* an operator has undrained it since */
            serve_machine_remove(s, m);
    }
    if (has_machines)
        return;
    log_info("model update: version %u, %s, is gone; version %u, %s, serves",
             s->other_version.number, s->other_version.name, s->current.number, s->current.name);
    if (s->update_text[0] == 0)
        snprintf(s->update_text, sizeof(s->update_text),
                 "version %u, %s, has taken the place of "
                 "version %u",
                 s->current.number, s->current.name, s->other_version.number);
    gateway_version_close(s->gateway, s->other_version.number);
    serve_version_done(&s->other_version);
    update_state_set(s, SERVE_UPDATE_NONE, 0);
}

/* ---- reports ---- */

static const char *state_name(const struct serve *s, bool other)
{
    static const char *const names[] = {[SERVE_UPDATE_STARTING] = "starting",
                                        [SERVE_UPDATE_DRAINING] = "draining",
                                        [SERVE_UPDATE_ENDING] = "ending"};
    return other ? names[s->update] : "serving";
}

static void metrics_report(struct serve *s)
{
    struct metrics_version shown[METRICS_VERSIONS] = {{.number = 0}};
    const struct serve_version *versions[METRICS_VERSIONS] = {&s->current, &s->other_version};
    for (int i = 0; i < METRICS_VERSIONS; i++) {
        const struct serve_version *version = versions[i];
        if (version->number == 0)
            continue;
        shown[i] = (struct metrics_version){
            .number = version->number,
            .state = state_name(s, version == &s->other_version),
            .open = gateway_version_requests(s->gateway, version->number),
            .total = gateway_version_requests_total(s->gateway, version->number)};
        memcpy(shown[i].name, version->name, sizeof(shown[i].name));
    }
    metrics_versions_set(s->metrics, shown);
}

static void health_note_set(struct serve *s)
{
    char text[720] = "";
    char missing[240];
    if (s->update == SERVE_UPDATE_STARTING) {
        gateway_version_health_text(s->gateway, s->other_version.number, missing, sizeof(missing));
        snprintf(text, sizeof(text), "model update: version %u, %s, starts: %s",
                 s->other_version.number, s->other_version.name, missing);
    } else if (s->update == SERVE_UPDATE_DRAINING) {
        snprintf(text, sizeof(text), "model update: %u requests of version %u, %s, go on",
                 gateway_version_requests(s->gateway, s->other_version.number),
                 s->other_version.number, s->other_version.name);
    } else if (s->update == SERVE_UPDATE_ENDING) {
        snprintf(text, sizeof(text), "model update: the machines of version %u, %s, end",
                 s->other_version.number, s->other_version.name);
    }
    gateway_update_note_set(s->gateway, text);
}

int serve_update_turn(struct serve *s)
{
    metrics_report(s);
    if (s->stop_deadline_us >= 0 || s->update == SERVE_UPDATE_NONE)
        return -1;
    if (s->update == SERVE_UPDATE_STARTING && s->drain_deadline_us >= 0)
        return -1; /* the server is stopping */
    if (s->update == SERVE_UPDATE_STARTING)
        starting_turn(s);
    else if (s->update == SERVE_UPDATE_DRAINING)
        draining_turn(s);
    else if (s->update == SERVE_UPDATE_ENDING)
        ending_turn(s);
    health_note_set(s);
    if (s->update == SERVE_UPDATE_NONE || s->update == SERVE_UPDATE_ENDING)
        return -1;
    int64_t due_us = s->update_deadline_us;
    if (s->update == SERVE_UPDATE_STARTING && s->update_ready_us >= 0 &&
        s->update_ready_us + STEADY_US < due_us)
        due_us = s->update_ready_us + STEADY_US;
    int64_t left_us = due_us - serve_now_us();
    return left_us > 60000000 ? 60000 : left_us <= 0 ? 0 : (int)(left_us / 1000) + 1;
}

static void version_add(const struct serve *s, const struct serve_version *version,
                        struct text *out)
{
    text_format_add(out, "{\"version\":%u,\"state\":\"%s\",\"model\":", version->number,
                    state_name(s, version == &s->other_version));
    text_add_json_string(out, version->name, strlen(version->name));
    text_string_add(out, ",\"file\":");
    text_add_json_string(out, version->config.model, strlen(version->config.model));
    text_format_add(
        out, ",\"requests_open\":%u,\"requests_total\":%llu}",
        gateway_version_requests(s->gateway, version->number),
        (unsigned long long)gateway_version_requests_total(s->gateway, version->number));
}

void serve_update_state_write(const struct serve *s, struct text *out)
{
    text_string_add(out, ",\"versions\":[");
    version_add(s, &s->current, out);
    if (s->other_version.number > 0) {
        text_string_add(out, ",");
        version_add(s, &s->other_version, out);
    }
    text_format_add(out, "],\"update\":{\"state\":\"%s\"",
                    s->other_version.number > 0 ? state_name(s, true) : "none");
    if (s->version_last > 1)
        text_format_add(out, ",\"since_s\":%.1f",
                        (double)(serve_now_us() - s->update_begun_us) * 1e-6);
    if (s->update_text[0] != 0) {
        text_string_add(out, ",\"text\":");
        text_add_json_string(out, s->update_text, strlen(s->update_text));
    }
    text_string_add(out, "}");
}
