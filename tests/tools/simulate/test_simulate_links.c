/* Goal: KV between machines of different hosts takes the time of the link that the profile measured
 * between these hosts. Method: machines on the two hosts of the example, from hardware files and
 * from a config; the time of one transfer is calculated by hand. */
#include "tools/simulate/sim_run.h"

#include "tests/check.h"
#include "tests/profile/profile_example.h"
#include "tests/tools/simulate/scratch.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define KV_BYTES (3 * 132) /* Of a token in all layers. */

static struct config config;
static struct sim_machines hosts;
static struct sim_report report;
static struct sim_run_totals totals;

/* `from` of the example is replaced by `to`; NULL = the example as it is. */
static void profile_open(const char *from, const char *to)
{
    static char text[sizeof(profile_example) + 256];
    struct error error = {""};
    const char *at = from != NULL ? strstr(profile_example, from) : profile_example;
    int bytes =
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - profile_example), profile_example,
                 from != NULL ? to : "", at + (from != NULL ? strlen(from) : 0));
    sim_machines_done(&hosts);
    memset(&hosts, 0, sizeof(hosts));
    config_default(&config);
    snprintf(config.kv.transfer, sizeof(config.kv.transfer), "one-piece");
    CHECKF(profile_parse(text, (size_t)bytes, "p.json", &hosts.profile, &error) == ST_OK, "%s",
           error.text);
}

static enum status machine_add(const char *pool, const char *text, struct error *error)
{
    char spec[500];
    scratch_write("hw.json", text);
    snprintf(spec, sizeof(spec), "1:%s:%s", pool, scratch_path("hw.json"));
    return sim_machines_add(&hosts, spec, NULL, NULL, &config, error);
}

static double transfer_s(void)
{
    struct error error = {""};
    struct sim_trace trace;
    scratch_write("trace.csv", "arrival_timestamp,prompt_size,token_size\n0,100,3\n");
    hosts.context_tokens = sim_machines_context_tokens(&hosts, &config);
    const struct sim_run_options options = {.machines = &hosts, .config = &config};
    CHECK(sim_trace_open(&trace, scratch_path("trace.csv"), false, 0, &error) == ST_OK);
    CHECK(sim_report_open(&report, NULL, false, &error) == ST_OK);
    CHECKF(sim_run(&options, &trace, &report, &totals, &error) == ST_OK, "%s", error.text);
    sim_trace_close(&trace);
    CHECK(report.outcomes[SIM_DONE] == 1 && report.transfer.count == 1);
    return report.transfer.value_max;
}

static void wanted(double bytes_per_s, double latency_s)
{
    double want_s = 100 * KV_BYTES / bytes_per_s + latency_s;
    double got_s = transfer_s();
    CHECKF(fabs(got_s - want_s) < 1e-12, "%.9f s, want %.9f", got_s, want_s);
}

#define CPU "{\"name\": \"cpu\", \"device\": \"cpu\", \"threads\": 2, \"kv_memory_bytes\": 8000000"
#define GPU "{\"name\": \"gpu\", \"device\": \"cuda:0\", \"kv_memory_bytes\": 8000000"

static void hardware(void)
{
    struct error error = {""};
    profile_open(NULL, NULL);
    CHECK(machine_add("prompt", CPU "}", &error) == ST_OK);
    CHECK(machine_add("token", CPU "}", &error) == ST_OK);
    wanted(1e10, 2e-6); /* Both are on host a. */
    profile_open(NULL, NULL);
    CHECK(machine_add("prompt", CPU "}", &error) == ST_OK);
    CHECK(machine_add("token", GPU "}", &error) == ST_OK);
    wanted(1e9, 20e-6); /* From host a to host b. */
    profile_open(NULL, NULL);
    CHECK(machine_add("prompt", GPU "}", &error) == ST_OK);
    CHECK(machine_add("token", CPU ", \"link_bytes_per_s\": 5e8}", &error) == ST_OK);
    wanted(5e8, 20e-6); /* Back, and limited by the machine. */
}

#define TWO_CPUS "\"kind\": \"cuda:0\", \"host\": \"b\",\n   \"description\": \"\", \"threads\": 0"

/* Two hosts with equal devices: the hardware file or the machine's address says which one it is. */
static void hosts_with_equal_devices(void)
{
    static const char machines[] =
        "{\"pools\": {\"prompt\": [\"p\"], \"token\": [\"t\"]}, \"cluster\": "
        "{\"allow_insecure\": true}, \"machines\": {"
        "\"p\": {\"threads\": 2, \"address\": \"a:7000\"}, "
        "\"t\": {\"threads\": 2, \"address\": \"b:7000\"}}}";
    struct error error = {""};
    profile_open(TWO_CPUS, "\"kind\": \"cpu\", \"host\": \"b\", \"threads\": 2");
    CHECK(machine_add("prompt", CPU ", \"host\": \"a\"}", &error) == ST_OK);
    CHECK(machine_add("token", CPU ", \"host\": \"b\"}", &error) == ST_OK);
    CHECK(strcmp(hosts.machines[0].cost.devices[0]->name, "cpu-2") == 0);
    CHECK(strcmp(hosts.machines[1].cost.devices[0]->name, "gpu") == 0);
    wanted(1e9, 20e-6);
    CHECK(machine_add("token", CPU ", \"host\": \"c\"}", &error) == ST_NOT_FOUND);
    CHECKF(strstr(error.text, "no device cpu with 2 threads on host c") != NULL, "%s", error.text);
    CHECK(machine_add("token", "{\"name\": \"x\", \"devices\": [], \"host\": \"a\"}", &error) ==
          ST_INVALID);
    CHECKF(strstr(error.text, "\"host\" without \"device\"") != NULL, "%s", error.text);
    CHECKF(config_parse(machines, strlen(machines), "c.json", &config, &error) == ST_OK, "%s",
           error.text);
    hosts.count = 0;
    CHECKF(sim_machines_of_config(&hosts, &config, &error) == ST_OK, "%s", error.text);
    CHECK(strcmp(hosts.machines[0].cost.devices[0]->name, "cpu-2") == 0);
    CHECK(strcmp(hosts.machines[1].cost.devices[0]->name, "gpu") == 0);
    snprintf(config.kv.transfer, sizeof(config.kv.transfer), "one-piece");
    wanted(1e9, 20e-6);
    config.machines[0].address[0] = 'x'; /* Not measured: any device of that kind. */
    hosts.count = 0;
    CHECK(sim_machines_of_config(&hosts, &config, &error) == ST_OK);
    CHECK(strcmp(hosts.machines[0].cost.devices[0]->name, "cpu-2") == 0);
}

/* A prompt of 100 tokens and 2 decode steps, on machines whose powers are measured. */
static void energy(void)
{
    struct error error = {""};
    double joules;
    profile_open(NULL, NULL);
    CHECK(machine_add("prompt", CPU "}", &error) == ST_OK);
    CHECK(machine_add("token", CPU "}", &error) == ST_OK);
    transfer_s();
    const struct sim_machine_totals *p = &totals.machines[0], *t = &totals.machines[1];
    CHECK(p->busy_s > 0 && p->prompt_busy_s == p->busy_s);
    CHECK(t->busy_s > 0 && t->prompt_busy_s == 0);
    CHECK(sim_energy_j(&hosts, &totals, &joules));
    CHECK(fabs(joules - (p->busy_s * 200 + t->busy_s * 50.5)) < 1e-12);
    profile_open(", \"token_w\": 50.5", "");
    CHECK(machine_add("prompt", CPU "}", &error) == ST_OK);
    CHECK(machine_add("token", CPU "}", &error) == ST_OK);
    transfer_s();
    CHECK(!sim_energy_j(&hosts, &totals, &joules));
}

int main(void)
{
    CHECK(mkdtemp(scratch) != NULL);
    hardware();
    energy();
    hosts_with_equal_devices();
    sim_machines_done(&hosts);
    CHECK(remove(scratch_path("hw.json")) == 0 && remove(scratch_path("trace.csv")) == 0 &&
          rmdir(scratch) == 0);
    return 0;
}
