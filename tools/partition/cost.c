#include "tools/partition/cost.h"

#include <math.h>
#include <string.h>

static uint64_t ns_of(double us)
{
    double ns = us * 1e3;
    return ns < 1e18 ? (uint64_t)llround(ns) : UINT64_MAX; /* Larger times are refused later. */
}

static uint32_t pieces_of(const struct partition_work *work)
{
    return (work->prompt_tokens + work->micro_batch_tokens - 1) / work->micro_batch_tokens;
}

static double piece_tokens(const struct partition_work *work, uint32_t piece)
{
    uint32_t before = piece * work->micro_batch_tokens;
    uint32_t left = work->prompt_tokens - before;
    return left < work->micro_batch_tokens ? left : work->micro_batch_tokens;
}

static double layer_us(const struct profile *profile, const struct profile_device *device,
                       const struct partition_work *work, uint32_t layer)
{
    if (!work->is_prompt_phase)
        return profile_token_us(profile, device, layer, layer + 1, work->group_sequences,
                                work->context_tokens);
    double sum = 0;
    for (uint32_t i = 0; i < pieces_of(work); i++)
        sum += profile_prompt_us(profile, device, layer, layer + 1, piece_tokens(work, i),
                                 (double)i * work->micro_batch_tokens);
    return sum / pieces_of(work);
}

static void fill_kind(const struct profile *profile, const struct partition_work *work,
                      const struct cluster_kind *from, uint64_t *layer_ns,
                      struct partition_kind *kind)
{
    const struct profile_device *device = from->device;
    uint32_t layers = profile->model.layer_count;
    for (uint32_t i = 0; i < layers; i++) {
        bool same = i > 0 && i + 1 < layers && device->layer_count == 1;
        layer_ns[i] = same ? layer_ns[i - 1] : ns_of(layer_us(profile, device, work, i));
        layer_ns[i] += layer_ns[i] == 0;
    }
    double first_us = profile_curve_us(&device->embedding, work->group_sequences);
    double last_us = profile_curve_us(&device->vocabulary, work->group_sequences);
    if (work->is_prompt_phase) {
        first_us = 0;
        for (uint32_t i = 0; i < pieces_of(work); i++)
            first_us +=
                profile_curve_us(&device->embedding, piece_tokens(work, i)) / pieces_of(work);
        last_us = profile_curve_us(&device->vocabulary, 1) / pieces_of(work);
    }
    *kind = (struct partition_kind){.name = device->name,
                                    .layer_ns = layer_ns,
                                    .stage_ns = ns_of(device->batch_us),
                                    .first_ns = ns_of(first_us),
                                    .last_ns = ns_of(last_us),
                                    .memory_bytes = from->memory_bytes};
}

static struct partition_link link_of(const struct cluster_link *link, double bytes)
{
    double busy_us =
        link->bandwidth_bytes_per_s > 0 ? bytes / link->bandwidth_bytes_per_s * 1e6 : 0;
    return (struct partition_link){ns_of(busy_us), ns_of(link->latency_us + busy_us)};
}

uint64_t partition_block_bytes(const struct profile *profile)
{
    return PARTITION_BLOCK_TOKENS * profile_kv_block_token_bytes(profile);
}

void partition_costs_of(const struct profile *profile, const struct partition_cluster *cluster,
                        const struct partition_work *work, struct partition_costs *out)
{
    uint32_t pieces = work->is_prompt_phase ? pieces_of(work) : 1;
    memset(out, 0, sizeof(*out));
    out->goal = (struct partition_goal){.micro_batches = pieces, .limit_ns = PARTITION_NO_LIMIT};
    if (work->limit_ms > 0)
        out->goal.limit_ns = ns_of(work->limit_ms * 1e3);
    out->piece_tokens =
        work->is_prompt_phase ? (double)work->prompt_tokens / pieces : work->group_sequences;
    out->boundary_bytes = out->piece_tokens * (double)profile->model.boundary_bytes_per_token;
    /* A block has a layer of each layer group in a row, so the last layer of a row counts for all
     * of them, and a row that the stage's end divides counts as part of the workspace. */
    uint64_t row_bytes = work->blocks * PARTITION_BLOCK_TOKENS * profile->model.kv_bytes_per_token;
    uint32_t groups = layer_groups_count(&profile->model.groups);
    for (uint32_t i = 0; i < profile->model.layer_count; i++)
        out->layer_bytes[i] =
            profile->model.layer_weight_bytes[i] + ((i + 1) % groups == 0 ? row_bytes : 0);
    for (uint32_t k = 0; k < cluster->kind_count; k++)
        fill_kind(profile, work, &cluster->kinds[k], out->layer_ns[k], &out->kinds[k]);
    out->problem = (struct partition_problem){
        .layer_count = profile->model.layer_count,
        .layer_bytes = out->layer_bytes,
        .first_bytes = profile->model.embedding_bytes,
        .last_bytes = profile->model.vocabulary_bytes,
        .shared_bytes = profile_tied_bytes(profile),
        .workspace_bytes = work->workspace_bytes + (groups > 1 ? row_bytes : 0),
        .kind_count = cluster->kind_count,
        .kinds = out->kinds,
        .host_count = cluster->host_count,
        .hosts = cluster->hosts,
        .inside_host = link_of(&cluster->inside_host, out->boundary_bytes),
        .between_hosts = link_of(&cluster->between_hosts, out->boundary_bytes),
        .return_inside_host_ns = work->is_prompt_phase ? 0 : ns_of(cluster->inside_host.latency_us),
        .return_between_hosts_ns =
            work->is_prompt_phase ? 0 : ns_of(cluster->between_hosts.latency_us),
        .stage_count = work->stages,
        .replicas = work->replicas,
        .paths_max = LIMIT_STAGE_PATHS,
    };
}
