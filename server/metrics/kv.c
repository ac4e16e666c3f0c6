/* metrics_kv: KV memory, by the state of its blocks and by the kind of layers that keep KV there,
 * and the KV bytes that were written to token machines, by the kind of their layers. */
#include "server/metrics/internal.h"

#include <assert.h>

static const char *const states[] = {"free", "reserved", "filling",
                                     "live", "cached",   "quarantined"};
static_assert(sizeof(states) / sizeof(states[0]) ==
                  sizeof(((struct message_stats *)0)->kv_blocks) / sizeof(uint32_t),
              "a name per state");

double metrics_kv_usage(const struct metrics *m)
{
    uint64_t total = 0;
    uint64_t used = 0;
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        const struct metrics_machine *machine = &m->machines[i];
        const uint32_t pool =
            machine->pool_known ? machine->pool : m->fleet->machines[i].config.pool;
        if (!machine->gauges_known || pool == POOL_PROMPT)
            continue;
        for (int state = 0; state < 6; state++)
            total += machine->latest_stats.kv_blocks[state];
        used += machine->latest_stats.kv_blocks[1] + machine->latest_stats.kv_blocks[2] +
                machine->latest_stats.kv_blocks[3] + machine->latest_stats.kv_blocks[5];
    }
    return total > 0 ? (double)used / (double)total : 0;
}

/* Appends a line for each kind of layers that the machine's model has. */
static void kinds_render(struct text *out, const struct metrics *m, uint32_t machine,
                         const char *name, const uint64_t values[LAYER_KIND_COUNT])
{
    for (int kind = 0; kind < LAYER_KIND_COUNT; kind++) {
        if ((m->machines[machine].latest_stats.kv_kinds >> kind & 1) == 0)
            continue;
        text_format_add(out, "%s{", name);
        metrics_machine_labels(out, m, machine);
        metrics_label_add(out, ",", "kind", layer_kind_name((enum layer_kind)kind));
        text_string_add(out, "}");
        metrics_value_add(out, (double)values[kind]);
    }
}

void metrics_kv_render(struct text *out, const struct metrics *m)
{
    metrics_family(out, "vllm:kv_cache_usage_perc", "gauge",
                   "Share of KV blocks in use on machines whose current pool is token or mixed "
                   "(1 = all).");
    metrics_vllm_sample(out, m, "vllm:kv_cache_usage_perc", metrics_kv_usage(m));
    metrics_family(out, "vllm:gpu_cache_usage_perc", "gauge",
                   "Older name of vllm:kv_cache_usage_perc.");
    metrics_vllm_sample(out, m, "vllm:gpu_cache_usage_perc", metrics_kv_usage(m));
    metrics_family(out, "cleave_kv_blocks", "gauge", "KV blocks of a machine, by state.");
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        for (int state = 0; m->machines[i].gauges_known && state < 6; state++) {
            text_string_add(out, "cleave_kv_blocks{");
            metrics_machine_labels(out, m, i);
            metrics_label_add(out, ",", "state", states[state]);
            text_string_add(out, "}");
            metrics_value_add(out, m->machines[i].latest_stats.kv_blocks[state]);
        }
    }
    metrics_family(
        out, "cleave_kv_bytes", "gauge",
        "Memory of KV blocks that are not free, by kind of layers (full, window, latent).");
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (m->machines[i].gauges_known)
            kinds_render(out, m, i, "cleave_kv_bytes", m->machines[i].latest_stats.kv_bytes);
    metrics_family(out, "cleave_transfer_bytes_total", "counter",
                   "KV bytes written to token machines, by kind of layers.");
    for (uint32_t i = 0; i < m->fleet->count; i++) {
        const struct message_stats stats = metrics_counters(m, i);
        if (m->machines[i].counters_known)
            kinds_render(out, m, i, "cleave_transfer_bytes_total", stats.transfer_bytes);
    }
}
