/* fuzz_tls: a relay between two ends of an encrypted connection that changes, drops, adds and
 * splits bytes makes neither end accept a frame that the other end has not sent, or one out of
 * order. Method: an input is a list of steps of the relay and of the two ends. Each frame carries
 * its number. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "transport/stream.h"

#include <sys/socket.h>
#include <unistd.h>

#define STEPS_MAX   200
#define PAYLOAD_MAX 4096

struct end {
    struct stream stream;
    int relay;      /* The relay's side of the socket. */
    bool ready;     /* The hand-shake is done. */
    bool over;      /* The connection has failed, or the other side speaks no TLS. */
    uint32_t sent;  /* Frames sent so far. */
    uint32_t taken; /* Frames of the other end that were accepted. */
    bool changed;   /* The relay has changed bytes on the way to this end. */
};

static struct tls_keys *keys;

static void end_open(struct end *end, bool accepting)
{
    int fds[2];
    memset(end, 0, sizeof(*end));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    stream_init(&end->stream, fds[0]);
    end->relay = fds[1];
    CHECK(stream_tls_begin(&end->stream, keys, accepting) == ST_OK);
}

/* Takes everything that has arrived. */
static void end_turn(struct end *end, const struct end *other)
{
    struct error error = {""};
    enum status status = ST_IN_PROGRESS;
    struct stream_frame frame;
    const uint8_t *payload;
    if (!end->ready && !end->over) {
        status = stream_handshake(&end->stream, &error);
        end->ready = status == ST_OK;
        end->over = status != ST_OK && status != ST_IN_PROGRESS;
    }
    if (!end->ready || end->over)
        return;
    while ((status = stream_receive(&end->stream, PAYLOAD_MAX, &error)) == ST_OK)
        while (stream_frame_next(&end->stream, &frame, &payload)) {
            CHECK(end->taken < other->sent);
            CHECK(frame.kind == end->taken && frame.bytes == end->taken % PAYLOAD_MAX);
            for (uint32_t i = 0; i < frame.bytes; i++)
                CHECK(payload[i] == (uint8_t)end->taken);
            end->taken++;
        }
    end->over = status != ST_IN_PROGRESS;
}

static void end_send(struct end *end)
{
    uint8_t data[PAYLOAD_MAX];
    struct error error;
    if (!end->ready || end->over)
        return;
    memset(data, (int)(uint8_t)end->sent, sizeof(data));
    if (stream_send(&end->stream, end->sent, data, end->sent % PAYLOAD_MAX, &error) == ST_OK)
        end->sent++;
    else
        end->over = true;
}

/* Passes on up to `most` bytes, of which it may change one, or which it may drop. */
static void relay(struct end *from, struct end *to, size_t most, struct fuzz_input *in, int change)
{
    uint8_t data[8192];
    ssize_t got = recv(from->relay, data, most < sizeof(data) ? most : sizeof(data), MSG_DONTWAIT);
    if (got <= 0)
        return;
    if (change == 1) {
        data[fuzz_below(in, (uint32_t)got)] ^= (uint8_t)(1 + fuzz_below(in, 255));
        to->changed = true;
    }
    if (change == 2) {
        to->changed = true;
        return;
    }
    (void)!send(to->relay, data, (size_t)got, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void add(struct end *to, struct fuzz_input *in)
{
    size_t bytes;
    const uint8_t *data = fuzz_bytes(in, 1 + fuzz_below(in, 64), &bytes);
    if (bytes > 0)
        to->changed = true;
    (void)!send(to->relay, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void step(struct end *ends, struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    struct end *from = &ends[what & 1], *to = &ends[1 - (what & 1)];
    switch (what / 2 % 8) {
    case 0:
    case 1:
        relay(from, to, 8192, in, 0);
        break;
    case 2:
        relay(from, to, 1 + fuzz_byte(in), in, 0);
        break;
    case 3:
        end_send(from);
        break;
    case 4:
        relay(from, to, 1 + fuzz_byte(in), in, 1);
        break;
    case 5:
        relay(from, to, 1 + fuzz_byte(in), in, 2);
        break;
    case 6:
        add(to, in);
        break;
    default:
        if (fuzz_below(in, 8) == 0)
            shutdown(to->relay, SHUT_WR);
        break;
    }
    end_turn(to, from);
    end_turn(from, to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct end ends[2];
    struct error error;
    if (keys == NULL) {
        static const uint8_t bytes[SECRET_HASH_BYTES] = "a cluster key";
        struct secret_keys one;
        secret_keys_set(&one, bytes);
        CHECK(tls_keys_open(&one, &keys, &error) == ST_OK);
    }
    end_open(&ends[0], false);
    end_open(&ends[1], true);
    end_turn(&ends[0], &ends[1]);
    for (int i = 0; i < STEPS_MAX && in.size > 0; i++)
        step(ends, &in);
    /* Without changes, all frames arrive. */
    if (!ends[0].changed && !ends[1].changed && !ends[0].over && !ends[1].over) {
        for (int i = 0; i < 20; i++) {
            relay(&ends[i % 2], &ends[1 - i % 2], 8192, &in, 0);
            end_turn(&ends[1 - i % 2], &ends[i % 2]);
        }
        CHECK(ends[0].ready && ends[1].ready && !ends[0].over && !ends[1].over);
    }
    for (int i = 0; i < 2; i++) {
        stream_done(&ends[i].stream);
        close(ends[i].relay);
    }
    return 0;
}

/* Byte = 2 * step + the end that the bytes come from. A whole exchange; one with a changed frame;
 * one with a changed hand-shake; one in small pieces; bytes that are no TLS. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {
        "\x10\x11\x10\x11\x06\x06\x07\x10\x11\x06\x10",
        "\x10\x11\x10\x11\x06\x08\x30\x05\x01\x06\x10",
        "\x08\xff\x20\x01\x11\x10",
        "\x04\x40\x04\xff\x05\x20\x05\xff\x04\xff\x06\x04\x08\x04\xff",
        "\x0c\x18hello, this is no TLS at all\x10\x11",
    };
    (void)sizeof(seeds);
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}
