/* sim_options: see the header. */
#include "tests/scheduler/sim_options.h"

#include "common/random.h"

#include <stdio.h>

#define TALKS 6 /* conversations */
#define STEP  20

struct sched_cluster_options sim_options_draw(uint32_t (*draw)(uint32_t below))
{
    struct sched_cluster_options o = {
        .request_count = SIM_REQUESTS,
        .machine_count = SIM_MACHINES,
        .prefix_count = 64,
        .prefix_slack_tokens = draw(2000),
        .prefix_step_tokens = STEP,
        .prefix_saves = draw(3) > 0,
        .queue_requests_max = draw(30),
        .wait_us_max = draw(2) == 0 ? 0 : 1000 + draw(1000000),
        .cover_after_us = draw(20000),
        .machine_kv_multiple = 1 + draw(3),
        .prompt_queue_threshold_tokens = draw(2) == 0 ? 0 : 50 + draw(300),
        .prompt_queue_threshold_unmeasured = draw(2) == 0 ? 0 : 50 + draw(300),
        .token_memory_threshold = draw(2) == 0,
        .growth_reserve_percent = draw(2) == 0 ? 0 : draw(30),
        .growth_reserve_tokens = draw(2) == 0 ? 0 : draw(20),
        .schedule_mean_answer = draw(2) == 0,
        .machine_tokens_max = draw(2) == 0 ? 0 : 100 + draw(1000),
        .machine_us_max = draw(2) == 0 ? 0 : 1 + draw(100000),
        .ageing_us = 1000 + draw(100000),
        .adaptive = draw(3) > 0,
        .homing = draw(2) == 0 ? SCHED_HOMING_DONE : SCHED_HOMING_IDLE,
        .stay_tokens = draw(2),
        .one_machine_routes = draw(2) == 0,
        .one_machine_targets.ttft_us = 1 + draw(200000),
        .one_machine_targets.tbt_us = 1 + draw(20000),
        .repurpose_window_us = draw(2) == 0 ? 0 : 20000 + draw(100000),
        .repurpose_interval_us_min = draw(50000),
        .repurpose_gain_percent_min = 1 + draw(30),
    };
    return o;
}

struct sched_prefix sim_prefix_of(uint32_t request, uint32_t tokens)
{
    static uint64_t hashes[TALKS][SCHED_PREFIX_MAX];
    uint32_t talk = request % TALKS;
    uint32_t count = tokens / STEP;
    for (uint64_t k = 0; k < SCHED_PREFIX_MAX; k++)
        hashes[talk][k] = random_at(talk, k);
    return (struct sched_prefix){.hashes = hashes[talk],
                                 .count = count < SCHED_PREFIX_MAX ? count : SCHED_PREFIX_MAX};
}

struct sched_event sim_tiers_of(uint32_t machine, uint64_t number)
{
    struct sched_event event = {.kind = SCHED_MACHINE_TIERS, .machine = machine};
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        const uint32_t drawn = (uint32_t)(random_at(number, (uint64_t)kind) >> 32);
        event.tiers[kind] = (struct sched_tier){.works = drawn % 3 > 0,
                                                .load_fixed_us = drawn / 3 % 3 * 500,
                                                .load_token_ns = drawn / 9 % 3 * 5000};
    }
    return event;
}

void sim_options_print(const struct sched_cluster_options *options)
{
    printf(
        "adaptive %d threshold %u memory %d kv multiple %u machine tokens %u slack %u saves %d\n",
        options->adaptive, (uint32_t)options->prompt_queue_threshold_tokens,
        options->token_memory_threshold, options->machine_kv_multiple,
        (uint32_t)options->machine_tokens_max, (uint32_t)options->prefix_slack_tokens,
        options->prefix_saves);
}
