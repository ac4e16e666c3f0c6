/* partition_print: a line for each stage and for each link between stages, then the conclusions. A
 * bar shows the time that a stage or link needs for a piece, relative to the bottleneck. */
#include "tools/partition/print.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BAR_CELLS 24

static double bottleneck_us(const struct partition_plan *plan)
{
    return (double)plan->bottleneck.ns / plan->bottleneck.divisor / 1e3;
}

/* "1.2 GiB" */
static const char *bytes_text(double bytes, char out[16])
{
    static const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    for (; bytes >= 1000 && unit < 5; unit++)
        bytes /= 1024;
    snprintf(out, 16, unit > 0 && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

/* "12.3 ms" */
static const char *time_text(double us, char out[16])
{
    if (us < 1000)
        snprintf(out, 16, "%.1f us", us);
    else if (us < 1e6)
        snprintf(out, 16, us < 1e4 ? "%.2f ms" : "%.1f ms", us / 1e3);
    else
        snprintf(out, 16, "%.2f s", us / 1e6);
    return out;
}

static void print_bar(FILE *out, double part)
{
    int full = (int)lround(part * BAR_CELLS);
    full = full < 0 ? 0 : full > BAR_CELLS ? BAR_CELLS : full;
    for (int i = 0; i < BAR_CELLS; i++)
        fputs(i < full ? "█" : "·", out);
}

static const struct partition_link *link_after(const struct partition_result *r, uint32_t i)
{
    return r->plan->stages[i].next_on_other_host ? &r->costs->problem.between_hosts
                                                 : &r->costs->problem.inside_host;
}

static bool is_bottleneck(const struct partition_plan *plan, uint64_t ns, uint32_t over)
{
    return partition_interval_compare((struct partition_interval){ns, over}, plan->bottleneck) == 0;
}

/* "0-9" */
static const char *layers_text(const struct partition_stage *stage, char out[24])
{
    if (stage->end - stage->first == 1)
        snprintf(out, 24, "%u", stage->first);
    else
        snprintf(out, 24, "%u-%u", stage->first, stage->end - 1);
    return out;
}

/* "a/3": the fourth of the hosts named a. "a/0-2": several hosts. "a": the only one. */
static void host_text(const struct partition_result *r, const struct partition_stage *stage,
                      char *out, size_t size)
{
    const char *name = r->cluster->host_names[stage->host_kind];
    if (r->cluster->hosts[stage->host_kind].count == 1)
        snprintf(out, size, "%s", name);
    else if (stage->host_count == 1)
        snprintf(out, size, "%s/%u", name, stage->host);
    else
        snprintf(out, size, "%s/%u-%u", name, stage->host, stage->host + stage->host_count - 1);
}

static void print_stage(const struct partition_result *r, uint32_t i, FILE *out)
{
    const struct partition_stage *stage = &r->plan->stages[i];
    const struct cluster_kind *kind = &r->cluster->kinds[stage->kind];
    double us = (double)stage->time_ns / 1e3 / stage->replicas;
    char layers[24], host[LIMIT_ADDRESS_BYTES + 24], devices[64], time[16], used[16], memory[16];
    host_text(r, stage, host, sizeof(host));
    snprintf(devices, sizeof(devices), "%u x %s", stage->replicas, kind->device->name);
    fprintf(out, "  %5u  %-8s %-12s %-14s ", i, layers_text(stage, layers), host, devices);
    print_bar(out, us / bottleneck_us(r->plan));
    fprintf(out, " %9s", time_text(us, time));
    if (stage->replicas > 1)
        fprintf(out, " = %s / %u", time_text((double)stage->time_ns / 1e3, time), stage->replicas);
    fprintf(out, "  %s of %s%s\n", bytes_text((double)stage->bytes, used),
            bytes_text((double)kind->memory_bytes, memory),
            is_bottleneck(r->plan, stage->time_ns, stage->replicas) ? "  < bottleneck" : "");
}

static void print_link(const struct partition_result *r, uint32_t i, FILE *out)
{
    const struct partition_link *link = link_after(r, i);
    char time[16], bytes[16];
    bool between = r->plan->stages[i].next_on_other_host;
    fprintf(out, "      %s  %-36s ", between ? "║" : "│",
            between ? "between hosts" : "inside the host");
    print_bar(out, (double)link->busy_ns / 1e3 / bottleneck_us(r->plan));
    fprintf(out, " %9s  %s", time_text((double)link->busy_ns / 1e3, time),
            bytes_text(r->costs->boundary_bytes, bytes));
    fprintf(out, ", there after %s%s\n", time_text((double)link->delay_ns / 1e3, time),
            is_bottleneck(r->plan, link->busy_ns, 1) ? "  < bottleneck" : "");
}

static double bubble(const struct partition_result *r)
{
    double stages = r->plan->stage_count;
    return (stages - 1) / (r->costs->goal.micro_batches + stages - 1);
}

/* Groups of sequences that must be in flight to keep the slowest stage or link busy. */
static uint64_t groups_of(const struct partition_plan *plan)
{
    uint64_t over = plan->bottleneck.divisor;
    return (plan->latency_ns * over + plan->bottleneck.ns - 1) / plan->bottleneck.ns;
}

static double tokens_per_s(const struct partition_result *r)
{
    return r->costs->piece_tokens / bottleneck_us(r->plan) * 1e6;
}

static void print_limit(const struct partition_result *r, FILE *out)
{
    if (r->work->limit_ms > 0)
        fprintf(out, ", limit %g ms", r->work->limit_ms);
    fputc('\n', out);
}

static void print_prompt(const struct partition_result *r, FILE *out)
{
    char time[16];
    uint32_t pieces = r->costs->goal.micro_batches;
    fprintf(
        out,
        "  bubble       %.1f %% of a lone prompt's time: (S - 1) / (M + S - 1), S = %u, M = %u\n",
        100 * bubble(r), r->plan->stage_count, pieces);
    fprintf(out, "  TTFT         %s of a lone prompt: once through, and %u more at a pace of ",
            time_text((double)r->plan->latency_ns / 1e3, time), pieces - 1);
    fprintf(out, "%s", time_text((double)r->plan->pace_ns / 1e3, time));
    print_limit(r, out);
}

uint64_t partition_blocks_wanted(const struct partition_result *r)
{
    const struct layer_groups *groups = &r->profile->model.groups;
    uint64_t each = layer_groups_blocks(
        groups, layer_groups_spans(r->work->context_tokens + 1, PARTITION_BLOCK_TOKENS),
        layer_groups_spans_kept(groups, PARTITION_BLOCK_TOKENS, 1));
    return groups_of(r->plan) * r->work->group_sequences * each;
}

static void print_token(const struct partition_result *r, FILE *out)
{
    char time[16];
    uint64_t groups = groups_of(r->plan);
    uint64_t wanted = partition_blocks_wanted(r);
    fprintf(out, "  step         %s of one group",
            time_text((double)r->plan->latency_ns / 1e3, time));
    print_limit(r, out);
    fprintf(out,
            "  full pipe    %" PRIu64 " group%s of %u in flight, %s between a stream's tokens\n",
            groups, groups == 1 ? "" : "s", r->work->group_sequences,
            time_text((double)groups * bottleneck_us(r->plan), time));
    fprintf(out,
            "  KV           they have %" PRIu64 " blocks of %u tokens, the machine %" PRIu64 "%s\n",
            wanted, PARTITION_BLOCK_TOKENS, r->work->blocks,
            wanted > r->work->blocks ? ": too few to fill the pipe" : "");
}

void partition_print(const struct partition_result *r, FILE *out)
{
    const struct partition_plan *plan = r->plan;
    char time[16];
    if (r->work->is_prompt_phase)
        fprintf(out, "prompt: %u tokens in %u micro-batch%s of %u", r->work->prompt_tokens,
                r->costs->goal.micro_batches, r->costs->goal.micro_batches > 1 ? "es" : "",
                r->work->micro_batch_tokens);
    else
        fprintf(out, "token: groups of %u sequences of %u tokens", r->work->group_sequences,
                r->work->context_tokens);
    fprintf(out, "; %u layers of %s, %u stage%s on %u device%s\n\n", r->profile->model.layer_count,
            r->profile->model.name, plan->stage_count, plan->stage_count > 1 ? "s" : "",
            plan->devices, plan->devices > 1 ? "s" : "");
    fprintf(out, "  stage  layers   host         devices        %-*s a piece each  memory\n",
            BAR_CELLS, "busy");
    for (uint32_t i = 0; i < plan->stage_count; i++) {
        print_stage(r, i, out);
        if (i + 1 < plan->stage_count)
            print_link(r, i, out);
    }
    fprintf(out, "\n  bottleneck   %s a piece: %.0f tokens/s\n",
            time_text(bottleneck_us(plan), time), tokens_per_s(r));
    if (r->work->is_prompt_phase)
        print_prompt(r, out);
    else
        print_token(r, out);
}

/* ---- JSON ---- */

/* Returns the JSON if it is complete; otherwise frees it, and returns NULL. */
static json_t *complete(json_t *json, bool good)
{
    if (good)
        return json;
    json_decref(json);
    return NULL;
}

json_t *partition_config(const struct partition_result *r)
{
    json_t *list = json_array();
    bool good = list != NULL;
    char layers[24];
    for (uint32_t i = 0; i < r->plan->stage_count; i++) {
        const struct partition_stage *stage = &r->plan->stages[i];
        const struct profile_device *device = r->cluster->kinds[stage->kind].device;
        snprintf(layers, sizeof(layers), "%u-%u", stage->first, stage->end - 1);
        for (uint32_t replica = 0; replica < stage->replicas; replica++) {
            json_t *entry = json_pack("{s:s, s:I, s:s}", "device", device->kind, "threads",
                                      (json_int_t)device->threads, "layers", layers);
            if (device->ranks > 1)
                good &= json_object_set_new(entry, "tensor_parallel",
                                            json_integer((json_int_t)device->ranks)) == 0;
            good &= json_array_append_new(list, entry) == 0;
        }
    }
    return complete(list, good);
}

static json_t *stage_json(const struct partition_result *r, uint32_t i)
{
    const struct partition_stage *stage = &r->plan->stages[i];
    const struct profile_device *device = r->cluster->kinds[stage->kind].device;
    char layers[24];
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:I, s:I, s:f, s:I, s:I}", "layers",
                  layers_text(stage, layers), "profile", device->name, "device", device->kind,
                  "threads", (json_int_t)device->threads, "replicas", (json_int_t)stage->replicas,
                  "hosts", r->cluster->host_names[stage->host_kind], "host",
                  (json_int_t)stage->host, "host_count", (json_int_t)stage->host_count, "time_us",
                  (double)stage->time_ns / 1e3, "bytes", (json_int_t)stage->bytes, "memory_bytes",
                  (json_int_t)r->cluster->kinds[stage->kind].memory_bytes);
    if (json == NULL || i + 1 == r->plan->stage_count)
        return json;
    const struct partition_link *link = link_after(r, i);
    json_t *after =
        json_pack("{s:s, s:f, s:f}", "kind", stage->next_on_other_host ? "between" : "inside",
                  "busy_us", (double)link->busy_ns / 1e3, "delay_us", (double)link->delay_ns / 1e3);
    return complete(json, json_object_set_new(json, "link", after) == 0);
}

json_t *partition_json(const struct partition_result *r)
{
    json_t *stages = json_array();
    bool good = stages != NULL;
    for (uint32_t i = 0; i < r->plan->stage_count; i++)
        good &= json_array_append_new(stages, stage_json(r, i)) == 0;
    json_t *json =
        json_pack("{s:s, s:o, s:f, s:f, s:f, s:f, s:I}", "phase",
                  r->work->is_prompt_phase ? "prompt" : "token", "stages", stages, "bottleneck_us",
                  bottleneck_us(r->plan), "tokens_per_s", tokens_per_s(r), "latency_us",
                  (double)r->plan->latency_ns / 1e3, "pace_us", (double)r->plan->pace_ns / 1e3,
                  "devices", (json_int_t)r->plan->devices);
    if (json == NULL)
        return NULL;
    good &= json_object_set_new(json, "config_stages", partition_config(r)) == 0;
    if (r->work->limit_ms > 0)
        good &= json_object_set_new(json, "limit_us", json_real(r->work->limit_ms * 1e3)) == 0;
    if (r->work->is_prompt_phase) {
        json_t *batches = json_integer(r->costs->goal.micro_batches);
        good &= json_object_set_new(json, "micro_batches", batches) == 0;
        good &= json_object_set_new(json, "bubble", json_real(bubble(r))) == 0;
    } else {
        json_t *groups = json_integer((json_int_t)groups_of(r->plan));
        good &= json_object_set_new(json, "groups", groups) == 0;
    }
    return complete(json, good);
}
