/* replay_times: TTFT, TBT and E2E of requests in another run, from a CSV of `cleave simulate --out`
 * or `cleave replay --out`, or from their --json. They are compared with the measured times: as the
 * error of a prediction, or as slowdowns against a run without contention. Requests are joined by
 * their ids. replay.c opens it and report.c adds the measured times, on the main thread of `cleave
 * replay`. It measures nothing. */
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
 * outcome, rows that are not "done" are skipped. A file that begins with "{" is a summary with
 * percentiles only, without requests to join. whole: refuse a summary. ST_IO, ST_INVALID,
 * ST_NOT_FOUND (a column is missing), ST_NO_MEMORY. The error names file, line and column. */
enum status replay_times_open(const char *path, bool whole, struct replay_times **times_out,
                              struct error *error);
void replay_times_close(struct replay_times *times); /* NULL is fine. */

/* Adds the measured times of a request that is done, in milliseconds, indexed by enum replay_time.
 * The mean TBT counts only if has_tbt is true (more than one token). ST_NO_MEMORY: the times are
 * lost. */
enum status replay_times_add(struct replay_times *times, uint64_t id, const double *ms,
                             bool has_tbt);

/* Write P50, P90 and P99 as measured and as predicted, with the error: as text, or as a new JSON
 * value for the caller. */
void replay_times_print_errors(struct replay_times *times, FILE *out);
json_t *replay_times_json_errors(struct replay_times *times);

/* Write the slowdowns against the other run, with their limits (tools/report/slo.h): as text, or as
 * a new JSON value for the caller. */
void replay_times_print_slowdowns(struct replay_times *times, FILE *out);
json_t *replay_times_json_slowdowns(struct replay_times *times);

/* Returns the number of joined requests whose slowdowns are all below the P99 limits. */
uint64_t replay_times_within(const struct replay_times *times);

#endif
