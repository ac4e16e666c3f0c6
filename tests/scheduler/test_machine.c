/* Goal: the machine-level scheduler makes legal and fair batches whatever happens around it.
 * Method: random arrivals, reservations, cancels and batches against a plain table of requests and
 * a block counter. After every event the load must equal a recount; every batch is checked against
 * the rules of machine.h: its bounds, first come first served, chunks that are contiguous and
 * complete, nothing idle that could run, nobody starved. */
#include "common/random.h"
#include "scheduler/machine.h"
#include "tests/check.h"

#include <string.h>

#define SLOTS  40
#define EVENTS 4000
#define RUNS   120

enum kind { UNKNOWN, RESERVING, BOOKED, WAITING, RUNNING, PROMPT_ENDED, DECODING, DECODE_ENDED };

struct request {
    enum kind kind;
    uint32_t tokens; /* of the prompt, or left to decode */
    uint32_t done;
    uint32_t blocks; /* asked for by prompt or reservation */
    uint32_t held;
    uint64_t arrival;
    uint64_t reserve_arrival;
    uint64_t last_turn; /* batch number */
    bool in_batch;
};

static struct request requests[SLOTS];
static struct sched_machine_options options;
static struct sched_machine *sm;
static struct sched_batch batch;
static bool running;
static uint32_t blocks_total;
static uint32_t blocks_free;
static uint64_t arrivals;
static uint64_t batches;
static bool last_had_prompt;
static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static bool waits(const struct request *request, bool needs_blocks)
{
    return request->kind == WAITING && (request->blocks > 0) == needs_blocks;
}

static void check_load(void)
{
    struct sched_machine_load load;
    struct sched_machine_load count = {0};
    for (int i = 0; i < SLOTS; i++) {
        const struct request *request = &requests[i];
        count.prompts_waiting += request->kind == WAITING;
        count.prompts_running += request->kind == RUNNING;
        if (request->kind == WAITING || request->kind == RUNNING)
            count.prompt_tokens_pending += request->tokens - request->done;
        count.reservations_waiting += request->kind == RESERVING;
        count.decodes_running += request->kind == DECODING;
        count.decode_tokens_pending += request->kind == DECODING ? request->tokens : 0;
        CHECK(sched_machine_in_batch(sm, (sched_slot)i) == request->in_batch);
    }
    sched_machine_load(sm, &load);
    CHECK(load.prompts_waiting == count.prompts_waiting);
    CHECK(load.prompts_running == count.prompts_running);
    CHECK(load.prompt_tokens_pending == count.prompt_tokens_pending);
    CHECK(load.reservations_waiting == count.reservations_waiting);
    CHECK(load.decodes_running == count.decodes_running);
    CHECK(load.decode_tokens_pending == count.decode_tokens_pending);
}

/* Could a prompt run with so many blocks: the one in progress, a booked one, or the oldest of the
 * others? */
static bool prompt_can_run(void)
{
    const struct request *head = NULL;
    for (int i = 0; i < SLOTS; i++) {
        if (requests[i].kind == RUNNING || waits(&requests[i], false))
            return true;
        if (waits(&requests[i], true) && (head == NULL || requests[i].arrival < head->arrival))
            head = &requests[i];
    }
    return head != NULL && head->blocks <= blocks_free;
}

static bool batch_starts(const struct request *request)
{
    for (uint32_t i = 0; i < batch.item_count; i++) {
        if (&requests[batch.items[i].slot] == request)
            return true;
    }
    return false;
}

/* Older ones that still wait must wait for blocks, behind the oldest of them, for which they do not
 * do; and only one that needs none may pass them. */
static void check_not_overtaken(const struct request *starting, uint32_t blocks_left)
{
    const struct request *oldest = NULL;
    for (int i = 0; i < SLOTS; i++) {
        const struct request *older = &requests[i];
        if (older->kind != WAITING || older->arrival >= starting->arrival || batch_starts(older))
            continue;
        CHECK(older->blocks > 0 && starting->blocks == 0);
        if (oldest == NULL || older->arrival < oldest->arrival)
            oldest = older;
    }
    CHECK(oldest == NULL || oldest->blocks > blocks_left);
}

static void check_chunk(const struct sched_batch_item *item, uint32_t prompts_before,
                        bool ended_before)
{
    const struct request *request = &requests[item->slot];
    CHECK(request->kind == WAITING || request->kind == RUNNING);
    CHECK(item->token_count > 0);
    CHECK(item->first_token == request->done);
    CHECK(item->starts == (request->kind == WAITING));
    CHECK(item->first_token + item->token_count <= request->tokens);
    CHECK(item->ends == (item->first_token + item->token_count == request->tokens));
    CHECK(ended_before); /* a chunk that goes on is the last thing of its batch */
    if (!item->ends)
        CHECK(item->token_count % 16 == 0);
    if (request->kind == RUNNING)
        CHECK(prompts_before == 0);
    if (item->starts && !item->ends)
        CHECK(prompts_before == 0); /* only a batch of its own is worth cutting a prompt for */
}

static void check_batch(bool could_prompt, uint32_t decodes_known)
{
    uint32_t rows = 0;
    uint32_t decodes = 0;
    uint32_t prompts = 0;
    uint32_t prompt_tokens = 0;
    uint32_t blocks_left = blocks_free;
    bool ended_before = true;
    bool seen[SLOTS] = {false};
    for (uint32_t i = 0; i < batch.item_count; i++) {
        const struct sched_batch_item *item = &batch.items[i];
        CHECK(item->slot < SLOTS && !seen[item->slot]);
        seen[item->slot] = true;
        rows += item->token_count;
        if (!item->prompt) {
            CHECK(prompts == 0); /* decodes come first */
            CHECK(requests[item->slot].kind == DECODING && item->token_count == 1);
            decodes++;
            continue;
        }
        check_chunk(item, prompts, ended_before);
        ended_before = item->ends;
        prompts++;
        prompt_tokens += item->token_count;
        if (item->starts) {
            CHECK(requests[item->slot].blocks <= blocks_left);
            blocks_left -= requests[item->slot].blocks;
        }
    }
    for (uint32_t i = 0; i < batch.item_count; i++) {
        if (batch.items[i].prompt && batch.items[i].starts)
            check_not_overtaken(&requests[batch.items[i].slot], blocks_left);
    }
    CHECK(rows == batch.row_count && rows <= LIMIT_BATCH_TOKENS);
    CHECK(batch.item_count <= options.batch_sequences_max);
    CHECK(prompt_tokens <= options.prompt_batch_tokens);
    CHECK(decodes == 0 || prompt_tokens <= options.mixed_prompt_tokens);
    bool one_place = options.batch_sequences_max == 1;
    if (could_prompt)
        CHECK(prompts > 0 || (one_place && last_had_prompt && decodes_known > 0));
    if (decodes_known > 0)
        CHECK(decodes > 0 || (one_place && could_prompt && !last_had_prompt));
    last_had_prompt = prompts > 0;
}

static void batch_start(void)
{
    uint32_t decodes = 0;
    for (int i = 0; i < SLOTS; i++)
        decodes += requests[i].kind == DECODING;
    bool could_prompt = prompt_can_run();
    running = sched_machine_batch_next(sm, blocks_free, &batch);
    CHECK(running == (batch.item_count > 0));
    check_batch(could_prompt, decodes);
    batches += running;
    for (uint32_t i = 0; i < batch.item_count; i++) {
        struct request *request = &requests[batch.items[i].slot];
        request->in_batch = true;
        request->last_turn = batches;
        if (batch.items[i].prompt && batch.items[i].starts) {
            request->kind = RUNNING;
            request->held += request->blocks;
            blocks_free -= request->blocks;
        }
    }
    /* Round robin: with all places but one for SLOTS decodes, or every other batch for one of them.
     */
    uint32_t places = options.batch_sequences_max > 1 ? options.batch_sequences_max - 1 : 1;
    for (int i = 0; i < SLOTS; i++) {
        if (requests[i].kind == DECODING)
            CHECK(batches - requests[i].last_turn <= 2 * ((SLOTS + places - 1) / places) + 2);
    }
}

static void batch_end(void)
{
    sched_machine_batch_done(sm);
    running = false;
    for (uint32_t i = 0; i < batch.item_count; i++) {
        struct request *request = &requests[batch.items[i].slot];
        request->in_batch = false;
        if (batch.items[i].prompt) {
            request->done += batch.items[i].token_count;
            if (request->done == request->tokens)
                request->kind = PROMPT_ENDED;
        } else if (--request->tokens == 0) {
            request->kind = DECODE_ENDED;
        }
    }
}

static void leave(sched_slot slot)
{
    sched_machine_remove(sm, slot);
    blocks_free += requests[slot].held;
    requests[slot] = (struct request){.kind = UNKNOWN};
}

static void prompt_arrives(sched_slot slot, uint32_t blocks)
{
    struct request *request = &requests[slot];
    request->kind = WAITING;
    request->tokens = 1 + (draw(4) == 0 ? draw(3 * options.prompt_batch_tokens) : draw(200));
    request->done = 0;
    request->blocks = blocks;
    request->arrival = arrivals++;
    sched_machine_prompt_add(sm, slot, request->tokens, blocks);
}

static void decode_arrives(sched_slot slot)
{
    requests[slot].kind = DECODING;
    requests[slot].tokens = 1 + draw(40);
    requests[slot].last_turn = batches;
    const struct sched_decode decode = {.tokens_left = requests[slot].tokens,
                                        .room = requests[slot].tokens};
    sched_machine_decode_add(sm, slot, &decode);
}

static void reservations_give(void)
{
    sched_slot slot;
    sched_slot turn;
    while (sched_machine_reserve_head(sm, &turn) &&
           sched_machine_reserve_next(sm, blocks_free, &slot)) {
        CHECK(turn == slot);
        CHECK(slot < SLOTS && requests[slot].kind == RESERVING);
        CHECK(requests[slot].blocks <= blocks_free);
        for (int i = 0; i < SLOTS; i++)
            CHECK(requests[i].kind != RESERVING ||
                  requests[i].reserve_arrival >= requests[slot].reserve_arrival);
        requests[slot].kind = BOOKED;
        requests[slot].held = requests[slot].blocks;
        blocks_free -= requests[slot].blocks;
    }
    const struct request *head = NULL;
    for (int i = 0; i < SLOTS; i++) {
        if (requests[i].kind == RESERVING &&
            (head == NULL || requests[i].reserve_arrival < head->reserve_arrival))
            head = &requests[i];
    }
    CHECK(head == NULL || head->blocks > blocks_free);
}

/* What its caller does with a request next. `arrive`: new ones may come. */
static void advance(sched_slot slot, bool arrive)
{
    struct request *request = &requests[slot];
    switch (request->kind) {
    case UNKNOWN:
        if (!arrive)
            return;
        if (draw(2) == 0) {
            prompt_arrives(slot, 1 + draw(blocks_total / 2));
            return;
        }
        request->kind = RESERVING;
        request->blocks = 1 + draw(blocks_total / 2);
        request->reserve_arrival = arrivals++;
        sched_machine_reserve_add(sm, slot, request->blocks);
        return;
    case BOOKED:
        if (draw(2) == 0)
            prompt_arrives(slot, 0);
        else
            decode_arrives(slot);
        return;
    case PROMPT_ENDED:
        if (draw(2) == 0)
            decode_arrives(slot);
        else
            leave(slot);
        return;
    case DECODE_ENDED:
        leave(slot);
        return;
    default:
        return;
    }
}

/* A cache has more, or less, of the prompts that wait: all of them are named, in their order. */
static void prompts_change(void)
{
    sched_slot slot = SCHED_NO_SLOT;
    uint64_t last = 0;
    uint32_t named = 0;
    while (sched_machine_prompt_after(sm, slot, &slot)) {
        struct request *request = &requests[slot];
        CHECK(waits(request, true) && (named == 0 || request->arrival > last));
        last = request->arrival;
        named++;
        if (draw(4) != 0)
            continue;
        request->tokens = 1 + draw(2 * request->tokens);
        request->blocks = 1 + draw(request->blocks);
        sched_machine_prompt_left(sm, slot, request->tokens, request->blocks);
    }
    for (int i = 0; i < SLOTS; i++)
        named -= waits(&requests[i], true) ? 1 : 0;
    CHECK(named == 0);
}

static void event(bool arrive)
{
    sched_slot slot = draw(SLOTS);
    switch (draw(7)) {
    case 6:
        prompts_change();
        break;
    case 0:
        reservations_give();
        break;
    case 1:
    case 2:
        if (running)
            batch_end();
        else
            batch_start();
        break;
    case 3:
        if (draw(8) == 0 && !requests[slot].in_batch)
            leave(slot); /* cancelled */
        break;
    default:
        if (!requests[slot].in_batch)
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
        .prompt_batch_tokens = budgets[draw(5)],
        .mixed_prompt_tokens = budgets[draw(5)],
        .batch_sequences_max = sequences[run % 4],
    };
    memset(requests, 0, sizeof(requests));
    blocks_total = 20 + draw(200);
    blocks_free = blocks_total;
    batches = 0;
    last_had_prompt = false;
    CHECK(sched_machine_open(&options, &sm) == ST_OK);
    for (int i = 0; i < EVENTS; i++)
        event(true);
    /* Nothing new arrives: everything must come to its end, in as many batches as its work allows.
     */
    uint64_t left = 200 * SLOTS;
    for (int i = 0; i < SLOTS; i++)
        left += 2 * (uint64_t)requests[i].tokens;
    uint64_t end = batches + left;
    for (bool busy = true; busy;) {
        for (int i = 0; i < 50; i++)
            event(false);
        CHECKF(batches < end, "not through after %" PRIu64 " batches", left);
        busy = false;
        for (int i = 0; i < SLOTS; i++)
            busy |= requests[i].kind != UNKNOWN;
    }
    CHECK(blocks_free == blocks_total);
    if (running)
        batch_end();
    sched_machine_close(sm);
}

static void test_options(void)
{
    const struct sched_machine_options good = {.slot_count = 4,
                                               .prompt_batch_tokens = 64,
                                               .mixed_prompt_tokens = 16,
                                               .batch_sequences_max = 1};
    struct sched_machine_options bad = good;
    bad.slot_count = LIMIT_MACHINE_REQUESTS + 1;
    CHECK(sched_machine_open(&bad, &sm) == ST_INVALID);
    bad = good;
    bad.prompt_batch_tokens = LIMIT_BATCH_TOKENS + 1;
    CHECK(sched_machine_open(&bad, &sm) == ST_INVALID);
    bad = good;
    bad.batch_sequences_max = LIMIT_BATCH_SEQUENCES + 1;
    CHECK(sched_machine_open(&bad, &sm) == ST_INVALID);
    bad = good;
    bad.mixed_prompt_tokens = 15;
    CHECK(sched_machine_open(&bad, &sm) == ST_INVALID);
    sched_machine_close(NULL);
}

/* The examples of the design, by hand: three prompts batched whole up to the budget; the long one
 * in chunks; decodes that make the budget smaller. */
static void test_by_hand(void)
{
    options = (struct sched_machine_options){.slot_count = 8,
                                             .prompt_batch_tokens = 2048,
                                             .mixed_prompt_tokens = 512,
                                             .batch_sequences_max = 256};
    CHECK(sched_machine_open(&options, &sm) == ST_OK);
    CHECK(!sched_machine_batch_next(sm, 1000, &batch));
    sched_machine_prompt_add(sm, 0, 1000, 10);
    sched_machine_prompt_add(sm, 1, 900, 10);
    sched_machine_prompt_add(sm, 2, 5000, 10);
    sched_machine_prompt_add(sm, 3, 100, 10);
    CHECK(sched_machine_batch_next(sm, 1000, &batch) && batch.item_count == 2 &&
          batch.row_count == 1900);
    sched_machine_batch_done(sm);
    CHECK(sched_machine_batch_next(sm, 1000, &batch) && batch.item_count == 1 &&
          batch.row_count == 2048);
    CHECK(batch.items[0].slot == 2 && batch.items[0].starts && !batch.items[0].ends);
    sched_machine_batch_done(sm);
    sched_machine_decode_add(sm, 5, &(struct sched_decode){.tokens_left = 1, .room = 1});
    CHECK(sched_machine_batch_next(sm, 1000, &batch) && batch.item_count == 2 &&
          batch.row_count == 513);
    CHECK(!batch.items[0].prompt && batch.items[1].first_token == 2048);
    sched_machine_batch_done(sm);
    CHECK(sched_machine_batch_next(sm, 1000, &batch) && batch.row_count == 2048);
    sched_machine_batch_done(sm);
    CHECK(sched_machine_batch_next(sm, 1000, &batch) && batch.item_count == 2 &&
          batch.row_count == 492);
    CHECK(batch.items[0].ends && batch.items[1].slot == 3 && batch.items[1].ends);
    sched_machine_batch_done(sm);
    sched_machine_close(sm);
}

int main(void)
{
    seed = test_seed();
    test_options();
    test_by_hand();
    for (uint64_t run = 0; run < RUNS; run++)
        simulate(run);
    return 0;
}
