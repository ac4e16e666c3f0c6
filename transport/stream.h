/* stream: sends and receives frames in order over one TCP socket, inside TLS if the caller has
 * called stream_tls_begin. A frame is a head (struct stream_frame) and a payload. The stream owns
 * the socket, the TLS session and the buffers. The stream never waits. The caller watches the
 * socket with epoll: for EPOLLIN, and for EPOLLOUT while stream_wants_write returns true. The
 * stream does not know what frames mean.
 *
 * The UCX transport (ucx*.c) makes every call, on the one thread that owns the transport. */
#ifndef TRANSPORT_STREAM_H
#define TRANSPORT_STREAM_H

#include "common/status.h"
#include "transport/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes that may wait for the socket, without the bytes that encryption adds to the last
 * frame. A frame with which more bytes would wait is refused. */
#define STREAM_QUEUE_BYTES (64u << 20)

/* The head of a frame. The payload follows, then padding to a multiple of eight bytes, so that each
 * payload is aligned in the receiver's buffer. */
struct stream_frame {
    uint32_t bytes; /* Size of the payload without padding. */
    uint32_t kind;  /* enum frame_kind (peers.h). */
};

struct stream {
    int fd;      /* -1 = none. */
    bool failed; /* An earlier call has failed, so no frame can be sent. */
    bool closed; /* The first failure was that the other side closed or reset the connection. */
    /* Buffer of received frames, decrypted. stream_frame_next has not returned the bytes from
     * in_head to in_tail yet. */
    uint8_t *in;
    size_t in_head, in_tail, in_capacity;
    size_t payload_max; /* Argument of the last stream_receive. */
    /* Buffer of bytes to send, encrypted if `tls` is set. The bytes from out_head to out_tail wait
     * for the socket. */
    uint8_t *out;
    size_t out_head, out_tail, out_capacity;
    struct tls *tls; /* NULL = not encrypted. */
    bool tls_seen;   /* The first received bytes were TLS. Set by stream_handshake. */
    /* Buffer of received encrypted bytes. TLS has not read the bytes from sealed_head to
     * sealed_tail yet. */
    uint8_t *sealed;
    size_t sealed_head, sealed_tail, sealed_capacity;
};

/* Begins a stream over a socket that is connected or is being connected. The socket then belongs to
 * the stream; -1 = no socket. Allocates nothing. */
void stream_init(struct stream *stream, int fd);
/* Closes the socket, and frees the TLS session and the buffers. May be called again. */
void stream_done(struct stream *stream);
/* Like stream_done, but returns the socket, which then belongs to the caller; -1 = no socket. */
int stream_release(struct stream *stream);

/* Begins TLS without sending anything: call stream_handshake next. Requires that no bytes were sent
 * or received. `accepting`: the other side has connected to this side. Returns ST_OK or
 * ST_NO_MEMORY. */
enum status stream_tls_begin(struct stream *stream, struct tls_keys *keys, bool accepting);
/* Continues the TLS hand-shake. Call this function after stream_tls_begin, and whenever the socket
 * is readable, as long as it returns ST_IN_PROGRESS: the hand-shake waits for the other side.
 * ST_OK: the hand-shake is done. ST_UNSUPPORTED: the other side does not speak TLS; the stream goes
 * on without encryption. ST_UNREACHABLE: the connection is lost. ST_MISMATCH: the other side does
 * not have the key or refused the hand-shake. ST_INVALID: the hand-shake failed for another reason.
 * ST_NO_MEMORY. */
enum status stream_handshake(struct stream *stream, struct error *error);

/* Sends a frame: sends as many bytes as the socket takes at once, and queues the rest. While
 * earlier bytes wait, queues the whole frame. `data` is copied. Returns ST_OK, or ST_NO_RESOURCE if
 * the queue is full: the stream has then queued nothing of the frame and still works. After any
 * other error the stream has failed: ST_UNREACHABLE if the connection is lost or encryption failed,
 * ST_NO_MEMORY. */
enum status stream_send(struct stream *stream, uint32_t kind, const void *data, size_t bytes,
                        struct error *error);

/* A frame whose payload is given in two parts: `head`, then `data`. */
struct stream_parts {
    uint32_t kind; /* As in struct stream_frame. */
    const void *head;
    size_t head_bytes;
    const void *data;
    size_t data_bytes;
};

/* Sends a frame like stream_send. `later`: only queues the frame, so that one packet carries
 * several small frames. The caller then calls stream_flush. */
enum status stream_send_parts(struct stream *stream, const struct stream_parts *parts, bool later,
                              struct error *error);
/* Returns the number of bytes that wait for the socket; with TLS, encrypted bytes. */
size_t stream_queued_bytes(const struct stream *stream);
/* Sends queued bytes, as many as the socket takes at once. Call this function after EPOLLOUT, and
 * after stream_send_parts with `later`. Returns ST_OK, even if bytes are left in the queue, or
 * ST_UNREACHABLE if the connection is lost. */
enum status stream_flush(struct stream *stream, struct error *error);
/* Returns true if bytes wait for the socket. */
bool stream_wants_write(const struct stream *stream);
/* Returns true if the received bytes that stream_frame_next has not returned yet begin a TLS
 * hand-shake. Requires that this side has not begun TLS. */
bool stream_sees_tls(const struct stream *stream);

/* Receives bytes into the buffer. Take the complete frames (stream_frame_next) before each call.
 * Call this function until it no longer returns ST_OK: epoll does not report bytes that were read
 * from the socket and are not decrypted yet.
 *
 * ST_OK: bytes were received. ST_IN_PROGRESS: no bytes have arrived. ST_UNREACHABLE: the connection
 * is closed or lost, or its TLS has failed. ST_INVALID: the next frame has more than payload_max
 * bytes of payload, or the other side has violated TLS. ST_NO_MEMORY. */
enum status stream_receive(struct stream *stream, size_t payload_max, struct error *error);
/* Returns true if the other side has closed the connection, or the connection is lost. Frames that
 * arrived before may still be unread. */
bool stream_ended(const struct stream *stream);
/* Takes the next complete frame out of the buffer. Returns false if the buffer has no complete
 * frame, or if the frame has more payload than the last stream_receive allowed. The payload is
 * aligned to 8 bytes, and valid until the next stream_receive or the end of the stream. */
bool stream_frame_next(struct stream *stream, struct stream_frame *frame_out,
                       const uint8_t **payload_out);

#endif
