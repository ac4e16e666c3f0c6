/* replay_sse: splits a byte stream into server-sent events (WHATWG HTML, section 9.2.6) and passes
 * the data of each event to a function. Bytes can arrive in pieces of any size. Lines end with LF,
 * CRLF or CR. Comments, and fields other than `data`, are ignored. client.c owns the structs; one
 * thread at a time uses a struct. This part reads no sockets and interprets no data. */
#ifndef TOOLS_REPLAY_SSE_H
#define TOOLS_REPLAY_SSE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Most bytes of each buffer. A line has at most 1 byte less (for the NUL). An event's data has at
 * most 2 bytes less (for the LF after the last data line, and the NUL). */
#define REPLAY_SSE_EVENT_BYTES (1u << 20)

/* Receives the data of an event: `size` bytes and a NUL; data lines are joined by LF. `data` is
 * valid during the call. Return false to end the stream. */
typedef bool (*replay_sse_event_fn)(void *self, const char *data, size_t size);

struct replay_sse {
    replay_sse_event_fn on_event;
    void *self; /* First argument of on_event. */
    char *data; /* Data lines of the current event, each with LF. */
    size_t data_size;
    size_t data_capacity;
    char *line; /* The current line. */
    size_t line_size;
    size_t line_capacity;
    bool has_data;    /* The current event has at least one data line. */
    bool last_was_cr; /* The last byte was CR; a LF after it ends the same line. */
};

/* Makes the struct ready for a stream. self: first argument of on_event. */
void replay_sse_init(struct replay_sse *sse, replay_sse_event_fn on_event, void *self);
/* Frees the buffers. The struct then needs replay_sse_init. */
void replay_sse_done(struct replay_sse *sse);

/* Drops the current event and keeps the memory for the next stream. */
void replay_sse_reset(struct replay_sse *sse);

/* Reads the next bytes of the stream, and calls on_event for each event that these bytes complete.
 * ST_CANCELLED: on_event returned false. ST_TOO_LARGE: an event or a line does not fit a buffer
 * (REPLAY_SSE_EVENT_BYTES). ST_NO_MEMORY: memory runs out. */
enum status replay_sse_feed(struct replay_sse *sse, const char *bytes, size_t size);

/* Ends the stream: calls on_event for a last event without an empty line after it. Errors are those
 * of replay_sse_feed. */
enum status replay_sse_finish(struct replay_sse *sse);

#endif
