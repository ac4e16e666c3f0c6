/* Goal: a request goes to the machine that takes the least time, counting the part of its prompt
 * that machines hold: the next turn of a conversation goes to the machine that decoded the last
 * one, unless that machine is too busy; and requests of a draining machine continue elsewhere
 * without computing their KV again. Method: small scenes in virtual time with results computed by
 * hand: two prompt machines (0, 1) and three token machines (2, 3, 4), each of which computes 1,000
 * prompt tokens per second and sends KV of 20,000. */
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

static void tell(struct sched_event event)
{
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
        tell((struct sched_event){.kind = SCHED_MACHINE_RATES,
                                  .machine = i,
                                  .prompt_tokens_per_s = 1000,
                                  .push_tokens_per_s = 20000});
    for (uint32_t i = 0; i < MACHINES; i++)
        for (uint32_t k = 0; k < MACHINES; k++)
            if (i != k)
                tell((struct sched_event){.kind = SCHED_LINK_UP, .machine = i, .peer = k});
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
                              .held = held,
                              .prefix = {.hashes = talk, .count = held > 0 ? 0 : prompt / STEP}});
    CHECK(route.kind == SCHED_ROUTE && route.request == id);
}

static void end(uint32_t id)
{
    tell((struct sched_event){.kind = SCHED_ENDED, .request = id});
}

static void check_route(uint32_t prompt, uint32_t token, uint32_t prefix_tokens)
{
    CHECKF(route.machine == prompt && route.peer == token && route.prefix_tokens == prefix_tokens,
           "%u and %u, which holds %u tokens: want %u and %u, %u tokens", route.machine, route.peer,
           route.prefix_tokens, prompt, token, prefix_tokens);
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
    arrive(1, 450, 0); /* Machine 3 takes 50 ms; two machines would take 450 ms and 22 ms. */
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
 * keeps the KV in its prefix cache. It computes the 10 delivered tokens, unless its queue takes
 * longer than the whole prompt elsewhere. If the link is up, the other machine gets the KV then. No
 * policy for prefixes is needed. */
static void test_token_machine_died(bool linked)
{
    struct sched_cluster_options with = options;
    with.prefix_saves = false;
    for (uint32_t queue = 500; queue <= 4500; queue += 4000) {
        const bool stays = queue < 4000;
        cluster_open(&with);
        if (!linked)
            tell((struct sched_event){.kind = SCHED_LINK_DOWN, .machine = 0, .peer = 1});
        tell((struct sched_event){
            .kind = SCHED_ARRIVED, .prompt_tokens = queue, .output_tokens = 1});
        CHECK(route.machine == 0 && route.peer == 2);
        route = (struct sched_action){.machine = SCHED_NO_MACHINE};
        tell((struct sched_event){.kind = SCHED_ARRIVED,
                                  .request = 1,
                                  .resumed = true,
                                  .prompt_tokens = 4010,
                                  .output_tokens = 200,
                                  .held = 1,
                                  .held_tokens = 4000});
        check_route(stays ? 0 : 1, 3, stays || linked ? 4000 : 0);
        CHECK(route.pull == (linked && !stays ? 1 : 0));
        struct sched_machine_view view;
        sched_cluster_view(sc, 0, &view);
        CHECK(view.prompt_tokens_pending == queue + (stays ? 10 : 0));
        sched_cluster_view(sc, 1, &view);
        CHECK(view.prompt_tokens_pending == (stays ? 0 : linked ? 10 : 4010));
        sched_cluster_close(sc);
    }
}

/* A request whose prompt machine has died: token machine 2 has kept 4000 of 4500 tokens. It
 * computes the rest beside its `decodes` answers in 0.5 × (1 + decodes) s; prompt machine 1 gets
 * them in 0.2 s, or while it computes its queue, and needs 0.5 s more; or it computes everything in
 * 4.5 s. What it has to send back to machine 2 are 500 tokens, 0.025 s. KV travels to machine 1
 * only if that takes less than half of the time, and never from a copy of an answer. */
static void test_prompt_machine_died(void)
{
    static const struct {
        uint32_t decodes, queue, push_rate;
        bool pulls; /* Unless the KV is a copy. */
    } cases[] = {
        {0, 0, 20000, false},   {1, 0, 20000, false},    {8, 0, 20000, true},
        {8, 1000, 20000, true}, {8, 3000, 20000, false}, {8, 0, 500, false},
        {8, 0, 2000, false},    {8, 0, 2500, true},      {8, 1500, 2500, true},
    };
    for (size_t k = 0; k < 2 * sizeof(cases) / sizeof(cases[0]); k++) {
        const size_t i = k / 2;
        const bool copy = k % 2 != 0;
        const bool pulls = cases[i].pulls && !copy;
        cluster_open(&options);
        tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 0});
        tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 3});
        tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 4});
        tell((struct sched_event){.kind = SCHED_MACHINE_RATES,
                                  .machine = 2,
                                  .prompt_tokens_per_s = 1000,
                                  .push_tokens_per_s = cases[i].push_rate});
        tell((struct sched_event){.kind = SCHED_MACHINE_LOAD,
                                  .machine = 2,
                                  .others = {.decodes = cases[i].decodes, .kv_tokens = 1}});
        tell((struct sched_event){
            .kind = SCHED_MACHINE_LOAD, .machine = 1, .others = {.prompt_tokens = cases[i].queue}});
        route = (struct sched_action){.machine = SCHED_NO_MACHINE};
        tell((struct sched_event){.kind = SCHED_ARRIVED,
                                  .request = 1,
                                  .resumed = true,
                                  .prompt_tokens = 4500,
                                  .output_tokens = 200,
                                  .held = 1 + 2,
                                  .held_tokens = 4000,
                                  .held_copy = copy});
        CHECKF(route.machine == (pulls ? 1 : 2) && route.peer == 2 && route.prefix_tokens == 4000 &&
                   route.pull == (pulls ? 3 : 0),
               "case %zu: %u and %u, %u tokens, pull %u", i, route.machine, route.peer,
               route.prefix_tokens, route.pull);
        sched_cluster_close(sc);
    }
}

/* A request that was not lost, or whose KV is on its prompt machine, pulls nothing. */
static void test_no_pull(void)
{
    cluster_open(&options);
    others(2, 8, 0);
    arrive(0, 450, 0);
    CHECK(route.pull == 0);
    tell((struct sched_event){.kind = SCHED_ARRIVED,
                              .request = 1,
                              .resumed = true,
                              .prompt_tokens = 4500,
                              .output_tokens = 200,
                              .held = 1 + 1,
                              .held_tokens = 4000});
    CHECK(route.machine == 1 && route.pull == 0 && route.prefix_tokens == 4000);
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
    test_no_pull();
    test_rates();
    return 0;
}
