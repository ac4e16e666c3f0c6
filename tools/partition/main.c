#include "tools/partition/main.h"

#include "common/options.h"
#include "tools/partition/print.h"

#include <string.h>

#define KV_MEMORY "512MiB" /* Default of kv/memory. */

struct options {
    const char *profile;
    const char *cluster;
    const char *phase; /* NULL = both. */
    uint64_t stages;
    uint64_t micro_batch;
    uint64_t prompt;
    uint64_t batch;
    uint64_t context;
    double ttft_ms;
    double tbt_ms;
    uint64_t blocks; /* 0 = as many as fit kv_bytes. */
    const char *kv_memory;
    const char *workspace;
    uint64_t kv_bytes;
    uint64_t workspace_bytes;
    bool no_replicas;
    bool json;
};

#define FIELD(member) offsetof(struct options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, value, type, field, lowest, highest, choices, default, help */
    {"profile", "FILE", OPTION_TEXT, FIELD(profile), 0, 0, {NULL}, NULL, "profile, written by cleave profile; required"},
    {"cluster", "FILE", OPTION_TEXT, FIELD(cluster), 0, 0, {NULL}, NULL, "hosts and their devices, see docs/partitioning.md (default: the hosts of the profile)"},
    {"phase", "PHASE", OPTION_TEXT, FIELD(phase), 0, 0, {"prompt", "token"}, NULL, "plan only this phase"},
    {"stages", "N", OPTION_WHOLE, FIELD(stages), 1, LIMIT_LAYERS, {NULL}, NULL, "use exactly N stages (default: the best number)"},
    {"micro-batch", "N", OPTION_WHOLE, FIELD(micro_batch), 1, LIMIT_BATCH_TOKENS, {NULL}, "512", "prompt tokens that go through the stages at a time"},
    {"prompt", "N", OPTION_WHOLE, FIELD(prompt), 1, LIMIT_CONTEXT_TOKENS, {NULL}, "2048", "tokens of a prompt"},
    {"batch", "N", OPTION_WHOLE, FIELD(batch), 1, LIMIT_BATCH_SEQUENCES, {NULL}, "16", "sequences of a token batch"},
    {"context", "N", OPTION_WHOLE, FIELD(context), 0, LIMIT_CONTEXT_TOKENS, {NULL}, "1024", "context tokens of each sequence"},
    {"ttft", "MS", OPTION_REAL, FIELD(ttft_ms), 0.001, 1e9, {NULL}, NULL, "longest time to the first token of a prompt (default: no limit)"},
    {"tbt", "MS", OPTION_REAL, FIELD(tbt_ms), 0.001, 1e9, {NULL}, NULL, "longest decode step (default: no limit)"},
    {"blocks", "N", OPTION_WHOLE, FIELD(blocks), 1, 1e9, {NULL}, NULL, "KV blocks of 16 tokens of the machine (default: as many as fit --kv-memory)"},
    {"kv-memory", "SIZE", OPTION_TEXT, FIELD(kv_memory), 0, 0, {NULL}, NULL, "KV memory of all stages together (default: " KV_MEMORY ")"},
    {"workspace", "SIZE", OPTION_TEXT, FIELD(workspace), 0, 0, {NULL}, "256MiB", "memory that a device needs besides weights and KV"},
    {"no-replicas", NULL, OPTION_FLAG, FIELD(no_replicas), 0, 0, {NULL}, NULL, "use one device per stage"},
    {"json", NULL, OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL, "print the plans as JSON"},
};
/* clang-format on */

static enum status size_set(const char *name, const char *text, uint64_t *out, struct error *error)
{
    if (partition_size_parse(text, out) && *out <= 1ull << 50)
        return ST_OK;
    return error_set(error, ST_USAGE, "--%s = \"%.60s\": want a size, such as \"512MiB\"", name,
                     text);
}

static enum status check(void *out, struct error *error)
{
    struct options *o = out;
    if (o->profile == NULL)
        return error_set(error, ST_USAGE, "--profile FILE is missing");
    if (o->blocks > 0 && o->kv_memory != NULL)
        return error_set(error, ST_USAGE, "--blocks and --kv-memory: want one of them");
    enum status status =
        size_set("kv-memory", o->kv_memory != NULL ? o->kv_memory : KV_MEMORY, &o->kv_bytes, error);
    return status == ST_OK ? size_set("workspace", o->workspace, &o->workspace_bytes, error)
                           : status;
}

static const struct option_table table = {
    .command = "partition",
    .usage = "--profile FILE [--option value]…",
    .about = "Splits the layers of a model over devices. Without a limit on the latency, it looks "
             "for the highest\nthroughput; with a limit, for the highest throughput within the "
             "limit. docs/partitioning.md describes\nthe cost model.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .check = check};

static struct partition_work work_of(const struct options *o, const struct profile *profile,
                                     bool prompt)
{
    uint64_t block_bytes = partition_block_bytes(profile);
    uint64_t blocks = o->blocks;
    if (blocks == 0 && block_bytes > 0)
        blocks = o->kv_bytes / block_bytes;
    return (struct partition_work){.is_prompt_phase = prompt,
                                   .micro_batch_tokens = (uint32_t)o->micro_batch,
                                   .prompt_tokens = (uint32_t)o->prompt,
                                   .group_sequences = (uint32_t)o->batch,
                                   .context_tokens = (uint32_t)o->context,
                                   .blocks = blocks,
                                   .workspace_bytes = o->workspace_bytes,
                                   .stages = (uint32_t)o->stages,
                                   .replicas = !o->no_replicas,
                                   .limit_ms = prompt ? o->ttft_ms : o->tbt_ms};
}

/* Makes the plan of one phase, and prints it or appends it to `plans`. */
static enum status solve(const struct partition_work *work, const struct profile *profile,
                         const struct partition_cluster *cluster, json_t *plans,
                         struct error *error)
{
    static struct partition_costs costs;
    static struct partition_plan plan;
    struct partition *partition = NULL;
    partition_costs_of(profile, cluster, work, &costs);
    enum status status = partition_open(&costs.problem, &partition, error);
    if (status == ST_OK)
        status = partition_solve(partition, &costs.goal, &plan, error);
    partition_close(partition);
    if (status != ST_OK) {
        error_prefix(error, "%s", work->is_prompt_phase ? "prompt" : "token");
        return status;
    }
    const struct partition_result result = {profile, cluster, work, &costs, &plan};
    if (plans == NULL)
        partition_print(&result, stdout);
    else
        status = json_array_append_new(plans, partition_json(&result)) == 0 ? ST_OK : ST_NO_MEMORY;
    return status;
}

static int solve_phases(const struct options *o, const struct profile *profile,
                        const struct partition_cluster *cluster)
{
    int exit_status = 0;
    json_t *plans = o->json ? json_array() : NULL;
    for (int prompt = 1; prompt >= 0; prompt--) {
        struct error error = {""};
        if (o->phase != NULL && strcmp(o->phase, prompt ? "prompt" : "token") != 0)
            continue;
        struct partition_work work = work_of(o, profile, prompt);
        if (!prompt && o->phase == NULL && !o->json)
            printf("\n");
        enum status status = solve(&work, profile, cluster, plans, &error);
        if (status != ST_OK)
            exit_status = options_fail(&table, status, &error);
    }
    if (plans == NULL)
        return exit_status;
    json_t *root = json_pack("{s:s, s:o}", "model", profile->model.name, "plans", plans);
    bool written =
        root != NULL && json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) == 0;
    printf("\n");
    /* main.c reports an error of standard output. */
    if (!written && !ferror(stdout))
        exit_status = options_fail(&table, ST_NO_MEMORY, &(struct error){""});
    json_decref(root);
    return exit_status;
}

int partition_main(int argc, char **argv)
{
    static struct partition_cluster cluster;
    struct options options = {.profile = NULL};
    struct error error = {""};
    struct profile *profile = NULL;
    int exit_status = options_start(&table, argc, argv, &options);
    if (exit_status >= 0)
        return exit_status;
    enum status status = profile_load(options.profile, &profile, &error);
    if (status == ST_OK)
        status = options.cluster != NULL
                     ? partition_cluster_load(options.cluster, profile, &cluster, &error)
                     : partition_cluster_of_profile(profile, &cluster, &error);
    exit_status = status == ST_OK ? solve_phases(&options, profile, &cluster)
                                  : options_fail(&table, status, &error);
    profile_close(profile);
    return exit_status;
}
