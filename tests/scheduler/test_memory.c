/* Goal: sched_memory decides as its header says, and no request waits for ever. Method: random
 * operations on one machine (reservations, KV that arrives, prompts that are decoded elsewhere,
 * batches, cancelled requests, changes of the pool) with little memory. A model without any
 * bookkeeping computes each decision anew from the list of requests: how many blocks a request gets
 * first, which reservation is next and whether it is granted, which answer is preempted, which
 * reservation is given up, and whether an answer gets blocks for its draft. At the end no request
 * arrives, and all of them must end. */
#include "common/random.h"
#include "scheduler/memory.h"
#include "tests/check.h"

#include <string.h>

#define REQUESTS     40 /* Slots REQUESTS … 2 × REQUESTS - 1; their prompts use the slots below. */
#define BLOCK_TOKENS 16
#define CONTEXT      320
#define FLIGHT_MAX   3
#define STEPS        20000
#define RUNS         24

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

/* ---- the model ---- */

enum state { NONE, WAITING, AWAITING, QUARANTINED, DECODING };
enum prompt { NO_PROMPT, PROMPT_WAITING, PROMPT_RUNNING };

struct request {
    enum state state;
    struct sched_memory_request given;
    uint32_t spans; /* Spans that the request has, or gets first. */
    /* Blocks that were taken for the request. Blocks of a prefix cache are not counted. */
    uint32_t taken;
    uint32_t generated;
    uint32_t draft; /* Drafted tokens. */
    bool in_batch;
    bool stopped; /* Cancelled while in a batch. */
    uint64_t order;
    bool again; /* Preempted or given up: reserved again. */
};

/* A prompt that is decoded on another machine. */
struct prompt_elsewhere {
    enum prompt state;
    uint32_t blocks;
    uint32_t in_flight;
    bool ended;
    struct sched_rank rank;
    uint64_t order;
};

static struct sched_memory_options options;
static struct sched_machine *sched;
static struct sched_memory *memory;
static struct request requests[REQUESTS];
static struct prompt_elsewhere prompts[REQUESTS];
static bool mixed;
static uint32_t kv_rare; /* How much rarer the arrival of KV is than other events. */
static uint32_t locals;  /* Of 4 requests, how many have their prompts on this machine. */
static uint64_t orders, granted_count, preempted_count, given_up_count, share_count, victim_waits;
static uint64_t drafts_grown;
static struct sched_batch flying[FLIGHT_MAX];
static uint32_t flying_count;

static uint32_t ceil_spans(uint32_t tokens)
{
    return (tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

/* Blocks of a request with `spans` spans: a group with a window keeps as many as any window and the
 * chunk behind it can touch. */
static uint32_t blocks_of(uint32_t spans, bool local)
{
    uint32_t blocks = 0;
    for (uint32_t group = 0; group < options.groups.count; group++) {
        uint32_t most = 0, tokens = 1 + options.draft_tokens;
        tokens = local && options.chunk_tokens > tokens ? options.chunk_tokens : tokens;
        tokens += options.groups.window_tokens - 1;
        for (uint32_t first = 0; first < BLOCK_TOKENS; first++)
            if ((first + tokens - 1) / BLOCK_TOKENS + 1 > most)
                most = (first + tokens - 1) / BLOCK_TOKENS + 1;
        bool windowed = (options.groups.windowed >> group & 1) != 0;
        blocks += windowed && most < spans ? most : spans;
    }
    return blocks;
}

static uint32_t blocks_now(const struct request *r)
{
    return blocks_of(r->spans, r->given.prompt_is_local);
}

static bool holds(const struct request *r)
{
    return r->state >= AWAITING;
}

static bool is_pinned(const struct request *r)
{
    return r->given.preemptions >= options.preemptions_max;
}

static uint32_t spans_whole(const struct request *r)
{
    return ceil_spans(r->given.prompt_tokens + r->given.answer_tokens);
}

static uint32_t spans_first(const struct request *r)
{
    uint32_t some = r->given.prompt_tokens + options.growth_tokens;
    uint32_t all = r->given.prompt_tokens + r->given.answer_tokens;
    return ceil_spans(is_pinned(r) || all < some ? all : some);
}

static uint32_t blocks_free(void)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        held += holds(&requests[i]) ? requests[i].taken : 0;
        held += prompts[i].state == PROMPT_RUNNING ? prompts[i].blocks : 0;
    }
    CHECK(held <= options.block_count);
    return options.block_count - held;
}

static uint32_t prompt_holders(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < REQUESTS; i++)
        count += prompts[i].state == PROMPT_RUNNING;
    return count;
}

static struct sched_memory_counts counts(void)
{
    struct sched_memory_counts sum = {0};
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const struct request *r = &requests[i];
        if (!holds(r))
            continue;
        sum.holders++;
        sum.growing += r->spans < spans_whole(r);
        sum.shared_blocks += r->given.prompt_is_local ? 0 : blocks_now(r);
    }
    return sum;
}

static bool rank_before(const struct sched_rank *a, uint64_t a_order, const struct sched_rank *b,
                        uint64_t b_order)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (a->resumed != b->resumed)
        return a->resumed;
    return a_order < b_order;
}

static struct request *first_waiting(void)
{
    struct request *first = NULL;
    for (struct request *r = requests; r < requests + REQUESTS; r++)
        if (r->state == WAITING && (first == NULL || rank_before(&r->given.rank, r->order,
                                                                 &first->given.rank, first->order)))
            first = r;
    return first;
}

static const struct prompt_elsewhere *first_prompt(void)
{
    const struct prompt_elsewhere *first = NULL;
    for (const struct prompt_elsewhere *p = prompts; p < prompts + REQUESTS; p++)
        if (p->state == PROMPT_WAITING &&
            (first == NULL || rank_before(&p->rank, p->order, &first->rank, first->order)))
            first = p;
    return first;
}

/* The share leaves room for the request. */
static bool share_admits(const struct request *r)
{
    uint32_t half = options.block_count / 2;
    uint32_t context = blocks_of(ceil_spans(options.context_tokens), true);
    uint32_t most = options.block_count - (!mixed ? 0 : context < half ? context : half);
    uint32_t shared = counts().shared_blocks;
    uint32_t blocks = blocks_now(r);
    return r->given.prompt_is_local || shared + blocks <= most || (shared == 0 && blocks > most);
}

static bool memory_admits(const struct request *r, uint32_t needed)
{
    const struct prompt_elsewhere *prompt = first_prompt();
    uint32_t growing = counts().growing * options.groups.count;
    uint32_t percent = options.block_count * options.growth_reserve_percent / 100;
    uint32_t reserve = growing == 0 ? 0 : growing > percent ? growing : percent;
    uint32_t earlier = prompt != NULL && prompt->order < r->order ? prompt->blocks : 0;
    return needed + reserve + earlier <= blocks_free();
}

static bool is_short(const struct request *r)
{
    return r->state == DECODING && r->spans * BLOCK_TOKENS < r->given.prompt_tokens + r->generated;
}

static bool any_short(void)
{
    bool any = false;
    for (uint32_t i = 0; i < REQUESTS; i++)
        any |= is_short(&requests[i]);
    return any;
}

/* The answer is in no batch, and its step would check more drafted tokens if it had more blocks. */
static bool lacks_draft_room(const struct request *r)
{
    if (r->state != DECODING || r->in_batch || is_short(r))
        return false;
    const uint32_t room = r->spans * BLOCK_TOKENS + 1 - r->given.prompt_tokens - r->generated;
    return r->draft > 0 && r->draft >= room && room < r->given.answer_tokens - r->generated;
}

/* The answer may get blocks for its draft: all answers that grow keep blocks for one span each. */
static bool draft_may_grow(const struct request *r)
{
    const uint32_t more = blocks_of(r->spans + 1, r->given.prompt_is_local) - blocks_now(r);
    return more + counts().growing * options.groups.count <= blocks_free();
}

/* Returns true if every answer that lacks room for its draft may get it, and there is one. */
static bool all_drafts_may_grow(void)
{
    bool any = false;
    for (const struct request *r = requests; r < requests + REQUESTS; r++) {
        if (!lacks_draft_room(r))
            continue;
        any = true;
        if (!draft_may_grow(r))
            return false;
    }
    return any;
}

/* Returns the least urgent answer; of equal ones, the youngest. */
static struct request *victim(void)
{
    struct request *found = NULL;
    for (struct request *r = requests; r < requests + REQUESTS; r++) {
        const struct sched_rank *rank = &r->given.rank;
        if (r->state != DECODING || is_pinned(r))
            continue;
        if (found == NULL || rank->priority > found->given.rank.priority ||
            (rank->priority == found->given.rank.priority &&
             rank->born_us > found->given.rank.born_us))
            found = r;
    }
    return found;
}

/* Returns the reservation to give up, or NULL. */
static struct request *deadlock_victim(void)
{
    const struct prompt_elsewhere *next = first_prompt();
    struct request *youngest = NULL;
    uint64_t oldest = UINT64_MAX;
    if (next == NULL || next->blocks <= blocks_free() || prompt_holders() > 0)
        return NULL;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct request *r = &requests[i];
        if (prompts[i].state == PROMPT_WAITING && prompts[i].rank.request_number < oldest)
            oldest = prompts[i].rank.request_number;
        if (!holds(r))
            continue;
        if (r->state != AWAITING || r->given.prompt_is_local)
            return NULL;
        if (youngest == NULL || r->given.rank.request_number > youngest->given.rank.request_number)
            youngest = r;
    }
    return youngest != NULL && youngest->given.rank.request_number > oldest ? youngest : NULL;
}

/* ---- operations ---- */

static sched_slot slot_of(const struct request *r)
{
    return options.first_slot + (sched_slot)(r - requests);
}

static struct sched_rank rank_draw(void)
{
    orders++;
    return (struct sched_rank){.weight = 1,
                               .priority = (int32_t)draw(3) - 1,
                               .born_us =
                                   (int64_t)((orders + draw(200)) * 1000003 + orders), /* Unique. */
                               .request_number = orders * 100 + draw(1000)};
}

static void reserve(struct request *r)
{
    const struct request before = *r;
    *r = (struct request){.state = WAITING, .given = before.given, .order = ++orders};
    r->spans = spans_first(r);
    sched_memory_reserve(memory, slot_of(r), &r->given);
    const struct sched_memory_blocks *blocks = sched_memory_blocks(memory, slot_of(r));
    CHECK(blocks->count == blocks_now(r) && blocks->spans == r->spans &&
          blocks->spans_max == spans_whole(r) && !blocks->granted);
}

static void reserve_new(struct request *r)
{
    uint32_t most = options.block_count / options.groups.count * BLOCK_TOKENS;
    most = most < CONTEXT ? most : CONTEXT;
    uint32_t prompt = 1 + draw(draw(3) == 0 ? most - 2 : 60);
    r->given = (struct sched_memory_request){.prompt_tokens = prompt,
                                             .answer_tokens = 2 + draw(most - prompt - 1),
                                             .prompt_is_local = draw(4) < locals,
                                             .rank = rank_draw()};
    reserve(r);
}

/* Reserves again for an answer that was preempted or given up. Its tokens are now part of the
 * prompt. */
static void reserve_again(struct request *r)
{
    r->given.prompt_tokens += r->generated;
    r->given.answer_tokens -= r->generated;
    r->given.rank.resumed = true;
    if (r->given.answer_tokens < 2)
        /* One token is left, so the request needs only a prompt machine. */
        *r = (struct request){0};
    else
        reserve(r);
}

static void leave(struct request *r)
{
    sched_memory_remove(memory, slot_of(r));
    *r = (struct request){.state = NONE, .given = r->given, .generated = r->generated};
}

static void cancel(struct request *r)
{
    if (r->in_batch) {
        r->stopped = true;
    } else if (r->state == AWAITING && draw(2) == 0) {
        sched_memory_quarantine(memory, slot_of(r));
        r->state = QUARANTINED;
    } else if (r->state != NONE) {
        leave(r);
    }
}

static void kv_arrives(struct request *r)
{
    r->state = DECODING;
    r->generated = 1;
    r->draft = 0;
    sched_memory_decode(memory, slot_of(r), r->given.answer_tokens - 1);
}

static void prompt_add(struct prompt_elsewhere *p)
{
    uint32_t most = options.block_count < 20 ? options.block_count : 20;
    *p = (struct prompt_elsewhere){
        .state = PROMPT_WAITING, .blocks = 1 + draw(draw(3) == 0 ? most : 4), .rank = rank_draw()};
    p->order = ++orders;
    sched_machine_prompt_add(sched, (sched_slot)(p - prompts), 0, p->blocks * BLOCK_TOKENS,
                             p->blocks, &p->rank);
}

/* Removes a prompt whose KV was sent or is not needed. A prompt that is being computed stays. */
static void prompt_leave(struct prompt_elsewhere *p)
{
    if (p->state == PROMPT_RUNNING && !p->ended)
        return;
    sched_machine_remove(sched, (sched_slot)(p - prompts));
    *p = (struct prompt_elsewhere){0};
}

/* ---- decisions, compared ---- */

static void grow(void)
{
    for (;;) {
        sched_slot slot;
        uint32_t unused = blocks_free();
        bool wanted = any_short();
        struct request *last = victim();
        enum sched_memory_growth growth = sched_memory_grow(memory, unused, &slot);
        if (growth == SCHED_GROWTH_DONE) {
            CHECK(!wanted || (unused < options.groups.count && last != NULL && last->in_batch));
            CHECK(wanted || !all_drafts_may_grow());
            victim_waits += wanted;
            return;
        }
        struct request *r = &requests[slot - options.first_slot];
        CHECK(wanted || growth == SCHED_GROWTH_SPAN);
        if (growth == SCHED_GROWTH_SPAN) {
            uint32_t before = blocks_now(r);
            CHECK(wanted ? is_short(r) : lacks_draft_room(r) && draft_may_grow(r));
            CHECK(r->spans < spans_whole(r));
            drafts_grown += !wanted;
            r->spans++;
            uint32_t grown = blocks_now(r) - before;
            r->taken += grown;
            CHECK(grown <= unused && sched_memory_blocks(memory, slot)->growth_blocks == grown &&
                  sched_memory_blocks(memory, slot)->count == blocks_now(r));
        } else {
            CHECK(r == last && !r->in_batch && unused < options.groups.count);
            preempted_count++;
            leave(r);
            r->given.preemptions++;
            r->again = true;
        }
    }
}

static void grant(void)
{
    for (;;) {
        sched_slot slot;
        struct request *first = first_waiting();
        bool found = sched_memory_candidate_find(memory, &slot);
        CHECK(found == (first != NULL && share_admits(first)));
        share_count += !found && first != NULL;
        if (!found)
            return;
        CHECK(slot == slot_of(first));
        uint32_t needed = blocks_now(first) - draw(2) * draw(blocks_now(first));
        bool admitted = memory_admits(first, needed);
        CHECK(sched_memory_grant(memory, slot, needed, blocks_free()) == admitted);
        if (!admitted)
            return;
        first->state = AWAITING;
        first->taken = needed;
        granted_count++;
    }
}

static void deadlock_break(void)
{
    sched_slot slot;
    struct request *r = deadlock_victim();
    bool any = sched_memory_deadlock_victim(memory, blocks_free(), prompt_holders(), &slot);
    CHECK(any == (r != NULL));
    if (!any)
        return;
    CHECK(slot == slot_of(r));
    given_up_count++;
    sched_memory_quarantine(memory, slot);
    r->state = QUARANTINED;
    r->again = true;
}

static void batches_begin(void)
{
    struct sched_batch *batch = &flying[flying_count];
    while (flying_count < FLIGHT_MAX && sched_machine_batch_next(sched, 0, blocks_free(), batch)) {
        for (uint32_t i = 0; i < batch->item_count; i++) {
            const struct sched_batch_item *item = &batch->items[i];
            if (!item->is_prompt) {
                struct request *r = &requests[item->slot - options.first_slot];
                CHECK(r->state == DECODING && !r->in_batch && !is_short(r));
                r->in_batch = true;
                continue;
            }
            CHECK(!item->is_first_chunk || prompts[item->slot].blocks <= blocks_free());
            prompts[item->slot].state = PROMPT_RUNNING;
            prompts[item->slot].in_flight++;
        }
        batch = &flying[++flying_count];
        grow();
    }
}

/* The step had `drafted` drafted tokens. */
static void decode_done(struct request *r, uint32_t drafted)
{
    const uint32_t right = draw(drafted + 1);
    r->in_batch = false;
    r->generated += 1 + right;
    if (r->stopped || r->generated == r->given.answer_tokens) {
        leave(r);
        return;
    }
    sched_machine_decode_advance(sched, slot_of(r), right);
    r->draft = draw(2) * draw(options.draft_tokens + 1);
    sched_machine_draft_set(sched, slot_of(r), r->draft);
}

static void batch_end(void)
{
    static struct sched_batch batch;
    batch = flying[0];
    memmove(flying, flying + 1, --flying_count * sizeof(flying[0]));
    sched_machine_batch_done(sched, batch.index);
    for (uint32_t i = 0; i < batch.item_count; i++) {
        const struct sched_batch_item *item = &batch.items[i];
        if (item->is_prompt)
            prompts[item->slot].ended |= item->is_last_chunk;
        else
            decode_done(&requests[item->slot - options.first_slot], item->token_count - 1);
    }
}

/* Returns a random request in that state, or any request if there is none. */
static struct request *request_draw(enum state state)
{
    uint32_t first = draw(REQUESTS);
    for (uint32_t i = 0; i < REQUESTS; i++)
        if (requests[(first + i) % REQUESTS].state == state)
            return &requests[(first + i) % REQUESTS];
    return &requests[first];
}

static void random_event(bool arrive)
{
    static const enum state states[] = {NONE, AWAITING, QUARANTINED};
    uint32_t event = draw(12);
    struct request *r = event < 3 ? request_draw(states[event]) : requests;
    struct prompt_elsewhere *p = &prompts[draw(REQUESTS)];
    switch (event) {
    case 0:
        if (r->state == NONE && r->again)
            reserve_again(r);
        else if (r->state == NONE && arrive)
            reserve_new(r);
        break;
    case 1:
        if (r->state == AWAITING && draw(kv_rare) == 0)
            kv_arrives(r);
        break;
    case 2:
        if (r->state == QUARANTINED) {
            bool again = r->again;
            leave(r);
            r->again = again;
        } else if (draw(50) == 0) {
            cancel(r);
        }
        break;
    case 3:
        if (p->state == NO_PROMPT && arrive && draw(3) == 0)
            prompt_add(p);
        else if (p->ended || (p->state == PROMPT_WAITING && draw(200) == 0))
            prompt_leave(p);
        break;
    case 4:
        if (draw(50) == 0) {
            mixed = !mixed;
            sched_memory_mixed_set(memory, mixed);
        }
        break;
    default:
        if (flying_count > 0)
            batch_end();
        break;
    }
}

static void step(bool arrive)
{
    random_event(arrive);
    grow();
    grant();
    batches_begin();
    deadlock_break();
    const struct sched_memory_counts *told = sched_memory_counts(memory);
    struct sched_memory_counts want = counts();
    CHECK(told->holders == want.holders && told->growing == want.growing &&
          told->shared_blocks == want.shared_blocks);
}

static bool idle(void)
{
    for (uint32_t i = 0; i < REQUESTS; i++)
        if (requests[i].state != NONE || requests[i].again || prompts[i].state != NO_PROMPT)
            return false;
    return true;
}

/* Half of the models have one layer group without a window. */
static void groups_draw(void)
{
    options.groups.count = 1;
    if (draw(2) == 0)
        return;
    options.groups.count += draw(3);
    options.groups.windowed = draw(1u << options.groups.count);
    options.groups.window_tokens = options.groups.windowed != 0 ? 1 + draw(100) : 0;
    options.chunk_tokens = 1 + draw(64);
    options.block_count *= options.groups.count;
}

static void run(uint64_t number)
{
    draws = number << 32;
    const struct sched_machine_options machine = {.slot_count = 2 * REQUESTS,
                                                  .prompt_batch_tokens = 64,
                                                  .mixed_prompt_tokens = 64,
                                                  .batch_sequences_max = 4 + draw(8),
                                                  .batches_in_flight = 1 + draw(FLIGHT_MAX)};
    options = (struct sched_memory_options){.block_count = 20 + draw(30),
                                            .block_tokens = BLOCK_TOKENS,
                                            .context_tokens = 100 + draw(CONTEXT),
                                            .draft_tokens = draw(2) * (1 + draw(16)),
                                            .first_slot = REQUESTS,
                                            .slot_count = REQUESTS,
                                            .growth_tokens = 1 + draw(40),
                                            .growth_reserve_percent = draw(2) * draw(30),
                                            .preemptions_max = draw(5)};
    groups_draw();
    memset(requests, 0, sizeof(requests));
    memset(prompts, 0, sizeof(prompts));
    mixed = false;
    kv_rare = draw(2) == 0 ? 4 : 200;
    locals = draw(2);
    orders = flying_count = 0;
    CHECK(sched_machine_open(&machine, &sched) == ST_OK);
    CHECK(sched_memory_open(&options, sched, &memory) == ST_OK);
    for (uint32_t i = 0; i < STEPS; i++)
        step(true);
    for (uint32_t i = 0; !idle(); i++) {
        CHECKF(i < 100 * STEPS, "run %" PRIu64 ": some requests do not end", number);
        step(false);
    }
    CHECK(blocks_free() == options.block_count);
    sched_memory_close(memory);
    sched_machine_close(sched);
}

static uint32_t share_of(uint32_t block_count, uint32_t context_tokens)
{
    const struct sched_memory_options sizes = {
        .block_count = block_count, .block_tokens = 16, .context_tokens = context_tokens};
    return sched_memory_prompt_share(&sizes);
}

/* The share that a mixed machine keeps for prompts is the blocks of one context, at most half of
 * all blocks. */
static void test_share(void)
{
    CHECK(share_of(100, 160) == 10);
    CHECK(share_of(100, 161) == 11);
    CHECK(share_of(100, 4096) == 50);
    CHECK(share_of(7, 4096) == 3);
    CHECK(share_of(0, 4096) == 0);
}

int main(void)
{
    seed = test_seed();
    test_share();
    for (uint64_t number = 0; number < RUNS; number++)
        run(number);
    printf("%" PRIu64 " granted, %" PRIu64 " times none because of the prompts' share, %" PRIu64
           " preempted, %" PRIu64 " times a victim was in a batch, %" PRIu64 " given up, %" PRIu64
           " times blocks for a draft\n",
           granted_count, share_count, preempted_count, victim_waits, given_up_count, drafts_grown);
    CHECK(granted_count > 1000 && share_count > 100 && preempted_count > 100 && victim_waits > 10 &&
          given_up_count > 0 && drafts_grown > 100);
    return 0;
}
