/* Goal: a simulated machine decides about KV blocks as a real one, so that predictions hold under
 * memory pressure. Method: the same random history (reservations, prompts, KV, cancelled requests,
 * changes of the pool, batches) goes to a sim_machine and to the token pool of a real machine, with
 * its block pool and its machine-level scheduler. The prompt pool is replaced by a list of prompts
 * that hold blocks. After each event both must have made the same decisions in the same order:
 * grants, preemptions, reservations given up, and the contents of batches. */
#include "tools/simulate/sim_machine.h"

#include "common/random.h"
#include "scheduler/options.h"
#include "tests/check.h"
#include "tests/profile/profile_example.h"
#include "token_pool/token_state.h"

#include <string.h>

#define REQUESTS    40
#define CONTEXT_MIN 320 /* Tokens of the largest request. */
#define STEPS       20000
#define RUNS        80

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

/* ---- what both sides decided ---- */

enum decision { GRANTED, PREEMPTED, GIVEN_UP, CHUNK, CHUNK_LAST, TOKEN, DECISIONS };

struct log {
    uint32_t count;
    struct {
        enum decision decision;
        uint32_t request;
        uint32_t tokens;
    } items[4096];
};

static struct log real_log, sim_log;
static uint64_t decision_counts[DECISIONS];

static void log_add(struct log *log, enum decision decision, uint32_t request, uint32_t tokens)
{
    CHECK(log->count < sizeof(log->items) / sizeof(log->items[0]));
    log->items[log->count].decision = decision;
    log->items[log->count].request = request;
    log->items[log->count++].tokens = tokens;
}

/* ---- the history: requests, and what a cluster would know of them ---- */

enum state { NONE, WAITING, AWAITING, DECODING };
enum prompt { NO_PROMPT, PROMPT_WAITING, PROMPT_RUNNING, PROMPT_ENDED };

struct request {
    enum state state;
    bool again; /* Preempted or given up, then reserved again. */
    bool local;
    struct message_request name;
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
    uint32_t generated;
    uint32_t sim_generated;
    uint32_t preemptions;
    int32_t priority;
    int64_t born_us;
    sched_slot sim_slot;
};

/* A prompt of the request with the same index (local), or one that is decoded elsewhere. */
struct prompt_task {
    enum prompt state;
    bool local;
    uint32_t tokens;
    sched_slot sim_slot;
    uint32_t block_count;
    kv_block_id blocks[64];
};

static struct request requests[REQUESTS];
static struct prompt_task prompts[REQUESTS];
static uint32_t prompt_holders;
static uint64_t next_id;
static int64_t now_us;

static struct config config;
static uint32_t flight_max; /* Batches in flight. */
static uint32_t kv_rare;    /* How much more often other events happen than KV arrives. */
static uint32_t locals;     /* Of 4 requests, how many have their prompts here. */

/* State of the real machine. */
static struct kv_pool *kv;
static struct sched_machine *sched;
static struct token_pool *pool;
static struct sched_batch flying[LIMIT_BATCHES_IN_FLIGHT];
static uint32_t flying_count;
static struct message_request given_up; /* id 0 = none. */

/* The simulated machine. */
static struct sim_machine *sim;

static struct transport_peer *gateway(void)
{
    static char mark;
    return (struct transport_peer *)&mark;
}

static uint32_t index_of(const struct message_request *name)
{
    for (uint32_t i = 0; i < REQUESTS; i++)
        if (requests[i].name.id == name->id && requests[i].name.generation == name->generation)
            return i;
    CHECK(!"the request is known");
    return 0;
}

/* ---- what the real machine says ---- */

static void on_send(void *self, struct transport_peer *peer, const struct message *message)
{
    (void)self, (void)peer;
    if (message->kind == MESSAGE_RESERVED) {
        uint32_t request = index_of(&message->reserved.request);
        requests[request].state = AWAITING;
        log_add(&real_log, GRANTED, request, 0);
        return;
    }
    CHECK(message->kind == MESSAGE_PREEMPTED);
    bool decoding = message->preempted.generated > 0;
    uint32_t request = index_of(&message->preempted.request);
    CHECK(message->preempted.generated == requests[request].generated);
    requests[request].state = NONE;
    requests[request].again = true;
    requests[request].preemptions += decoding;
    if (!decoding)
        given_up = message->preempted.request;
    log_add(&real_log, decoding ? PREEMPTED : GIVEN_UP, request, 0);
}

static void on_send_tokens(void *self, struct transport_peer *peer,
                           const struct message_buffer *tokens)
{
    (void)self, (void)peer, (void)tokens;
}

static bool on_local_writes(void *self, const struct message_request *request)
{
    (void)self, (void)request;
    return false;
}

/* ---- what the simulated machine says ---- */

static void on_reserved(void *self, uint32_t machine, uint32_t request, uint32_t cached)
{
    (void)self, (void)machine, (void)cached;
    log_add(&sim_log, GRANTED, request, 0);
}

static void on_began(void *self, uint32_t machine, uint32_t request, uint32_t cached)
{
    (void)self, (void)machine, (void)request, (void)cached;
}

static void on_chunk_done(void *self, uint32_t machine, const struct sim_chunk *chunk)
{
    (void)self, (void)machine;
    log_add(&sim_log, chunk->ends ? CHUNK_LAST : CHUNK, chunk->request, chunk->tokens);
}

static void on_decoded(void *self, uint32_t machine, uint32_t request)
{
    struct request *r = &requests[request];
    (void)self, (void)machine;
    log_add(&sim_log, TOKEN, request, 0);
    if (++r->sim_generated == r->answer_tokens)
        sim_machine_remove(sim, r->sim_slot);
}

static void on_preempted(void *self, uint32_t machine, uint32_t request, bool decoding)
{
    (void)self, (void)machine;
    log_add(&sim_log, decoding ? PREEMPTED : GIVEN_UP, request, 0);
}

static const struct sim_machine_calls sim_calls = {.reserved = on_reserved,
                                                   .began = on_began,
                                                   .chunk_done = on_chunk_done,
                                                   .decoded = on_decoded,
                                                   .preempted = on_preempted};

/* ---- events, given to both ---- */

static struct sched_rank rank_of(const struct request *r)
{
    return (struct sched_rank){.weight = 1,
                               .priority = r->priority,
                               .resumed = r->name.generation > 0,
                               .born_us = r->born_us,
                               .request_number = message_request_number(&r->name)};
}

static void reserve(struct request *r)
{
    struct message_reserve message = {
        .request = r->name,
        .prompt_tokens = r->prompt_tokens,
        .sampling = {.top_p = 1, .logprobs = -1, .output_tokens_max = r->answer_tokens},
        .rank = {.weight = 1,
                 .priority = r->priority,
                 .preemptions = r->preemptions,
                 .waited_ms = (uint32_t)((now_us - r->born_us) / 1000)}};
    snprintf(message.prompt_machine, sizeof(message.prompt_machine), "%s", r->local ? "m" : "p");
    r->state = WAITING;
    r->again = false;
    r->generated = 0;
    r->born_us = now_us - message.rank.waited_ms * 1000ll;
    token_pool_reserve(pool, gateway(), &message, now_us);
    CHECK(sim_machine_reserve(sim,
                              &(struct sim_reserve){.request = (uint32_t)(r - requests),
                                                    .prompt_tokens = r->prompt_tokens,
                                                    .output_tokens = r->answer_tokens,
                                                    .rank = rank_of(r),
                                                    .local = r->local,
                                                    .preemptions = r->preemptions},
                              &r->sim_slot) == ST_OK);
}

static void reserve_new(struct request *r, uint32_t tokens_max)
{
    uint32_t prompt = 1 + draw(draw(3) == 0 ? tokens_max - 2 : 60);
    *r = (struct request){.local = draw(4) < locals,
                          .name = {.id = ++next_id},
                          .prompt_tokens = prompt,
                          .answer_tokens = 2 + draw(tokens_max - prompt - 1),
                          .priority = (int32_t)draw(3) - 1,
                          .born_us = now_us - 1000 * draw(1000)};
    reserve(r);
}

static void reserve_again(struct request *r)
{
    r->prompt_tokens += r->generated;
    r->answer_tokens -= r->generated;
    r->name.generation++;
    if (r->answer_tokens < 2)
        *r = (struct request){0};
    else
        reserve(r);
}

static void kv_arrives(struct request *r)
{
    r->state = DECODING;
    r->generated = r->sim_generated = 1;
    token_pool_kv_ready(pool,
                        &(struct message_kv_ready){.request = r->name,
                                                   .prompt_tokens = r->prompt_tokens,
                                                   .first_token = 1},
                        now_us);
    sim_machine_decode(sim, r->sim_slot, r->answer_tokens - 1);
}

static void prompt_add(struct prompt_task *p, const struct request *reserved)
{
    uint32_t i = (uint32_t)(p - prompts);
    const struct message_request name = {.id = ++next_id};
    struct sched_rank rank = {.weight = 1,
                              .priority = (int32_t)draw(3) - 1,
                              .request_number = message_request_number(&name)};
    *p = (struct prompt_task){.state = PROMPT_WAITING,
                              .local = reserved != NULL,
                              .tokens = 1 + draw((draw(3) == 0 ? 20 : 4) * config.kv.block_tokens)};
    if (reserved != NULL) {
        p->tokens = reserved->prompt_tokens;
        rank = rank_of(reserved);
    }
    p->block_count =
        p->local ? 0 : (p->tokens + config.kv.block_tokens - 1) / config.kv.block_tokens;
    sched_machine_prompt_add(sched, i, 0, p->tokens, p->block_count, &rank);
    const struct sim_prompt prompt = {.request = REQUESTS + i,
                                      .tokens = p->tokens,
                                      .reserved =
                                          reserved != NULL ? reserved->sim_slot : SCHED_NO_SLOT,
                                      .rank = rank};
    CHECK(sim_machine_prompt(sim, &prompt, &p->sim_slot) == ST_OK);
}

/* The prompt leaves because its KV was sent or is not needed. Requires that no batch computes the
 * prompt. */
static void prompt_leave(struct prompt_task *p)
{
    uint32_t i = (uint32_t)(p - prompts);
    sched_machine_remove(sched, i);
    if (p->state == PROMPT_ENDED && p->block_count > 0) {
        kv_pool_free(kv, i + 1, p->blocks, p->block_count);
        prompt_holders--;
    }
    sim_machine_remove(sim, p->sim_slot);
    *p = (struct prompt_task){0};
}

/* Cancels the request. Requires that the request's own prompt is not being computed here. */
static void cancel(struct request *r)
{
    struct prompt_task *p = &prompts[r - requests];
    if (p->local && p->state == PROMPT_RUNNING)
        return;
    if (p->local)
        prompt_leave(p);
    token_pool_cancel(pool, &r->name, false, now_us);
    sim_machine_remove(sim, r->sim_slot);
    *r = (struct request){0};
}

/* ---- batches ---- */

static void batch_taken(const struct sched_batch *batch)
{
    for (uint32_t k = 0; k < batch->item_count; k++) {
        const struct sched_batch_item *item = &batch->items[k];
        struct token_decode row;
        if (!item->is_prompt) {
            token_pool_decode_begin(pool, item->slot, now_us, &row);
            continue;
        }
        struct prompt_task *p = &prompts[item->slot];
        p->state = PROMPT_RUNNING;
        if (!item->is_first_chunk || p->block_count == 0)
            continue;
        CHECK(kv_pool_take(kv, item->slot + 1, LAYER_FULL, p->block_count, p->blocks) == ST_OK);
        prompt_holders++;
    }
}

/* Starts a batch in the order of machine_batch_start (machine/batch.c). */
static void real_start(void)
{
    sched_machine_time_set(sched, now_us);
    token_pool_answers_grow(pool);
    token_pool_waiting_grant(pool, now_us);
    while (flying_count < flight_max &&
           sched_machine_batch_next(sched, 0, kv_pool_available(kv), &flying[flying_count])) {
        batch_taken(&flying[flying_count++]);
        if (flight_max > 1)
            token_pool_answers_grow(pool);
    }
    token_pool_deadlock_break(pool, prompt_holders, now_us);
    if (given_up.id > 0) /* The simulator has no quarantine. */
        token_pool_kv_aborted(pool, &given_up, now_us);
    given_up.id = 0;
}

/* Starts a batch in the order of batches_begin (tools/simulate/sim_run.c). */
static void sim_start(void)
{
    struct sim_cores_work work;
    double now_s = ((double)now_us + 0.5) / 1e6;
    sim_machine_grant(sim, now_s);
    while (sim_machine_start(sim, now_s, 0, &work))
        continue;
    sim_machine_deadlock_break(sim);
}

static void row_end(sched_slot slot)
{
    const struct token_request *row = token_request_of(pool, slot);
    struct message_token token = {.id = 1};
    if (row->state != TOKEN_STOPPED_IN_BATCH) {
        struct request *r = &requests[index_of(&row->attempt)];
        log_add(&real_log, TOKEN, (uint32_t)(r - requests), 0);
        token.finish = ++r->generated == r->answer_tokens ? FINISH_LENGTH : FINISH_NONE;
    }
    token_pool_decode_done(pool, slot, &token, NULL, 1, now_us);
}

static void batch_end(void)
{
    static struct sched_batch batch;
    int64_t due_us = (int64_t)(sim_machine_due_s(sim) * 1e6) + 1;
    now_us = now_us > due_us ? now_us : due_us;
    batch = flying[0];
    memmove(flying, flying + 1, --flying_count * sizeof(flying[0]));
    sched_machine_batch_done(sched, batch.index);
    for (uint32_t k = 0; k < batch.item_count; k++) {
        const struct sched_batch_item *item = &batch.items[k];
        if (!item->is_prompt) {
            row_end(item->slot);
            continue;
        }
        log_add(&real_log, item->is_last_chunk ? CHUNK_LAST : CHUNK, REQUESTS + item->slot,
                item->token_count);
        if (item->is_last_chunk)
            prompts[item->slot].state = PROMPT_ENDED;
    }
    token_pool_tokens_send(pool);
    sim_machine_batch_end(sim, ((double)now_us + 0.5) / 1e6);
    for (uint32_t i = 0; i < REQUESTS; i++)
        if (requests[i].state == DECODING && requests[i].generated == requests[i].answer_tokens)
            requests[i] = (struct request){0};
}

/* ---- the history ---- */

static void logs_compare(uint64_t run, uint32_t step)
{
    struct sim_machine_use use;
    for (uint32_t i = 0; i < real_log.count || i < sim_log.count; i++)
        CHECKF(i < real_log.count && i < sim_log.count &&
                   real_log.items[i].decision == sim_log.items[i].decision &&
                   real_log.items[i].request == sim_log.items[i].request &&
                   real_log.items[i].tokens == sim_log.items[i].tokens,
               "run %" PRIu64 ", step %u: decision %u of %u and %u differs: %u for request %u, and "
               "%u for %u in the simulation",
               run, step, i, real_log.count, sim_log.count, real_log.items[i].decision,
               real_log.items[i].request, sim_log.items[i].decision, sim_log.items[i].request);
    for (uint32_t i = 0; i < real_log.count; i++)
        decision_counts[real_log.items[i].decision]++;
    real_log.count = sim_log.count = 0;
    sim_machine_use(sim, &use);
    uint32_t blocks = kv_pool_block_count(kv);
    CHECK(use.kv == 1 - (double)kv_pool_available(kv) / blocks);
}

/* The request's KV is complete: it came from another machine, or from a prompt that was computed
 * here. */
static void awaiting_step(struct request *r)
{
    struct prompt_task *p = &prompts[r - requests];
    if (!r->local && draw(kv_rare) == 0) {
        kv_arrives(r);
    } else if (r->local && p->local && p->state == PROMPT_ENDED) {
        kv_arrives(r);
        prompt_leave(p);
    } else if (r->local && p->state == NO_PROMPT) {
        prompt_add(p, r);
    }
}

static void random_event(void)
{
    uint32_t first = draw(REQUESTS);
    struct request *r = &requests[first];
    struct prompt_task *p = &prompts[draw(REQUESTS)];
    uint32_t tokens_max = kv_pool_block_count(kv) * config.kv.block_tokens;
    switch (draw(12)) {
    case 0:
    case 1:
        if (r->state == NONE && r->again)
            reserve_again(r);
        else if (r->state == NONE && !(prompts[first].local && prompts[first].state != NO_PROMPT))
            reserve_new(r, tokens_max < CONTEXT_MIN ? tokens_max : CONTEXT_MIN);
        break;
    case 2:
    case 3:
        for (uint32_t i = 0; r->state != AWAITING && i < REQUESTS; i++)
            r = &requests[(first + i) % REQUESTS];
        if (r->state == AWAITING)
            awaiting_step(r);
        break;
    case 4:
        if (p->state == NO_PROMPT && draw(3) == 0)
            prompt_add(p, NULL);
        else if (!p->local && (p->state == PROMPT_ENDED || p->state == PROMPT_WAITING))
            prompt_leave(p);
        break;
    case 5:
        if (draw(50) == 0) {
            bool mixed = draw(2) == 0;
            token_pool_mixed_set(pool, mixed);
            sim_machine_mixed_set(sim, mixed);
        } else if (r->state != NONE && draw(20) == 0) {
            cancel(r);
        }
        break;
    default:
        if (flying_count > 0)
            batch_end();
        break;
    }
}

static void machines_open(const struct sim_machines *hosts, uint32_t stages)
{
    static struct sim_machine_facts host;
    uint32_t blocks = 20 + draw(30);
    const struct sim_machine_options options = {.host = &host,
                                                .config = &config,
                                                .context_tokens = CONTEXT_MIN + draw(200),
                                                .calls = &sim_calls};
    const struct sched_machine_facts facts = {.stage_count = stages, .path_count = 1};
    const struct sched_machine_options machine = sched_machine_options_make(&config, &facts);
    host = hosts->machines[stages > 1 ? 0 : 1];
    CHECK(host.cost.stage_count == stages);
    host.kv_tokens = (uint64_t)blocks * config.kv.block_tokens;
    flight_max = sched_batches_in_flight(stages, 1);
    CHECK(sim_machine_open(&options, &sim) == ST_OK);
    CHECK(kv_pool_open(blocks, &kv) == ST_OK && sched_machine_open(&machine, &sched) == ST_OK);
    const struct token_pool_options tokens = {
        .name = "m",
        .sched = sched,
        .kv = kv,
        .memory = sched_memory_options_make(&config, &(struct layer_groups){.count = 1}, blocks,
                                            options.context_tokens),
        .vocab = 10,
        .calls = {on_send, on_send_tokens, on_local_writes}};
    CHECK(token_pool_open(&tokens, &pool) == ST_OK);
    token_pool_writer_up(pool, (struct token_link){.number = 1}, "p", NULL);
}

static void run(const struct sim_machines *hosts, uint64_t number)
{
    draws = number << 32;
    config.scheduler.growth_tokens = 1 + draw(40);
    config.scheduler.growth_reserve_percent = draw(2) * draw(30);
    config.scheduler.preemptions_max = draw(5);
    config.scheduler.prompt_batch_tokens = 64;
    config.scheduler.mixed_prompt_tokens = 64;
    config.scheduler.prompt_fill_tokens = 128;
    config.scheduler.batch_sequences_max = 4 + draw(8);
    kv_rare = draw(2) == 0 ? 2 : 60;
    locals = draw(2);
    now_us = 1000000;
    machines_open(hosts, 1 + draw(2));
    for (uint32_t step = 0; step < STEPS; step++) {
        now_us += draw(200);
        random_event();
        real_start();
        sim_start();
        logs_compare(number, step);
    }
    while (flying_count > 0)
        batch_end();
    real_log.count = sim_log.count = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        /* The prompt is between two chunks, because no batch is left. */
        if (prompts[i].state == PROMPT_RUNNING)
            prompts[i].state = PROMPT_ENDED;
        if (requests[i].state != NONE)
            cancel(&requests[i]);
        if (prompts[i].state != NO_PROMPT)
            prompt_leave(&prompts[i]);
        requests[i] = (struct request){0};
    }
    CHECK(kv_pool_available(kv) == kv_pool_block_count(kv));
    token_pool_close(pool);
    sched_machine_close(sched);
    kv_pool_close(kv);
    sim_machine_close(sim);
}

int main(void)
{
    static const char text[] =
        "{\"pools\": {\"prompt\": [\"p\"], \"token\": [\"t\"]}, \"machines\": {"
        "\"p\": {\"threads\": 2, \"stages\": [{\"threads\": 2, \"layers\": \"0-0\"}, "
        "{\"threads\": 2, \"layers\": \"1-2\"}]}, "
        "\"t\": {\"threads\": 2, \"kv_memory\": \"16MiB\"}}}";
    static struct sim_machines hosts;
    struct error error = {""};
    seed = test_seed();
    CHECKF(config_parse(text, strlen(text), "c.json", &config, &error) == ST_OK, "%s", error.text);
    CHECK(profile_parse(profile_example, strlen(profile_example), "p.json", &hosts.profile,
                        &error) == ST_OK);
    CHECKF(sim_machines_of_config(&hosts, &config, &error) == ST_OK, "%s", error.text);
    /* More cases, until the rarest decision has occurred. */
    for (uint64_t number = 0;
         number < RUNS || (decision_counts[GIVEN_UP] == 0 && number < 50 * RUNS); number++)
        run(&hosts, number);
    sim_machines_done(&hosts);
    printf("equal decisions: %" PRIu64 " grants, %" PRIu64 " preemptions, %" PRIu64
           " reservations given up, %" PRIu64 " chunks of prompts, %" PRIu64 " tokens\n",
           decision_counts[GRANTED], decision_counts[PREEMPTED], decision_counts[GIVEN_UP],
           decision_counts[CHUNK] + decision_counts[CHUNK_LAST], decision_counts[TOKEN]);
    CHECK(decision_counts[GRANTED] > 1000 && decision_counts[PREEMPTED] > 100 &&
          decision_counts[GIVEN_UP] > 0);
    return 0;
}
