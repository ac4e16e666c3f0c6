/* machine_tiers: KV that leaves the machine's memory, or would be lost at its end, goes to tiers
 * (kvcache/tiers/), and comes back when a prompt begins with the same tokens.
 *
 * Storing: when a chain enters the prefix cache, this part begins to read it, so that it is not
 * evicted, and each tier's thread stores those of its spans that the tier does not have. When memory
 * is short, storing ends early.
 *
 * Loading (struct machine_load): before a prompt is queued (held.c), each tier in turn is asked which
 * spans it has after those in the prefix cache. If loading is faster than computing
 * (scheduler/tier_loads.h), the spans are loaded into blocks, which then enter the prefix cache. There
 * the prompt finds them. A prompt waits at most kv/tiers/wait_ms. */
#include "machine/state.h"

#include "common/log.h"
#include "common/secret_keys.h"
#include "compute/kv.h"
#include "kvcache/tiers/tier_file.h"
#include "kvcache/tiers/tier_memory.h"
#include "kvcache/tiers/tier_store.h"
#include "kvcache/tiers/tiers.h"
#include "scheduler/tier_loads.h"
#include "transport/message_tier.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The owners of blocks that are being loaded; no request has such an id. */
#define LOAD_OWNER_FIRST ((kv_owner_id)1 << 63)
/* Several loads together, and several stores together, use at most this part of the blocks. */
#define BLOCKS_PART_MAX 2
/* While requests wait and less than this part of the blocks is available, nothing is stored. */
#define BLOCKS_SHORT_PART 8

/* A chain that is being stored in tiers. */
struct store {
    struct machine_tiers *tiers;
    struct store *next;
    struct tier_job jobs[TIER_KIND_COUNT];
    uint32_t open; /* Jobs that have not ended. */
    struct kv_prefix_reader reader;
    struct kv_tables tables;
    uint32_t blocks; /* KV blocks of the chain. */
    uint32_t ids_and_tokens[];
};

struct machine_tiers {
    struct machine *machine;
    struct tiers *tiers;
    uint32_t count;
    struct message_tier counts[TIER_KIND_COUNT]; /* Only the counters. */
    struct sched_tier_loads loads_measured[TIER_KIND_COUNT];
    uint64_t load_number;       /* Loads so far. */
    uint32_t load_blocks;       /* Blocks that loads have taken. */
    uint32_t store_blocks;      /* Blocks that stores read. */
    struct store *stores;       /* Not ended. */
    struct machine_load *loads; /* Not freed. */
    bool loads_ended;           /* A load has ended since the latest turn. */
    bool adds;                  /* A load adds its spans to the prefix cache. */
    bool closing;
};

/* A prompt's prefix that is being loaded. */
struct machine_load {
    struct machine_tiers *tiers;
    struct machine_load *next;
    struct tier_job job;
    bool ended;
    bool is_wanted;   /* machine_load_leave was not called. */
    bool late;        /* The prompt no longer waits. */
    int64_t begun_us; /* When the tier of `job` was asked. */
    int64_t due_us;   /* The prompt waits until then. */
    uint64_t salt;
    const uint32_t *tokens;
    uint32_t spans_max;
    kv_owner_id owner;
    struct kv_tables tables;
    struct kv_prefix_reader reader;
    uint32_t taken_end; /* The load has blocks of the spans [tables.cached_spans, taken_end). */
    uint32_t ids_and_tokens[];
};

static uint32_t blocks_of(const struct machine *m, uint32_t spans)
{
    return spans * layer_groups_count(&m->arena.groups);
}

static uint64_t span_bytes(const struct machine *m)
{
    return tier_record_bytes(&m->arena);
}

/* ---- storing ---- */

static void store_free(struct store *store)
{
    kv_prefix_read_end(store->tiers->machine->prefix, &store->reader);
    free(store);
}

static void store_ended(void *self, struct tier_job *job)
{
    struct store *store = self, **at = &store->tiers->stores;
    struct machine *m = store->tiers->machine;
    struct message_tier *counts = &store->tiers->counts[job->tier];
    counts->stored_bytes += job->written * span_bytes(m);
    counts->dropped_tokens += (uint64_t)job->dropped * m->arena.block_tokens;
    m->stats_changed = true;
    if (--store->open > 0)
        return;
    store->tiers->store_blocks -= store->blocks;
    while (*at != store)
        at = &(*at)->next;
    *at = store->next;
    store_free(store);
}

/* Returns true if this machine stores KV in the tier. */
static bool tier_stores(const struct machine_tiers *t, uint32_t tier)
{
    return tiers_works(t->tiers, tier) &&
           tier_kind_stores(tiers_ops(t->tiers, tier)->kind, t->machine->home_pool);
}

/* Makes a reader of the chain in the prefix cache. Returns NULL if the chain is not there, or if too
 * many blocks are being stored. */
static struct store *store_make(struct machine_tiers *t, uint64_t salt, const uint32_t *tokens,
                                uint32_t spans)
{
    struct machine *m = t->machine;
    const uint32_t blocks = blocks_of(m, spans);
    const size_t count = (size_t)spans * m->arena.block_tokens;
    if (t->stores != NULL && t->store_blocks + blocks > m->arena.block_count / BLOCKS_PART_MAX)
        return NULL;
    struct store *store = calloc(1, sizeof(*store) + (blocks + count) * sizeof(uint32_t));
    if (store == NULL)
        return NULL;
    memcpy(store->ids_and_tokens + blocks, tokens, count * sizeof(tokens[0]));
    store->tiers = t;
    store->tables = (struct kv_tables){.ids = store->ids_and_tokens, .stride = spans};
    const uint32_t found = kv_prefix_read_begin(
        m->prefix, salt, tokens, spans, KV_PREFIX_WHOLE_WINDOW, &store->tables, &store->reader);
    store->blocks = blocks_of(m, found);
    if (found > 0)
        return store;
    store_free(store);
    return NULL;
}

/* Begins to store the chain in one tier. */
static bool store_submit(struct store *store, uint32_t tier, uint64_t salt)
{
    const struct machine *m = store->tiers->machine;
    struct tier_job *job = &store->jobs[tier];
    const uint32_t spans = store->tables.stride;
    *job = (struct tier_job){.kind = TIER_STORE,
                             .tier = tier,
                             .salt = salt,
                             .tokens = store->ids_and_tokens + blocks_of(m, spans),
                             .blocks = store->ids_and_tokens,
                             .stride = spans,
                             .end = store->blocks / blocks_of(m, 1),
                             .ended = store_ended,
                             .self = store};
    if (!tiers_submit(store->tiers->tiers, job))
        return false;
    store->open++;
    return true;
}

/* A chain has entered the prefix cache. It is offered to every tier, also the spans that a slower tier
 * had: so faster tiers get them, while they are in memory. What a tier has is not written again. */
static void on_added(void *self, uint64_t salt, const uint32_t *tokens, uint32_t spans)
{
    struct machine_tiers *t = self;
    bool wanted = false;
    if (t->adds || spans == 0)
        return;
    for (uint32_t i = 0; i < t->count; i++)
        wanted |= tier_stores(t, i);
    struct store *store = wanted ? store_make(t, salt, tokens, spans) : NULL;
    for (uint32_t i = 0; i < t->count; i++)
        if (tier_stores(t, i) && (store == NULL || !store_submit(store, i, salt)))
            t->counts[i].dropped_tokens += (uint64_t)spans * t->machine->arena.block_tokens;
    if (store != NULL && store->open == 0) {
        store_free(store);
    } else if (store != NULL) {
        t->store_blocks += store->blocks;
        store->next = t->stores;
        t->stores = store;
    }
}

static void store_cancel(struct store *store)
{
    for (uint32_t i = 0; i < store->tiers->count; i++)
        tiers_job_cancel(&store->jobs[i]);
}

/* Ends all storing early if requests wait and memory is short. */
static void stores_yield(const struct machine_tiers *t)
{
    struct sched_machine_load load;
    if (t->stores == NULL ||
        kv_pool_available(t->machine->kv) >= t->machine->arena.block_count / BLOCKS_SHORT_PART)
        return;
    sched_machine_load(t->machine->sched, &load);
    for (struct store *at = t->stores;
         at != NULL && load.reservations_waiting + load.prompts_waiting > 0; at = at->next)
        store_cancel(at);
}

/* ---- loading ---- */

/* Returns from how many tokens on KV is loaded from the tier. */
static uint32_t tier_least_tokens(const struct machine_tiers *t, uint32_t tier)
{
    const struct machine *m = t->machine;
    const double row_us = m->options.config->scheduler.compare_time ? m->pace.prompt_token_us : 0;
    return sched_tier_loads_least(&t->loads_measured[tier], row_us, m->now_us);
}

static bool load_is_worth(const struct machine_load *load, uint32_t tier, uint32_t spans)
{
    const uint32_t tokens = spans * load->tiers->machine->arena.block_tokens;
    return tokens > 0 && tokens >= tier_least_tokens(load->tiers, tier);
}

static void load_free(struct machine_load *load)
{
    struct machine_load **at = &load->tiers->loads;
    while (*at != load)
        at = &(*at)->next;
    *at = load->next;
    free(load);
}

static void load_end(struct machine_load *load)
{
    kv_prefix_read_end(load->tiers->machine->prefix, &load->reader);
    load->ended = true;
    load->tiers->loads_ended = true;
    if (!load->is_wanted)
        load_free(load);
}

static void on_found(void *self, struct tier_job *job);
static void on_loaded(void *self, struct tier_job *job);

static bool job_submit(struct machine_load *load, enum tier_job_kind kind, uint32_t tier,
                       uint32_t end)
{
    load->job = (struct tier_job){.kind = kind,
                                  .tier = tier,
                                  .salt = load->salt,
                                  .tokens = load->tokens,
                                  .blocks = load->tables.ids,
                                  .stride = load->tables.stride,
                                  .first = load->tables.cached_spans,
                                  .end = end,
                                  .deadline_us = load->due_us,
                                  .ended = kind == TIER_FIND ? on_found : on_loaded,
                                  .self = load};
    return tiers_submit(load->tiers->tiers, &load->job);
}

/* Looks up which spans are in memory, and asks the first tier from `tier` on that works, or is being
 * opened, and whose loads can be worth it. Returns false if there is none. */
static bool tier_ask(struct machine_load *load, uint32_t tier)
{
    struct machine_tiers *t = load->tiers;
    kv_prefix_read_end(t->machine->prefix, &load->reader);
    load->begun_us = t->machine->now_us;
    const uint32_t cached =
        kv_prefix_read_begin(t->machine->prefix, load->salt, load->tokens, load->spans_max,
                             KV_PREFIX_WHOLE_WINDOW, &load->tables, &load->reader);
    for (; tier < t->count && load->is_wanted && !t->closing; tier++)
        if (load_is_worth(load, tier, load->spans_max - cached) &&
            job_submit(load, TIER_FIND, tier, load->spans_max))
            return true;
    return false;
}

static void tier_ask_next(struct machine_load *load)
{
    if (!tier_ask(load, load->job.tier + 1))
        load_end(load);
}

/* Returns how many of the spans have room in memory now. */
static uint32_t spans_with_room(const struct machine_tiers *t, uint32_t spans)
{
    const struct machine *m = t->machine;
    const uint32_t groups = layer_groups_count(&m->arena.groups);
    const uint32_t most = m->arena.block_count / BLOCKS_PART_MAX;
    uint32_t room = t->load_blocks == 0     ? m->arena.block_count
                    : most > t->load_blocks ? most - t->load_blocks
                                            : 0;
    if (room > kv_pool_available(m->kv))
        room = kv_pool_available(m->kv);
    return spans < room / groups ? spans : room / groups;
}

static void on_found(void *self, struct tier_job *job)
{
    struct machine_load *load = self;
    struct machine_tiers *t = load->tiers;
    struct machine *m = t->machine;
    const uint32_t first = job->first, absent = job->end - job->first - job->count;
    const uint32_t spans = spans_with_room(t, job->count);
    t->counts[job->tier].miss_tokens += (uint64_t)absent * m->arena.block_tokens;
    if (!load->is_wanted || t->closing || !load_is_worth(load, job->tier, spans)) {
        tier_ask_next(load);
        return;
    }
    load->taken_end = first + spans;
    kv_tables_take(&load->tables, &m->arena.groups, m->kv, load->owner, first, load->taken_end);
    kv_tables_mark(&load->tables, &m->arena.groups, m->kv, load->owner, first, load->taken_end,
                   KV_FILLING);
    t->load_blocks += blocks_of(m, spans);
    if (job_submit(load, TIER_LOAD, job->tier, load->taken_end))
        return;
    job->count = 0;
    on_loaded(load, job);
}

static void on_loaded(void *self, struct tier_job *job)
{
    struct machine_load *load = self;
    struct machine_tiers *t = load->tiers;
    struct machine *m = t->machine;
    const struct layer_groups *groups = &m->arena.groups;
    struct message_tier *counts = &t->counts[job->tier];
    const uint32_t first = load->tables.cached_spans, end = first + job->count;
    const int64_t us = clock_now_us(&clock_system) - load->begun_us;
    kv_tables_free(&load->tables, groups, m->kv, load->owner, end, load->taken_end);
    kv_tables_mark(&load->tables, groups, m->kv, load->owner, first, end, KV_LIVE);
    const struct kv_prefix_blocks blocks = {.owner = load->owner,
                                            .salt = load->salt,
                                            .tokens = load->tokens,
                                            .tables = &load->tables,
                                            .spans = end,
                                            .window_valid_first = end,
                                            .window_read_first = end};
    t->adds = true;
    kv_prefix_add(m->prefix, &blocks, &load->reader);
    t->adds = false;
    kv_prefix_own_blocks_free(m->prefix, load->owner, &load->tables, end);
    t->load_blocks -= blocks_of(m, load->taken_end - first);
    const uint32_t tokens = job->count * m->arena.block_tokens;
    sched_tier_loads_add(&t->loads_measured[job->tier], tokens, us, m->now_us);
    counts->hit_tokens += tokens;
    counts->miss_tokens += (uint64_t)(load->taken_end - end) * m->arena.block_tokens;
    counts->loaded_bytes += job->count * span_bytes(m);
    counts->load_us += (uint64_t)us;
    counts->damaged += job->damaged;
    m->stats_changed = true;
    tier_ask_next(load);
}

struct machine_load *machine_load_begin(struct machine *m, uint64_t salt, const uint32_t *tokens,
                                        uint32_t token_count)
{
    struct machine_tiers *t = m->tiers;
    const uint32_t spans = token_count / m->arena.block_tokens;
    if (t == NULL || spans == 0)
        return NULL;
    const size_t ids = blocks_of(m, spans), count = (size_t)spans * m->arena.block_tokens;
    struct machine_load *load = calloc(1, sizeof(*load) + (ids + count) * sizeof(uint32_t));
    if (load == NULL)
        return NULL;
    memcpy(load->ids_and_tokens + ids, tokens, count * sizeof(tokens[0]));
    load->tiers = t;
    load->is_wanted = true;
    load->due_us = m->now_us + m->options.config->kv.tiers.wait_ms * 1000ll;
    load->salt = salt;
    load->tokens = load->ids_and_tokens + ids;
    load->spans_max = spans;
    load->owner = LOAD_OWNER_FIRST + t->load_number++;
    load->tables = (struct kv_tables){.ids = load->ids_and_tokens, .stride = spans};
    load->next = t->loads;
    t->loads = load;
    if (tier_ask(load, 0))
        return load;
    kv_prefix_read_end(m->prefix, &load->reader);
    load_free(load);
    return NULL;
}

bool machine_load_ended(const struct machine_load *load)
{
    return load == NULL || load->ended || load->late;
}

void machine_load_leave(struct machine_load *load)
{
    if (load == NULL)
        return;
    load->is_wanted = false;
    if (load->ended)
        load_free(load);
    else
        tiers_job_cancel(&load->job);
}

/* ---- the event loop ---- */

bool machine_tiers_turn(struct machine *m)
{
    struct machine_tiers *t = m->tiers;
    if (t == NULL)
        return false;
    if (tiers_progress(t->tiers))
        m->event_count++; /* blocks may be free now */
    bool any = t->loads_ended;
    t->loads_ended = false;
    for (struct machine_load *at = t->loads; at != NULL; at = at->next)
        if (!at->ended && !at->late && m->now_us >= at->due_us)
            any = at->late = true;
    stores_yield(t);
    return any;
}

int64_t machine_tiers_due_us(const struct machine *m)
{
    int64_t due_us = INT64_MAX;
    for (const struct machine_load *at = m->tiers != NULL ? m->tiers->loads : NULL; at != NULL;
         at = at->next)
        if (!at->ended && !at->late && at->due_us < due_us)
            due_us = at->due_us;
    return due_us;
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

static void on_note(void *self, uint32_t tier, enum status status, const char *text)
{
    struct machine_tiers *t = self;
    const char *kind = tier_kind_name(tiers_ops(t->tiers, tier)->kind);
    t->machine->stats_changed = true;
    if (status == ST_OK)
        log_info("KV tier %s works", kind);
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
    if (m->executor->pushes_kv)
        return "its KV is in the processes of its stages";
    if (m->arena.groups.windowed != 0)
        return "its model has layers with an attention window";
    if (machine_copy_counts(m->transport).way != TRANSPORT_WAY_HOST)
        return "its KV is in the memory of a GPU";
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
    struct tiers_options options = {
        .arena = m->arena, .region = transport_region(m->transport), .note = on_note, .self = t};
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
        log_warn("machine %s uses no KV tiers, because %s", m->config_entry->name, why);
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
    kv_prefix_added_set(m->prefix, on_added, t);
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
    for (struct machine_load *at = t->loads; at != NULL; at = at->next)
        tiers_job_cancel(&at->job);
    for (struct store *at = t->stores; at != NULL; at = at->next)
        store_cancel(at);
    tiers_close(t->tiers);
    assert(t->loads == NULL && t->stores == NULL);
    free(t);
    m->tiers = NULL;
}
