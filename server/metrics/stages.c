/* metrics_stages: the load of the machines' stages. A stage that is always busy is the bottleneck.
 */
#include "server/metrics/internal.h"

#include <stdlib.h>
#include <string.h>

void metrics_loads_set(struct metrics *m, uint32_t machine, const struct message_loads *loads)
{
    struct metrics_machine *figures = &m->machines[machine];
    if (figures->loads == NULL)
        figures->loads = calloc(LIMIT_STAGE_PROCESSES, sizeof(figures->loads[0]));
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

#define PROCESS_ROW(bits, name, kind, factor, family, help)                                        \
    METRICS_ROW(bits, offsetof(struct message_process, name), kind, HIDDEN, factor, family, help)
static const struct metrics_row rows[] = {PROCESS_COUNTERS(PROCESS_ROW)};
#undef PROCESS_ROW

void metrics_stages_render(struct text *out, const struct metrics *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->fleet->count; i++)
        any |= m->machines[i].load_count > 0;
    for (size_t r = 0; any && r < sizeof(rows) / sizeof(rows[0]); r++) {
        metrics_family(out, rows[r].family, rows[r].type, rows[r].help);
        for (uint32_t i = 0; i < m->fleet->count; i++) {
            if (!metrics_value_known(&m->machines[i], rows[r].type))
                continue;
            for (uint32_t stage = 0; stage < m->machines[i].load_count; stage++) {
                const struct message_load *load = &m->machines[i].loads[stage];
                text_format_add(out, "%s{", rows[r].family);
                metrics_machine_labels(out, m, i);
                text_format_add(out, ",stage=\"%u\",replica=\"%u\",rank=\"%u\"}", load->stage,
                                load->replica, load->rank);
                metrics_value_add(out, metrics_row_value(&rows[r], &load->process));
            }
        }
    }
}
