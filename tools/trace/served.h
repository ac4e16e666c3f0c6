/* trace_served: makes a trace of the requests that a gateway served, from its event log (config key
 * `log/events_file`, events/event_text.h). `cleave trace --from-events` calls it on the main thread.
 * A request is in the trace with its arrival, the tokens of its prompt and those that its client
 * received, also if it was resumed on other machines. The log has only hashes of prompts and numbers
 * of API keys; the trace has other numbers for both. It does not describe the trace: main.c does. */
#ifndef TOOLS_TRACE_SERVED_H
#define TOOLS_TRACE_SERVED_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What the files had besides the requests of the trace. */
struct served_totals {
    uint64_t requests;  /* Requests in the trace. */
    uint64_t refused;   /* Requests refused, or expired while they waited. */
    uint64_t tokenless; /* Requests that ended before their first token. */
    /* Requests without an end in the log: they were open at its end, when the gateway restarted, or
     * where lines are missing. */
    uint64_t cut;
    uint64_t missing;      /* Lines that the gateway could not write. */
    uint64_t wrong;        /* Wrong lines that were left out (skip). */
    uint64_t torn;         /* Files whose last line has no end, and was left out. */
    bool begun_before;     /* The first file does not begin with the gateway's start. */
    char first_wrong[300]; /* Why the first wrong line was wrong. */
};

/* Reads the files in the given order, that of their rotation ("-" = standard input), and writes a
 * line for each request that was served (trace_row_write), in the order of arrival. A wrong line
 * ends the reading with an error that names file and line (ST_INVALID), or with `skip` counts as
 * missing. A request whose answer needed no token machine (an embedding) gets an answer of one
 * token, which costs the same. ST_NOT_FOUND: no such file, or no request was served. ST_IO,
 * ST_NO_MEMORY. */
enum status trace_served_write(const char *const *paths, uint32_t path_count, bool skip, FILE *out,
                               struct served_totals *totals_out, struct error *error);

#endif
