/* Goal: what the death of a machine costs in a simulation is what it costs in a cluster: without a
 * prefix cache the whole context is computed again; with it only what no machine has kept; with
 * checkpoints at most two blocks, and the tokens of kv/checkpoint_ms. Method: one request on
 * machines whose times are known, killed at a given time; the pause and the tokens are calculated
 * by hand. The last cases compare the pause with the formula of docs/simulator.md. */
#include "tools/simulate/sim_kills.h"
#include "tools/simulate/sim_machine.h"
#include "tools/simulate/sim_run.h"
#include "tools/simulate/splitwise/models.h"

#include "tests/check.h"
#include "tests/tools/simulate/paper.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_S    0.001
#define BLOCK_TOKENS 16
#define KV_BYTES     4014080.0            /* Of a token of bloom-176b. */
#define LINK         (200.0 * (1u << 30)) /* Bytes per second of deploy/hardware/h100.json. */
#define NEVER        UINT32_MAX

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

/* ---- one request ---- */

/* Machines of one kind, one request that arrives at time 0, and one kill. */
struct scene {
    const char *machines; /* As COUNT:POOL, separated by spaces. */
    const char *checkpoint;
    uint32_t checkpoint_ms;
    bool prefix_cache;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t killed; /* Index of the machine; NEVER = none. */
    double kill_s;
    double link_bytes_per_s; /* 0 = that of h100.json. */
};

static struct config config;
static struct sim_machines hosts;
static struct sim_report report;
static struct sim_run_totals totals;

static void scene_run(const struct scene *scene)
{
    struct error error = {""};
    struct sim_trace trace;
    char text[120], list[64], *rest = list;
    const struct sim_kill kill = {.at_s = scene->kill_s, .machine = scene->killed};
    config_default(&config);
    memset(&hosts, 0, sizeof(hosts));
    config.kv.prefix_cache = scene->prefix_cache;
    config.kv.layerwise_threshold_tokens = 512;
    config.scheduler.prompt_batch_tokens = 512;
    snprintf(config.kv.checkpoint, sizeof(config.kv.checkpoint), "%s", scene->checkpoint);
    config.kv.checkpoint_ms = scene->checkpoint_ms;
    snprintf(list, sizeof(list), "%s", scene->machines);
    for (const char *each; (each = strtok_r(rest, " ", &rest)) != NULL;) {
        char spec[1400];
        snprintf(spec, sizeof(spec), "%s:%s/h100.json", each, hardware);
        CHECKF(sim_machines_add(&hosts, spec, table, "bloom-176b", &config, &error) == ST_OK, "%s",
               error.text);
    }
    for (uint32_t i = 0; i < hosts.count && scene->link_bytes_per_s > 0; i++)
        hosts.machines[i].link_bytes_per_s = scene->link_bytes_per_s;
    hosts.context_tokens = 16384;
    snprintf(text, sizeof(text), "arrival_timestamp,prompt_size,token_size\n0,%u,%u\n",
             scene->prompt_tokens, scene->output_tokens);
    scratch_write("trace.csv", text);
    const struct sim_run_options options = {.machines = &hosts,
                                            .config = &config,
                                            .message_s = MESSAGE_S,
                                            .repair_s = 1000,
                                            .kills = &kill,
                                            .kill_count = scene->killed != NEVER};
    CHECK(sim_trace_open(&trace, scratch_path("trace.csv"), false, 0, &error) == ST_OK);
    CHECK(sim_report_open(&report, NULL, false, &error) == ST_OK);
    CHECKF(sim_run(&options, &trace, &report, &totals, &error) == ST_OK, "%s", error.text);
    sim_trace_close(&trace);
    CHECK(report.outcomes[SIM_DONE] == 1);
    CHECK(report.affected == (scene->killed != NEVER) && report.restarted == report.affected);
}

/* Returns the time of a prompt of `tokens` tokens in chunks. */
static double prompt_s(uint32_t tokens)
{
    double sum = 0;
    for (; tokens > 512; tokens -= 512)
        sum += cost_curve_prompts_s(&hosts.curves[0], 512);
    return sum + cost_curve_prompts_s(&hosts.curves[0], tokens);
}

static double step_s(void)
{
    return cost_curve_decodes_s(&hosts.curves[0], 1);
}

/* The longest pause of the request, which lost its machine. */
static double pause_s(void)
{
    CHECK(report.pause.count == 1 && report.gap.count == 1 &&
          report.gap.value_max == report.pause.value_max);
    return report.pause.value_max;
}

static double ttft_s(void)
{
    return report.ttft.value_max;
}

/* When the token with this number (1 = the first one) of a request without failures is generated,
 * if KV was there at kv_s. */
static double token_at_s(double kv_s, uint32_t number)
{
    return kv_s + (number - 1) * step_s();
}

/* Runs the scene without the kill to learn its times, then again with the kill half a step after
 * token `number`. Returns the time from that token to the kill. */
static double run_killed_after(struct scene *scene, uint32_t number)
{
    uint32_t killed = scene->killed;
    scene->killed = NEVER;
    scene_run(scene);
    double kv_s =
        ttft_s() - MESSAGE_S + (report.transfer.count > 0 ? report.transfer.value_max : 0);
    scene->kill_s = token_at_s(kv_s, number) + step_s() / 2;
    scene->killed = killed;
    scene_run(scene);
    return step_s() / 2;
}

/* ---- cases by hand ---- */

/* Without a prefix cache, the prompt machine computes prompt and answer again, after RESERVE,
 * RESERVED and PREFILL. */
static void all_is_computed_again(void)
{
    struct scene scene = {.machines = "1:prompt 2:token",
                          .checkpoint = "off",
                          .prompt_tokens = 500,
                          .output_tokens = 200,
                          .killed = 1};
    double waited_s = run_killed_after(&scene, 65);
    CHECK(report.recomputed_tokens == 565 && report.reused_tokens == 0);
    CHECKF(near(pause_s(), waited_s + 3 * MESSAGE_S + prompt_s(565)), "%.9f", pause_s());
}

/* The prompt machine has kept the full blocks of the prompt. */
static void prompt_is_kept(void)
{
    struct scene scene = {.machines = "1:prompt 2:token",
                          .checkpoint = "off",
                          .prefix_cache = true,
                          .prompt_tokens = 500,
                          .output_tokens = 200,
                          .killed = 1};
    double waited_s = run_killed_after(&scene, 65);
    CHECKF(report.recomputed_tokens == 565 - 496 && report.reused_tokens == 496, "%llu",
           (unsigned long long)report.recomputed_tokens);
    CHECK(report.checkpoint_tokens == 0 && totals.copies == 0);
    CHECKF(near(pause_s(), waited_s + 3 * MESSAGE_S + prompt_s(69)), "%.9f", pause_s());
}

/* The prompt machine has the copies, too. Blocks that it has kept of the prompt are not copied. */
static void checkpoint_of_an_answer(const char *mode)
{
    struct scene scene = {.machines = "1:prompt 2:token",
                          .checkpoint = mode,
                          .prefix_cache = true,
                          .prompt_tokens = 500,
                          .output_tokens = 200,
                          .killed = 1};
    double waited_s = run_killed_after(&scene, 65);
    uint32_t context = 565;
    uint32_t copied = (context - 1) / BLOCK_TOKENS * BLOCK_TOKENS; /* 560 */
    CHECKF(report.recomputed_tokens == context - copied, "%llu",
           (unsigned long long)report.recomputed_tokens);
    CHECK(report.reused_tokens == copied && report.checkpoint_tokens == copied);
    CHECK(copied - 496 == 4 * BLOCK_TOKENS);
    CHECKF(near(pause_s(), waited_s + 3 * MESSAGE_S + prompt_s(context - copied)), "%.9f",
           pause_s());
    /* Later blocks go to the prompt machine again, as long as more than a block is left. */
    uint32_t last = (500 + 200 - BLOCK_TOKENS - 2) / BLOCK_TOKENS * BLOCK_TOKENS;
    CHECKF(totals.copied_bytes == (uint64_t)(last - 496) * (uint64_t)KV_BYTES, "%llu",
           (unsigned long long)totals.copied_bytes);
    CHECK(totals.copies == (last - 496) / BLOCK_TOKENS);
}

/* A copy begins at most once per interval, up to a check and the few milliseconds of a copy later,
 * and has all full blocks. */
static void copies_have_intervals(uint32_t interval_ms)
{
    struct scene scene = {.machines = "1:prompt 2:token",
                          .checkpoint = "idle",
                          .checkpoint_ms = interval_ms,
                          .prefix_cache = true,
                          .prompt_tokens = 500,
                          .output_tokens = 600,
                          .killed = NEVER};
    scene_run(&scene);
    double seconds = scene.output_tokens * step_s(), interval_s = interval_ms / 1e3;
    CHECKF(totals.copies > 0 && totals.copies <= seconds / interval_s + 1, "%llu copies in %.1f s",
           (unsigned long long)totals.copies, seconds);
    scene.killed = 1;
    double bound = (interval_s + 0.03) / step_s() + 2 * BLOCK_TOKENS;
    uint64_t most = 0;
    for (uint32_t after = 20; after < 580; after += 23) {
        run_killed_after(&scene, after);
        most = report.recomputed_tokens > most ? report.recomputed_tokens : most;
        CHECKF((double)report.recomputed_tokens <= bound, "%llu tokens after %u",
               (unsigned long long)report.recomputed_tokens, after);
    }
    printf("every %u ms: at most %llu tokens computed again, bound %.0f\n", interval_ms,
           (unsigned long long)most, bound);
    CHECK((double)most > interval_s / step_s() / 2);
}

/* Runs the rows of a trace (arrival_timestamp,prompt_size,token_size) on the machines of the last
 * scene. */
static void rows_run(const char *text, struct sim_run_options *options)
{
    struct error error = {""};
    struct sim_trace trace;
    scratch_write("trace.csv", text);
    options->machines = &hosts;
    options->config = &config;
    options->message_s = MESSAGE_S;
    options->repair_s = 1000;
    CHECK(sim_trace_open(&trace, scratch_path("trace.csv"), false, 0, &error) == ST_OK);
    CHECK(sim_report_open(&report, scratch_path("rows.csv"), false, &error) == ST_OK);
    CHECKF(sim_run(options, &trace, &report, &totals, &error) == ST_OK, "%s", error.text);
    sim_trace_close(&trace);
    CHECK(sim_report_close(&report, "rows.csv", &error) == ST_OK);
}

/* Returns the most tokens that were computed again for one request, by the last column of the
 * rows. */
static unsigned recomputed_most(void)
{
    char line[600];
    unsigned most = 0;
    FILE *file = fopen(scratch_path("rows.csv"), "r");
    CHECK(file != NULL && fgets(line, sizeof(line), file) != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        unsigned tokens = (unsigned)strtoul(strrchr(line, ',') + 1, NULL, 10);
        most = tokens > most ? tokens : most;
    }
    fclose(file);
    CHECK(remove(scratch_path("rows.csv")) == 0);
    return most;
}

/* A machine dies when one token is left. The prompt machine computes it alone, so the last attempt
 * has no transfer. */
static void last_token_needs_no_transfer(void)
{
    struct scene scene = {.machines = "1:prompt 2:token",
                          .checkpoint = "off",
                          .prompt_tokens = 500,
                          .output_tokens = 20,
                          .killed = 1};
    char line[600];
    run_killed_after(&scene, 19);
    const struct sim_kill kill = {.at_s = scene.kill_s, .machine = scene.killed};
    struct sim_run_options options = {.kills = &kill, .kill_count = 1};
    rows_run("arrival_timestamp,prompt_size,token_size\n0,500,20\n", &options);
    CHECK(report.outcomes[SIM_DONE] == 1 && report.restarted == 1 && report.transfer.count == 0);
    FILE *file = fopen(scratch_path("rows.csv"), "r");
    CHECK(file != NULL && fgets(line, sizeof(line), file) != NULL);
    CHECK(fgets(line, sizeof(line), file) != NULL);
    const char *at = line;
    for (int column = 0; column < 9; column++) /* transfer_s is the tenth column. */
        at = strchr(at, ',') + 1;
    CHECKF(strtod(at, NULL) == 0, "%s", line);
    fclose(file);
    CHECK(remove(scratch_path("rows.csv")) == 0);
}

/* The answer whose copy is due for longest goes first. So on a link that is too slow for the
 * copies of four answers, each answer has a copy of most of its KV, not only the answers that
 * began first. */
static void answers_are_copied_in_turn(void)
{
    /* Four blocks are generated in 16 steps, and copied in 20. */
    const double link = 16 * KV_BYTES / (5 * step_s());
    const struct sim_kill kill = {.at_s = 60, .machine = 1};
    struct scene scene = {.machines = "1:prompt 1:token",
                          .checkpoint = "idle",
                          .prefix_cache = true,
                          .prompt_tokens = 16,
                          .output_tokens = 2,
                          .killed = NEVER,
                          .link_bytes_per_s = link};
    scene_run(&scene);
    struct sim_run_options options = {.kills = &kill, .kill_count = 1};
    rows_run(
        "arrival_timestamp,prompt_size,token_size\n0,32,2000\n0,32,2000\n0,32,2000\n0,32,2000\n",
        &options);
    const unsigned most = recomputed_most();
    printf("four answers on a busy link: %llu tokens in copies, %llu computed again, at most %u\n",
           (unsigned long long)report.checkpoint_tokens,
           (unsigned long long)report.recomputed_tokens, most);
    CHECK(report.affected == 4);
    CHECK(most < (report.checkpoint_tokens + report.recomputed_tokens) / 4 / 2);
}

/* A request that waits for KV memory of its token machine is refused after scheduler/queue_ms; a
 * limit of 0 lets it wait. */
static void wait_for_memory_is_limited(void)
{
    struct scene scene = {.machines = "1:prompt 1:token",
                          .checkpoint = "off",
                          .prompt_tokens = 16,
                          .output_tokens = 2,
                          .killed = NEVER};
    struct sim_run_options options = {.kill_count = 0};
    for (uint32_t queue_ms = 0; queue_ms <= 1000; queue_ms += 1000) {
        scene_run(&scene);
        config.scheduler.queue_ms = queue_ms;
        config.scheduler.adaptive_pools = false;
        snprintf(config.scheduler.placement, sizeof(config.scheduler.placement), "split");
        hosts.machines[1].kv_tokens = 2624;
        rows_run("arrival_timestamp,prompt_size,token_size\n0,500,2000\n0.5,2300,10\n", &options);
        CHECKF(report.outcomes[SIM_DONE] == (queue_ms > 0 ? 1 : 2) &&
                   report.outcomes[SIM_REFUSED] == (queue_ms > 0 ? 1 : 0),
               "%u ms: %llu done", queue_ms, (unsigned long long)report.outcomes[SIM_DONE]);
    }
    CHECK(remove(scratch_path("rows.csv")) == 0);
}

/* The chunks that have arrived at the token machine are kept there, and it computes the others. */
static void chunks_are_kept(void)
{
    struct scene scene = {.machines = "2:prompt 1:token",
                          .checkpoint = "off",
                          .prefix_cache = true,
                          .prompt_tokens = 4096,
                          .output_tokens = 2,
                          .killed = NEVER};
    scene_run(&scene);
    scene.killed = 0;
    scene.kill_s = 3 * MESSAGE_S + 4.5 * prompt_s(512);
    scene_run(&scene);
    CHECKF(report.recomputed_tokens == 2048 && report.reused_tokens == 2048, "%llu",
           (unsigned long long)report.recomputed_tokens);
    CHECKF(near(ttft_s(), scene.kill_s + 4 * MESSAGE_S + 4 * prompt_s(512)), "%.9f", ttft_s());
    scene.prefix_cache = false;
    scene_run(&scene);
    CHECK(report.recomputed_tokens == 4096 && report.reused_tokens == 0);
    CHECKF(near(ttft_s(), scene.kill_s + 4 * MESSAGE_S + 8 * prompt_s(512)), "%.9f", ttft_s());
}

/* The KV of a machine that is down twice is gone; a kill of a machine that is down does nothing. */
static void kills_while_down(void)
{
    const struct sim_kill kills[] = {{0.1, 0}, {0.2, 0}, {5, 0}};
    struct scene scene = {.machines = "2:mixed",
                          .checkpoint = "off",
                          .prompt_tokens = 100,
                          .output_tokens = 2,
                          .killed = NEVER};
    struct error error = {""};
    struct sim_trace trace;
    scene_run(&scene);
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n0,100,2\n10,100,2\n");
    const struct sim_run_options options = {
        .machines = &hosts, .config = &config, .repair_s = 1, .kills = kills, .kill_count = 3};
    CHECK(sim_trace_open(&trace, scratch_path("trace.csv"), false, 0, &error) == ST_OK);
    CHECK(sim_report_open(&report, NULL, false, &error) == ST_OK);
    CHECK(sim_run(&options, &trace, &report, &totals, &error) == ST_OK);
    sim_trace_close(&trace);
    CHECK(report.outcomes[SIM_DONE] == 2);
    CHECKF(totals.machines[0].failures == 2 && totals.machines[1].failures == 0, "%u failures",
           totals.machines[0].failures);
}

/* ---- memory ---- */

static void ignore_reserved(void *self, uint32_t machine, uint32_t request, uint32_t cached)
{
    (void)self, (void)machine, (void)request, (void)cached;
}

/* Kept blocks are displaced when the blocks that were free before are used up, the last ones
 * first. */
static void kept_kv_is_displaced(void)
{
    struct scene scene = {.machines = "1:mixed",
                          .checkpoint = "off",
                          .prompt_tokens = 16,
                          .output_tokens = 2,
                          .killed = NEVER};
    const struct sim_machine_calls calls = {.reserved = ignore_reserved};
    scene_run(&scene);
    hosts.machines[0].kv_tokens = 10 * BLOCK_TOKENS;
    config.scheduler.growth_reserve_percent = 0;
    const struct sim_machine_options options = {
        .host = &hosts.machines[0], .config = &config, .context_tokens = 160, .calls = &calls};
    struct sim_machine *machine;
    sched_slot slots[2], copy;
    CHECK(sim_machine_open(&options, &machine) == ST_OK);
    /* 4 blocks, which are kept when they are freed: 6 others are free. */
    const struct sim_reserve first = {.prompt_tokens = 63, .output_tokens = 1, .local = true};
    CHECK(sim_machine_reserve(machine, &first, &slots[0]) == ST_OK);
    sim_machine_grant(machine, 0);
    const struct sim_kept kept = sim_machine_keep(machine, slots[0], 63, true);
    CHECK(kept.tokens == 3 * BLOCK_TOKENS);
    sim_machine_remove(machine, slots[0]);
    CHECK(sim_machine_kept_tokens(machine, &kept) == 3 * BLOCK_TOKENS);
    /* 8 blocks: 7 were free, so one kept block is displaced. */
    const struct sim_reserve second = {.prompt_tokens = 127, .output_tokens = 1, .local = true};
    CHECK(sim_machine_reserve(machine, &second, &slots[1]) == ST_OK);
    sim_machine_grant(machine, 0);
    CHECK(sim_machine_kept_tokens(machine, &kept) == 2 * BLOCK_TOKENS);
    /* A copy leaves half of the blocks free. */
    CHECK(!sim_machine_copy(machine, 1, BLOCK_TOKENS, true, NULL, &copy));
    sim_machine_remove(machine, slots[1]);
    CHECK(!sim_machine_copy(machine, 1, 6 * BLOCK_TOKENS, true, NULL, &copy));
    /* What is read takes the kept blocks, and no others, and can be kept again, as the latest. */
    CHECK(sim_machine_copy(machine, 1, 2 * BLOCK_TOKENS, true, &kept, &copy));
    CHECK(sim_machine_kept_tokens(machine, &kept) == 0);
    const struct sim_kept again = sim_machine_keep(machine, copy, 2 * BLOCK_TOKENS, true);
    sim_machine_remove(machine, copy);
    CHECK(sim_machine_kept_tokens(machine, &again) == 2 * BLOCK_TOKENS);
    CHECK(sim_machine_copy(machine, 1, 5 * BLOCK_TOKENS, true, NULL, &copy));
    CHECK(sim_machine_kept_tokens(machine, &again) == 2 * BLOCK_TOKENS);
    sim_machine_remove(machine, copy);
    sim_machine_forget(machine, &again);
    CHECK(sim_machine_kept_tokens(machine, &again) == 0);
    sim_machine_close(machine);
}

/* ---- the formula ---- */

/* docs/simulator.md: computing takes P = tokens / prefill rate, the transfer of the context's KV to
 * the next token machine takes T = bytes / bandwidth. Without a checkpoint, P of the whole context
 * passes before the next token, and what is left of T before the one after it. With a checkpoint, P
 * of at most two blocks, then T. The kill comes at any time between two tokens, and messages take
 * their time: both are left out of the formula. */
static void formula(uint32_t context, double link)
{
    uint32_t after = 65;
    struct scene scene = {.machines = "1:prompt 2:token",
                          .checkpoint = "off",
                          .prompt_tokens = context - after,
                          .output_tokens = 200,
                          .killed = 1,
                          .link_bytes_per_s = link};
    run_killed_after(&scene, after);
    double prefill_rate = 512 / prompt_s(512);
    double compute_s = context / prefill_rate;
    double transfer_s = context * KV_BYTES / link;
    double wanted_s = fmax(compute_s, transfer_s - compute_s);
    double without_s = pause_s();
    double slack_s = step_s() + 3 * MESSAGE_S + prompt_s(512); /* Chunks are whole batches. */
    CHECKF(fabs(without_s - wanted_s) < slack_s, "%u tokens: %.3f s, want %.3f", context, without_s,
           wanted_s);
    scene.prefix_cache = true;
    scene.checkpoint = "idle";
    run_killed_after(&scene, after);
    double with_s = fmax(prompt_s(2 * BLOCK_TOKENS), transfer_s);
    CHECK(report.recomputed_tokens <= 2 * BLOCK_TOKENS);
    CHECKF(fabs(pause_s() - with_s) < slack_s, "%u tokens: %.3f s, want %.3f", context, pause_s(),
           with_s);
    printf("%5u tokens: %.3f s (formula %.3f) without, %.3f s (formula %.3f) with a checkpoint\n",
           context, without_s, wanted_s, pause_s(), with_s);
}

/* ---- the list of kills ---- */

static void list_of_kills(void)
{
    static const struct {
        const char *text;
        const char *error;
    } bad[] = {
        {"time,machine\n1,h100-0\n", "time_s"},
        {"time_s,machine\n1,gpu-7\n", "kills.csv:2: machine = \"gpu-7\": want the name"},
        {"time_s,machine\nsoon,h100-0\n", "kills.csv:2"},
        {"time_s,machine\n-1,h100-0\n", "kills.csv:2: time_s = \"-1\": want seconds from 0 on"},
        {"time_s,machine\n1\n", "kills.csv:2: machine = \"\": want the name"},
        {"", "empty"},
    };
    struct scene scene = {.machines = "2:mixed",
                          .checkpoint = "off",
                          .prompt_tokens = 16,
                          .output_tokens = 2,
                          .killed = NEVER};
    struct error error = {""};
    struct sim_kill *kills;
    uint32_t count;
    scene_run(&scene);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        scratch_write("kills.csv", bad[i].text);
        CHECK(sim_kills_read(scratch_path("kills.csv"), &hosts, &kills, &count, &error) != ST_OK);
        CHECKF(strstr(error.text, bad[i].error) != NULL, "%s", error.text);
    }
    CHECK(sim_kills_read("/no/such/file", &hosts, &kills, &count, &error) == ST_IO);
    scratch_write("kills.csv", "machine,time_s\nh100-1,7.5\nh100-0,2\n\nh100-1,2\n");
    CHECKF(sim_kills_read(scratch_path("kills.csv"), &hosts, &kills, &count, &error) == ST_OK, "%s",
           error.text);
    CHECK(count == 3 && kills[0].machine == 0 && kills[0].at_s == 2 && kills[1].machine == 1 &&
          kills[1].at_s == 2 && kills[2].at_s == 7.5);
    free(kills);
    CHECK(remove(scratch_path("kills.csv")) == 0);
}

int main(void)
{
    paper_open();
    all_is_computed_again();
    prompt_is_kept();
    checkpoint_of_an_answer("idle");
    checkpoint_of_an_answer("always");
    copies_have_intervals(500);
    copies_have_intervals(4000);
    last_token_needs_no_transfer();
    answers_are_copied_in_turn();
    wait_for_memory_is_limited();
    chunks_are_kept();
    kills_while_down();
    kept_kv_is_displaced();
    for (uint32_t context = 1024; context <= 8192; context *= 2) {
        formula(context, LINK);
        formula(context, LINK / 20);
    }
    list_of_kills();
    CHECK(remove(scratch_path("trace.csv")) == 0 && rmdir(scratch) == 0);
    return 0;
}
