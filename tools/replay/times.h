/* replay_times: compares the measured TTFT, TBT and E2E of requests with those of another run: as
 * the error of a prediction, or as slowdowns against a run without contention. The other run's
 * times come from a file: a CSV of `cleave simulate --out` or `cleave replay --out`, or the --json
 * of either. Requests are joined by their ids; a request that the file does not have is only
 * counted. replay.c opens the file and report.c adds the measured times, on the main thread of
 * `cleave replay`. It measures nothing. */
#ifndef TOOLS_REPLAY_TIMES_H
#define TOOLS_REPLAY_TIMES_H

#include "common/status.h"
#include "tools/replay/samples.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum replay_time { REPLAY_TIME_TTFT, REPLAY_TIME_TBT, REPLAY_TIME_E2E, REPLAY_TIME_COUNT };

struct replay_times;

/* Reads the file. A CSV needs the columns request_id, ttft_s, tbt_s and e2e_s; with a column
 * outcome, rows that are not "done" are skipped. A file that begins with "{" is a summary: it has
 * percentiles only, and no requests to join. rows_required: a summary is refused, because slowdowns
 * need a row for each request. ST_IO, ST_INVALID, ST_NOT_FOUND (a column is missing), ST_NO_MEMORY.
 * The error of a wrong row names file, line and column. */
enum status replay_times_open(const char *path, bool rows_required, struct replay_times **times_out,
                              struct error *error);
void replay_times_close(struct replay_times *times); /* NULL is fine. */

/* Adds the measured times of a request that is done; times_ms is indexed by enum replay_time. TBT,
 * the mean of the request, is used only if has_tbt is true (more than one token). ST_NO_MEMORY: the
 * request is not counted, and some of its times are lost. */
enum status replay_times_add(struct replay_times *times, uint64_t id, const double *times_ms,
                             bool has_tbt);

/* Write P50, P90 and P99 as measured and as predicted, with the error: as text, or as a JSON
 * object, a new reference for the caller. NULL = no memory, or a path that is not UTF-8. */
void replay_times_print_errors(struct replay_times *times, FILE *out);
json_t *replay_times_json_errors(struct replay_times *times);

/* Write P50, P90 and P99 of the slowdowns against the other run, each with the limit that the SLO
 * sets for it (slo_limits of tools/report/slo.h): as text, or as a JSON object as above. */
void replay_times_print_slowdowns(struct replay_times *times, FILE *out);
json_t *replay_times_json_slowdowns(struct replay_times *times);

/* Returns the number of joined requests whose slowdowns are all below the limits of P99. */
uint64_t replay_times_count_within_limits(const struct replay_times *times);

#endif
