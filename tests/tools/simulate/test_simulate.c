/* Goal: `cleave simulate --trace` does what its parts promise: times that can be computed by hand,
 * the same bytes for the same seed, every request accounted for under all failures of machines, an
 * event log that replays to the same decisions, and one clear error for each mistake. Method: a few
 * requests on known machines; random clusters with little memory and failing machines; files and
 * options with one mistake each. */
#include "tools/simulate/replay_log.h"
#include "tools/simulate/sim_run.h"
#include "tools/simulate/simulate.h"
#include "tools/simulate/simulate_options.h"
#include "tools/simulate/splitwise/models.h"
#include "tools/simulate/splitwise/splitwise.h"

#include "common/random.h"
#include "scheduler/layerwise.h"
#include "tests/check.h"
#include "tests/profile/profile_example.h"
#include "tests/tools/simulate/paper.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_S 0.001
#define ROWS_MAX  4096

static size_t file_read(const char *name, char *out, size_t room)
{
    FILE *file = fopen(scratch_path(name), "r");
    CHECK(file != NULL);
    size_t bytes = fread(out, 1, room - 1, file);
    CHECK(feof(file));
    fclose(file);
    out[bytes] = 0;
    return bytes;
}

/* ---- a cluster in memory ---- */

struct cluster {
    struct config config;
    struct sim_machines hosts;
    struct sim_report report;
    struct sim_run_totals totals;
    struct sim_run_options options;
};

static struct cluster *cluster_new(const char *const *machines, uint32_t count)
{
    struct cluster *c = calloc(1, sizeof(*c));
    CHECK(c != NULL);
    struct error error;
    config_default(&c->config);
    for (uint32_t i = 0; i < count; i++) {
        char spec[1400];
        snprintf(spec, sizeof(spec), "%.*s%s/%s.json",
                 (int)(strchr(machines[i], '@') - machines[i]), machines[i], hardware,
                 strchr(machines[i], '@') + 1);
        CHECKF(sim_machines_add(&c->hosts, spec, table, "bloom-176b", &c->config, &error) == ST_OK,
               "%s", error.text);
    }
    c->hosts.context_tokens = 8192;
    c->options = (struct sim_run_options){
        .machines = &c->hosts, .config = &c->config, .message_s = MESSAGE_S, .seed = seed};
    return c;
}

static void cluster_run(struct cluster *c)
{
    struct error error = {""};
    struct sim_trace trace;
    CHECK(sim_trace_open(&trace, scratch_path("trace.csv"), false, 0, &error) == ST_OK);
    CHECK(sim_report_open(&c->report, scratch_path("rows.csv"), false, &error) == ST_OK);
    CHECKF(sim_run(&c->options, &trace, &c->report, &c->totals, &error) == ST_OK, "%s", error.text);
    CHECK(sim_report_close(&c->report, "rows.csv", &error) == ST_OK);
    sim_trace_close(&trace);
}

struct row {
    unsigned id;
    double ttft_s, tbt_s, e2e_s, arrival_s;
    unsigned prompt, output;
    char outcome[16];
    double queue_s, transfer_s;
};

static uint32_t rows_read(struct row *rows)
{
    char line[512];
    uint32_t count = 0;
    FILE *file = fopen(scratch_path("rows.csv"), "r");
    CHECK(file != NULL && fgets(line, sizeof(line), file) != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        struct row *r = &rows[count++];
        CHECK(count <= ROWS_MAX);
        CHECKF(sscanf(line, "%u,%lf,%lf,%lf,%lf,%u,%u,%15[a-z],%lf,%lf", &r->id, &r->ttft_s,
                      &r->tbt_s, &r->e2e_s, &r->arrival_s, &r->prompt, &r->output, r->outcome,
                      &r->queue_s, &r->transfer_s) == 10,
               "%s", line);
    }
    fclose(file);
    return count;
}

static bool near(double a, double b)
{
    return fabs(a - b) < 2e-12;
}

/* ---- by hand ---- */

/* The time of a request: RESERVE, RESERVED, PREFILL; the prompt; its KV, of which only the last
 * layer is not hidden; then a step for each further token. A client sees each of its events one
 * message later. */
static void one_request(void)
{
    const char *machines[] = {"1:prompt:@h100", "1:token:@a100"};
    struct cluster *c = cluster_new(machines, 2);
    struct row rows[ROWS_MAX];
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n2,1000,11\n");
    c->config.scheduler.prompt_batch_tokens = 2048;
    c->config.kv.layerwise_threshold_tokens = 512;
    cluster_run(c);
    CHECK(rows_read(rows) == 1 && strcmp(rows[0].outcome, "done") == 0);
    double prompt_s = cost_curve_prompts_s(&c->hosts.curves[0], 1000);
    double step_s = cost_curve_decodes_s(&c->hosts.curves[1], 1);
    double kv_s = 4014080.0 * 1000 / (200.0 * (1 << 30));
    CHECK(near(rows[0].queue_s, 3 * MESSAGE_S));
    CHECK(near(rows[0].ttft_s, 4 * MESSAGE_S + prompt_s));
    CHECK(near(rows[0].transfer_s, kv_s / 70));
    CHECK(near(rows[0].e2e_s, 4 * MESSAGE_S + prompt_s + kv_s / 70 + 10 * step_s));
    CHECK(near(rows[0].tbt_s, (rows[0].e2e_s - rows[0].ttft_s) / 10));
    snprintf(c->config.kv.transfer, sizeof(c->config.kv.transfer), "one-piece");
    cluster_run(c);
    CHECK(rows_read(rows) == 1 && near(rows[0].transfer_s, kv_s));
    free(c);
}

/* Without a threshold, measured speeds decide: the KV of 30 tokens is sent in less time than layers
 * cost. */
static void layerwise_is_measured(void)
{
    const char *machines[] = {"1:prompt:@h100", "1:token:@h100"};
    struct cluster *c = cluster_new(machines, 2);
    struct row rows[ROWS_MAX];
    const double token_s = 4014080.0 / (200.0 * (1 << 30));
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n0,30,3\n20,1000,3\n");
    c->config.scheduler.prompt_batch_tokens = 2048;
    CHECK(c->config.kv.layerwise_threshold_tokens == CONFIG_AUTO);
    CHECK(30 * token_s < 70e-6 * SCHED_LAYER_US && 1000 * token_s > 70e-6 * SCHED_LAYER_US);
    cluster_run(c);
    CHECK(rows_read(rows) == 2);
    CHECKF(near(rows[0].transfer_s, 30 * token_s), "%g s", rows[0].transfer_s);
    CHECKF(near(rows[1].transfer_s, 1000 * token_s / 70), "%g s", rows[1].transfer_s);
    free(c);
}

/* Two prompts end at the same time on two machines. The token machine's link receives one after the
 * other. */
static void links_contend(void)
{
    const char *machines[] = {"2:prompt:@h100", "1:token:@h100"};
    struct cluster *c = cluster_new(machines, 2);
    struct row rows[ROWS_MAX];
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n0,1000,3\n0,1000,3\n");
    c->config.scheduler.prompt_batch_tokens = 2048;
    snprintf(c->config.kv.transfer, sizeof(c->config.kv.transfer), "one-piece");
    cluster_run(c);
    double kv_s = 4014080.0 * 1000 / (200.0 * (1 << 30));
    CHECK(rows_read(rows) == 2 && near(rows[0].ttft_s, rows[1].ttft_s));
    CHECK(near(rows[0].transfer_s + rows[1].transfer_s, 3 * kv_s));
    free(c);
}

/* Two machines with two threads each share two cores without turns. Both take twice as long while
 * both compute. */
static void cores_are_shared(void)
{
    const char *machines[] = {"1:prompt:@h100", "1:prompt:@h100", "1:token:@h100"};
    struct cluster *c = cluster_new(machines, 3);
    struct row rows[ROWS_MAX];
    for (int i = 0; i < 3; i++)
        c->hosts.machines[i].threads = 2;
    c->options.cores = 2;
    c->config.scheduler.turn_ms = 0;
    c->config.scheduler.prompt_batch_tokens = 2048;
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n0,1000,1\n0,1000,1\n");
    cluster_run(c);
    double prompt_s = cost_curve_prompts_s(&c->hosts.curves[0], 1000);
    CHECK(rows_read(rows) == 2);
    CHECKF(near(rows[0].ttft_s, 2 * MESSAGE_S + 2 * prompt_s), "%.9f, want %.9f", rows[0].ttft_s,
           2 * MESSAGE_S + 2 * prompt_s);
    CHECK(near(rows[1].ttft_s, rows[0].ttft_s));
    free(c);
}

/* Makes the machines of a config, with a profile's times. */
static struct cluster *cluster_of_config(const char *stages)
{
    char config[1024];
    struct error error = {""};
    struct cluster *c = calloc(1, sizeof(*c));
    CHECK(c != NULL);
    snprintf(config, sizeof(config),
             "{\"pools\": {\"prompt\": [\"p\"], \"token\": [\"t\"]}, \"machines\": {"
             "\"p\": {\"threads\": 2, \"stages\": [%s]}, "
             "\"t\": {\"threads\": 2, \"kv_memory\": \"16MiB\"}}}",
             stages);
    CHECKF(config_parse(config, strlen(config), "c.json", &c->config, &error) == ST_OK, "%s",
           error.text);
    CHECK(sim_machines_of_config(&c->hosts, &c->config, &error) == ST_USAGE);
    CHECKF(strstr(error.text, "--profile: wanted") != NULL, "%s", error.text);
    CHECK(profile_parse(profile_example, strlen(profile_example), "p.json", &c->hosts.profile,
                        &error) == ST_OK);
    CHECKF(sim_machines_of_config(&c->hosts, &c->config, &error) == ST_OK, "%s", error.text);
    c->hosts.context_tokens = 2048;
    c->options = (struct sim_run_options){
        .machines = &c->hosts, .config = &c->config, .message_s = MESSAGE_S};
    return c;
}

#define STAGE(layers) "{\"threads\": 2, \"layers\": \"" layers "\"}"

/* Two stages for prompts, and one machine that decodes. */
static void profile_and_stages(void)
{
    struct cluster *c = cluster_of_config(STAGE("0-0") ", " STAGE("1-2"));
    struct row rows[ROWS_MAX];
    struct error error = {""};
    CHECK(c->hosts.count == 2 && c->hosts.machines[0].cost.stage_count == 2);
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n0,20,3\n");
    cluster_run(c);
    CHECK(rows_read(rows) == 1);
    const struct profile *p = c->hosts.profile;
    const struct profile_device *d = profile_device_find_on(p, "cpu", 2, 1, "");
    double prompt_us = profile_stage_prompt_us(p, d, 0, 1, 20, 0, 1) +
                       profile_link_us(&p->links[0], 20 * 256) +
                       profile_stage_prompt_us(p, d, 1, 3, 20, 0, 1);
    double steps_us =
        profile_stage_token_us(p, d, 0, 3, 1, 20) + profile_stage_token_us(p, d, 0, 3, 1, 21);
    CHECKF(near(rows[0].ttft_s, 4 * MESSAGE_S + prompt_us / 1e6), "%.9f", rows[0].ttft_s);
    CHECK(near(rows[0].e2e_s - rows[0].ttft_s - rows[0].transfer_s,
               steps_us / 1e6 + 2 * SIM_COST_BATCH_S));
    /* threads 0 = a thread per core: the largest measured number of threads is used. */
    c->config.machines[1].threads = 0;
    c->hosts.count = 0;
    CHECKF(sim_machines_of_config(&c->hosts, &c->config, &error) == ST_OK, "%s", error.text);
    CHECK(c->hosts.machines[1].cost.devices[0] == d && c->hosts.machines[1].threads == 2);
    c->config.machines[1].threads = 3;
    c->hosts.count = 0;
    CHECK(sim_machines_of_config(&c->hosts, &c->config, &error) == ST_NOT_FOUND);
    CHECKF(strstr(error.text, "machine t: the profile has no device cpu with 3 threads") != NULL,
           "%s", error.text);
    sim_machines_done(&c->hosts);
    free(c);
}

/* Two prompts share the first stage and use different replicas of the second one. The later prompt
 * ends later by the first stage's time. */
static void replicas(void)
{
    struct cluster *c = cluster_of_config(STAGE("0-0") ", " STAGE("1-2") ", " STAGE("1-2"));
    struct row rows[ROWS_MAX];
    CHECK(c->hosts.machines[0].cost.stage_count == 2 &&
          c->hosts.machines[0].cost.stages[1].replica_count == 2);
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n0,20,1\n0,20,1\n");
    cluster_run(c);
    CHECK(rows_read(rows) == 2);
    const struct profile *p = c->hosts.profile;
    const struct profile_device *d = profile_device_find_on(p, "cpu", 2, 1, "");
    double first_us = profile_stage_prompt_us(p, d, 0, 1, 20, 0, 1);
    CHECKF(near(rows[1].ttft_s - rows[0].ttft_s, first_us / 1e6), "%.9f and %.9f", rows[0].ttft_s,
           rows[1].ttft_s);
    sim_machines_done(&c->hosts);
    free(c);
}

static void count_done(void *self, const struct splitwise_result *result)
{
    (void)result;
    ++*(uint32_t *)self;
}

/* Prompts whose KV was sent in one piece fill the token machine. No answer has room, and two more
 * prompts never find memory. The simulation ends all the same, and counts these requests. */
static void transfers_in_vain(void)
{
    struct cost_curve curve;
    struct sim_trace trace;
    struct splitwise_setup setup;
    struct splitwise_totals totals;
    struct error error = {""};
    const struct splitwise_model *model = splitwise_model_find("bloom-176b");
    uint64_t token_bytes = splitwise_kv_bytes_per_token(model);
    CHECK(cost_table_read(table, model->name, "h100-80gb", 8, &curve, &error) == ST_OK);
    const struct splitwise_machine_kind hosts[] = {
        {POOL_PROMPT, &curve, model->weights_bytes + 5000 * token_bytes},
        {POOL_TOKEN, &curve, model->weights_bytes + 1500 * token_bytes}};
    splitwise_setup_default(&setup);
    setup.split = true;
    setup.hosts = hosts;
    setup.host_count = 2;
    setup.weights_bytes = model->weights_bytes;
    setup.kv_bytes_per_token = token_bytes;
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n0.42,1396,151\n"
                               "0.45,956,365\n0.46,1489,524\n0.63,860,1\n0.65,738,450\n"
                               "0.76,476,184\n");
    uint32_t done = 0;
    CHECK(sim_trace_open(&trace, scratch_path("trace.csv"), false, 0, &error) == ST_OK);
    CHECK(splitwise_run(&setup, &trace, count_done, &done, &totals, &error) == ST_OK);
    sim_trace_close(&trace);
    CHECKF(totals.retries > 0 && totals.unended_requests > 0 && done + totals.unended_requests == 6,
           "%u done, %u never end", done, totals.unended_requests);
}

/* ---- whatever happens ---- */

static void trace_draw(uint32_t count)
{
    FILE *file = fopen(scratch_path("trace.csv"), "w");
    CHECK(file != NULL);
    fputs("request_id,arrival_timestamp,prompt_size,token_size\n", file);
    double at_s = 0;
    for (uint32_t i = 0; i < count; i++) {
        at_s += draw(4) == 0 ? 0 : draw(100) / 1e3;
        fprintf(file, "%u,%.3f,%u,%u\n", i, at_s, 1 + draw(draw(3) == 0 ? 3000 : 300),
                draw(8) == 0 ? 1 : 1 + draw(400));
    }
    CHECK(fclose(file) == 0);
}

static struct cluster *cluster_draw(void)
{
    static const char *const some[][3] = {
        {"1:prompt:@h100", "1:token:@a100", "1:mixed:@h100"},
        {"2:prompt:@h100-capped", "2:token:@h100", "1:prompt:@a100"},
        {"3:mixed:@a100", "1:mixed:@h100", "1:token:@h100"},
        {"1:prompt:@h100", "3:token:@h100", "2:token:@a100"},
    };
    static const char *const checkpoints[] = {"off", "idle", "always"};
    struct cluster *c = cluster_new(some[draw(4)], 2 + draw(2));
    for (uint32_t i = 0; i < c->hosts.count; i++) {
        c->hosts.machines[i].kv_tokens = draw(2) == 0 ? 100000 : 6900 + draw(2000);
        c->hosts.machines[i].threads = 1 + draw(2);
    }
    c->hosts.context_tokens = 3450;
    c->options.cores = draw(3) == 0 ? 1 + draw(4) : 0;
    c->options.failure_s = draw(2) == 0 ? 0 : 1 + draw(30);
    c->options.repair_s = 0.1 + draw(5);
    c->config.kv.prefix_cache = draw(4) > 0;
    if (c->config.kv.prefix_cache)
        snprintf(c->config.kv.checkpoint, sizeof(c->config.kv.checkpoint), "%s",
                 checkpoints[draw(3)]);
    c->config.kv.checkpoint_ms = draw(3) * 300;
    c->config.scheduler.adaptive_pools = draw(4) > 0;
    c->config.scheduler.preemptions_max = draw(4);
    c->config.scheduler.prompt_queue_threshold_tokens = draw(2) == 0 ? 500 : 8192;
    c->config.scheduler.repurpose_window_ms = draw(2) == 0 ? 0 : 8000;
    c->config.scheduler.repurpose_interval_ms = 1000;
    c->config.scheduler.queue_requests_max = draw(3) == 0 ? 20 : 1024;
    c->config.scheduler.wait_ms = draw(2) == 0 ? 0 : 2000;
    return c;
}

static void log_replays(const char *name)
{
    struct replay_log_totals totals;
    struct error error = {""};
    FILE *file = fopen(scratch_path(name), "r");
    CHECK(file != NULL);
    CHECKF(replay_log(file, name, NULL, &totals, &error) == ST_OK, "%s", error.text);
    CHECK(totals.events > 0 && totals.differing == 0);
    fclose(file);
}

/* The recorded use adds up to the work that was done. A machine that fails loses its current batch,
 * and a machine that waits for cores does not compute. */
static void usage_adds_up(const struct cluster *c, const struct sim_usage *usage)
{
    double open_s = 0;
    for (uint32_t i = 0; i < sim_usage_count(usage); i++) {
        double end_s = fmin((i + 1) * usage->interval_s, usage->end_s);
        double seconds = end_s - i * usage->interval_s;
        double open = sim_usage_cluster_mean(usage, SIM_USAGE_OPEN, i);
        CHECK(sim_usage_cluster_mean(usage, SIM_USAGE_QUEUED, i) <= open + 1e-9);
        open_s += open * seconds;
    }
    if (c->report.outcomes[SIM_DONE] == c->report.e2e.count &&
        c->report.outcomes[SIM_REFUSED] == 0 &&
        c->report.outcomes[SIM_FAILED] == 0) { /* A client learns of the end one message later. */
        double want_s = c->report.e2e.sum - MESSAGE_S * (double)c->report.e2e.count;
        CHECKF(fabs(open_s - want_s) < 1e-6 * want_s, "%g, want %g", open_s, want_s);
    }
    for (uint32_t m = 0; m < c->hosts.count; m++) {
        double busy_s = 0;
        for (uint32_t i = 0; i < sim_usage_count(usage); i++) {
            double end_s = fmin((i + 1) * usage->interval_s, usage->end_s);
            double kv = sim_usage_mean(usage, m, SIM_USAGE_KV, i);
            CHECK(kv >= 0 && kv <= 1 + 1e-9);
            busy_s +=
                (end_s - i * usage->interval_s) * (sim_usage_mean(usage, m, SIM_USAGE_PROMPT, i) +
                                                   sim_usage_mean(usage, m, SIM_USAGE_DECODE, i));
        }
        double want_s = c->totals.machines[m].busy_s;
        bool exact = c->totals.machines[m].failures == 0 && c->options.cores == 0;
        CHECKF(!exact || fabs(busy_s - want_s) < 1e-6, "machine %u: %g s, want %g", m, busy_s,
               want_s);
        CHECK(c->options.cores == 0 || c->totals.machines[m].failures > 0 ||
              busy_s <= want_s + 1e-6);
        CHECK(strcmp(usage->names[m], c->hosts.machines[m].name) == 0);
    }
}

static void random_clusters(void)
{
    static struct row rows[ROWS_MAX];
    uint64_t ends[SIM_OUTCOMES] = {0};
    uint64_t preempted = 0;
    uint64_t restarted = 0;
    uint64_t moves = 0;
    uint64_t copies = 0;
    uint64_t reused = 0;
    for (int round = 0; round < 60; round++) {
        bool seen[ROWS_MAX] = {false};
        uint32_t count = 50 + draw(300);
        struct cluster *c = cluster_draw();
        trace_draw(count);
        c->options.events = fopen(scratch_path("events"), "w");
        CHECK(c->options.events != NULL);
        struct sim_usage usage;
        CHECK(sim_usage_open(&usage, c->hosts.count) == ST_OK);
        c->options.usage = &usage;
        cluster_run(c);
        usage_adds_up(c, &usage);
        sim_usage_close(&usage);
        CHECK(fclose(c->options.events) == 0);
        CHECKF(rows_read(rows) == count, "round %d: not every request has its row", round);
        for (uint32_t i = 0; i < count; i++) {
            const struct row *r = &rows[i];
            CHECK(r->id < count && !seen[r->id]);
            seen[r->id] = true;
            if (strcmp(r->outcome, "done") != 0)
                continue;
            CHECK(r->ttft_s > 0 && r->e2e_s >= r->ttft_s && r->queue_s >= 0 &&
                  r->queue_s < r->ttft_s && r->transfer_s >= 0);
        }
        log_replays("events");
        for (int i = 0; i < SIM_OUTCOMES; i++)
            ends[i] += c->report.outcomes[i];
        preempted += c->report.preempted;
        restarted += c->report.restarted;
        moves += c->totals.moves;
        copies += c->totals.copies;
        reused += c->report.reused_tokens;
        CHECK(c->totals.copies == 0 || strcmp(c->config.kv.checkpoint, "off") != 0);
        CHECK(c->report.reused_tokens == 0 || c->config.kv.prefix_cache);
        CHECK(c->report.checkpoint_tokens <= c->report.reused_tokens);
        CHECK(c->report.affected <= c->report.restarted);
        free(c);
    }
    printf("%" PRIu64 " done, %" PRIu64 " refused, %" PRIu64 " failed, %" PRIu64
           " preemptions, %" PRIu64 " restarts, %" PRIu64 " moves, %" PRIu64 " copies, %" PRIu64
           " tokens reused\n",
           ends[SIM_DONE], ends[SIM_REFUSED], ends[SIM_FAILED], preempted, restarted, moves, copies,
           reused);
    CHECK(copies > 0 && reused > 0);
    CHECK(ends[SIM_DONE] > 0 && preempted > 0 && restarted > 0 && moves > 0);
}

/* ---- the command ---- */

static int command(const char *const *arguments)
{
    static char trace[420], prompts[1300], tokens[1300], tables[1300];
    const char *argv[40] = {"simulate", trace, prompts, tokens, tables};
    int argc = 5;
    snprintf(trace, sizeof(trace), "--trace=%s", scratch_path("trace.csv"));
    snprintf(prompts, sizeof(prompts), "--machines=2:prompt:%s/h100.json", hardware);
    snprintf(tokens, sizeof(tokens), "--machines=1:token:%s/a100.json", hardware);
    snprintf(tables, sizeof(tables), "--table=%s", table);
    for (; *arguments != NULL; arguments++)
        argv[argc++] = *arguments;
    return simulate_main(argc, (char **)argv);
}

/* Runs the command with its standard output in a file. */
static int command_into(const char *path, const char *const *arguments)
{
    fflush(stdout);
    int stdout_before = dup(STDOUT_FILENO);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(stdout_before >= 0 && file >= 0 && dup2(file, STDOUT_FILENO) >= 0);
    int status = command(arguments);
    fflush(stdout);
    CHECK(dup2(stdout_before, STDOUT_FILENO) >= 0);
    close(stdout_before);
    close(file);
    return status;
}

static void same_seed_same_bytes(void)
{
    static char text[2][1 << 20];
    static const char *const names[] = {"rows.csv", "sum.json", "events"};
    char out[420], events[420], html[420];
    snprintf(html, sizeof(html), "--html=%s", scratch_path("r.html"));
    char other[3][32];
    char law[500];
    trace_draw(300);
    snprintf(law, sizeof(law), "--trace=poisson:rate=5,seconds=60,lengths=%s",
             scratch_path("trace.csv"));
    for (int i = 0; i < 3; i++)
        snprintf(other[i], sizeof(other[i]), "%s.2", names[i]);
    for (int run = 0; run < 2; run++) {
        snprintf(out, sizeof(out), "--out=%s", scratch_path(run ? other[0] : names[0]));
        snprintf(events, sizeof(events), "--events=%s", scratch_path(run ? other[2] : names[2]));
        /* Recording the use changes no result. */
        const char *const arguments[] = {out,        "--json",          events, law, "--mtbf=20",
                                         "--seed=3", run ? html : NULL, NULL};
        CHECK(command_into(scratch_path(run ? other[1] : names[1]), arguments) == 0);
    }
    for (int i = 0; i < 3; i++) {
        size_t bytes = file_read(names[i], text[0], sizeof(text[0]));
        CHECK(bytes > 0 && bytes == file_read(other[i], text[1], sizeof(text[1])));
        CHECKF(memcmp(text[0], text[1], bytes) == 0, "%s differs", names[i]);
        CHECK(remove(scratch_path(other[i])) == 0);
    }
    size_t bytes = file_read("rows.csv", text[0], sizeof(text[0]));
    snprintf(out, sizeof(out), "--out=%s", scratch_path("rows.csv"));
    const char *const another[] = {out, law, "--mtbf=20", "--seed=4", NULL};
    CHECK(command(another) == 0);
    CHECK(bytes != file_read("rows.csv", text[1], sizeof(text[1])) ||
          memcmp(text[0], text[1], bytes) != 0);
    CHECK(remove(scratch_path("sum.json")) == 0);
}

/* A standard output that cannot be written is an error, with --json and without. */
static void full_output(void)
{
    const char *const plain[] = {NULL};
    const char *const json[] = {"--json", NULL};
    if (access("/dev/full", W_OK) != 0) {
        printf("skipped: there is no /dev/full\n");
        return;
    }
    trace_draw(10);
    CHECK(command_into("/dev/full", plain) == 1 && command_into("/dev/full", json) == 1);
    clearerr(stdout);
}

/* Tiers of the config are not simulated without --tier, which has the times of loads; a line says
 * so. */
static void tiers_of_the_config(void)
{
    static char text[1 << 16];
    char config[420], out[32] = "out";
    trace_draw(10);
    scratch_write("config.json", "{\"kv\": {\"tiers\": {\"memory\": {\"size\": \"1GiB\"}}}}");
    snprintf(config, sizeof(config), "%s", scratch_path("config.json"));
    for (int given = 0; given < 2; given++) {
        const char *const arguments[] = {config, given ? "--tier=memory:1:5:20" : NULL, NULL};
        CHECK(command_into(scratch_path(out), arguments) == 0);
        CHECK(file_read(out, text, sizeof(text)) > 0);
        CHECK((strstr(text, "the tiers of the config (kv/tiers) were not simulated") == NULL) ==
              given);
    }
    CHECK(remove(scratch_path(out)) == 0 && remove(config) == 0);
}

/* Without --policy, the config's policy decides. */
static void policy_of_the_config(void)
{
    static char text[1 << 20];
    char config[420], events[420];
    trace_draw(10);
    scratch_write("config.json",
                  "{\"scheduler\": {\"policy\": \"deadline\"}, \"slo\": {\"ttft_ms\": 400}}");
    snprintf(config, sizeof(config), "%s", scratch_path("config.json"));
    snprintf(events, sizeof(events), "--events=%s", scratch_path("events"));
    const char *const as_config[] = {config, events, NULL};
    const char *const as_option[] = {config, events, "--policy=jsq", NULL};
    CHECK(command(as_config) == 0 && file_read("events", text, sizeof(text)) > 0);
    CHECK(strstr(text, "\"ttft_us_max\":400000") != NULL);
    CHECK(command(as_option) == 0 && file_read("events", text, sizeof(text)) > 0);
    CHECK(strstr(text, "ttft_us_max") == NULL);
    CHECK(remove(scratch_path("config.json")) == 0);
}

/* The report is complete and refers to no other file. Without gnuplot it says so, and a request for
 * a picture alone is refused. */
static void pictures(void)
{
    static char text[8 << 20];
    char html[420], plot[420];
    const char *path = getenv("PATH");
    char *path_before = strdup(path != NULL ? path : "");
    snprintf(html, sizeof(html), "--html=%s", scratch_path("r.html"));
    snprintf(plot, sizeof(plot), "--plot=%s", scratch_path("p.png"));
    trace_draw(100);
    for (int compat = 0; compat < 2; compat++)
        for (int gnuplot = 1; gnuplot >= 0; gnuplot--) {
            const char *policy = compat ? "--policy=splitwise-compat" : "--policy=jsq";
            const char *const report[] = {html, policy, "--model=<&>", "--model=bloom-176b", NULL};
            const char *const picture[] = {plot, policy, NULL};
            CHECK(setenv("PATH", gnuplot ? path_before : scratch, 1) == 0);
            CHECK(command(report) == 0);
            size_t bytes = file_read("r.html", text, sizeof(text));
            bool drawn = strstr(text, "<svg") != NULL;
            bool said = strstr(text, "<p>No pictures: there is no gnuplot") != NULL;
            CHECK(drawn != said && (gnuplot || said));
            CHECK(strstr(text, "--model=&lt;&amp;> --model=bloom-176b</pre>") != NULL);
            CHECK(strstr(text, " requests done") != NULL && strstr(text, "\"usage\":{") != NULL);
            CHECK(strcmp(text + bytes - 15, "</body></html>\n") == 0);
            CHECK(command(picture) == (drawn ? 0 : 1));
            CHECK(!drawn || (file_read("p.png", text, sizeof(text)) > 1000 &&
                             memcmp(text + 1, "PNG", 3) == 0));
            CHECK((access(scratch_path("p.png"), F_OK) == 0) == drawn);
        }
    CHECK(setenv("PATH", path_before, 1) == 0);
    free(path_before);
    const char *const nowhere[] = {"--html=/no/such/folder", NULL};
    const char *const nowhere_plot[] = {"--plot=/no/such/folder.svg", NULL};
    CHECK(command(nowhere) == 1 && command(nowhere_plot) == 1);
    CHECK(remove(scratch_path("r.html")) == 0);
}

/* A hardware file's link also counts under the paper's policy. Machines with a table and machines
 * with a profile cannot be mixed. A config without both is refused. */
static void kinds(void)
{
    static const struct {
        const char *text;
        const char *policy;
        int status;
    } tries[] = {
        {"{\"name\": \"slow\", \"table\": \"a100-80gb\", \"tensor_parallel\": 8, "
         "\"memory_bytes\": 687194767360, \"link_bytes_per_s\": 4014080000}",
         "--policy=splitwise-compat", 0},
        {"{\"name\": \"x\", \"device\": \"cpu\", \"threads\": 2, \"kv_memory_bytes\": 1000000}",
         "--policy=jsq", 1},
    };
    char machines[440], out[440], config[440];
    double ttft_s, e2e_s;
    char text[1024];
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n0,1000,2\n");
    scratch_write("profile.json", profile_example);
    scratch_write("config.json", "{\"profile\": \"profile.json\"}");
    snprintf(out, sizeof(out), "--out=%s", scratch_path("rows.csv"));
    snprintf(config, sizeof(config), "%s", scratch_path("config.json"));
    snprintf(machines, sizeof(machines), "--machines=1:token:%s", scratch_path("hw.json"));
    for (int i = 0; i < 2; i++) {
        const char *const arguments[] = {config, machines, out, tries[i].policy, NULL};
        scratch_write("hw.json", tries[i].text);
        CHECK(command(arguments) == tries[i].status);
        if (tries[i].status != 0)
            continue;
        file_read("rows.csv", text, sizeof(text));
        const char *row = strchr(text, '\n') + 1;
        CHECK(sscanf(row, "%*u,%lf,%*f,%lf", &ttft_s, &e2e_s) == 2);
        /* 1000 tokens of 4,014,080 bytes take a second */
        CHECKF(e2e_s - ttft_s > 1 && e2e_s - ttft_s < 1.1, "%s", row);
    }
    CHECK(remove(scratch_path("hw.json")) == 0 && remove(scratch_path("config.json")) == 0 &&
          remove(scratch_path("profile.json")) == 0);
}

static void bad_rows(void)
{
    char out[420];
    char text[4096];
    snprintf(out, sizeof(out), "--out=%s", scratch_path("rows.csv"));
    for (int compat = 0; compat < 2; compat++) {
        const char *policy = compat ? "--policy=splitwise-compat" : "--policy=jsq";
        const char *const refuse[] = {out, policy, NULL};
        const char *const skip[] = {out, policy, "--on-bad-row=skip", NULL};
        static const char *const bad[] = {"1,0,5", "0.5,5,5", "1,5,0", "x,5,5", "1,200000,5"};
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
            snprintf(text, sizeof(text),
                     "arrival_timestamp,prompt_size,token_size\n0.9,10,5\n%s\n1,10,5\n", bad[i]);
            scratch_write("trace.csv", text);
            CHECK(command(refuse) == 1);
            CHECK(command(skip) == 0);
            file_read("rows.csv", text, sizeof(text));
            uint32_t lines = 0;
            for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
                lines++;
            CHECKF(lines == 3, "%s: %u lines", bad[i], lines);
        }
    }
}

static void bad_options(void)
{
    static const struct {
        const char *argument;
        const char *error;
    } bad[] = {
        {"--machine=3", "unknown option --machine=3"},
        {"--mtbf=long", "--mtbf = \"long\": want a number from"},
        {"--seed", "--seed wants a value"},
        {"--on-bad-row=maybe", "--on-bad-row = \"maybe\": want refuse or skip"},
        {"--cores=0.5", "--cores = \"0.5\": want a whole number from 0 to 1000000"},
        {"--table=t.csv", "--table: wants --machines"},
        {"--model=llama2-70b", "--model: --table FILE is missing"},
        {"--plot=p.gif", "--plot p.gif: want a name that ends in .svg or .png"},
        {"--policy=fifo", "--policy = \"fifo\": want jsq, deadline, prefix or splitwise-compat"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct simulate_options options = {.trace = NULL};
        struct error error = {""};
        const char *argv[] = {"simulate", "--trace=t.csv", bad[i].argument, NULL};
        CHECK(options_read(&simulate_options_table, 3, (char **)argv, &options, &error) ==
              ST_USAGE);
        CHECKF(strstr(error.text, bad[i].error) != NULL, "%s", error.text);
    }
}

/* Times are above 0, even where the line through two points is not. */
static void times_of_a_table(void)
{
    static const char head[] =
        "model,hardware,tensor_parallel,prompt_size,batch_size,prompt_time,token_time\n";
    struct cost_curve curve;
    struct error error = {""};
    char text[400];
    snprintf(text, sizeof(text), "%sm,h,8,1000,1,10,50\nm,h,8,2000,1,30,40\n", head);
    scratch_write("t.csv", text);
    CHECKF(cost_table_read(scratch_path("t.csv"), "m", "h", 8, &curve, &error) == ST_OK, "%s",
           error.text);
    CHECK(near(cost_curve_prompts_s(&curve, 1500), 0.02));
    CHECK(cost_curve_prompts_s(&curve, 1) > 0 && cost_curve_decodes_s(&curve, 1e6) > 0);
    snprintf(text, sizeof(text), "%sm,h,8,1000,1,10,50\nm,h,8,2000,1,30,0\n", head);
    scratch_write("t.csv", text);
    CHECK(cost_table_read(scratch_path("t.csv"), "m", "h", 8, &curve, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "t.csv:3: token_time = \"0\": want milliseconds") != NULL, "%s",
           error.text);
    CHECK(cost_table_read(scratch, "m", "h", 8, &curve, &error) == ST_IO); /* A folder. */
    CHECKF(strstr(error.text, ": cannot be read") != NULL, "%s", error.text);
    CHECK(remove(scratch_path("t.csv")) == 0);
}

static void bad_hardware(void)
{
    static const struct {
        const char *text;
        const char *error;
    } bad[] = {
        {"{\"name\": \"x\", \"device\": \"cpu\", \"thread\": 1}", "unknown key \"thread\""},
        {"{\"name\": \"x\"}", "want \"table\", \"device\" or"},
        {"{\"device\": \"cpu\"}", "no \"name\""},
        {"{\"name\": \"x\", \"device\": \"cpu\", \"power\": -1}", "\"power\" = -1: want a number"},
        {"{\"name\": \"x\", \"table\": \"h100-80gb\"}", "wants \"tensor_parallel\""},
        {"{\"name\": 5, \"device\": \"cpu\"}", "\"name\" = 5: want a short text"},
        {"{\"name\": \"x\", \"device\": \"cpu\", \"threads\": 1.5}", "want a whole number"},
        {"{\"name\": \"a \\\"b\", \"device\": \"cpu\"}", "\"name\" = \"a \\\"b\": want letters"},
        {"{\"name\": \"x\", \"name\": \"y\", \"device\": \"cpu\"}", "duplicate object key"},
        {"[]", "want an object"},
        {"{", "hw.json:1: "},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct hardware hw;
        struct error error = {""};
        scratch_write("hw.json", bad[i].text);
        CHECK(hardware_read(scratch_path("hw.json"), &hw, &error) == ST_INVALID);
        CHECKF(strstr(error.text, bad[i].error) != NULL && strstr(error.text, "hw.json") != NULL,
               "%s", error.text);
    }
    CHECK(remove(scratch_path("hw.json")) == 0);
}

int main(void)
{
    paper_open();
    seed = test_seed();
    one_request();
    layerwise_is_measured();
    links_contend();
    cores_are_shared();
    profile_and_stages();
    replicas();
    transfers_in_vain();
    random_clusters();
    same_seed_same_bytes();
    tiers_of_the_config();
    full_output();
    policy_of_the_config();
    pictures();
    kinds();
    bad_rows();
    bad_options();
    bad_hardware();
    times_of_a_table();
    CHECK(remove(scratch_path("trace.csv")) == 0 && remove(scratch_path("rows.csv")) == 0 &&
          remove(scratch_path("events")) == 0 && rmdir(scratch) == 0);
    return 0;
}
