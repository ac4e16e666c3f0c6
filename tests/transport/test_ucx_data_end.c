/* Goal: a data connection that is reset while nothing is read from it, because its control
 * connection is not up yet, ends both, and does not keep the event loop busy until a deadline.
 * Method: a transport of this process without a key; raw sockets play the peer, which never sends
 * LINK_READY. Found by fuzz_connection. */
#include "tests/transport/net.h"
#include "transport/handshake.h"
#include "transport/stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define REGION ((uint64_t)1 << 20)

enum { HELLO = 1, DATA = 11 };

static struct stream dial(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct stream stream;
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    stream_init(&stream, fd);
    return stream;
}

/* Reads the HELLO of `side`. Returns its token. */
static uint64_t token_get(struct net_side *side, struct stream *stream)
{
    struct stream_frame frame;
    struct handshake hello;
    struct error error;
    const uint8_t *payload;
    static uint8_t copy[HANDSHAKE_BYTES_MAX];
    for (int64_t end_ms = net_now_ms() + NET_LONG_MS;
         !stream_frame_next(stream, &frame, &payload);) {
        CHECK(net_now_ms() < end_ms);
        net_turn(side, 1, 10);
        enum status status = stream_receive(stream, sizeof(copy), &error);
        CHECKF(status == ST_OK || status == ST_IN_PROGRESS, "%s", error.text);
    }
    CHECK(frame.kind == HELLO && frame.bytes <= sizeof(copy));
    memcpy(copy, payload, frame.bytes);
    CHECK(handshake_decode(copy, frame.bytes, &hello, &error) == ST_OK);
    return hello.token;
}

int main(void)
{
    static uint8_t frame[HANDSHAKE_BYTES_MAX];
    const struct linger reset = {.l_onoff = 1};
    struct net_side side;
    char address[LIMIT_ADDRESS_BYTES];
    struct error error;
    struct handshake hello;
    struct transport_options options = net_options("t0", REGION);
    options.ucx_tls = "none";
    options.connect_ms = options.link_ms = options.silence_ms = 10 * NET_LONG_MS;
    options.heartbeat_ms = NET_LONG_MS;
    net_open(&side, options);
    CHECK(transport_listen(side.transport, "127.0.0.1:0", address, &error) == ST_OK);

    struct stream control = dial(address);
    handshake_init(&hello, TRANSPORT_PROTOCOL_VERSION);
    hello.identity = net_options("p0", REGION).identity;
    CHECK(stream_send(&control, HELLO, frame, handshake_encode(&hello, frame, sizeof(frame)),
                      &error) == ST_OK);
    uint64_t token = token_get(&side, &control);
    struct stream data = dial(address);
    CHECK(stream_send(&data, DATA, &token, sizeof(token), &error) == ST_OK);
    for (int i = 0; i < 20; i++)
        net_turn(&side, 1, 10);
    CHECK(side.up_count == 0 && side.down_count == 0);
    CHECK(setsockopt(data.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
    stream_done(&data);
    NET_WAIT(&side, 1, side.down_count == 1);
    CHECKF(strcmp(side.text, "p0: a data connection was lost") == 0, "%s", side.text);
    stream_done(&control);
    transport_close(side.transport);
    printf("a data connection that is reset before it is read ends its connection\n");
    return 0;
}
