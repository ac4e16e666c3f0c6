/* Goal: prompts get a share of the time beside answers that keeps TTFT and TBT equally far from
 * their targets, within the bounds of pace.h, from measured times of any size. Method: chosen
 * measurements with known results; random ones against the bounds; machines of very different speed
 * that run a simple simulation of alternating shares and steps. */
#include "scheduler/pace.h"

#include "common/limits.h"
#include "common/random.h"
#include "tests/check.h"

#include <math.h>

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static const struct sched_pace_targets slo = {.ttft_us = 500000, .tbt_us = 50000};

/* A machine whose prompt tokens take row_us and whose steps take step_us, with `tokens` open. */
static struct sched_pace measured(uint64_t row_us, uint64_t step_us, uint64_t tokens)
{
    struct sched_pace pace = {0};
    sched_pace_batch_add(&pace, 8, 0, step_us);
    sched_pace_batch_add(&pace, 0, 256, 256 * row_us);
    sched_pace_open_add(&pace, tokens, 1000000);
    return pace;
}

/* A batch of n tokens takes fixed_us + n × row_us. */
static uint32_t fill_of(uint64_t fixed_us, uint64_t row_us)
{
    struct sched_pace pace = {0};
    for (int round = 0; round < 3; round++)
        for (uint32_t tokens = 16; tokens <= 1024; tokens *= 2)
            sched_pace_batch_add(&pace, 0, tokens, fixed_us + tokens * row_us);
    return sched_pace_fill_tokens(&pace, 128, 512);
}

static void test_fill(void)
{
    struct sched_pace pace = {0};
    CHECK(sched_pace_fill_tokens(&pace, 128, 512) == 128 &&
          sched_pace_fill_tokens(&pace, 128, 64) == 64);
    sched_pace_batch_add(&pace, 0, 300, 30000);
    CHECK(sched_pace_fill_tokens(&pace, 128, 512) == 128); /* One size says nothing about others. */
    sched_pace_batch_add(&pace, 4, 20, 2000);
    CHECK(sched_pace_fill_tokens(&pace, 128, 512) == 128); /* Nor do batches that decode, too. */
    sched_pace_batch_add(&pace, 0, 20, 2050);
    CHECK(sched_pace_fill_tokens(&pace, 128, 512) == 20);
    CHECK(fill_of(0, 400) == 16);
    CHECK(fill_of(400, 400) == 32);   /* 0.94 of the full speed with 16 tokens, 0.97 with 32. */
    CHECK(fill_of(5000, 400) == 256); /* 0.95 of the speed with 1024 tokens. */
    CHECK(fill_of(50000, 50) == 512); /* A GPU: larger batches are always faster. */
    sched_pace_batch_add(&pace, 0, 4096, 400000);
    CHECK(sched_pace_fill_tokens(&pace, 128, 512) == 20);
}

static void test_by_hand(void)
{
    struct sched_pace pace = {0};
    /* Nothing is known: as many tokens as allowed, rounded down to whole chunks. */
    CHECK(sched_pace_mixed_tokens(&pace, &slo, 512) == 512 &&
          sched_pace_mixed_tokens(&pace, &slo, 100) == 96);
    /* 1024 tokens of 200 µs are 204.8 ms; a tenth of it is 20.5 ms: 102 tokens, 6 chunks. */
    pace = measured(200, 4000, 1024);
    CHECK(sched_pace_mixed_tokens(&pace, &slo, 512) == 96);
    CHECK(sched_pace_turn_us(&pace, &slo, true, 4000) == 20480);
    /* At most what the target of 50 ms leaves beside a step of 4 ms: 230 tokens. */
    pace = measured(200, 4000, 100000);
    CHECK(sched_pace_mixed_tokens(&pace, &slo, 512) == 224);
    CHECK(sched_pace_mixed_tokens(&pace, &slo, 64) == 64);
    CHECK(sched_pace_turn_us(&pace, &slo, true, 4000) == 46000);
    /* At least half a step, and one chunk. */
    pace = measured(200, 20000, 16);
    CHECK(sched_pace_turn_us(&pace, &slo, true, 20000) == 10000);
    pace = measured(2000, 4000, 16);
    CHECK(sched_pace_mixed_tokens(&pace, &slo, 512) == LIMIT_CHUNK_TOKENS_MIN);
    CHECK(sched_pace_turn_us(&pace, &slo, true, 0) == 32000);
    /* Where steps miss the target, prompts get as much time as steps. */
    pace = measured(200, 80000, 100000);
    CHECK(sched_pace_turn_us(&pace, &slo, true, 80000) == 80000);
    /* Steps are not interrupted within the TBT target. */
    CHECK(sched_pace_turn_us(&pace, &slo, false, 0) == 50000);
}

static void test_measurements(void)
{
    struct sched_pace pace = measured(200, 4000, 256);
    /* A batch with 8 answers takes a step more than its prompts. */
    for (int i = 0; i < 50; i++)
        sched_pace_batch_add(&pace, 8, 32, 4000 + 32 * 300);
    CHECK(fabs(pace.prompt_token_us - 300) < 1 && fabs(pace.step_us - 4000) < 1);
    /* Chunks too small to measure, batches of no time, and batches shorter than a step say nothing
     * of prompts. */
    struct sched_pace before = pace;
    sched_pace_batch_add(&pace, 8, 8, 100000);
    sched_pace_batch_add(&pace, 8, 32, 0);
    sched_pace_batch_add(&pace, 8, 32, 3000);
    CHECK(pace.prompt_token_us == before.prompt_token_us && pace.step_us == before.step_us);
    /* A machine that was stopped for a minute is soon known again. */
    sched_pace_batch_add(&pace, 0, 256, 60000000);
    CHECK(pace.prompt_token_us < 1000);
    for (int i = 0; i < 20; i++)
        sched_pace_batch_add(&pace, 0, 256, 256 * 300);
    CHECK(fabs(pace.prompt_token_us - 300) < 3);
}

static void test_open(void)
{
    struct sched_pace pace = {0};
    int64_t now_us = 0;
    sched_pace_open_add(&pace, 256, now_us);
    CHECK(pace.open_tokens == 256);
    /* Nothing is open: the mean stays. */
    sched_pace_open_add(&pace, 0, now_us += 5000000);
    CHECK(pace.open_tokens == 256);
    /* A burst, seen for 10 ms, hardly counts; after a few seconds it is the mean. */
    sched_pace_open_add(&pace, 8192, now_us += 10000);
    CHECK(pace.open_tokens < 270);
    for (int i = 0; i < 500; i++)
        sched_pace_open_add(&pace, 8192, now_us += 10000);
    CHECK(pace.open_tokens > 8000);
    for (int i = 0; i < 300; i++)
        sched_pace_open_add(&pace, 256, now_us += 10000);
    CHECK(pace.open_tokens < 320);
}

static void test_bounds(void)
{
    for (int i = 0; i < 200000; i++) {
        const struct sched_pace_targets targets = {1 + draw(2000000), 1 + draw(200000)};
        struct sched_pace pace = {0};
        for (int k = 0; k < 4; k++)
            sched_pace_batch_add(&pace, draw(3), draw(600), draw(1u << draw(26)));
        sched_pace_open_add(&pace, draw(200000), draw(1000000));
        uint32_t most = LIMIT_CHUNK_TOKENS_MIN + draw(4000);
        uint32_t tokens = sched_pace_mixed_tokens(&pace, &targets, most);
        CHECK(tokens >= LIMIT_CHUNK_TOKENS_MIN && tokens <= most &&
              tokens % LIMIT_CHUNK_TOKENS_MIN == 0);
        double steps_us = draw(100000);
        double turn_us = sched_pace_turn_us(&pace, &targets, true, steps_us);
        double chunk_us = pace.prompt_token_us * LIMIT_CHUNK_TOKENS_MIN;
        CHECK(turn_us >= steps_us / 2 - 1 && turn_us >= chunk_us - 1);
        double most_us = fmax(fmax(steps_us, (double)targets.tbt_us - steps_us), chunk_us);
        CHECK(turn_us <= most_us + 1);
    }
}

/* Prompts and steps alternate until all prompts are computed. Whatever the machine's speed, the
 * last first token and the gaps are the same part of their targets, if neither bound applies. */
static void test_balance(void)
{
    static const struct {
        uint64_t row_us, step_us, tokens;
    } machines[] = {{20, 500, 6000}, {200, 4000, 700}, {400, 2000, 400}, {90, 9000, 2500}};
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        struct sched_pace pace =
            measured(machines[i].row_us, machines[i].step_us, machines[i].tokens);
        double step_us = (double)machines[i].step_us;
        double share_us = sched_pace_turn_us(&pace, &slo, true, step_us);
        double work_us = (double)(machines[i].row_us * machines[i].tokens);
        double ttft = work_us * (share_us + step_us) / share_us / (double)slo.ttft_us;
        double tbt = (share_us + step_us) / (double)slo.tbt_us;
        CHECKF(fabs(ttft / tbt - 1) < 0.01, "machine %zu: %f of TTFT, %f of TBT", i, ttft, tbt);
    }
}

int main(void)
{
    seed = test_seed();
    test_fill();
    test_by_hand();
    test_measurements();
    test_open();
    test_bounds();
    test_balance();
    return 0;
}
