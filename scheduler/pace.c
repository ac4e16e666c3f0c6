/* pace: see the header. */
#include "scheduler/pace.h"

#include "common/limits.h"
#include "scheduler/rates.h"

#include <math.h>

/* Part of a new measurement in the mean. */
#define NEW_PART 0.25
/* The mean of the open prompts is over this time. A longer pause between two batches counts as
 * PAUSE_US_MAX. */
#define OPEN_US      1e6
#define PAUSE_US_MAX 1e5

/* A size of batches with this part of the highest rate is as fast as any. */
#define FAST_PART 0.95

static void mean_add(double *mean, double value)
{
    value = sched_rates_outlier_limit(value, *mean);
    *mean = *mean > 0 ? *mean + NEW_PART * (value - *mean) : value;
}

static void size_add(struct sched_pace *pace, uint32_t tokens, uint64_t us)
{
    int i = 0;
    while (i + 1 < SCHED_PACE_SIZES && tokens >> (i + 1) > 0)
        i++;
    mean_add(&pace->sizes[i].tokens, tokens);
    mean_add(&pace->sizes[i].batch_us, (double)us);
}

void sched_pace_batch_add(struct sched_pace *pace, uint32_t decodes, uint32_t prompt_tokens,
                          uint64_t batch_us)
{
    double step_us = decodes > 0 ? pace->step_us : 0;
    if (batch_us == 0)
        return;
    if (prompt_tokens > 0 && decodes == 0)
        size_add(pace, prompt_tokens, batch_us);
    if (prompt_tokens == 0)
        mean_add(&pace->step_us, (double)batch_us);
    else if (prompt_tokens >= LIMIT_CHUNK_TOKENS_MIN && (double)batch_us > step_us)
        mean_add(&pace->prompt_token_us, ((double)batch_us - step_us) / prompt_tokens);
}

void sched_pace_open_add(struct sched_pace *pace, uint64_t tokens, int64_t now_us)
{
    double passed_us = (double)(now_us - pace->open_at_us);
    double part = (passed_us < PAUSE_US_MAX ? passed_us : PAUSE_US_MAX) / OPEN_US;
    pace->open_at_us = now_us;
    if (tokens == 0)
        return;
    if (pace->open_tokens > 0)
        pace->open_tokens *= pow((double)tokens / pace->open_tokens, part);
    else
        pace->open_tokens = (double)tokens;
}

int64_t sched_pace_share_us(const struct sched_pace_targets *targets, double prompts_us,
                            double steps_us)
{
    double tbt_us = (double)targets->tbt_us;
    double share = prompts_us * tbt_us / (double)targets->ttft_us;
    /* Where a step alone misses the target, prompts get as much time as steps. */
    double most = tbt_us - steps_us > steps_us ? tbt_us - steps_us : steps_us;
    double least = steps_us / 2;
    share = share > most ? most : share < least ? least : share;
    return share > 1 ? (int64_t)share : 1;
}

uint32_t sched_pace_share_tokens(int64_t share_us, double prompt_token_us, uint32_t tokens_max)
{
    uint32_t whole = tokens_max / LIMIT_CHUNK_TOKENS_MIN * LIMIT_CHUNK_TOKENS_MIN;
    if (prompt_token_us <= 0 || (double)share_us / prompt_token_us >= whole)
        return whole;
    double tokens = (double)share_us / prompt_token_us;
    uint32_t chunks = (uint32_t)(tokens / LIMIT_CHUNK_TOKENS_MIN + 0.5);
    return (chunks > 0 ? chunks : 1) * LIMIT_CHUNK_TOKENS_MIN;
}

uint32_t sched_pace_mixed_tokens(const struct sched_pace *pace,
                                 const struct sched_pace_targets *targets, uint32_t tokens_max)
{
    int64_t share =
        sched_pace_share_us(targets, pace->open_tokens * pace->prompt_token_us, pace->step_us);
    return sched_pace_share_tokens(share, pace->prompt_token_us, tokens_max);
}

uint32_t sched_pace_fill_tokens(const struct sched_pace *pace, uint32_t tokens_if_unknown,
                                uint32_t tokens_max)
{
    double best = 0;
    int known = 0;
    for (int i = 0; i < SCHED_PACE_SIZES; i++) {
        if (pace->sizes[i].batch_us <= 0)
            continue;
        known++;
        best = fmax(best, pace->sizes[i].tokens / pace->sizes[i].batch_us);
    }
    double tokens = tokens_if_unknown;
    for (int i = SCHED_PACE_SIZES - 1; i >= 0 && known > 1; i--)
        if (pace->sizes[i].batch_us > 0 &&
            pace->sizes[i].tokens / pace->sizes[i].batch_us >= FAST_PART * best)
            tokens = pace->sizes[i].tokens;
    return tokens < tokens_max ? (uint32_t)ceil(tokens) : tokens_max;
}

uint32_t sched_pace_turn_us(const struct sched_pace *pace, const struct sched_pace_targets *targets,
                            bool has_prompts, double other_steps_us)
{
    int64_t least = (int64_t)(pace->prompt_token_us * LIMIT_CHUNK_TOKENS_MIN);
    if (!has_prompts)
        return (uint32_t)targets->tbt_us;
    int64_t share =
        sched_pace_share_us(targets, pace->open_tokens * pace->prompt_token_us, other_steps_us);
    return (uint32_t)(share > least ? share : least);
}
