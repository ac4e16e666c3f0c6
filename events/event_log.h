/* event_log: a log file to which lines are added without waiting for the disk. server/ writes the
 * event log (config key `log/events_file`) and the access log (`log/access_file`), on the gateway's
 * event loop thread. A log owns its file, buffers for lines, and a thread that writes the lines to
 * the file. If the disk is too slow (1 MiB of lines wait), or the file cannot be written, lines are
 * dropped and counted. The part does not know what the lines mean (event_text.h and server/http/
 * do), does not rotate the file, and does not force data to the disk (no fsync). */
#ifndef EVENTS_EVENT_LOG_H
#define EVENTS_EVENT_LOG_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_log;

struct event_log_counts {
    uint64_t written; /* Lines written to the file. */
    uint64_t dropped; /* Lines that are not in the file. */
    /* Why the latest dropped line was dropped; empty = no line was dropped. */
    char drop_reason[128];
};

/* Opens the file for appending (mode 0600 if it is created) and starts the thread. Returns ST_IO,
 * or ST_NO_MEMORY (also if no thread can be started), with the path in *error. */
enum status event_log_open(const char *path, struct event_log **out, struct error *error);
/* Waits at most a second until all lines are written, and frees the log. If writing takes longer,
 * the thread goes on, and nothing is freed. NULL is fine. */
void event_log_close(struct event_log *log);

/* Adds one line, given without its line feed. The line is copied. A line {"dropped":N} in the file
 * stands for N dropped lines. */
void event_log_add(struct event_log *log, const char *line, size_t line_bytes);

/* Returns true if both logs have the same file. */
bool event_log_same_file(const struct event_log *first, const struct event_log *second);

/* Returns the counts since event_log_open. */
struct event_log_counts event_log_counts(struct event_log *log);

#endif
