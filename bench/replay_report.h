/* replay_report: adds up the results of a replay and writes them: a row of JSON and one of CSV per
 * request as it ends (so that nothing but the latencies is kept), and at the end percentiles, rates
 * and failures by kind, as text and as JSON. Not thread-safe.
 *
 * TTFT: from when a request was due to its first token event. TBT: each gap between two token
 * events of one request. E2E: from due to the end of the stream. Late: from due to sent, the
 * sender's own fault. TTFT and E2E are of requests that did not fail; gaps and `late` of all. */
#ifndef BENCH_REPLAY_REPORT_H
#define BENCH_REPLAY_REPORT_H

#include "bench/replay_client.h"
#include "bench/replay_samples.h"
#include "bench/replay_times.h"
#include "common/status.h"

#include <stdint.h>
#include <stdio.h>

/* What is asked for, as the JSON repeats it; strings must outlive the report. */
struct replay_report_options {
    const char *trace;
    const char *url;
    const char *model;
    const char *prompts; /* what they are made of, as replay_server_describe says */
    double start_s;
    double duration_s; /* 0: to the end of the trace */
    double rate_scale;
    double length_scale;
    uint32_t max_context; /* 0: no limit */
    uint64_t seed;
    double slo_ttft_ms;           /* 0: none */
    double slo_tbt_ms;            /* a request's mean TBT; 0: none */
    double slo_e2e_ms;            /* 0: none */
    FILE *json;                   /* NULL: none; these four stay the caller's */
    FILE *rows;                   /* CSV, the columns of `cleave simulate --out` */
    struct replay_times *compare; /* a prediction */
    struct replay_times *alone;   /* times without contention, for slowdowns */
};

enum replay_latency { REPLAY_TTFT, REPLAY_TBT, REPLAY_E2E, REPLAY_LATE, REPLAY_LATENCY_COUNT };

struct replay_totals {
    uint64_t sent;
    uint64_t done;
    uint64_t failed; /* interrupted ones not counted */
    uint64_t interrupted;
    uint64_t wrong_counts; /* done, but with other token counts than asked for */
    uint64_t without_usage;
    uint64_t in_slo;
    uint64_t prompt_tokens; /* of those done */
    uint64_t completion_tokens;
    uint64_t by_failure[REPLAY_FAILURE_COUNT];
};

struct replay_report;

/* Begins JSON and CSV, where they are wanted. */
enum status replay_report_open(const struct replay_report_options *options,
                               struct replay_report **report_out);
void replay_report_close(struct replay_report *report); /* NULL is fine. */

void replay_report_result(struct replay_report *report, const struct replay_result *result);
void replay_report_gap(struct replay_report *report, int64_t gap_us);

const struct replay_totals *replay_report_totals(const struct replay_report *report);

/* What is known at the end only. */
struct replay_end {
    int64_t wall_us; /* from the first due time to the last end */
    uint64_t skipped_rows;
    const char *first_skipped; /* why the first was */
};

/* Writes text to `out` and ends the JSON. Once. ST_IO: JSON or CSV could not be written. */
enum status replay_report_finish(struct replay_report *report, const struct replay_end *end,
                                 FILE *out);

/* Sorts what has come so far. */
struct replay_percentiles replay_report_percentiles(struct replay_report *report,
                                                    enum replay_latency latency);

#endif
