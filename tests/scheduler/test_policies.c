/* Goal: home pools follow a lasting demand, and only that; a prompt goes to a machine that has its
 * prefix if that is faster; a request that cannot meet its deadline is refused with the time that
 * it would take; unequal machines get work by their speed. Method: small scenes in virtual time
 * with results computed by hand. */
#include "common/random.h"
#include "scheduler/cluster/cluster.h"
#include "tests/check.h"

#include <string.h>

#define MACHINES 6
#define REQUESTS 64
#define SECOND   1000000

static struct sched_cluster *sc;
static struct sched_actions actions;
static int64_t now_us;
static uint32_t moves;     /* Moves to another home pool. */
static uint32_t routed_to; /* Machine of the last route. */
static uint32_t prefix_tokens;

static void tell(struct sched_event event)
{
    event.now_us = now_us;
    sched_cluster_event(sc, &event, &actions);
    CHECK(!actions.more);
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct sched_action *action = &actions.items[i];
        moves += action->kind == SCHED_MOVED && action->pool == action->home ? 1 : 0;
        if (action->kind == SCHED_ROUTE) {
            routed_to = action->machine;
            prefix_tokens = action->prefix_tokens;
        }
    }
}

static void cluster_open(const struct sched_cluster_options *options, uint32_t prompts,
                         uint32_t rate)
{
    CHECK(sched_cluster_open(options, &sc) == ST_OK);
    now_us = 0;
    moves = 0;
    for (uint32_t i = 0; i < MACHINES; i++) {
        tell((struct sched_event){.kind = SCHED_MACHINE_UP,
                                  .machine = i,
                                  .pool = i < prompts ? POOL_PROMPT : POOL_TOKEN,
                                  .kv_tokens = 1000000});
        if (rate > 0)
            tell((struct sched_event){.kind = SCHED_MACHINE_RATES,
                                      .machine = i,
                                      .prompt_tokens_per_s = rate,
                                      .output_tokens_per_s = rate / 10});
    }
    for (uint32_t i = 0; i < MACHINES; i++)
        for (uint32_t k = 0; k < MACHINES; k++)
            if (i != k)
                tell((struct sched_event){.kind = SCHED_LINK_UP, .machine = i, .peer = k});
}

static uint32_t homes(enum pool pool)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MACHINES; i++) {
        struct sched_machine_view view;
        sched_cluster_view(sc, i, &view);
        count += view.home == pool;
    }
    return count;
}

/* One request every 100 ms for `seconds` seconds; each is done before the next one arrives. */
static void serve(uint32_t seconds, uint32_t prompt, uint32_t output)
{
    for (uint32_t i = 0; i < seconds * 10; i++) {
        tell((struct sched_event){
            .kind = SCHED_ARRIVED, .prompt_tokens = prompt, .output_tokens = output});
        tell((struct sched_event){.kind = SCHED_PREFILLED});
        now_us += SECOND / 10;
        tell((struct sched_event){.kind = SCHED_ENDED, .output_tokens = output});
    }
}

static const struct sched_cluster_options adaptive = {
    .request_count = REQUESTS,
    .machine_count = MACHINES,
    .queue_requests_max = REQUESTS,
    .adaptive = true,
    .repurpose_window_us = 16 * SECOND,
    .repurpose_interval_us_min = 20 * SECOND,
    .repurpose_gain_percent_min = 20,
};

/* The demand that other gateways report counts like our own: one fifth arrives here, half
 * prompts and half answers; the rest are prompts at other gateways. A load without arrivals is
 * no demand. */
static void test_repurpose_others(void)
{
    cluster_open(&adaptive, 3, 10000);
    struct sched_event load = {
        .kind = SCHED_MACHINE_LOAD, .machine = 0, .others = {.prompt_tokens = 9000, .prompts = 9}};
    for (int i = 0; i < 60; i++) {
        tell(load);
        serve(1, 640, 20);
    }
    CHECK(homes(POOL_PROMPT) == 3 && moves == 0);
    load.others.arrived_prompt_tokens = 2560 * 10;
    load.others.arrived_answers = 40; /* 3.2 and 1.0 machines' time: 4 : 2, as below */
    for (int i = 0; i < 200; i++) {
        tell(load);
        serve(1, 640, 20);
    }
    CHECKF(homes(POOL_PROMPT) == 4 && moves == 1, "%u", homes(POOL_PROMPT));
    sched_cluster_close(sc);
}

/* A machine computes 10,000 prompt tokens or 1,000 output tokens per second. */
static void test_repurpose(void)
{
    cluster_open(&adaptive, 3, 10000);
    serve(60, 2000, 200); /* Work of 2.0 and 2.0 machines: three machines each are right. */
    CHECK(homes(POOL_PROMPT) == 3 && moves == 0);
    serve(6, 3200, 100); /* Work of 3.2 and 1.0 machines, but not for long enough. */
    CHECK(homes(POOL_PROMPT) == 3);
    serve(60, 2000, 200);
    CHECK(moves == 0);
    /* Work of 3.2 and 1.0 machines: 4 : 2 (loads 0.8 and 0.5) is better than 5 : 1 (0.64 and
     * 1.0). */
    serve(200, 3200, 100);
    CHECKF(homes(POOL_PROMPT) == 4 && moves == 1, "%u", homes(POOL_PROMPT));
    serve(300, 3200, 10); /* Work of 3.2 and 0.1 machines: 5 : 1. */
    CHECKF(homes(POOL_PROMPT) == 5 && moves == 2, "%u", homes(POOL_PROMPT));
    /* Work of 0.1 and 4.0 machines. At most one machine moves in 20 s, and only after the demand
     * has lasted. */
    serve(100, 100, 400);
    CHECKF(homes(POOL_TOKEN) >= 4 && homes(POOL_TOKEN) <= 5, "%u", homes(POOL_TOKEN));
    serve(100, 100, 400);
    /* The last prompt machine does not move. */
    CHECKF(homes(POOL_TOKEN) == 5, "%u", homes(POOL_TOKEN));
    uint32_t before = moves;
    /* Work of 0.1 and 0.2 machines: the split is wrong, but no request waits. */
    serve(200, 100, 20);
    CHECK(moves == before);
    sched_cluster_close(sc);
}

/* The demand lies at the border between two splits, with noise: home pools do not swing. */
static void test_no_swing(uint64_t seed)
{
    cluster_open(&adaptive, 3, 10000);
    for (uint32_t i = 0; i < 600; i++) {
        uint64_t draw = random_at(seed, i);
        serve(1, 2000 + (uint32_t)(draw % 1500), 150 + (uint32_t)(draw >> 32) % 150);
    }
    CHECKF(moves <= 1, "%u moves", moves);
    sched_cluster_close(sc);
}

static void arrive(uint32_t id, uint32_t prompt, const uint64_t *hashes, uint32_t count)
{
    tell((struct sched_event){.kind = SCHED_ARRIVED,
                              .request = id,
                              .prompt_tokens = prompt,
                              .prefix = {.hashes = hashes, .count = count}});
    CHECK(actions.count == 1 && actions.items[0].kind == SCHED_ROUTE);
}

static const struct sched_cluster_options prefix_options = {.request_count = REQUESTS,
                                                            .machine_count = MACHINES,
                                                            .prefix_count = 1024,
                                                            .queue_requests_max = REQUESTS,
                                                            .token_memory_threshold = true,
                                                            .prefix_slack_tokens = 600,
                                                            .prefix_step_tokens = 100,
                                                            .prefix_saves = true};

/* Prompts without an answer. The prefix that a machine holds is weighed against its longer
 * queue. */
static void test_prefix(void)
{
    static const uint64_t a[] = {11, 12, 13, 14};
    static const uint64_t b[] = {11, 12, 23, 24}; /* Begins with the same blocks as `a`. */
    static const uint64_t c[] = {31, 32};
    cluster_open(&prefix_options, 3, 0);
    arrive(0, 450, a, 4);
    CHECK(routed_to == 0 && prefix_tokens == 0);
    /* Machine 0 has 200 tokens of the prompt, and 450 pending. The other machines are idle. */
    arrive(1, 450, b, 4);
    CHECK(routed_to == 1 && prefix_tokens == 0);
    arrive(2, 300, NULL, 0);
    CHECK(routed_to == 2);
    arrive(3, 450, b, 4); /* Either 50 tokens are computed after 450, or 450 after 300. */
    CHECK(routed_to == 1 && prefix_tokens == 400);
    struct sched_machine_view view;
    sched_cluster_view(sc, 1, &view);
    CHECK(view.prompt_tokens_pending == 450 + 50);
    tell((struct sched_event){.kind = SCHED_CACHED, .machine = 2, .prefix = {c, 2}});
    /* The machine has the whole prompt, but the last token must be computed. */
    arrive(4, 200, c, 2);
    CHECK(routed_to == 2 && prefix_tokens == 199);
    tell((struct sched_event){.kind = SCHED_EVICTED, .machine = 2, .prefix = {c + 1, 1}});
    arrive(5, 300, c, 2);
    CHECK(routed_to == 2 && prefix_tokens == 100);
    /* All prefixes of the machine are gone. */
    tell((struct sched_event){.kind = SCHED_EVICTED, .machine = 2});
    tell((struct sched_event){.kind = SCHED_EVICTED, .machine = 0});
    tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 1});
    arrive(6, 300, c, 2);
    CHECK(prefix_tokens == 0);
    sched_cluster_close(sc);
}

static const struct sched_action *refused(uint32_t id, uint32_t prompt)
{
    tell((struct sched_event){.kind = SCHED_ARRIVED, .request = id, .prompt_tokens = prompt});
    CHECK(actions.count == 1 && actions.items[0].kind == SCHED_REFUSE);
    return &actions.items[0];
}

/* At 1,000 tokens per second and a deadline of half a second, a prompt may have up to 500 tokens
 * with those before it. */
static void test_deadline(void)
{
    const struct sched_cluster_options options = {.request_count = REQUESTS,
                                                  .machine_count = MACHINES,
                                                  .queue_requests_max = REQUESTS,
                                                  .ttft_us_max = SECOND / 2};
    cluster_open(&options, 1, 1000);
    arrive(0, 300, NULL, 0);
    arrive(1, 200, NULL, 0);
    /* The prompt would be computed after 600 ms. */
    const struct sched_action *action = refused(2, 100);
    CHECKF(action->refusal == SCHED_REFUSED_LATE && action->retry_after_ms >= 100 &&
               action->retry_after_ms <= 102,
           "%u", action->retry_after_ms);
    action = refused(3, 501); /* Too long even for an idle machine. */
    CHECK(action->refusal == SCHED_REFUSED_TOO_LONG && action->retry_after_ms == 0);
    tell((struct sched_event){.kind = SCHED_ARRIVED,
                              .request = 4,
                              .prompt_tokens = 400,
                              .resumed = true}); /* A resumed request is not refused. */
    CHECK(actions.count == 1 && actions.items[0].kind == SCHED_ROUTE);
    tell((struct sched_event){.kind = SCHED_COMPUTED, .request = 0});
    tell((struct sched_event){.kind = SCHED_COMPUTED, .request = 4});
    arrive(5, 300, NULL, 0); /* 200 tokens are before the prompt. */
    tell((struct sched_event){.kind = SCHED_MACHINE_RATES, .machine = 0});
    arrive(6, 10000, NULL, 0); /* The machine's rate is unknown. */
    sched_cluster_close(sc);
}

/* One machine serves one request at a time. A user has 60 requests, a user of weight 3 arrives
 * later, a third user has one request, and one request is urgent. */
static void test_keys(void)
{
    const struct sched_cluster_options options = {.request_count = 128,
                                                  .machine_count = MACHINES,
                                                  .queue_requests_max = 128,
                                                  .machine_tokens_max = 1};
    struct sched_event event = {
        .kind = SCHED_ARRIVED, .prompt_tokens = 100, .key_index = 1, .weight = 1};
    uint32_t turns[4] = {0};
    cluster_open(&options, 1, 1000);
    for (; event.request < 60; event.request++)
        tell(event);
    for (event.key_index = 2, event.weight = 3; event.request < 120; event.request++)
        tell(event);
    event.key_index = 3;
    event.weight = 1;
    tell(event);
    event.request++;
    event.key_index = 1;
    event.priority = -1;
    tell(event);
    uint32_t running = 0; /* The first request runs since its arrival. */
    for (int turn = 0; turn < 41; turn++) {
        tell((struct sched_event){.kind = SCHED_ENDED, .request = running});
        CHECK(actions.count == 1 && actions.items[0].kind == SCHED_ROUTE);
        running = actions.items[0].request;
        CHECK((running == 121) == (turn == 0));
        turns[running == 120 ? 3 : running == 121 ? 0 : 1 + running / 60]++;
        CHECK(turn < 5 || turns[3] == 1);
    }
    CHECKF(turns[1] >= 9 && turns[1] <= 11 && turns[2] >= 28, "%u, %u", turns[1], turns[2]);
    sched_cluster_close(sc);
}

/* Mixed machines keep a part of their memory for prompts of others. A prompt above that part
 * with an answer of one token runs where it may use the whole memory; before, it was refused as
 * too large, as was an answer that was preempted before its last token. */
static void test_one_token_uses_whole_memory(void)
{
    const struct sched_cluster_options options = {
        .request_count = REQUESTS, .machine_count = MACHINES, .queue_requests_max = REQUESTS};
    CHECK(sched_cluster_open(&options, &sc) == ST_OK);
    now_us = 0;
    for (uint32_t i = 0; i < 2; i++)
        tell((struct sched_event){.kind = SCHED_MACHINE_UP,
                                  .machine = i,
                                  .pool = POOL_MIXED,
                                  .kv_tokens = 304,
                                  .mixed_kv_tokens = 128});
    for (uint32_t prompt = 127; prompt <= 305; prompt++) {
        bool resumed = prompt % 2 == 1;
        tell((struct sched_event){
            .kind = SCHED_ARRIVED, .prompt_tokens = prompt, .resumed = resumed});
        CHECK(actions.count == 1);
        const struct sched_action *action = &actions.items[0];
        if (prompt >= 304) { /* There is no room for the answer's token. */
            CHECK(action->kind == SCHED_REFUSE && action->refusal == SCHED_REFUSED_LARGE);
            continue;
        }
        CHECK(action->kind == SCHED_ROUTE);
        CHECK(action->token_machine == (prompt <= 128 ? SCHED_NO_MACHINE : action->machine));
        tell((struct sched_event){.kind = SCHED_PREFILLED});
        tell((struct sched_event){.kind = SCHED_ENDED, .output_tokens = 1});
    }
    sched_cluster_close(sc);
}

static void rates_tell(uint32_t machine, uint32_t prompts_per_s, uint32_t outputs_per_s)
{
    tell((struct sched_event){.kind = SCHED_MACHINE_RATES,
                              .machine = machine,
                              .prompt_tokens_per_s = prompts_per_s,
                              .output_tokens_per_s = outputs_per_s});
}

/* 60 prompts that all wait at once: returns those of machine 0. */
static uint32_t prompts_of_first(uint32_t *token_first_out)
{
    struct sched_machine_view view;
    for (uint32_t i = 0; i < 60; i++)
        tell((struct sched_event){
            .kind = SCHED_ARRIVED, .request = i, .prompt_tokens = 100, .output_tokens = 100});
    sched_cluster_view(sc, 2, &view);
    *token_first_out = view.decodes;
    sched_cluster_view(sc, 0, &view);
    for (uint32_t i = 0; i < 60; i++)
        tell((struct sched_event){.kind = SCHED_ENDED, .request = i, .output_tokens = 100});
    return view.prompts;
}

/* Two prompt and four token machines. Unequal machines get work in proportion to their speed, and
 * an idle fast one goes before an idle slow one; machines that measurements tell apart by a few
 * percent only, or not at all, get equal shares. */
static void test_compare_time(void)
{
    struct sched_cluster_options options = adaptive;
    uint32_t tokens;
    options.adaptive = false;
    options.repurpose_window_us = 0;
    options.compare_time = true;
    cluster_open(&options, 2, 0);
    CHECK(prompts_of_first(&tokens) == 30 && tokens == 15); /* No rate is known. */
    rates_tell(0, 1000, 0);
    CHECK(prompts_of_first(&tokens) == 30);
    rates_tell(1, 1200, 0);
    CHECK(prompts_of_first(&tokens) == 30); /* As good as equal. */
    rates_tell(1, 3000, 0);
    CHECKF(prompts_of_first(&tokens) == 15 && tokens == 15, "%u", tokens);
    tell((struct sched_event){
        .kind = SCHED_ARRIVED, .request = 0, .prompt_tokens = 100, .output_tokens = 1});
    CHECK(routed_to == 1);
    tell((struct sched_event){.kind = SCHED_ENDED, .request = 0});
    /* The token machines: one of five times the speed of the other three gets about 5 of 8 answers.
     * The rate that is not known is that of the mean. */
    rates_tell(2, 0, 5000);
    rates_tell(3, 0, 1000);
    rates_tell(4, 0, 1000);
    rates_tell(5, 0, 1000);
    CHECKF(prompts_of_first(&tokens) == 15 && tokens >= 37 && tokens <= 40, "%u", tokens);
    options.compare_time = false;
    CHECK(sched_cluster_configure(sc, &options, now_us, &actions) == ST_OK);
    CHECK(prompts_of_first(&tokens) == 30 && tokens == 15);
    sched_cluster_close(sc);
}

/* The threshold in time: the same queue is over it on a slow machine only. The time of the prompt
 * itself does not count. */
static void test_threshold_us(void)
{
    struct sched_machine_view view;
    for (uint32_t rate = 1000; rate <= 4000; rate += 3000) {
        struct sched_cluster_options options = adaptive;
        options.repurpose_window_us = 0;
        options.prompt_queue_threshold_us = 250000;
        cluster_open(&options, 2, rate);
        for (uint32_t i = 0; i < 6; i++)
            tell((struct sched_event){
                .kind = SCHED_ARRIVED, .request = i, .prompt_tokens = 200, .output_tokens = 10});
        uint32_t prompts = 0;
        for (uint32_t i = 0; i < 2; i++) {
            sched_cluster_view(sc, i, &view);
            prompts += view.prompts;
        }
        /* 200 tokens take 200 ms or 50 ms: two prompts each, or all. Token machines help. */
        CHECKF(prompts == (rate == 1000 ? 4 : 6), "rate %u: %u prompts", rate, prompts);
        sched_cluster_close(sc);
    }
}

/* ---- one machine for both phases ---- */

static uint32_t decoded_by;

/* Two prompt and four token machines that compute 1000 prompt tokens per second, and decode a batch
 * in 10 ms; targets: 1 s and 50 ms. `answers` of the token machines' answers run. */
static void together_open(uint32_t answers)
{
    struct sched_cluster_options options = adaptive;
    options.repurpose_window_us = 0;
    options.one_machine_routes = true;
    options.one_machine_targets.ttft_us = 1000000;
    options.one_machine_targets.tbt_us = 50000;
    cluster_open(&options, 2, 0);
    for (uint32_t i = 0; i < MACHINES; i++)
        tell((struct sched_event){.kind = SCHED_MACHINE_RATES,
                                  .machine = i,
                                  .prompt_tokens_per_s = 1000,
                                  .step = {.fixed_ns = 10000000}});
    for (uint32_t i = 0; i < answers; i++) {
        tell((struct sched_event){
            .kind = SCHED_ARRIVED, .request = i, .prompt_tokens = 1, .output_tokens = 100});
        tell((struct sched_event){.kind = SCHED_PREFILLED, .request = i});
    }
}

/* The token machines now decode a batch in `ms`. */
static void token_steps_tell(uint32_t ms)
{
    for (uint32_t i = 2; i < MACHINES; i++)
        tell((struct sched_event){.kind = SCHED_MACHINE_RATES,
                                  .machine = i,
                                  .prompt_tokens_per_s = 1000,
                                  .step = {.fixed_ns = ms * 1000000}});
}

/* Routes a request; stores its token machine in decoded_by. */
static void begin(uint32_t id, uint32_t prompt, uint32_t output)
{
    tell((struct sched_event){
        .kind = SCHED_ARRIVED, .request = id, .prompt_tokens = prompt, .output_tokens = output});
    CHECK(actions.count >= 1);
    const struct sched_action *last = &actions.items[actions.count - 1];
    CHECK(last->kind == SCHED_ROUTE);
    decoded_by = last->token_machine;
}

/* Reports this speed of all links. */
static void links_tell(uint32_t tokens_per_s)
{
    for (uint32_t i = 0; i < MACHINES; i++)
        for (uint32_t k = 0; k < MACHINES; k++)
            if (i != k)
                tell((struct sched_event){.kind = SCHED_LINK_SPEED,
                                          .machine = i,
                                          .peer = k,
                                          .link = {.tokens_per_s = tokens_per_s}});
}

static void test_together(void)
{
    /* Without a queue, phases are split, whatever the machines do besides. */
    for (uint32_t answers = 0; answers <= 8; answers += 4) {
        together_open(answers);
        begin(20, 400, 100);
        CHECK(routed_to < 2 && decoded_by >= 2);
        begin(21, 400, 100);
        CHECK(routed_to < 2 && decoded_by >= 2);
        /* Both prompt machines have a queue of 0.4 s of 1 s. On a token machine without prompts,
         * the prompt has its own 0.3 s and the steps beside it: 0.5 s, not 0.7. */
        begin(22, 300, 100);
        CHECK(routed_to >= 2 && decoded_by == routed_to);
        /* So does a short prompt. */
        uint32_t busy = routed_to;
        begin(23, 10, 100);
        CHECK(routed_to >= 2 && decoded_by == routed_to && routed_to != busy);
        sched_cluster_close(sc);
    }
    /* Beside a prompt of 0.3 s, even answers of 5 tokens wait only 15 ms between two steps (24 ms
     * in whole chunks): 34 of 50 ms. */
    together_open(16);
    begin(20, 300, 5);
    begin(21, 300, 5);
    begin(22, 300, 5);
    CHECK(routed_to >= 2 && decoded_by == routed_to);
    sched_cluster_close(sc);
    /* Answers that would be late by the prompt beside them are left alone: 30 ms + 24 ms. */
    together_open(16);
    token_steps_tell(30);
    begin(20, 300, 5);
    begin(21, 300, 5);
    begin(22, 300, 5);
    CHECK(routed_to < 2 && decoded_by >= 2);
    sched_cluster_close(sc);
    /* Token machines that are late: the answer stays where its prompt is computed. */
    together_open(16);
    token_steps_tell(60);
    begin(20, 100, 100);
    CHECK(routed_to < 2 && decoded_by == routed_to);
    sched_cluster_close(sc);
    /* Token machines that are slow but not late: an answer stays on a prompt machine that decodes
     * nothing. If prompts have taken 0.4 of its time lately, only a short answer stays: a long one
     * would slow the prompts that come. If the prompts came long ago, a long one stays, too. */
    enum { NEVER, LATELY, LONG_AGO, TIMES };
    for (int prompts = NEVER; prompts < TIMES; prompts++)
        for (uint32_t output = 30; output <= 400; output += 370) {
            together_open(0);
            token_steps_tell(30);
            if (prompts != NEVER) {
                serve(10, 40, 0);
                CHECK(routed_to == 0);
            }
            now_us += prompts == LONG_AGO ? 2000LL * SECOND : 0;
            begin(20, 100, output);
            bool stays = output == 30 || prompts != LATELY;
            CHECK(routed_to == 0 && (stays ? decoded_by == 0 : decoded_by >= 2));
            sched_cluster_close(sc);
        }
    /* KV that moves slowly: 300 tokens take 3 s. */
    together_open(0);
    links_tell(100);
    begin(20, 300, 100);
    CHECK(decoded_by == routed_to);
    /* The links have become fast again. The next prompt is split at once. */
    links_tell(100000);
    begin(21, 300, 100);
    CHECK(routed_to < 2 && decoded_by >= 2);
    sched_cluster_close(sc);
    /* Nothing is known: split. */
    struct sched_cluster_options options = adaptive;
    options.one_machine_routes = true;
    options.one_machine_targets.ttft_us = options.one_machine_targets.tbt_us = 1;
    cluster_open(&options, 2, 0);
    for (uint32_t i = 0; i < 8; i++) {
        begin(i, 300, 100);
        CHECK(routed_to < 2 && decoded_by >= 2);
    }
    sched_cluster_close(sc);
    options.one_machine_targets.tbt_us = 0;
    CHECK(sched_cluster_open(&options, &sc) == ST_INVALID);
}

/* The token machines have no more free KV memory. A prompt machine is lent for the next answer. But
 * the only prompt machine is not, if its times are known: the answer waits at a token machine. */
static void test_full_memory(void)
{
    for (int scene = 0; scene < 3; scene++) {
        const uint32_t prompts = scene == 2 ? 2 : 1;
        const bool known = scene > 0, waits = scene == 1;
        const uint32_t full = 2 * (MACHINES - prompts);
        struct sched_cluster_options options = adaptive;
        struct sched_machine_view view;
        options.repurpose_window_us = 0;
        options.token_memory_threshold = options.one_machine_routes = true;
        options.one_machine_targets.ttft_us = SECOND;
        options.one_machine_targets.tbt_us = SECOND / 20;
        cluster_open(&options, prompts, 0);
        for (uint32_t i = 0; i < MACHINES; i++) {
            tell((struct sched_event){.kind = SCHED_MACHINE_UP,
                                      .machine = i,
                                      .pool = i < prompts ? POOL_PROMPT : POOL_TOKEN,
                                      .kv_tokens = 1000});
            if (known)
                tell((struct sched_event){.kind = SCHED_MACHINE_RATES,
                                          .machine = i,
                                          .prompt_tokens_per_s = 100000,
                                          .step = {.fixed_ns = i < prompts ? 40000000 : 10000000}});
        }
        for (uint32_t id = 0; id < full + 2; id++) {
            begin(id, 100, 300);
            tell((struct sched_event){.kind = SCHED_COMPUTED, .request = id});
            CHECK(id >= full || (routed_to < prompts && decoded_by >= prompts));
        }
        sched_cluster_view(sc, decoded_by, &view);
        CHECK(waits ? decoded_by >= prompts && view.kv_tokens_scheduled > 1000
                    : decoded_by < prompts);
        CHECK(view.pool == (waits ? POOL_TOKEN : POOL_MIXED));
        sched_cluster_close(sc);
    }
}

/* A machine gets no more prompts while it has work for machine_us_max. */
static void test_pending_us(void)
{
    struct sched_cluster_options options = adaptive;
    struct sched_machine_view view;
    options.adaptive = false;
    options.repurpose_window_us = 0;
    options.machine_us_max = 500000;
    cluster_open(&options, 2, 1000);
    for (uint32_t i = 0; i < 20; i++)
        tell((struct sched_event){
            .kind = SCHED_ARRIVED, .request = i, .prompt_tokens = 200, .output_tokens = 10});
    for (uint32_t i = 0; i < 2; i++) {
        sched_cluster_view(sc, i, &view);
        CHECKF(view.prompts == 3, "%u prompts", view.prompts); /* 0, 200 and 400 ms are below. */
    }
    tell((struct sched_event){.kind = SCHED_COMPUTED, .request = 0});
    sched_cluster_view(sc, 0, &view);
    CHECK(view.prompt_tokens_pending == 600); /* The next one came at once. */
    sched_cluster_close(sc);
}

/* While no token machine is up, a prompt machine is lent for an answer. Later prompts go to it as
 * soon as the other prompt machine has prompts, however small these are, and their answers to token
 * machines. */
static void test_lent_computes_prompts(void)
{
    struct sched_cluster_options options = adaptive;
    struct sched_machine_view view;
    options.repurpose_window_us = 0;
    options.prompt_queue_threshold_tokens = 8192;
    cluster_open(&options, 2, 0);
    for (uint32_t i = 2; i < MACHINES; i++)
        tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = i});
    tell((struct sched_event){
        .kind = SCHED_ARRIVED, .request = 1, .prompt_tokens = 10, .output_tokens = 1000});
    CHECK(actions.count == 2 && actions.items[0].kind == SCHED_MOVED);
    uint32_t lent = actions.items[0].machine, other = 1 - lent;
    tell((struct sched_event){.kind = SCHED_PREFILLED, .request = 1});
    sched_cluster_view(sc, lent, &view);
    CHECK(lent < 2 && view.home == POOL_PROMPT && view.pool == POOL_MIXED);
    for (uint32_t i = 2; i < MACHINES; i++) {
        tell((struct sched_event){
            .kind = SCHED_MACHINE_UP, .machine = i, .pool = POOL_TOKEN, .kv_tokens = 1000000});
        for (uint32_t k = 0; k < 2; k++)
            tell((struct sched_event){.kind = SCHED_LINK_UP, .machine = k, .peer = i});
    }
    begin(2, 300, 100);
    CHECK(routed_to == other && decoded_by >= 2);
    begin(3, 200, 100);
    CHECK(routed_to == lent && decoded_by >= 2);
    begin(4, 200, 100); /* 201 are pending on the lent machine: its answer counts as a token. */
    CHECK(routed_to == lent && decoded_by >= 2);
    begin(5, 10, 100);
    CHECK(routed_to == other && decoded_by >= 2);
    for (uint32_t i = 2; i < 6; i++)
        tell((struct sched_event){.kind = SCHED_ENDED, .request = i, .output_tokens = 100});
    sched_cluster_view(sc, lent, &view);
    CHECK(view.pool == POOL_MIXED);
    tell((struct sched_event){.kind = SCHED_ENDED, .request = 1, .output_tokens = 1000});
    sched_cluster_view(sc, lent, &view);
    CHECK(view.pool == POOL_PROMPT);
    sched_cluster_close(sc);
}

/* A machine's model has six layer groups, five with a window of 40 tokens, and memory for 600
 * blocks: 1,600 tokens in all layers, or one context of 8,960. Short requests have no tokens
 * outside their windows, so as many fit as without windows. Of a long request, five groups keep
 * four blocks each. */
static void test_windows_memory(void)
{
    const struct sched_cluster_options options = {.request_count = REQUESTS,
                                                  .machine_count = MACHINES,
                                                  .queue_requests_max = REQUESTS,
                                                  .machine_kv_multiple = 1};
    const struct sched_memory_options memory = {
        .block_count = 600,
        .block_tokens = 16,
        .groups = {.count = 6, .windowed = 0x1f, .window_tokens = 40},
        .chunk_tokens = 64,
    };
    struct sched_machine_view view;
    CHECK(sched_cluster_open(&options, &sc) == ST_OK);
    now_us = 0;
    for (uint32_t i = 0; i < 2; i++)
        tell((struct sched_event){.kind = SCHED_MACHINE_UP,
                                  .machine = i,
                                  .pool = i == 0 ? POOL_PROMPT : POOL_TOKEN,
                                  .kv_tokens = sched_memory_tokens_most(&memory, 600),
                                  .kv = sched_memory_kv(&memory)});
    tell((struct sched_event){.kind = SCHED_LINK_UP, .machine = 0, .peer = 1});
    for (uint32_t i = 0; i < 26; i++) {
        tell((struct sched_event){
            .kind = SCHED_ARRIVED, .request = i, .prompt_tokens = 50, .output_tokens = 14});
        CHECKF((actions.count == 1) == (i < 25), "request %u", i);
        tell((struct sched_event){.kind = SCHED_PREFILLED, .request = i});
    }
    sched_cluster_view(sc, 1, &view);
    CHECK(view.kv_tokens_scheduled == 25 * 24 * 16 / 6 && view.decodes == 25);
    for (uint32_t i = 0; i < 26; i++)
        tell((struct sched_event){.kind = SCHED_ENDED, .request = i, .output_tokens = 14});
    tell((struct sched_event){
        .kind = SCHED_ARRIVED, .request = 0, .prompt_tokens = 4000, .output_tokens = 96});
    CHECK(actions.count == 1 && actions.items[0].kind == SCHED_ROUTE);
    sched_cluster_view(sc, 1, &view);
    CHECK(view.kv_tokens_scheduled == ((256 + 5 * 4) * 16 + 5) / 6);
    sched_cluster_close(sc);
}

int main(void)
{
    uint64_t seed = test_seed();
    test_repurpose();
    test_repurpose_others();
    for (uint64_t i = 0; i < 20; i++)
        test_no_swing(seed + i);
    test_prefix();
    test_deadline();
    test_compare_time();
    test_threshold_us();
    test_together();
    test_full_memory();
    test_pending_us();
    test_lent_computes_prompts();
    test_keys();
    test_one_token_uses_whole_memory();
    test_windows_memory();
    return 0;
}
