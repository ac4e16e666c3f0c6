/* replay_comparison: compares the measured TTFT, TBT and E2E of requests with the times of another
 * run: as the error of a prediction, or as slowdowns against a run without contention. The other
 * run's times are in a file of `cleave simulate` or `cleave replay`. A CSV (--out) has a row for
 * each request. A request is *joined* with the row that has its id: its times are compared with
 * those of the row. A summary (--json) has percentiles of all requests and no rows: no request is
 * joined, and the percentiles of the two runs are compared.
 * replay.c and report.c call the functions on the main thread. This part measures nothing. */
#ifndef TOOLS_REPLAY_COMPARISON_H
#define TOOLS_REPLAY_COMPARISON_H

#include "common/status.h"
#include "tools/replay/samples.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum replay_time { REPLAY_TIME_TTFT, REPLAY_TIME_TBT, REPLAY_TIME_E2E, REPLAY_TIME_COUNT };

struct replay_comparison;

/* Reads the file; replay_comparison_close frees *times_out. A file that begins with "{" is a
 * summary. Any other file is a CSV with the columns request_id, ttft_s, tbt_s and e2e_s. A row
 * whose `outcome` is not "done" is left out. rows_required: true = refuse a summary. ST_IO: the
 * file cannot be read. ST_INVALID: a value is wrong, or a summary is refused. ST_NOT_FOUND: a
 * column is missing. ST_NO_MEMORY: memory runs out. */
enum status replay_comparison_open(const char *path, bool rows_required,
                                   struct replay_comparison **times_out, struct error *error);
void replay_comparison_close(struct replay_comparison *times); /* NULL is fine. */

/* Adds the measured times of a request that is done. times_ms: indexed by enum replay_time; the TBT
 * is the mean of the request, and is read only if has_tbt. ST_NO_MEMORY: the request does not count
 * as joined, but some of its times may have been added. */
enum status replay_comparison_add(struct replay_comparison *times, uint64_t request_id,
                                  const double *times_ms, bool has_tbt);

/* Prints the measured and the predicted P50, P90 and P99, with the error in percent of the measured
 * value. */
void replay_comparison_print_errors(struct replay_comparison *times, FILE *out);
/* Returns the values of replay_comparison_print_errors as a new JSON object. NULL = memory ran out,
 * or the file's path is not UTF-8. Members may be missing if memory runs out. */
json_t *replay_comparison_json_errors(struct replay_comparison *times);

/* Prints P50, P90 and P99 of the slowdowns against the other run, each with its limit in the SLO
 * (slo_limits of tools/report/slo.h), or that no slowdown was measured. */
void replay_comparison_print_slowdowns(struct replay_comparison *times, FILE *out);
/* Returns the values of replay_comparison_print_slowdowns, the result of
 * replay_comparison_count_within_limits and whether the SLO is met (null = no slowdown was
 * measured), as a new JSON object. NULL and missing members: see replay_comparison_json_errors. */
json_t *replay_comparison_json_slowdowns(struct replay_comparison *times);

/* Returns the number of joined requests whose slowdowns are all below the limits of P99. A missing
 * TBT, and a time of 0 in the file, give no slowdown. */
uint64_t replay_comparison_count_within_limits(const struct replay_comparison *times);

#endif
