/* replay_sse: cuts a byte stream into server-sent events (WHATWG HTML, section 9.2.6) and hands out
 * the data of each. Bytes may come in any pieces. Lines end in LF, CRLF or CR; comment lines and
 * fields other than `data` are passed over; several data lines of an event are joined by LF. Not
 * thread-safe. */
#ifndef BENCH_REPLAY_SSE_H
#define BENCH_REPLAY_SSE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Largest event. Events of a token are far smaller; the limit guards against a broken server. */
#define REPLAY_SSE_EVENT_BYTES (1u << 20)

/* `data` is NUL-terminated and valid during the call. Returns false to end the stream here. */
typedef bool (*replay_sse_event_fn)(void *self, const char *data, size_t size);

struct replay_sse {
    replay_sse_event_fn on_event;
    void *self;
    char *data; /* the data lines of the event so far, each ended by LF */
    size_t data_size;
    size_t data_capacity;
    char *line; /* the line so far */
    size_t line_size;
    size_t line_capacity;
    bool has_data;
    bool last_was_cr;
};

void replay_sse_init(struct replay_sse *sse, replay_sse_event_fn on_event, void *self);
void replay_sse_done(struct replay_sse *sse);

/* Forgets the event so far, keeps the memory: for the next stream. */
void replay_sse_reset(struct replay_sse *sse);

/* ST_CANCELLED when on_event returned false; ST_TOO_LARGE for an event over the limit. */
enum status replay_sse_feed(struct replay_sse *sse, const char *bytes, size_t size);

/* The stream ended: hands out an event whose blank line is missing, as lenient clients do. */
enum status replay_sse_finish(struct replay_sse *sse);

#endif
