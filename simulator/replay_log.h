/* replay_log: reads what a gateway wrote into its event log (server/event_text.h) and gives the
 * same events to the same scheduler again: does it decide the same? So a night's decisions can be
 * looked at by daylight, and a changed scheduler be held against a real night. The gateway's text
 * is read, nothing else of it is used. One thread; it prints nothing. */
#ifndef SIMULATOR_REPLAY_LOG_H
#define SIMULATOR_REPLAY_LOG_H

#include "common/status.h"
#include "scheduler/cluster.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct replay_log_totals {
    uint64_t lines;
    uint64_t starts;  /* of gateways: each begins with schedulers that know nothing */
    uint64_t events;  /* that were given to a scheduler */
    uint64_t actions; /* that the log has for them */
    uint64_t routes;  /* of these */
    uint64_t refusals;
    uint64_t moves;
    uint64_t lost;
    uint64_t differing; /* lines for which the scheduler decided something else */
    uint64_t
        left_out; /* events whose past is not in the log: it began later, or lines are missing */
    int64_t first_us; /* of the events; equal if there are none */
    int64_t last_us;
};

struct replay_log_calls { /* NULL: nobody wants to know */
    /* The scheduler decided something else. Both as the log would write them, good during the call.
     */
    void (*differs)(void *self, uint64_t line, const char *logged, const char *decided);
    void *self;
};

/* Reads `file` to its end. ST_INVALID: a line is none of an event log's, or names a machine or
 * request that cannot be; the error says line and what is wrong. `name` stands for the file in
 * errors. */
enum status replay_log(FILE *file, const char *name, const struct replay_log_calls *calls,
                       struct replay_log_totals *out, struct error *error);

#endif
