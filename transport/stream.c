/* stream: see the header. Each buffer is one piece of memory with a head and a tail. Frames are
 * delivered in place. When the end of the memory is reached, the remaining bytes move to the front,
 * so in_head stays a multiple of eight. */
#include "transport/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define RECEIVE_BYTES (64u << 10)
/* Encrypted bytes read at once: more than a record (16 KiB and 261 bytes). */
#define SEALED_BYTES          ((size_t)128 << 10)
#define GREETING_SEALED_BYTES ((size_t)4 << 10) /* During the TLS hand-shake. */
#define KEEP_BYTES            (1u << 20)        /* An empty buffer larger than this is freed. */

static size_t fill_up(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

void stream_init(struct stream *stream, int fd)
{
    *stream = (struct stream){.fd = fd};
}

int stream_release(struct stream *stream)
{
    int fd = stream->fd;
    tls_close(stream->tls);
    free(stream->in);
    free(stream->out);
    free(stream->sealed);
    *stream = (struct stream){.fd = -1};
    return fd;
}

void stream_done(struct stream *stream)
{
    int fd = stream_release(stream);
    if (fd >= 0)
        close(fd);
}

static enum status lost(struct stream *stream, int error_number, struct error *error)
{
    /* After any first error, the kernel reports EPIPE or the end of the stream. */
    if (!stream->failed)
        stream->closed = error_number == ECONNRESET || error_number == EPIPE;
    stream->failed = true;
    return error_set(error, ST_UNREACHABLE, "connection lost: %s", strerror(error_number));
}

static enum status closed(struct stream *stream, struct error *error)
{
    if (!stream->failed)
        stream->closed = true;
    stream->failed = true;
    return error_set(error, ST_UNREACHABLE, "connection closed by the peer");
}

static enum status out_append(struct stream *stream, const void *data, size_t bytes)
{
    if (stream->out_tail + bytes > stream->out_capacity) {
        size_t used = stream->out_tail - stream->out_head;
        if (used > 0)
            memmove(stream->out, stream->out + stream->out_head, used);
        stream->out_head = 0;
        stream->out_tail = used;
    }
    if (stream->out_tail + bytes > stream->out_capacity) {
        size_t capacity = stream->out_capacity < 4096 ? 4096 : stream->out_capacity;
        while (capacity < stream->out_tail + bytes)
            capacity *= 2;
        uint8_t *out = realloc(stream->out, capacity);
        if (out == NULL)
            return ST_NO_MEMORY;
        stream->out = out;
        stream->out_capacity = capacity;
    }
    if (bytes > 0)
        memcpy(stream->out + stream->out_tail, data, bytes);
    stream->out_tail += bytes;
    return ST_OK;
}

bool stream_wants_write(const struct stream *stream)
{
    return stream->out_tail > stream->out_head;
}

size_t stream_queued_bytes(const struct stream *stream)
{
    return stream->out_tail - stream->out_head;
}

#define PIECES 4 /* Header, head, data and padding of a frame. */

/* Queues the unsent part of a frame's pieces: everything after the first `sent` bytes. */
static enum status queue_rest(struct stream *stream, const struct iovec *pieces, size_t sent)
{
    for (int i = 0; i < PIECES; i++) {
        size_t skip = sent < pieces[i].iov_len ? sent : pieces[i].iov_len;
        sent -= skip;
        enum status status = out_append(stream, (const uint8_t *)pieces[i].iov_base + skip,
                                        pieces[i].iov_len - skip);
        if (status != ST_OK) {
            stream->failed = true; /* Half a frame was sent, so the stream cannot continue. */
            return status;
        }
    }
    return ST_OK;
}

/* ---- TLS ---- */

static bool on_tls_send(void *self, const void *data, size_t bytes)
{
    return out_append(self, data, bytes) == ST_OK;
}

static size_t on_tls_take(void *self, void *data, size_t capacity)
{
    struct stream *stream = self;
    size_t have = stream->sealed_tail - stream->sealed_head;
    size_t bytes = have < capacity ? have : capacity;
    if (bytes > 0)
        memcpy(data, stream->sealed + stream->sealed_head, bytes);
    stream->sealed_head += bytes;
    if (stream->sealed_head == stream->sealed_tail)
        stream->sealed_head = stream->sealed_tail = 0;
    return bytes;
}

/* Has epoll report the socket when this many bytes are there: fewer bytes stay in the socket and
 * would be reported again and again. */
static void first_bytes_await(struct stream *stream, int bytes)
{
    (void)setsockopt(stream->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

enum status stream_tls_begin(struct stream *stream, struct tls_keys *keys, bool accepting)
{
    const struct tls_options options = {.keys = keys,
                                        .accepting = accepting,
                                        .send = on_tls_send,
                                        .take = on_tls_take,
                                        .self = stream};
    first_bytes_await(stream, 3);
    return tls_open(&options, &stream->tls);
}

/* Reads once from the socket. ST_IN_PROGRESS: nothing is there. Only with ST_OK, *got is set. */
static enum status socket_read(struct stream *stream, uint8_t *to, size_t capacity, size_t *got,
                               struct error *error)
{
    ssize_t count;
    do
        count = recv(stream->fd, to, capacity, MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EAGAIN)
        return ST_IN_PROGRESS;
    if (count < 0)
        return lost(stream, errno, error);
    if (count == 0)
        return closed(stream, error);
    *got = (size_t)count;
    return ST_OK;
}

/* Reads encrypted bytes from the socket, once. TLS has taken all earlier ones. */
static enum status sealed_receive(struct stream *stream, size_t capacity, struct error *error)
{
    if (stream->sealed_capacity < capacity) {
        uint8_t *sealed = realloc(stream->sealed, capacity);
        if (sealed == NULL)
            return error_set(error, ST_NO_MEMORY, "no memory for a connection");
        stream->sealed = sealed;
        stream->sealed_capacity = capacity;
    }
    if (stream->sealed_head != stream->sealed_tail) /* Nothing that TLS 1.3 allows. */
        return error_set(error, ST_INVALID, "TLS: received bytes are left");
    size_t got = 0;
    enum status status = socket_read(stream, stream->sealed, stream->sealed_capacity, &got, error);
    if (status != ST_OK)
        return status;
    stream->sealed_head = 0;
    stream->sealed_tail = got;
    return ST_OK;
}

/* Looks at the first bytes without taking them: a TLS record of a hand-shake (22) or an alert (21)
 * begins with its type and version 3.x. A frame of ours has a zero in the third byte. */
static enum status first_bytes_look(struct stream *stream, struct error *error)
{
    uint8_t first[3]; /* See first_bytes_await. */
    ssize_t got = recv(stream->fd, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return ST_IN_PROGRESS;
    if (got < 0)
        return lost(stream, errno, error);
    if (got == 0)
        return closed(stream, error);
    if (got < (ssize_t)sizeof(first))
        return stream_ended(stream) ? closed(stream, error) : ST_IN_PROGRESS;
    first_bytes_await(stream, 1);
    stream->tls_seen = (first[0] == 22 || first[0] == 21) && first[1] == 3 && first[2] != 0;
    return stream->tls_seen ? ST_OK : ST_UNSUPPORTED;
}

bool stream_sees_tls(const struct stream *stream)
{
    const uint8_t *first = stream->in + stream->in_head;
    return stream->in_tail - stream->in_head >= 3 && first[0] == 22 && first[1] == 3 &&
           first[2] != 0;
}

enum status stream_handshake(struct stream *stream, struct error *error)
{
    enum status status = ST_OK;
    while (status == ST_OK) {
        enum status tls = tls_handshake(stream->tls, error);
        /* TLS sends its alert, too. */
        struct error ignored;
        enum status sent = stream_flush(stream, tls == ST_IN_PROGRESS ? error : &ignored);
        if (tls != ST_IN_PROGRESS)
            return tls;
        status = sent;
        if (status == ST_OK && !stream->tls_seen)
            status = first_bytes_look(stream, error);
        if (status == ST_OK)
            status = sealed_receive(stream, GREETING_SEALED_BYTES, error);
    }
    if (status == ST_UNSUPPORTED) {
        tls_close(stream->tls);
        stream->tls = NULL;
        stream->out_head = stream->out_tail = 0;
    }
    return status;
}

/* Encrypts a frame's pieces into the queue, and sends the queue unless `later` is set. */
static enum status send_sealed(struct stream *stream, const struct iovec *pieces, bool later,
                               struct error *error)
{
    uint8_t record[TLS_RECORD_BYTES]; /* Small pieces share a record. */
    size_t used = 0;
    bool wanted = stream_wants_write(stream);
    enum status status = ST_OK;
    for (int i = 0; i < PIECES; i++) {
        const uint8_t *at = pieces[i].iov_base;
        size_t left = pieces[i].iov_len;
        while (left > 0 && status == ST_OK) {
            size_t whole = left / TLS_RECORD_BYTES * TLS_RECORD_BYTES;
            size_t room = sizeof(record) - used;
            size_t part = used == 0 && whole > 0 ? whole : left < room ? left : room;
            if (part == whole && used == 0) {
                status = tls_write(stream->tls, at, part, error);
            } else {
                memcpy(record + used, at, part);
                used += part;
            }
            if (used == sizeof(record) && status == ST_OK) {
                status = tls_write(stream->tls, record, used, error);
                used = 0;
            }
            at += part;
            left -= part;
        }
    }
    if (status == ST_OK && used > 0)
        status = tls_write(stream->tls, record, used, error);
    if (status == ST_OK)
        return later || wanted ? ST_OK : stream_flush(stream, error);
    stream->failed = true; /* Part of a frame may have been encrypted. */
    return status;
}

/* Decrypts into the buffer until it is full or nothing is left. */
static enum status receive_sealed(struct stream *stream, struct error *error)
{
    bool any = false;
    while (stream->in_tail < stream->in_capacity) {
        size_t bytes = 0;
        enum status status = tls_read(stream->tls, stream->in + stream->in_tail,
                                      stream->in_capacity - stream->in_tail, &bytes, error);
        stream->in_tail += bytes;
        any = any || bytes > 0;
        if (status == ST_IN_PROGRESS && !any)
            status = sealed_receive(stream, SEALED_BYTES, error);
        if (status == ST_IN_PROGRESS && any)
            return ST_OK;
        if (status != ST_OK) {
            stream->failed = stream->failed || status == ST_UNREACHABLE;
            return status;
        }
    }
    return ST_OK;
}

enum status stream_send(struct stream *stream, uint32_t kind, const void *data, size_t bytes,
                        struct error *error)
{
    const struct stream_parts parts = {.kind = kind, .data = data, .data_bytes = bytes};
    return stream_send_parts(stream, &parts, false, error);
}

enum status stream_send_parts(struct stream *stream, const struct stream_parts *parts, bool later,
                              struct error *error)
{
    static const uint8_t zeros[8];
    size_t bytes = parts->head_bytes + parts->data_bytes;
    struct stream_frame frame = {.bytes = (uint32_t)bytes, .kind = parts->kind};
    if (stream->failed || stream->fd < 0)
        return error_set(error, ST_UNREACHABLE, "connection lost");
    if (stream->out_tail - stream->out_head + bytes + 16 > STREAM_QUEUE_BYTES)
        return error_set(error, ST_NO_RESOURCE, "%u MiB wait for the peer to read",
                         STREAM_QUEUE_BYTES >> 20);
    struct iovec pieces[PIECES] = {
        {&frame, sizeof(frame)},
        {(void *)(uintptr_t)parts->head, parts->head_bytes},
        {(void *)(uintptr_t)parts->data, parts->data_bytes},
        {(void *)(uintptr_t)zeros, fill_up(bytes) - bytes},
    };
    if (stream->tls != NULL)
        return send_sealed(stream, pieces, later, error);
    ssize_t sent = 0;
    if (!later && !stream_wants_write(stream)) {
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = PIECES};
        sent = sendmsg(stream->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return lost(stream, errno, error);
        if (sent < 0)
            sent = 0;
    }
    if ((size_t)sent == sizeof(frame) + fill_up(bytes))
        return ST_OK;
    return queue_rest(stream, pieces, (size_t)sent);
}

enum status stream_flush(struct stream *stream, struct error *error)
{
    while (stream_wants_write(stream)) {
        ssize_t sent = send(stream->fd, stream->out + stream->out_head,
                            stream->out_tail - stream->out_head, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            return ST_OK;
        if (sent < 0)
            return lost(stream, errno, error);
        stream->out_head += (size_t)sent;
    }
    stream->out_head = stream->out_tail = 0;
    if (stream->out_capacity > KEEP_BYTES) {
        free(stream->out);
        stream->out = NULL;
        stream->out_capacity = 0;
    }
    return ST_OK;
}

/* Makes room for the rest of the frame whose header is in the buffer, or for RECEIVE_BYTES. */
static enum status in_reserve(struct stream *stream, size_t payload_max, struct error *error)
{
    size_t used = stream->in_tail - stream->in_head;
    size_t want = RECEIVE_BYTES;
    if (payload_max + sizeof(struct stream_frame) < want)
        want = fill_up(payload_max + sizeof(struct stream_frame));
    if (used >= sizeof(struct stream_frame)) {
        struct stream_frame frame;
        memcpy(&frame, stream->in + stream->in_head, sizeof(frame));
        if (frame.bytes > payload_max)
            return error_set(error, ST_INVALID, "a frame of %u bytes: want at most %zu",
                             frame.bytes, payload_max);
        if (sizeof(frame) + fill_up(frame.bytes) > want)
            want = sizeof(frame) + fill_up(frame.bytes);
    }
    if (stream->in_head > 0 && (used == 0 || stream->in_head + want > stream->in_capacity)) {
        memmove(stream->in, stream->in + stream->in_head, used);
        stream->in_head = 0;
        stream->in_tail = used;
    }
    if (used == 0 && stream->in_capacity > KEEP_BYTES && want <= RECEIVE_BYTES) {
        free(stream->in);
        stream->in = NULL;
        stream->in_capacity = 0;
    }
    if (stream->in_head + want > stream->in_capacity) {
        uint8_t *in = realloc(stream->in, stream->in_head + want);
        if (in == NULL)
            return error_set(error, ST_NO_MEMORY, "no memory for a frame of %zu bytes", want);
        stream->in = in;
        stream->in_capacity = stream->in_head + want;
    }
    return ST_OK;
}

enum status stream_receive(struct stream *stream, size_t payload_max, struct error *error)
{
    enum status status = in_reserve(stream, payload_max, error);
    if (status != ST_OK)
        return status;
    stream->payload_max = payload_max;
    if (stream->tls != NULL)
        return receive_sealed(stream, error);
    size_t got = 0;
    status = socket_read(stream, stream->in + stream->in_tail,
                         stream->in_capacity - stream->in_tail, &got, error);
    stream->in_tail += got;
    return status;
}

bool stream_ended(const struct stream *stream)
{
    struct pollfd look = {.fd = stream->fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

bool stream_frame_next(struct stream *stream, struct stream_frame *frame_out,
                       const uint8_t **payload_out)
{
    size_t used = stream->in_tail - stream->in_head;
    struct stream_frame frame;
    if (used < sizeof(frame))
        return false;
    memcpy(&frame, stream->in + stream->in_head, sizeof(frame));
    size_t whole = sizeof(frame) + fill_up(frame.bytes);
    /* The padding lets the buffer hold a frame that is up to seven bytes too large. */
    if (used < whole || frame.bytes > stream->payload_max)
        return false;
    *frame_out = frame;
    *payload_out = stream->in + stream->in_head + sizeof(frame);
    stream->in_head += whole;
    return true;
}
