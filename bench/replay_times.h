/* replay_times: TTFT, TBT and E2E of requests as another run has them (a CSV of `cleave simulate
 * --out` or of `cleave replay --out`, or their --json), and what can be said when they stand beside
 * those that were measured: the error of a prediction, or slowdowns against a run without
 * contention. Requests are joined by their ids. One thread. */
#ifndef BENCH_REPLAY_TIMES_H
#define BENCH_REPLAY_TIMES_H

#include "bench/replay_samples.h"
#include "common/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum replay_time { REPLAY_TIME_TTFT, REPLAY_TIME_TBT, REPLAY_TIME_E2E, REPLAY_TIME_COUNT };

struct replay_times;

/* Columns request_id, ttft_s, tbt_s, e2e_s, and outcome if there is one: rows whose outcome is not
 * "done" are passed over. A file that begins with "{" is a summary: it has percentiles and nothing
 * to join, which `whole` refuses. The error names file, line and column. */
enum status replay_times_open(const char *path, bool whole, struct replay_times **times_out,
                              struct error *error);
void replay_times_close(struct replay_times *times); /* NULL is fine. */

/* What was measured of a request that is done; ms by enum replay_time. tbt: its mean, counted only
 * if `has_tbt` (more than one token). */
enum status replay_times_add(struct replay_times *times, uint64_t id, const double *ms,
                             bool has_tbt);

/* Measured and predicted at P50, P90, P99. */
void replay_times_print_errors(struct replay_times *times, FILE *out);
json_t *replay_times_json_errors(struct replay_times *times);

/* Each a slowdown against the other run, beside its limit (simulator/slo.h). */
void replay_times_print_slowdowns(struct replay_times *times, FILE *out);
json_t *replay_times_json_slowdowns(struct replay_times *times);

/* Requests that were joined, and those of them within the limits of P99 in all three times. */
uint64_t replay_times_joined(const struct replay_times *times);
uint64_t replay_times_within(const struct replay_times *times);

#endif
