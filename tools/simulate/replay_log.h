/* replay_log: reads a gateway's event log (events/event_text.h), gives the logged events to new
 * schedulers (one for each version of the model), and checks whether the schedulers make the logged
 * decisions. `cleave simulate` calls the function on the main thread. The function owns the
 * schedulers, simulates no machine and prints nothing. */
#ifndef TOOLS_SIMULATE_REPLAY_LOG_H
#define TOOLS_SIMULATE_REPLAY_LOG_H

#include "common/status.h"
#include "scheduler/cluster/cluster.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct replay_log_totals {
    uint64_t lines;     /* Lines of the log. */
    uint64_t starts;    /* Begins of gateways' logs; each begins with new schedulers. */
    uint64_t events;    /* Lines with events, new options or more actions, given to a scheduler. */
    uint64_t actions;   /* Logged actions of the lines that `events` counts. */
    uint64_t routes;    /* Actions that route a request. */
    uint64_t refusals;  /* Actions that refuse a request. */
    uint64_t moves;     /* Actions that move a machine to another pool. */
    uint64_t lost;      /* Actions that report a request as lost. */
    uint64_t differing; /* Lines whose logged actions differ from the scheduler's actions. */
    uint64_t skipped;   /* Lines that were skipped because earlier lines are missing in the log. */
    int64_t first_us;   /* Time of the first line that is counted in `events`; 0 = none. */
    int64_t last_us;    /* Time of the last line that is counted in `events`; 0 = none. */
};

struct replay_log_calls { /* What replay_log reports while it reads. */
    /* The scheduler's actions differ from the logged actions. Both texts are in the format of the
     * log and valid during the call. NULL = do not report. */
    void (*differs)(void *self, uint64_t line, const char *logged, const char *decided);
    void *self; /* First argument of `differs`. */
};

/* Reads `file` to its end. name: the file's name in errors. calls: NULL = do not report.
 * ST_INVALID: a line is not a line of an event log, names an impossible machine or request, or
 * contradicts earlier lines. An incomplete last line is no error. ST_IO: the file cannot be read.
 * ST_NO_MEMORY. Other errors are those of a scheduler that refuses its options. *out is set also
 * after an error, unless memory runs out at the start. */
enum status replay_log(FILE *file, const char *name, const struct replay_log_calls *calls,
                       struct replay_log_totals *out, struct error *error);

#endif
