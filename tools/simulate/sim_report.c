/* sim_report: see the header. */
#include "tools/simulate/sim_report.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define DECIMALS_SCALE 1e12
#define DECIMALS       12

static const char *const outcome_names[] = {"done", "refused", "failed"};

/* ---- rows ---- */

enum status sim_report_open(struct sim_report *report, const char *path, bool splitwise_format,
                            struct error *error)
{
    *report = (struct sim_report){.splitwise_format = splitwise_format};
    if (path == NULL)
        return ST_OK;
    report->rows = fopen(path, "w");
    if (report->rows == NULL)
        return error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    fputs("request_id,ttft_s,tbt_s,e2e_s", report->rows);
    if (!splitwise_format)
        fputs(",arrival_s,prompt_tokens,output_tokens,outcome,queue_s,transfer_s,prompt_machine,"
              "token_machine,preempted,restarted,gap_s,recomputed_tokens",
              report->rows);
    fputc('\n', report->rows);
    return ST_OK;
}

enum status sim_report_close(struct sim_report *report, const char *path, struct error *error)
{
    if (report->rows == NULL)
        return ST_OK;
    bool bad = ferror(report->rows) != 0;
    bad |= fclose(report->rows) != 0;
    report->rows = NULL;
    return bad ? error_set(error, ST_IO, "%s: cannot be written", path) : ST_OK;
}

/* printf takes ten times as long for a double. */
static char *put_whole(char *at, uint64_t value, int digits_least)
{
    char digits[24];
    int count = 0;
    do
        digits[count++] = (char)('0' + value % 10);
    while ((value /= 10) > 0 || count < digits_least);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

static char *put_seconds(char *at, double value)
{
    *at++ = ',';
    if (!(fabs(value) < 1e12))
        return at + sprintf(at, "%.9g", value);
    if (value < 0)
        *at++ = '-';
    uint64_t whole = (uint64_t)fabs(value);
    uint64_t part = (uint64_t)llround((fabs(value) - (double)whole) * DECIMALS_SCALE);
    if (part == (uint64_t)DECIMALS_SCALE) {
        whole++;
        part = 0;
    }
    at = put_whole(at, whole, 1);
    *at++ = '.';
    return put_whole(at, part, DECIMALS);
}

static char *put_count(char *at, uint64_t value)
{
    *at++ = ',';
    return put_whole(at, value, 1);
}

static char *put_machine(char *at, uint32_t machine)
{
    if (machine != UINT32_MAX)
        return put_count(at, machine);
    *at++ = ',';
    return at;
}

static void row_write(FILE *file, bool splitwise_format, const struct sim_result *r)
{
    char line[512];
    char *at = put_whole(line, r->arrival->id, 1);
    at = put_seconds(at, r->ttft_s);
    at = put_seconds(at, r->tbt_s);
    at = put_seconds(at, r->e2e_s);
    if (!splitwise_format) {
        at = put_seconds(at, r->arrival->at_s);
        at = put_count(at, r->arrival->prompt_tokens);
        at = put_count(at, r->arrival->output_tokens);
        *at++ = ',';
        size_t bytes = strlen(outcome_names[r->outcome]);
        memcpy(at, outcome_names[r->outcome], bytes);
        at = put_seconds(at + bytes, r->queue_s);
        at = put_seconds(at, r->transfer_s);
        at = put_machine(at, r->prompt_machine);
        at = put_machine(at, r->token_machine);
        at = put_count(at, r->preempted);
        at = put_count(at, r->restarted);
        at = put_seconds(at, r->gap_s);
        at = put_count(at, r->recomputed_tokens);
    }
    *at++ = '\n';
    fwrite(line, 1, (size_t)(at - line), file);
}

/* ---- all of them ---- */

void sim_report_add(struct sim_report *report, const struct sim_result *r)
{
    report->outcomes[r->outcome]++;
    report->preempted += r->preempted;
    report->restarted += r->restarted;
    report->affected += r->restarted > 0;
    report->recomputed_tokens += r->recomputed_tokens;
    report->reused_tokens += r->reused_tokens;
    report->checkpoint_tokens += r->checkpoint_tokens;
    if (report->rows != NULL)
        row_write(report->rows, report->splitwise_format, r);
    if (r->outcome != SIM_DONE)
        return;
    double end_s = r->arrival->at_s + r->e2e_s;
    report->last_s = end_s > report->last_s ? end_s : report->last_s;
    report->prompt_tokens += r->arrival->prompt_tokens;
    report->output_tokens += r->arrival->output_tokens;
    quantiles_add(&report->ttft, r->ttft_s);
    if (r->arrival->output_tokens > 1)
        quantiles_add(&report->tbt, r->tbt_s);
    slo_request_add(&report->slo, r->arrival->prompt_tokens, r->arrival->output_tokens, r->ttft_s,
                    r->tbt_s, r->e2e_s);
    if (report->slo.reference != NULL && report->good_below[SLO_TTFT] > 0)
        report->good +=
            slo_request_is_below(&report->slo, r->arrival->prompt_tokens, r->arrival->output_tokens,
                                 r->ttft_s, r->tbt_s, r->e2e_s, report->good_below);
    quantiles_add(&report->e2e, r->e2e_s);
    if (report->splitwise_format)
        return;
    quantiles_add(&report->queue, r->queue_s);
    if (r->prompt_machine != r->token_machine && r->token_machine != UINT32_MAX)
        quantiles_add(&report->transfer, r->transfer_s);
    if (r->arrival->output_tokens > 1)
        quantiles_add(&report->gap, r->gap_s);
    if (r->arrival->output_tokens > 1 && r->restarted > 0)
        quantiles_add(&report->pause, r->gap_s);
}

static const struct {
    const char *name;
    size_t offset;
} measures[] = {
    {"ttft", offsetof(struct sim_report, ttft)},
    {"tbt", offsetof(struct sim_report, tbt)},
    {"e2e", offsetof(struct sim_report, e2e)},
    {"queue", offsetof(struct sim_report, queue)},
    {"transfer", offsetof(struct sim_report, transfer)},
    {"gap", offsetof(struct sim_report, gap)},
    {"pause", offsetof(struct sim_report, pause)},
};

#define MEASURES (sizeof(measures) / sizeof(measures[0]))

static const struct quantiles *measure(const struct sim_report *report, size_t i)
{
    return (const struct quantiles *)((const char *)report + measures[i].offset);
}

/* Prints the nine slowdowns with their limits. */
static void slo_print(const struct slo *slo, FILE *out)
{
    static const char *const names[SLO_MEASURES] = {"TTFT", "TBT", "E2E"};
    struct slo_result result;
    if (slo->reference == NULL)
        return;
    slo_result(slo, &result);
    fprintf(out, "SLO of the paper %s: at P50/P90/P99", result.met ? "met" : "missed");
    for (int i = 0; i < SLO_MEASURES; i++)
        fprintf(out, "%s %s %.2f/%.2f/%.2f (below %g/%g/%g)", i > 0 ? "," : "", names[i],
                result.slowdowns[i][0], result.slowdowns[i][1], result.slowdowns[i][2],
                slo_limits[i][0], slo_limits[i][1], slo_limits[i][2]);
    fputs(" times an idle DGX-A100's\n", out);
}

static void slo_json(const struct slo *slo, FILE *out)
{
    struct slo_result result;
    if (slo->reference == NULL)
        return;
    slo_result(slo, &result);
    fprintf(out, ",\"slo\":{\"met\":%s", result.met ? "true" : "false");
    static const char *const names[SLO_MEASURES] = {"ttft", "tbt", "e2e"};
    for (int i = 0; i < SLO_MEASURES; i++)
        fprintf(out, ",\"%s\":[%.9g,%.9g,%.9g]", names[i], result.slowdowns[i][0],
                result.slowdowns[i][1], result.slowdowns[i][2]);
    fputc('}', out);
}

void sim_report_print(const struct sim_report *report, FILE *out)
{
    uint64_t done = report->outcomes[SIM_DONE];
    fprintf(out, "%llu requests done", (unsigned long long)done);
    if (report->outcomes[SIM_REFUSED] > 0)
        fprintf(out, ", %llu refused", (unsigned long long)report->outcomes[SIM_REFUSED]);
    if (report->outcomes[SIM_FAILED] > 0)
        fprintf(out, ", %llu failed", (unsigned long long)report->outcomes[SIM_FAILED]);
    if (report->preempted > 0)
        fprintf(out, ", %llu preemptions", (unsigned long long)report->preempted);
    if (report->restarted > 0)
        fprintf(out, ", %llu restarts", (unsigned long long)report->restarted);
    double span_s = report->last_s;
    fprintf(out, "; %.1f s: %.3g requests/s, %.4g prompt tokens/s, %.4g output tokens/s\n", span_s,
            span_s > 0 ? (double)done / span_s : 0,
            span_s > 0 ? (double)report->prompt_tokens / span_s : 0,
            span_s > 0 ? (double)report->output_tokens / span_s : 0);
    fprintf(out, "%-10s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99", "max");
    for (size_t i = 0; i < MEASURES; i++) {
        const struct quantiles *values = measure(report, i);
        if (values->count > 0)
            fprintf(out, "%-10s %10.1f %10.1f %10.1f %10.1f %10.1f\n", measures[i].name,
                    quantiles_mean(values) * 1e3, quantiles_at(values, 0.5) * 1e3,
                    quantiles_at(values, 0.9) * 1e3, quantiles_at(values, 0.99) * 1e3,
                    values->value_max * 1e3);
    }
    if (report->restarted > 0)
        fprintf(
            out,
            "%llu requests lost a machine; after that %llu tokens computed again, %llu found in "
            "caches, %llu of them in checkpoints\n",
            (unsigned long long)report->affected, (unsigned long long)report->recomputed_tokens,
            (unsigned long long)report->reused_tokens,
            (unsigned long long)report->checkpoint_tokens);
    slo_print(&report->slo, out);
}

void sim_report_json(const struct sim_report *report, FILE *out)
{
    fprintf(out,
            "{\"done\":%llu,\"refused\":%llu,\"failed\":%llu,\"preempted\":%llu,"
            "\"restarted\":%llu,\"affected\":%llu,\"recomputed_tokens\":%llu,"
            "\"reused_tokens\":%llu,\"checkpoint_tokens\":%llu,\"span_s\":%.9g,\"prompt_tokens\":%"
            "llu,\"output_tokens\":%llu",
            (unsigned long long)report->outcomes[SIM_DONE],
            (unsigned long long)report->outcomes[SIM_REFUSED],
            (unsigned long long)report->outcomes[SIM_FAILED], (unsigned long long)report->preempted,
            (unsigned long long)report->restarted, (unsigned long long)report->affected,
            (unsigned long long)report->recomputed_tokens,
            (unsigned long long)report->reused_tokens,
            (unsigned long long)report->checkpoint_tokens, report->last_s,
            (unsigned long long)report->prompt_tokens, (unsigned long long)report->output_tokens);
    for (size_t i = 0; i < MEASURES; i++) {
        const struct quantiles *values = measure(report, i);
        fprintf(out,
                ",\"%s_s\":{\"count\":%llu,\"mean\":%.9g,\"p50\":%.9g,\"p90\":%.9g,\"p99\":%.9g,"
                "\"max\":%.9g}",
                measures[i].name, (unsigned long long)values->count, quantiles_mean(values),
                quantiles_at(values, 0.5), quantiles_at(values, 0.9), quantiles_at(values, 0.99),
                values->value_max);
    }
    slo_json(&report->slo, out);
}
