/* Goal: two devices of one host copy into each other's memory, without UCX and without host memory,
 * when the hardware and the options allow it. Otherwise the same bytes take another path, with a
 * note. A device that is stuck or gone, and a side that ends or is killed, have the usual effects;
 * opened memory is closed again; after a side has closed a connection, no data of it lands.
 *
 * Method: two transports in one process, or in two, over fake devices (tests/device), which open
 * each other's memory; and links of a fabric with manipulated addresses. */
#include "tests/device/fake_memory.h"
#include "tests/transport/net.h"
#include "transport/fabric.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION ((uint64_t)4 << 20)
#define BLOCK  ((uint64_t)4096)

static const uint8_t key[SECRET_HASH_BYTES] = {9, 8, 7};
static uint64_t seed;

struct rig {
    struct net_side sides[2];
    struct fake_memory *devices[2];
    char address[LIMIT_ADDRESS_BYTES];
};

/* So long that this process never counts as silent, even on a busy computer. */
static uint32_t silence_ms = 20000;

static struct transport_options side_options(const char *name, struct fake_memory *device)
{
    struct transport_options options = net_options(name, REGION);
    static struct secret_keys keys;
    secret_keys_set(&keys, key);
    options.keys = &keys;
    options.heartbeat_ms = 50;
    options.silence_ms = silence_ms;
    options.device = fake_memory_device(device);
    return options;
}

static void rig_open_with(struct rig *rig, struct fake_memory_options first,
                          struct fake_memory_options second, bool with_key)
{
    first.seed = seed;
    second.seed = seed + 1;
    rig->devices[0] = fake_memory_open(&first);
    rig->devices[1] = fake_memory_open(&second);
    struct transport_options options[2] = {side_options("p0", rig->devices[0]),
                                           side_options("t0", rig->devices[1])};
    for (int i = 0; i < 2 && !with_key; i++)
        options[i].keys = NULL;
    net_pair_open(rig->sides, options[0], options[1], rig->address);
}

static void rig_open(struct rig *rig, uint32_t delay_us)
{
    const struct fake_memory_options options = {.delay_us = delay_us};
    rig_open_with(rig, options, options, true);
}

static void rig_close(struct rig *rig)
{
    net_pair_close(rig->sides);
    for (int i = 0; i < 2; i++)
        fake_memory_close(rig->devices[i]); /* No memory of the other device is still open. */
}

static uint8_t *bytes_of(struct rig *rig, int side)
{
    return fake_memory_mapping(rig->devices[side], transport_region(rig->sides[side].transport));
}

static void fill(struct rig *rig, uint64_t draw)
{
    for (uint64_t i = 0; i < REGION; i += 8)
        memcpy(bytes_of(rig, 0) + i, &(uint64_t){random_at(seed ^ draw, i)}, 8);
}

static void write_all(struct rig *rig, uint64_t cookie)
{
    struct net_side *side = &rig->sides[0];
    CHECK(transport_write(side->transport, side->peer, transport_region(side->transport), REGION,
                          0) == ST_OK);
    transport_flush(side->transport, side->peer, cookie);
}

static struct transport_memory told(struct rig *rig, int side)
{
    struct transport_memory memory;
    transport_memory(rig->sides[side].transport, &memory);
    return memory;
}

/* Checks both directions of a connection, the place of the bytes, and what the transport
 * reports. */
static void test_told(void)
{
    struct rig rig;
    rig_open(&rig, 0);
    net_pair_connect(rig.sides, rig.address);
    CHECK(strcmp(transport_peer_path(rig.sides[0].peer), "fake ipc") == 0);
    fill(&rig, 1);
    memset(bytes_of(&rig, 1), 7, REGION);
    write_all(&rig, 1);
    NET_WAIT(rig.sides, 2, rig.sides[0].flush_count == 1);
    CHECK(memcmp(bytes_of(&rig, 0), bytes_of(&rig, 1), REGION) == 0);
    void *computed = fake_memory_compute(rig.devices[1], transport_region(rig.sides[1].transport));
    CHECK(memcmp(bytes_of(&rig, 0), computed, REGION) == 0);
    memset(bytes_of(&rig, 1), 7, REGION);
    CHECK(transport_write(rig.sides[1].transport, rig.sides[1].peer,
                          transport_region(rig.sides[1].transport), 999, 5) == ST_OK);
    transport_flush(rig.sides[1].transport, rig.sides[1].peer, 1);
    CHECK(strcmp(transport_peer_path(rig.sides[1].peer), "fake ipc") == 0);
    NET_WAIT(rig.sides, 2, rig.sides[1].flush_count == 1);
    for (int i = 5; i < 1004; i++)
        CHECK(bytes_of(&rig, 0)[i] == 7);
    CHECK(transport_write(rig.sides[0].transport, rig.sides[0].peer,
                          transport_region(rig.sides[0].transport), 2, REGION - 1) == ST_INVALID);
    for (int i = 0; i < 2; i++) {
        struct transport_memory memory = told(&rig, i);
        CHECK(memory.way == TRANSPORT_WAY_PEER && memory.why[0] != 0);
        CHECK(strcmp(transport_memory_way_name(memory.way), "ipc") == 0);
        CHECK(memory.copy_counts[DEVICE_TO_PEER].bytes == (i == 0 ? REGION : 999));
        CHECK(memory.copy_counts[DEVICE_TO_PEER].copies == 1);
        CHECK(memory.copy_counts[DEVICE_TO_HOST].copies == 0);
        CHECK(memory.copy_counts[HOST_TO_DEVICE].copies == 0);
    }
    rig_close(&rig);
}

/* Scattered blocks are copied in as few batches as possible, and each flush is reported after its
 * batch. */
static void test_batches(void)
{
    const uint32_t blocks = REGION / BLOCK; /* 1024 */
    struct rig rig;
    rig_open(&rig, 200);
    net_pair_connect(rig.sides, rig.address);
    fill(&rig, 2);
    struct net_side *side = &rig.sides[0];
    const uint8_t *region = transport_region(side->transport);
    for (uint32_t i = 0; i < blocks; i++) {
        uint64_t block = (uint64_t)i * 389 % blocks; /* Each block once. */
        CHECK(transport_write(side->transport, side->peer, region + block * BLOCK, BLOCK,
                              (blocks - 1 - block) * BLOCK) == ST_OK);
        if (i + 1 == 100 || i + 1 == blocks)
            transport_flush(side->transport, side->peer, i + 1 == 100 ? 1 : 2);
    }
    NET_WAIT(rig.sides, 2, side->flush_count >= 1);
    for (uint32_t i = 0; i < 100; i++) {
        uint64_t block = (uint64_t)i * 389 % blocks;
        CHECK(memcmp(bytes_of(&rig, 0) + block * BLOCK,
                     bytes_of(&rig, 1) + (blocks - 1 - block) * BLOCK, BLOCK) == 0);
    }
    NET_WAIT(rig.sides, 2, side->flush_count == 2);
    for (uint64_t block = 0; block < blocks; block++)
        CHECK(memcmp(bytes_of(&rig, 0) + block * BLOCK,
                     bytes_of(&rig, 1) + (blocks - 1 - block) * BLOCK, BLOCK) == 0);
    uint64_t copies = told(&rig, 0).copy_counts[DEVICE_TO_PEER].copies;
    CHECKF(copies == 1 + (blocks - 100 + DEVICE_RUNS_MAX - 1) / DEVICE_RUNS_MAX, "%d copies",
           (int)copies);
    transport_flush(side->transport, side->peer, 3); /* A flush without writes. */
    NET_WAIT(rig.sides, 2, side->flush_count == 3);
    rig_close(&rig);
}

static void test_falls_back(void)
{
    static const struct {
        const char *note;
        struct fake_memory_options first, second;
        bool with_key;
        enum transport_memory_way ways[2];
    } cases[] = {
        {"", {0}, {0}, false, {TRANSPORT_WAY_STAGED, TRANSPORT_WAY_STAGED}},
        {"fake cannot open its memory: peer access is not supported",
         {.refuse = true},
         {0},
         true,
         {TRANSPORT_WAY_PEER, TRANSPORT_WAY_PEER}},
        {"fake cannot open its memory: no handle of a fake device",
         {0},
         {.garbage = true},
         true,
         {TRANSPORT_WAY_PEER, TRANSPORT_WAY_PEER}},
        {"", {.alone = true}, {0}, true, {TRANSPORT_WAY_STAGED, TRANSPORT_WAY_PEER}},
        {"", {0}, {.alone = true}, true, {TRANSPORT_WAY_PEER, TRANSPORT_WAY_STAGED}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;
        rig_open_with(&rig, cases[i].first, cases[i].second, cases[i].with_key);
        net_pair_connect(rig.sides, rig.address);
        const char *note = transport_peer_note(rig.sides[0].peer);
        CHECKF(strcmp(note, cases[i].note) == 0, "case %d: %s", (int)i, note);
        fill(&rig, 3);
        write_all(&rig, 1);
        NET_WAIT(rig.sides, 2, rig.sides[0].flush_count == 1);
        CHECK(memcmp(bytes_of(&rig, 0), bytes_of(&rig, 1), REGION) == 0);
        CHECK(strstr(transport_peer_path(rig.sides[0].peer), ", staged") != NULL);
        for (int side = 0; side < 2; side++) {
            struct transport_memory memory = told(&rig, side);
            CHECK(memory.way == cases[i].ways[side]);
            CHECK(memory.copy_counts[DEVICE_TO_PEER].copies == 0);
        }
        rig_close(&rig);
    }
}

/* Addresses that no honest peer sends: the device does not open them, and the link uses UCX. */
static void test_tampered(void)
{
    const struct fake_memory_options fake = {.seed = seed};
    struct fake_memory *devices[2] = {fake_memory_open(&fake), fake_memory_open(&fake)};
    struct fabric *fabrics[2];
    struct error error;
    for (int i = 0; i < 2; i++) {
        const struct fabric_options options = {.region_bytes = REGION,
                                               .device = fake_memory_device(devices[i]),
                                               .copy_ms = 1000,
                                               .share = true};
        CHECKF(fabric_open(&options, &fabrics[i], &error) == ST_OK, "%s", error.text);
    }
    const struct fabric_address honest = *fabric_address(fabrics[1]);
    CHECK(honest.handle_bytes > 0 && honest.handle_bytes <= DEVICE_HANDLE_BYTES_MAX);
    for (int how = 0; how < 8; how++) {
        struct fabric_address address = honest;
        uint8_t handle[2 * DEVICE_HANDLE_BYTES_MAX] = {0};
        struct fabric_link *link;
        memcpy(handle, honest.handle, honest.handle_bytes);
        address.handle = handle;
        if (how == 1)
            address.host[3] ^= 1; /* Another computer, or this one before its last start. */
        else if (how == 2)
            address.region_bytes *= 2; /* More than the memory that the handle names. */
        else if (how == 3)
            address.region_bytes = 4096;
        else if (how == 4)
            address.handle_bytes--;
        else if (how == 5)
            address.handle_bytes = 0;
        else if (how == 6)
            address.handle_bytes = sizeof(handle);
        else if (how == 7)
            handle[16]++; /* Another descriptor. */
        CHECK(fabric_link_open(fabrics[0], &address, 1, false, &link, &error) == ST_OK);
        bool straight = strcmp(fabric_link_path(link), "fake ipc") == 0;
        CHECKF(straight == (how == 0), "tampered with in way %d: %s", how, fabric_link_path(link));
        CHECK(straight || strncmp(fabric_link_path(link), "ucx am over ", 12) == 0);
        fabric_link_close(link, -1);
        for (int i = 0; i < 20; i++) { /* UCX must not be closed during its greeting. */
            (void)fabric_progress(fabrics[0]);
            (void)fabric_progress(fabrics[1]);
            usleep(500);
        }
    }
    for (int n = 0; n < 2000; n++) { /* Flips random bytes. */
        struct fabric_address address = honest;
        uint8_t handle[DEVICE_HANDLE_BYTES_MAX];
        void *memory = NULL;
        memcpy(handle, honest.handle, honest.handle_bytes);
        handle[random_at(seed, (uint64_t)n) % honest.handle_bytes] ^=
            (uint8_t)(1 + random_at(seed + 1, (uint64_t)n) % 255);
        struct device_handle tampered = {.bytes = (uint32_t)honest.handle_bytes};
        memcpy(tampered.data, handle, honest.handle_bytes);
        const struct device_memory *device = fake_memory_device(devices[0]);
        CHECK(device->ops->open_peer(device->self, &tampered, address.region_bytes, &memory,
                                     &error) != ST_OK ||
              memory != NULL);
        device->ops->close_peer(device->self, memory);
    }
    for (int i = 0; i < 2; i++) {
        fabric_close(fabrics[i]);
        fake_memory_close(devices[i]);
    }
}

/* The writer's device stops copying or fails: the connection fails in bounded time. */
static void test_device_ends(bool stuck)
{
    struct rig rig;
    if (stuck)
        silence_ms = 3000; /* Applies to the connection as well, which must not end before. */
    rig_open(&rig, 0);
    silence_ms = 20000;
    net_pair_connect(rig.sides, rig.address);
    fill(&rig, 4);
    fake_memory_stick(rig.devices[0], true); /* No copy is done before the device fails. */
    write_all(&rig, 1);
    net_turn(rig.sides, 2, 0);
    if (!stuck)
        fake_memory_fail(rig.devices[0]);
    int64_t begin_ms = net_now_ms();
    NET_WAIT(rig.sides, 2, rig.sides[0].down_count == 1 && rig.sides[1].down_count == 1);
    printf("%s device: down after %d ms: %s\n", stuck ? "stuck" : "failed",
           (int)(net_now_ms() - begin_ms), rig.sides[0].text);
    CHECK(rig.sides[0].why == ST_IO && rig.sides[0].failed_flush_count == 1);
    CHECKF(strstr(rig.sides[0].text, stuck ? "fake: a copy of KV is not done after 3000 ms"
                                           : "fake: an illegal memory access") != NULL,
           "%s", rig.sides[0].text);
    if (stuck) {
        fake_memory_stick(rig.devices[0], false);
        net_pair_connect(rig.sides, rig.address);
        write_all(&rig, 1);
        NET_WAIT(rig.sides, 2, rig.sides[0].flush_count == 1);
        CHECK(memcmp(bytes_of(&rig, 0), bytes_of(&rig, 1), REGION) == 0);
    }
    rig_close(&rig);
}

/* The writer closes the connection while copies are in flight: no copy lands after the other side
 * has been informed. If the written side closes, copies still land in its memory for a while, as
 * puts do, and no mapping of that memory stays open. */
static void test_nothing_late(void)
{
    struct rig rig;
    rig_open(&rig, 500);
    for (int round = 0; round < 40; round++) {
        bool writer_ends = round % 4 != 3;
        net_pair_connect(rig.sides, rig.address);
        memset(bytes_of(&rig, 0), round + 1, REGION);
        struct net_side *side = &rig.sides[0], *other = &rig.sides[1];
        const uint8_t *region = transport_region(side->transport);
        for (uint64_t at = 0; at < REGION; at += 64 * BLOCK) {
            CHECK(transport_write(side->transport, side->peer, region + at, 64 * BLOCK, at) ==
                  ST_OK);
            if (at / BLOCK % 128 == 0)
                transport_flush(side->transport, side->peer, at / BLOCK / 128 + 1);
        }
        for (int i = 0; i < round % 7; i++)
            net_turn(rig.sides, 2, 1);
        struct net_side *ends = writer_ends ? side : other, *hears = writer_ends ? other : side;
        int downs = hears->down_count;
        if (ends->peer != NULL)
            transport_disconnect(ends->transport, ends->peer);
        ends->peer = NULL;
        NET_WAIT(hears, 1, hears->down_count > downs);
        if (!writer_ends)
            continue;
        memset(bytes_of(&rig, 1), 0xee, REGION);
        for (int i = 0; i < 10; i++)
            net_turn(rig.sides, 2, 1);
        for (uint64_t i = 0; i < REGION; i++)
            CHECKF(bytes_of(&rig, 1)[i] == 0xee, "round %d: byte %d", round, (int)i);
    }
    rig_close(&rig);
}

/* ---- two processes ---- */

static _Noreturn void writer(const char *address)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const struct fake_memory_options fake = {.delay_us = 300, .seed = seed + 9};
    struct fake_memory *device = fake_memory_open(&fake);
    struct net_side side;
    struct transport_peer *peer;
    struct error error;
    net_open(&side, side_options("p0", device));
    memset(fake_memory_mapping(device, transport_region(side.transport)), 3, REGION);
    CHECK(transport_connect(side.transport, address, NULL, &peer, &error) == ST_OK);
    NET_WAIT(&side, 1, side.peer != NULL || side.down_count > 0);
    CHECKF(side.peer != NULL, "%s", side.text);
    CHECKF(strcmp(transport_peer_path(peer), "fake ipc") == 0, "%s", transport_peer_path(peer));
    for (uint64_t cookie = 1; side.peer != NULL; cookie++) { /* Until this process is killed. */
        CHECK(transport_write(side.transport, peer, transport_region(side.transport), REGION, 0) ==
              ST_OK);
        transport_flush(side.transport, peer, cookie);
        NET_WAIT(&side, 1, side.peer == NULL || side.flushed_cookie + 4 > cookie);
    }
    printf("writer: %s\n", side.text);
    fflush(stdout);
    transport_close(side.transport);
    fake_memory_close(device);
    _exit(0);
}

/* A process is killed during copies. The other side is informed, and a moment later nothing lands
 * any more. how 1: the written side is killed, and the writer's device has no memory left open. */
static void test_processes(int how)
{
    const struct fake_memory_options fake = {.delay_us = 0, .seed = seed};
    struct net_side side;
    struct error error;
    char bound[LIMIT_ADDRESS_BYTES];
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    /* Forks before the device or UCX has threads: under GCC 12's AddressSanitizer, a child that is
     * forked while another thread allocates memory can wait for the allocator's lock for ever. */
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(read(ends[0], bound, sizeof(bound)) == sizeof(bound));
        writer(bound);
    }
    struct fake_memory *device = fake_memory_open(&fake);
    net_open(&side, side_options("t0", device));
    CHECK(transport_listen(side.transport, "127.0.0.1:0", bound, &error) == ST_OK);
    CHECK(write(ends[1], bound, sizeof(bound)) == sizeof(bound));
    close(ends[0]);
    close(ends[1]);
    uint8_t *bytes = fake_memory_mapping(device, transport_region(side.transport));
    int64_t end_ms = net_now_ms() + NET_LONG_MS;
    while (((volatile uint8_t *)bytes)[REGION - 1] != 3) {
        CHECK(net_now_ms() < end_ms);
        net_turn(&side, 1, 1);
    }
    if (how == 0) {
        kill(pid, SIGKILL);
        NET_WAIT(&side, 1, side.down_count == 1);
        usleep(50000); /* A part of the second for which blocks are kept in quarantine. */
        memset(bytes, 0xee, REGION);
        usleep(50000);
        for (uint64_t i = 0; i < REGION; i++)
            CHECK(bytes[i] == 0xee);
    }
    transport_close(side.transport);
    fake_memory_close(device);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(how == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

int main(void)
{
    seed = test_seed();
    test_processes(0);
    test_processes(1);
    test_told();
    test_batches();
    test_falls_back();
    test_tampered();
    test_device_ends(true);
    test_device_ends(false);
    test_nothing_late();
    return 0;
}
