/* tier_stores: KV on its way to tiers. When a chain enters the prefix cache, this part begins to
 * read it, so that it is not evicted, and each tier's thread stores those of its spans that the
 * tier does not have. When memory is short, storing ends early.
 *
 * With staging memory (executor/staging.h), each tier is first asked what it has of the chain
 * (TIER_PROBE). Then the KV that at least one tier lacks goes through the slot for stores, piece by
 * piece: fetched from the stage processes or the GPU, then stored by all tiers that lack it. */
#include "machine/tiers_state.h"

#include <stdlib.h>
#include <string.h>

/* While requests wait and less than this part of the blocks is available, nothing is stored. */
#define BLOCKS_SHORT_PART 8

/* A chain that is being stored in tiers. */
struct tier_store {
    struct machine_tiers *tiers;
    struct tier_store *next;
    struct tier_job jobs[TIER_KIND_COUNT];
    uint32_t open; /* Jobs that have not ended. */
    struct kv_prefix_reader reader;
    struct kv_tables tables;
    uint64_t salt;
    const uint32_t *tokens;
    uint32_t end;    /* Spans of the chain. */
    uint32_t blocks; /* Blocks that the store reads. */
    bool cancelled;  /* Ends when what is under way has ended. */

    /* With staging memory: */
    bool takes[TIER_KIND_COUNT];     /* The tier stores the chain. */
    uint32_t first[TIER_KIND_COUNT]; /* First span that the tier may lack. */
    uint32_t slot;                   /* STAGING_SLOTS = none. */
    bool fetches;                    /* KV of the piece is on its way to the slot. */
    uint32_t at, piece_end;          /* The piece: the spans [at, piece_end). */
    uint32_t ids_and_tokens[];
};

static void store_free(struct tier_store *store)
{
    kv_prefix_read_end(store->tiers->machine->prefix, &store->reader);
    free(store);
}

static void store_add(struct tier_store *store)
{
    struct machine_tiers *t = store->tiers;
    t->store_blocks += store->blocks;
    store->next = t->stores;
    t->stores = store;
}

static void dropped_count(struct tier_store *store, uint32_t tier, uint32_t spans)
{
    store->tiers->counts[tier].dropped_tokens +=
        (uint64_t)spans * store->tiers->machine->arena.block_tokens;
}

/* Ends a store that was added. */
static void store_end(struct tier_store *store)
{
    struct machine_tiers *t = store->tiers;
    struct tier_store **at = &t->stores;
    for (uint32_t i = 0; i < t->count; i++)
        if (store->takes[i])
            dropped_count(store, i, store->end - store->first[i]);
    if (store->slot < STAGING_SLOTS)
        tier_slot_give(t, store->slot);
    t->store_blocks -= store->blocks;
    while (*at != store)
        at = &(*at)->next;
    *at = store->next;
    store_free(store);
}

static void job_count(struct tier_store *store, const struct tier_job *job)
{
    struct machine *m = store->tiers->machine;
    store->tiers->counts[job->tier].stored_bytes += job->written * tiers_record_bytes(m);
    dropped_count(store, job->tier, job->dropped);
    m->stats_changed = true;
}

/* Begins a job of the store. Returns false if the tier does not take it. */
static bool job_submit(struct tier_store *store, const struct tier_job *job)
{
    struct tier_job *own = &store->jobs[job->tier];
    *own = *job;
    own->salt = store->salt;
    own->tokens = store->tokens;
    own->window_first = store->reader.window_first;
    own->self = store;
    if (!tiers_submit(store->tiers->tiers, own))
        return false;
    store->open++;
    return true;
}

/* ---- from KV memory ---- */

static void on_stored(void *self, struct tier_job *job)
{
    struct tier_store *store = self;
    job_count(store, job);
    if (--store->open == 0)
        store_end(store);
}

static bool whole_submit(struct tier_store *store, uint32_t tier)
{
    const struct tier_job job = {.kind = TIER_STORE,
                                 .tier = tier,
                                 .blocks = store->tables.ids,
                                 .stride = store->tables.stride,
                                 .end = store->end,
                                 .ended = on_stored};
    return job_submit(store, &job);
}

/* ---- through the staging memory ---- */

/* Begins with the piece at store->at, or ends the store if nothing is left. Waits for the slot if
 * another store has it. */
static void piece_begin(struct tier_store *store)
{
    struct machine_tiers *t = store->tiers;
    uint32_t first = store->end;
    for (uint32_t i = 0; i < t->count && !store->cancelled; i++) {
        if (store->takes[i] && !tiers_works(t->tiers, i)) {
            store->takes[i] = false;
            dropped_count(store, i, store->end - store->first[i]);
        }
        if (store->takes[i] && store->first[i] < first)
            first = store->first[i];
    }
    if (first == store->end) {
        store_end(store);
        return;
    }
    store->at = first;
    if (store->slot == STAGING_SLOTS)
        store->slot = tier_slot_take_store(t, store);
    if (store->slot == STAGING_SLOTS)
        return;
    store->piece_end = store->end - first > t->slot_spans ? first + t->slot_spans : store->end;
    store->fetches = true;
    tier_slot_fetch(t, store->slot, &store->tables, store->reader.window_first, first,
                    store->piece_end);
}

static void on_probed(void *self, struct tier_job *job)
{
    struct tier_store *store = self;
    store->first[job->tier] = job->count;
    if (--store->open == 0)
        piece_begin(store);
}

static void on_piece_stored(void *self, struct tier_job *job)
{
    struct tier_store *store = self;
    job_count(store, job);
    store->first[job->tier] = job->end;
    if (--store->open == 0)
        piece_begin(store);
}

static bool probe_submit(struct tier_store *store, uint32_t tier)
{
    const struct tier_job job = {
        .kind = TIER_PROBE, .tier = tier, .end = store->end, .ended = on_probed};
    store->takes[tier] = job_submit(store, &job);
    return store->takes[tier];
}

void tier_store_fetched(struct tier_store *store, enum status status)
{
    struct machine_tiers *t = store->tiers;
    store->fetches = false;
    if (status != ST_OK || store->cancelled) {
        store_end(store);
        return;
    }
    for (uint32_t i = 0; i < t->count; i++) {
        const struct tier_job job = {.kind = TIER_STORE,
                                     .tier = i,
                                     .blocks = t->slot_blocks[store->slot],
                                     .blocks_first = store->at,
                                     .stride = STAGING_SPANS_MAX,
                                     .first = store->first[i],
                                     .end = store->piece_end,
                                     .ended = on_piece_stored};
        if (!store->takes[i] || job.first >= job.end || job_submit(store, &job))
            continue;
        dropped_count(store, i, job.end - job.first);
        store->first[i] = job.end;
    }
    if (store->open == 0)
        piece_begin(store);
}

/* ---- beginning and end ---- */

/* Returns true if this machine stores KV in the tier. */
static bool tier_stores(const struct machine_tiers *t, uint32_t tier)
{
    return tiers_works(t->tiers, tier) &&
           tier_kind_stores(tiers_ops(t->tiers, tier)->kind, t->machine->home_pool);
}

/* Makes a reader of the chain in the prefix cache: in layers with a window, of those spans that the
 * tokens after the chain read. store->end is 0 if the chain is not there. NULL = no memory. */
static struct tier_store *store_make(struct machine_tiers *t, uint64_t salt, const uint32_t *tokens,
                                     uint32_t spans)
{
    struct machine *m = t->machine;
    const uint32_t blocks = tiers_blocks(m, spans);
    const size_t count = (size_t)spans * m->arena.block_tokens;
    struct tier_store *store = calloc(1, sizeof(*store) + (blocks + count) * sizeof(uint32_t));
    if (store == NULL)
        return NULL;
    memcpy(store->ids_and_tokens + blocks, tokens, count * sizeof(tokens[0]));
    store->tiers = t;
    store->salt = salt;
    store->tokens = store->ids_and_tokens + blocks;
    store->slot = STAGING_SLOTS;
    store->tables = (struct kv_tables){.ids = store->ids_and_tokens, .stride = spans};
    store->end = kv_prefix_read_begin(m->prefix, salt, tokens, spans, KV_PREFIX_WHOLE_WINDOW,
                                      &store->tables, &store->reader);
    store->blocks =
        layer_groups_blocks_between(&m->arena.groups, 0, store->end, store->reader.window_first);
    return store;
}

/* Returns false if the chain is not there, or if too many blocks are being stored. */
static bool store_fits(const struct tier_store *store)
{
    const struct machine_tiers *t = store->tiers;
    const uint32_t most = t->machine->arena.block_count / TIERS_BLOCKS_DIVISOR;
    return store->end > 0 && (t->stores == NULL || t->store_blocks + store->blocks <= most);
}

static bool store_submit(struct tier_store *store, uint32_t tier)
{
    return store->tiers->slot_spans > 0 ? probe_submit(store, tier) : whole_submit(store, tier);
}

/* The chain is offered to every tier, also the spans that a slower tier had: so faster tiers get
 * them, while they are in memory. What a tier has is not written again. With windows, a chain can
 * be added before its window blocks are: it is stored when they have been added, too. */
void tier_stores_added(void *self, uint64_t salt, const uint32_t *tokens, uint32_t spans)
{
    struct machine_tiers *t = self;
    bool wanted = false;
    if (t->load_is_adding || spans == 0)
        return;
    for (uint32_t i = 0; i < t->count; i++)
        wanted |= tier_stores(t, i);
    struct tier_store *store = wanted ? store_make(t, salt, tokens, spans) : NULL;
    const bool early = store != NULL && store->end == 0 && t->machine->arena.groups.windowed != 0;
    const bool fits = store != NULL && store_fits(store);
    for (uint32_t i = 0; i < t->count && !early; i++)
        if (tier_stores(t, i) && !(fits && store_submit(store, i)))
            t->counts[i].dropped_tokens += (uint64_t)spans * t->machine->arena.block_tokens;
    if (store != NULL && store->open == 0)
        store_free(store);
    else if (store != NULL)
        store_add(store);
}

/* Returns the store that waits for the slot since the longest time; with `cancelled`, of those that
 * were cancelled. A store that waits has nothing under way. NULL = none. */
static struct tier_store *store_waiting(const struct machine_tiers *t, bool cancelled)
{
    struct tier_store *oldest = NULL;
    for (struct tier_store *at = t->stores; at != NULL; at = at->next)
        if (at->open == 0 && !at->fetches && (at->cancelled || !cancelled))
            oldest = at; /* later stores are in front */
    return oldest;
}

void tier_stores_cancel(struct machine_tiers *t)
{
    for (struct tier_store *at = t->stores; at != NULL; at = at->next) {
        at->cancelled = true;
        for (uint32_t i = 0; i < t->count; i++)
            tiers_job_cancel(&at->jobs[i]);
    }
}

void tier_stores_turn(struct machine_tiers *t)
{
    struct sched_machine_load load;
    struct tier_store *waiting;
    if (t->stores == NULL)
        return;
    if (kv_pool_available(t->machine->kv) < t->machine->arena.block_count / BLOCKS_SHORT_PART) {
        sched_machine_load(t->machine->sched, &load);
        if (load.reservations_waiting + load.prompts_waiting > 0)
            tier_stores_cancel(t);
    }
    while ((waiting = store_waiting(t, true)) != NULL)
        store_end(waiting);
    waiting = store_waiting(t, false);
    if (waiting != NULL)
        piece_begin(waiting);
}

void tier_stores_close(struct machine_tiers *t)
{
    while (t->stores != NULL)
        store_end(t->stores);
}
