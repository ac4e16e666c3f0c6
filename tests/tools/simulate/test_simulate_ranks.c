/* Goal: a machine whose stages have ranks takes the times of a device with as many ranks, its KV
 * memory and its link carry a copy for each rank where the model needs one, and a profile without
 * such a device, or too few cores, is one clear error. Method: a small profile with a device of two
 * ranks; configs and hardware files; times and numbers computed by hand. */
#include "tools/simulate/sim_run.h"
#include "tools/simulate/simulate.h"

#include "tests/check.h"
#include "tests/profile/profile_example.h"
#include "tests/profile/profile_ranks.h"
#include "tests/tools/simulate/scratch.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_S 0.001

static struct config config;
static struct sim_machines hosts;

static void hosts_begin(const char *machines)
{
    static char text[1024];
    struct error error = {""};
    snprintf(text, sizeof(text),
             "{\"pools\": {\"prompt\": [\"p\"], \"token\": [\"t\"]}, \"machines\": {%s}}",
             machines);
    memset(&config, 0, sizeof(config));
    CHECKF(config_parse(text, strlen(text), "c.json", &config, &error) == ST_OK, "%s", error.text);
    memset(&hosts, 0, sizeof(hosts));
    CHECK(profile_parse(profile_example, strlen(profile_example), "p.json", &hosts.profile,
                        &error) == ST_OK);
    profile_ranks_add(hosts.profile);
    hosts.context_tokens = 2048;
}

static void hosts_read(void)
{
    struct error error = {""};
    CHECKF(sim_machines_of_config(&hosts, &config, &error) == ST_OK, "%s", error.text);
}

struct times {
    double ttft_s, e2e_s, transfer_s;
};

/* Simulates one request with 20 prompt tokens and 3 tokens of answer. */
static struct times request_run(void)
{
    static struct sim_report report;
    static struct sim_run_totals totals;
    const struct sim_run_options options = {
        .machines = &hosts, .config = &config, .message_s = MESSAGE_S};
    struct sim_trace trace;
    struct error error = {""};
    struct times t;
    char line[512];
    memset(&report, 0, sizeof(report));
    memset(&totals, 0, sizeof(totals));
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n0,20,3\n");
    CHECK(sim_trace_open(&trace, scratch_path("trace.csv"), false, 0, &error) == ST_OK);
    CHECK(sim_report_open(&report, scratch_path("rows.csv"), false, &error) == ST_OK);
    CHECKF(sim_run(&options, &trace, &report, &totals, &error) == ST_OK, "%s", error.text);
    CHECK(sim_report_close(&report, "rows.csv", &error) == ST_OK);
    sim_trace_close(&trace);
    FILE *file = fopen(scratch_path("rows.csv"), "r");
    CHECK(file != NULL && fgets(line, sizeof(line), file) != NULL);
    CHECK(fgets(line, sizeof(line), file) != NULL);
    CHECKF(sscanf(line, "%*u,%lf,%*f,%lf,%*f,%*u,%*u,done,%*f,%lf", &t.ttft_s, &t.e2e_s,
                  &t.transfer_s) == 3,
           "%s", line);
    fclose(file);
    return t;
}

static bool near(double a, double b)
{
    return fabs(a - b) < 2e-12;
}

#define RANKS     "\"threads\": 2, \"tensor_parallel\": 2, \"kv_memory\": \"16MiB\""
#define MACHINE_T ", \"t\": {" RANKS "}"

/* A machine of one stage: 2 * 26 + 13 us for the prompt and 3 * 4 for a step, 63 besides, and the
 * time between two batches. */
static void one_stage(void)
{
    hosts_begin("\"p\": {" RANKS "}" MACHINE_T);
    hosts_read();
    CHECK(hosts.count == 2 && hosts.machines[0].cost.stage_count == 1 &&
          hosts.machines[0].threads == 2);
    CHECK(hosts.machines[0].cost.stages[0].replica_count == 1);
    CHECK(hosts.machines[0].cost.devices[0]->ranks == 2);
    CHECK(hosts.machines[0].kv_tokens == (16 << 20) / 396 && hosts.machines[0].kv_copies == 1);
    struct times t = request_run();
    CHECKF(near(t.ttft_s, 4 * MESSAGE_S + 128e-6 + SIM_COST_BATCH_S), "%.9f", t.ttft_s);
    CHECKF(near(t.e2e_s - t.ttft_s - t.transfer_s, 2 * (75e-6 + SIM_COST_BATCH_S)), "%.9f",
           t.e2e_s - t.ttft_s - t.transfer_s);
    sim_machines_done(&hosts);
}

/* One stage has two ranks, the other none: 26 + 3 us, the link's 2 + 0.512 us, then the example's 40 +
 * 23 + 103.25 us. */
static void two_stages(void)
{
    hosts_begin("\"p\": {\"threads\": 4, \"stages\": ["
                "{\"tensor_parallel\": 2, \"threads\": 2, \"layers\": \"0-0\"}, "
                "{\"threads\": 2, \"layers\": \"1-2\"}]}" MACHINE_T);
    hosts_read();
    const struct sim_cost *cost = &hosts.machines[0].cost;
    CHECK(cost->stage_count == 2 && cost->devices[0]->ranks == 2 && cost->devices[1]->ranks == 1);
    CHECK(cost->stages[1].first_device == 1 && cost->stages[1].replica_count == 1);
    struct times t = request_run();
    CHECKF(near(t.ttft_s, 4 * MESSAGE_S + 197.762e-6), "%.9f", t.ttft_s);
    sim_machines_done(&hosts);
    /* Without layers in the config, two ranks get as many layers as two of one rank. */
    hosts_begin("\"p\": {\"threads\": 4, \"stages\": [{\"tensor_parallel\": 2, \"threads\": 2}, "
                "{\"threads\": 2}]}" MACHINE_T);
    hosts_read();
    CHECK(cost->stage_count == 2 && cost->stages[0].end == 2 && cost->stages[1].first == 2);
    sim_machines_done(&hosts);
}

/* Where each rank has the KV of all heads, it is in the memory twice, and crosses the link
 * twice. */
static void copies(void)
{
    hosts_begin("\"p\": {\"threads\": 2, \"kv_memory\": \"16MiB\"}" MACHINE_T);
    hosts.profile->model.kv_copied = true;
    hosts_read();
    CHECK(hosts.machines[0].kv_tokens == (16 << 20) / 396);
    CHECK(hosts.machines[1].kv_tokens == (16 << 20) / 396 / 2 && hosts.machines[1].kv_copies == 2);
    CHECK(near(sim_machines_link(&hosts, 0, 1).bytes_per_s, 5e9));
    CHECK(near(sim_machines_link(&hosts, 1, 0).bytes_per_s, 1e10));
    sim_machines_done(&hosts);
}

static void hardware_files(void)
{
    struct hardware hardware;
    struct error error = {""};
    hosts_begin("\"p\": {" RANKS "}" MACHINE_T);
    scratch_write("h.json", "{\"name\": \"x\", \"device\": \"cpu\", \"threads\": 2, "
                            "\"tensor_parallel\": 2}");
    CHECKF(hardware_read(scratch_path("h.json"), &hardware, &error) == ST_OK, "%s", error.text);
    const struct profile_device *device = sim_machines_device(hosts.profile, &hardware, &error);
    CHECK(device != NULL && device->ranks == 2);
    scratch_write("h.json", "{\"name\": \"x\", \"device\": \"cpu\", \"threads\": 2}");
    CHECK(hardware_read(scratch_path("h.json"), &hardware, &error) == ST_OK);
    CHECK(sim_machines_device(hosts.profile, &hardware, &error) == &hosts.profile->devices[0]);
    hardware.tensor_parallel = 3;
    CHECK(sim_machines_device(hosts.profile, &hardware, &error) == NULL);
    CHECKF(strcmp(error.text, "the profile has no device cpu with 2 threads of 3 ranks") == 0, "%s",
           error.text);
    scratch_write("h.json", "{\"name\": \"x\", \"tensor_parallel\": 2, \"devices\": [{}]}");
    CHECK(hardware_read(scratch_path("h.json"), &hardware, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "\"tensor_parallel\" beside \"devices\"") != NULL, "%s", error.text);
    sim_machines_done(&hosts);
}

/* Runs `cleave simulate` on the config with this number of cores. */
static int command(const char *cores)
{
    static char config_path[420], trace[420], profile[420];
    snprintf(config_path, sizeof(config_path), "%s", scratch_path("c.json"));
    snprintf(trace, sizeof(trace), "--trace=%s", scratch_path("trace.csv"));
    snprintf(profile, sizeof(profile), "--profile=%s", scratch_path("p.json"));
    const char *argv[] = {"simulate", config_path, trace, profile, "--cores", cores, NULL};
    return simulate_main(6, (char **)argv);
}

static void refusals(void)
{
    struct error error = {""};
    hosts_begin("\"p\": {\"threads\": 4, \"tensor_parallel\": 2}" MACHINE_T);
    CHECK(sim_machines_of_config(&hosts, &config, &error) == ST_NOT_FOUND);
    CHECKF(strcmp(error.text,
                  "c.json: machine p: the profile has no device cpu with 4 threads of 2 "
                  "ranks") == 0,
           "%s", error.text);
    FILE *file = fopen(scratch_path("p.json"), "w");
    CHECK(file != NULL && profile_write(hosts.profile, file, &error) == ST_OK);
    CHECK(fclose(file) == 0);
    scratch_write("c.json", "{\"pools\": {\"prompt\": [\"p\"], \"token\": [\"t\"]}, \"machines\": {"
                            "\"p\": {" RANKS "}" MACHINE_T "}}");
    CHECK(command("4") == 0);
    CHECK(command("3") != 0); /* Two machines of two ranks with a thread each. */
    sim_machines_done(&hosts);
}

int main(void)
{
    static const char *const files[] = {"c.json", "h.json", "p.json", "rows.csv", "trace.csv"};
    CHECK(mkdtemp(scratch) != NULL);
    one_stage();
    two_stages();
    copies();
    hardware_files();
    refusals();
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        CHECK(remove(scratch_path(files[i])) == 0);
    CHECK(rmdir(scratch) == 0);
    return 0;
}
