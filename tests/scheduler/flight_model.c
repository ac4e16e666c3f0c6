/* flight_model: see the header. */
#include "tests/scheduler/flight_model.h"

#include "tests/check.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

bool flight_waits(const struct request *request, uint32_t path, bool needs_blocks)
{
    return request->kind == WAITING && request->path == path &&
           (request->blocks > 0) == needs_blocks;
}

/* Returns the path's prompt that has chunks left, or NULL. */
static const struct request *running_on(const struct flight_model *m, uint32_t path)
{
    const struct request *found = NULL;
    for (int i = 0; i < SLOTS; i++) {
        const struct request *request = &m->requests[i];
        if (request->kind != RUNNING || request->path != path || request->cancelled ||
            request->scheduled_tokens == request->tokens)
            continue;
        CHECK(found == NULL); /* At most one prompt of a path runs. */
        found = request;
    }
    return found;
}

void flight_check_load(const struct flight_model *m)
{
    struct sched_machine_load load;
    struct sched_machine_load count = {0};
    uint32_t held = 0;
    for (int i = 0; i < SLOTS; i++) {
        const struct request *request = &m->requests[i];
        count.prompts_waiting += request->kind == WAITING;
        count.prompts_running += request->kind == RUNNING;
        if (request->kind == WAITING || request->kind == RUNNING)
            count.prompt_tokens_pending += request->tokens - request->computed_tokens;
        count.reservations_waiting += request->kind == RESERVING;
        count.decodes_running += request->kind == DECODING;
        count.decode_tokens_pending += request->kind == DECODING ? request->tokens : 0;
        CHECK(sched_machine_in_batch(m->sm, (sched_slot)i) == (request->in_flight > 0));
        held += request->held_blocks;
    }
    CHECK(held + m->blocks_free == m->blocks_total);
    count.prompt_tokens_open = count.prompt_tokens_pending;
    for (uint32_t path = 0; path < m->options.path_count; path++) {
        const struct request *running = running_on(m, path);
        count.prompt_tokens_open += running != NULL ? running->computed_tokens : 0;
    }
    sched_machine_load(m->sm, &load);
    CHECK(load.prompts_waiting == count.prompts_waiting);
    CHECK(load.prompts_running == count.prompts_running);
    CHECK(load.prompt_tokens_pending == count.prompt_tokens_pending);
    CHECK(load.prompt_tokens_open == count.prompt_tokens_open);
    CHECK(load.reservations_waiting == count.reservations_waiting);
    CHECK(load.decodes_running == count.decodes_running);
    CHECK(load.decode_tokens_pending == count.decode_tokens_pending);
}

/* ---- what a batch must be like ---- */

/* Returns the blocks that earlier prompts at the head of other paths need. For requests without
 * ranks. */
static uint64_t kept_for_others(const struct flight_model *m, const struct request *prompt)
{
    uint64_t kept = 0;
    sched_slot head;
    for (uint32_t path = 0; path < m->options.path_count; path++)
        if (path != prompt->path && sched_machine_prompt_after(m->sm, path, SCHED_NO_SLOT, &head) &&
            m->requests[head].arrival < prompt->arrival)
            kept += m->requests[head].blocks;
    return kept;
}

bool flight_prompt_can_run(const struct flight_model *m, uint32_t path)
{
    sched_slot head;
    if (running_on(m, path) != NULL)
        return true;
    for (int i = 0; i < SLOTS; i++)
        if (flight_waits(&m->requests[i], path, false))
            return true;
    return sched_machine_prompt_after(m->sm, path, SCHED_NO_SLOT, &head) &&
           m->requests[head].blocks + kept_for_others(m, &m->requests[head]) <= m->blocks_free;
}

static void check_decode(const struct flight_model *m, const struct sched_batch *batch,
                         const struct sched_batch_item *item)
{
    const struct request *request = &m->requests[item->slot];
    CHECK(request->kind == DECODING && request->path == batch->path && !request->cancelled);
    CHECK(request->in_flight == 0 && request->room > 0 && item->token_count == 1);
}

static void check_chunk(struct flight_model *m, const struct sched_batch *batch,
                        const struct sched_batch_item *item, bool first)
{
    const struct request *request = &m->requests[item->slot];
    CHECK(request->kind == WAITING || request->kind == RUNNING);
    CHECK(request->path == batch->path && !request->cancelled);
    CHECK(item->token_count > 0 && item->first_token == request->scheduled_tokens);
    CHECK(item->is_first_chunk == (request->kind == WAITING));
    CHECK(item->first_token + item->token_count <= request->tokens);
    CHECK(item->is_last_chunk == (item->first_token + item->token_count == request->tokens));
    CHECK(item->is_last_chunk || item->token_count % 16 == 0);
    CHECK(first || request->kind == WAITING);
    if (item->is_first_chunk && !item->is_last_chunk && !first) {
        CHECK(m->options.batches_in_flight > 1);
        m->prompts_cut_in++;
    }
    m->chunks_behind += request->scheduled_tokens > request->computed_tokens;
}

/* Earlier prompts of the path that still wait lack blocks, and enough blocks are left for earlier
 * prompts of other paths. For requests without ranks; call before the batch's own blocks are
 * taken. */
static void check_order(const struct flight_model *m, const struct request *starting)
{
    for (int i = 0; i < SLOTS; i++) {
        const struct request *older = &m->requests[i];
        if (older->kind == WAITING && older->path == starting->path &&
            older->arrival < starting->arrival)
            CHECK(starting->blocks == 0 && older->blocks > 0);
    }
    if (starting->blocks > 0)
        CHECK(starting->blocks + kept_for_others(m, starting) <= m->blocks_free);
}

uint32_t flight_decode_most(const struct flight_model *m)
{
    return m->options.decode_batches_in_flight > 0 ? m->options.decode_batches_in_flight
                                                   : m->options.batches_in_flight;
}

uint32_t flight_decode_batches(const struct path *path)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < path->in_flight_count; i++)
        count += path->batches_in_flight[i].items[0].is_prompt ? 0 : 1;
    return count;
}

/* The batch has as many decodes as its share, its places and the idle decodes allow. */
static void check_part(const struct flight_model *m, const struct sched_batch *batch,
                       uint32_t decodes, uint32_t prompts, bool could_prompt)
{
    uint32_t idle = 0;
    uint32_t able = 0;
    uint32_t places = m->options.batch_sequences_max;
    for (int i = 0; i < SLOTS; i++) {
        const struct request *request = &m->requests[i];
        bool runs = request->kind == DECODING && request->path == batch->path && request->room > 0;
        able += runs;
        idle += runs && request->in_flight == 0;
    }
    uint32_t flights = flight_decode_most(m);
    /* Batches without decodes, this one included. */
    uint32_t free = flights - flight_decode_batches(&m->paths[batch->path]);
    uint32_t part = (able + flights - 1) / flights;
    part = free == 0 ? 0 : least(part, (idle + free - 1) / free);
    CHECKF(decodes <= part, "%u decodes of %u", decodes, able);
    if (m->ranked || places == 1) {
        CHECK(idle == 0 || free == 0 || batch->item_count > 0);
        return;
    }
    CHECKF(decodes == least(least(idle, part), could_prompt ? places - 1 : places),
           "%u decodes, %u of %u idle", decodes, idle, able);
    CHECK(!could_prompt || prompts > 0);
}

/* Marks the batch's items as in flight, in the batch's order. */
static void batch_take(struct flight_model *m, const struct sched_batch *batch)
{
    struct path *path = &m->paths[batch->path];
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct sched_batch_item *item = &batch->items[i];
        struct request *request = &m->requests[item->slot];
        request->in_flight++;
        if (!item->is_prompt) {
            request->last_batch = path->batch_count;
            continue;
        }
        if (item->is_first_chunk) {
            CHECK(request->blocks <= m->blocks_free);
            if (!m->ranked)
                check_order(m, request);
            request->kind = RUNNING;
            request->held_blocks += request->blocks;
            m->blocks_free -= request->blocks;
        }
        request->scheduled_tokens += item->token_count;
    }
}

void flight_take(struct flight_model *m, const struct sched_batch *batch, bool could_prompt)
{
    uint32_t rows = 0;
    uint32_t decodes = 0;
    uint32_t prompts = 0;
    bool seen[SLOTS] = {false};
    bool ended_before = true;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct sched_batch_item *item = &batch->items[i];
        CHECK(item->slot < SLOTS && !seen[item->slot]);
        seen[item->slot] = true;
        rows += item->token_count;
        if (!item->is_prompt) {
            CHECK(prompts == 0);
            check_decode(m, batch, item);
            decodes++;
            continue;
        }
        CHECK(ended_before);
        check_chunk(m, batch, item, prompts == 0);
        ended_before = item->is_last_chunk;
        prompts++;
    }
    uint32_t budget = m->options.prompt_batch_tokens;
    if (m->options.batches_in_flight > 1 && m->options.micro_batch_tokens > 0)
        budget = least(budget, m->options.micro_batch_tokens);
    if (decodes > 0)
        budget = least(budget, m->options.mixed_prompt_tokens);
    budget = least(budget, LIMIT_BATCH_TOKENS - decodes);
    CHECK(rows == batch->row_count && rows <= LIMIT_BATCH_TOKENS && rows - decodes <= budget);
    CHECK(batch->item_count <= m->options.batch_sequences_max);
    check_part(m, batch, decodes, prompts, could_prompt);
    batch_take(m, batch);
    /* A micro-batch is full, unless nothing is left for it. */
    bool full = batch->item_count == m->options.batch_sequences_max || rows - decodes + 16 > budget;
    if (!m->ranked && prompts > 0 && m->options.batches_in_flight > 1)
        CHECK(full || !flight_prompt_can_run(m, batch->path));
}

/* Decodes take turns. A prompt may take one place of each batch, or every other batch if a batch
 * has only one place. A batch takes only its share of the decodes, so a round needs a batch more
 * for each one in flight. */
void flight_check_turns(const struct flight_model *m, uint32_t path)
{
    uint32_t places = m->options.batch_sequences_max > 1 ? m->options.batch_sequences_max - 1 : 1;
    uint32_t most = 2 * ((SLOTS + places - 1) / places + m->options.batches_in_flight) + 2;
    for (int i = 0; i < SLOTS; i++)
        if (m->requests[i].kind == DECODING && m->requests[i].path == path)
            CHECK(m->paths[path].batch_count - m->requests[i].last_batch <= most);
}
