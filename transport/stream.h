/* stream: sends and receives frames in order on a non-blocking TCP socket, inside TLS if
 * stream_tls_begin was called. It owns the socket, the TLS session and the buffers. It does not
 * know what frames mean, and never waits: the caller watches the socket, also for EPOLLOUT while
 * stream_wants_write returns true. Only files of this folder and tests include it. The one thread
 * that owns the transport makes every call. */
#ifndef TRANSPORT_STREAM_H
#define TRANSPORT_STREAM_H

#include "common/status.h"
#include "transport/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes that may wait for a slow peer (transport_send). */
#define STREAM_QUEUE_BYTES (64u << 20)

/* The head of a frame; the payload follows. Payloads are padded to a multiple of eight bytes, so
 * that each payload is aligned in the receiver's buffer. */
struct stream_frame {
    uint32_t bytes; /* Size of the payload without padding. */
    uint32_t kind;
};

struct stream {
    int fd; /* -1 = none. */
    bool failed;
    bool closed; /* The other side has closed or reset the connection. */
    /* Buffer of received bytes; the bytes from in_head to in_tail are not taken yet. */
    uint8_t *in;
    size_t in_head, in_tail, in_capacity;
    /* Buffer of bytes to send, encrypted if `tls` is set; the bytes from out_head to out_tail
     * wait. */
    uint8_t *out;
    size_t out_head, out_tail, out_capacity;
    struct tls *tls; /* NULL = not encrypted. */
    bool tls_seen;   /* The first bytes of the other side were TLS. */
    /* Buffer of received bytes; the bytes from sealed_head to sealed_tail are not decrypted yet. */
    uint8_t *sealed;
    size_t sealed_head, sealed_tail, sealed_capacity;
};

void stream_init(struct stream *stream, int fd); /* Takes over `fd`. Allocates nothing. */
/* Closes the socket and frees the buffers. May be called again. */
void stream_done(struct stream *stream);
/* Frees everything except the socket. Returns the socket, which then belongs to the caller; -1 =
 * none. */
int stream_release(struct stream *stream);

/* Begins TLS. Requires that no bytes were sent or received. */
enum status stream_tls_begin(struct stream *stream, struct tls_keys *keys, bool accepting);
/* Continues the TLS hand-shake. Returns ST_OK if it is done, ST_IN_PROGRESS if it waits for the
 * other side, ST_UNREACHABLE if the connection is closed or reset, or an error of tls_handshake.
 * Returns ST_UNSUPPORTED if the other side does not speak TLS: the stream is then not encrypted. */
enum status stream_handshake(struct stream *stream, struct error *error);

/* Sends a frame: as many bytes as the socket takes at once, and queues the rest. Returns
 * ST_NO_RESOURCE if the queue is full (nothing is then queued), ST_NO_MEMORY, or ST_UNREACHABLE if
 * the connection is lost. */
enum status stream_send(struct stream *stream, uint32_t kind, const void *data, size_t bytes,
                        struct error *error);

/* A frame whose payload is a head, then data. */
struct stream_parts {
    uint32_t kind;
    const void *head;
    size_t head_bytes;
    const void *data;
    size_t data_bytes;
};

/* Sends a frame like stream_send. `later`: only queues the frame until the caller calls
 * stream_flush, so that one packet carries several small frames. */
enum status stream_send_parts(struct stream *stream, const struct stream_parts *parts, bool later,
                              struct error *error);
/* Returns the number of bytes that wait to be sent, encrypted if TLS is used. */
size_t stream_queued_bytes(const struct stream *stream);
/* Sends queued bytes, as many as the socket takes at once. Returns ST_OK also if bytes are left,
 * ST_UNREACHABLE if the connection is lost. Call it after EPOLLOUT, and after stream_send_parts
 * with `later`. */
enum status stream_flush(struct stream *stream, struct error *error);
/* Returns true if bytes wait to be sent. */
bool stream_wants_write(const struct stream *stream);
/* Returns true if the other side has begun TLS although this side has not. */
bool stream_sees_tls(const struct stream *stream);

/* Reads once from the socket; with TLS, decrypts what was read before, and reads only while no byte
 * can be decrypted. Returns ST_OK if data was read, ST_IN_PROGRESS if no data has arrived,
 * ST_UNREACHABLE if the connection is closed or reset or its TLS has failed, ST_INVALID if the next
 * frame has more than payload_max bytes of payload, ST_NO_MEMORY. */
enum status stream_receive(struct stream *stream, size_t payload_max, struct error *error);
/* Returns true if the peer has closed the connection, or the connection has failed. Frames that
 * arrived before may still be unread. */
bool stream_ended(const struct stream *stream);
/* Takes the next complete frame out of the buffer. Returns false if the buffer has no complete
 * frame. The payload is 8-byte aligned and valid until the next stream_receive. */
bool stream_frame_next(struct stream *stream, struct stream_frame *frame_out,
                       const uint8_t **payload_out);

#endif
