/* metrics_versions: the served models and the requests of each. */
#include "server/metrics/internal.h"

#include <stdio.h>
#include <string.h>

void metrics_versions_set(struct metrics *m,
                          const struct metrics_version versions[METRICS_VERSIONS])
{
    memcpy(m->versions, versions, sizeof(m->versions));
}

void metrics_model_set(struct metrics *m, const char *model_name)
{
    snprintf(m->model_name, sizeof(m->model_name), "%s", model_name);
}

static void labels_add(struct text *out, const char *name, const struct metrics_version *version)
{
    text_format_add(out, "%s{version=\"%u\"", name, version->number);
    metrics_label_add(out, ",", "model", version->name);
}

void metrics_versions_render(struct text *out, const struct metrics *m)
{
    if (m->versions[0].number == 0 && m->versions[1].number == 0)
        return;
    metrics_family(out, "cleave_model_version", "gauge",
                   "1 for each model that machines of this cluster have. state: serving = new "
                   "requests get this model.");
    for (int i = 0; i < METRICS_VERSIONS; i++) {
        if (m->versions[i].number == 0)
            continue;
        labels_add(out, "cleave_model_version", &m->versions[i]);
        metrics_label_add(out, ",", "state", m->versions[i].state);
        text_string_add(out, "} 1\n");
    }
    metrics_family(out, "cleave_model_requests_open", "gauge", "Open requests of each model.");
    for (int i = 0; i < METRICS_VERSIONS; i++) {
        if (m->versions[i].number == 0)
            continue;
        labels_add(out, "cleave_model_requests_open", &m->versions[i]);
        text_format_add(out, "} %u\n", m->versions[i].open);
    }
    metrics_family(out, "cleave_model_requests_total", "counter",
                   "Requests that began on each model.");
    for (int i = 0; i < METRICS_VERSIONS; i++) {
        if (m->versions[i].number == 0)
            continue;
        labels_add(out, "cleave_model_requests_total", &m->versions[i]);
        text_format_add(out, "} %llu\n", (unsigned long long)m->versions[i].total);
    }
}
