#include "simulator/partition_main.h"

#include "common/options.h"
#include "simulator/partition_print.h"

#include <string.h>

#define KV_BYTES  (512ull << 20) /* Default of kv/memory. */
#define WORKSPACE (256ull << 20)

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
    bool help;
};

#define FIELD(member) offsetof(struct options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, type, field, lowest, highest, choices, default, help */
    {"profile", OPTION_TEXT, FIELD(profile), 0, 0, {NULL}, NULL, "FILE  what `cleave profile` has written"},
    {"cluster", OPTION_TEXT, FIELD(cluster), 0, 0, {NULL}, NULL, "FILE  hosts and their devices (docs/partitioning.md); without: those of the profile"},
    {"phase", OPTION_TEXT, FIELD(phase), 0, 0, {NULL}, NULL, "prompt or token; without: a plan for each"},
    {"stages", OPTION_WHOLE, FIELD(stages), 1, LIMIT_LAYERS, {NULL}, NULL, "so many exactly; without: as many as are best"},
    {"micro-batch", OPTION_WHOLE, FIELD(micro_batch), 1, LIMIT_BATCH_TOKENS, {NULL}, NULL, "tokens of a prompt that go through the stages at a time (512)"},
    {"prompt", OPTION_WHOLE, FIELD(prompt), 1, LIMIT_CONTEXT_TOKENS, {NULL}, NULL, "tokens of a prompt (2048)"},
    {"batch", OPTION_WHOLE, FIELD(batch), 1, LIMIT_BATCH_SEQUENCES, {NULL}, NULL, "sequences of a group (16)"},
    {"context", OPTION_WHOLE, FIELD(context), 0, LIMIT_CONTEXT_TOKENS, {NULL}, NULL, "tokens that each of them has (1024)"},
    {"ttft", OPTION_REAL, FIELD(ttft_ms), 0.001, 1e9, {NULL}, NULL, "MS  a prompt's first token has to be there; without: no limit"},
    {"tbt", OPTION_REAL, FIELD(tbt_ms), 0.001, 1e9, {NULL}, NULL, "MS  a step may take so long; without: no limit"},
    {"blocks", OPTION_WHOLE, FIELD(blocks), 1, 1e9, {NULL}, NULL, "KV blocks of 16 tokens that the machine has"},
    {"kv-memory", OPTION_TEXT, FIELD(kv_memory), 0, 0, {NULL}, NULL, "SIZE  or how much memory they take in all stages together (512MiB)"},
    {"workspace", OPTION_TEXT, FIELD(workspace), 0, 0, {NULL}, NULL, "SIZE  what a device needs besides weights and KV (256MiB)"},
    {"no-replicas", OPTION_FLAG, FIELD(no_replicas), 0, 0, {NULL}, NULL, "one device a stage"},
    {"json", OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL, "the plans as JSON"},
    {"help", OPTION_FLAG, FIELD(help), 0, 0, {NULL}, NULL, "this text"},
};
/* clang-format on */

static const struct option_table table = {.entries = entries,
                                          .count = sizeof(entries) / sizeof(entries[0])};

static int usage(FILE *out)
{
    fprintf(out,
            "usage: cleave partition --profile FILE [--option value]…\n\n"
            "Splits the layers of a model over devices: the least time between two pieces of "
            "work, within\na limit of the latency. docs/partitioning.md says by which model.\n\n");
    options_help(&table, out);
    return out == stdout ? 0 : 2;
}

/* Parses a size; NULL = not given, *out stays. */
static enum status size_set(const char *name, const char *text, uint64_t *out, struct error *error)
{
    if (text == NULL || (partition_size_parse(text, out) && *out <= 1ull << 50))
        return ST_OK;
    return error_set(error, ST_INVALID, "--%s = \"%.60s\": want a size, such as \"512MiB\"", name,
                     text);
}

static enum status options_parse(int argc, char **argv, struct options *o, struct error *error)
{
    *o = (struct options){.micro_batch = 512,
                          .prompt = 2048,
                          .batch = 16,
                          .context = 1024,
                          .kv_bytes = KV_BYTES,
                          .workspace_bytes = WORKSPACE};
    enum status status = options_read(&table, argc, argv, o, error);
    if (status != ST_OK || o->help)
        return status;
    if (o->profile == NULL)
        return error_set(error, ST_INVALID, "--profile FILE is missing");
    if (o->phase != NULL && strcmp(o->phase, "prompt") != 0 && strcmp(o->phase, "token") != 0)
        return error_set(error, ST_INVALID, "--phase = \"%s\": want prompt or token", o->phase);
    if (o->blocks > 0 && o->kv_memory != NULL)
        return error_set(error, ST_INVALID, "--blocks and --kv-memory: want one of them");
    status = size_set("kv-memory", o->kv_memory, &o->kv_bytes, error);
    return status == ST_OK ? size_set("workspace", o->workspace, &o->workspace_bytes, error)
                           : status;
}

static struct partition_work work_of(const struct options *o, const struct profile *profile,
                                     bool prompt)
{
    uint64_t block_bytes =
        PARTITION_BLOCK_TOKENS * profile->model.kv_bytes_per_token * profile->model.layer_count;
    uint64_t blocks = o->blocks;
    if (blocks == 0 && block_bytes > 0)
        blocks = o->kv_bytes / block_bytes;
    return (struct partition_work){.prompt = prompt,
                                   .micro_batch = (uint32_t)o->micro_batch,
                                   .prompt_tokens = (uint32_t)o->prompt,
                                   .batch = (uint32_t)o->batch,
                                   .context = (uint32_t)o->context,
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
        error_prefix(error, "%s", work->prompt ? "prompt" : "token");
        return status;
    }
    const struct partition_result result = {profile, cluster, work, &costs, &plan};
    if (plans == NULL)
        partition_print(&result, stdout);
    else
        json_array_append_new(plans, partition_json(&result));
    return ST_OK;
}

static int solve_phases(const struct options *o, const struct profile *profile,
                        const struct partition_cluster *cluster)
{
    int exit_status = 0;
    json_t *plans = o->json ? json_array() : NULL;
    for (int prompt = 1; prompt >= 0; prompt--) {
        struct error error;
        if (o->phase != NULL && strcmp(o->phase, prompt ? "prompt" : "token") != 0)
            continue;
        struct partition_work work = work_of(o, profile, prompt);
        if (!prompt && o->phase == NULL && !o->json)
            printf("\n");
        if (solve(&work, profile, cluster, plans, &error) != ST_OK) {
            fprintf(stderr, "cleave partition: %s\n", error.text);
            exit_status = 1;
        }
    }
    if (plans == NULL)
        return exit_status;
    json_t *root = json_pack("{s:s, s:o}", "model", profile->model.name, "plans", plans);
    if (root == NULL || json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) != 0)
        exit_status = 2;
    printf("\n");
    json_decref(root);
    return exit_status;
}

int partition_main(int argc, char **argv)
{
    static struct partition_cluster cluster;
    struct options options;
    struct error error;
    struct profile *profile = NULL;
    enum status status = options_parse(argc, argv, &options, &error);
    if (status == ST_OK && options.help)
        return usage(stdout);
    if (status == ST_OK)
        status = profile_load(options.profile, &profile, &error);
    if (status == ST_OK)
        status = options.cluster != NULL
                     ? partition_cluster_load(options.cluster, profile, &cluster, &error)
                     : partition_cluster_of_profile(profile, &cluster, &error);
    if (status != ST_OK) {
        fprintf(stderr, "cleave partition: %s\n", error.text);
        profile_close(profile);
        return 2;
    }
    int exit_status = solve_phases(&options, profile, &cluster);
    profile_close(profile);
    return exit_status;
}
