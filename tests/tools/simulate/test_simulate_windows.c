/* Goal: a simulated machine has as many blocks for a model with attention windows as a real one,
 * its requests take as many of them, and as many bytes travel. Method: a model of three layers, two
 * of which have a window of 32 tokens, on machines with blocks of 16 tokens; numbers calculated by
 * hand from common/layer_groups.h. */
#include "tools/simulate/sim_machine.h"
#include "tools/simulate/sim_run.h"

#include "tests/check.h"
#include "tests/profile/profile_example.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define LAYER_BYTES  132 /* KV of a token in one layer of the example. */
#define KV_BYTES     (16u << 20)
#define BLOCK_TOKENS 16

static struct config config;
static struct sim_machines hosts;
static struct sim_report report;
static struct sim_run_totals totals;

/* Makes a prompt machine and two token machines. groups: JSON of the profile; "" = no windows. */
static void hosts_make(const char *groups)
{
    static char text[sizeof(profile_example) + 256];
    static const char machines[] =
        "{\"pools\": {\"prompt\": [\"p\"], \"token\": [\"t\", \"u\"]}, \"kv\": {\"transfer\": "
        "\"one-piece\"}, \"scheduler\": {\"growth_tokens\": 1}, \"machines\": {"
        "\"p\": {\"threads\": 2, \"kv_memory\": \"16MiB\"}, "
        "\"t\": {\"threads\": 2, \"kv_memory\": \"16MiB\"}, "
        "\"u\": {\"threads\": 2, \"kv_memory\": \"16MiB\"}}}";
    struct error error = {""};
    const char *at = strstr(profile_example, "\"tied\": true");
    int bytes = snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - profile_example),
                         profile_example, groups, at);
    sim_machines_done(&hosts);
    memset(&hosts, 0, sizeof(hosts));
    CHECKF(config_parse(machines, strlen(machines), "c.json", &config, &error) == ST_OK, "%s",
           error.text);
    CHECKF(profile_parse(text, (size_t)bytes, "p.json", &hosts.profile, &error) == ST_OK, "%s",
           error.text);
    CHECKF(sim_machines_of_config(&hosts, &config, &error) == ST_OK, "%s", error.text);
    hosts.context_tokens = sim_machines_context_tokens(&hosts, &config);
}

#define WINDOWS "\"layer_groups\": {\"count\": 3, \"windowed\": [0, 1], \"window_tokens\": 32}, "

static void request_run(uint32_t prompt_tokens, uint32_t output_tokens, const struct sim_kill *kill)
{
    static char path[] = "/tmp/test_simulate_windows.XXXXXX";
    struct error error = {""};
    struct sim_trace trace;
    int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    CHECK(file != NULL);
    fprintf(file, "arrival_timestamp,prompt_size,token_size\n0,%u,%u\n", prompt_tokens,
            output_tokens);
    CHECK(fclose(file) == 0);
    const struct sim_run_options options = {.machines = &hosts,
                                            .config = &config,
                                            .repair_s = 1000,
                                            .kills = kill,
                                            .kill_count = kill != NULL};
    CHECK(sim_trace_open(&trace, path, false, 0, &error) == ST_OK);
    CHECK(sim_report_open(&report, NULL, false, &error) == ST_OK);
    CHECKF(sim_run(&options, &trace, &report, &totals, &error) == ST_OK, "%s", error.text);
    sim_trace_close(&trace);
    CHECK(remove(path) == 0);
    memcpy(path + sizeof(path) - 7, "XXXXXX", 6);
    CHECK(report.outcomes[SIM_DONE] == 1);
}

static double transfer_s(uint32_t prompt_tokens)
{
    request_run(prompt_tokens, 3, NULL);
    CHECK(report.transfer.count == 1);
    return report.transfer.value_max;
}

/* KV before the window that the answer reads is not sent: after 100 tokens the window begins before
 * token 96, at block 4. */
static void bytes_sent(void)
{
    const double bandwidth = 1e10, latency_s = 2e-6;
    hosts_make("");
    CHECK(fabs(transfer_s(100) - (3 * 100 * LAYER_BYTES / bandwidth + latency_s)) < 1e-12);
    hosts_make(WINDOWS);
    uint32_t layer_tokens = 100 + 2 * (100 - 4 * BLOCK_TOKENS);
    CHECKF(fabs(transfer_s(100) - (layer_tokens * LAYER_BYTES / bandwidth + latency_s)) < 1e-12,
           "%.12f", report.transfer.value_max);
    /* Within the window, everything is sent. */
    CHECK(fabs(transfer_s(30) - (3 * 30 * LAYER_BYTES / bandwidth + latency_s)) < 1e-12);
}

static void ignore_reserved(void *self, uint32_t machine, uint32_t request, uint32_t cached)
{
    (void)self, (void)machine, (void)request, (void)cached;
}

/* Returns the blocks of a request with 1000 tokens and room for one more. */
static double blocks_of_request(bool local, uint64_t blocks)
{
    const struct sim_machine_calls calls = {.reserved = ignore_reserved};
    const struct sim_machine_options options = {.host = &hosts.machines[1],
                                                .config = &config,
                                                .context_tokens = hosts.context_tokens,
                                                .calls = &calls};
    const struct sim_reserve reserve = {
        .prompt_tokens = 1000, .output_tokens = 100, .local = local};
    struct sim_machine *machine;
    struct sim_machine_use use;
    sched_slot slot;
    CHECK(sim_machine_open(&options, &machine) == ST_OK);
    CHECK(sim_machine_reserve(machine, &reserve, &slot) == ST_OK);
    sim_machine_grant(machine, 0);
    sim_machine_use(machine, &use);
    sim_machine_close(machine);
    return use.kv * (double)blocks;
}

/* A block holds one layer of each layer group in a row: here one layer instead of three. */
static void memory(void)
{
    hosts_make("");
    uint64_t blocks = KV_BYTES / (3 * LAYER_BYTES) / BLOCK_TOKENS;
    CHECK(hosts.machines[1].kv_tokens / BLOCK_TOKENS == blocks);
    CHECK(hosts.context_tokens == KV_BYTES / (3 * LAYER_BYTES));
    CHECK(fabs(blocks_of_request(false, blocks) - 63) < 1e-6);
    hosts_make(WINDOWS);
    blocks = KV_BYTES / LAYER_BYTES / BLOCK_TOKENS;
    CHECK(hosts.machines[1].kv_tokens / BLOCK_TOKENS == blocks);
    /* A window of 32 tokens, read by one token at a time, lies in up to 3 blocks; with a chunk of
     * 512 tokens in up to 35. */
    uint32_t one = 3, chunk = 35;
    CHECKF(fabs(blocks_of_request(false, blocks) - (63 + 2 * one)) < 1e-6, "%g blocks",
           blocks_of_request(false, blocks));
    CHECK(fabs(blocks_of_request(true, blocks) - (63 + 2 * chunk)) < 1e-6);
    CHECKF(hosts.context_tokens == (blocks - 2 * chunk) * BLOCK_TOKENS, "%u", hosts.context_tokens);
}

/* A checkpoint has the KV of new blocks in the full layer, and each time that of the window, two
 * blocks, in the others. The prompt machine has kept the prompt's full blocks. */
static void checkpoints(void)
{
    const struct sim_kill kill = {.at_s = 0.3, .machine = 1};
    hosts_make(WINDOWS);
    snprintf(config.kv.checkpoint, sizeof(config.kv.checkpoint), "idle");
    config.kv.checkpoint_ms = 0;
    request_run(100, 2000, NULL);
    CHECK(totals.copies > 3);
    uint64_t window_bytes = totals.copies * 2 * 32 * LAYER_BYTES;
    CHECK(totals.copied_bytes > window_bytes);
    uint64_t tokens = (totals.copied_bytes - window_bytes) / LAYER_BYTES;
    CHECKF((totals.copied_bytes - window_bytes) % LAYER_BYTES == 0 && tokens % BLOCK_TOKENS == 0 &&
               tokens > 1000 && tokens <= 2100 - 96,
           "%u copies, %u tokens", (unsigned)totals.copies, (unsigned)tokens);
    request_run(100, 2000, &kill);
    CHECKF(report.affected == 1 && report.checkpoint_tokens > 500 && report.recomputed_tokens < 300,
           "%u tokens computed again, %u in the checkpoint", (unsigned)report.recomputed_tokens,
           (unsigned)report.checkpoint_tokens);
    snprintf(config.kv.checkpoint, sizeof(config.kv.checkpoint), "off");
    request_run(100, 2000, &kill);
    CHECK(report.recomputed_tokens > 800 && report.reused_tokens == 96);
}

int main(void)
{
    bytes_sent();
    checkpoints();
    memory();
    sim_machines_done(&hosts);
    return 0;
}
