/* Goal: the cluster key can be changed while connections are up. In each of the three steps of a
 * rotation (the new key beside the old one, the new one first, the new one alone), in any order of
 * the processes, all connections stay up and carry data, and new ones come up. A process that has
 * only the old key is out after the last step: new connections at once, old ones after connect_ms.
 * Method: transports of this process over 127.0.0.1, whose KV travels over data connections. */
#include "tests/transport/net.h"

#define REGION     ((uint64_t)1 << 20)
#define CONNECT_MS 300

static struct secret_keys keys_of(const char *which)
{
    struct secret_keys keys = {.count = (uint32_t)strlen(which)};
    for (uint32_t i = 0; i < keys.count; i++) {
        struct secret_keys one;
        uint8_t key[SECRET_HASH_BYTES];
        memset(key, which[i], sizeof(key));
        secret_keys_set(&one, key);
        keys.keys[i] = one.keys[0];
    }
    return keys;
}

static void side_open(struct net_side *side, const char *name, const char *which)
{
    const struct secret_keys keys = keys_of(which);
    struct transport_options options = net_options(name, REGION);
    options.ucx_tls = "none";
    options.keys = &keys;
    options.connect_ms = CONNECT_MS;
    net_open(side, options);
}

static void side_keys(struct net_side *side, const char *which)
{
    const struct secret_keys keys = keys_of(which);
    struct error error;
    CHECK(transport_keys_set(side->transport, &keys, &error) == ST_OK);
}

/* Sends a message in each direction, and KV over the data connections, which are up afterwards. */
static void exchange_between(struct net_side *sides, int from, int to)
{
    struct net_side *a = &sides[from], *b = &sides[to];
    uint64_t messages[2] = {a->messages, b->messages};
    int flushes = a->flush_count;
    uint8_t *own = transport_region(a->transport);
    memset(own, 1 + flushes, 65536);
    CHECK(transport_send(a->transport, a->peer, "12345678", 8) == ST_OK);
    CHECK(transport_send(b->transport, b->peer, "12345678", 8) == ST_OK);
    CHECK(transport_write(a->transport, a->peer, own, 65536, 65536) == ST_OK);
    transport_flush(a->transport, a->peer, (uint64_t)flushes + 1);
    NET_WAIT(sides, 3,
             a->messages > messages[0] && b->messages > messages[1] && a->flush_count > flushes);
    CHECK(memcmp((uint8_t *)transport_region(b->transport) + 65536, own, 65536) == 0);
}

static void exchange(struct net_side *sides)
{
    exchange_between(sides, 0, 1);
}

/* Another connection between the sides comes up, and is ended at once. Its data connections, which
 * may not be up yet, end with it. */
static void connect_again(struct net_side *sides, const char *address)
{
    struct transport_peer *kept[2] = {sides[0].peer, sides[1].peer}, *more;
    struct error error;
    int ups = sides[0].up_count, other_ups = sides[1].up_count, downs = sides[1].down_count;
    CHECK(transport_connect(sides[0].transport, address, NULL, &more, &error) == ST_OK);
    NET_WAIT(sides, 2, sides[0].up_count == ups + 1 && sides[1].up_count == other_ups + 1);
    transport_disconnect(sides[0].transport, sides[0].peer);
    NET_WAIT(sides, 2, sides[1].down_count > downs);
    sides[0].peer = kept[0];
    sides[1].peer = kept[1];
}

/* first: the side that reads its keys first in each step. The other side reads its keys after data
 * has been exchanged. */
static void test_rotation(int first)
{
    static const char *const steps[] = {"ab", "ba", "b"};
    struct net_side sides[3]; /* The third side has only the old key. */
    char address[LIMIT_ADDRESS_BYTES], stranger_address[LIMIT_ADDRESS_BYTES];
    struct transport_peer *peer;
    struct error error;
    side_open(&sides[0], "p0", "a");
    side_open(&sides[1], "t0", "a");
    side_open(&sides[2], "old", "a");
    CHECK(transport_listen(sides[1].transport, "127.0.0.1:0", address, &error) == ST_OK);
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(sides, 2, sides[0].up_count == 1 && sides[1].up_count == 1);
    exchange(sides);
    for (int step = 0; step < 3; step++) {
        side_keys(&sides[first], steps[step]);
        exchange(sides);
        connect_again(sides, address);
        if (step == 2)
            break;
        side_keys(&sides[1 - first], steps[step]);
        exchange(sides);
        connect_again(sides, address);
    }
    /* One side has "b", the other one "ba". A connection that has only proved key a ends after
     * CONNECT_MS. Other connections without a proof of b would have ended by then, too. */
    side_keys(&sides[first], "ba");
    struct transport_peer *kept = sides[first].peer;
    CHECK(transport_listen(sides[2].transport, "127.0.0.1:0", stranger_address, &error) == ST_OK);
    side_keys(&sides[first], "ab");
    CHECK(transport_connect(sides[first].transport, stranger_address, NULL, &peer, &error) ==
          ST_OK);
    NET_WAIT(sides, 3, sides[2].up_count == 1 && sides[first].peer != kept);
    exchange_between(sides, first, 2);
    side_keys(&sides[first], "b");
    side_keys(&sides[1 - first], "b");
    NET_WAIT(sides, 3, strstr(sides[first].text, "it does not prove a key that is still") != NULL);
    sides[first].peer = kept;
    exchange(sides);
    connect_again(sides, address);
    /* The old key cannot connect. */
    CHECK(transport_connect(sides[2].transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(sides, 3, strstr(sides[1].text, "the cluster keys differ (cluster/key_file): TLS"));
    exchange(sides);
    for (int i = 0; i < 3; i++)
        transport_close(sides[i].transport);
}

int main(void)
{
    test_rotation(0);
    test_rotation(1);
    printf("keys were rotated under open connections\n");
    return 0;
}
