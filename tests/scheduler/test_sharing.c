/* Goal: several gateways that share machines starve no request and never wait for each other for
 * ever, though each decides alone, moves machines in its own view, and learns of the others' work
 * late. Method: each seed is three cluster-level schedulers over the same simulated machines
 * (sim_machine.h) in virtual time. Messages take time. Every 10 ms each machine reports the work of
 * other gateways, and whether one of them has it in the mixed pool; a machine keeps its share while
 * any of them does. Requests of all sizes arrive, clients disconnect, home pools change. Then no
 * request arrives, and all that are left must end.
 *
 * `test_sched_sharing [SEED [COUNT]]`: COUNT seeds from SEED on. A failure names its seed. */
#include "common/random.h"
#include "scheduler/cluster/cluster.h"
#include "tests/check.h"
#include "tests/scheduler/sim_events.h"
#include "tests/scheduler/sim_state.h"

#include <string.h>

#define GATEWAYS 3
#define MACHINES 4
/* Requests of each gateway. Slot s of gateway g is request g × REQUESTS + s of the machines. */
#define REQUESTS   16
#define STEPS      300
#define MESSAGE_US 200
#define OTHERS_US  10000
#define WAIT_US    500000
#define SETTLE_MAX 400000
#define SEEDS      400

struct gateway {
    struct sched_cluster *cluster;
    enum pool pools[MACHINES]; /* Pool of each machine in this gateway's view. */
    struct sched_others told[MACHINES];
};

static struct gateway gateways[GATEWAYS];
static struct machine machines[MACHINES];
static bool says_mixed[MACHINES][GATEWAYS]; /* What the machine was told. */
static struct request requests[GATEWAYS * REQUESTS];
static uint64_t seed, draws, ended, lost, expired, moves, shared_moves, yielded, arrived;
static int64_t now_us;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static void later(int64_t delay_us, struct event event)
{
    event.at_us = now_us + delay_us;
    sim_events_add(&event);
}

static void say(enum kind kind, uint32_t machine, uint32_t id, uint32_t value)
{
    later(MESSAGE_US, (struct event){.kind = kind,
                                     .machine = machine,
                                     .request = id,
                                     .generation = requests[id].generation,
                                     .value = value});
}

/* ---- gateways ---- */

static void tell(uint32_t g, struct sched_event event);

static void arrive(uint32_t id)
{
    struct request *r = &requests[id];
    r->state = WAITING;
    r->prompt_machine = r->token_machine = SCHED_NO_MACHINE;
    r->prompt_sent = r->prefilled = false;
    tell(id / REQUESTS, (struct sched_event){.kind = SCHED_ARRIVED,
                                             .request = id % REQUESTS,
                                             .resumed = r->resumed,
                                             .prompt_tokens = r->prompt_tokens,
                                             .output_tokens = r->wanted > 1 ? r->wanted : 0,
                                             .key_index = UINT32_MAX,
                                             .weight = 1});
}

static void cancel(const struct request *r)
{
    uint32_t id = (uint32_t)(r - requests);
    if (r->prompt_machine != SCHED_NO_MACHINE)
        say(MESSAGE_CANCEL, r->prompt_machine, id, 0);
    if (r->token_machine != SCHED_NO_MACHINE && r->token_machine != r->prompt_machine)
        say(MESSAGE_CANCEL, r->token_machine, id, 0);
}

static void resume(uint32_t id)
{
    struct request *r = &requests[id];
    cancel(r);
    r->generation++;
    r->prompt_tokens += r->answered;
    r->wanted -= r->answered;
    r->answered = 0;
    r->resumed = true;
    arrive(id);
}

static void on_route(uint32_t id, const struct sched_action *action)
{
    struct request *r = &requests[id];
    CHECK(r->state == WAITING);
    r->state = ROUTED;
    r->prompt_machine = action->machine;
    r->token_machine = action->token_machine;
    r->prompt_sent = action->token_machine == SCHED_NO_MACHINE;
    if (r->prompt_sent)
        say(MESSAGE_PROMPT, action->machine, id, r->prompt_tokens);
    else
        say(MESSAGE_RESERVE, action->token_machine, id, 0);
}

static void tell(uint32_t g, struct sched_event event)
{
    struct sched_actions actions;
    uint32_t losts[REQUESTS];
    uint32_t lost_count = 0;
    event.now_us = now_us;
    sched_cluster_event(gateways[g].cluster, &event, &actions);
    for (;; sched_cluster_more_actions(gateways[g].cluster, now_us, &actions)) {
        for (uint32_t i = 0; i < actions.count; i++) {
            const struct sched_action *action = &actions.items[i];
            uint32_t id = g * REQUESTS + action->request;
            bool large = action->kind == SCHED_REFUSE && action->refusal == SCHED_REFUSED_LARGE;
            large |= action->kind == SCHED_EXPIRED;
            expired += action->kind == SCHED_EXPIRED;
            CHECKF(large || action->kind == SCHED_MOVED || action->kind == SCHED_ROUTE ||
                       action->kind == SCHED_LOST,
                   "seed %llu: action %d", (unsigned long long)seed, action->kind);
            /* A prompt without an answer, and all machines are mixed, for this gateway or for
             * another one. */
            if (large)
                requests[id].state = GONE;
            if (action->kind == SCHED_ROUTE)
                on_route(id, action);
            if (action->kind == SCHED_LOST)
                losts[lost_count++] = id;
            if (action->kind != SCHED_MOVED)
                continue;
            moves++;
            gateways[g].pools[action->machine] = action->pool;
            later(MESSAGE_US, (struct event){.kind = MESSAGE_ROLE,
                                             .machine = action->machine,
                                             .request = g,
                                             .value = action->pool == POOL_MIXED});
        }
        if (!actions.more)
            break;
    }
    lost += lost_count;
    for (uint32_t i = 0; i < lost_count; i++)
        resume(losts[i]);
}

static void finish(uint32_t id)
{
    requests[id].state = GONE;
    ended++;
    tell(id / REQUESTS, (struct sched_event){.kind = SCHED_ENDED,
                                             .request = id % REQUESTS,
                                             .output_tokens = requests[id].answered});
}

/* ---- machines ---- */

static int64_t batch_us(uint32_t rows)
{
    return 500 + 20 * rows;
}

static void kick(uint32_t i)
{
    struct sim_started started;
    while (sim_machine_start(&machines[i].sim, now_us, batch_us, &started))
        later(started.end_us - now_us,
              (struct event){.kind = BATCH_END, .machine = i, .value = started.batch});
}

static bool is_current(uint32_t id, uint32_t generation)
{
    return requests[id].generation == generation && requests[id].state == ROUTED;
}

static void answer(enum kind kind, uint32_t machine, uint32_t id, uint32_t generation, int64_t us)
{
    later(us, (struct event){
                  .kind = kind, .machine = machine, .request = id, .generation = generation});
}

static void on_reserved(uint32_t machine, uint32_t id, uint32_t generation)
{
    answer(MESSAGE_RESERVED, machine, id, generation, MESSAGE_US);
}

static void on_prompt_done(uint32_t machine, uint32_t id, uint32_t generation)
{
    answer(MESSAGE_FIRST, machine, id, generation, MESSAGE_US);
    if (!is_current(id, generation) || requests[id].token_machine == SCHED_NO_MACHINE)
        sim_machine_prompt_free(&machines[machine].sim, id, generation);
    else
        answer(MESSAGE_KV, machine, id, generation,
               requests[id].token_machine == machine ? 0 : MESSAGE_US + draw(3000));
}

static void on_decoded(uint32_t machine, uint32_t id, uint32_t generation)
{
    struct request *r = &requests[id];
    if (!is_current(id, generation) || ++r->answered < r->wanted)
        return;
    sim_machine_cancel(&machines[machine].sim, id, generation);
    answer(MESSAGE_END, machine, id, generation, MESSAGE_US);
}

static void on_preempted(uint32_t machine, uint32_t id, uint32_t generation)
{
    answer(MESSAGE_PREEMPTED, machine, id, generation, MESSAGE_US);
}

static void on_yielded(uint32_t machine, uint32_t id, uint32_t generation)
{
    answer(MESSAGE_YIELDED, machine, id, generation, MESSAGE_US);
}

static const struct sim_calls calls = {on_reserved, on_prompt_done, on_decoded, on_preempted,
                                       on_yielded};

static void on_role(uint32_t i, uint32_t g, bool mixed)
{
    bool any = false;
    says_mixed[i][g] = mixed;
    for (uint32_t k = 0; k < GATEWAYS; k++)
        any |= says_mixed[i][k];
    sched_memory_mixed_set(machines[i].sim.memory, any);
}

static void on_kv(const struct event *event)
{
    struct request *r = &requests[event->request];
    sim_machine_prompt_free(&machines[event->machine].sim, event->request, event->generation);
    /* The first token was the last one. */
    if (r->wanted <= 1 && r->generation == event->generation)
        sim_machine_cancel(&machines[r->token_machine].sim, event->request, event->generation);
    if (!is_current(event->request, event->generation))
        return;
    r->prefilled = true;
    sim_machine_decode(&machines[r->token_machine].sim, event->request, event->generation,
                       r->wanted - 1);
    kick(r->token_machine);
    tell(event->request / REQUESTS,
         (struct sched_event){.kind = SCHED_PREFILLED, .request = event->request % REQUESTS});
}

static void to_machine(const struct event *event)
{
    struct sim_machine *m = &machines[event->machine].sim;
    struct request *r = &requests[event->request];
    struct sched_rank rank = {
        .weight = 1, .resumed = r->resumed, .born_us = r->born_us, .request_number = r->number};
    bool local = r->token_machine == r->prompt_machine;
    bool current = event->kind != MESSAGE_ROLE && is_current(event->request, event->generation);
    if (event->kind == MESSAGE_RESERVE && current)
        sim_machine_reserve(m, &(struct sim_reserve){.request = event->request,
                                                     .generation = event->generation,
                                                     .prompt_tokens = r->prompt_tokens,
                                                     .output_tokens = r->wanted,
                                                     .rank = rank,
                                                     .local = local,
                                                     .preemptions = r->preemptions});
    else if (event->kind == MESSAGE_PROMPT && current)
        sim_machine_prompt(m, event->request, event->generation, event->value, local, &rank);
    else if (event->kind == MESSAGE_CANCEL)
        sim_machine_cancel(m, event->request, event->generation);
    else if (event->kind == MESSAGE_ROLE)
        on_role(event->machine, event->request, event->value);
    else if (event->kind == BATCH_END)
        sim_machine_batch_end(m, event->value);
    else if (event->kind == MESSAGE_KV)
        on_kv(event);
    kick(event->machine);
}

/* Returns the work that machine i has from gateways other than g. */
static struct sched_others others_of(uint32_t i, uint32_t g)
{
    struct sched_others others = {0};
    for (uint32_t slot = 0; slot < SIM_SLOTS; slot++) {
        const struct sim_task *task = &machines[i].sim.tasks[slot];
        if (task->kind == SIM_FREE || task->request / REQUESTS == g)
            continue;
        bool prompt = task->kind == SIM_PROMPT;
        others.kv_tokens +=
            SIM_BLOCK_TOKENS *
            (prompt ? task->blocks : sched_memory_blocks(machines[i].sim.memory, slot)->spans_max);
        others.prompts += prompt;
        others.prompt_tokens += prompt ? SIM_BLOCK_TOKENS * task->blocks : 0;
        others.decodes += !prompt;
    }
    for (uint32_t k = 0; k < GATEWAYS; k++)
        others.mixed |= k != g && says_mixed[i][k];
    return others;
}

static void others_tell(void)
{
    for (uint32_t i = 0; i < MACHINES; i++) {
        for (uint32_t g = 0; g < GATEWAYS; g++) {
            struct sched_others others = others_of(i, g);
            struct sched_others *told = &gateways[g].told[i];
            shared_moves += others.mixed && !told->mixed;
            bool same = others.kv_tokens == told->kv_tokens && others.prompts == told->prompts &&
                        others.prompt_tokens == told->prompt_tokens &&
                        others.decodes == told->decodes && others.mixed == told->mixed;
            if (same)
                continue;
            *told = others;
            tell(g,
                 (struct sched_event){.kind = SCHED_MACHINE_LOAD, .machine = i, .others = others});
        }
    }
}

static void to_gateway(const struct event *event)
{
    uint32_t id = event->request;
    struct request *r = &requests[id];
    if (!is_current(id, event->generation))
        return;
    switch (event->kind) {
    case MESSAGE_RESERVED:
        r->prompt_sent = true;
        say(MESSAGE_PROMPT, r->prompt_machine, id, r->prompt_tokens);
        break;
    case MESSAGE_FIRST:
        r->answered = 1;
        tell(id / REQUESTS, (struct sched_event){.kind = SCHED_COMPUTED, .request = id % REQUESTS});
        if (r->wanted <= 1)
            finish(id);
        break;
    case MESSAGE_PREEMPTED:
    case MESSAGE_YIELDED:
        r->preemptions += event->kind == MESSAGE_PREEMPTED;
        yielded += event->kind == MESSAGE_YIELDED;
        tell(id / REQUESTS, (struct sched_event){.kind = SCHED_ENDED,
                                                 .request = id % REQUESTS,
                                                 .output_tokens = r->answered});
        resume(id);
        break;
    default:
        finish(id);
        break;
    }
}

static void step(void)
{
    static int64_t others_us;
    struct event event = sim_events_next();
    now_us = event.at_us > now_us ? event.at_us : now_us;
    if (event.kind == MESSAGE_RESERVED || event.kind == MESSAGE_FIRST ||
        event.kind == MESSAGE_END || event.kind == MESSAGE_PREEMPTED ||
        event.kind == MESSAGE_YIELDED)
        to_gateway(&event);
    else
        to_machine(&event);
    if (now_us >= others_us || others_us > now_us + OTHERS_US) {
        others_us = now_us + OTHERS_US;
        others_tell();
    }
    for (uint32_t i = 0; i < MACHINES; i++)
        sim_machine_check(&machines[i].sim);
}

/* ---- a seed ---- */

static void something_happens(void)
{
    uint32_t id = draw(GATEWAYS * REQUESTS);
    struct request *r = &requests[id];
    if (draw(30) == 0) { /* An operator changes a home pool, and every gateway is told. */
        uint32_t machine = draw(MACHINES);
        enum pool home = (enum pool)draw(POOL_COUNT);
        for (uint32_t g = 0; g < GATEWAYS; g++)
            tell(g, (struct sched_event){
                        .kind = SCHED_MACHINE_HOME, .machine = machine, .pool = home});
    } else if (draw(8) == 0 && r->state != GONE) {
        cancel(r);
        r->state = GONE;
        r->generation++;
        tell(id / REQUESTS, (struct sched_event){.kind = SCHED_ENDED, .request = id % REQUESTS});
    } else if (r->state == GONE) {
        *r = (struct request){.generation = r->generation + 1,
                              .prompt_tokens = 1 + draw(draw(4) == 0 ? 250 : 100),
                              .wanted = draw(4) == 0 ? 1 : 2 + draw(draw(6) == 0 ? 100 : 40),
                              .born_us = now_us,
                              .number = ++arrived};
        arrive(id);
    }
}

static void gateway_open(uint32_t g)
{
    const struct sched_cluster_options options = {
        .request_count = REQUESTS,
        .machine_count = MACHINES,
        .queue_requests_max = REQUESTS,
        .wait_us_max = WAIT_US,
        .machine_kv_multiple = 2,
        .prompt_queue_threshold_tokens = 50 + draw(300),
        .token_memory_threshold = true,
        .adaptive = draw(4) > 0,
        .homing = SCHED_HOMING_DONE,
        .stay_tokens = 1,
    };
    memset(&gateways[g], 0, sizeof(gateways[g]));
    CHECK(sched_cluster_open(&options, &gateways[g].cluster) == ST_OK);
    for (uint32_t i = 0; i < MACHINES; i++) {
        gateways[g].pools[i] = machines[i].home;
        says_mixed[i][g] = machines[i].home == POOL_MIXED;
        tell(g, (struct sched_event){.kind = SCHED_MACHINE_UP,
                                     .machine = i,
                                     .pool = machines[i].home,
                                     .kv_tokens = machines[i].kv_tokens,
                                     .mixed_kv_tokens = machines[i].mixed_kv_tokens});
    }
    for (uint32_t i = 0; i < MACHINES * MACHINES; i++)
        if (i / MACHINES != i % MACHINES)
            tell(g, (struct sched_event){
                        .kind = SCHED_LINK_UP, .machine = i / MACHINES, .peer = i % MACHINES});
}

static void run(void)
{
    draws = 0;
    now_us = 0;
    sim_events_reset();
    memset(requests, 0, sizeof(requests));
    memset(machines, 0, sizeof(machines));
    for (uint32_t i = 0; i < MACHINES; i++) {
        uint32_t blocks = 24 + draw(12);
        machines[i].home = i < 2 ? (enum pool)i : (enum pool)draw(POOL_COUNT);
        machines[i].kv_tokens = (uint64_t)blocks * SIM_BLOCK_TOKENS;
        machines[i].mixed_kv_tokens = (uint64_t)(blocks / 2) * SIM_BLOCK_TOKENS;
        const struct sim_shape shape = sim_shape_draw(draw);
        sim_machine_open(&machines[i].sim, i, blocks, &shape, &calls);
        sched_memory_mixed_set(machines[i].sim.memory, machines[i].home == POOL_MIXED);
    }
    for (uint32_t g = 0; g < GATEWAYS; g++)
        gateway_open(g);
    for (int i = 0; i < STEPS; i++) {
        uint32_t between = draw(12);
        for (uint32_t k = 0; k < between && sim_events_count() > 0; k++)
            step();
        now_us += draw(100);
        something_happens();
    }
    for (int i = 0; i < SETTLE_MAX; i++) {
        while (sim_events_count() > 0 && i++ < SETTLE_MAX)
            step();
        /* From now on only the machines' reports about other gateways are sent. */
        now_us += OTHERS_US;
        others_tell();
        bool wait = false;
        for (uint32_t g = 0; g < GATEWAYS; g++) {
            if (sched_cluster_due_us(gateways[g].cluster) <= now_us)
                tell(g, (struct sched_event){.kind = SCHED_TICK});
            wait |= sched_cluster_waiting(gateways[g].cluster) > 0;
        }
        if (sim_events_count() == 0 && !wait)
            break;
    }
    for (uint32_t id = 0; id < GATEWAYS * REQUESTS; id++)
        CHECKF(requests[id].state == GONE,
               "seed %llu: request %u (%u + %u, generation %u) hangs %s on machines %d and %d",
               (unsigned long long)seed, id, requests[id].prompt_tokens, requests[id].wanted,
               requests[id].generation, requests[id].state == WAITING ? "unrouted" : "routed",
               (int)requests[id].prompt_machine, (int)requests[id].token_machine);
    for (uint32_t i = 0; i < MACHINES; i++) {
        CHECKF(sim_machine_idle(&machines[i].sim) &&
                   machines[i].sim.blocks_free == machines[i].sim.blocks,
               "seed %llu: machine %u has something left", (unsigned long long)seed, i);
        sim_machine_close(&machines[i].sim);
    }
    for (uint32_t g = 0; g < GATEWAYS; g++)
        sched_cluster_close(gateways[g].cluster);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : argc > 1 ? 1 : SEEDS;
    for (uint64_t i = 0; i < count; i++) {
        seed = first + i;
        run();
    }
    printf(
        "%llu seeds: %llu requests ended, %llu lost to a mixed machine, %llu expired, %llu moves, "
        "%llu times a machine was mixed for another one, %llu given up\n",
        (unsigned long long)count, (unsigned long long)ended, (unsigned long long)lost,
        (unsigned long long)expired, (unsigned long long)moves, (unsigned long long)shared_moves,
        (unsigned long long)yielded);
    CHECK(count < SEEDS || (ended > 1000 && expired < ended / 1000 && lost > 0 && moves > 100 &&
                            shared_moves > 100));
    return 0;
}
