/* machine_tiers: KV that leaves the machine's memory, or would be lost at its end, goes to tiers
 * (kvcache/tiers/), and comes back when a prompt begins with the same tokens. tier_stores.c and
 * tier_loads.c say how. This file opens and closes the tiers, and gives them their turns. */
#include "machine/tiers_state.h"

#include "common/log.h"
#include "common/secret_keys.h"
#include "compute/kv.h"
#include "kvcache/tiers/tier_file.h"
#include "kvcache/tiers/tier_memory.h"
#include "kvcache/tiers/tier_store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the event loop ---- */

bool machine_tiers_turn(struct machine *m)
{
    struct machine_tiers *t = m->tiers;
    if (t == NULL)
        return false;
    if (tiers_progress(t->tiers))
        m->event_count++; /* blocks may be free now */
    tier_loads_turn(t);
    bool any = t->loads_ended;
    t->loads_ended = false;
    any |= tier_loads_late(t);
    tier_stores_turn(t);
    return any;
}

uint32_t machine_tiers_holder_count(const struct machine *m)
{
    return m->tiers != NULL && m->tiers->load_blocks > 0 ? 1 : 0;
}

void machine_tiers_stats_add(const struct machine *m, struct message_stats *stats)
{
    const struct machine_tiers *t = m->tiers;
    for (uint32_t i = 0; t != NULL && i < t->count; i++) {
        struct message_tier tier = t->counts[i];
        double fixed_us, token_us;
        sched_tier_loads_line(&t->loads_measured[i], m->now_us, &fixed_us, &token_us);
        tier.state = tiers_works(t->tiers, i) ? MESSAGE_TIER_WORKS : MESSAGE_TIER_BROKEN;
        tier.load_fixed_us = (uint64_t)fixed_us;
        tier.load_token_ns = (uint64_t)(token_us * 1000);
        tier.least_tokens = tier_least_tokens(t, i);
        message_stats_tier_set(stats, tiers_ops(t->tiers, i)->kind, &tier);
    }
}

/* ---- opening and closing ---- */

static void on_state_changed(void *self, uint32_t tier, enum status status, const char *text)
{
    struct machine_tiers *t = self;
    const char *kind = tier_kind_name(tiers_ops(t->tiers, tier)->kind);
    t->machine->stats_changed = true;
    if (status == ST_OK)
        log_info("KV tier %s works%s%s", kind, text[0] != 0 ? ": " : "", text);
    else if (status == ST_INVALID)
        log_warn("KV tier %s: %s: its tokens are computed instead", kind, text);
    else if (status == ST_NO_RESOURCE)
        log_warn("KV tier %s: %s: until it does, KV is only read there", kind, text);
    else if (status == ST_UNREACHABLE || status == ST_TIMED_OUT)
        log_warn("KV tier %s: %s: prompts are computed until it works again", kind, text);
    else
        log_error("KV tier %s is off until the machine starts again: %s", kind, text);
}

/* Returns why this machine cannot use tiers; NULL = it can. */
static const char *obstacle(struct machine *m)
{
    if (m->prefix == NULL)
        return "it has no prefix cache (kv/prefix_cache, or stages with replicas)";
    return NULL;
}

static enum status backends_make(struct machine *m, struct tiers_options *out, struct error *error)
{
    const struct config *config = m->options.config;
    char folder[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES + LIMIT_NAME_BYTES + 8];
    enum status status = ST_OK;
    if (config->kv.tiers.memory.bytes != 0) {
        status = tier_memory_make(config->kv.tiers.memory.bytes, &out->backends[out->count]);
        if (status != ST_OK)
            return error_set(error, status, "KV tiers: out of memory");
        out->count++;
    }
    if (config->kv.tiers.file.path[0] != 0) {
        status = config_file_path(config, config->kv.tiers.file.path, folder, error);
        if (status != ST_OK)
            return status;
        snprintf(path, sizeof(path), "%s/%s.kv", folder, m->config_entry->name);
        status = tier_file_make(path, config->kv.tiers.file.bytes, &out->backends[out->count]);
        if (status != ST_OK)
            return error_set(error, status, "KV tiers: out of memory");
        out->count++;
    }
    if (config->kv.tiers.store.servers[0] != 0) {
        status = tier_store_make(config, config->kv.tiers.store.servers, &out->backends[out->count],
                                 error);
        out->count += status == ST_OK;
    }
    return status;
}

static enum status key_read(const struct machine *m, struct tiers_options *out, struct error *error)
{
    const struct config *config = m->options.config;
    char path[LIMIT_PATH_BYTES];
    struct secret_keys keys;
    if (config->kv.tiers.key_file[0] == 0)
        return ST_OK;
    enum status status = config_file_path(config, config->kv.tiers.key_file, path, error);
    if (status == ST_OK)
        status = secret_keys_read(path, &keys, error);
    if (status != ST_OK)
        return status;
    out->encrypted = true;
    memcpy(out->key, keys.keys[0].bytes, sizeof(out->key));
    secret_wipe(&keys, sizeof(keys));
    return ST_OK;
}

static enum status tiers_start(struct machine_tiers *t, struct error *error)
{
    struct machine *m = t->machine;
    const bool staged = m->executor->staging.block_count > 0;
    struct tiers_options options = {.arena = staged ? m->executor->staging : m->arena,
                                    .region = staged ? m->executor->staging_memory
                                                     : transport_region(m->transport),
                                    .state_changed = on_state_changed,
                                    .self = t};
    tier_identity_make(&m->shape.model_hash, compute_kv_dtype_name(m->shape.kv_dtype), &m->arena,
                       &options.identity);
    enum status status = key_read(m, &options, error);
    if (status == ST_OK)
        status = backends_make(m, &options, error);
    if (status == ST_OK)
        status = tiers_open(&options, &t->tiers, error);
    else
        for (uint32_t i = 0; i < options.count; i++)
            options.backends[i]->ops->close(options.backends[i]);
    secret_wipe(options.key, sizeof(options.key));
    t->count = options.count;
    return status;
}

enum status machine_tiers_open(struct machine *m, struct error *error)
{
    if (!config_has_tiers(m->options.config))
        return ST_OK;
    const char *why = obstacle(m);
    if (why != NULL) {
        log_warn("machine %s does not use kv/tiers, because %s", m->config_entry->name, why);
        return ST_OK;
    }
    struct machine_tiers *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return error_set(error, ST_NO_MEMORY, "KV tiers: out of memory");
    t->machine = m;
    const enum status status = tiers_start(t, error);
    if (status != ST_OK) {
        free(t);
        return status;
    }
    m->tiers = t;
    tier_staging_open(t);
    kv_prefix_added_set(m->prefix, tier_stores_added, t);
    return ST_OK;
}

int machine_tiers_fd(const struct machine *m)
{
    return m->tiers != NULL ? tiers_fd(m->tiers->tiers) : -1;
}

void machine_tiers_close(struct machine *m)
{
    struct machine_tiers *t = m->tiers;
    if (t == NULL)
        return;
    kv_prefix_added_set(m->prefix, NULL, NULL);
    t->closing = true;
    tier_loads_cancel(t);
    tier_stores_cancel(t);
    tiers_close(t->tiers);
    tier_loads_close(t);
    tier_stores_close(t);
    free(t);
    m->tiers = NULL;
}
