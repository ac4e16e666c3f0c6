/* trace_served: makes a trace of the requests that a gateway served, from its event log (config key
 * `log/events_file`, events/event_text.h). `cleave trace --from-events` calls it on the main
 * thread. The trace has the arrival of each request, the number of its prompt's tokens, and the
 * number of tokens that its client received, also if the request was resumed on other machines. The
 * log has only hashes of prompts and numbers of API keys; the trace has new numbers for the hashes
 * and for the keys. This part keeps no state and prints no statistics (tools/trace/main.c does). */
#ifndef TOOLS_TRACE_SERVED_H
#define TOOLS_TRACE_SERVED_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Counts of what was written and what was left out. */
struct served_totals {
    uint64_t requests;  /* Requests in the trace. */
    uint64_t refused;   /* Requests refused, or expired while they waited, without a token. */
    uint64_t tokenless; /* Requests that ended before their prompt was computed. */
    /* Requests without an end in the log: the requests were open at the log's end, when the gateway
     * restarted, or where lines are missing. */
    uint64_t requests_unended;
    uint64_t lines_lost;   /* Lines that the gateway could not write. */
    uint64_t lines_wrong;  /* Wrong lines that were left out (skip). */
    uint64_t files_torn;   /* Files whose last line has no line feed and cannot be read. */
    bool begun_before;     /* The first file does not begin with the gateway's start. */
    char first_wrong[300]; /* Error of the first wrong line; empty = none. */
};

/* Reads the files, oldest first ("-" = standard input), and writes a line for each request that was
 * served (trace_row_write), in the order of arrival. A wrong line ends the reading with an error
 * that names file and line (ST_INVALID). With `skip` the line is left out and counts in
 * lines_wrong, and the requests that were open are left out. A request that ended without tokens,
 * but whose prompt was computed (an embedding), gets an answer of one token, because a simulated
 * answer of one token also needs only the prompt machine. *totals_out is written if all files were
 * read. ST_NOT_FOUND: no such file, or no request was served. ST_IO: a file cannot be read.
 * ST_NO_MEMORY: memory runs out. Write errors: ferror(out). */
enum status trace_served_write(const char *const *paths, uint32_t path_count, bool skip, FILE *out,
                               struct served_totals *totals_out, struct error *error);

#endif
