/* Goal: with several batches in flight and several paths the machine-level scheduler loses no
 * request, gives none to two batches that must be in one, and starves nobody. Method: random
 * arrivals, cancels, growth and batches that end at random times, in the order of each path,
 * against a plain table of requests and a block counter. After every event the load must equal a
 * recount; every batch is checked against the rules of machine.h. At the end nothing new comes, and
 * all must end. In half of the runs requests have keys and priorities: then the order of prompts is
 * not looked at, apart from what they need and what they leave to others. */
#include "common/random.h"
#include "scheduler/machine.h"
#include "tests/check.h"

#include <stdbool.h>
#include <string.h>

#define SLOTS  48
#define EVENTS 4000
#define RUNS   160
#define PATHS  3
#define FLIGHT 5

enum kind { UNKNOWN, RESERVING, BOOKED, WAITING, RUNNING, PROMPT_ENDED, DECODING, DECODE_ENDED };

struct request {
    enum kind kind;
    uint32_t path;
    uint32_t tokens;    /* of the prompt, or left to decode */
    uint32_t given;     /* of the prompt, to batches */
    uint32_t done;      /* of these, computed */
    uint32_t in_flight; /* batches that it is in */
    uint32_t blocks;    /* asked for by prompt or reservation */
    uint32_t held;
    uint32_t room; /* of a decode */
    uint64_t arrival;
    struct sched_rank rank;
    bool pinned;
    bool doomed;        /* cancelled while in flight */
    uint64_t last_turn; /* of a decode: batches of its path before */
};

struct path {
    struct sched_batch flying[FLIGHT]; /* the oldest first */
    uint32_t count;
    uint64_t batches;
    bool had_prompt; /* its last batch */
};

static struct request requests[SLOTS];
static struct path paths[PATHS];
static struct sched_machine_options options;
static struct sched_machine *sm;
static uint32_t blocks_total;
static uint32_t blocks_free;
static uint64_t arrivals;
static int64_t now_us;
static uint64_t seed;
static uint64_t draws;
static bool ranked;
static uint64_t victims, victims_awaited, chunks_behind, stopped, cut_in;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool waits(const struct request *request, uint32_t path, bool needs_blocks)
{
    return request->kind == WAITING && request->path == path &&
           (request->blocks > 0) == needs_blocks;
}

static void check_load(void)
{
    struct sched_machine_load load;
    struct sched_machine_load count = {0};
    uint32_t held = 0;
    for (int i = 0; i < SLOTS; i++) {
        const struct request *request = &requests[i];
        count.prompts_waiting += request->kind == WAITING;
        count.prompts_running += request->kind == RUNNING;
        if (request->kind == WAITING || request->kind == RUNNING)
            count.prompt_tokens_pending += request->tokens - request->done;
        count.reservations_waiting += request->kind == RESERVING;
        count.decodes_running += request->kind == DECODING;
        count.decode_tokens_pending += request->kind == DECODING ? request->tokens : 0;
        CHECK(sched_machine_in_batch(sm, (sched_slot)i) == (request->in_flight > 0));
        held += request->held;
    }
    CHECK(held + blocks_free == blocks_total);
    sched_machine_load(sm, &load);
    CHECK(load.prompts_waiting == count.prompts_waiting);
    CHECK(load.prompts_running == count.prompts_running);
    CHECK(load.prompt_tokens_pending == count.prompt_tokens_pending);
    CHECK(load.reservations_waiting == count.reservations_waiting);
    CHECK(load.decodes_running == count.decodes_running);
    CHECK(load.decode_tokens_pending == count.decode_tokens_pending);
}

/* ---- what a batch must be like ---- */

/* The prompt of the path that has chunks left, or NULL. */
static const struct request *running_on(uint32_t path)
{
    const struct request *found = NULL;
    for (int i = 0; i < SLOTS; i++) {
        const struct request *request = &requests[i];
        if (request->kind != RUNNING || request->path != path || request->doomed ||
            request->given == request->tokens)
            continue;
        CHECK(found == NULL); /* one at most */
        found = request;
    }
    return found;
}

/* Blocks for prompts at the head of other paths that came before. (Unranked.) */
static uint64_t kept_for_others(const struct request *prompt)
{
    uint64_t kept = 0;
    sched_slot head;
    for (uint32_t path = 0; path < options.path_count; path++)
        if (path != prompt->path && sched_machine_prompt_after(sm, path, SCHED_NO_SLOT, &head) &&
            requests[head].arrival < prompt->arrival)
            kept += requests[head].blocks;
    return kept;
}

/* Could a prompt of the path start, or go on, with what is free? Unranked. */
static bool prompt_can_run(uint32_t path)
{
    sched_slot head;
    if (running_on(path) != NULL)
        return true;
    for (int i = 0; i < SLOTS; i++)
        if (waits(&requests[i], path, false))
            return true;
    return sched_machine_prompt_after(sm, path, SCHED_NO_SLOT, &head) &&
           requests[head].blocks + kept_for_others(&requests[head]) <= blocks_free;
}

static void check_decode(const struct sched_batch *batch, const struct sched_batch_item *item)
{
    const struct request *request = &requests[item->slot];
    CHECK(request->kind == DECODING && request->path == batch->path && !request->doomed);
    CHECK(request->in_flight == 0 && request->room > 0 && item->token_count == 1);
}

static void check_chunk(const struct sched_batch *batch, const struct sched_batch_item *item,
                        bool first)
{
    const struct request *request = &requests[item->slot];
    CHECK(request->kind == WAITING || request->kind == RUNNING);
    CHECK(request->path == batch->path && !request->doomed);
    CHECK(item->token_count > 0 && item->first_token == request->given);
    CHECK(item->starts == (request->kind == WAITING));
    CHECK(item->first_token + item->token_count <= request->tokens);
    CHECK(item->ends == (item->first_token + item->token_count == request->tokens));
    CHECK(item->ends || item->token_count % 16 == 0);
    CHECK(first || request->kind == WAITING);
    if (item->starts && !item->ends && !first) {
        CHECK(options.batches_in_flight > 1);
        cut_in++;
    }
    chunks_behind += request->given > request->done;
}

/* Whoever of this path came before it and still waits lacks blocks; and so many are left for those
 * of other paths. Before the batch's own are taken: unranked. */
static void check_order(const struct request *starting)
{
    for (int i = 0; i < SLOTS; i++) {
        const struct request *older = &requests[i];
        if (older->kind == WAITING && older->path == starting->path &&
            older->arrival < starting->arrival)
            CHECK(starting->blocks == 0 && older->blocks > 0);
    }
    if (starting->blocks > 0)
        CHECK(starting->blocks + kept_for_others(starting) <= blocks_free);
}

static uint32_t decode_flights(void)
{
    return options.decode_batches_in_flight > 0 ? options.decode_batches_in_flight
                                                : options.batches_in_flight;
}

/* Of the path's batches in flight, those that have decodes. */
static uint32_t decode_batches(const struct path *path)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < path->count; i++)
        count += path->flying[i].items[0].prompt ? 0 : 1;
    return count;
}

/* As many decodes as its part, its places and those that are idle allow. */
static void check_part(const struct sched_batch *batch, uint32_t decodes, uint32_t prompts,
                       bool could_prompt)
{
    uint32_t idle = 0;
    uint32_t able = 0;
    uint32_t places = options.batch_sequences_max;
    for (int i = 0; i < SLOTS; i++) {
        const struct request *request = &requests[i];
        bool runs = request->kind == DECODING && request->path == batch->path && request->room > 0;
        able += runs;
        idle += runs && request->in_flight == 0;
    }
    uint32_t flights = decode_flights();
    uint32_t free = flights - decode_batches(&paths[batch->path]); /* this one with it */
    uint32_t part = (able + flights - 1) / flights;
    part = free == 0 ? 0 : least(part, (idle + free - 1) / free);
    CHECKF(decodes <= part, "%u decodes of %u", decodes, able);
    if (ranked || places == 1) {
        CHECK(idle == 0 || free == 0 || batch->item_count > 0);
        return;
    }
    CHECKF(decodes == least(least(idle, part), could_prompt ? places - 1 : places),
           "%u decodes, %u of %u idle", decodes, idle, able);
    CHECK(!could_prompt || prompts > 0);
}

/* The order in which items are taken is that in which they stand. */
static void batch_take(const struct sched_batch *batch)
{
    struct path *path = &paths[batch->path];
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct sched_batch_item *item = &batch->items[i];
        struct request *request = &requests[item->slot];
        request->in_flight++;
        if (!item->prompt) {
            request->last_turn = path->batches;
            continue;
        }
        if (item->starts) {
            CHECK(request->blocks <= blocks_free);
            if (!ranked)
                check_order(request);
            request->kind = RUNNING;
            request->held += request->blocks;
            blocks_free -= request->blocks;
        }
        request->given += item->token_count;
    }
}

static void check_batch(const struct sched_batch *batch, bool could_prompt)
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
        if (!item->prompt) {
            CHECK(prompts == 0);
            check_decode(batch, item);
            decodes++;
            continue;
        }
        CHECK(ended_before);
        check_chunk(batch, item, prompts == 0);
        ended_before = item->ends;
        prompts++;
    }
    uint32_t budget = options.prompt_batch_tokens;
    if (options.batches_in_flight > 1 && options.micro_batch_tokens > 0)
        budget = least(budget, options.micro_batch_tokens);
    if (decodes > 0)
        budget = least(budget, options.mixed_prompt_tokens);
    budget = least(budget, LIMIT_BATCH_TOKENS - decodes);
    CHECK(rows == batch->row_count && rows <= LIMIT_BATCH_TOKENS && rows - decodes <= budget);
    CHECK(batch->item_count <= options.batch_sequences_max);
    check_part(batch, decodes, prompts, could_prompt);
    batch_take(batch);
    /* A micro-batch is full, unless nothing is left for it. */
    bool full = batch->item_count == options.batch_sequences_max || rows - decodes + 16 > budget;
    if (!ranked && prompts > 0 && options.batches_in_flight > 1)
        CHECK(full || !prompt_can_run(batch->path));
}

/* ---- growth ---- */

static void leave(sched_slot slot)
{
    sched_machine_remove(sm, slot);
    blocks_free += requests[slot].held;
    requests[slot] = (struct request){.kind = UNKNOWN};
}

static bool victim_leaves(void)
{
    sched_slot victim = SCHED_NO_SLOT;
    bool found = sched_machine_victim(sm, &victim);
    CHECK(victim < SLOTS && requests[victim].kind == DECODING && !requests[victim].pinned);
    const struct sched_rank *rank = &requests[victim].rank;
    for (int i = 0; i < SLOTS; i++) {
        const struct request *other = &requests[i];
        if (other->kind == DECODING && !other->pinned)
            CHECK(other->rank.priority < rank->priority ||
                  (other->rank.priority == rank->priority && other->rank.born_us <= rank->born_us));
    }
    CHECK(found == (requests[victim].in_flight == 0));
    victims += found;
    victims_awaited += !found;
    if (found)
        leave(victim);
    return found;
}

/* Sometimes less than all of it: whoever is short is in no batch. */
static void decodes_grow(void)
{
    sched_slot slot;
    while (draw(20) > 0 && sched_machine_short(sm, &slot)) {
        CHECK(requests[slot].kind == DECODING && requests[slot].room == 0);
        CHECK(requests[slot].in_flight == 0);
        if (blocks_free == 0) {
            if (!victim_leaves())
                break;
            continue;
        }
        uint32_t tokens = 1 + draw(16);
        blocks_free--;
        requests[slot].held++;
        requests[slot].room += tokens;
        sched_machine_grown(sm, slot, tokens);
    }
    for (int i = 0; i < SLOTS; i++) /* their turns are not counted */
        if (requests[i].kind == DECODING && requests[i].room == 0)
            requests[i].last_turn = paths[requests[i].path].batches;
}

/* ---- batches ---- */

/* Round robin: with all places but one, or every other batch for one of them; and a batch takes its
 * part, so it needs as many as are in flight. */
static void check_turns(uint32_t path)
{
    uint32_t places = options.batch_sequences_max > 1 ? options.batch_sequences_max - 1 : 1;
    uint32_t most = 2 * ((SLOTS + places - 1) / places + options.batches_in_flight) + 2;
    for (int i = 0; i < SLOTS; i++)
        if (requests[i].kind == DECODING && requests[i].path == path)
            CHECK(paths[path].batches - requests[i].last_turn <= most);
}

static void batch_start(uint32_t index)
{
    struct path *path = &paths[index];
    static struct sched_batch batch;
    sched_machine_time(sm, now_us += draw(50));
    decodes_grow();
    bool could_prompt = prompt_can_run(index);
    bool any = sched_machine_batch_next(sm, index, blocks_free, &batch);
    CHECK(any == (batch.item_count > 0));
    if (path->count == options.batches_in_flight) {
        CHECK(!any);
        return;
    }
    if (!any) {
        CHECK(ranked || !could_prompt);
        for (int i = 0; i < SLOTS && decode_batches(path) < decode_flights(); i++)
            CHECK(requests[i].kind != DECODING || requests[i].path != index ||
                  requests[i].room == 0 || requests[i].in_flight > 0);
        return;
    }
    CHECK(batch.path == index && batch.index < options.path_count * options.batches_in_flight);
    for (uint32_t p = 0; p < options.path_count; p++)
        for (uint32_t i = 0; i < paths[p].count; i++)
            CHECK(paths[p].flying[i].index != batch.index);
    path->batches++;
    check_batch(&batch, could_prompt);
    path->flying[path->count++] = batch;
    check_turns(index);
}

static void item_end(const struct sched_batch_item *item)
{
    struct request *request = &requests[item->slot];
    CHECK(request->in_flight > 0);
    request->in_flight--;
    if (item->prompt) {
        CHECK(item->first_token == request->done);
        request->done += item->token_count;
        if (request->done == request->tokens)
            request->kind = PROMPT_ENDED;
    } else {
        request->room--;
        if (--request->tokens == 0)
            request->kind = DECODE_ENDED;
    }
    if (request->doomed && request->in_flight == 0)
        leave(item->slot);
}

static void batch_end(uint32_t index)
{
    struct path *path = &paths[index];
    uint32_t oldest;
    CHECK(sched_machine_batch_oldest(sm, index, &oldest) == (path->count > 0));
    if (path->count == 0)
        return;
    static struct sched_batch batch;
    batch = path->flying[0];
    CHECK(oldest == batch.index);
    sched_machine_batch_done(sm, batch.index);
    memmove(path->flying, path->flying + 1, --path->count * sizeof(batch));
    for (uint32_t i = 0; i < batch.item_count; i++)
        item_end(&batch.items[i]);
}

/* ---- requests ---- */

static void rank_draw(struct request *request)
{
    if (ranked)
        request->rank = (struct sched_rank){.key = draw(3),
                                            .weight = draw(4),
                                            .priority = (int32_t)draw(3) - 1,
                                            .resumed = draw(6) == 0};
    request->rank.born_us = now_us - draw(1000);
}

static void prompt_arrives(sched_slot slot, uint32_t blocks)
{
    struct request *request = &requests[slot];
    request->kind = WAITING;
    request->path = draw(options.path_count);
    request->tokens = 1 + (draw(4) == 0 ? draw(3 * options.prompt_batch_tokens) : draw(300));
    request->given = request->done = 0;
    request->blocks = blocks;
    request->arrival = arrivals++;
    rank_draw(request);
    sched_machine_prompt_add(sm, slot, request->path, request->tokens, blocks,
                             ranked ? &request->rank : NULL);
}

static void decode_arrives(sched_slot slot)
{
    struct request *request = &requests[slot];
    if (request->kind == BOOKED)
        request->path = draw(options.path_count);
    request->kind = DECODING;
    request->tokens = 1 + draw(40);
    request->last_turn = paths[request->path].batches;
    request->pinned = draw(3) == 0;
    request->room = request->pinned ? request->tokens : draw(request->tokens + 1);
    const struct sched_decode decode = {.path = request->path,
                                        .tokens_left = request->tokens,
                                        .room = request->room,
                                        .rank = request->rank,
                                        .pinned = request->pinned};
    sched_machine_decode_add(sm, slot, &decode);
}

static void reservations_give(void)
{
    sched_slot slot;
    while (sched_machine_reserve_next(sm, blocks_free, &slot)) {
        CHECK(slot < SLOTS && requests[slot].kind == RESERVING);
        CHECK(requests[slot].blocks <= blocks_free);
        requests[slot].kind = BOOKED;
        requests[slot].held = requests[slot].blocks;
        blocks_free -= requests[slot].blocks;
    }
}

/* What its caller does with a request next. `arrive`: new ones may come. */
static void advance(sched_slot slot, bool arrive)
{
    struct request *request = &requests[slot];
    if (request->kind == UNKNOWN && arrive && draw(2) == 0) {
        prompt_arrives(slot, 1 + draw(blocks_total / 2));
    } else if (request->kind == UNKNOWN && arrive) {
        request->kind = RESERVING;
        request->blocks = 1 + draw(blocks_total / 2);
        rank_draw(request);
        sched_machine_reserve_add(sm, slot, request->blocks, 16 * request->blocks,
                                  ranked ? &request->rank : NULL);
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
    struct request *request = &requests[slot];
    if (request->in_flight == 0) {
        leave(slot);
        return;
    }
    stopped += request->kind == RUNNING && request->given < request->tokens;
    request->doomed = true;
    sched_machine_stop(sm, slot);
}

/* A cache has more, or less, of some prompts that wait. */
static void prompts_change(uint32_t path)
{
    for (sched_slot slot = SCHED_NO_SLOT; sched_machine_prompt_after(sm, path, slot, &slot);) {
        struct request *request = &requests[slot];
        CHECK(waits(request, path, true));
        if (draw(4) != 0)
            continue;
        request->tokens = 1 + draw(2 * request->tokens);
        request->blocks = 1 + draw(request->blocks);
        sched_machine_prompt_left(sm, slot, request->tokens, request->blocks);
    }
}

static void event(bool arrive)
{
    sched_slot slot = draw(SLOTS);
    uint32_t path = draw(options.path_count);
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
        if (draw(6) == 0 && !requests[slot].doomed)
            cancel(slot);
        break;
    default:
        if (requests[slot].in_flight == 0)
            advance(slot, arrive);
        break;
    }
    check_load();
}

static void simulate(uint64_t run)
{
    static const uint32_t sequences[] = {1, 2, 5, 256};
    static const uint32_t budgets[] = {16, 100, 512, 2048, 4096};
    options = (struct sched_machine_options){
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
        options.decode_batches_in_flight = 1 + draw(options.batches_in_flight);
    ranked = run % 8 >= 4;
    now_us = 0;
    memset(requests, 0, sizeof(requests));
    memset(paths, 0, sizeof(paths));
    blocks_free = blocks_total = 20 + draw(200);
    CHECK(sched_machine_open(&options, &sm) == ST_OK);
    for (int i = 0; i < EVENTS; i++)
        event(true);
    bool busy = true;
    for (uint32_t events = 0; busy; events++) {
        CHECKF(events < 400000, "run %" PRIu64 " does not end", run);
        event(false);
        busy = false;
        for (int i = 0; i < SLOTS && !busy; i++)
            busy = requests[i].kind != UNKNOWN;
    }
    CHECK(blocks_free == blocks_total);
    sched_machine_close(sm);
}

int main(void)
{
    seed = test_seed();
    for (uint64_t run = 0; run < RUNS; run++)
        simulate(run);
    printf("%" PRIu64 " victims, %" PRIu64 " awaited, %" PRIu64 " chunks behind chunks, %" PRIu64
           " prompts stopped, %" PRIu64 " begun in what was left\n",
           victims, victims_awaited, chunks_behind, stopped, cut_in);
    CHECK(victims > 100 && victims_awaited > 100 && chunks_behind > 1000 && stopped > 10 &&
          cut_in > 100); /* all of it happened */
    return 0;
}
