/* Goal: prompts that wait for blocks held by reservations whose prompts wait elsewhere for blocks
 * do not wait for ever (sched_machine_deadlock_victim). Method: first, by hand, which reservation
 * is given up and when. Then machines that all prefill for each other, with little memory and no
 * share of it kept for prompts, which is worse than any change of roles: real schedulers, requests
 * that hold the blocks of their reservation while their prompt waits, and late messages. With the
 * rule all requests end, and the oldest one is never given up; without the rule some of the runs do
 * not end.
 */
#include "common/random.h"
#include "scheduler/machine/machine.h"
#include "tests/check.h"

#include <string.h>

#define MACHINES 4
#define REQUESTS 24
#define RUNS     3000
#define STEPS    20000 /* Most steps of a run. */
#define FLIGHT   3
#define PATHS    2

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

/* ---- by hand ---- */

static struct sched_machine *sm;

static void hand_open(uint32_t paths)
{
    const struct sched_machine_options options = {.slot_count = 16,
                                                  .prompt_batch_tokens = 64,
                                                  .mixed_prompt_tokens = 64,
                                                  .batch_sequences_max = 8,
                                                  .path_count = paths};
    CHECK(sched_machine_open(&options, &sm) == ST_OK);
}

static void hand_prompt(sched_slot slot, uint32_t path, uint32_t blocks, uint64_t number)
{
    sched_machine_prompt_add(sm, slot, path, 16, blocks,
                             &(struct sched_rank){.request_number = number});
}

static void hand_awaits(sched_slot slot, uint32_t blocks, uint64_t number)
{
    sched_slot next;
    sched_machine_reserve_add(sm, slot, blocks, 16, &(struct sched_rank){.request_number = number});
    CHECK(sched_machine_reserve_next(sm, 100, &next) && next == slot);
    sched_machine_await_begin(sm, slot);
}

static void test_who(void)
{
    sched_slot slot;
    hand_open(1);
    hand_awaits(0, 4, 5);
    hand_awaits(1, 4, 9);
    hand_awaits(2, 4, 7);
    CHECK(!sched_machine_deadlock_victim(sm, 3, 3, &slot)); /* No prompt waits. */
    hand_prompt(10, 0, 6, 8);
    CHECK(!sched_machine_deadlock_victim(sm, 6, 3, &slot)); /* The prompt can start. */
    CHECK(!sched_machine_deadlock_victim(sm, 5, 4, &slot)); /* Another request will free blocks. */
    CHECK(sched_machine_deadlock_victim(sm, 5, 3, &slot) && slot == 1);
    sched_machine_remove(sm, 1);
    /* The prompt gets the blocks of slot 1. */
    CHECK(!sched_machine_deadlock_victim(sm, 5, 3, &slot));
    /* The remaining reservations are older than the prompt. */
    CHECK(!sched_machine_deadlock_victim(sm, 5, 2, &slot));
    hand_prompt(11, 0, 1, 6); /* This prompt waits behind slot 10. */
    CHECK(sched_machine_deadlock_victim(sm, 5, 2, &slot) && slot == 2);
    sched_machine_decode_add(sm, 2, &(struct sched_decode){.tokens_left = 1, .room_tokens = 1});
    CHECK(!sched_machine_deadlock_victim(sm, 5, 2, &slot)); /* The reservation's KV has arrived. */
    CHECK(!sched_machine_deadlock_victim(sm, 5, 1, &slot));
    sched_machine_close(sm);
}

/* The prompt whose turn is next is the first prompt over all paths. */
static void test_paths(void)
{
    sched_slot slot;
    hand_open(2);
    hand_awaits(0, 4, 5);
    hand_prompt(10, 1, 3, 2);
    hand_prompt(11, 0, 9, 1);
    CHECK(!sched_machine_deadlock_victim(sm, 3, 1, &slot));
    sched_machine_remove(sm, 10);
    CHECK(sched_machine_deadlock_victim(sm, 3, 1, &slot) && slot == 0);
    sched_machine_close(sm);
}

/* ---- machines that wait for each other ---- */

/* The state of a request. Slot n is the reservation of request n; slot REQUESTS + n is its
 * prompt. */
enum state { ASKING, RESERVING, RESERVED, PROMPT, COMPUTED, YIELDED, DONE };

struct request {
    enum state state;
    uint32_t token_machine, prompt_machine;
    uint32_t token_blocks, prompt_blocks;
    uint32_t path;
    uint32_t tokens;
    uint32_t in_flight;
    uint64_t number;
    int32_t priority;
    bool holds;  /* The request holds blocks at its token machine. */
    bool prompt; /* The prompt machine has the prompt. */
    bool starts; /* The prompt has started and holds blocks. */
    uint32_t yields;
};

struct machine {
    struct sched_machine *sched;
    uint32_t blocks, blocks_free, holders;
    uint32_t paths;
    struct sched_batch flying[PATHS][FLIGHT]; /* Oldest batch first. */
    uint32_t flying_count[PATHS];
};

static struct machine machines[MACHINES];
static struct request requests[REQUESTS];
static bool yields_on;
static uint64_t yield_count, most_yields;

static struct sched_rank rank_of(const struct request *r)
{
    return (struct sched_rank){.priority = r->priority, .request_number = r->number};
}

static void blocks_move(struct machine *m, uint32_t taken, uint32_t given)
{
    CHECK(taken <= m->blocks_free);
    m->blocks_free = m->blocks_free - taken + given;
    m->holders = taken > 0 ? m->holders + 1 : m->holders - 1;
}

static void prompt_leave(struct request *r)
{
    struct machine *m = &machines[r->prompt_machine];
    sched_machine_remove(m->sched, (sched_slot)(r - requests) + REQUESTS);
    if (r->starts)
        blocks_move(m, 0, r->prompt_blocks);
    r->prompt = r->starts = false;
}

static void reservation_leave(struct request *r)
{
    struct machine *m = &machines[r->token_machine];
    sched_machine_remove(m->sched, (sched_slot)(r - requests));
    blocks_move(m, 0, r->token_blocks);
    r->holds = false;
}

static void yield(struct machine *m)
{
    sched_slot slot;
    if (!yields_on || !sched_machine_deadlock_victim(m->sched, m->blocks_free, m->holders, &slot))
        return;
    struct request *r = &requests[slot];
    CHECK(&machines[r->token_machine] == m && r->holds);
    CHECK(r->state == RESERVED || r->state == PROMPT || r->state == COMPUTED);
    CHECK(r->number > 0); /* No request is older than request 0. */
    sched_machine_remove(m->sched, slot);
    r->state = YIELDED;
    r->yields++;
    yield_count++;
    most_yields = r->yields > most_yields ? r->yields : most_yields;
}

static void machine_start(struct machine *m, uint32_t path)
{
    static struct sched_batch batch;
    sched_slot slot;
    while (sched_machine_reserve_next(m->sched, m->blocks_free, &slot)) {
        struct request *r = &requests[slot];
        blocks_move(m, r->token_blocks, 0);
        sched_machine_await_begin(m->sched, slot);
        r->holds = true;
        r->state = RESERVED;
    }
    if (!sched_machine_batch_next(m->sched, path, m->blocks_free, &batch)) {
        yield(m);
        return;
    }
    m->flying[path][m->flying_count[path]++] = batch;
    for (uint32_t i = 0; i < batch.item_count; i++) {
        struct request *r = &requests[batch.items[i].slot - REQUESTS];
        CHECK(r->prompt && &machines[r->prompt_machine] == m);
        r->in_flight++;
        if (!batch.items[i].is_first_chunk)
            continue;
        blocks_move(m, r->prompt_blocks, 0);
        r->starts = true;
    }
}

static void machine_batch_end(struct machine *m, uint32_t path)
{
    static struct sched_batch batch;
    if (m->flying_count[path] == 0)
        return;
    batch = m->flying[path][0];
    memmove(m->flying[path], m->flying[path] + 1, --m->flying_count[path] * sizeof(batch));
    sched_machine_batch_done(m->sched, batch.index);
    for (uint32_t i = 0; i < batch.item_count; i++) {
        struct request *r = &requests[batch.items[i].slot - REQUESTS];
        r->in_flight--;
        if (batch.items[i].is_last_chunk && r->state == PROMPT)
            r->state = COMPUTED;
    }
}

/* Delivers the message that the request waits for. */
static void request_step(struct request *r)
{
    const struct sched_rank rank = rank_of(r);
    sched_slot slot = (sched_slot)(r - requests);
    switch (r->state) {
    case ASKING:
        sched_machine_reserve_add(machines[r->token_machine].sched, slot, r->token_blocks, 16,
                                  &rank);
        r->state = RESERVING;
        break;
    case RESERVED:
        sched_machine_prompt_add(machines[r->prompt_machine].sched, slot + REQUESTS, r->path,
                                 r->tokens, r->prompt_blocks, &rank);
        r->prompt = true;
        r->state = PROMPT;
        break;
    case COMPUTED: /* The KV is on the token machine, and the answer is short. */
        prompt_leave(r);
        reservation_leave(r);
        r->state = DONE;
        break;
    /* The prompt machine is told, gives up the prompt and confirms. Then the request starts
     * again. */
    case YIELDED:
        if (r->in_flight > 0) {
            sched_machine_stop(machines[r->prompt_machine].sched, slot + REQUESTS);
            break;
        }
        if (r->prompt)
            prompt_leave(r);
        reservation_leave(r);
        r->state = ASKING;
        break;
    case RESERVING:
    case PROMPT:
    case DONE:
        break;
    }
}

static void run_open(void)
{
    for (uint32_t i = 0; i < MACHINES; i++) {
        const struct sched_machine_options options = {.slot_count = 2 * REQUESTS,
                                                      .prompt_batch_tokens = 64,
                                                      .mixed_prompt_tokens = 64,
                                                      .batch_sequences_max = 4,
                                                      .path_count = 1 + draw(PATHS),
                                                      .batches_in_flight = 1 + draw(FLIGHT)};
        uint32_t blocks = 8 + draw(8);
        machines[i] =
            (struct machine){.blocks = blocks, .blocks_free = blocks, .paths = options.path_count};
        CHECK(sched_machine_open(&options, &machines[i].sched) == ST_OK);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct request *r = &requests[i];
        *r = (struct request){.prompt_machine = draw(MACHINES),
                              .tokens = 1 + draw(150),
                              .number = i,
                              .priority = draw(4) == 0 ? (int32_t)draw(3) - 1 : 0};
        r->token_machine = (r->prompt_machine + 1 + draw(MACHINES - 1)) % MACHINES;
        r->prompt_blocks = 1 + draw(machines[r->prompt_machine].blocks);
        r->token_blocks = 1 + draw(machines[r->token_machine].blocks);
        r->path = draw(machines[r->prompt_machine].paths);
    }
}

/* Returns whether all requests of the run end. They arrive in an order different from their
 * numbers'. */
static bool run_ends(uint64_t run, bool with_yields)
{
    uint32_t left = REQUESTS;
    draws = run << 32;
    yields_on = with_yields;
    run_open();
    for (uint32_t step = 0; step < STEPS && left > 0; step++) {
        struct machine *m = &machines[draw(MACHINES)];
        struct request *r = &requests[draw(REQUESTS)];
        uint32_t path = draw(m->paths);
        switch (draw(3)) {
        case 0:
            machine_start(m, path);
            break;
        case 1:
            machine_batch_end(m, path);
            break;
        default:
            left -= r->state == COMPUTED;
            request_step(r);
            break;
        }
    }
    for (uint32_t i = 0; i < MACHINES; i++) {
        struct machine *m = &machines[i];
        CHECK(left > 0 || (m->blocks_free == m->blocks && m->holders == 0));
        for (uint32_t path = 0; path < m->paths; path++)
            while (m->flying_count[path] > 0)
                machine_batch_end(m, path);
        sched_machine_close(m->sched);
    }
    return left == 0;
}

int main(void)
{
    uint32_t locked = 0;
    seed = test_seed();
    test_who();
    test_paths();
    for (uint64_t run = 0; run < RUNS; run++) {
        CHECKF(run_ends(run, true), "run %" PRIu64 " does not end", run);
        if (run < RUNS / 10)
            locked += !run_ends(run, false);
    }
    printf("%u runs: %" PRIu64 " given up, one request %" PRIu64 " times at most; %u of %u runs "
           "without the rule do not end\n",
           RUNS, yield_count, most_yields, locked, RUNS / 10);
    CHECK(locked > 0 && yield_count > 0 && most_yields < 10 * REQUESTS);
    return 0;
}
