/* Goal: a request goes to the machine that takes the least time, counting the part of its prompt
 * that machines hold: the next turn of a conversation goes to the machine that decoded the last
 * one, unless that machine is too busy; and requests of a draining machine continue elsewhere
 * without computing their KV again. Method: small scenes in virtual time with results computed by
 * hand: two prompt machines (0, 1) and three token machines (2, 3, 4), each of which computes 1,000
 * prompt tokens per second and sends KV of 20,000, with a latency of 1 ms. KV that a machine has
 * evicted from memory counts if its tiers can load it in less time than computing takes. */
#include "scheduler/cluster/cluster.h"
#include "tests/check.h"

#define PROMPTS  2
#define MACHINES 5
#define REQUESTS 64
#define STEP     100
#define KV       20000

static struct sched_cluster *sc;
static struct sched_actions actions;
static struct sched_action route;
static uint32_t moved; /* The last machine that moved, and its new pool. */
static enum pool moved_to;

static const uint64_t talk[] = {11, 12, 13, 14};

static const struct sched_cluster_options options = {.request_count = REQUESTS,
                                                     .machine_count = MACHINES,
                                                     .prefix_count = 1024,
                                                     .queue_requests_max = REQUESTS,
                                                     .token_memory_threshold = true,
                                                     .adaptive = true,
                                                     .prefix_slack_tokens = 6000,
                                                     .prefix_step_tokens = STEP,
                                                     .prefix_saves = true};

static int64_t passed_us; /* Added to the time of each event. */

static void tell(struct sched_event event)
{
    event.now_us += passed_us;
    sched_cluster_event(sc, &event, &actions);
    CHECK(!actions.more);
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct sched_action *action = &actions.items[i];
        if (action->kind == SCHED_ROUTE)
            route = *action;
        if (action->kind != SCHED_MOVED)
            continue;
        moved = action->machine;
        moved_to = action->pool;
    }
}

/* Latency 1 ms. tokens_per_s 0: the link is not measured. */
static void link_speed(uint32_t from, uint32_t to, uint32_t tokens_per_s, uint32_t error_percent)
{
    tell((struct sched_event){.kind = SCHED_LINK_SPEED,
                              .machine = from,
                              .peer = to,
                              .link = {.latency_us = 1000,
                                       .tokens_per_s = tokens_per_s,
                                       .error_percent = error_percent}});
}

static void cluster_open(const struct sched_cluster_options *with)
{
    CHECK(sched_cluster_open(with, &sc) == ST_OK);
    moved = SCHED_NO_MACHINE;
    for (uint32_t i = 0; i < MACHINES; i++)
        tell((struct sched_event){.kind = SCHED_MACHINE_UP,
                                  .machine = i,
                                  .pool = i < PROMPTS ? POOL_PROMPT : POOL_TOKEN,
                                  .kv_tokens = KV,
                                  .mixed_kv_tokens = KV / 2});
    for (uint32_t i = 0; i < MACHINES; i++)
        tell((struct sched_event){
            .kind = SCHED_MACHINE_RATES, .machine = i, .prompt_tokens_per_s = 1000});
    for (uint32_t i = 0; i < MACHINES; i++) {
        for (uint32_t k = 0; k < MACHINES; k++) {
            if (i == k)
                continue;
            tell((struct sched_event){.kind = SCHED_LINK_UP, .machine = i, .peer = k});
            link_speed(i, k, 20000, 0);
        }
    }
}

static void holds(uint32_t machine, uint32_t steps)
{
    tell((struct sched_event){
        .kind = SCHED_CACHED, .machine = machine, .prefix = {.hashes = talk, .count = steps}});
}

static void others(uint32_t machine, uint32_t decodes, uint64_t kv_tokens)
{
    tell((struct sched_event){.kind = SCHED_MACHINE_LOAD,
                              .machine = machine,
                              .others = {.decodes = decodes, .kv_tokens = kv_tokens}});
}

static void arrive(uint32_t id, uint32_t prompt, uint32_t held)
{
    route = (struct sched_action){.machine = SCHED_NO_MACHINE};
    tell((struct sched_event){.kind = SCHED_ARRIVED,
                              .request = id,
                              .prompt_tokens = prompt,
                              .output_tokens = 200,
                              .holder_plus_1 = held,
                              .prefix = {.hashes = talk, .count = held > 0 ? 0 : prompt / STEP}});
    CHECK(route.kind == SCHED_ROUTE && route.request == id);
}

static void end(uint32_t id)
{
    tell((struct sched_event){.kind = SCHED_ENDED, .request = id});
}

static void check_route(uint32_t prompt, uint32_t token, uint32_t prefix_tokens)
{
    CHECKF(route.machine == prompt && route.token_machine == token &&
               route.prefix_tokens == prefix_tokens,
           "%u and %u, which holds %u tokens: want %u and %u, %u tokens", route.machine,
           route.token_machine, route.prefix_tokens, prompt, token, prefix_tokens);
}

/* The prompt has 450 tokens, of which machine 3 holds 400. */
static void test_next_turn(void)
{
    cluster_open(&options);
    arrive(0, 450, 0); /* No machine holds a part of the prompt. */
    check_route(0, 2, 0);
    end(0);
    tell((struct sched_event){.kind = SCHED_EVICTED, .machine = 0});

    holds(3, 4);
    arrive(1, 450, 0); /* Machine 3 takes 50 ms; two machines would take 450 ms and the latency. */
    check_route(3, 3, 400);
    end(1);
    /* Seven answers also wait while the 50 tokens are computed: 50 × 8 + 7 = 407 ms. */
    others(3, 7, 0);
    arrive(2, 450, 0);
    check_route(3, 3, 400);
    end(2);
    /* 50 × 10 + 9 = 509 ms. Another machine computes the prompt, and sends machine 3 only the 50
     * tokens that it lacks. */
    others(3, 9, 0);
    arrive(3, 450, 0);
    check_route(0, 3, 0);
    end(3);
    tell((struct sched_event){.kind = SCHED_EVICTED, .machine = 0});
    tell((struct sched_event){.kind = SCHED_EVICTED, .machine = 3, .prefix = {talk + 1, 3}});
    arrive(4, 450, 0); /* Machine 3 still holds 350 tokens, so only 100 are sent. */
    check_route(0, 3, 0);
    end(4);
    CHECK(moved == SCHED_NO_MACHINE);
    sched_cluster_close(sc);
}

/* Machine 3 has no memory for an answer of 200 more tokens. */
static void test_full(void)
{
    struct sched_cluster_options fixed = options;
    cluster_open(&options);
    holds(3, 4);
    others(3, 0, KV - 500);
    arrive(0, 450, 0);
    check_route(3, 2, 400);
    CHECK(moved == 3 && moved_to == POOL_MIXED);
    end(0);
    CHECK(moved == 3 && moved_to == POOL_TOKEN);
    holds(1, 3); /* 150 tokens are to be computed, and no machine changes its pool. */
    tell((struct sched_event){.kind = SCHED_EVICTED, .machine = 3, .prefix = {talk + 2, 2}});
    moved = SCHED_NO_MACHINE;
    arrive(1, 450, 0);
    check_route(1, 2, 300);
    CHECK(moved == SCHED_NO_MACHINE);
    sched_cluster_close(sc);

    fixed.adaptive = false; /* Token machines compute only prompts that they decode. */
    cluster_open(&fixed);
    holds(3, 4);
    others(3, 0, KV - 500);
    arrive(0, 450, 0);
    check_route(0, 2, 0);
    sched_cluster_close(sc);
}

static void test_slack(void)
{
    struct sched_cluster_options tight = options;
    tight.prefix_slack_tokens = 1000;
    cluster_open(&tight);
    holds(3, 4);
    others(3, 0, 900);
    arrive(0, 450, 0);
    check_route(3, 3, 400);
    end(0);
    others(3, 0, 1100); /* Other machines have 1,100 tokens less work, more than the slack. */
    arrive(1, 450, 0);
    check_route(3, 2, 400);
    sched_cluster_close(sc);

    tight.prefix_saves = false; /* Machines keep no prefixes, so the prefix is not looked up. */
    cluster_open(&tight);
    holds(3, 4);
    arrive(0, 450, 0);
    check_route(0, 2, 0);
    sched_cluster_close(sc);
}

/* Machine 2 decodes a request of 450 tokens and begins to drain. */
static void decode_and_drain(const struct sched_cluster_options *with)
{
    cluster_open(with);
    arrive(0, 450, 0);
    check_route(0, 2, 0);
    CHECK(!sched_cluster_can_hand_over(sc, 0, 470, 180));
    tell((struct sched_event){.kind = SCHED_PREFILLED, .request = 0});
    CHECK(!sched_cluster_can_hand_over(sc, 0, 470, 180));
    tell((struct sched_event){.kind = SCHED_MACHINE_DRAIN, .machine = 2});
    CHECK(sched_cluster_can_hand_over(sc, 0, 470, 180) &&
          !sched_cluster_can_hand_over(sc, 0, 470, 0));
}

/* The only machine whose rate is known drains. The scheduler uses its rate for the others. */
static void test_rates(void)
{
    cluster_open(&options);
    for (uint32_t i = 0; i < MACHINES; i++)
        tell((struct sched_event){
            .kind = SCHED_MACHINE_RATES, .machine = i, .prompt_tokens_per_s = i == 2 ? 1000 : 0});
    arrive(0, 450, 0);
    tell((struct sched_event){.kind = SCHED_PREFILLED, .request = 0});
    tell((struct sched_event){.kind = SCHED_MACHINE_DRAIN, .machine = 2});
    CHECK(sched_cluster_can_hand_over(sc, 0, 470, 180));
    sched_cluster_close(sc);
}

static void test_hand_over(void)
{
    struct sched_cluster_options fixed = options;
    fixed.adaptive = false;
    decode_and_drain(&options);
    end(0);
    arrive(0, 470, 1 + 2);
    check_route(2, 3, 469);
    CHECK(moved == SCHED_NO_MACHINE);
    struct sched_machine_view view;
    sched_cluster_view(sc, 2, &view);
    CHECK(view.prompts == 1 && view.decodes == 0 && view.prompt_tokens_pending == 1);
    tell((struct sched_event){.kind = SCHED_PREFILLED, .request = 0});
    sched_cluster_view(sc, 2, &view);
    CHECK(view.prompts == 0 && view.prompt_tokens_pending == 0 && view.kv_tokens_scheduled == 0);
    sched_cluster_close(sc);

    decode_and_drain(&fixed); /* No other token machine can take the request. */
    others(3, 0, KV - 100);
    others(4, 0, KV - 100);
    CHECK(!sched_cluster_can_hand_over(sc, 0, 470, 180));
    others(4, 0, 0);
    CHECK(sched_cluster_can_hand_over(sc, 0, 470, 180));
    tell((struct sched_event){.kind = SCHED_LINK_DOWN, .machine = 2, .peer = 4});
    CHECK(!sched_cluster_can_hand_over(sc, 0, 470, 180));
    end(0);
    arrive(0, 470, 1 + 2);
    check_route(0, 4, 0);
    sched_cluster_close(sc);

    decode_and_drain(&options); /* A prompt machine may decode the request. */
    others(3, 0, KV - 100);
    others(4, 0, KV - 100);
    CHECK(sched_cluster_can_hand_over(sc, 0, 470, 180));
    end(0);
    arrive(0, 470, 1 + 2);
    check_route(2, 0, 469);
    CHECK(moved == 0 && moved_to == POOL_MIXED);
    sched_cluster_close(sc);

    decode_and_drain(&options); /* The request ends, and the machine no longer drains. */
    end(0);
    tell((struct sched_event){.kind = SCHED_MACHINE_UNDRAIN, .machine = 2});
    arrive(0, 470, 1 + 2);
    check_route(0, 2, 0);
    end(0);
    tell((struct sched_event){.kind = SCHED_MACHINE_DRAIN, .machine = 2});
    tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 2});
    arrive(0, 470, 1 + 2);
    check_route(0, 3, 0);
    sched_cluster_close(sc);
}

/* A request whose token machine has died: machine 0 has computed its prompt of 4000 tokens, and
 * keeps the KV in its prefix cache. It computes the 10 delivered tokens after its queue, and sends
 * everything to machine 3, which takes 200 ms. Or machine 1 gets the KV in 200 ms, if the link is
 * up, and sends it in 200 ms more; or it computes the whole prompt. No policy for prefixes is
 * needed. */
static void test_token_machine_died(bool linked)
{
    struct sched_cluster_options with = options;
    with.prefix_saves = false;
    for (uint32_t queue = 100; queue <= 4100; queue += 4000) {
        const bool stays = queue < 4000;
        cluster_open(&with);
        if (!linked)
            tell((struct sched_event){.kind = SCHED_LINK_DOWN, .machine = 0, .peer = 1});
        tell((struct sched_event){
            .kind = SCHED_ARRIVED, .prompt_tokens = queue, .output_tokens = 1});
        CHECK(route.machine == 0 && route.token_machine == 2);
        route = (struct sched_action){.machine = SCHED_NO_MACHINE};
        tell((struct sched_event){.kind = SCHED_ARRIVED,
                                  .request = 1,
                                  .resumed = true,
                                  .prompt_tokens = 4010,
                                  .output_tokens = 200,
                                  .holder_plus_1 = 1,
                                  .held_tokens = 4000});
        check_route(stays ? 0 : 1, 3, stays || linked ? 4000 : 0);
        CHECK(route.pull_source_plus_1 == (linked && !stays ? 1 : 0));
        struct sched_machine_view view;
        sched_cluster_view(sc, 0, &view);
        CHECK(view.prompt_tokens_pending == queue + (stays ? 10 : 0));
        sched_cluster_view(sc, 1, &view);
        CHECK(view.prompt_tokens_pending == (stays ? 0 : linked ? 10 : 4010));
        sched_cluster_close(sc);
    }
}

/* A request whose prompt machine has died: token machine 2 has kept 4000 of 4500 tokens. */
static void arrive_half(uint32_t id)
{
    route = (struct sched_action){.machine = SCHED_NO_MACHINE};
    tell((struct sched_event){.kind = SCHED_ARRIVED,
                              .request = id,
                              .resumed = true,
                              .prompt_tokens = 4500,
                              .output_tokens = 200,
                              .holder_plus_1 = 1 + 2,
                              .held_tokens = 4000});
}

/* Machines 1 and 2 only, with `decodes` answers on machine 2. */
static void half_open(uint32_t decodes, uint32_t link_rate, uint32_t error_percent)
{
    cluster_open(&options);
    tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 0});
    tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 3});
    tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 4});
    others(2, decodes, 1);
    link_speed(2, 1, link_rate, error_percent);
}

/* Machine 2 computes the rest beside its answers, in (1 + decodes) × 501 ms; machine 1 gets the KV
 * in 200 ms and the latency of 1 ms, or while it computes its queue, needs 500 ms more, and sends
 * the rest back with 1 ms; or it computes everything in 4501 ms. A pull must be better by more than
 * the mean error of its transfer. */
static void test_prompt_machine_died(void)
{
    static const struct {
        uint32_t decodes, queue, link_rate, error_percent;
        bool pulls;
    } cases[] = {
        {0, 0, 20000, 0, false},   {1, 0, 20000, 0, true},     {7, 0, 20000, 0, true},
        {7, 3400, 20000, 0, true}, {7, 3600, 20000, 0, false}, {7, 0, 500, 0, false},
        {7, 0, 1000, 0, false},    {7, 0, 1200, 0, true},      {7, 1500, 1200, 0, true},
        {7, 0, 1200, 10, false},   {7, 0, 20000, 10, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bool pulls = cases[i].pulls;
        half_open(cases[i].decodes, cases[i].link_rate, cases[i].error_percent);
        tell((struct sched_event){
            .kind = SCHED_MACHINE_LOAD, .machine = 1, .others = {.prompt_tokens = cases[i].queue}});
        arrive_half(1);
        CHECKF(route.machine == (pulls ? 1 : 2) && route.token_machine == 2 &&
                   route.prefix_tokens == 4000 && route.pull_source_plus_1 == (pulls ? 3 : 0),
               "case %zu: %u and %u, %u tokens, pull %u", i, route.machine, route.token_machine,
               route.prefix_tokens, route.pull_source_plus_1);
        sched_cluster_close(sc);
    }
}

/* The route says by which estimates it was chosen. */
static void test_decision(void)
{
    half_open(7, 20000, 10);
    arrive_half(1);
    const struct sched_decision *decision = &route.decision;
    CHECK(route.pull_source_plus_1 == 3 && decision->pull_us == 201000 &&
          decision->computed_us == 701000);
    CHECK(decision->move_us == 701000 + 1000 + 20100);
    CHECK(decision->keep_us == 8 * 500000 + 7000 && decision->compute_us == 4501000);
    sched_cluster_close(sc);

    cluster_open(&options);
    arrive(0, 450, 0); /* No machine holds KV of it: there is nothing to decide. */
    CHECK(route.decision.compute_us == 0 && route.decision.computed_us == 0);
    sched_cluster_close(sc);
}

/* A tier of the machine; the other tiers do not work. */
static void tier(uint32_t machine, enum tier_kind kind, uint32_t fixed_us, uint32_t token_ns)
{
    struct sched_event event = {.kind = SCHED_MACHINE_TIERS, .machine = machine};
    event.tiers[kind] =
        (struct sched_tier){.works = true, .load_fixed_us = fixed_us, .load_token_ns = token_ns};
    tell(event);
}

/* The machine evicts everything, and all transfers end. */
static void evict(uint32_t machine)
{
    passed_us += 1000000;
    tell((struct sched_event){.kind = SCHED_EVICTED, .machine = machine});
}

static void check_load(uint32_t machine, uint32_t held, uint32_t loaded, uint32_t cost_us)
{
    CHECKF(route.machine == machine && route.prefix_tokens == held && route.load_tokens == loaded &&
               route.decision.load_us == cost_us,
           "request %u: machine %u holds %u and loads %u tokens, %u us: want %u, %u, %u, %u us",
           route.request, route.machine, route.prefix_tokens, route.load_tokens,
           route.decision.load_us, machine, held, loaded, cost_us);
}

/* A prompt of 450 tokens, of which machine 1 has computed 400. Then it has evicted them. A load of 400
 * tokens takes 10 + 400 × 0.1 = 50 ms, and the 50 tokens left take 50 ms. The latency of the link is
 * 1 ms, and its transfer of 450 tokens takes 22.5 ms, of which all but 1 ms is hidden. */
static void test_file(void)
{
    cluster_open(&options);
    tier(1, TIER_KIND_FILE, 10000, 100000);
    holds(1, 4);
    evict(1);
    arrive(0, 450, 0);
    check_load(1, 0, 400, 101000);
    CHECK(route.decision.loaded_us == 50000 && route.decision.computed_us == 100000 &&
          route.decision.compute_us == 451000 && route.decision.keep_us == 0);
    end(0);
    /* The machine holds the first 200 tokens in memory again: it loads 200 in 30 ms. */
    evict(1);
    holds(1, 2);
    arrive(1, 450, 0);
    check_load(1, 200, 200, 81000);
    end(1);
    /* The queue of 60 ms hides the load of 50 ms; 500 ms of queue are worse than computing. */
    for (uint32_t queue = 60; queue <= 500; queue += 440) {
        evict(0);
        evict(1);
        tell((struct sched_event){
            .kind = SCHED_MACHINE_LOAD, .machine = 1, .others = {.prompt_tokens = queue}});
        arrive(2, 450, 0);
        if (queue == 60)
            check_load(1, 0, 400, 111000);
        else
            check_load(0, 0, 0, 551000);
        end(2);
    }
    others(1, 0, 0);
    evict(0);
    evict(1);
    /* A machine that starts again has its file, as soon as the file is open. */
    tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 1});
    tell((struct sched_event){.kind = SCHED_MACHINE_UP,
                              .machine = 1,
                              .pool = POOL_PROMPT,
                              .kv_tokens = KV,
                              .mixed_kv_tokens = KV / 2});
    for (uint32_t i = 0; i < MACHINES; i++)
        if (i != 1)
            tell((struct sched_event){.kind = SCHED_LINK_UP, .machine = 1, .peer = i});
    arrive(3, 450, 0);
    check_load(0, 0, 0, 0);
    end(3);
    evict(0);
    tier(1, TIER_KIND_FILE, 0, 0); /* Not measured since: the earlier times count. */
    arrive(4, 450, 0);
    check_load(1, 0, 400, 101000);
    end(4);
    /* A file that no longer works has lost everything. */
    evict(1);
    tell((struct sched_event){.kind = SCHED_MACHINE_TIERS, .machine = 1});
    tier(1, TIER_KIND_FILE, 10000, 100000);
    arrive(5, 450, 0);
    check_load(0, 0, 0, 0);
    sched_cluster_close(sc);
}

/* All machines share cores, so that one machine does both phases of a request (together.c). Not of
 * one whose KV the file of a prompt machine has: then that machine computes the prompt. */
static void test_file_and_one_machine(void)
{
    struct sched_cluster_options with = options;
    with.one_machine_routes = true;
    with.one_machine_targets = (struct sched_pace_targets){.ttft_us = 1000000, .tbt_us = 100000};
    cluster_open(&with);
    for (uint32_t i = 0; i < MACHINES; i++)
        tell((struct sched_event){.kind = SCHED_MACHINE_UP,
                                  .machine = i,
                                  .pool = i < PROMPTS ? POOL_PROMPT : POOL_TOKEN,
                                  .cores = 1,
                                  .kv_tokens = KV,
                                  .mixed_kv_tokens = KV / 2});
    arrive(0, 450, 0);
    CHECK(route.machine == 2 && route.token_machine == 2 && route.load_tokens == 0);
    end(0);
    tell((struct sched_event){.kind = SCHED_EVICTED, .machine = 2});
    tier(1, TIER_KIND_FILE, 10000, 100000);
    holds(1, 4);
    evict(1);
    arrive(1, 450, 0);
    check_load(1, 0, 400, 101000);
    sched_cluster_close(sc);
}

/* Memory of the host is lost with its machine. A token machine stores nothing there. */
static void test_host_memory(void)
{
    for (uint32_t dies = 0; dies < 2; dies++) {
        cluster_open(&options);
        tier(0, TIER_KIND_MEMORY, 1000, 1000);
        tier(3, TIER_KIND_MEMORY, 1000, 1000);
        holds(3, 4);
        evict(3);
        holds(0, 3);
        evict(0);
        if (dies == 1) {
            tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 0});
            tell((struct sched_event){.kind = SCHED_MACHINE_UP,
                                      .machine = 0,
                                      .pool = POOL_PROMPT,
                                      .kv_tokens = KV,
                                      .mixed_kv_tokens = KV / 2});
            for (uint32_t i = 1; i < MACHINES; i++)
                tell((struct sched_event){.kind = SCHED_LINK_UP, .machine = 0, .peer = i});
            tier(0, TIER_KIND_MEMORY, 1000, 1000);
        }
        arrive(0, 450, 0);
        if (dies == 0) /* 1 + 0.3 + 150 + 1 ms. */
            check_load(0, 0, 300, 152300);
        else
            check_load(0, 0, 0, 0);
        sched_cluster_close(sc);
    }
}

/* What a token machine has put into the shared store, every machine with the store loads. */
static void test_shared_store(void)
{
    cluster_open(&options);
    for (uint32_t i = 1; i < MACHINES; i++)
        tier(i, TIER_KIND_STORE, 0, 0); /* Not measured: 1 ms, and 1 us for each token. */
    holds(3, 4);
    evict(3);
    arrive(0, 450, 0); /* Machine 0, which has no store, is the first by the rules. */
    check_load(0, 0, 0, 0);
    end(0);
    evict(0);
    tier(0, TIER_KIND_STORE, 100000, 900000); /* 400 tokens: 460 ms. Computing them takes 400. */
    arrive(1, 450, 0);
    check_load(0, 0, 0, 0);
    end(1);
    evict(0);
    tier(0, TIER_KIND_STORE, 30000, 900000); /* 390 ms. */
    arrive(2, 450, 0);
    check_load(0, 0, 400, 390000 + 50000 + 1000);
    end(2);
    /* The machine's death does not matter for the store. Machine 1: 1.4 + 50 + 1 ms. */
    tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 0});
    arrive(3, 450, 0);
    check_load(1, 0, 400, 52400);
    sched_cluster_close(sc);
}

/* Several requests lose their machine at once. A pull takes 501 ms, and the second one waits for
 * the first: 1002 ms and 502 ms are more than the 1502 ms of machine 2. Later it is worth a pull
 * again. */
static void test_pulls_wait(void)
{
    half_open(2, 8000, 0);
    arrive_half(1);
    CHECK(route.pull_source_plus_1 == 3);
    end(1); /* The KV is on its way nevertheless. */
    arrive_half(2);
    CHECK(route.pull_source_plus_1 == 0 && route.machine == 2);
    end(2);
    sched_cluster_event(sc, &(struct sched_event){.kind = SCHED_TICK, .now_us = 501000}, &actions);
    sched_cluster_event(sc,
                        &(struct sched_event){.kind = SCHED_ARRIVED,
                                              .now_us = 501000,
                                              .request = 3,
                                              .resumed = true,
                                              .prompt_tokens = 4500,
                                              .output_tokens = 200,
                                              .holder_plus_1 = 1 + 2,
                                              .held_tokens = 4000},
                        &actions);
    CHECK(actions.count == 1 && actions.items[0].pull_source_plus_1 == 3);
    sched_cluster_close(sc);
}

/* A link that was not measured counts as the mean of links of its kind: here, machines 1 and 2 are
 * on one host, and slow links lead to other hosts. */
static void test_unmeasured(void)
{
    for (uint32_t scene = 0; scene < 3; scene++) {
        half_open(1, 0, 0);
        for (uint32_t i = 0; i < MACHINES; i++)
            for (uint32_t k = 0; k < MACHINES; k++)
                if (i != k)
                    link_speed(i, k, 0, 0);
        if (scene > 0) { /* All measured links are slow. */
            link_speed(0, 1, 1000, 0);
            link_speed(3, 4, 1000, 0);
        }
        if (scene ==
            2) { /* The links between machines of one host are fast. Speeds are forgotten. */
            for (uint32_t i = 0; i < MACHINES; i++)
                tell((struct sched_event){
                    .kind = SCHED_MACHINE_HOST, .machine = i, .host = i == 0 || i == 3 ? 7 : 9});
            link_speed(0, 1, 1000, 0);
            link_speed(4, 1, 20000, 0);
        }
        arrive_half(1);
        CHECKF((route.pull_source_plus_1 == 3) == (scene != 1), "scene %u: pull %u", scene,
               route.pull_source_plus_1);
        sched_cluster_close(sc);
    }
}

/* A request that was not lost, or whose KV is on its prompt machine, pulls nothing. */
static void test_no_pull(void)
{
    cluster_open(&options);
    others(2, 8, 0);
    arrive(0, 450, 0);
    CHECK(route.pull_source_plus_1 == 0);
    tell((struct sched_event){.kind = SCHED_ARRIVED,
                              .request = 1,
                              .resumed = true,
                              .prompt_tokens = 4500,
                              .output_tokens = 200,
                              .holder_plus_1 = 1 + 1,
                              .held_tokens = 4000});
    CHECK(route.machine == 1 && route.pull_source_plus_1 == 0 && route.prefix_tokens == 4000);
    sched_cluster_close(sc);
}

int main(void)
{
    test_next_turn();
    test_full();
    test_slack();
    test_hand_over();
    test_token_machine_died(true);
    test_token_machine_died(false);
    test_prompt_machine_died();
    test_decision();
    test_pulls_wait();
    test_file();
    test_file_and_one_machine();
    test_host_memory();
    test_shared_store();
    test_unmeasured();
    test_no_pull();
    test_rates();
    return 0;
}
