/* Goal: a hardware file of a machine with several devices is read as its page says, and each
 * mistake gives one clear error; its split has the most tokens per second within the limit, with
 * group sizes for which the KV memory suffices; its devices are joined to ranks where that is
 * better; and a simulated machine runs these stages. Method: a small profile of two devices; files
 * with one mistake each; groups of every size, each solved by the partitioner alone, compared with
 * the result; times of ranks and replicas by hand; a machine's stages compared with the plan's. */
#include "tests/check.h"
#include "tests/profile/profile_example.h"
#include "tests/profile/profile_ranks.h"
#include "tests/scarce_memory.h"
#include "tools/simulate/machine_split.h"
#include "tools/simulate/sim_machines.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static struct profile *profile;
static char path[] = "/tmp/test_machine_split.XXXXXX";

static void scratch_write(const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* ---- reading ---- */

#define MACHINE(more)   "{\"name\": \"x\"" more "}"
#define DEVICES(device) ", \"devices\": [{\"profile\": \"cpu-2\"}, " device "]"
#define GPU             "{\"profile\": \"gpu\", \"count\": 2, \"memory\": \"3KiB\"}"

static enum status machine_read(const char *text, struct hardware *hardware,
                                struct partition_cluster *cluster, struct error *error)
{
    scratch_write(text);
    enum status status = hardware_read(path, hardware, error);
    return status == ST_OK
               ? partition_cluster_of_machine(path, hardware->name, profile, cluster, error)
               : status;
}

static enum status wrong_end_read(struct error *error)
{
    struct hardware hardware;
    return hardware_read(path, &hardware, error);
}

static enum status wrong_end_read_cluster(struct error *error)
{
    struct partition_cluster cluster;
    return partition_cluster_of_machine(path, "x", profile, &cluster, error);
}

/* The file is not to blame if there is no memory for the JSON tree. It is wrong at its end. */
static void no_memory(void)
{
    struct error error = {""};
    uint32_t count;
    scratch_write("{\"name\": [1, \"a\"]} 7");
    CHECK(scarce_calls(wrong_end_read, &count, &error) == ST_INVALID && count > 5);
    CHECKF(strstr(error.text, ":1: end of file expected") != NULL, "%s", error.text);
    CHECK(scarce_calls(wrong_end_read_cluster, &count, &error) == ST_INVALID && count > 5);
    CHECKF(strstr(error.text, ":1: end of file expected") != NULL, "%s", error.text);
}

static void reads(void)
{
    struct hardware hardware;
    struct partition_cluster cluster;
    struct error error;
    CHECKF(machine_read(MACHINE(DEVICES(GPU) ", \"links\": {\"inside\": {\"bandwidth_bytes_per_s\":"
                                             " 5e6, \"latency_us\": 7}}, \"kv_memory_bytes\": 9"),
                        &hardware, &cluster, &error) == ST_OK,
           "%s", error.text);
    CHECK(hardware.has_devices && hardware.kv_memory_bytes == 9);
    CHECK(cluster.host_count == 1 && cluster.hosts[0].count == 1 && cluster.kind_count == 2);
    CHECK(cluster.hosts[0].devices[0] == 1 && cluster.hosts[0].devices[1] == 2);
    CHECK(cluster.kinds[0].memory_bytes == 1000000 && cluster.kinds[1].memory_bytes == 3072);
    CHECK(cluster.inside_host.bandwidth_bytes_per_s == 5e6 && cluster.inside_host.latency_us == 7);
    CHECK(strcmp(cluster.host_names[0], "x") == 0);
    /* Without a link in the file, the profile's fastest link inside the host of the first device is
     * used. */
    CHECK(machine_read(MACHINE(DEVICES(GPU)), &hardware, &cluster, &error) == ST_OK);
    CHECK(cluster.inside_host.bandwidth_bytes_per_s == 1e10 && cluster.inside_host.latency_us == 2);
}

static void faults(void)
{
    static const struct {
        const char *text;
        const char *error; /* The error after the file's name. */
    } bad[] = {
        {MACHINE(", \"devices\": 2"), "\"devices\" = 2: want a list"},
        {MACHINE(", \"devices\": []"), "devices = []: want a list of devices"},
        {MACHINE(DEVICES("{\"profile\": \"tpu\"}")),
         "devices[1].profile = \"tpu\": want the name of a device in the profile: cpu-2, gpu"},
        {MACHINE(DEVICES("{\"count\": 2}")), "devices[1].profile is missing: want the name of"},
        {MACHINE(DEVICES("{\"profile\": \"gpu\", \"memory\": \"8GB\"}")),
         "devices[1].memory = \"8GB\": want a size, such as \"8GiB\""},
        {MACHINE(DEVICES("{\"profile\": \"gpu\", \"count\": 0}")),
         "devices[1].count = 0: want a whole number from 1 to 64"},
        {MACHINE(DEVICES("{\"profile\": \"gpu\", \"speed\": 1}")),
         "devices[1] has an unknown key \"speed\": want profile count memory"},
        {MACHINE(DEVICES(GPU) ", \"links\": {\"between\": {}}"),
         "links has an unknown key \"between\": want inside"},
        {MACHINE(DEVICES(GPU) ", \"links\": {\"inside\": {\"latency_us\": 1}}"),
         "links.inside.bandwidth_bytes_per_s is missing: want a number from 1000"},
        {MACHINE(DEVICES(GPU) ", \"links\": 3"), "\"links\" = 3: want an object"},
        {MACHINE(DEVICES(GPU) ", \"device\": \"cpu\""),
         "want \"table\", \"device\" or \"devices\""},
        {MACHINE(DEVICES(GPU) ", \"threads\": 2"), "\"threads\" beside \"devices\": each device"},
        {MACHINE(DEVICES(GPU) ", \"memory_bytes\": 2"), "\"memory_bytes\" beside \"devices\""},
        {MACHINE(", \"device\": \"cpu\", \"links\": {}"), "\"links\" without \"devices\""},
        {MACHINE(", \"device\": \"cpu\", \"workspace_bytes\": 3"), "\"workspace_bytes\" without"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct hardware hardware;
        struct partition_cluster cluster;
        struct error error = {""};
        char want[256];
        snprintf(want, sizeof(want), "%s: %s", path, bad[i].error);
        CHECK(machine_read(bad[i].text, &hardware, &cluster, &error) == ST_INVALID);
        CHECKF(strncmp(error.text, want, strlen(want)) == 0, "\"%s\", want \"%s\"", error.text,
               want);
    }
}

/* ---- the choice ---- */

/* Three layers of 1000, 1000 and 1500 bytes, their KV, and ends of 400 and 500 bytes: no single
 * device holds all of them. */
#define TIGHT                                                                                      \
    MACHINE(", \"devices\": [{\"profile\": \"cpu-2\", \"memory\": 620000, \"count\": 3}],"         \
            " \"workspace_bytes\": 1, \"kv_memory_bytes\": 900000")

static const struct machine_split_goal goal_usual = {.prompt = false,
                                                     .prompt_tokens = 25,
                                                     .micro_batch = 10,
                                                     .context = 20,
                                                     .batch_max = 64,
                                                     .kv_bytes = 900000};

static struct machine_split *find(const char *text, const struct machine_split_goal *goal)
{
    struct hardware hardware;
    struct partition_cluster cluster;
    struct error error;
    struct machine_split *split = NULL;
    CHECKF(machine_read(text, &hardware, &cluster, &error) == ST_OK, "%s", error.text);
    CHECKF(machine_split_find(&hardware, &cluster, profile, goal, &split, &error) == ST_OK, "%s",
           error.text);
    uint32_t next = 0;
    for (uint32_t i = 0; i < split->plan.stage_count; i++) {
        const struct partition_stage *stage = &split->plan.stages[i];
        CHECK(stage->first == next && stage->end > next);
        CHECK(stage->bytes <= cluster.kinds[stage->kind].memory_bytes);
        next = stage->end;
    }
    CHECK(next == profile->model.layer_count);
    return split;
}

/* Returns the tokens per ns of a pipeline whose groups have `batch` requests; 0 = the latency limit
 * is not kept, or the KV does not fit. */
static double rate_of(const struct machine_split *like, uint32_t batch, double limit_ms)
{
    static struct partition_costs costs;
    struct partition_plan plan;
    struct partition_work work = like->work;
    struct partition *partition;
    struct error error;
    work.group_sequences = batch;
    work.limit_ms = limit_ms;
    partition_costs_of(profile, &like->cluster, &work, &costs);
    CHECK(partition_open(&costs.problem, &partition, &error) == ST_OK);
    enum status status = partition_solve(partition, &costs.goal, &plan, &error);
    partition_close(partition);
    if (status != ST_OK)
        return 0;
    double every_ns = (double)plan.bottleneck.ns / plan.bottleneck.divisor;
    double blocks =
        ceil((double)plan.latency_ns / every_ns - 1e-9) * batch * (work.context_tokens / 16 + 1);
    return batch > 1 && blocks > (double)work.blocks ? 0 : batch / every_ns;
}

static void groups(void)
{
    static const double limits_ms[] = {0, 0.145, 0.2, 0.25, 0.4, 1};
    static const uint64_t kv_bytes[] = {60000, 900000};
    uint32_t seen = 0;
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof(limits_ms) / sizeof(limits_ms[0]); i++) {
            struct machine_split_goal goal = goal_usual;
            goal.limit_ms = limits_ms[i];
            goal.kv_bytes = kv_bytes[k];
            struct machine_split *split = find(TIGHT, &goal);
            double best = 0;
            for (uint32_t batch = 1; batch <= goal.batch_max; batch *= 2) {
                double rate = rate_of(split, batch, limits_ms[i]);
                best = rate > best ? rate : best;
            }
            CHECK(best > 0 && split->work.limit_ms == limits_ms[i]);
            CHECKF(rate_of(split, split->work.group_sequences, limits_ms[i]) == best,
                   "limit %g: groups of %u", limits_ms[i], split->work.group_sequences);
            seen |= split->work.group_sequences;
            machine_split_close(split);
        }
    /* Several sizes occurred. */
    CHECKF(seen >= 8 && (seen & (seen - 1)) != 0, "groups of %x alone", seen);
}

static void limits(void)
{
    struct machine_split_goal goal = goal_usual;
    goal.limit_ms = 0.001; /* No plan keeps this limit. */
    struct machine_split *split = find(TIGHT, &goal);
    CHECK(split->work.limit_ms == 0 && split->plan.stage_count > 1);
    machine_split_close(split);
    /* Three replicas of one stage do not wait for links. A single prompt passes three stages
     * sooner. */
    goal = machine_split_goal_default(true, 10, 340);
    goal.prompt_tokens = 60;
    goal.limit_ms = 0;
    static const char wide[] =
        MACHINE(", \"devices\": [{\"profile\": \"cpu-2\", \"count\": 3}], \"workspace_bytes\": 1,"
                " \"links\": {\"inside\": {\"bandwidth_bytes_per_s\": 1e8, \"latency_us\": 4}}");
    struct machine_split *free = find(wide, &goal);
    goal.limit_ms = (double)(free->plan.latency_ns - 1) / 1e6;
    split = find(wide, &goal);
    CHECK(split->work.limit_ms > 0 && split->plan.latency_ns < free->plan.latency_ns);
    CHECK(partition_interval_compare(split->plan.bottleneck, free->plan.bottleneck) >= 0);
    machine_split_close(split);
    machine_split_close(free);
}

static void does_not_fit(void)
{
    struct hardware hardware;
    struct partition_cluster cluster;
    struct error error;
    struct machine_split *split;
    CHECK(machine_read(MACHINE(", \"devices\": [{\"profile\": \"cpu-2\"}]"), &hardware, &cluster,
                       &error) == ST_OK);
    CHECK(machine_split_find(&hardware, &cluster, profile, &goal_usual, &split, &error) ==
          ST_INVALID); /* The workspace alone takes 256 MiB. */
    CHECKF(strncmp(error.text, "its layers on token machines: ", 30) == 0, "%s", error.text);
}

/* ---- ranks ---- */

#define PAIR                                                                                       \
    MACHINE(", \"devices\": [{\"profile\": \"cpu-2\", \"memory\": 1000000, \"count\": 2}],"        \
            " \"workspace_bytes\": 1000, \"kv_memory_bytes\": 900000")

/* A step of one sequence takes 118.75 us on one device, so two replicas take half of it per step;
 * two ranks take 75 us. So ranks are chosen only for a limit between 75 and 118.75 us, and without
 * a limit once they take less than 59.375 us. */
static void ranks(void)
{
    struct profile *before = profile;
    struct error error;
    struct machine_split_goal goal = goal_usual;
    CHECK(profile_parse(profile_example, strlen(profile_example), "test", &profile, &error) ==
          ST_OK);
    struct profile_device *device = profile_ranks_add(profile);
    device->threads = 4; /* Two of each rank. */
    goal.batch = 1;
    goal.context = 0;
    struct machine_split *split = find(PAIR, &goal);
    CHECK(split->plan.stage_count == 1 && split->plan.stages[0].replicas == 2);
    CHECK(split->plan.stages[0].time_ns == 118750 && split->cluster.kinds[0].device->ranks == 1);
    goal.limit_ms = 0.1;
    struct machine_split *joined = find(PAIR, &goal);
    CHECK(joined->plan.stage_count == 1 && joined->plan.stages[0].replicas == 1);
    CHECK(joined->plan.stages[0].time_ns == 75000 && joined->work.limit_ms == 0.1);
    CHECK(joined->cluster.kinds[0].device == device && machine_split_threads(joined) == 4);
    CHECK(joined->cluster.kinds[0].memory_bytes == 2 * 1000000 - 1000);
    CHECK(!machine_split_equals(split, joined) && machine_split_equals(joined, joined));
    json_t *stages = partition_config(&joined->result);
    char *text = json_dumps(stages, JSON_SORT_KEYS);
    CHECKF(strcmp(text, "[{\"device\": \"cpu\", \"layers\": \"0-2\", \"tensor_parallel\": 2, "
                        "\"threads\": 4}]") == 0,
           "%s", text);
    free(text);
    json_decref(stages);
    machine_split_close(joined);
    goal.limit_ms = 0;
    device->vocabulary.us[0] = 45;
    joined = find(PAIR, &goal);
    CHECK(joined->cluster.kinds[0].device->ranks == 1); /* 60 us. */
    machine_split_close(joined);
    device->vocabulary.us[0] = 44;
    joined = find(PAIR, &goal);
    CHECK(joined->cluster.kinds[0].device == device); /* 59 us. */
    machine_split_close(joined);
    machine_split_close(split);
    profile_close(profile);
    profile = before;
}

/* ---- a simulated machine ---- */

static void simulated(void)
{
    static struct sim_machines hosts;
    static struct config config;
    struct error error;
    char spec[64];
    config_default(&config);
    CHECK(profile_parse(profile_example, strlen(profile_example), "test", &hosts.profile, &error) ==
          ST_OK);
    scratch_write(TIGHT);
    snprintf(spec, sizeof(spec), "2:token:%s", path);
    CHECKF(sim_machines_add(&hosts, spec, NULL, "", &config, &error) == ST_OK, "%s", error.text);
    const struct sim_cost *cost = &hosts.machines[1].cost;
    const struct partition_plan *plan = &hosts.splits[0]->plan;
    CHECK(hosts.count == 2 && cost->stage_count == plan->stage_count && plan->stage_count > 1);
    CHECK(hosts.machines[1].kv_tokens == 900000 / (3 * 132) &&
          hosts.machines[1].threads == 2 * plan->devices);
    const struct profile_work work = {.decodes = 16, .decode_context = 1024};
    double all_s = 0;
    uint32_t place = 0;
    for (uint32_t i = 0; i < plan->stage_count; i++) {
        CHECK(cost->stages[i].first == plan->stages[i].first &&
              cost->stages[i].end == plan->stages[i].end);
        CHECK(cost->stages[i].first_device == place &&
              cost->stages[i].replica_count == plan->stages[i].replicas);
        all_s += sim_cost_stage_s(cost, i, 0, &work);
        place += plan->stages[i].replicas;
    }
    double between_s = (plan->stage_count - 1) * sim_cost_between_s(cost, &work);
    /* The time to send the sampled token to the first stage, which the simulation does not have. */
    double back_s = 2e-6;
    double want_s = (double)plan->latency_ns / 1e9 - back_s;
    CHECKF(all_s + between_s > want_s - 1e-8 && all_s + between_s < want_s + 1e-8, "%g, want %g",
           all_s + between_s, want_s);
    sim_machines_done(&hosts);
}

int main(void)
{
    struct error error;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK(profile_parse(profile_example, strlen(profile_example), "test", &profile, &error) ==
          ST_OK);
    reads();
    no_memory();
    faults();
    groups();
    limits();
    does_not_fit();
    ranks();
    simulated();
    profile_close(profile);
    return unlink(path);
}
