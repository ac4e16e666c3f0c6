/* Goal: the schedulers of a gateway, a machine and a simulated cluster have the options that the
 * config says. Method: compares the made options with the config's values, for each policy, with
 * and without prefixes, stages and a lead. */
#include "scheduler/options.h"

#include "tests/check.h"

#include <stdio.h>
#include <string.h>

static struct config config;

static void policy_set(const char *policy)
{
    snprintf(config.scheduler.policy, sizeof(config.scheduler.policy), "%s", policy);
}

static void test_cluster_plain(void)
{
    const struct sched_cluster_facts facts = {
        .machine_count = 7, .prefix_step_tokens = 64, .prefix_cache = true, .may_repurpose = true};
    config_default(&config);
    policy_set("jsq");
    config.scheduler.wait_ms = 11;
    config.scheduler.takeover_delay_ms = 12;
    config.scheduler.ageing_ms = 13;
    config.scheduler.preemptions_max = 0;
    config.scheduler.adaptive_pools = true;
    config.scheduler.repurpose_window_ms = 14;
    config.scheduler.repurpose_interval_ms = 15;
    config.scheduler.prefix_slack_tokens = 16;
    struct sched_cluster_options o = sched_cluster_options_make(&config, &facts);
    CHECK(o.machine_count == 7 && o.request_count == LIMIT_CLUSTER_REQUESTS);
    CHECK(o.wait_us_max == 11000 && o.cover_after_us == 12000 && o.ageing_us == 13000);
    CHECK(o.adaptive && o.token_memory_threshold && !o.unsplit && !o.schedule_mean_answer);
    CHECK(o.repurpose_window_us == 14000 && o.repurpose_interval_us_min == 15000);
    CHECK(o.prefix_count > 0 && o.prefix_step_tokens == 64);
    CHECK(o.prefix_slack_tokens == 16 && !o.prefix_saves && o.ttft_us_max == 0);
    CHECK(o.one_machine_routes && o.compare_time);
    CHECK(o.one_machine_targets.ttft_us == config.slo.ttft_ms * 1000ll);
    CHECK(o.one_machine_targets.tbt_us == config.slo.tbt_ms * 1000ll);
    CHECK(o.prompt_queue_threshold_us == 0); /* The comparison needs no threshold. */
    CHECK(o.prompt_queue_threshold_tokens == 0 && o.prompt_queue_threshold_unmeasured == 8192);
    CHECK(o.machine_us_max == config.slo.ttft_ms * 1000ll);
    CHECK(o.queue_us_max == 60000000);
    CHECK(o.machine_tokens_unmeasured == 2 * config.scheduler.prompt_batch_tokens);
    config.scheduler.machine_pending_ms = 0;
    o = sched_cluster_options_make(&config, &facts);
    CHECK(o.machine_us_max == 0 && o.machine_tokens_unmeasured == 0);
    config.scheduler.compare_time = false;
    CHECK(!sched_cluster_options_make(&config, &facts).compare_time);
    config.scheduler.prompt_queue_threshold_ms = 7;
    CHECK(sched_cluster_options_make(&config, &facts).prompt_queue_threshold_us == 7000);
    snprintf(config.scheduler.placement, sizeof(config.scheduler.placement), "split");
    o = sched_cluster_options_make(&config, &facts);
    CHECK(!o.one_machine_routes && o.prompt_queue_threshold_us == 7000);
    config.scheduler.prompt_queue_threshold_ms = 0;
    o = sched_cluster_options_make(&config, &facts);
    CHECK(o.prompt_queue_threshold_tokens == 8192 && o.prompt_queue_threshold_unmeasured == 0);
    config.scheduler.prompt_queue_threshold_tokens = 77;
    config.scheduler.prompt_queue_threshold_ms = 7;
    o = sched_cluster_options_make(&config, &facts);
    CHECK(o.prompt_queue_threshold_tokens == 77 && o.prompt_queue_threshold_unmeasured == 0);
    config.scheduler.prompt_queue_threshold_tokens = CONFIG_AUTO;
    config.scheduler.prompt_queue_threshold_ms = CONFIG_AUTO;
    o = sched_cluster_options_make(&config, &facts);
    CHECK(o.prompt_queue_threshold_us == config.slo.ttft_ms * 500ll);
    config.scheduler.preemptions_max = 1;
    config.scheduler.adaptive_pools = false;
    o = sched_cluster_options_make(&config, &facts);
    CHECK(o.schedule_mean_answer && !o.adaptive && !o.token_memory_threshold &&
          o.repurpose_window_us == 0);
}

static void test_cluster_policies(void)
{
    struct sched_cluster_facts facts = {
        .machine_count = 7, .prefix_step_tokens = 64, .prefix_cache = true};
    config_default(&config);
    config.scheduler.adaptive_pools = true;
    config.scheduler.prefix_slack_tokens = 16;
    config.slo.ttft_ms = 17;
    policy_set("prefix");
    CHECK(sched_policy_is_prefix(&config));
    struct sched_cluster_options o = sched_cluster_options_make(&config, &facts);
    CHECK(o.prefix_slack_tokens == 16 && o.prefix_saves && o.ttft_us_max == 0);
    CHECK(o.repurpose_window_us == 0); /* It does not lead. */
    facts.prefix_cache = false;
    o = sched_cluster_options_make(&config, &facts);
    CHECK(o.prefix_slack_tokens == 16 && !o.prefix_saves);
    facts.prefix_step_tokens = 0; /* as in a simulation */
    facts.prefix_cache = true;
    o = sched_cluster_options_make(&config, &facts);
    CHECK(o.prefix_count == 0 && o.prefix_slack_tokens == 16 && !o.prefix_saves);
    policy_set("deadline");
    CHECK(!sched_policy_is_prefix(&config));
    o = sched_cluster_options_make(&config, &facts);
    CHECK(o.ttft_us_max == 17000);
}

/* Options made from any valid config are accepted by the scheduler. */
static void opens(uint32_t stages, uint32_t paths, uint32_t best)
{
    const struct sched_machine_facts facts = {stages, paths, best};
    const struct sched_machine_options o = sched_machine_options_make(&config, &facts);
    struct sched_machine *sm;
    CHECKF(sched_machine_open(&o, &sm) == ST_OK, "%u stages, %u paths", stages, paths);
    sched_machine_close(sm);
    CHECK(o.batches_in_flight * (paths > 0 ? paths : 1) <= LIMIT_BATCHES_IN_FLIGHT);
}

static void test_machine(void)
{
    struct sched_machine_facts facts = {.stage_count = 3, .path_count = 2};
    config_default(&config);
    config.scheduler.micro_batch_tokens = 0;
    config.scheduler.prompt_fill_tokens = 48;
    struct sched_machine_options o = sched_machine_options_make(&config, &facts);
    CHECK(o.batches_in_flight == 4 && o.decode_batches_in_flight == 3 && o.path_count == 2);
    CHECK(o.micro_batch_tokens == 48 && o.slot_count == LIMIT_MACHINE_REQUESTS);
    facts.micro_batch_tokens = 80;
    CHECK(sched_machine_options_make(&config, &facts).micro_batch_tokens == 80);
    config.scheduler.micro_batch_tokens = 32;
    CHECK(sched_machine_options_make(&config, &facts).micro_batch_tokens == 32);
    facts.stage_count = 1;
    o = sched_machine_options_make(&config, &facts);
    CHECK(o.mixed_prompt_tokens == o.prompt_batch_tokens); /* Until times are measured. */
    config.scheduler.mixed_prompt_tokens = 48;
    CHECK(sched_machine_options_make(&config, &facts).mixed_prompt_tokens == 48);
    CHECK(o.batches_in_flight == 1 && o.micro_batch_tokens == 0);
    /* Without stages, prompt_fill_tokens is no micro-batch, and may be smaller than a chunk. */
    config.scheduler.micro_batch_tokens = 0;
    config.scheduler.prompt_fill_tokens = 1;
    opens(0, 0, 0);
    opens(1, 1, 0);
    config.scheduler.prompt_fill_tokens = 128;
    for (uint32_t stages = 1; stages <= LIMIT_STAGE_PROCESSES; stages *= 2)
        for (uint32_t paths = 1; paths <= LIMIT_STAGE_PATHS; paths += 3)
            opens(stages, paths, 0);
}

int main(void)
{
    test_cluster_plain();
    test_cluster_policies();
    test_machine();
    return 0;
}
