/* replay_report: see the header. */
#include "tools/replay/report.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const latency_keys[REPLAY_LATENCY_COUNT] = {"ttft_ms", "tbt_ms", "e2e_ms",
                                                               "late_ms"};
static const char *const latency_titles[REPLAY_LATENCY_COUNT] = {"TTFT", "TBT", "E2E", "sent late"};

struct example {
    int http_status;
    char message[REPLAY_MESSAGE_BYTES]; /* Message of the first failure of this kind. */
};

struct replay_report {
    struct replay_report_options options;
    struct replay_samples latencies[REPLAY_LATENCY_COUNT];
    struct replay_totals totals;
    struct example examples[REPLAY_FAILURE_COUNT];
    bool wrote_row;
    bool short_of_memory; /* Samples were lost; the report says so. */
    bool json_incomplete; /* Memory ran out for an object or a member of the JSON. */
};

static double ms(int64_t us)
{
    return (double)us / 1000;
}

static void sample_add(struct replay_report *report, enum replay_latency latency, int64_t us)
{
    if (replay_samples_add(&report->latencies[latency], ms(us)) != ST_OK)
        report->short_of_memory = true;
}

struct replay_percentiles replay_report_percentiles(struct replay_report *report,
                                                    enum replay_latency latency)
{
    return replay_samples_percentiles(&report->latencies[latency]);
}

/* Returns the mean gap between the token events of a request; 0 = only one event. */
static double mean_gap_ms(const struct replay_result *result)
{
    if (result->token_events < 2)
        return 0;
    return ms(result->last_token_us - result->first_token_us) / (result->token_events - 1);
}

static bool counts_wrong(const struct replay_result *result)
{
    return result->has_usage && (result->prompt_tokens != result->wanted_prompt_tokens ||
                                 result->completion_tokens != result->wanted_completion_tokens);
}

/* Writes an object as one line of JSON. Takes ownership of `object`; NULL = it could not be made.
 * errno: 0 before the object was made, so that ENOMEM says whether memory ran out since. */
static void json_line(struct replay_report *report, const char *before, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(10));
    report->json_incomplete |= errno == ENOMEM;
    json_decref(object);
    fprintf(report->options.json, "%s%s", before, text != NULL ? text : "null");
    free(text);
}

static void row_write(struct replay_report *report, const struct replay_result *result)
{
    errno = 0;
    json_t *row = json_pack(
        "{s:I, s:I, s:s, s:f, s:i, s:i, s:i, s:i, s:i}", "id", (json_int_t)result->id, "line",
        (json_int_t)result->line, "status",
        result->failure == REPLAY_DONE && counts_wrong(result)
            ? "wrong counts"
            : replay_failure_name(result->failure),
        "late_ms", ms(result->sent_us - result->due_us), "context",
        (int)result->wanted_prompt_tokens, "generated", (int)result->wanted_completion_tokens,
        "prompt_tokens", (int)result->prompt_tokens, "completion_tokens",
        (int)result->completion_tokens, "token_events", (int)result->token_events);
    if (result->first_token_us > 0) {
        json_object_set_new(row, "ttft_ms", json_real(ms(result->first_token_us - result->due_us)));
        if (result->second_token_us > 0)
            json_object_set_new(row, "second_ms",
                                json_real(ms(result->second_token_us - result->first_token_us)));
        json_object_set_new(row, "tbt_mean_ms", json_real(mean_gap_ms(result)));
        json_object_set_new(row, "tbt_max_ms", json_real(ms(result->gap_us_max)));
    }
    json_object_set_new(row, "e2e_ms", json_real(ms(result->end_us - result->due_us)));
    if (result->failure != REPLAY_DONE) {
        json_object_set_new(row, "http_status", json_integer(result->http_status));
        json_object_set_new(row, "message", json_string(result->message));
    }
    json_line(report, report->wrote_row ? ",\n" : "\n", row);
    report->wrote_row = true;
}

/* Writes a CSV row. A failed request has no times. */
static void csv_row_write(struct replay_report *report, const struct replay_result *result)
{
    FILE *file = report->options.csv;
    fprintf(file, "%" PRIu64, result->id);
    if (result->failure == REPLAY_DONE)
        fprintf(file, ",%.6f,%.6f,%.6f", ms(result->first_token_us - result->due_us) / 1000,
                mean_gap_ms(result) / 1000, ms(result->end_us - result->due_us) / 1000);
    else
        fprintf(file, ",,,");
    fprintf(file, ",%.6f,%" PRIu32 ",%" PRIu32 ",%s,%.6f\n", (double)result->after_us / 1e6,
            result->wanted_prompt_tokens, result->wanted_completion_tokens,
            result->failure == REPLAY_DONE ? "done" : "failed",
            ms(result->sent_us - result->due_us) / 1000);
}

/* Adds the request to the prediction and to the times without contention. */
static void others_add(struct replay_report *report, const struct replay_result *result)
{
    struct replay_comparison *const others[] = {report->options.prediction,
                                                report->options.uncontended};
    const double times[REPLAY_TIME_COUNT] = {ms(result->first_token_us - result->due_us),
                                             mean_gap_ms(result),
                                             ms(result->end_us - result->due_us)};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (others[i] != NULL &&
            replay_comparison_add(others[i], result->id, times, result->token_events > 1) != ST_OK)
            report->short_of_memory = true;
}

static void count_done(struct replay_report *report, const struct replay_result *result)
{
    const struct replay_report_options *options = &report->options;
    struct replay_totals *totals = &report->totals;
    int64_t ttft_us = result->first_token_us - result->due_us;
    totals->done++;
    totals->without_usage += !result->has_usage;
    totals->wrong_counts += counts_wrong(result);
    totals->prompt_tokens +=
        result->has_usage ? result->prompt_tokens : result->wanted_prompt_tokens;
    totals->completion_tokens +=
        result->has_usage ? result->completion_tokens : result->token_events;
    sample_add(report, REPLAY_TTFT, ttft_us);
    sample_add(report, REPLAY_E2E, result->end_us - result->due_us);
    totals->within_slo +=
        (options->slo_ttft_ms <= 0 || ms(ttft_us) <= options->slo_ttft_ms) &&
        (options->slo_tbt_ms <= 0 || mean_gap_ms(result) <= options->slo_tbt_ms) &&
        (options->slo_e2e_ms <= 0 || ms(result->end_us - result->due_us) <= options->slo_e2e_ms);
    others_add(report, result);
}

static void count_failed(struct replay_report *report, const struct replay_result *result)
{
    struct replay_totals *totals = &report->totals;
    struct example *example = &report->examples[result->failure];
    if (totals->by_failure[result->failure]++ == 0) {
        example->http_status = result->http_status;
        memcpy(example->message, result->message, sizeof(example->message));
    }
    if (result->failure == REPLAY_INTERRUPTED)
        totals->interrupted++;
    else
        totals->failed++;
}

void replay_report_result_add(struct replay_report *report, const struct replay_result *result)
{
    report->totals.sent++;
    sample_add(report, REPLAY_LATE, result->sent_us - result->due_us);
    if (result->failure == REPLAY_DONE)
        count_done(report, result);
    else
        count_failed(report, result);
    if (report->options.json != NULL)
        row_write(report, result);
    if (report->options.csv != NULL)
        csv_row_write(report, result);
}

void replay_report_gap_add(struct replay_report *report, int64_t gap_us)
{
    sample_add(report, REPLAY_TBT, gap_us);
}

const struct replay_totals *replay_report_totals(const struct replay_report *report)
{
    return &report->totals;
}

static void failures_write(const struct replay_report *report, FILE *out)
{
    for (int kind = REPLAY_DONE + 1; kind < REPLAY_FAILURE_COUNT; kind++) {
        const struct example *example = &report->examples[kind];
        if (report->totals.by_failure[kind] == 0)
            continue;
        fprintf(out, "  %" PRIu64 " %s, the first: ", report->totals.by_failure[kind],
                replay_failure_name((enum replay_failure)kind));
        if (kind == REPLAY_HTTP_STATUS)
            fprintf(out, "%d ", example->http_status);
        fprintf(out, "%s\n", example->message);
    }
}

static void totals_write(const struct replay_report *report, double wall_s, FILE *out)
{
    const struct replay_totals *totals = &report->totals;
    fprintf(out, "%-10s %" PRIu64 " sent, %" PRIu64 " done, %" PRIu64 " failed", "requests",
            totals->sent, totals->done, totals->failed);
    if (totals->interrupted > 0)
        fprintf(out, ", %" PRIu64 " interrupted", totals->interrupted);
    fprintf(out, "\n");
    failures_write(report, out);
    if (totals->wrong_counts > 0)
        fprintf(out, "  %" PRIu64 " done with other token counts than requested\n",
                totals->wrong_counts);
    if (totals->without_usage > 0)
        fprintf(out, "  %" PRIu64 " without usage: their token counts are unchecked\n",
                totals->without_usage);
    fprintf(out, "%-10s %.1f s: %.2f requests/s, %.1f tokens/s in, %.1f tokens/s out\n", "wall",
            wall_s, (double)totals->done / wall_s, (double)totals->prompt_tokens / wall_s,
            (double)totals->completion_tokens / wall_s);
    if (report->options.slo_ttft_ms > 0 || report->options.slo_tbt_ms > 0 ||
        report->options.slo_e2e_ms > 0)
        fprintf(out, "%-10s %.2f requests/s in the SLO (%" PRIu64 " of %" PRIu64 ")\n", "goodput",
                (double)totals->within_slo / wall_s, totals->within_slo, totals->sent);
}

static void others_write(const struct replay_report *report, double wall_s, FILE *out)
{
    struct replay_comparison *alone = report->options.uncontended;
    if (alone != NULL) {
        uint64_t within = replay_comparison_count_within_limits(alone);
        replay_comparison_print_slowdowns(alone, out);
        fprintf(out,
                "goodput    %.2f requests/s within the limits of P99 (%" PRIu64 " of %" PRIu64
                ")\n",
                (double)within / wall_s, within, report->totals.sent);
    }
    if (report->options.prediction != NULL)
        replay_comparison_print_errors(report->options.prediction, out);
}

static void latencies_write(const struct replay_report *report,
                            const struct replay_percentiles *latencies, FILE *out)
{
    fprintf(out, "%-10s %10s %10s %10s %10s %10s\n", "ms", "mean", "P50", "P90", "P99", "max");
    for (int i = 0; i < REPLAY_LATENCY_COUNT; i++)
        if (latencies[i].count > 0)
            fprintf(out, "%-10s %10.2f %10.2f %10.2f %10.2f %10.2f\n", latency_titles[i],
                    latencies[i].mean, latencies[i].p50, latencies[i].p90, latencies[i].p99,
                    latencies[i].max);
    if (report->short_of_memory)
        fprintf(out, "  memory ran out: the latencies leave out the last samples\n");
}

static json_t *json_of_latency(const struct replay_percentiles *latency)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "count", (json_int_t)latency->count, "mean",
                     latency->mean, "p50", latency->p50, "p90", latency->p90, "p99", latency->p99,
                     "max", latency->max);
}

static json_t *json_of_totals(const struct replay_report *report, double wall_s)
{
    const struct replay_totals *totals = &report->totals;
    json_t *failures = json_object();
    for (int kind = 1; kind < REPLAY_FAILURE_COUNT; kind++)
        if (totals->by_failure[kind] > 0)
            json_object_set_new(failures, replay_failure_name((enum replay_failure)kind),
                                json_pack("{s:I, s:s}", "count",
                                          (json_int_t)totals->by_failure[kind], "first",
                                          report->examples[kind].message));
    return json_pack(
        "{s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "wall_s",
        wall_s, "sent", (json_int_t)totals->sent, "done", (json_int_t)totals->done, "failed",
        (json_int_t)totals->failed, "interrupted", (json_int_t)totals->interrupted, "wrong_counts",
        (json_int_t)totals->wrong_counts, "without_usage", (json_int_t)totals->without_usage,
        "in_slo", (json_int_t)totals->within_slo, "prompt_tokens",
        (json_int_t)totals->prompt_tokens, "completion_tokens",
        (json_int_t)totals->completion_tokens, "requests_per_s", (double)totals->done / wall_s,
        "prompt_tokens_per_s", (double)totals->prompt_tokens / wall_s, "completion_tokens_per_s",
        (double)totals->completion_tokens / wall_s, "goodput_requests_per_s",
        (double)totals->within_slo / wall_s, "failures", failures);
}

static void skipped_write(const struct replay_end *end, FILE *out)
{
    if (end->skipped_rows > 0)
        fprintf(out, "%-10s %" PRIu64 " rows of the trace left out, the first: %s\n", "skipped",
                end->skipped_rows, end->first_skipped);
}

/* Returns false, with the reason in errno, if a part of the file could not be written. */
static bool is_written(FILE *file)
{
    errno = EIO; /* The reason if an earlier write failed. */
    return fflush(file) == 0 && !ferror(file);
}

enum status replay_report_finish(struct replay_report *report, const struct replay_end *end,
                                 FILE *out)
{
    struct replay_percentiles latencies[REPLAY_LATENCY_COUNT];
    double wall_s = end->wall_us > 0 ? (double)end->wall_us / 1e6 : 1e-6;
    for (int i = 0; i < REPLAY_LATENCY_COUNT; i++)
        latencies[i] = replay_report_percentiles(report, (enum replay_latency)i);
    if (report->options.prompts != NULL)
        fprintf(out, "%-10s %s\n", "prompts", report->options.prompts);
    totals_write(report, wall_s, out);
    skipped_write(end, out);
    latencies_write(report, latencies, out);
    others_write(report, wall_s, out);

    FILE *json = report->options.json, *csv = report->options.csv;
    if (csv != NULL && !is_written(csv))
        return ST_IO;
    if (json == NULL)
        return ST_OK;
    errno = 0;
    json_t *summary = json_of_totals(report, wall_s);
    json_object_set_new(summary, "skipped_rows", json_integer((json_int_t)end->skipped_rows));
    if (report->options.prediction != NULL)
        json_object_set_new(summary, "compare",
                            replay_comparison_json_errors(report->options.prediction));
    if (report->options.uncontended != NULL)
        json_object_set_new(summary, "slowdown",
                            replay_comparison_json_slowdowns(report->options.uncontended));
    for (int i = 0; i < REPLAY_LATENCY_COUNT; i++)
        json_object_set_new(summary, latency_keys[i], json_of_latency(&latencies[i]));
    json_line(report, "\n],\n\"summary\": ", summary);
    fprintf(json, "\n}\n");
    if (!is_written(json))
        return ST_IO;
    errno = ENOMEM;
    return report->json_incomplete ? ST_NO_MEMORY : ST_OK;
}

enum status replay_report_open(const struct replay_report_options *options,
                               struct replay_report **report_out)
{
    struct replay_report *report = calloc(1, sizeof(*report));
    if (report == NULL)
        return ST_NO_MEMORY;
    report->options = *options;
    if (options->csv != NULL)
        fputs(
            "request_id,ttft_s,tbt_s,e2e_s,arrival_s,prompt_tokens,output_tokens,outcome,late_s\n",
            options->csv);
    if (options->json != NULL) {
        errno = 0;
        json_line(report, "{\n\"options\": ",
                  json_pack("{s:s, s:s, s:s, s:s?, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:f, s:f}",
                            "trace", options->trace, "url", options->url, "model", options->model,
                            "prompts", options->prompts, "start_s", options->start_s, "duration_s",
                            options->duration_s, "rate_scale", options->rate_scale, "length_scale",
                            options->length_scale, "max_context", (json_int_t)options->max_context,
                            "seed", (json_int_t)options->seed, "slo_ttft_ms", options->slo_ttft_ms,
                            "slo_tbt_ms", options->slo_tbt_ms, "slo_e2e_ms", options->slo_e2e_ms));
        fprintf(options->json, ",\n\"requests\": [");
    }
    *report_out = report;
    return ST_OK;
}

void replay_report_close(struct replay_report *report)
{
    if (report == NULL)
        return;
    for (int i = 0; i < REPLAY_LATENCY_COUNT; i++)
        replay_samples_done(&report->latencies[i]);
    free(report);
}
