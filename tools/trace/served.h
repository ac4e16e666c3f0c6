/* trace_served: makes a trace of the requests that a gateway served, from its event log (config key
 * `log/events_file`, events/event_text.h). The trace has the arrivals of the requests, the lengths
 * of the prompts, and the numbers of tokens that the clients received. Hashes of prompts and
 * numbers of API keys get new numbers. `cleave trace --from-events` calls the function on the main
 * thread. This part keeps no state and prints nothing. */
#ifndef TOOLS_TRACE_SERVED_H
#define TOOLS_TRACE_SERVED_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Counts of what was written and what was left out. */
struct served_totals {
    uint64_t requests;         /* Requests in the trace. */
    uint64_t refused;          /* Requests that were refused or expired, without a token. */
    uint64_t tokenless;        /* Requests that ended before their prompt was computed. */
    uint64_t requests_unended; /* Requests without an end before the next gap in the log. */
    uint64_t lines_lost;       /* Lines that the gateway could not write. */
    uint64_t lines_wrong;      /* Wrong lines that were left out (skip). */
    uint64_t files_incomplete; /* Files whose last line is incomplete. */
    bool begins_after_start;   /* The first line of all files is not the gateway's start. */
    char first_wrong[300];     /* Error of the first line in lines_wrong; "" = none. */
};

/* Reads the files and writes a line for each request that was served (trace_row_write), ordered by
 * arrival. A request that is open where lines are wrong or lost, or where the gateway starts
 * again, is left out. paths: oldest first; "-" = standard input. skip: leave out wrong lines.
 * If the prompt of a request was computed, but the request has no token (an embedding), the answer
 * in the trace has one token. *totals_out is written if all files were read.
 * ST_INVALID: a line is wrong, without `skip`. ST_NOT_FOUND: no such file, or no request
 * was served. ST_IO: a file cannot be read. ST_NO_MEMORY: memory runs out. Write errors:
 * ferror(out). */
enum status trace_served_write(const char *const *paths, uint32_t path_count, bool skip, FILE *out,
                               struct served_totals *totals_out, struct error *error);

#endif
