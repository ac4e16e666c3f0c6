/* fuzz_stream: the framing of a connection gives the frames that were sent, for any split of the
 * bytes, and refuses a frame that is too large. Method: the first bytes of an input choose the
 * largest payload and the sizes of the pieces; the rest are the bytes of the connection, which are
 * also split by a plain reader. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "transport/stream.h"

#include <sys/socket.h>
#include <unistd.h>

#define BYTES_MAX  ((size_t)48 << 10) /* Fits the buffer of a socket. */
#define PIECES_MAX 64

struct plain { /* The bytes of the connection, and the frames that the plain reader has found. */
    const uint8_t *data;
    size_t size, at;
    size_t payload_max;
    uint32_t frames;
};

/* Takes the next frame as the plain reader sees it, and compares. */
static void compare(struct plain *plain, const struct stream_frame *frame, const uint8_t *payload)
{
    struct stream_frame want;
    CHECK(plain->size - plain->at >= sizeof(want));
    memcpy(&want, plain->data + plain->at, sizeof(want));
    CHECK(want.bytes == frame->bytes && want.kind == frame->kind);
    CHECK(frame->bytes <= plain->payload_max && (uintptr_t)payload % 8 == 0);
    size_t whole = sizeof(want) + ((size_t)want.bytes + 7) / 8 * 8;
    CHECK(plain->size - plain->at >= whole);
    CHECK(memcmp(plain->data + plain->at + sizeof(want), payload, frame->bytes) == 0);
    plain->at += whole;
    plain->frames++;
}

/* Returns what the plain reader sees at its position: a whole frame, a part, or one too large. */
static enum status next_of(const struct plain *plain)
{
    struct stream_frame head;
    if (plain->size - plain->at < sizeof(head))
        return ST_IN_PROGRESS;
    memcpy(&head, plain->data + plain->at, sizeof(head));
    if (head.bytes > plain->payload_max)
        return ST_INVALID;
    return plain->size - plain->at - sizeof(head) < ((size_t)head.bytes + 7) / 8 * 8
               ? ST_IN_PROGRESS
               : ST_OK;
}

static enum status receive_all(struct stream *stream, struct plain *plain)
{
    struct error error = {""};
    struct stream_frame frame;
    const uint8_t *payload;
    enum status status;
    while ((status = stream_receive(stream, plain->payload_max, &error)) == ST_OK)
        while (stream_frame_next(stream, &frame, &payload))
            compare(plain, &frame, payload);
    CHECK(status == ST_IN_PROGRESS || error.text[0] != 0);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t maxima[] = {0, 8, 100, 4096, 1 << 20};
    struct fuzz_input in = {data, size};
    struct plain plain = {.payload_max = maxima[fuzz_below(&in, 5)]};
    size_t pieces[PIECES_MAX];
    size_t piece_count = fuzz_below(&in, PIECES_MAX);
    for (size_t i = 0; i < piece_count; i++)
        pieces[i] = 1 + fuzz_byte(&in) * (i % 4 == 3 ? 64u : 1u);
    plain.data = fuzz_bytes(&in, BYTES_MAX, &plain.size);

    struct stream stream;
    struct error error;
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    stream_init(&stream, fds[0]);
    enum status status = ST_IN_PROGRESS;
    size_t sent = 0;
    for (size_t i = 0; sent < plain.size && status == ST_IN_PROGRESS; i++) {
        size_t left = plain.size - sent;
        size_t piece = i < piece_count && pieces[i] < left ? pieces[i] : left;
        CHECK(write(fds[1], plain.data + sent, piece) == (ssize_t)piece);
        sent += piece;
        status = receive_all(&stream, &plain);
    }
    if (status == ST_IN_PROGRESS) {
        CHECK(next_of(&plain) != ST_OK);
        /* The size of a frame is checked before the next bytes are read. */
        bool too_large = next_of(&plain) == ST_INVALID;
        CHECK(shutdown(fds[1], SHUT_WR) == 0);
        status = stream_receive(&stream, plain.payload_max, &error);
        CHECK(status == (too_large ? ST_INVALID : ST_UNREACHABLE));
        CHECK(stream_ended(&stream));
    } else {
        CHECK(status == ST_INVALID && next_of(&plain) == ST_INVALID);
    }
    stream_done(&stream);
    close(fds[1]);
    return 0;
}

/* Frames of several sizes in one piece, and in many; a frame that is too large. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const uint32_t sizes[] = {0, 1, 8, 13, 100, 70, 0, 5};
    size_t used = 0;
    if (index > 3 || capacity < 4096)
        return 0;
    memset(buffer, 0, 4096);
    buffer[used++] = (uint8_t)(index == 3 ? 1 : 3);
    uint8_t pieces = (uint8_t)(index * 20);
    buffer[used++] = pieces;
    for (uint8_t i = 0; i < pieces; i++)
        buffer[used++] = (uint8_t)(i * index % 23);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const struct stream_frame frame = {.bytes = sizes[i], .kind = (uint32_t)i};
        memcpy(buffer + used, &frame, sizeof(frame));
        memset(buffer + used + sizeof(frame), (int)i + 1, sizes[i]);
        used += sizeof(frame) + (sizes[i] + 7) / 8 * 8;
    }
    return used;
}
