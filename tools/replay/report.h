/* replay_report: collects the results of a replay. Each result becomes a row of JSON and of CSV.
 * The end of the report has percentiles, rates and failures by kind, as text and as JSON. `cleave
 * replay` and bench-streams call the functions on their main threads. The report owns the samples,
 * but no files. This part sends nothing and reads no clock.
 *
 * TTFT: from a request's due time to its first token event. TBT: the time between two successive
 * token events of a request. E2E: from the due time to the end of the stream. Late: from the due
 * time to sending. TTFT and E2E are over requests that are done, TBT and late over all requests. */
#ifndef TOOLS_REPLAY_REPORT_H
#define TOOLS_REPLAY_REPORT_H

#include "common/status.h"
#include "tools/replay/client.h"
#include "tools/replay/comparison.h"
#include "tools/replay/samples.h"

#include <stdint.h>
#include <stdio.h>

/* Options without a comment are only written to the JSON. Texts must outlive the report. */
struct replay_report_options {
    const char *trace;
    const char *url;
    const char *model;
    const char *prompts; /* Result of replay_server_describe; NULL = not shown. */
    double start_s;
    double duration_s; /* 0 = to the end of the trace. */
    double rate_scale;
    double length_scale;
    uint32_t max_context; /* 0 = no limit. */
    uint64_t seed;
    double slo_ttft_ms; /* Limit of TTFT for goodput; 0 = none. */
    double slo_tbt_ms;  /* Limit of a request's mean TBT for goodput; 0 = none. */
    double slo_e2e_ms;  /* Limit of E2E for goodput; 0 = none. */
    FILE *json;         /* File for the JSON, which the caller closes; NULL = none. */
    FILE *csv;          /* File for the CSV, which the caller closes; NULL = none. */
    struct replay_comparison *prediction;  /* Predicted times, not owned; NULL = none. */
    struct replay_comparison *uncontended; /* Times without contention, not owned; NULL = none. */
};

enum replay_latency { REPLAY_TTFT, REPLAY_TBT, REPLAY_E2E, REPLAY_LATE, REPLAY_LATENCY_COUNT };

struct replay_totals {
    uint64_t sent;          /* Requests whose results were added. */
    uint64_t done;          /* Requests that are done (client.h). */
    uint64_t failed;        /* Failed requests, without the interrupted ones. */
    uint64_t interrupted;   /* Requests that failed as REPLAY_INTERRUPTED. */
    uint64_t wrong_counts;  /* Requests that are done but have other token counts than wanted. */
    uint64_t without_usage; /* Requests that are done, but without token counts of the server. */
    uint64_t within_slo;    /* Requests that are done and within all limits that are given. */
    /* Tokens of the requests that are done, as the server counted them. Without the server's
     * counts: the wanted length of a prompt, and the token events of an answer. */
    uint64_t prompt_tokens;
    uint64_t completion_tokens;
    uint64_t by_failure[REPLAY_FAILURE_COUNT]; /* Failed requests by enum replay_failure. */
};

struct replay_report;

/* Begins the JSON and the CSV, if wanted. ST_NO_MEMORY: memory runs out. */
enum status replay_report_open(const struct replay_report_options *options,
                               struct replay_report **report_out);
void replay_report_close(struct replay_report *report); /* NULL is fine. */

/* Adds the result of a request that is done or has failed. If memory runs out, samples are lost;
 * the text at the end says so. */
void replay_report_result_add(struct replay_report *report, const struct replay_result *result);
/* Adds the time between two successive token events of a request. */
void replay_report_gap_add(struct replay_report *report, int64_t gap_us);

/* Returns the totals of the added results. The report owns the totals. */
const struct replay_totals *replay_report_totals(const struct replay_report *report);

/* Facts that are known only at the end of the replay. */
struct replay_end {
    int64_t wall_us;           /* From the beginning of the replay to the last end of a request. */
    uint64_t skipped_rows;     /* Wrong rows of the trace that were skipped. */
    const char *first_skipped; /* Why the first skipped row was wrong; "" = no row was skipped. */
};

/* Writes the text to `out` and ends the JSON. Call it once. ST_IO: the JSON or the CSV could not be
 * written; the JSON may then lack its end. ST_NO_MEMORY: memory ran out for a part of the JSON,
 * which has null instead of an object, or lacks members. errno has the reason of both. */
enum status replay_report_finish(struct replay_report *report, const struct replay_end *end,
                                 FILE *out);

/* Returns the percentiles of the added samples of a latency, in milliseconds; sorts the samples. */
struct replay_percentiles replay_report_percentiles(struct replay_report *report,
                                                    enum replay_latency latency);

#endif
