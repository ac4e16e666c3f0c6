/* line_ring: the latest lines of text, within fixed memory. When the ring is full, the oldest lines
 * make room. The log (log.h) and the gateway (server/gateway/events.c, events of its schedulers)
 * each own a ring. It is not thread-safe: the owner makes every call on one thread, or holds a
 * lock. It does no I/O. */
#ifndef COMMON_LINE_RING_H
#define COMMON_LINE_RING_H

#include "common/status.h"
#include "common/text.h"

#include <stddef.h>
#include <stdint.h>

struct line_ring;

/* Opens a ring that holds at most `bytes` bytes. A line takes its bytes and one more. Returns
 * ST_NO_MEMORY on failure. */
enum status line_ring_open(size_t bytes, struct line_ring **out);
void line_ring_close(struct line_ring *ring); /* NULL is fine. */

/* Appends one line, given without its line feed; copied. A line that does not fit the empty ring,
 * or that contains a line feed, is left out. */
void line_ring_add(struct line_ring *ring, const char *line, size_t bytes);

/* Returns the number of lines. */
uint32_t line_ring_lines(const struct line_ring *ring);
/* Appends the lines, the oldest first, each followed by `separator` except the last one. */
void line_ring_write(const struct line_ring *ring, const char *separator, struct text *out);

#endif
