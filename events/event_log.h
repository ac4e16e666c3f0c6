/* event_log: a log file that never delays the event loop. The gateway writes the file
 * `log/events_file` by it (server/gateway/events.c); its event loop thread makes every call. Lines
 * go into a buffer of 1 MiB, which a thread of the event log writes to the file. When the buffer is
 * full or the file cannot be written, lines are dropped and counted. It does not know what the
 * lines mean (event_text.h does), rotates nothing, and does not force data to the disk (no fsync).
 */
#ifndef EVENTS_EVENT_LOG_H
#define EVENTS_EVENT_LOG_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct event_log;

struct event_log_counts {
    uint64_t written; /* Lines that are in the file. */
    uint64_t dropped; /* Lines that will never be in the file. */
    char why[128];    /* Why a line was last dropped; empty = no line was. */
};

/* Opens the file for appending (mode 0600 if it is created) and starts the thread. Errors name the
 * path. */
enum status event_log_open(const char *path, struct event_log **out, struct error *error);
/* Writes the lines that are still in the buffer, waiting at most one second, then closes the file.
 * NULL is fine. */
void event_log_close(struct event_log *log);

/* Appends one line (copied; without its line feed). After dropped lines, the line {"dropped":N}
 * stands in their place. */
void event_log_add(struct event_log *log, const char *line, size_t bytes);

/* Returns the counts since event_log_open. */
struct event_log_counts event_log_counts(struct event_log *log);

#endif
