/* sim_trace: the requests of a trace file, row by row, in the order of their arrival. Columns are
 * found by name: arrival_timestamp (seconds), prompt_size and token_size, with request_id if it is
 * there (the reference's traces); or TIMESTAMP (a date), ContextTokens and GeneratedTokens
 * (Azure's, of 2023 and 2024): then time begins with the first row. Memory does not grow with the
 * file. */
#ifndef SIMULATOR_SIM_TRACE_H
#define SIMULATOR_SIM_TRACE_H

#include "simulator/csv.h"

struct sim_arrival {
    double at_s; /* ≥ 0, never before the one before it */
    uint64_t id;
    uint64_t line; /* of the file */
    uint32_t prompt_tokens;
    uint32_t output_tokens; /* ≥ 1 each */
};

/* Requests that come by chance (Poisson), with lengths drawn from those of a trace. */
struct sim_synthetic {
    double rate_per_s;
    double seconds; /* none comes after so long */
    uint64_t seed;
    uint64_t drawn;
    double at_s;
    uint32_t length_count;
    uint32_t (*lengths)[2]; /* prompt and output tokens of each row; NULL: no synthetic trace */
};

struct sim_trace {
    struct csv csv;
    struct sim_synthetic synthetic;
    bool dated;
    bool has_id;
    uint32_t id_column;
    uint32_t time_column;
    uint32_t prompt_column;
    uint32_t output_column;
    int64_t first_ticks; /* dated: of 100 ns; -1: no row yet */
    double last_s;
    uint64_t rows;

    bool skip; /* rows that are wrong are left out, and counted; otherwise they end the run */
    uint64_t skipped;
    struct error first_skipped; /* why the first of them was */
};

enum status sim_trace_open(struct sim_trace *trace, const char *path, bool skip,
                           struct error *error);
/* The lengths of the rows of `path`, at rate_per_s for so many seconds; the same seed gives the
 * same requests. */
enum status sim_trace_open_synthetic(struct sim_trace *trace, const char *path, bool skip,
                                     double rate_per_s, double seconds, uint64_t seed,
                                     struct error *error);
void sim_trace_close(struct sim_trace *trace);

/* *end_out: there are no more. ST_INVALID: the row is wrong; file, line and column are named. */
enum status sim_trace_next(struct sim_trace *trace, struct sim_arrival *out, bool *end_out,
                           struct error *error);

/* What is wrong with an arrival that nobody but the simulator can see (larger than any machine):
 * as a row that is wrong: ST_OK if those are left out. */
enum status sim_trace_reject(struct sim_trace *trace, const struct sim_arrival *arrival,
                             const char *why, struct error *error);

#endif
