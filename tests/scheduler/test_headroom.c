/* Goal: the head-room is the factor at which the replayed traffic misses the SLO. Method: clusters
 * and traffic for which the factor is known from a formula: regular arrivals at one machine, steps
 * that reach the limit of TBT, KV memory that only one answer has; and properties that hold for
 * random traffic: more machines give no less, the whole is no more than its parts. */
#include "scheduler/headroom.h"
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct headroom h;

/* A machine with prompts of tokens_per_s, and steps of fixed_us + row_us for each answer. */
static struct headroom_machine machine_of(bool prompts, bool answers, double tokens_per_s,
                                          double fixed_us, double row_us)
{
    struct headroom_machine machine = {
        .computes_prompts = prompts, .computes_answers = answers, .kv_tokens = 1u << 30};
    for (uint64_t rows = 100; prompts && rows <= 400; rows += 100)
        sched_rates_prompts_add(&machine.rates, 1, rows,
                                (uint64_t)((double)rows * 1e6 / tokens_per_s));
    for (uint64_t rows = 1; answers && rows <= 8; rows++)
        sched_rates_decodes_add(&machine.rates, 1, rows,
                                (uint64_t)(fixed_us + row_us * (double)rows));
    return machine;
}

static void begin(uint32_t machines)
{
    memset(&h, 0, sizeof(h));
    h.machine_count = machines;
    h.options = (struct headroom_options){.targets = {.ttft_us = 500000, .tbt_us = 50000},
                                          .fill_tokens = 128,
                                          .batch_tokens = 1024,
                                          .sequences_max = 256,
                                          .gateways = 1};
}

/* `count` requests, one each gap_us. */
static void regular(uint32_t count, int64_t gap_us, uint32_t prompt, uint32_t answer)
{
    h.answer_count = count;
    for (uint32_t i = 0; i < count; i++)
        h.answers[i] = (struct headroom_answer){.arrived_us = 7000 + i * gap_us,
                                                .computed_tokens = prompt,
                                                .prompt_tokens = prompt,
                                                .answer_tokens = answer};
    h.until_us = 7000 + count * gap_us;
}

static struct headroom_result search(void)
{
    CHECK(headroom_begin(&h));
    for (int steps = 0; !headroom_step(&h); steps++)
        CHECK(steps < 200);
    return h.result;
}

static void near(double value, double wanted, double part)
{
    CHECKF(fabs(value / wanted - 1) < part, "%g, want %g", value, wanted);
}

/* Prompts of 100 ms arrive each 400 ms: a little more than 4 times as many never wait; above that
 * the queue grows for ever. A quarter of the computed tokens gives four times as much. */
static void test_prompts(void)
{
    begin(2);
    h.machines[0] = machine_of(true, false, 1000, 0, 0);
    h.machines[1] = machine_of(false, true, 0, 1000, 10);
    regular(400, 400000, 100, 1);
    struct headroom_result result = search();
    near(result.factor[HEADROOM_PROMPTS], 4, 0.03);
    near(result.factor[HEADROOM_ALL], 4, 0.03);
    CHECK(result.factor[HEADROOM_TOKENS] == HEADROOM_MOST && !result.at_least);
    for (uint32_t i = 0; i < h.answer_count; i++)
        h.answers[i].computed_tokens = 25;
    near(search().factor[HEADROOM_PROMPTS], 16, 0.03);
    /* A prompt that takes longer than the limit alone: no factor is small enough. */
    begin(2);
    h.machines[0] = machine_of(true, false, 1000, 0, 0);
    h.machines[1] = machine_of(false, true, 0, 1000, 10);
    regular(100, 10000000, 600, 1);
    result = search();
    CHECK(result.factor[HEADROOM_PROMPTS] == 0 && result.factor[HEADROOM_ALL] == 0);
    near(result.factor[HEADROOM_TOKENS], HEADROOM_MOST, 0.01);
}

/* A step of 20 ms + 1 ms for each answer reaches 50 ms with 30 answers. Answers of 101 tokens then
 * take 5 s, so 6 in a second keep 30 open. Two machines have 12. */
static void test_tokens(void)
{
    for (uint32_t machines = 1; machines <= 2; machines++) {
        begin(1 + machines);
        h.machines[0] = machine_of(true, false, 1e6, 0, 0);
        for (uint32_t i = 1; i <= machines; i++)
            h.machines[i] = machine_of(false, true, 0, 20000, 1000);
        regular(500, 500000, 10, 101);
        struct headroom_result result = search();
        near(result.factor[HEADROOM_TOKENS], 3.0 * machines, 0.06);
        CHECK(result.factor[HEADROOM_ALL] == result.factor[HEADROOM_TOKENS]);
        CHECK(!result.at_least);
    }
    /* Steps of one size: the time of larger ones is not known. */
    begin(2);
    h.machines[0] = machine_of(true, false, 1e6, 0, 0);
    h.machines[1] = machine_of(false, true, 0, 20000, 1000);
    memset(&h.machines[1].rates.decodes, 0, sizeof(h.machines[1].rates.decodes));
    sched_rates_decodes_add(&h.machines[1].rates, 10, 20, 10 * 22000);
    regular(500, 500000, 10, 101);
    struct headroom_result result = search();
    CHECK(result.at_least && result.factor[HEADROOM_TOKENS] < 3);
}

/* Memory for one answer at a time, of 1 s: with more than 1 in a second they wait. */
static void test_memory(void)
{
    begin(2);
    h.machines[0] = machine_of(true, false, 1e6, 0, 0);
    h.machines[1] = machine_of(false, true, 0, 10000, 1);
    h.machines[1].kv_tokens = 150;
    regular(500, 4000000, 10, 101);
    struct headroom_result result = search();
    near(result.factor[HEADROOM_TOKENS], 4, 0.05);
    CHECK(result.factor[HEADROOM_PROMPTS] > 50);
}

/* Each phase has its own factor: prompts of 100 ms come each 400 ms; steps reach the limit with 30
 * answers, which take 1 s, and 2.5 answers come in a second. */
static void test_both(void)
{
    begin(2);
    h.machines[0] = machine_of(true, false, 1000, 0, 0);
    h.machines[1] = machine_of(false, true, 0, 20000, 1000);
    regular(500, 400000, 100, 21);
    struct headroom_result result = search();
    near(result.factor[HEADROOM_PROMPTS], 4, 0.03);
    near(result.factor[HEADROOM_TOKENS], 12, 0.06);
    near(result.factor[HEADROOM_ALL], 4, 0.03);
}

/* Another gateway with the same traffic halves the factor. */
static void test_gateways(void)
{
    begin(1);
    h.machines[0] = machine_of(true, true, 1000, 1000, 1);
    regular(400, 400000, 100, 1);
    double alone = search().factor[HEADROOM_PROMPTS];
    h.options.gateways = 2;
    near(search().factor[HEADROOM_PROMPTS], alone / 2, 0.04);
}

/* One machine for both phases has less than the two machines of a split. */
static void test_mixed(uint64_t seed)
{
    srand48((long)seed);
    for (int round = 0; round < 20; round++) {
        double tokens_per_s = 500 + 4000 * drand48(), fixed = 2000 + 20000 * drand48();
        double row = 2000 * drand48() + 10;
        double factors[3];
        for (int machines = 1; machines <= 3; machines++) {
            srand48((long)seed + round);
            begin((uint32_t)machines);
            h.machines[0] = machine_of(true, machines == 1, tokens_per_s, fixed, row);
            for (int i = 1; i < machines; i++)
                h.machines[i] = machine_of(false, true, tokens_per_s, fixed, row);
            regular(300, 0, 1, 1);
            int64_t at_us = 0;
            for (uint32_t i = 0; i < h.answer_count; i++) {
                at_us += (int64_t)(-log(1 - drand48()) * 2e6);
                h.answers[i].arrived_us = at_us;
                h.answers[i].computed_tokens = 1 + (uint32_t)(drand48() * 200);
                h.answers[i].answer_tokens = 1 + (uint32_t)(drand48() * 100);
            }
            h.until_us = at_us + 2000000;
            struct headroom_result result = search();
            factors[machines - 1] = result.factor[HEADROOM_ALL];
            CHECK(result.factor[HEADROOM_ALL] <= result.factor[HEADROOM_PROMPTS] * 1.05);
            CHECK(result.factor[HEADROOM_ALL] <= result.factor[HEADROOM_TOKENS] * 1.05);
        }
        CHECKF(factors[0] <= factors[1] * 1.05, "%g with one machine, %g with two", factors[0],
               factors[1]);
        CHECKF(factors[1] <= factors[2] * 1.05, "%g with two machines, %g with three", factors[1],
               factors[2]);
    }
}

static void test_unknown(void)
{
    begin(2);
    h.machines[0] = machine_of(true, false, 1000, 0, 0);
    h.machines[1] = machine_of(false, true, 0, 1000, 10);
    regular(19, 400000, 100, 5);
    CHECK(!headroom_begin(&h)); /* Too few. */
    regular(20, 400000, 100, 5);
    CHECK(headroom_begin(&h));
    h.machines[0] = machine_of(true, false, 1000, 0, 0);
    memset(&h.machines[1].rates, 0, sizeof(h.machines[1].rates));
    CHECK(!headroom_begin(&h)); /* No measured step. */
    h.machine_count = 0;
    CHECK(!headroom_begin(&h));
}

int main(void)
{
    uint64_t seed = test_seed();
    test_prompts();
    test_tokens();
    test_memory();
    test_both();
    test_gateways();
    test_mixed(seed);
    test_unknown();
    return 0;
}
