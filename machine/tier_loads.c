/* tier_loads: KV on its way from tiers (struct machine_load). Before a prompt is queued (held.c),
 * each tier in turn is asked which spans it has after those in the prefix cache. If loading is
 * faster than computing (scheduler/tier_loads.h), the spans are loaded into blocks, which then
 * enter the prefix cache. There the prompt finds them. A prompt waits at most kv/tiers/wait_ms.
 *
 * With staging memory (executor/staging.h), the spans go through its slots, piece by piece: loaded
 * by the tier's thread, then delivered to the stage processes or to the GPU. */
#include "machine/tiers_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The owners of blocks that are being loaded; no request has such an id. */
#define LOAD_OWNER_FIRST ((kv_owner_id)1 << 63)

/* What a load waits for. */
enum load_state {
    LOAD_JOB,      /* The job of a tier. */
    LOAD_SLOT,     /* A slot of the staging memory. */
    LOAD_DELIVERY, /* KV of its slot is on its way to the stage processes or the GPU. */
    LOAD_ENDED,
};

/* A prompt's prefix that is being loaded. In layer groups with a window, only those spans are
 * loaded that the tokens after the prefix read. */
struct machine_load {
    struct machine_tiers *tiers;
    struct machine_load *next;
    struct tier_job job;
    enum load_state state;
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
    uint32_t taken_blocks;
    uint32_t window_first; /* In layer groups with a window, the load has blocks from here on. */
    uint32_t at;           /* Spans of the prompt that are in the blocks. */
    uint32_t slot;         /* STAGING_SLOTS = none. */
    uint32_t damaged;      /* Records that were damaged. */
    uint32_t ids_and_tokens[];
};

uint32_t tier_least_tokens(const struct machine_tiers *t, uint32_t tier)
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
    load->state = LOAD_ENDED;
    load->tiers->loads_ended = true;
    if (!load->is_wanted)
        load_free(load);
}

/* ---- finding ---- */

static void on_found(void *self, struct tier_job *job);

/* Begins a job for the spans [job->first, job->end). Returns false if the tier does not take it. */
static bool job_submit(struct machine_load *load, const struct tier_job *job)
{
    load->job = *job;
    load->job.salt = load->salt;
    load->job.tokens = load->tokens;
    load->job.deadline_us = load->due_us;
    load->job.window_first = load->window_first;
    load->job.self = load;
    load->state = LOAD_JOB;
    return tiers_submit(load->tiers->tiers, &load->job);
}

/* Looks up which spans are in memory, and asks the first tier from `tier` on that works, or is
 * being opened, and whose loads can be worth it. Returns false if there is none. */
static bool tier_ask(struct machine_load *load, uint32_t tier)
{
    struct machine_tiers *t = load->tiers;
    kv_prefix_read_end(t->machine->prefix, &load->reader);
    load->begun_us = t->machine->now_us;
    const uint32_t cached =
        kv_prefix_read_begin(t->machine->prefix, load->salt, load->tokens, load->spans_max,
                             KV_PREFIX_WHOLE_WINDOW, &load->tables, &load->reader);
    for (; tier < t->count && load->is_wanted && !t->closing; tier++) {
        const struct tier_job job = {.kind = TIER_FIND,
                                     .tier = tier,
                                     .first = cached,
                                     .end = load->spans_max,
                                     .ended = on_found};
        if (load_is_worth(load, tier, load->spans_max - cached) && job_submit(load, &job))
            return true;
    }
    return false;
}

static void tier_ask_next(struct machine_load *load)
{
    if (!tier_ask(load, load->job.tier + 1))
        load_end(load);
}

/* Returns from which span on window blocks are loaded if the load ends at the span `end`. */
static uint32_t window_first(const struct machine *m, uint32_t first, uint32_t end)
{
    const uint32_t read = layer_groups_window_first(&m->arena.groups, m->arena.block_tokens,
                                                    end * m->arena.block_tokens);
    return read > first ? read : first;
}

/* Returns how many of the spans from `first` on have room in memory now. With windows, all or none:
 * no token can be computed after another number of spans. */
static uint32_t spans_with_room(const struct machine_tiers *t, uint32_t first, uint32_t spans)
{
    const struct machine *m = t->machine;
    const uint32_t groups = layer_groups_count(&m->arena.groups);
    const uint32_t most = m->arena.block_count / TIERS_BLOCKS_DIVISOR;
    uint32_t room = t->load_blocks == 0     ? m->arena.block_count
                    : most > t->load_blocks ? most - t->load_blocks
                                            : 0;
    if (room > kv_pool_available(m->kv))
        room = kv_pool_available(m->kv);
    if (m->arena.groups.windowed != 0)
        return layer_groups_blocks_between(&m->arena.groups, first, first + spans,
                                           window_first(m, first, first + spans)) <= room
                   ? spans
                   : 0;
    return spans < room / groups ? spans : room / groups;
}

/* ---- loading ---- */

/* Adds the loaded spans to the prefix cache, frees the other blocks, and asks the next tier. */
static void loaded_take(struct machine_load *load)
{
    struct machine_tiers *t = load->tiers;
    struct machine *m = t->machine;
    const struct layer_groups *groups = &m->arena.groups;
    struct message_tier *counts = &t->counts[load->job.tier];
    const bool windowed = groups->windowed != 0;
    const uint32_t first = load->tables.cached_spans;
    const uint32_t end = windowed && load->at < load->taken_end ? first : load->at;
    const int64_t us = clock_now_us(m->options.clock) - load->begun_us;
    kv_tables_free(&load->tables, groups, m->kv, load->owner, end, load->taken_end);
    kv_tables_mark(&load->tables, groups, m->kv, load->owner, first, end, KV_LIVE);
    const struct kv_prefix_blocks blocks = {.owner = load->owner,
                                            .salt = load->salt,
                                            .tokens = load->tokens,
                                            .tables = &load->tables,
                                            .spans = end,
                                            .window_valid_first =
                                                windowed ? load->window_first : end,
                                            .window_read_first = end};
    t->load_is_adding = true;
    kv_prefix_add(m->prefix, &blocks, &load->reader);
    t->load_is_adding = false;
    kv_prefix_own_blocks_free(m->prefix, load->owner, &load->tables, end);
    t->load_blocks -= load->taken_blocks;
    const uint32_t tokens = (end - first) * m->arena.block_tokens;
    sched_tier_loads_add(&t->loads_measured[load->job.tier], tokens, us, m->now_us);
    counts->hit_tokens += tokens;
    counts->miss_tokens += (uint64_t)(load->taken_end - end) * m->arena.block_tokens;
    if (end > first)
        counts->loaded_bytes +=
            layer_groups_blocks_between(groups, first, end, load->window_first) *
            tiers_record_bytes(m);
    counts->load_us += (uint64_t)us;
    counts->damaged += load->damaged;
    m->stats_changed = true;
    tier_ask_next(load);
}

static void on_loaded(void *self, struct tier_job *job)
{
    struct machine_load *load = self;
    load->at += job->count;
    load->damaged += job->damaged;
    loaded_take(load);
}

static void whole_begin(struct machine_load *load)
{
    const struct tier_job job = {.kind = TIER_LOAD,
                                 .tier = load->job.tier,
                                 .blocks = load->tables.ids,
                                 .stride = load->tables.stride,
                                 .first = load->at,
                                 .end = load->taken_end,
                                 .ended = on_loaded};
    if (!job_submit(load, &job))
        loaded_take(load);
}

/* ---- through the staging memory ---- */

static void pieces_end(struct machine_load *load)
{
    if (load->slot < STAGING_SLOTS)
        tier_slot_give(load->tiers, load->slot);
    load->slot = STAGING_SLOTS;
    loaded_take(load);
}

static void on_piece_loaded(void *self, struct tier_job *job)
{
    struct machine_load *load = self;
    load->damaged += job->damaged;
    if (job->count == 0 || load->tiers->closing) {
        pieces_end(load);
        return;
    }
    load->state = LOAD_DELIVERY;
    tier_slot_deliver(load->tiers, load->slot, &load->tables, load->window_first, load->at,
                      load->at + job->count);
}

/* Begins with the piece at load->at. Waits for a slot if none is free. Ends the load if nothing is
 * left, or if its prompt no longer waits. */
static void piece_begin(struct machine_load *load)
{
    struct machine_tiers *t = load->tiers;
    if (load->at == load->taken_end || !load->is_wanted || t->closing ||
        t->machine->now_us >= load->due_us) {
        pieces_end(load);
        return;
    }
    load->state = LOAD_SLOT;
    load->slot = tier_slot_take_load(t, load);
    if (load->slot == STAGING_SLOTS)
        return;
    const uint32_t left = load->taken_end - load->at;
    const struct tier_job job = {.kind = TIER_LOAD,
                                 .tier = load->job.tier,
                                 .blocks = t->slot_blocks[load->slot],
                                 .blocks_first = load->at,
                                 .stride = STAGING_SPANS_MAX,
                                 .first = load->at,
                                 .end = load->at + (left < t->slot_spans ? left : t->slot_spans),
                                 .ended = on_piece_loaded};
    if (!job_submit(load, &job))
        pieces_end(load);
}

void tier_load_delivered(struct machine_load *load, enum status status)
{
    const bool whole = load->job.count == load->job.end - load->job.first;
    if (status == ST_OK)
        load->at += load->job.count;
    if (status != ST_OK || !whole) {
        pieces_end(load);
        return;
    }
    tier_slot_give(load->tiers, load->slot);
    load->slot = STAGING_SLOTS;
    piece_begin(load);
}

/* Returns the load that waits for a slot since the longest time; NULL = none. */
static struct machine_load *load_waiting(const struct machine_tiers *t)
{
    struct machine_load *oldest = NULL;
    for (struct machine_load *at = t->loads; at != NULL; at = at->next)
        if (at->state == LOAD_SLOT)
            oldest = at; /* later loads are in front */
    return oldest;
}

void tier_loads_turn(struct machine_tiers *t)
{
    struct machine_load *load;
    while ((load = load_waiting(t)) != NULL) {
        piece_begin(load);
        if (load_waiting(t) == load)
            return; /* no slot is free */
    }
}

/* ---- beginning and end ---- */

static void on_found(void *self, struct tier_job *job)
{
    struct machine_load *load = self;
    struct machine_tiers *t = load->tiers;
    struct machine *m = t->machine;
    const uint32_t first = job->first, absent = job->end - job->first - job->count;
    const uint32_t spans = spans_with_room(t, first, job->count);
    t->counts[job->tier].miss_tokens += (uint64_t)absent * m->arena.block_tokens;
    if (!load->is_wanted || t->closing || !load_is_worth(load, job->tier, spans)) {
        tier_ask_next(load);
        return;
    }
    load->at = first;
    load->damaged = 0;
    load->taken_end = first + spans;
    load->window_first = window_first(m, first, load->taken_end);
    load->tables.window_cached_spans = load->window_first;
    load->taken_blocks =
        layer_groups_blocks_between(&m->arena.groups, first, load->taken_end, load->window_first);
    kv_tables_take(&load->tables, &m->arena.groups, m->kv, load->owner, first, load->taken_end);
    kv_tables_mark(&load->tables, &m->arena.groups, m->kv, load->owner, first, load->taken_end,
                   KV_FILLING);
    t->load_blocks += load->taken_blocks;
    if (t->slot_spans > 0)
        piece_begin(load);
    else
        whole_begin(load);
}

struct machine_load *machine_load_begin(struct machine *m, uint64_t salt, const uint32_t *tokens,
                                        uint32_t token_count)
{
    struct machine_tiers *t = m->tiers;
    const uint32_t spans = token_count / m->arena.block_tokens;
    if (t == NULL || spans == 0)
        return NULL;
    const size_t ids = tiers_blocks(m, spans), count = (size_t)spans * m->arena.block_tokens;
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
    load->slot = STAGING_SLOTS;
    load->owner = LOAD_OWNER_FIRST + t->load_number++;
    load->tables =
        (struct kv_tables){.ids = load->ids_and_tokens, .stride = spans, .keep = UINT32_MAX};
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
    return load == NULL || load->state == LOAD_ENDED || load->late;
}

void machine_load_leave(struct machine_load *load)
{
    if (load == NULL)
        return;
    load->is_wanted = false;
    if (load->state == LOAD_ENDED)
        load_free(load);
    else
        tiers_job_cancel(&load->job);
}

bool tier_loads_late(struct machine_tiers *t)
{
    bool any = false;
    for (struct machine_load *at = t->loads; at != NULL; at = at->next)
        if (at->state != LOAD_ENDED && !at->late && t->machine->now_us >= at->due_us)
            any = at->late = true;
    return any;
}

int64_t machine_tiers_due_us(const struct machine *m)
{
    int64_t due_us = INT64_MAX;
    for (const struct machine_load *at = m->tiers != NULL ? m->tiers->loads : NULL; at != NULL;
         at = at->next)
        if (at->state != LOAD_ENDED && !at->late && at->due_us < due_us)
            due_us = at->due_us;
    return due_us;
}

void tier_loads_cancel(struct machine_tiers *t)
{
    for (struct machine_load *at = t->loads; at != NULL; at = at->next)
        tiers_job_cancel(&at->job);
}

void tier_loads_close(struct machine_tiers *t)
{
    while (t->loads != NULL) {
        assert(!t->loads->is_wanted); /* machine_held_close was called */
        pieces_end(t->loads);
    }
}
