/* Goal: a machine is not lent for prompts, and does not change its home pool, if its cores do the
 * work of the other pool already; a machine that adds cores, or that alone can serve, is lent as
 * ever. Where one machine does both phases, no other one computes on its cores, and the deadline
 * counts its queue. Method: small scenes in virtual time: a prompt machine over its threshold, and
 * machines that share its cores or not. */
#include "scheduler/cluster/cluster.h"
#include "tests/check.h"

#define MACHINES 6
#define REQUESTS 64
#define SECOND   1000000
#define KV       100000

static struct sched_cluster *sc;
static struct sched_actions actions;
static int64_t now_us;
static uint32_t moves; /* Moves between pools. */
static struct sched_action route;

static const struct sched_cluster_options adaptive = {
    .request_count = REQUESTS,
    .machine_count = MACHINES,
    .queue_requests_max = REQUESTS,
    .adaptive = true,
    .token_memory_threshold = true,
    .prompt_queue_threshold_tokens = 100,
    .repurpose_window_us = 16 * SECOND,
    .repurpose_interval_us_min = 20 * SECOND,
    .repurpose_gain_percent_min = 20,
};

static void tell(struct sched_event event)
{
    event.now_us = now_us;
    sched_cluster_event(sc, &event, &actions);
    CHECK(!actions.more);
    for (uint32_t i = 0; i < actions.count; i++) {
        moves += actions.items[i].kind == SCHED_MOVED;
        if (actions.items[i].kind == SCHED_ROUTE)
            route = actions.items[i];
    }
}

/* cores = 0: the machine has its own cores; otherwise it has `threads` threads on two cores that it
 * shares with the other machines of this number. */
static void machine_up(uint32_t machine, enum pool pool, uint32_t cores, uint32_t threads)
{
    tell((struct sched_event){.kind = SCHED_MACHINE_UP,
                              .machine = machine,
                              .pool = pool,
                              .kv_tokens = KV,
                              .cores = cores,
                              .core_count = cores > 0 ? 2 : 0,
                              .threads = threads});
    tell((struct sched_event){.kind = SCHED_MACHINE_RATES,
                              .machine = machine,
                              .prompt_tokens_per_s = 10000,
                              .output_tokens_per_s = 1000});
    for (uint32_t peer = 0; peer < MACHINES; peer++) {
        if (peer == machine)
            continue;
        tell((struct sched_event){.kind = SCHED_LINK_UP, .machine = machine, .peer = peer});
        tell((struct sched_event){.kind = SCHED_LINK_UP, .machine = peer, .peer = machine});
    }
}

static void scene_open(const struct sched_cluster_options *options)
{
    CHECK(sched_cluster_open(options, &sc) == ST_OK);
    now_us = 0;
    moves = 0;
}

/* A prompt and a token machine, each with this many threads on the same two cores. */
static void pair_open(uint32_t threads)
{
    scene_open(&adaptive);
    machine_up(0, POOL_PROMPT, 1, threads);
    machine_up(1, POOL_TOKEN, 1, threads);
}

/* The same pair, whose token machine does both phases. */
static void pair_for_one_open(struct sched_cluster_options options)
{
    options.one_machine_routes = true;
    options.one_machine_targets.ttft_us = SECOND / 2;
    options.one_machine_targets.tbt_us = SECOND / 20;
    scene_open(&options);
    machine_up(0, POOL_PROMPT, 1, 2);
    machine_up(1, POOL_TOKEN, 1, 2);
}

static void arrive(uint32_t request, uint32_t prompt_tokens)
{
    route = (struct sched_action){.machine = SCHED_NO_MACHINE};
    tell((struct sched_event){.kind = SCHED_ARRIVED,
                              .request = request,
                              .prompt_tokens = prompt_tokens,
                              .output_tokens = 100});
}

static enum pool pool_of(uint32_t machine)
{
    struct sched_machine_view view;
    sched_cluster_view(sc, machine, &view);
    return view.pool;
}

/* Both machines have as many threads as there are cores: all prompts stay on the prompt machine. */
static void test_not_lent(void)
{
    pair_open(2);
    for (uint32_t i = 0; i < 8; i++) {
        arrive(i, 90);
        CHECKF(route.machine == 0 && route.token_machine == 1, "request %u on %u", i,
               route.machine);
    }
    CHECK(moves == 0);
    sched_cluster_close(sc);
}

/* Each machine has one thread: the prompt machine leaves one of the two cores to others. */
static void test_lent_for_another_core(void)
{
    pair_open(1);
    arrive(0, 90);
    CHECK(route.machine == 0);
    arrive(1, 90);
    CHECK(route.machine == 1 && route.token_machine == 1 && moves == 1);
    sched_cluster_close(sc);
}

/* A token machine with its own cores is lent, although one that shares cores has less work. */
static void test_lent_from_other_host(void)
{
    pair_open(2);
    machine_up(2, POOL_TOKEN, 0, 0);
    arrive(0, 90);
    CHECK(route.machine == 0 && route.token_machine == 1);
    tell((struct sched_event){
        .kind = SCHED_MACHINE_LOAD, .machine = 2, .others = {.decodes = 5, .kv_tokens = 500}});
    arrive(1, 90);
    CHECK(route.machine == 2 && pool_of(2) == POOL_MIXED && pool_of(1) == POOL_TOKEN);
    sched_cluster_close(sc);
}

/* The prompt machine dies, or cannot send KV: the token machine serves alone. */
static void test_lent_if_alone(void)
{
    for (int dead = 0; dead < 2; dead++) {
        pair_open(2);
        tell((struct sched_event){.kind = dead ? SCHED_MACHINE_DOWN : SCHED_LINK_DOWN, .peer = 1});
        arrive(0, 90);
        CHECK(route.machine == 1 && route.token_machine == 1);
        sched_cluster_close(sc);
    }
}

/* A request that the prompt machine can never hold goes to the token machine. */
static void test_lent_if_too_large(void)
{
    pair_open(2);
    machine_up(1, POOL_TOKEN, 1, 2);
    tell((struct sched_event){.kind = SCHED_MACHINE_DOWN});
    tell((struct sched_event){.kind = SCHED_MACHINE_UP,
                              .pool = POOL_PROMPT,
                              .kv_tokens = 50,
                              .cores = 1,
                              .core_count = 2,
                              .threads = 2});
    tell((struct sched_event){.kind = SCHED_LINK_UP, .peer = 1});
    arrive(0, 90);
    CHECK(route.machine == 1 && route.token_machine == 1);
    sched_cluster_close(sc);
}

/* Lending for answers adds memory: the prompt machine decodes what the token machine cannot
 * hold. */
static void test_lent_for_memory(void)
{
    pair_open(2);
    tell((struct sched_event){
        .kind = SCHED_MACHINE_LOAD, .machine = 1, .others = {.decodes = 1, .kv_tokens = KV}});
    arrive(0, 90);
    CHECK(route.machine == 0 && route.token_machine == 0 && pool_of(0) == POOL_MIXED);
    sched_cluster_close(sc);
}

/* Work of 3.2 machines for prompts and 1.0 for answers, for three minutes: one of three token
 * machines becomes a prompt machine, but not on the cores that compute prompts already. */
static void test_repurpose(void)
{
    for (uint32_t cores = 0; cores < 2; cores++) {
        scene_open(&adaptive);
        for (uint32_t i = 0; i < MACHINES; i++)
            machine_up(i, i < 3 ? POOL_PROMPT : POOL_TOKEN, cores, 2);
        for (uint32_t i = 0; i < 1800; i++) {
            arrive(0, 3200);
            tell((struct sched_event){.kind = SCHED_PREFILLED});
            now_us += SECOND / 10;
            tell((struct sched_event){.kind = SCHED_ENDED, .output_tokens = 100});
        }
        CHECKF(moves == 1 - cores, "%u moves", moves);
        sched_cluster_close(sc);
    }
}

/* With one machine for both phases, the token machine computes all prompts. One that would make its
 * queue too long waits, and is not computed between the steps of the token machine's answers. */
static void test_one_machine_alone(void)
{
    struct sched_cluster_options options = adaptive;
    options.machine_us_max = SECOND / 20; /* 500 tokens. */
    pair_for_one_open(options);
    for (uint32_t i = 0; i < 2; i++) {
        arrive(i, 300);
        CHECK(route.machine == 1 && route.token_machine == 1);
    }
    arrive(2, 300);
    CHECK(route.machine == SCHED_NO_MACHINE && sched_cluster_waiting(sc) == 1);
    tell((struct sched_event){.kind = SCHED_COMPUTED});
    CHECK(route.request == 2 && route.machine == 1 && route.token_machine == 1);
    /* A machine with other cores can serve: no request waits. */
    machine_up(2, POOL_PROMPT, 0, 0);
    arrive(3, 300);
    CHECK(route.machine != SCHED_NO_MACHINE && sched_cluster_waiting(sc) == 0);
    CHECK(moves == 0);
    sched_cluster_close(sc);
}

/* The deadline counts the prompts of all machines on the same cores, and the rate of the one that
 * has computed some: here the token machine, which computes all of them. */
static void test_deadline(void)
{
    struct sched_cluster_options options = adaptive;
    options.ttft_us_max = SECOND / 10; /* 1,000 tokens. */
    pair_for_one_open(options);
    tell((struct sched_event){.kind = SCHED_MACHINE_RATES, .machine = 0});
    arrive(0, 600);
    CHECK(route.machine == 1 && route.token_machine == 1);
    arrive(1, 600);
    CHECK(actions.count == 1 && actions.items[0].kind == SCHED_REFUSE &&
          actions.items[0].refusal == SCHED_REFUSED_LATE);
    arrive(2, 300);
    CHECK(route.machine == 1 && route.token_machine == 1);
    sched_cluster_close(sc);
}

int main(void)
{
    test_not_lent();
    test_lent_for_another_core();
    test_lent_from_other_host();
    test_lent_if_alone();
    test_lent_if_too_large();
    test_lent_for_memory();
    test_repurpose();
    test_one_machine_alone();
    test_deadline();
    return 0;
}
