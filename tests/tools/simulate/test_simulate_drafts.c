/* Goal: in a simulation, a decode step with drafts takes the time of all its rows and gives the
 * tokens that are right; without drafts, nothing changes. Method: one answer is compared with a
 * loop that asks scheduler/drafts.h for each step; with several answers, more right drafts give
 * shorter answers; random clusters with little memory and failures end all requests, and count each
 * token once. */
#include "scheduler/drafts.h"
#include "tools/simulate/sim_run.h"

#include "common/random.h"
#include "tests/check.h"
#include "tests/tools/simulate/paper.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static struct config config;
static struct sim_machines hosts;
static struct sim_report report;
static struct sim_run_totals totals;
static struct sim_run_options options;

static void cluster_open(const char *machines, uint32_t drafts, double right)
{
    struct error error = {""};
    char spec[1400];
    config_default(&config);
    config.scheduler.speculative_tokens = drafts;
    memset(&hosts, 0, sizeof(hosts));
    snprintf(spec, sizeof(spec), "%s:%s/h100.json", machines, hardware);
    CHECKF(sim_machines_add(&hosts, spec, table, "bloom-176b", &config, &error) == ST_OK, "%s",
           error.text);
    hosts.context_tokens = 4096;
    options = (struct sim_run_options){.machines = &hosts,
                                       .config = &config,
                                       .message_s = 0.001,
                                       .repair_s = 2,
                                       .seed = seed,
                                       .draft_right = right};
}

/* Runs a workload such as "poisson:rate=1,…". */
static void cluster_run(const char *workload, uint32_t requests)
{
    struct error error = {""};
    struct sim_trace trace;
    CHECKF(sim_trace_open(&trace, workload, false, seed, &error) == ST_OK, "%s", error.text);
    CHECK(sim_report_open(&report, NULL, false, &error) == ST_OK);
    CHECKF(sim_run(&options, &trace, &report, &totals, &error) == ST_OK, "%s", error.text);
    sim_trace_close(&trace);
    uint64_t ends = 0;
    for (int i = 0; i < SIM_OUTCOMES; i++)
        ends += report.outcomes[i];
    CHECK(ends == requests && report.outcomes[SIM_DONE] > 0);
    CHECK(totals.draft_tokens_accepted <= totals.draft_tokens);
}

static double step_s(uint32_t rows)
{
    const struct profile_work work = {.decodes = rows, .decode_context = 600};
    return sim_cost_stage_s(&hosts.machines[0].cost, 0, 0, &work);
}

/* Every drafted token is right, or none is. The prompt gives the first of the 200 tokens. */
static void one_answer(double right)
{
    struct sched_drafts drafts = {.always = false};
    struct sched_draft_trust trust = {0};
    uint64_t checked = 0, accepted = 0;
    uint32_t left = 199;
    double want_s = 0;
    cluster_open("1:mixed", 4, right);
    config.scheduler.growth_tokens =
        256; /* All memory of the answer, and of its drafts, at once. */
    while (left > 0) {
        struct sched_draft draft = {.count = left - 1 < 4 ? left - 1 : 4};
        memset(draft.classes, SCHED_DRAFT_MOST, sizeof(draft.classes)); /* As the simulator. */
        const uint32_t length = sched_drafts_length(&drafts, &trust, 1, &draft);
        const uint32_t good = right > 0.5 ? length : 0;
        const double cost = sched_drafts_cost(&drafts, 1, &draft, length);
        want_s += step_s(1 + length);
        sched_draft_trust_add(&trust, &draft, length, good, cost);
        sched_drafts_step_add(&drafts.steps, 1 + length, (uint64_t)(step_s(1 + length) * 1e6));
        checked += length;
        accepted += good;
        left -= 1 + good;
    }
    cluster_run("poisson:rate=1,requests=1,prompt=fixed:500,output=fixed:200", 1);
    CHECKF(totals.draft_tokens == checked && totals.draft_tokens_accepted == accepted,
           "%llu checked, %llu right, want %llu and %llu", (unsigned long long)totals.draft_tokens,
           (unsigned long long)totals.draft_tokens_accepted, (unsigned long long)checked,
           (unsigned long long)accepted);
    CHECK(checked > 0);
    const double took_s = report.e2e.sum - report.ttft.sum;
    CHECKF(fabs(took_s - want_s) < 1e-6, "%.9f s, want %.9f s", took_s, want_s);
}

static double tbt_with(uint32_t drafts, double right)
{
    seed = 5;
    cluster_open("2:mixed", drafts, right);
    cluster_run("poisson:rate=2,requests=150,prompt=fixed:500,output=uniform:1:300", 150);
    CHECK((totals.draft_tokens > 0) == (drafts > 0 && right > 0));
    return quantiles_mean(&report.tbt);
}

static void more_right_drafts_are_faster(void)
{
    const double none_s = tbt_with(0, 0.9), some_s = tbt_with(4, 0.6), most_s = tbt_with(4, 0.95);
    printf("mean TBT: %.1f ms without drafts; %.1f ms, 60 %% right; %.1f ms, 95 %% right\n",
           none_s * 1e3, some_s * 1e3, most_s * 1e3);
    CHECK(fabs(tbt_with(4, 0) - none_s) < 1e-12);
    CHECK(most_s < some_s && some_s < none_s);
    CHECKF(fabs(tbt_with(4, 0.6) - some_s) < 1e-12, "the same seed gives another result");
}

/* Answers grow, are preempted and lose their machines. */
static void random_cluster(uint64_t round)
{
    static const char *const some[] = {"1:mixed", "2:mixed", "3:mixed"};
    seed = 40 + round;
    draws = 0;
    cluster_open(some[draw(3)], 1 + draw(8), 0.1 * draw(11));
    for (uint32_t i = 0; i < hosts.count; i++)
        hosts.machines[i].kv_tokens = 2500 + draw(3000);
    hosts.context_tokens = 1200;
    options.failure_s = draw(2) == 0 ? 0 : 10 + draw(30);
    config.scheduler.growth_tokens = 1 + draw(64);
    config.scheduler.preemptions_max = draw(4);
    cluster_run("poisson:rate=3,requests=120,prompt=uniform:10:600,output=uniform:1:300", 120);
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < hosts.count; i++)
        tokens += totals.machines[i].output_tokens;
    CHECK(tokens >= report.output_tokens);
    CHECK(report.outcomes[SIM_DONE] < 120 || tokens == report.output_tokens);
}

int main(void)
{
    paper_open();
    seed = 1;
    one_answer(1);
    one_answer(1e-12);
    more_right_drafts_are_faster();
    for (uint64_t round = 0; round < 40; round++)
        random_cluster(round);
    CHECK(rmdir(scratch) == 0);
    return 0;
}
