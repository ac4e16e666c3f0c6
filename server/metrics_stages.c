/* metrics_stages: the load of the machines' stages. A stage that is always busy is the bottleneck.
 */
#include "server/metrics_internal.h"

#include <stdlib.h>
#include <string.h>

void metrics_loads_set(struct metrics *m, uint32_t machine, const struct message_loads *loads)
{
    struct metrics_machine *figures = &m->machines[machine];
    if (figures->loads == NULL)
        figures->loads = calloc(LIMIT_STAGES, sizeof(figures->loads[0]));
    if (figures->loads == NULL)
        return; /* out of memory: the figures are not shown */
    figures->load_count = loads->count;
    memcpy(figures->loads, loads->loads, loads->count * sizeof(figures->loads[0]));
}

void metrics_stages_close(struct metrics *m)
{
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++)
        free(m->machines[i].loads);
}

struct stage_family {
    const char *name;
    const char *type;
    const char *help;
    size_t offset; /* in struct message_load */
    double scale;
};

static const struct stage_family families[] = {
    {"cleave_stage_batches_total", "counter", "Batches that a stage computed its layers of.",
     offsetof(struct message_load, batches), 1},
    {"cleave_stage_rows_total", "counter", "Rows of these batches.",
     offsetof(struct message_load, rows), 1},
    {"cleave_stage_busy_seconds_total", "counter",
     "Time in which a stage computed: of a machine's stages the busiest is its bottleneck.",
     offsetof(struct message_load, busy_us), 1e-6},
    {"cleave_stage_resident_bytes", "gauge", "Resident memory of a stage's process.",
     offsetof(struct message_load, resident_bytes), 1},
};

void metrics_stages_render(struct text *out, const struct metrics *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->fleet->count; i++)
        any |= m->machines[i].load_count > 0;
    for (size_t f = 0; any && f < sizeof(families) / sizeof(families[0]); f++) {
        metrics_family(out, families[f].name, families[f].type, families[f].help);
        for (uint32_t i = 0; i < m->fleet->count; i++) {
            for (uint32_t stage = 0; stage < m->machines[i].load_count; stage++) {
                const struct message_load *load = &m->machines[i].loads[stage];
                uint64_t value;
                memcpy(&value, (const char *)load + families[f].offset, sizeof(value));
                text_addf(out, "%s{", families[f].name);
                metrics_machine_labels(out, m, i);
                text_addf(out, ",stage=\"%u\",replica=\"%u\",rank=\"%u\"}", load->stage,
                          load->replica, load->rank);
                metrics_value_add(out, (double)value * families[f].scale);
            }
        }
    }
}
