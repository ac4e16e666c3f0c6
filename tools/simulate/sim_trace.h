/* sim_trace: the requests of a simulation in the order of arrival, from a trace
 * (tools/trace/trace.h) or from an array of the caller. `cleave simulate` reads a trace during the
 * simulation. `cleave plan` reads a trace once, and then gives an array to each simulation. Each
 * simulation has its own struct sim_trace, and uses it on one thread. The struct owns the open
 * trace. This part parses no files: trace.h does. */
#ifndef TOOLS_SIMULATE_SIM_TRACE_H
#define TOOLS_SIMULATE_SIM_TRACE_H

#include "tools/trace/trace.h"

struct sim_arrival {
    double at_s;            /* Seconds, ≥ 0, not before the previous arrival. */
    uint64_t id;            /* Id of the trace's row. */
    uint64_t line;          /* Line of the trace's file. */
    uint32_t prompt_tokens; /* ≥ 1. */
    uint32_t output_tokens; /* ≥ 1. */
    /* Hash ids of the prompt's blocks (struct trace_row). From a trace: valid until the next
     * arrival is read. From an array: valid as long as the array. */
    const int64_t *blocks;
    uint32_t block_count;  /* 0 = none. */
    uint32_t block_tokens; /* Tokens of each block. */
};

struct sim_trace {
    struct trace *trace;                /* NULL = the requests come from `arrivals`. */
    const struct sim_arrival *arrivals; /* [arrival_count]: belongs to the caller. */
    uint64_t arrival_count;
    uint64_t arrival_next; /* Index of the next arrival. */
    double time_scale;     /* Factor on the times of the array. */
    double end_s;          /* Requests of the array at or after this scaled time are left out. */
    const char *name;      /* Name of the trace in errors; belongs to the caller. */
    /* True: wrong rows are skipped and counted. False: a wrong row ends the run. */
    bool skip_wrong_rows;
    /* A row has hash ids. True also for a Mooncake trace on standard input or in a pipe, whose rows
     * are not known yet. */
    bool has_prefixes;
    uint64_t rejected;           /* Number of requests that sim_trace_reject skipped. */
    struct error first_rejected; /* Why the first request was rejected. */
};

/* Opens a trace. name: a file or a synthetic workload, as in trace_open; must outlive *trace.
 * skip_wrong_rows: see struct sim_trace. seed: for a synthetic workload. Returns the errors of
 * trace_open. */
enum status sim_trace_open(struct sim_trace *trace, const char *name, bool skip_wrong_rows,
                           uint64_t seed, struct error *error);
/* Uses the requests of an array whose times, multiplied with time_scale, are below end_s. The array
 * and `name` must outlive *trace. */
void sim_trace_array_open(struct sim_trace *trace, const char *name,
                          const struct sim_arrival *arrivals, uint64_t count, double time_scale,
                          double end_s);
/* Closes the file; the caller's array is not freed. */
void sim_trace_close(struct sim_trace *trace);

/* Stores the next request. *end_out: true = no more requests. Errors are those of trace_next. */
enum status sim_trace_next(struct sim_trace *trace, struct sim_arrival *out, bool *end_out,
                           struct error *error);

/* Rejects an arrival that only the simulation can find wrong, e.g. larger than any machine. Returns
 * ST_OK if wrong rows are skipped, else ST_INVALID. */
enum status sim_trace_reject(struct sim_trace *trace, const struct sim_arrival *arrival,
                             const char *reason, struct error *error);

/* Returns the number of rows that were skipped or rejected. */
uint64_t sim_trace_skipped(const struct sim_trace *trace);
/* Returns why the first wrong row was skipped or, if no row was wrong, why the first request was
 * rejected; "" = no row was skipped or rejected. */
const char *sim_trace_first_skipped(const struct sim_trace *trace);

#endif
