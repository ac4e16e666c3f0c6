/* line_ring: see the header. Lines end with a line feed, and may begin at the ring's end and
 * continue at its start. */
#include "common/line_ring.h"

#include <stdlib.h>
#include <string.h>

struct line_ring {
    size_t capacity;
    size_t first; /* Offset of the oldest line. */
    size_t bytes; /* Bytes of all lines. */
    uint32_t lines;
    char data[];
};

enum status line_ring_open(size_t bytes, struct line_ring **out)
{
    struct line_ring *ring = malloc(sizeof(*ring) + bytes);
    if (ring == NULL)
        return ST_NO_MEMORY;
    *ring = (struct line_ring){.capacity = bytes};
    *out = ring;
    return ST_OK;
}

void line_ring_close(struct line_ring *ring)
{
    free(ring);
}

/* The byte at this distance from the oldest one. */
static size_t offset_of(const struct line_ring *ring, size_t at)
{
    return (ring->first + at) % ring->capacity;
}

static void oldest_remove(struct line_ring *ring)
{
    size_t length = 0;
    while (ring->data[offset_of(ring, length)] != '\n')
        length++;
    ring->first = offset_of(ring, length + 1);
    ring->bytes -= length + 1;
    ring->lines--;
}

static void bytes_add(struct line_ring *ring, const char *data, size_t bytes)
{
    size_t at = offset_of(ring, ring->bytes), room = ring->capacity - at;
    size_t here = bytes < room ? bytes : room;
    memcpy(ring->data + at, data, here);
    memcpy(ring->data, data + here, bytes - here);
    ring->bytes += bytes;
}

void line_ring_add(struct line_ring *ring, const char *line, size_t bytes)
{
    if (bytes >= ring->capacity || memchr(line, '\n', bytes) != NULL)
        return;
    while (ring->capacity - ring->bytes < bytes + 1)
        oldest_remove(ring);
    bytes_add(ring, line, bytes);
    bytes_add(ring, "\n", 1);
    ring->lines++;
}

uint32_t line_ring_lines(const struct line_ring *ring)
{
    return ring->lines;
}

void line_ring_write(const struct line_ring *ring, const char *separator, struct text *out)
{
    size_t start = 0;
    uint32_t left = ring->lines;
    for (size_t at = 0; at < ring->bytes; at++) {
        size_t offset = offset_of(ring, at);
        bool ends = ring->data[offset] == '\n';
        if (!ends && offset + 1 < ring->capacity)
            continue;
        /* A whole line, or the part of it before the ring's end. */
        size_t from = offset_of(ring, start);
        text_add(out, ring->data + from, offset - from + (ends ? 0 : 1));
        start = at + 1;
        if (ends && --left > 0)
            text_string_add(out, separator);
    }
}
