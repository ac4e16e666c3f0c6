/* sim_trace: the requests that a simulation gets, one after the other: a trace's rows (trace.h),
 * less those that turn out to be wrong for the machines that are simulated; or those of an array.
 */
#ifndef SIMULATOR_SIM_TRACE_H
#define SIMULATOR_SIM_TRACE_H

#include "simulator/trace.h"

struct sim_arrival {
    double at_s; /* ≥ 0, never before the one before it */
    uint64_t id;
    uint64_t line; /* of the file */
    uint32_t prompt_tokens;
    uint32_t output_tokens; /* ≥ 1 each */
};

struct sim_trace {
    struct trace *trace;                /* NULL: the caller's array has the requests: */
    const struct sim_arrival *arrivals; /* … [arrival_count], at their times … */
    uint64_t arrival_count;
    uint64_t arrival_next;
    double time_scale; /* … multiplied with this, those before … */
    double end_s;
    const char *name; /* the caller's */
    bool skip; /* rows that are wrong are left out, and counted; otherwise they end the run */
    uint64_t rejected;
    struct error first_rejected; /* why the first of them was */
};

/* name: a file or a law, as trace_open has it; seed: of a law. */
enum status sim_trace_open(struct sim_trace *trace, const char *name, bool skip, uint64_t seed,
                           struct error *error);
/* Of an array, which the caller keeps until the end: its requests at their times multiplied with
 * time_scale, as long as those are below end_s. */
void sim_trace_of(struct sim_trace *trace, const char *name, const struct sim_arrival *arrivals,
                  uint64_t count, double time_scale, double end_s);
void sim_trace_close(struct sim_trace *trace);

/* *end_out: there are no more. ST_INVALID: the row is wrong; file, line and column are named. */
enum status sim_trace_next(struct sim_trace *trace, struct sim_arrival *out, bool *end_out,
                           struct error *error);

/* What is wrong with an arrival that nobody but the simulation can see (larger than any machine):
 * as a row that is wrong: ST_OK if those are left out. */
enum status sim_trace_reject(struct sim_trace *trace, const struct sim_arrival *arrival,
                             const char *why, struct error *error);

/* Rows that were left out, and why one of the first was; "" if none was. */
uint64_t sim_trace_skipped(const struct sim_trace *trace);
const char *sim_trace_first_skipped(const struct sim_trace *trace);

#endif
