/* Goal: a link over a network is up only when UCX has carried a message and flushed it. Where UCX
 * carries nothing, KV travels over data connections, and the note says why. UCX is tried again
 * later, while KV travels, and no write is lost or late when the link changes over.
 *
 * Method: UCX over TCP between two transports of this process. This file's ucp_am_send_nbx replaces
 * UCX's: it sends probes, drops them, or fails. */
#include "tests/transport/net.h"
#include "transport/fabric_internal.h"

#include <dlfcn.h>

#define REGION ((uint64_t)1 << 20)
#define CHUNK  ((size_t)64 << 10)

static enum { PROBES_SENT, PROBES_DROPPED, PROBES_FAIL } probes;
static int probe_count;
static int path_changes;

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes,
                                 const void *data, size_t bytes, const ucp_request_param_t *param)
{
    static ucs_status_ptr_t (*send)(ucp_ep_h, unsigned, const void *, size_t, const void *, size_t,
                                    const ucp_request_param_t *);
    if (send == NULL)
        *(void **)&send = dlsym(RTLD_NEXT, "ucp_am_send_nbx");
    probe_count += id == FABRIC_AM_PROBE;
    if (id == FABRIC_AM_PROBE && probes == PROBES_DROPPED)
        return NULL; /* As if it had been sent. */
    if (id == FABRIC_AM_PROBE && probes == PROBES_FAIL)
        return (ucs_status_ptr_t)(intptr_t)UCS_ERR_ENDPOINT_TIMEOUT;
    return send(ep, id, header, header_bytes, data, bytes, param);
}

/* KV arrives in both directions, so also from the side that accepted the connection. */
static void write_both_ways(struct net_side *sides)
{
    for (int i = 0; i < 2; i++) {
        uint8_t *from = transport_region(sides[i].transport);
        const uint8_t *to = transport_region(sides[1 - i].transport);
        uint64_t cookie = sides[i].flushed_cookie + 1;
        memset(from, 17 + i, CHUNK);
        CHECK(transport_write(sides[i].transport, sides[i].peer, from, CHUNK, 5 * CHUNK) == ST_OK);
        transport_flush(sides[i].transport, sides[i].peer, cookie);
        NET_WAIT(sides, 2, sides[i].flushed_cookie == cookie);
        CHECK(memcmp(to + 5 * CHUNK, from, CHUNK) == 0);
    }
}

static void run(const char *tls, uint32_t link_ms, const char *path, const char *note)
{
    struct net_side sides[2];
    char address[LIMIT_ADDRESS_BYTES];
    struct transport_options options[2] = {net_options("p0", REGION), net_options("t0", REGION)};
    for (int i = 0; i < 2; i++) {
        options[i].ucx_tls = tls;
        options[i].link_ms = link_ms;
    }
    net_pair_open(sides, options[0], options[1], address);
    net_pair_connect(sides, address);
    CHECKF(strcmp(transport_peer_path(sides[0].peer), path) == 0, "%s",
           transport_peer_path(sides[0].peer));
    CHECKF(strcmp(transport_peer_note(sides[0].peer), note) == 0, "%s",
           transport_peer_note(sides[0].peer));
    write_both_ways(sides);
    CHECK(sides[0].down_count == 0 && sides[1].down_count == 0);
    net_pair_close(sides);
}

static void on_path_changed(void *self, struct transport_peer *peer)
{
    const struct net_side *side = self;
    CHECK(side->peer == peer);
    CHECKF(strcmp(transport_peer_path(peer), "ucx am over tcp") == 0, "%s",
           transport_peer_path(peer));
    path_changes++;
}

/* UCX carries nothing at first. Two further attempts fail, the third one succeeds while writes are
 * under way all the time. Then the sides part while an attempt is under way. */
static void test_again(void)
{
    struct net_side sides[2];
    char address[LIMIT_ADDRESS_BYTES];
    struct transport_options options[2] = {net_options("p0", REGION), net_options("t0", REGION)};
    for (int i = 0; i < 2; i++) {
        options[i].ucx_tls = "tcp";
        options[i].link_ms = 20;
        options[i].link_retry_ms = 5;
        options[i].events.path_changed = on_path_changed;
    }
    for (int round = 0; round < 2; round++) {
        probes = PROBES_DROPPED;
        probe_count = path_changes = 0;
        net_pair_open(sides, options[0], options[1], address);
        net_pair_connect(sides, address);
        CHECK(strcmp(transport_peer_path(sides[0].peer), "messages over tcp") == 0);
        while (probe_count < 3) {
            write_both_ways(sides);
            probes = probe_count == 2 ? PROBES_FAIL : PROBES_DROPPED;
        }
        CHECK(path_changes == 0 && transport_peer_note(sides[0].peer)[0] != 0);
        probes = round == 0 ? PROBES_SENT : PROBES_DROPPED;
        while (round == 0 && path_changes == 0)
            write_both_ways(sides);
        for (int i = 0; i < 20; i++)
            write_both_ways(sides);
        CHECK(path_changes == 1 - round && sides[0].down_count == 0 && sides[1].down_count == 0);
        CHECK(round == 1 || transport_peer_note(sides[0].peer)[0] == 0);
        net_pair_close(sides);
    }
}

/* The connecting side never reports its link as ready. The accepting side gives up. */
static void test_never_ready(void)
{
    struct net_side sides[2];
    char address[LIMIT_ADDRESS_BYTES];
    struct transport_peer *peer;
    struct error error;
    struct transport_options options[2] = {net_options("p0", REGION), net_options("t0", REGION)};
    options[0].ucx_tls = options[1].ucx_tls = "tcp";
    options[1].link_ms = options[1].connect_ms = 50;
    probes = PROBES_DROPPED;
    net_pair_open(sides, options[0], options[1], address);
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(sides, 2, sides[1].down_count == 1 && sides[0].down_count == 1);
    CHECK(sides[0].up_count == 0 && sides[1].up_count == 0);
    CHECKF(strcmp(sides[1].text, "p0: its link is not ready within 100 ms") == 0, "%s",
           sides[1].text);
    probes = PROBES_SENT;
    net_pair_close(sides);
}

int main(void)
{
    run("tcp", NET_LONG_MS, "ucx am over tcp", "");
    CHECK(probe_count == 1);
    run(NULL, NET_LONG_MS, "ucx put over sysv", "");
    run("none", NET_LONG_MS, "messages over tcp", "");
    CHECK(probe_count == 1); /* No link must be proved. */
    probes = PROBES_DROPPED;
    run("tcp", 50, "messages over tcp",
        "ucx am over tcp carried nothing within 50 ms (sent, but not received)");
    probes = PROBES_FAIL;
    run("tcp", NET_LONG_MS, "messages over tcp",
        "ucx am over tcp failed at once: ucx: Endpoint timeout");
    test_never_ready();
    test_again();
    printf("links that carry nothing are replaced\n");
    return 0;
}
