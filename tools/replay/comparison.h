/* replay_comparison: compares the measured TTFT, TBT and E2E of requests with the times of another
 * run: as the error of a prediction, or as slowdowns against a run without contention. The other
 * run's times come from a file. A CSV of `cleave simulate --out` or `cleave replay --out` has a row
 * for each request; requests are joined with rows by their ids, and a request without a row is only
 * counted. The --json output of each of these commands is a summary: percentiles over all requests,
 * except that the TBT of `cleave replay` has percentiles over all gaps between tokens. With a
 * summary no request is joined, and the percentiles of both runs are compared. replay.c opens and
 * closes the file, and report.c adds the measured times and prints the result, on the main thread.
 * This part measures nothing. */
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

/* Reads the file. A file that begins with "{" (after white space) is a summary; every other file is
 * a CSV. A CSV needs the columns request_id, ttft_s, tbt_s and e2e_s. If it has a column `outcome`,
 * only rows with the outcome "done" are read. rows_required: a summary is refused, because
 * slowdowns need a row for each request. Returns ST_IO, ST_INVALID, ST_NOT_FOUND (a column is
 * missing) or ST_NO_MEMORY. The error of a wrong row names file, line and column. */
enum status replay_comparison_open(const char *path, bool rows_required,
                                   struct replay_comparison **times_out, struct error *error);
void replay_comparison_close(struct replay_comparison *times); /* NULL is fine. */

/* Adds the measured times of a request that is done; times_ms is indexed by enum replay_time.
 * has_tbt: times_ms has a TBT, the mean of the request's gaps between tokens. ST_NO_MEMORY: the
 * request does not count as joined, but some of its times may have been added. */
enum status replay_comparison_add(struct replay_comparison *times, uint64_t request_id,
                                  const double *times_ms, bool has_tbt);

/* Prints P50, P90 and P99 as measured and as predicted, with the error of the prediction in percent
 * of the measured value. */
void replay_comparison_print_errors(struct replay_comparison *times, FILE *out);
/* Returns the values of replay_comparison_print_errors as a JSON object, a new reference. NULL = no
 * memory for the object, or the file's path is not UTF-8. If memory runs out later, members are
 * missing. */
json_t *replay_comparison_json_errors(struct replay_comparison *times);

/* Prints P50, P90 and P99 of the slowdowns against the other run, each with its limit in the SLO
 * (slo_limits of tools/report/slo.h), or that no slowdown was measured. */
void replay_comparison_print_slowdowns(struct replay_comparison *times, FILE *out);
/* Returns the slowdowns and their limits, the number of joined requests, the result of
 * replay_comparison_count_within_limits and whether the SLO is met (null = no slowdown was
 * measured), as a JSON object. Memory and NULL: see replay_comparison_json_errors. */
json_t *replay_comparison_json_slowdowns(struct replay_comparison *times);

/* Returns the number of joined requests whose slowdowns are all below the limits of P99. A missing
 * TBT, and a time of 0 in the file, give no slowdown. */
uint64_t replay_comparison_count_within_limits(const struct replay_comparison *times);

#endif
