/* Goal: the durations of batches give the machine's speed. Method: batches whose durations follow a
 * known line (fixed + per_row × rows), and the rates that result. */
#include "scheduler/rates.h"
#include "tests/check.h"

#define NEAR(value, wanted) ((value) > (wanted)*0.98 && (value) < (wanted)*1.02)

static void decodes(struct sched_rates *rates, uint32_t rows, double fixed_us, double per_row_us)
{
    double us = fixed_us + per_row_us * rows;
    sched_rates_decodes_add(rates, 10, 10ull * rows, (uint64_t)(10 * us));
}

int main(void)
{
    struct sched_rates rates = {0};
    CHECK(sched_rates_prompt_tokens_per_s(&rates, 512) == 0);
    CHECK(sched_rates_output_tokens_per_s(&rates, 256, 50000) == 0);
    sched_rates_prompts_add(&rates, 1, 0, 1000); /* A batch without tokens changes nothing. */
    CHECK(sched_rates_prompt_tokens_per_s(&rates, 512) == 0);
    for (int i = 0; i < 20; i++)
        sched_rates_prompts_add(&rates, 1, 2048, 1024000);
    CHECK(NEAR(sched_rates_prompt_tokens_per_s(&rates, 512), 2000));
    for (int i = 0; i < 100; i++) /* The machine has become slow. */
        sched_rates_prompts_add(&rates, 1, 2048, 4096000);
    CHECK(NEAR(sched_rates_prompt_tokens_per_s(&rates, 512), 500));

    struct sched_rates stopped = {0}; /* One batch was stopped for 10 s; then all is as before. */
    for (int i = 0; i < 50; i++) {
        sched_rates_prompts_add(&stopped, 1, 200, 100000);
        decodes(&stopped, 8, 4000, 100);
    }
    sched_rates_prompts_add(&stopped, 1, 200, 10000000);
    sched_rates_decodes_add(&stopped, 1, 8, 10000000);
    CHECK(sched_rates_prompt_tokens_per_s(&stopped, 200) > 1600);
    CHECK(sched_rates_output_tokens_per_s(&stopped, 8, 50000) > 1500);

    struct sched_rates long_known = {0}; /* Ten hours at one speed, then a minute at another. */
    sched_rates_prompts_add(&long_known, 36000, 72000000, 36000000000);
    sched_rates_decodes_add(&long_known, 3600000, 14400000, 36000000000);
    CHECK(NEAR(sched_rates_prompt_tokens_per_s(&long_known, 500), 2000));
    for (int i = 0; i < 60; i++) {
        sched_rates_prompts_add(&long_known, 1, 500, 1000000);
        sched_rates_decodes_add(&long_known, 50, 200, 1000000);
    }
    CHECK(sched_rates_prompt_tokens_per_s(&long_known, 500) < 600);
    /* The rate is 200 now; it was 400. */
    CHECK(sched_rates_output_tokens_per_s(&long_known, 4, 50000) < 220);

    for (uint32_t i = 0; i < 1000; i++)
        decodes(&rates, 1 + i % 8, 8000, 500);
    /* 8 ms + 0.5 ms × rows: 84 rows take 50 ms. */
    CHECK(NEAR(sched_rates_output_tokens_per_s(&rates, 256, 50000), 84 / 0.05));
    CHECK(NEAR(sched_rates_output_tokens_per_s(&rates, 16, 50000), 16 / 0.016));
    /* No batch is as short as 1 ms, so the rate is that of one row. */
    CHECK(NEAR(sched_rates_output_tokens_per_s(&rates, 256, 1000), 1 / 0.0085));

    struct sched_rates same = {0};
    /* Batches of one size give no line: the rate is the one of that size. */
    for (int i = 0; i < 100; i++)
        decodes(&same, 4, 8000, 500);
    CHECK(NEAR(sched_rates_output_tokens_per_s(&same, 256, 50000), 4 / 0.01));
    CHECK(sched_rates_step(&same).fixed_ns == 0);
    struct sched_step_time guess = sched_rates_step_guess(&same);
    CHECK(NEAR(guess.fixed_ns, sched_rates_step(&same).row_ns * 4.0) && guess.row_ns == 0);

    /* 20 ms + 0.1 ms × rows. Two machines that computed other sizes have the same rate. */
    struct sched_rates shorts = {0}, longs = {0};
    for (uint32_t i = 0; i < 200; i++) {
        sched_rates_prompts_add(&shorts, 1, 50 + i, 20000 + 100 * (50 + i));
        sched_rates_prompts_add(&longs, 1, 1000 + 10 * i, 20000 + 100 * (1000 + 10 * i));
    }
    CHECK(NEAR(sched_rates_prompt_tokens_per_s(&shorts, 800), 8000));
    CHECK(NEAR(sched_rates_prompt_tokens_per_s(&longs, 800), 8000));

    /* Any numbers of a machine give a rate: counts that have become smaller, and no rows. */
    struct sched_rates odd = {0};
    sched_rates_prompts_add(&odd, 1, 8, 1000);
    CHECK(sched_rates_prompt_tokens_per_s(&odd, 0) == 1);
    for (uint64_t i = 0; i < 70; i++) {
        sched_rates_prompts_add(&odd, 1 + i / 3, UINT64_MAX >> i % 64, UINT64_MAX - i);
        sched_rates_decodes_add(&odd, UINT64_MAX - i, i * i, UINT64_MAX >> (i + 5) % 64);
        CHECK(sched_rates_prompt_tokens_per_s(&odd, 256) >= 1);
        CHECK(i == 0 || sched_rates_output_tokens_per_s(&odd, 256, 50000) >= 1);
        (void)sched_rates_step_guess(&odd);
    }
    return 0;
}
