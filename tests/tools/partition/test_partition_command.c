/* Goal: `cleave partition` gives the partitioner the values of the profile, accepts the clusters
 * that its page describes and no others, and shows the plan. Method: a small profile, where the
 * sums of profile/profile.h for a whole stage are compared with a plan of one stage; texts of
 * clusters, good ones and one for each mistake; pictures and JSON compared line by line; the
 * example in deploy/. */
#include "tests/check.h"
#include "tests/profile/profile_example.h"
#include "tests/scarce_memory.h"
#include "tools/partition/print.h"

#include <math.h>
#include <string.h>

static struct profile *profile;
static struct partition_cluster cluster;
static struct partition_costs costs;
static struct partition_plan plan;

static const struct partition_work prompt_work = {.is_prompt_phase = true,
                                                  .micro_batch_tokens = 10,
                                                  .prompt_tokens = 25,
                                                  .group_sequences = 2,
                                                  .context_tokens = 40,
                                                  .blocks = 3,
                                                  .workspace_bytes = 50,
                                                  .replicas = true};

static void open_profile(const char *text)
{
    struct error error;
    profile_close(profile);
    CHECKF(profile_parse(text, strlen(text), "test", &profile, &error) == ST_OK, "%s", error.text);
}

static void solve(const struct partition_work *work)
{
    struct partition *partition;
    struct error error;
    partition_costs_of(profile, &cluster, work, &costs);
    CHECKF(partition_open(&costs.problem, &partition, &error) == ST_OK, "%s", error.text);
    CHECKF(partition_solve(partition, &costs.goal, &plan, &error) == ST_OK, "%s", error.text);
    partition_close(partition);
}

/* ---- clusters ---- */

static void parse(const char *text)
{
    struct error error;
    CHECKF(partition_cluster_parse(text, strlen(text), "c.json", profile, &cluster, &error) ==
               ST_OK,
           "%s", error.text);
}

static enum status wrong_end_read(struct error *error)
{
    static const char text[] = "{\"hosts\": [1, \"a\"]} 7";
    struct partition_cluster out;
    return partition_cluster_parse(text, strlen(text), "c.json", profile, &out, error);
}

/* The file is not to blame if there is no memory for the JSON tree. It is wrong at its end. */
static void no_memory(void)
{
    struct error error = {""};
    uint32_t count;
    CHECK(scarce_calls(wrong_end_read, &count, &error) == ST_INVALID && count > 5);
    CHECKF(strncmp(error.text, "c.json:1: end of file expected", 30) == 0, "%s", error.text);
}

static void refused(const char *text, const char *want)
{
    struct error error = {0};
    struct partition_cluster out;
    CHECK(partition_cluster_parse(text, strlen(text), "c.json", profile, &out, &error) != ST_OK);
    CHECKF(strcmp(error.text, want) == 0, "\"%s\", want \"%s\"", error.text, want);
}

#define CPU "{\"profile\": \"cpu-2\"}"

static void clusters(void)
{
    parse("{\"hosts\": [{\"name\": \"x\", \"count\": 3, \"devices\": [{\"profile\": \"cpu-2\", "
          "\"count\": 2, \"memory\": \"1MiB\"}, " CPU "]}, {\"name\": \"y\", \"devices\": [" CPU
          "]}], \"links\": {\"between\": {\"bandwidth_bytes_per_s\": 5e8, \"latency_us\": 9}}}");
    CHECK(cluster.kind_count == 2 && cluster.host_count == 2);
    CHECK(cluster.kinds[0].memory_bytes == 1 << 20 && cluster.kinds[1].memory_bytes == 1000000);
    CHECK(cluster.hosts[0].count == 3 && cluster.hosts[0].devices[0] == 2 &&
          cluster.hosts[0].devices[1] == 1);
    CHECK(cluster.hosts[1].count == 1 && cluster.hosts[1].devices[1] == 1);
    CHECK(cluster.between_hosts.bandwidth_bytes_per_s == 5e8 &&
          cluster.between_hosts.latency_us == 9);
    CHECK(cluster.inside_host.bandwidth_bytes_per_s == 1e10 && cluster.inside_host.latency_us == 2);
    /* The measured computers: two hosts, and the link between them. */
    struct error error;
    CHECK(partition_cluster_of_profile(profile, &cluster, &error) == ST_OK);
    CHECK(cluster.host_count == 2 && cluster.kind_count == 2 && cluster.hosts[1].devices[1] == 1);
    CHECK(cluster.between_hosts.bandwidth_bytes_per_s == 1e9 &&
          cluster.between_hosts.latency_us == 20);
    CHECK(strcmp(cluster.host_names[1], "b") == 0);
    /* A measurement beside busy devices is not another device. */
    strcpy(profile->devices[1].host, "a");
    profile->devices[1].busy_devices = 1;
    CHECK(partition_cluster_of_profile(profile, &cluster, &error) == ST_OK);
    CHECK(cluster.host_count == 1 && cluster.kind_count == 1 && cluster.hosts[0].devices[0] == 1);
    open_profile(profile_example);
}

static void faults(void)
{
    refused("{\"hosts\": [}", "c.json:1: unexpected token near '}'");
    refused("{\"host\": []}", "c.json: the file has an unknown key \"host\": want hosts links");
    refused("{\"hosts\": []}", "c.json: hosts = []: want a list of 1 to 16 kinds of hosts");
    refused("{\"hosts\": [{\"devices\": [" CPU "]}]}",
            "c.json: hosts[0].name is missing: want a text of 1 to 31 bytes");
    refused("{\"hosts\": [{\"name\": \"x\", \"devices\": [" CPU
            "]}, {\"name\": \"x\", \"devices\": [" CPU "]}]}",
            "c.json: hosts[1].name = \"x\": want a name that no other kind of host has");
    refused("{\"hosts\": [{\"name\": \"x\", \"count\": 0, \"devices\": [" CPU "]}]}",
            "c.json: hosts[0].count = 0: want a whole number from 1 to 64");
    refused("{\"hosts\": [{\"name\": \"x\", \"devices\": [" CPU ", {\"profile\": \"tpu\"}]}]}",
            "c.json: hosts[0].devices[1].profile = \"tpu\": want the name of a device in the "
            "profile: cpu-2, gpu");
    refused("{\"hosts\": [{\"name\": \"x\", \"devices\": [{\"profile\": \"gpu\", \"memory\": "
            "\"8GB\"}]}]}",
            "c.json: hosts[0].devices[0].memory = \"8GB\": want a size, such as \"8GiB\"");
    refused("{\"hosts\": [{\"name\": \"x\", \"devices\": [{\"profile\": \"gpu\", \"memory\": "
            "\"9999999TiB\"}]}]}",
            "c.json: hosts[0].devices[0].memory = \"9999999TiB\": want a size, such as \"8GiB\"");
    refused("{\"hosts\": [{\"name\": \"x\", \"devices\": [" CPU
            "]}], \"links\": {\"inside\": {\"latency_us\": 1}}}",
            "c.json: links.inside.bandwidth_bytes_per_s is missing: want a number from 1000 to "
            "1e+15");
    refused("{\"hosts\": [{\"name\": \"x\", \"count\": 2, \"devices\": [" CPU ", " CPU
            "]}], \"links\": {\"inside\": {\"bandwidth_bytes_per_s\": 1e9, \"latency_us\": 30}}}",
            "c.json: links.inside.latency_us is 30, links.between.latency_us 20: want no more "
            "inside");
}

static void missing_links(void)
{
    char text[sizeof(profile_example)];
    strcpy(text, profile_example);
    char *links = strstr(text, "\"links\": [");
    strcpy(links, "\"links\": []}");
    open_profile(text);
    refused("{\"hosts\": [{\"name\": \"x\", \"devices\": [" CPU ", " CPU "]}]}",
            "c.json: links.inside is missing: the profile has no link inside host a");
    refused("{\"hosts\": [{\"name\": \"x\", \"count\": 2, \"devices\": [" CPU "]}]}",
            "c.json: links.between is missing: the profile has no link between two hosts");
    /* A single device needs no links. */
    parse("{\"hosts\": [{\"name\": \"x\", \"devices\": [" CPU "]}]}");
    open_profile(profile_example);
}

static void sizes(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0}, {"1000", 1000}, {"3KiB", 3072}, {"2TiB", 2ull << 40}};
    static const char *bad[] = {"", "-1", "KiB", "1 KiB", "1kiB", "1KiBx", "99999999999TiB"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        CHECK(partition_size_parse(good[i].text, &bytes) && bytes == good[i].bytes);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECKF(!partition_size_parse(bad[i], &bytes), "\"%s\"", bad[i]);
}

/* ---- times and bytes ---- */

static bool near(double a, double b)
{
    return fabs(a - b) <= 0.004 * 1.5; /* 1.5 us: each of a few times is rounded to a nanosecond. */
}

static void one_stage(void)
{
    const struct profile_device *device = &profile->devices[0];
    parse("{\"hosts\": [{\"name\": \"x\", \"devices\": [" CPU "]}]}");
    struct partition_work work = prompt_work;
    work.prompt_tokens = work.micro_batch_tokens;
    solve(&work);
    CHECK(plan.stage_count == 1 && plan.devices == 1);
    CHECK(near((double)plan.stages[0].time_ns / 1e3,
               profile_stage_prompt_us(profile, device, 0, 3, 10, 0, 1)));
    CHECK(plan.latency_ns == plan.stages[0].time_ns);
    CHECK(plan.stages[0].bytes ==
          profile_stage_weight_bytes(profile, 0, 3) + 3ull * 3 * 16 * 132 + 50);
    /* 25 tokens are computed as 10 + 10 + 5: the time is their mean. Only the last piece is
     * sampled. */
    solve(&prompt_work);
    double sum = profile_stage_prompt_us(profile, device, 0, 3, 10, 0, 0) +
                 profile_stage_prompt_us(profile, device, 0, 3, 10, 10, 0) +
                 profile_stage_prompt_us(profile, device, 0, 3, 5, 20, 1);
    CHECK(costs.goal.micro_batches == 3 && fabs(costs.piece_tokens - 25.0 / 3) < 1e-9);
    CHECK(near((double)plan.stages[0].time_ns / 1e3, sum / 3));
    CHECK(plan.latency_ns == 3 * plan.stages[0].time_ns);
    work.is_prompt_phase = false;
    solve(&work);
    CHECK(near((double)plan.stages[0].time_ns / 1e3,
               profile_stage_token_us(profile, device, 0, 3, 2, 40)));
    CHECK(costs.goal.micro_batches == 1 && costs.boundary_bytes == 2 * 256);
}

/* Layers with a window share their memory with the others of their row: two layer groups have half
 * the bytes, and one row more where a stage may divide one. */
static void windows(void)
{
    char text[sizeof(profile_example) + 256];
    const char *at = strstr(profile_example, "\"tied\": true");
    uint64_t row = 3 * PARTITION_BLOCK_TOKENS * 132;
    parse("{\"hosts\": [{\"name\": \"x\", \"devices\": [" CPU "]}]}");
    partition_costs_of(profile, &cluster, &prompt_work, &costs);
    CHECK(costs.layer_bytes[0] == 1000 + row && costs.layer_bytes[2] == 1500 + row);
    CHECK(costs.problem.workspace_bytes == 50);
    CHECK(partition_block_bytes(profile) == 3 * PARTITION_BLOCK_TOKENS * 132);
    snprintf(text, sizeof(text),
             "%.*s\"layer_groups\": {\"count\": 2, \"windowed\": [0], \"window_tokens\": 20}, %s",
             (int)(at - profile_example), profile_example, at);
    open_profile(text);
    parse("{\"hosts\": [{\"name\": \"x\", \"devices\": [" CPU "]}]}");
    partition_costs_of(profile, &cluster, &prompt_work, &costs);
    CHECK(costs.layer_bytes[0] == 1000 && costs.layer_bytes[1] == 1000 + row &&
          costs.layer_bytes[2] == 1500);
    CHECK(costs.problem.workspace_bytes == 50 + row);
    CHECK(partition_block_bytes(profile) == 2 * PARTITION_BLOCK_TOKENS * 132);
    /* 100 tokens: 7 blocks of the full layers; of the windows, which keep up to 20 tokens, 3. */
    struct partition_work work = prompt_work;
    work.is_prompt_phase = false;
    work.context_tokens = 100;
    const struct partition_result result = {profile, &cluster, &work, &costs, &plan};
    solve(&work);
    CHECKF(partition_blocks_wanted(&result) == 2 * (7 + 3), "%" PRIu64,
           partition_blocks_wanted(&result));
    open_profile(profile_example);
}

static void links(void)
{
    parse("{\"hosts\": [{\"name\": \"x\", \"count\": 2, \"devices\": [" CPU ", " CPU "]}]}");
    struct partition_work work = prompt_work;
    work.stages = 2;
    work.limit_ms = 0.5;
    partition_costs_of(profile, &cluster, &work, &costs);
    CHECK(costs.goal.limit_ns == 500000);
    CHECK(costs.problem.inside_host.busy_ns == 213); /* 25 / 3 tokens of 256 bytes at 10 GB/s. */
    CHECK(costs.problem.inside_host.delay_ns == 2213 && costs.problem.return_inside_host_ns == 0);
    CHECK(costs.problem.between_hosts.busy_ns == 2133 &&
          costs.problem.between_hosts.delay_ns == 22133);
    work.is_prompt_phase = false;
    partition_costs_of(profile, &cluster, &work, &costs);
    CHECK(costs.problem.return_inside_host_ns == 2000 &&
          costs.problem.return_between_hosts_ns == 20000);
}

/* ---- what is shown ---- */

static void shows(const struct partition_work *work, const char *const *lines)
{
    char *text = NULL;
    size_t bytes = 0;
    const struct partition_result result = {profile, &cluster, work, &costs, &plan};
    FILE *file = open_memstream(&text, &bytes);
    CHECK(file != NULL);
    solve(work);
    partition_print(&result, file);
    fclose(file);
    const char *at = text;
    for (; *lines != NULL; lines++) {
        const char *found = strstr(at, *lines);
        CHECKF(found != NULL, "\"%s\" is not in, or not after what was wanted before it:\n%s",
               *lines, text);
        at = found + strlen(*lines);
    }
    free(text);
}

static void pictures(void)
{
    parse("{\"hosts\": [{\"name\": \"x\", \"count\": 2, \"devices\": [{\"profile\": \"cpu-2\", "
          "\"memory\": 15000}]}, {\"name\": \"y\", \"devices\": [{\"profile\": \"cpu-2\", "
          "\"count\": 2}]}]}");
    struct partition_work work = prompt_work;
    work.stages = 2;
    work.limit_ms = 9;
    shows(&work,
          (const char *const[]){
              "prompt: 25 tokens in 3 micro-batches of 10; 3 layers of tiny, 2 stages on 4 ",
              "0  0-1      y            2 x cpu-2      ", "= 41.4 us / 2", "14.8 KiB of 977 KiB\n",
              "║  between hosts", "2.1 us  2.1 KiB, there after 22.1 us\n",
              "1  2        x/0-1        2 x cpu-2 ", "< bottleneck\n", "bottleneck   ",
              "tokens/s\n",
              "bubble       25.0 % of a lone prompt's time: (S - 1) / (M + S - 1), S = 2, M = 3\n",
              "TTFT ", "and 2 more at a pace of ", ", limit 9 ms\n", NULL});
    work.is_prompt_phase = false;
    work.blocks = 2;
    shows(&work, (const char *const[]){"token: groups of 2 sequences of 40 tokens; ", "step  ",
                                       "full pipe    ", " of 2 in flight, ",
                                       "the machine 2: too few to fill the pipe\n", NULL});
}

static void json(void)
{
    const struct partition_result result = {profile, &cluster, &prompt_work, &costs, &plan};
    solve(&prompt_work);
    json_t *root = partition_json(&result);
    CHECK(root != NULL);
    json_t *stages = json_object_get(root, "stages");
    CHECK(json_array_size(stages) == plan.stage_count);
    const json_t *last = json_array_get(stages, plan.stage_count - 1);
    CHECK(json_object_get(last, "link") == NULL);
    CHECK(strcmp(json_string_value(json_object_get(last, "device")), "cpu") == 0);
    CHECK(json_integer_value(json_object_get(root, "micro_batches")) == 3);
    const json_t *config = json_object_get(root, "config_stages");
    CHECK(json_array_size(config) == plan.devices);
    char layers[24];
    snprintf(layers, sizeof(layers), "0-%u", plan.stages[0].end - 1);
    CHECK(strcmp(json_string_value(json_object_get(json_array_get(config, 0), "layers")), layers) ==
          0);
    CHECK(near(json_number_value(json_object_get(root, "latency_us")),
               (double)plan.latency_ns / 1e3));
    json_decref(root);
}

static void example(const char *path)
{
    char text[sizeof(profile_example) + 2];
    struct error error;
    const char *name = strstr(profile_example, "\"gpu\"");
    snprintf(text, sizeof(text), "%.*s\"cpu-1\"%s", (int)(name - profile_example), profile_example,
             name + 5);
    open_profile(text);
    CHECKF(partition_cluster_load(path, profile, &cluster, &error) == ST_OK, "%s", error.text);
    CHECK(cluster.host_count == 2 && cluster.kind_count == 2);
    CHECK(cluster.hosts[0].count == 2 && cluster.hosts[0].devices[0] == 4);
    open_profile(profile_example);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    open_profile(profile_example);
    clusters();
    faults();
    missing_links();
    sizes();
    one_stage();
    no_memory();
    windows();
    links();
    pictures();
    json();
    example(argv[1]);
    profile_close(profile);
    return 0;
}
