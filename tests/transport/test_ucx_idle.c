/* Goal: idle connected machines use less than 1 % of a core, and still notice each other's death.
 * Method: two transports of this process, connected and written over once (so that UCX has its
 * endpoints), sleep on their descriptors for two seconds; the process's CPU time is the cost of
 * both. usage: test_ucx_idle [TLS] */
#include "tests/transport/net.h"

#include <sys/resource.h>

static double cpu_ms(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

int main(int argc, char **argv)
{
    struct net_side sides[2];
    struct transport_peer *peer;
    struct error error;
    char address[LIMIT_ADDRESS_BYTES];
    const char *seconds = getenv("IDLE_SECONDS");
    int idle_ms = seconds != NULL ? atoi(seconds) * 1000 : 2000;
    for (int i = 0; i < 2; i++) {
        struct transport_options options = net_options(i == 0 ? "p0" : "t0", 1 << 20);
        options.ucx_tls = argc > 1 && argv[1][0] != 0 ? argv[1] : NULL;
        net_open(&sides[i], options);
    }
    CHECK(transport_listen(sides[1].transport, "127.0.0.1:0", address, &error) == ST_OK);
    CHECK(transport_connect(sides[0].transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(sides, 2, sides[0].up_count == 1 && sides[1].up_count == 1);
    for (int i = 0; i < 10; i++)
        CHECK(transport_write(sides[0].transport, peer, transport_region(sides[0].transport),
                              100000, 0) == ST_OK);
    transport_flush(sides[0].transport, peer, 1);
    NET_WAIT(sides, 2, sides[0].flush_count == 1);

    int64_t begin_ms = net_now_ms();
    double before = cpu_ms();
    int turns = 0;
    while (net_now_ms() - begin_ms < idle_ms) {
        net_turn(sides, 2, (int)(begin_ms + idle_ms - net_now_ms()) + 1);
        turns++;
    }
    double percent = (cpu_ms() - before) / (double)(net_now_ms() - begin_ms) * 100;
    printf("%s: two sides idle for %d ms: %.2f %% of a core, %d wake-ups\n",
           transport_peer_path(peer), idle_ms, percent, turns);
    CHECKF(percent < 1, "%.2f %%", percent);
    CHECK(turns < idle_ms / 20);
    CHECK(sides[0].down_count == 0 && sides[1].down_count == 0);
    transport_close(sides[1].transport);
    NET_WAIT(sides, 1, sides[0].down_count == 1);
    transport_close(sides[0].transport);
    return 0;
}
