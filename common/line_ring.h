/* line_ring: keeps the latest lines of text in a fixed amount of memory. A new line replaces the
 * oldest lines. The log (log.h) and server/gateway/ own rings. A ring is not thread-safe: the owner
 * makes all calls on one thread, or holds a lock. A ring does no I/O. */
#ifndef COMMON_LINE_RING_H
#define COMMON_LINE_RING_H

#include "common/status.h"
#include "common/text.h"

#include <stddef.h>
#include <stdint.h>

struct line_ring;

/* Opens a ring that holds at most `bytes` bytes. A line of n bytes takes n + 1 bytes. Returns
 * ST_NO_MEMORY on failure. */
enum status line_ring_open(size_t bytes, struct line_ring **out);
void line_ring_close(struct line_ring *ring); /* NULL is fine. */

/* Copies the `bytes` bytes of `line`, which has no line feed, into the ring. Removes the oldest
 * lines if the ring has no room. Does nothing if the line has a line feed, or if bytes + 1 is more
 * than the bytes of the ring. */
void line_ring_add(struct line_ring *ring, const char *line, size_t bytes);

/* Returns the number of lines in the ring. */
uint32_t line_ring_lines(const struct line_ring *ring);
/* Appends all lines to *out, the oldest line first, with `separator` between two lines. */
void line_ring_write(const struct line_ring *ring, const char *separator, struct text *out);

#endif
