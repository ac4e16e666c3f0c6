/* machine_split: see the header. */
#include "tools/simulate/machine_split.h"

#include <stdlib.h>
#include <string.h>

#define WORKSPACE_BYTES (256ull << 20)
#define PROMPT_TOKENS   2048
#define CONTEXT_TOKENS  1024
#define GROUP_SEQUENCES 16

struct machine_split_goal machine_split_goal_default(bool prompt, uint32_t micro_batch,
                                                     uint64_t kv_bytes)
{
    return (struct machine_split_goal){.prompt = prompt,
                                       .prompt_tokens = PROMPT_TOKENS,
                                       .micro_batch = micro_batch,
                                       .context = CONTEXT_TOKENS,
                                       .batch = GROUP_SEQUENCES,
                                       .kv_bytes = kv_bytes};
}

static struct partition_work work_of(const struct hardware *hardware, const struct profile *profile,
                                     const struct machine_split_goal *goal)
{
    uint64_t block_bytes = partition_block_bytes(profile);
    return (struct partition_work){
        .is_prompt_phase = goal->prompt,
        .micro_batch_tokens = goal->micro_batch,
        .prompt_tokens = goal->prompt_tokens,
        .group_sequences = goal->batch > 0 ? goal->batch : 1,
        .context_tokens = goal->context,
        .blocks = block_bytes > 0 ? goal->kv_bytes / block_bytes : 0,
        .workspace_bytes =
            hardware->workspace_bytes > 0 ? hardware->workspace_bytes : WORKSPACE_BYTES,
        .replicas = true,
        .limit_ms = goal->limit_ms,
    };
}

static enum status solve(struct machine_split *s, struct error *error)
{
    struct partition *partition = NULL;
    partition_costs_of(s->result.profile, &s->cluster, &s->work, &s->costs);
    enum status status = partition_open(&s->costs.problem, &partition, error);
    if (status == ST_OK)
        status = partition_solve(partition, &s->costs.goal, &s->plan, error);
    partition_close(partition);
    return status;
}

static double tokens_per_ns(const struct machine_split *s)
{
    return s->costs.piece_tokens * s->plan.bottleneck.divisor / (double)s->plan.bottleneck.ns;
}

/* Doubles the number of sequences of a group while the limit is kept and the KV memory suffices,
 * and takes the number with the most tokens per second. */
static enum status batch_find(struct machine_split *s, uint32_t batch_most, struct error *error)
{
    struct error ignored;
    double best = tokens_per_ns(s);
    uint32_t best_batch = s->work.group_sequences;
    for (uint32_t batch = 2 * best_batch; batch <= batch_most; batch *= 2) {
        s->work.group_sequences = batch;
        if (solve(s, &ignored) != ST_OK || partition_blocks_wanted(&s->result) > s->work.blocks)
            break;
        if (tokens_per_ns(s) > best) {
            best = tokens_per_ns(s);
            best_batch = batch;
        }
    }
    s->work.group_sequences = best_batch;
    return solve(s, error);
}

/* Finds the split with each of the cluster's devices as it is. */
static enum status cluster_split(const struct hardware *hardware,
                                 const struct partition_cluster *cluster,
                                 const struct profile *profile,
                                 const struct machine_split_goal *goal, struct machine_split **out,
                                 struct error *error)
{
    struct machine_split *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    s->cluster = *cluster;
    s->work = work_of(hardware, profile, goal);
    s->device_link.bandwidth_bytes_per_s = cluster->inside_host.bandwidth_bytes_per_s;
    s->device_link.latency_us = cluster->inside_host.latency_us;
    s->result = (struct partition_result){profile, &s->cluster, &s->work, &s->costs, &s->plan};
    enum status status = solve(s, error);
    if (status == ST_NOT_FOUND && s->work.limit_ms > 0) {
        s->work.limit_ms = 0;
        status = solve(s, error);
    } else if (status == ST_OK && !goal->prompt && goal->batch == 0) {
        status = batch_find(s, goal->batch_max, error);
    }
    if (status != ST_OK) {
        error_prefix(error, "its layers on %s machines", goal->prompt ? "prompt" : "token");
        machine_split_close(s);
        return status;
    }
    *out = s;
    return ST_OK;
}

/* Replaces each `ranks` devices by one device of as many ranks, where the profile has it; devices
 * that are left over are not used. Returns false if the profile has no such device. Each rank needs
 * its own workspace. */
static bool ranks_join(const struct partition_cluster *cluster, const struct profile *profile,
                       uint64_t workspace_bytes, uint32_t ranks, struct partition_cluster *out)
{
    bool joined = false;
    *out = *cluster;
    for (uint32_t i = 0; i < cluster->kind_count; i++) {
        struct cluster_kind *kind = &out->kinds[i];
        const struct profile_device *device =
            kind->device->ranks == 1 ? profile_device_find_ranks(profile, kind->device, ranks)
                                     : NULL;
        if (device == NULL || cluster->hosts[0].devices[i] < ranks)
            continue;
        joined = true;
        kind->device = device;
        kind->memory_bytes *= ranks;
        kind->memory_bytes -= (ranks - 1) * (workspace_bytes < kind->memory_bytes / ranks
                                                 ? workspace_bytes
                                                 : kind->memory_bytes / ranks);
        out->hosts[0].devices[i] /= ranks;
    }
    return joined;
}

/* Returns true if the split is better for the goal: it alone keeps the limit, or it has more tokens
 * per second. */
static bool is_better(const struct machine_split *s, const struct machine_split *than,
                      const struct machine_split_goal *goal)
{
    const bool keeps = goal->limit_ms <= 0 || s->work.limit_ms > 0;
    const bool other_keeps = goal->limit_ms <= 0 || than->work.limit_ms > 0;
    return keeps != other_keeps ? keeps : tokens_per_ns(s) > tokens_per_ns(than);
}

enum status machine_split_find(const struct hardware *hardware,
                               const struct partition_cluster *cluster,
                               const struct profile *profile, const struct machine_split_goal *goal,
                               struct machine_split **out, struct error *error)
{
    struct partition_cluster joined;
    const uint64_t workspace = work_of(hardware, profile, goal).workspace_bytes;
    struct machine_split *best = NULL;
    enum status status = cluster_split(hardware, cluster, profile, goal, &best, error);
    for (uint32_t ranks = 2; ranks <= LIMIT_RANKS && status != ST_NO_MEMORY; ranks++) {
        struct machine_split *s = NULL;
        struct error ignored;
        if (!ranks_join(cluster, profile, workspace, ranks, &joined) ||
            cluster_split(hardware, &joined, profile, goal, &s, &ignored) != ST_OK)
            continue;
        if (best == NULL || is_better(s, best, goal)) {
            machine_split_close(best);
            best = s;
        } else {
            machine_split_close(s);
        }
    }
    if (best == NULL)
        return status;
    *out = best;
    return ST_OK;
}

void machine_split_close(struct machine_split *split)
{
    free(split);
}

bool machine_split_equals(const struct machine_split *a, const struct machine_split *b)
{
    bool equal = a->plan.stage_count == b->plan.stage_count;
    for (uint32_t i = 0; i < a->plan.stage_count && equal; i++) {
        const struct partition_stage *x = &a->plan.stages[i];
        const struct partition_stage *y = &b->plan.stages[i];
        equal = x->first == y->first && x->end == y->end && x->replicas == y->replicas &&
                a->cluster.kinds[x->kind].device == b->cluster.kinds[y->kind].device;
    }
    return equal;
}

void machine_split_cost(const struct machine_split *split, struct sim_cost *out)
{
    uint32_t device = 0;
    out->stage_link = &split->device_link;
    out->stage_count = split->plan.stage_count;
    for (uint32_t i = 0; i < split->plan.stage_count; i++) {
        const struct partition_stage *stage = &split->plan.stages[i];
        out->stages[i] = (struct sim_cost_stage){.first = stage->first,
                                                 .end = stage->end,
                                                 .first_device = device,
                                                 .replica_count = stage->replicas};
        for (uint32_t replica = 0; replica < stage->replicas; replica++, device++) {
            out->devices[device] = split->cluster.kinds[stage->kind].device;
            out->speeds[device] = 1;
        }
    }
}

uint32_t machine_split_threads(const struct machine_split *split)
{
    uint32_t threads = 0;
    for (uint32_t i = 0; i < split->plan.stage_count; i++) {
        const struct partition_stage *stage = &split->plan.stages[i];
        threads += stage->replicas * split->cluster.kinds[stage->kind].device->threads;
    }
    return threads;
}
