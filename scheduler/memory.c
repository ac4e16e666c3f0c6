/* sched_memory: see the header.
 *
 * No request waits for ever, because every request that holds blocks frees them at some time:
 * - A running answer ends or is preempted. An answer that must grow does not wait for another
 *   answer to end: if too few blocks are left, an answer is preempted.
 * - A reservation gets its KV, ends, or is given up. Its prompt may wait on another machine for
 *   blocks; if machines wait for each other in a circle, one reservation is given up
 *   (sched_machine_deadlock_victim).
 * - A prompt whose answer is generated elsewhere frees its blocks when its KV is sent.
 * - A quarantined request is freed by a message of its prompt machine or at the end of its lease.
 */
#include "scheduler/memory.h"

#include <assert.h>
#include <stdlib.h>

struct entry {
    bool used;
    bool pinned; /* The whole answer is reserved, because of preemptions. Never a victim. */
    struct sched_memory_blocks blocks;
    struct sched_memory_request request;
};

struct sched_memory {
    struct sched_memory_options options;
    struct sched_machine *sched;
    uint32_t prompt_share; /* Blocks kept from reservations whose prompts run elsewhere. */
    struct sched_memory_counts counts;
    struct entry entries[]; /* Indexed by slot - first_slot. */
};

enum status sched_memory_open(const struct sched_memory_options *options,
                              struct sched_machine *sched, struct sched_memory **out)
{
    assert(options->block_tokens > 0);
    struct sched_memory *memory =
        calloc(1, sizeof(*memory) + options->slot_count * sizeof(memory->entries[0]));
    if (memory == NULL)
        return ST_NO_MEMORY;
    memory->options = *options;
    memory->sched = sched;
    *out = memory;
    return ST_OK;
}

void sched_memory_close(struct sched_memory *memory)
{
    free(memory);
}

const struct sched_memory_options *sched_memory_options(const struct sched_memory *memory)
{
    return &memory->options;
}

const struct sched_memory_counts *sched_memory_counts(const struct sched_memory *memory)
{
    return &memory->counts;
}

/* ---- the share of prompts ---- */

uint32_t sched_memory_prompt_share(const struct sched_memory_options *options)
{
    uint32_t context_blocks = sched_memory_blocks_of(options, options->context_tokens, true);
    uint32_t half = options->block_count / 2;
    return context_blocks < half ? context_blocks : half;
}

void sched_memory_mixed_set(struct sched_memory *memory, bool mixed)
{
    const struct sched_memory_options *options = &memory->options;
    memory->prompt_share = mixed ? sched_memory_prompt_share(options) : 0;
}

/* ---- one request ---- */

uint32_t sched_memory_spans_of(const struct sched_memory_options *options, uint32_t tokens)
{
    return layer_groups_spans(tokens, options->block_tokens);
}

uint32_t sched_memory_kept_spans(const struct sched_memory_options *options, bool computes_prompt)
{
    uint32_t tokens = 1 + options->draft_tokens + options->window_spare_tokens;
    if (computes_prompt && options->chunk_tokens > tokens)
        tokens = options->chunk_tokens;
    return layer_groups_spans_kept(&options->groups, options->block_tokens, tokens);
}

uint32_t sched_memory_blocks_of(const struct sched_memory_options *options, uint32_t tokens,
                                bool computes_prompt)
{
    return layer_groups_blocks(&options->groups, sched_memory_spans_of(options, tokens),
                               sched_memory_kept_spans(options, computes_prompt));
}

uint64_t sched_memory_tokens_of(const struct sched_memory_options *options, uint64_t tokens,
                                bool computes_prompt)
{
    return layer_groups_kv_tokens(&options->groups, options->block_tokens, tokens,
                                  sched_memory_kept_spans(options, computes_prompt));
}

struct sched_kv sched_memory_kv(const struct sched_memory_options *options)
{
    if (options->groups.windowed == 0)
        return (struct sched_kv){0};
    return (struct sched_kv){
        .capacity_tokens = (uint64_t)options->block_count * options->block_tokens /
                           layer_groups_count(&options->groups),
        .groups = options->groups,
        .block_tokens = options->block_tokens,
        .kept_spans = {sched_memory_kept_spans(options, false),
                       sched_memory_kept_spans(options, true)},
    };
}

uint64_t sched_memory_tokens_most(const struct sched_memory_options *options, uint32_t blocks)
{
    return (uint64_t)options->block_tokens *
           layer_groups_spans_max(&options->groups, blocks, sched_memory_kept_spans(options, true));
}

static struct entry *entry_of(const struct sched_memory *memory, sched_slot slot)
{
    uint32_t index = slot - memory->options.first_slot;
    assert(slot >= memory->options.first_slot && index < memory->options.slot_count);
    return (struct entry *)&memory->entries[index];
}

static struct entry *entry_used(const struct sched_memory *memory, sched_slot slot)
{
    struct entry *entry = entry_of(memory, slot);
    assert(entry->used);
    return entry;
}

static bool grows(const struct entry *entry)
{
    return entry->blocks.spans < entry->blocks.spans_max;
}

/* Counts the blocks of a holder, before its count of blocks changes (-1) and after (1). */
static void holder_count(struct sched_memory *memory, const struct entry *entry, int sign)
{
    struct sched_memory_counts *counts = &memory->counts;
    counts->holders += (uint32_t)sign;
    counts->growing += grows(entry) ? (uint32_t)sign : 0;
    counts->shared_blocks +=
        entry->request.prompt_is_local ? 0 : (uint32_t)sign * entry->blocks.count;
}

/* Returns the number of the request's blocks with this number of spans. */
static uint32_t blocks_with(const struct sched_memory *memory, const struct entry *entry,
                            uint32_t spans)
{
    return layer_groups_blocks_to_take(&memory->options.groups, spans, 0, entry->blocks.window_held,
                                       entry->blocks.kept_spans);
}

/* Sets the number of the request's spans, and counts their blocks. */
static void spans_set(const struct sched_memory *memory, struct entry *entry, uint32_t spans)
{
    entry->blocks.spans = spans;
    entry->blocks.count = blocks_with(memory, entry, spans);
}

/* Returns the number of spans that get blocks before the request's KV arrives: those of its prompt
 * and of the first growth_tokens of its answer, or of the whole answer. */
static uint32_t first_spans(const struct sched_memory *memory, const struct entry *entry)
{
    const struct sched_memory_request *request = &entry->request;
    uint32_t answer = memory->options.growth_tokens;
    if (entry->pinned || answer >= request->answer_tokens)
        return entry->blocks.spans_max;
    return sched_memory_spans_of(&memory->options,
                                 request->prompt_tokens + (answer > 0 ? answer : 1));
}

void sched_memory_reserve(struct sched_memory *memory, sched_slot slot,
                          const struct sched_memory_request *request)
{
    struct entry *entry = entry_of(memory, slot);
    assert(!entry->used);
    *entry = (struct entry){.used = true,
                            .pinned = request->preemptions >= memory->options.preemptions_max,
                            .request = *request};
    const struct sched_memory_options *options = &memory->options;
    uint32_t most = request->prompt_tokens + request->answer_tokens;
    assert(sched_memory_blocks_of(options, most, request->prompt_is_local) <= options->block_count);
    entry->blocks.kept_spans = sched_memory_kept_spans(options, request->prompt_is_local);
    entry->blocks.spans_max = sched_memory_spans_of(options, most);
    spans_set(memory, entry, first_spans(memory, entry));
    sched_machine_reserve_add(memory->sched, slot, entry->blocks.count,
                              entry->blocks.spans * options->block_tokens, &request->rank);
}

void sched_memory_copy_add(struct sched_memory *memory, sched_slot slot, uint32_t tokens,
                           bool windows)
{
    struct entry *entry = entry_of(memory, slot);
    assert(!entry->used);
    *entry = (struct entry){.used = true, .request = {.prompt_tokens = tokens}};
    entry->blocks.kept_spans = windows ? sched_memory_kept_spans(&memory->options, false) : 0;
    entry->blocks.spans_max = sched_memory_spans_of(&memory->options, tokens);
    spans_set(memory, entry, entry->blocks.spans_max);
}

bool sched_memory_copy_grant(struct sched_memory *memory, sched_slot slot, uint32_t blocks_needed,
                             uint32_t blocks_free)
{
    struct entry *entry = entry_used(memory, slot);
    sched_slot waiting;
    if (sched_machine_reserve_head(memory->sched, &waiting) || blocks_needed > blocks_free ||
        blocks_free - blocks_needed < memory->options.block_count / 2)
        return false;
    entry->blocks.granted = true;
    holder_count(memory, entry, 1);
    return true;
}

const struct sched_memory_blocks *sched_memory_blocks(const struct sched_memory *memory,
                                                      sched_slot slot)
{
    return &entry_used(memory, slot)->blocks;
}

void sched_memory_window_held_set(struct sched_memory *memory, sched_slot slot,
                                  uint32_t window_held)
{
    struct entry *entry = entry_used(memory, slot);
    assert(!entry->blocks.granted);
    entry->blocks.window_held = window_held;
    spans_set(memory, entry, entry->blocks.spans);
}

void sched_memory_decode(struct sched_memory *memory, sched_slot slot, uint32_t tokens_left)
{
    const struct entry *entry = entry_used(memory, slot);
    const struct sched_memory_request *request = &entry->request;
    assert(entry->blocks.granted);
    uint32_t room = entry->blocks.spans * memory->options.block_tokens - request->prompt_tokens;
    sched_machine_decode_add(
        memory->sched, slot,
        &(struct sched_decode){.path = request->path,
                               .tokens_left = tokens_left,
                               .room_tokens = room < tokens_left ? room : tokens_left,
                               .rank = request->rank,
                               .pinned = entry->pinned});
}

void sched_memory_quarantine(struct sched_memory *memory, sched_slot slot)
{
    assert(entry_used(memory, slot)->blocks.granted);
    sched_machine_remove(memory->sched, slot);
}

void sched_memory_remove(struct sched_memory *memory, sched_slot slot)
{
    struct entry *entry = entry_used(memory, slot);
    sched_machine_remove(memory->sched, slot);
    if (entry->blocks.granted)
        holder_count(memory, entry, -1);
    entry->used = false;
}

/* ---- decisions ---- */

/* Adds a span to an answer. */
static void span_add(struct sched_memory *memory, sched_slot slot, uint32_t blocks)
{
    struct entry *entry = entry_used(memory, slot);
    assert(grows(entry));
    holder_count(memory, entry, -1);
    spans_set(memory, entry, entry->blocks.spans + 1);
    entry->blocks.growth_blocks = blocks;
    holder_count(memory, entry, 1);
    sched_machine_decode_grow(memory->sched, slot, memory->options.block_tokens);
}

/* Returns the blocks that one more span of an answer needs. */
static uint32_t span_blocks(const struct sched_memory *memory, sched_slot slot)
{
    const struct entry *entry = entry_used(memory, slot);
    return blocks_with(memory, entry, entry->blocks.spans + 1) - entry->blocks.count;
}

/* Adds a span to an answer that would check more drafted tokens with it, unless the answers that
 * grow would then lack blocks for their next spans. */
static enum sched_memory_growth draft_grow(struct sched_memory *memory, uint32_t blocks_free,
                                           sched_slot *slot_out)
{
    const uint64_t reserve =
        (uint64_t)memory->counts.growing * layer_groups_count(&memory->options.groups);
    if (!sched_machine_draft_short_find(memory->sched, slot_out))
        return SCHED_GROWTH_DONE;
    const uint32_t wanted = span_blocks(memory, *slot_out);
    if (blocks_free < wanted + reserve)
        return SCHED_GROWTH_DONE;
    span_add(memory, *slot_out, wanted);
    return SCHED_GROWTH_SPAN;
}

enum sched_memory_growth sched_memory_grow(struct sched_memory *memory, uint32_t blocks_free,
                                           sched_slot *slot_out)
{
    if (!sched_machine_short_find(memory->sched, slot_out))
        return draft_grow(memory, blocks_free, slot_out);
    const uint32_t wanted = span_blocks(memory, *slot_out);
    if (blocks_free < wanted) /* A victim in a batch is waited for: the batch will end. */
        return sched_machine_victim_find(memory->sched, slot_out) ? SCHED_GROWTH_PREEMPT
                                                                  : SCHED_GROWTH_DONE;
    span_add(memory, *slot_out, wanted);
    return SCHED_GROWTH_SPAN;
}

/* A request whose prompt runs here may take all memory: its prompt uses the request's own blocks,
 * so it delays only requests that wait for memory on this machine. The others share what the
 * prompts' share leaves. A request that is larger than that, because the share was raised after its
 * arrival, may run when no other request holds a part of it. */
bool sched_memory_candidate_find(const struct sched_memory *memory, sched_slot *slot_out)
{
    if (!sched_machine_reserve_head(memory->sched, slot_out))
        return false;
    const struct entry *entry = entry_used(memory, *slot_out);
    uint32_t shared_max = memory->options.block_count - memory->prompt_share;
    uint32_t shared = memory->counts.shared_blocks;
    uint32_t room = shared_max > shared ? shared_max - shared : 0;
    bool larger = entry->blocks.count > shared_max && shared == 0;
    return entry->request.prompt_is_local || larger || entry->blocks.count <= room;
}

/* Without this reserve, the new request would soon preempt another one or be preempted. */
uint64_t sched_memory_growth_reserve(uint64_t total, uint32_t percent, uint64_t growing)
{
    uint64_t share = total * percent / 100;
    if (growing == 0)
        return 0;
    return share > growing ? share : growing;
}

bool sched_memory_grant(struct sched_memory *memory, sched_slot slot, uint32_t blocks_needed,
                        uint32_t blocks_free)
{
    struct entry *entry = entry_used(memory, slot);
    const uint64_t span_blocks = layer_groups_count(&memory->options.groups);
    uint64_t reserve = sched_memory_growth_reserve(memory->options.block_count,
                                                   memory->options.growth_reserve_percent,
                                                   memory->counts.growing * span_blocks);
    sched_slot granted;
    sched_machine_reserve_left_set(memory->sched, slot, blocks_needed);
    if (!sched_machine_reserve_next(
            memory->sched, blocks_free > reserve ? (uint32_t)(blocks_free - reserve) : 0, &granted))
        return false;
    assert(granted == slot);
    entry->blocks.granted = true;
    holder_count(memory, entry, 1);
    if (!entry->request.prompt_is_local)
        sched_machine_await_begin(memory->sched, slot);
    return true;
}

bool sched_memory_deadlock_victim(const struct sched_memory *memory, uint32_t blocks_free,
                                  uint32_t prompt_holders, sched_slot *slot_out)
{
    return sched_machine_deadlock_victim(memory->sched, blocks_free,
                                         memory->counts.holders + prompt_holders, slot_out);
}
