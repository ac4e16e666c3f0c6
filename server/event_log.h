/* event_log: a file that one thread of ours writes and the loop never waits for: lines go into a
 * buffer; when it is full, or the disk is, they are dropped and counted. The loop thread makes
 * every call. It does not know what lines mean (event_text.h). */
#ifndef SERVER_EVENT_LOG_H
#define SERVER_EVENT_LOG_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct event_log;

struct event_log_counts {
    uint64_t written; /* lines */
    uint64_t dropped;
    char why[128]; /* why the last one that the file did not take was dropped; empty: none was */
};

/* Appends to the file (mode 0600 if it is made). Errors name the path. */
enum status event_log_open(const char *path, struct event_log **out, struct error *error);
/* Writes what is left, for a second at most. NULL is fine. */
void event_log_close(struct event_log *log);

/* One line, without its line feed (copied). Lines that are dropped leave {"dropped":N} behind. */
void event_log_add(struct event_log *log, const char *line, size_t bytes);

struct event_log_counts event_log_counts(struct event_log *log);

#endif
