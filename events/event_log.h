/* event_log: a log file that never delays the event loop. Lines go into a buffer of 1 MiB, which a
 * thread of the event log writes to the file. When the buffer or the disk is full, lines are
 * dropped and counted. The loop thread makes every call. It does not know what the lines mean
 * (event_text.h). */
#ifndef EVENTS_EVENT_LOG_H
#define EVENTS_EVENT_LOG_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct event_log;

struct event_log_counts {
    uint64_t written; /* Lines written. */
    uint64_t dropped;
    char why[128]; /* Why a line was last dropped; empty = none was. */
};

/* Opens the file for appending (mode 0600 if it is created) and starts the thread. Errors name the
 * path. */
enum status event_log_open(const char *path, struct event_log **out, struct error *error);
/* Writes the rest, waiting at most one second. NULL is fine. */
void event_log_close(struct event_log *log);

/* Appends one line (copied; without its line feed). After dropped lines, the line {"dropped":N}
 * stands in their place. */
void event_log_add(struct event_log *log, const char *line, size_t bytes);

struct event_log_counts event_log_counts(struct event_log *log);

#endif
