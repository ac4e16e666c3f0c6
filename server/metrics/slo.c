/* metrics_slo: the limits of the config's `slo`, and the answers that were within them. */
#include "server/metrics/internal.h"

#include <string.h>

/* The histograms that have a limit as a bound. */
static const struct {
    enum metrics_time which;
    enum metrics_slo slo;
} bounds[] = {
    {METRICS_TTFT, METRICS_SLO_TTFT},
    {METRICS_INTER_TOKEN, METRICS_SLO_TBT},
    {METRICS_PER_TOKEN, METRICS_SLO_TBT},
};

static const char *const names[METRICS_SLO_COUNT + 1] = {"ttft", "tbt", "all"};

void metrics_slo_set(struct metrics *m, uint32_t ttft_ms, uint32_t tbt_ms)
{
    const double limits_s[METRICS_SLO_COUNT] = {ttft_ms * 1e-3, tbt_ms * 1e-3};
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        struct histogram *h = &m->times[bounds[i].which];
        double limit_s = limits_s[bounds[i].slo];
        if (limit_s <= 0 || limit_s == m->slo_s[bounds[i].slo])
            continue;
        histogram_init(h, METRICS_TIME_FIRST_S, METRICS_TIME_FACTOR, METRICS_TIME_BUCKETS);
        histogram_bound_add(h, limit_s);
    }
    for (int slo = 0; slo < METRICS_SLO_COUNT; slo++)
        m->slo_s[slo] = limits_s[slo];
}

void metrics_slo_answer_add(struct metrics *m, bool failed, int64_t ttft_us, int64_t tbt_us)
{
    bool ttft = !failed && (double)ttft_us * 1e-6 <= m->slo_s[METRICS_SLO_TTFT];
    bool tbt = !failed && (double)tbt_us * 1e-6 <= m->slo_s[METRICS_SLO_TBT];
    m->slo_answers[METRICS_SLO_TTFT][ttft]++;
    m->slo_answers[METRICS_SLO_TBT][tbt]++;
    m->slo_answers[METRICS_SLO_COUNT][ttft && tbt]++;
}

void metrics_headroom_set(struct metrics *m, const double *factors)
{
    m->headroom_known = factors != NULL;
    if (factors != NULL)
        memcpy(m->headroom, factors, sizeof(m->headroom));
}

static void headroom_render(struct text *out, const struct metrics *m)
{
    if (!m->headroom_known)
        return;
    metrics_family(out, "cleave_headroom_ratio", "gauge",
                   "Factor by which the traffic of the last 5 minutes can grow until a tenth of "
                   "the answers miss slo/ttft_ms, slo/tbt_ms or one of them (all); at most 100. "
                   "Absent with too little traffic.");
    for (int slo = 0; slo <= METRICS_SLO_COUNT; slo++) {
        text_string_add(out, "cleave_headroom_ratio");
        metrics_label_add(out, "{", "slo", names[slo]);
        text_string_add(out, "}");
        metrics_value_add(out, m->headroom[slo]);
    }
}

void metrics_slo_render(struct text *out, const struct metrics *m)
{
    metrics_family(out, "cleave_slo_limit_seconds", "gauge",
                   "Limits of the config: slo/ttft_ms and slo/tbt_ms.");
    for (int slo = 0; slo < METRICS_SLO_COUNT; slo++) {
        text_string_add(out, "cleave_slo_limit_seconds");
        metrics_label_add(out, "{", "slo", names[slo]);
        text_string_add(out, "}");
        metrics_value_add(out, m->slo_s[slo]);
    }
    metrics_family(out, "cleave_slo_answers_total", "counter",
                   "Answers that ended. met: the answer met the limit (tbt: on average; all: both "
                   "limits). Errors meet no limit; refused and cancelled requests do not count.");
    for (int slo = 0; slo <= METRICS_SLO_COUNT; slo++) {
        for (int met = 0; met < 2; met++) {
            text_string_add(out, "cleave_slo_answers_total");
            metrics_label_add(out, "{", "slo", names[slo]);
            metrics_label_add(out, ",", "met", met ? "true" : "false");
            text_string_add(out, "}");
            metrics_value_add(out, (double)m->slo_answers[slo][met]);
        }
    }
    headroom_render(out, m);
}
