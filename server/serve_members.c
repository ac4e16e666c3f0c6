/* serve_members: adds machines that register themselves in etcd, as POST /admin/machines does. A
 * machine whose etcd entry is gone is removed only when its connection is gone too, because a
 * machine that answers is there even if etcd has lost its lease or all its data. For machines that
 * the config file names, the file decides, not etcd. */
#include "server/serve_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Returns why the member cannot be used; NULL = it can. */
static const char *member_refusal(const struct serve *s, const struct member *member)
{
    bool loopback = config_address_is_loopback(member->address);
    bool locals = false;
    for (const struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m))
        locals |= m->config.local;
    if (!loopback && s->cluster_keys.count == 0 && !s->config->cluster.allow_insecure)
        return "other computers reach it: want cluster/key_file, or cluster/allow_insecure: true";
    if (!loopback && s->is_loopback && locals)
        return "the local machines listen on loopback: it cannot reach them";
    return NULL;
}

static bool model_fits(const struct serve *s, const struct member *member)
{
    if (member->metadata_hash == s->current.metadata_hash ||
        (s->update != SERVE_UPDATE_NONE && member->metadata_hash == s->other_version.metadata_hash))
        return true;
    log_error("machine %s at %s, from etcd, has another model: its metadata_hash is %016" PRIx64
              ", ours %016" PRIx64 "; it is not used",
              member->name, member->address, member->metadata_hash, s->current.metadata_hash);
    metrics_counter_add(s->metrics, METRICS_ETCD_REFUSED, 1);
    return false;
}

static void member_add(struct serve *s, const struct member *member)
{
    struct config_machine machine = {.pool = member->pool, .device = "cpu"};
    struct error error;
    snprintf(machine.name, sizeof(machine.name), "%s", member->name);
    snprintf(machine.address, sizeof(machine.address), "%s", member->address);
    struct fleet_machine *added = serve_machine_add(s, &machine, s->current.number, &error);
    if (added == NULL)
        log_error("machine %s at %s, from etcd, is not used: %s", member->name, member->address,
                  error.text);
    else
        fleet_member_set(s->fleet, added, FLEET_MEMBER_REGISTERED);
}

/* A known machine has registered again. */
static void member_change(struct serve *s, struct fleet_machine *m, const struct member *member)
{
    fleet_member_set(s->fleet, m, FLEET_MEMBER_REGISTERED);
    if (fleet_machine_leaving(m))
        serve_machine_keep(s, m);
    if (m->config.pool != member->pool)
        gateway_machine_home_set(s->gateway, m, member->pool);
    if (strcmp(m->config.address, member->address) == 0)
        return;
    log_info("machine %s is at %s now, was at %s", member->name, member->address,
             m->config.address);
    snprintf(m->config.address, sizeof(m->config.address), "%s", member->address);
    gateway_machine_address_set(s->gateway, m, m->config.address);
}

static void on_joined(void *self, const struct member *member)
{
    struct serve *s = self;
    struct fleet_machine *known = fleet_find(s->fleet, member->name);
    if (known != NULL && known->member == FLEET_MEMBER_NONE) {
        log_debug("machine %s is in etcd and in the config file: the file counts", member->name);
        return;
    }
    const char *why = member_refusal(s, member);
    if (why != NULL) {
        log_error("machine %s at %s, from etcd, is not used: %s", member->name, member->address,
                  why);
        metrics_counter_add(s->metrics, METRICS_ETCD_REFUSED, 1);
    }
    if (why != NULL || !model_fits(s, member))
        return;
    s->work_pending = true;
    if (known == NULL)
        member_add(s, member);
    else
        member_change(s, known, member);
}

static void on_left(void *self, const char *name)
{
    struct serve *s = self;
    struct fleet_machine *known = fleet_find(s->fleet, name);
    if (known == NULL || known->member != FLEET_MEMBER_REGISTERED)
        return;
    log_info("machine %s is not in etcd any more", name);
    fleet_member_set(s->fleet, known, FLEET_MEMBER_EXPIRED);
    s->work_pending = true;
}

static void on_bad(void *self, const char *text)
{
    const struct serve *s = self;
    metrics_counter_add(s->metrics, METRICS_ETCD_REFUSED, 1);
    log_error("%s; it is not used", text);
}

static void on_state(void *self, bool connected, const char *text)
{
    struct serve *s = self;
    char note[300];
    if (connected)
        log_info("machines are found in %s", text);
    else
        log_warn("%s; the machines that are known stay", text);
    metrics_etcd_set(s->metrics, connected);
    snprintf(note, sizeof(note), "machines cannot be found: %s", text);
    gateway_note_set(s->gateway, connected ? "" : note);
}

enum status serve_members_open(struct serve *s, struct error *error)
{
    if (!config_has_etcd(s->config))
        return ST_OK;
    const struct watch_options options = {
        .config = s->config,
        .prefix = s->config->cluster.etcd_prefix,
        .clock = &clock_system,
        .events = {.joined = on_joined,
                   .left = on_left,
                   .unusable = on_bad,
                   .connection_changed = on_state},
        .self = s,
    };
    metrics_etcd_set(s->metrics, false);
    return watch_open(&options, &s->watch, error);
}

/* Relative paths begin at the folder of our config file, but the machine's config is not a file. */
void serve_members_prepare(const struct serve *s, struct config *config)
{
    char *const files[] = {config->cluster.etcd_password_file, config->cluster.etcd_ca_file,
                           config->cluster.etcd_certificate_file, config->cluster.etcd_key_file};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[LIMIT_PATH_BYTES];
        struct error error;
        if (files[i][0] != 0 && config_file_path(s->config, files[i], path, &error) == ST_OK)
            memcpy(files[i], path, sizeof(path));
    }
}

void serve_members_close(struct serve *s)
{
    watch_close(s->watch);
}

int serve_members_turn(struct serve *s)
{
    if (s->watch == NULL || s->stop_deadline_us >= 0)
        return -1;
    bool updating = s->update != SERVE_UPDATE_NONE;
    if (updating && !s->members_checked_again)
        watch_report_again(s->watch);
    s->members_checked_again = updating;
    int timeout_ms = watch_turn(s->watch);
    for (struct fleet_machine *m = fleet_next(s->fleet, NULL);
         m != NULL && s->fleet->expired_count > 0; m = fleet_next(s->fleet, m)) {
        if (m->member != FLEET_MEMBER_EXPIRED || fleet_machine_up(m))
            continue;
        fleet_member_set(s->fleet, m, FLEET_MEMBER_REGISTERED);
        serve_machine_remove(s, m);
    }
    return timeout_ms;
}
