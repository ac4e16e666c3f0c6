/* event_log: a log file to which lines can be added without waiting for the disk. The gateway
 * writes two such files: the event log (config key `log/events_file`) and the access log
 * (`log/access_file`). server/ makes every call, on the gateway's event loop thread. Each log owns
 * its file, two buffers of 1 MiB for lines (one is filled while the other is written), and a thread
 * that writes the buffers to the file. If the buffer that is filled has no room for a line, or if
 * the file cannot be written, lines are dropped and counted. The part does not know what the lines
 * mean (event_text.h and server/http/ do), rotates nothing, and does not force data to the disk (no
 * fsync). */
#ifndef EVENTS_EVENT_LOG_H
#define EVENTS_EVENT_LOG_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_log;

struct event_log_counts {
    uint64_t written; /* Lines written to the file. */
    uint64_t dropped; /* Lines dropped: the buffer was full, or writing failed. */
    /* Why the latest dropped line was dropped; empty = no line was dropped. */
    char drop_reason[128];
};

/* Opens the file for appending (mode 0600 if it is created) and starts the thread. Returns ST_IO,
 * or ST_NO_MEMORY (also if no thread can be started), with the path in *error. */
enum status event_log_open(const char *path, struct event_log **out, struct error *error);
/* Waits until the lines in the buffers are written, at most one second. Then closes the file and
 * frees the log. If the lines are not written within this second, the file stays open and the
 * memory stays allocated, because the thread still uses them. NULL is fine. */
void event_log_close(struct event_log *log);

/* Adds one line, given without its line feed. The line is copied. Where lines are missing in the
 * file, a line {"dropped":N} reports N of them before the next line. */
void event_log_add(struct event_log *log, const char *line, size_t line_bytes);

/* Returns true if the two logs write to one file. */
bool event_log_same_file(const struct event_log *first, const struct event_log *second);

/* Returns the counts since event_log_open. */
struct event_log_counts event_log_counts(struct event_log *log);

#endif
