/* Goal: with several batches in flight and several paths the machine-level scheduler loses no
 * request, puts no request into two batches that must be in one, and starves no request. Method:
 * random arrivals, cancels, growth and batches that end at random times, in the order of each path,
 * compared with a plain table of requests and a block counter. After every event the load must
 * equal a recount; every batch is checked against the rules of machine.h. At the end no request
 * arrives, and all must end. In half of the runs requests have keys and priorities: then the order
 * of prompts is not checked, but their needs and what they leave to others are. */
#include "common/random.h"
#include "tests/check.h"
#include "tests/scheduler/flight_model.h"

#include <string.h>

#define EVENTS 4000
#define RUNS   160

static struct flight_model m;
static uint64_t arrivals;
static int64_t now_us;
static uint64_t seed;
static uint64_t draws;
static uint64_t victims, victims_awaited, stopped;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

/* ---- growth ---- */

static void leave(sched_slot slot)
{
    sched_machine_remove(m.sm, slot);
    m.blocks_free += m.requests[slot].held_blocks;
    m.requests[slot] = (struct request){.kind = UNKNOWN};
}

static bool victim_leaves(void)
{
    sched_slot victim = SCHED_NO_SLOT;
    bool found = sched_machine_victim_find(m.sm, &victim);
    CHECK(victim < SLOTS && m.requests[victim].kind == DECODING && !m.requests[victim].pinned);
    const struct sched_rank *rank = &m.requests[victim].rank;
    for (int i = 0; i < SLOTS; i++) {
        const struct request *other = &m.requests[i];
        if (other->kind == DECODING && !other->pinned)
            CHECK(other->rank.priority < rank->priority ||
                  (other->rank.priority == rank->priority && other->rank.born_us <= rank->born_us));
    }
    CHECK(found == (m.requests[victim].in_flight == 0));
    victims += found;
    victims_awaited += !found;
    if (found)
        leave(victim);
    return found;
}

/* Gives only some decodes the blocks that they need. A decode without its blocks is in no batch. */
static void decodes_grow(void)
{
    sched_slot slot;
    while (draw(20) > 0 && sched_machine_short_find(m.sm, &slot)) {
        CHECK(m.requests[slot].kind == DECODING && m.requests[slot].room == 0);
        CHECK(m.requests[slot].in_flight == 0);
        if (m.blocks_free == 0) {
            if (!victim_leaves())
                break;
            continue;
        }
        uint32_t tokens = 1 + draw(16);
        m.blocks_free--;
        m.requests[slot].held_blocks++;
        m.requests[slot].room += tokens;
        sched_machine_decode_grow(m.sm, slot, tokens);
    }
    for (int i = 0; i < SLOTS; i++) /* Decodes without room are left out of the check of turns. */
        if (m.requests[i].kind == DECODING && m.requests[i].room == 0)
            m.requests[i].last_batch = m.paths[m.requests[i].path].batch_count;
}

/* ---- batches ---- */

static void batch_start(uint32_t index)
{
    struct path *path = &m.paths[index];
    static struct sched_batch batch;
    sched_machine_time_set(m.sm, now_us += draw(50));
    decodes_grow();
    bool could_prompt = flight_prompt_can_run(&m, index);
    bool any = sched_machine_batch_next(m.sm, index, m.blocks_free, &batch);
    CHECK(any == (batch.item_count > 0));
    if (path->in_flight_count == m.options.batches_in_flight) {
        CHECK(!any);
        return;
    }
    if (!any) {
        CHECK(m.ranked || !could_prompt);
        for (int i = 0; i < SLOTS && flight_decode_batches(path) < flight_decode_most(&m); i++)
            CHECK(m.requests[i].kind != DECODING || m.requests[i].path != index ||
                  m.requests[i].room == 0 || m.requests[i].in_flight > 0);
        return;
    }
    CHECK(batch.path == index && batch.index < m.options.path_count * m.options.batches_in_flight);
    for (uint32_t p = 0; p < m.options.path_count; p++)
        for (uint32_t i = 0; i < m.paths[p].in_flight_count; i++)
            CHECK(m.paths[p].batches_in_flight[i].index != batch.index);
    path->batch_count++;
    flight_take(&m, &batch, could_prompt);
    path->batches_in_flight[path->in_flight_count++] = batch;
    flight_check_turns(&m, index);
}

static void item_end(const struct sched_batch_item *item)
{
    struct request *request = &m.requests[item->slot];
    CHECK(request->in_flight > 0);
    request->in_flight--;
    if (item->is_prompt) {
        CHECK(item->first_token == request->computed_tokens);
        request->computed_tokens += item->token_count;
        if (request->computed_tokens == request->tokens)
            request->kind = PROMPT_ENDED;
    } else {
        request->room--;
        if (--request->tokens == 0)
            request->kind = DECODE_ENDED;
    }
    if (request->cancelled && request->in_flight == 0)
        leave(item->slot);
}

static void batch_end(uint32_t index)
{
    struct path *path = &m.paths[index];
    uint32_t oldest;
    CHECK(sched_machine_batch_oldest(m.sm, index, &oldest) == (path->in_flight_count > 0));
    if (path->in_flight_count == 0)
        return;
    static struct sched_batch batch;
    batch = path->batches_in_flight[0];
    CHECK(oldest == batch.index);
    sched_machine_batch_done(m.sm, batch.index);
    memmove(path->batches_in_flight, path->batches_in_flight + 1,
            --path->in_flight_count * sizeof(batch));
    for (uint32_t i = 0; i < batch.item_count; i++)
        item_end(&batch.items[i]);
}

/* ---- requests ---- */

static void rank_draw(struct request *request)
{
    if (m.ranked)
        request->rank = (struct sched_rank){.key = draw(3),
                                            .weight = draw(4),
                                            .priority = (int32_t)draw(3) - 1,
                                            .resumed = draw(6) == 0};
    request->rank.born_us = now_us - draw(1000);
}

static void prompt_arrives(sched_slot slot, uint32_t blocks)
{
    struct request *request = &m.requests[slot];
    request->kind = WAITING;
    request->path = draw(m.options.path_count);
    request->tokens = 1 + (draw(4) == 0 ? draw(3 * m.options.prompt_batch_tokens) : draw(300));
    request->scheduled_tokens = request->computed_tokens = 0;
    request->blocks = blocks;
    request->arrival = arrivals++;
    rank_draw(request);
    sched_machine_prompt_add(m.sm, slot, request->path, request->tokens, blocks,
                             m.ranked ? &request->rank : NULL);
}

static void decode_arrives(sched_slot slot)
{
    struct request *request = &m.requests[slot];
    if (request->kind == BOOKED)
        request->path = draw(m.options.path_count);
    request->kind = DECODING;
    request->tokens = 1 + draw(40);
    request->last_batch = m.paths[request->path].batch_count;
    request->pinned = draw(3) == 0;
    request->room = request->pinned ? request->tokens : draw(request->tokens + 1);
    const struct sched_decode decode = {.path = request->path,
                                        .tokens_left = request->tokens,
                                        .room_tokens = request->room,
                                        .rank = request->rank,
                                        .pinned = request->pinned};
    sched_machine_decode_add(m.sm, slot, &decode);
}

static void reservations_give(void)
{
    sched_slot slot;
    while (sched_machine_reserve_next(m.sm, m.blocks_free, &slot)) {
        CHECK(slot < SLOTS && m.requests[slot].kind == RESERVING);
        CHECK(m.requests[slot].blocks <= m.blocks_free);
        m.requests[slot].kind = BOOKED;
        m.requests[slot].held_blocks = m.requests[slot].blocks;
        m.blocks_free -= m.requests[slot].blocks;
    }
}

/* Takes the request's next step, as the scheduler's caller would. arrive: new requests may
 * arrive. */
static void advance(sched_slot slot, bool arrive)
{
    struct request *request = &m.requests[slot];
    if (request->kind == UNKNOWN && arrive && draw(2) == 0) {
        prompt_arrives(slot, 1 + draw(m.blocks_total / 2));
    } else if (request->kind == UNKNOWN && arrive) {
        request->kind = RESERVING;
        request->blocks = 1 + draw(m.blocks_total / 2);
        rank_draw(request);
        sched_machine_reserve_add(m.sm, slot, request->blocks, 16 * request->blocks,
                                  m.ranked ? &request->rank : NULL);
    } else if (request->kind == BOOKED && draw(2) == 0) {
        prompt_arrives(slot, 0);
    } else if (request->kind == BOOKED || (request->kind == PROMPT_ENDED && draw(2) == 0)) {
        decode_arrives(slot);
    } else if (request->kind == PROMPT_ENDED || request->kind == DECODE_ENDED) {
        leave(slot);
    }
}

static void cancel(sched_slot slot)
{
    struct request *request = &m.requests[slot];
    if (request->in_flight == 0) {
        leave(slot);
        return;
    }
    stopped += request->kind == RUNNING && request->scheduled_tokens < request->tokens;
    request->cancelled = true;
    sched_machine_stop(m.sm, slot);
}

/* The prefix cache has more or less of some prompts that wait. */
static void prompts_change(uint32_t path)
{
    for (sched_slot slot = SCHED_NO_SLOT; sched_machine_prompt_after(m.sm, path, slot, &slot);) {
        struct request *request = &m.requests[slot];
        CHECK(flight_waits(request, path, true));
        if (draw(4) != 0)
            continue;
        request->tokens = 1 + draw(2 * request->tokens);
        request->blocks = 1 + draw(request->blocks);
        sched_machine_prompt_left_set(m.sm, slot, request->tokens, request->blocks);
    }
}

static void event(bool arrive)
{
    sched_slot slot = draw(SLOTS);
    uint32_t path = draw(m.options.path_count);
    switch (draw(9)) {
    case 0:
        reservations_give();
        break;
    case 1:
    case 2:
    case 3:
        batch_start(path);
        break;
    case 4:
    case 5:
        batch_end(path);
        break;
    case 6:
        prompts_change(path);
        break;
    case 7:
        if (draw(6) == 0 && !m.requests[slot].cancelled)
            cancel(slot);
        break;
    default:
        if (m.requests[slot].in_flight == 0)
            advance(slot, arrive);
        break;
    }
    flight_check_load(&m);
}

static void simulate(uint64_t run)
{
    static const uint32_t sequences[] = {1, 2, 5, 256};
    static const uint32_t budgets[] = {16, 100, 512, 2048, 4096};
    m.options = (struct sched_machine_options){
        .slot_count = SLOTS,
        .prompt_fill_tokens = run % 3 == 0 ? 0 : 1 + draw(300),
        .prompt_batch_tokens = budgets[draw(5)],
        .mixed_prompt_tokens = budgets[draw(5)],
        .batch_sequences_max = sequences[run % 4],
        .ageing_us = draw(2) * 20000,
        .path_count = 1 + draw(PATHS),
        .batches_in_flight = draw(8) == 0 ? 1 : 2 + draw(FLIGHT - 1),
        .micro_batch_tokens = draw(4) == 0 ? 0 : 16 + draw(300),
    };
    if (draw(2) == 0)
        m.options.decode_batches_in_flight = 1 + draw(m.options.batches_in_flight);
    m.ranked = run % 8 >= 4;
    now_us = 0;
    memset(m.requests, 0, sizeof(m.requests));
    memset(m.paths, 0, sizeof(m.paths));
    m.blocks_free = m.blocks_total = 20 + draw(200);
    CHECK(sched_machine_open(&m.options, &m.sm) == ST_OK);
    for (int i = 0; i < EVENTS; i++)
        event(true);
    bool busy = true;
    for (uint32_t events = 0; busy; events++) {
        CHECKF(events < 400000, "run %" PRIu64 " does not end", run);
        event(false);
        busy = false;
        for (int i = 0; i < SLOTS && !busy; i++)
            busy = m.requests[i].kind != UNKNOWN;
    }
    CHECK(m.blocks_free == m.blocks_total);
    sched_machine_close(m.sm);
}

int main(void)
{
    seed = test_seed();
    for (uint64_t run = 0; run < RUNS; run++)
        simulate(run);
    printf("%" PRIu64 " victims, %" PRIu64 " awaited, %" PRIu64 " chunks behind chunks, %" PRIu64
           " prompts stopped, %" PRIu64 " begun in what was left\n",
           victims, victims_awaited, m.chunks_behind, stopped, m.prompts_cut_in);
    CHECK(victims > 100 && victims_awaited > 100 && m.chunks_behind > 1000 && stopped > 10 &&
          m.prompts_cut_in > 100); /* Each of these cases happened. */
    return 0;
}
