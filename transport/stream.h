/* stream: frames on a non-blocking TCP socket: whole ones in, whole ones out, in order. It owns the
 * socket and the two buffers, does not know what frames mean, and does not wait: the caller watches
 * the socket (EPOLLOUT while stream_wants_write). Included by files of this folder only. */
#ifndef TRANSPORT_STREAM_H
#define TRANSPORT_STREAM_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAM_QUEUE_BYTES (64u << 20) /* what may wait for a slow peer (transport_send) */

/* Before each payload, which is filled up to a multiple of eight so that every payload lies aligned
 * in the receiver's buffer. */
struct stream_frame {
    uint32_t bytes; /* of the payload, without the fill */
    uint32_t kind;
};

struct stream {
    int fd; /* -1: none */
    bool failed;
    uint8_t *in;
    size_t in_head, in_tail, in_capacity;
    uint8_t *out;
    size_t out_head, out_tail, out_capacity;
};

void stream_init(struct stream *stream, int fd); /* takes fd over; no allocation yet */
void stream_done(struct stream *stream);         /* closes the socket. Idempotent. */

/* Sends what the socket takes at once and queues the rest. ST_NO_RESOURCE: the queue is full,
 * nothing was queued. ST_UNREACHABLE: the connection is gone (error names how). */
enum status stream_send(struct stream *stream, uint32_t kind, const void *data, size_t bytes,
                        struct error *error);
enum status stream_flush(struct stream *stream, struct error *error); /* after EPOLLOUT */
bool stream_wants_write(const struct stream *stream);

/* Reads once from the socket, up to `payload_max` + a frame. ST_OK: something came; ST_IN_PROGRESS:
 * nothing there; ST_UNREACHABLE: closed or reset; ST_INVALID: a frame larger than payload_max is
 * announced. */
enum status stream_receive(struct stream *stream, size_t payload_max, struct error *error);
/* The other end is closed, whatever of it is still to be read. */
bool stream_ended(const struct stream *stream);
/* The next whole frame in the buffer; the payload is 8-byte aligned and valid until the next
 * receive. */
bool stream_next(struct stream *stream, struct stream_frame *frame_out,
                 const uint8_t **payload_out);

#endif
