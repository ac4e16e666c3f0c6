/* sim_machine, the blocks: see the header. If requests share prefixes, the blocks are those of a
 * pool with a prefix cache, and each task is looked up as on a real machine (prompt_pool/
 * prompt_prefix.c, token_pool/token_blocks.c). Otherwise only their number is known, and what a
 * request finds is what the machine has kept for it (struct sim_kept). */
#include "tools/simulate/sim_machine_state.h"

#include <stdlib.h>

static const struct sched_memory_options *memory_of(const struct sim_machine *m)
{
    return sched_memory_options(m->memory);
}

static const struct layer_groups *groups_of(const struct sim_machine *m)
{
    return &memory_of(m)->groups;
}

/* ---- life ---- */

static void prefix_changed(void *self, uint64_t hash, bool held)
{
    const struct sim_machine *m = self;
    m->options.calls->prefix_changed(m->options.self, m->options.index, hash, held);
}

enum status sim_kv_open(struct sim_machine *m)
{
    const struct kv_prefix_listener listener = {
        .step_spans = m->options.prefix_step, .changed = prefix_changed, .self = m};
    if (!m->options.prefixes)
        return sim_cache_open(&m->cache, m->block_count);
    m->holdings = calloc(SIM_SLOTS, sizeof(m->holdings[0]));
    if (m->holdings == NULL)
        return ST_NO_MEMORY;
    return sim_pool_open(m->block_count, m->block_tokens, groups_of(m),
                         listener.step_spans > 0 ? &listener : NULL, &m->pool);
}

void sim_kv_close(struct sim_machine *m)
{
    for (uint32_t slot = 0; m->pool != NULL && slot < SIM_SLOTS; slot++)
        sim_holding_close(m->pool, &m->holdings[slot]);
    sim_pool_close(m->pool);
    free(m->holdings);
    sim_cache_close(&m->cache);
}

uint32_t sim_kv_available(const struct sim_machine *m)
{
    return m->pool != NULL ? sim_pool_available(m->pool) : m->cache.blocks;
}

/* ---- blocks that are only counted ---- */

/* Takes `count` free blocks, first those of the run `from`. Requires that enough blocks are free.
 */
static void count_take(struct sim_machine *m, sim_cache_id from, uint32_t count)
{
    uint32_t own = sim_cache_take_run(&m->cache, from);
    if (own > count)
        sim_cache_add(&m->cache, own - count);
    else
        sim_cache_take(&m->cache, count - own);
}

/* Returns the blocks that the task holds. */
static uint32_t blocks_held(const struct sim_machine *m, sched_slot slot)
{
    const struct sim_task *task = &m->tasks[slot];
    if (task->kind == TASK_PROMPT)
        return task->state > TASK_WAITING ? task->blocks_to_take : 0;
    const struct sched_memory_blocks *blocks = sched_memory_blocks(m->memory, slot);
    return blocks->granted ? blocks->count : 0;
}

/* ---- tasks ---- */

enum status sim_kv_task_open(struct sim_machine *m, sched_slot slot, uint32_t spans_max,
                             uint32_t keep)
{
    const struct sim_task *task = &m->tasks[slot];
    if (m->pool == NULL || (task->kind == TASK_PROMPT && task->local))
        return ST_OK;
    return sim_holding_open(m->pool, spans_max, keep, &m->holdings[slot]);
}

/* Adds the blocks whose KV is kept to the queue after the others, so that they are used again
 * later. */
uint32_t sim_kv_task_end(struct sim_machine *m, sched_slot slot)
{
    const struct sim_task *task = &m->tasks[slot];
    uint32_t blocks = blocks_held(m, slot);
    uint32_t kept = task->kept_blocks < blocks ? task->kept_blocks : blocks;
    if (m->pool != NULL) {
        sim_holding_close(m->pool, &m->holdings[slot]);
        return blocks;
    }
    sim_cache_add(&m->cache, blocks - kept);
    if (task->kept_run != 0)
        sim_cache_fill(&m->cache, task->kept_run, kept);
    return blocks;
}

/* ---- reservations ---- */

/* The first span that the answer reads in layers with a window. */
static uint32_t answer_first(const struct sim_machine *m, const struct sim_task *task)
{
    return layer_groups_answer_first(groups_of(m), m->block_tokens, task->prompt_tokens);
}

/* Looks the prompt up in the prefix cache (token_blocks_prefix_pin). Returns the number of blocks
 * that it must still take. */
static uint32_t reservation_pin(struct sim_machine *m, sched_slot slot)
{
    struct sim_task *task = &m->tasks[slot];
    struct sim_holding *holding = &m->holdings[slot];
    const uint32_t tokens = task->prompt_tokens - (task->local ? 1 : 0);
    sim_holding_pin(m->pool, holding, m->options.calls->contents(m->options.self, task->request),
                    tokens / m->block_tokens,
                    task->local ? KV_PREFIX_WHOLE_WINDOW : answer_first(m, task));
    task->cached = holding->tables.cached_spans * m->block_tokens;
    sched_memory_window_held_set(m->memory, slot, holding->tables.window_cached_spans);
    return layer_groups_blocks_to_take(groups_of(m), sched_memory_blocks(m->memory, slot)->spans,
                                       holding->tables.cached_spans,
                                       holding->tables.window_cached_spans, holding->tables.keep);
}

static void reservation_unpin(struct sim_machine *m, sched_slot slot)
{
    sim_holding_unpin(m->pool, &m->holdings[slot]);
    sched_memory_window_held_set(m->memory, slot, 0);
    m->tasks[slot].cached = 0;
}

/* As request_grant in token_pool/token_memory.c. */
static bool pool_grant(struct sim_machine *m, sched_slot slot)
{
    uint32_t needed = reservation_pin(m, slot);
    if (sched_memory_grant(m->memory, slot, needed, sim_kv_available(m)))
        return true;
    reservation_unpin(m, slot);
    needed = sched_memory_blocks(m->memory, slot)->count;
    return groups_of(m)->windowed != 0 &&
           sched_memory_grant(m->memory, slot, needed, sim_kv_available(m));
}

bool sim_kv_reservation_grant(struct sim_machine *m, sched_slot slot)
{
    const struct sched_memory_blocks *blocks = sched_memory_blocks(m->memory, slot);
    if (m->pool != NULL) {
        if (!pool_grant(m, slot))
            return false;
        sim_holding_take(m->pool, &m->holdings[slot], blocks->spans);
        return true;
    }
    if (!sched_memory_grant(m->memory, slot, blocks->count, sim_kv_available(m)))
        return false;
    count_take(m, m->tasks[slot].reused_run, blocks->count);
    return true;
}

bool sim_kv_copy_grant(struct sim_machine *m, sched_slot slot)
{
    const struct sched_memory_blocks *blocks = sched_memory_blocks(m->memory, slot);
    sim_cache_id from = m->tasks[slot].reused_run;
    if (m->pool != NULL) {
        uint32_t needed = reservation_pin(m, slot);
        if (!sched_memory_copy_grant(m->memory, slot, needed, sim_kv_available(m)))
            return false;
        sim_holding_take(m->pool, &m->holdings[slot], blocks->spans);
        return true;
    }
    uint32_t own = sim_cache_count(&m->cache, from);
    own = own < blocks->count ? own : blocks->count;
    if (!sched_memory_copy_grant(m->memory, slot, blocks->count - own, sim_kv_available(m) - own))
        return false;
    count_take(m, from, blocks->count);
    return true;
}

/* As token_blocks_grow. */
void sim_kv_answer_grow(struct sim_machine *m, sched_slot slot)
{
    const struct sched_memory_blocks *blocks = sched_memory_blocks(m->memory, slot);
    if (m->pool == NULL) {
        count_take(m, 0, blocks->growth_blocks);
        return;
    }
    const uint32_t next = (blocks->spans - 1) * m->block_tokens; /* The request's next token. */
    sim_holding_take(m->pool, &m->holdings[slot], blocks->spans);
    sim_holding_window_move(m->pool, &m->holdings[slot],
                            layer_groups_window_first(groups_of(m), m->block_tokens, next));
}

/* ---- prompts that are decoded elsewhere ---- */

void sim_kv_prompt_take(struct sim_machine *m, sched_slot slot)
{
    const struct sim_task *task = &m->tasks[slot];
    if (m->pool == NULL)
        count_take(m, task->reused_run, task->blocks_to_take);
    else if (!task->local)
        sim_holding_take(m->pool, &m->holdings[slot],
                         sched_memory_spans_of(memory_of(m), task->prompt_tokens));
}

/* Returns the number of blocks that the prompt must still take. */
static uint32_t prompt_blocks(const struct sim_machine *m, sched_slot slot)
{
    const struct kv_tables *tables = &m->holdings[slot].tables;
    return layer_groups_blocks_to_take(
        groups_of(m), sched_memory_spans_of(memory_of(m), m->tasks[slot].prompt_tokens),
        tables->cached_spans, tables->window_cached_spans, tables->keep);
}

/* Tells the scheduler what is left of the prompt to compute. */
static void prompt_left_set(struct sim_machine *m, sched_slot slot)
{
    struct sim_task *task = &m->tasks[slot];
    task->cached = task->tokens = m->holdings[slot].tables.cached_spans * m->block_tokens;
    task->blocks_to_take = prompt_blocks(m, slot);
    sched_machine_prompt_left_set(m->sched, slot, task->prompt_tokens - task->cached,
                                  task->blocks_to_take);
}

void sim_kv_prompts_pin(struct sim_machine *m, uint32_t path)
{
    sched_slot slot = SCHED_NO_SLOT;
    uint32_t blocks = 0;
    uint32_t tokens = 0;
    if (m->pool == NULL)
        return;
    while (m->pinned_count < LIMIT_BATCH_SEQUENCES &&
           tokens < m->options.config->scheduler.prompt_batch_tokens &&
           sched_machine_prompt_after(m->sched, path, slot, &slot)) {
        const struct sim_task *task = &m->tasks[slot];
        struct sim_holding *holding = &m->holdings[slot];
        sim_holding_pin(m->pool, holding,
                        m->options.calls->contents(m->options.self, task->request),
                        (task->prompt_tokens - 1) / m->block_tokens, KV_PREFIX_WHOLE_WINDOW);
        const uint32_t needed = prompt_blocks(m, slot);
        if (blocks + needed > sim_kv_available(m)) {
            sim_holding_unpin(m->pool, holding);
            return;
        }
        prompt_left_set(m, slot);
        blocks += needed;
        tokens += task->prompt_tokens - task->cached;
        m->pinned[m->pinned_count++] = slot;
    }
}

void sim_kv_prompts_unpin(struct sim_machine *m)
{
    for (uint32_t i = 0; i < m->pinned_count; i++) {
        const sched_slot slot = m->pinned[i];
        if (sched_machine_in_batch(m->sched, slot))
            continue;
        sim_holding_unpin(m->pool, &m->holdings[slot]);
        prompt_left_set(m, slot);
    }
    m->pinned_count = 0;
}

/* ---- KV that stays in the prefix cache ---- */

/* Returns the first span whose blocks of layers with a window have the KV of this span, if the KV
 * of the first `tokens` tokens is complete: later spans use earlier blocks again, and KV before the
 * answer's window is not sent. */
static uint32_t window_valid_first(const struct sim_machine *m, sched_slot slot, uint32_t tokens)
{
    const struct sim_task *task = &m->tasks[slot];
    const uint32_t spans = sched_memory_spans_of(memory_of(m), tokens);
    const uint32_t keep = m->holdings[slot].tables.keep;
    const uint32_t kept = spans > keep ? spans - keep : 0;
    const uint32_t sent = task->kind == TASK_RESERVE && !task->local ? answer_first(m, task) : 0;
    return sent > kept ? sent : kept;
}

static struct sim_kept none_kept(void)
{
    return (struct sim_kept){.tokens = 0};
}

struct sim_kept sim_machine_keep(struct sim_machine *m, sched_slot slot, uint32_t tokens,
                                 bool windows)
{
    struct sim_task *task = &m->tasks[slot];
    uint32_t spans = tokens / m->block_tokens;
    uint32_t held = blocks_held(m, slot);
    if (held == 0 || spans == 0 || task->kept_run != 0)
        return none_kept();
    if (m->pool != NULL) {
        sim_holding_cache(m->pool, &m->holdings[slot],
                          m->options.calls->contents(m->options.self, task->request), spans,
                          windows ? window_valid_first(m, slot, tokens) : spans);
        return none_kept();
    }
    task->kept_run = sim_cache_begin(&m->cache);
    if (task->kept_run == 0)
        return none_kept();
    uint32_t blocks = sched_memory_blocks_of(memory_of(m), spans * m->block_tokens, true);
    task->kept_blocks = blocks < held ? blocks : held;
    return (struct sim_kept){
        .tokens = spans * m->block_tokens, .blocks = task->kept_blocks, .id = task->kept_run};
}

uint32_t sim_machine_kept_tokens(const struct sim_machine *m, const struct sim_kept *kept)
{
    if (m->pool != NULL)
        return 0;
    uint64_t blocks = sim_cache_count(&m->cache, kept->id);
    if (groups_of(m)->windowed != 0)
        return blocks < kept->blocks ? 0 : kept->tokens;
    uint64_t tokens = blocks * m->block_tokens;
    return tokens < kept->tokens ? (uint32_t)tokens : kept->tokens;
}

void sim_machine_forget(struct sim_machine *m, const struct sim_kept *kept)
{
    if (m->pool == NULL)
        sim_cache_forget(&m->cache, kept->id);
}

/* ---- KV that a tier has stored ---- */

uint32_t sim_machine_prefix_spans(struct sim_machine *m, const uint32_t *contents, uint32_t spans)
{
    return sim_pool_cached_spans(m->pool, contents, spans);
}

bool sim_machine_prefix_add(struct sim_machine *m, const uint32_t *contents, uint32_t spans)
{
    return spans == 0 || sim_pool_add(m->pool, contents, spans);
}
