/* Goal: a device that is late, stuck or gone costs a connection an error in bounded time, never a
 * hang, a wrong byte or lost memory; a peer that does not read does not delay others; reports of
 * copies are true.
 *
 * Method: two or three transports in one process over fake devices (tests/device), whose copies are
 * held up or fail at a given time. */
#include "tests/device/fake_memory.h"
#include "tests/transport/net.h"

#include <stdatomic.h>

#define REGION     ((uint64_t)4 << 20)
#define SILENCE_MS 20000

static uint64_t seed;
/* So long that this process never counts as silent, even on a busy computer. */
static uint32_t silence_ms = SILENCE_MS;

struct rig {
    struct net_side sides[2];
    struct fake_memory *devices[2]; /* NULL = the region is in the host's memory. */
    char address[LIMIT_ADDRESS_BYTES];
};

static void rig_open(struct rig *rig, const char *tls, bool first, bool second, uint32_t delay_us)
{
    const bool has[2] = {first, second};
    static const char *const names[2] = {"p0", "t0"};
    struct transport_options options[2];
    for (int i = 0; i < 2; i++) {
        const struct fake_memory_options fake = {.delay_us = delay_us, .seed = seed + (uint64_t)i};
        rig->devices[i] = has[i] ? fake_memory_open(&fake) : NULL;
        options[i] = net_options(names[i], REGION);
        options[i].ucx_tls = tls;
        options[i].heartbeat_ms = 50;
        options[i].silence_ms = silence_ms;
        options[i].device = has[i] ? fake_memory_device(rig->devices[i]) : NULL;
    }
    net_pair_open(rig->sides, options[0], options[1], rig->address);
}

static void rig_close(struct rig *rig)
{
    net_pair_close(rig->sides);
    for (int i = 0; i < 2; i++)
        if (rig->devices[i] != NULL)
            fake_memory_close(rig->devices[i]);
}

static uint8_t *bytes_of(struct rig *rig, int side)
{
    void *region = transport_region(rig->sides[side].transport);
    return rig->devices[side] != NULL ? fake_memory_mapping(rig->devices[side], region) : region;
}

static void write_all(struct rig *rig, uint64_t cookie)
{
    struct net_side *side = &rig->sides[0];
    enum status status =
        transport_write(side->transport, side->peer, transport_region(side->transport), REGION, 0);
    CHECKF(status == ST_OK, "%s: %s", status_name(status), side->text);
    transport_flush(side->transport, side->peer, cookie);
}

/* Checks transfers of the whole region in both directions, and what the transport reports about
 * them. */
static void test_told(const char *tls, bool first, bool second)
{
    struct rig rig;
    struct transport_memory memory[2];
    rig_open(&rig, tls, first, second, 0);
    net_pair_connect(rig.sides, rig.address);
    for (int side = 0; side < 2; side++)
        for (uint64_t i = 0; i < REGION; i += 8)
            memcpy(bytes_of(&rig, side) + i, &(uint64_t){random_at(seed + (uint64_t)side, i)}, 8);
    write_all(&rig, 1);
    NET_WAIT(rig.sides, 2, rig.sides[0].flush_count == 1);
    CHECK(memcmp(bytes_of(&rig, 0), bytes_of(&rig, 1), REGION) == 0);
    memset(bytes_of(&rig, 1), 7, REGION);
    CHECK(transport_write(rig.sides[1].transport, rig.sides[1].peer,
                          transport_region(rig.sides[1].transport), 999, 5) == ST_OK);
    transport_flush(rig.sides[1].transport, rig.sides[1].peer, 1);
    NET_WAIT(rig.sides, 2, rig.sides[1].flush_count == 1);
    CHECK(bytes_of(&rig, 0)[4] != 7 || bytes_of(&rig, 0)[1004] != 7);
    for (int i = 5; i < 1004; i++)
        CHECK(bytes_of(&rig, 0)[i] == 7);
    const bool has[2] = {first, second};
    for (int i = 0; i < 2; i++) {
        transport_memory(rig.sides[i].transport, &memory[i]);
        CHECK(memory[i].way == (has[i] ? TRANSPORT_WAY_STAGED : TRANSPORT_WAY_HOST));
        CHECK(has[i] == (strcmp(memory[i].why, "fake is not CUDA memory") == 0));
        const struct transport_copy_counts *copied = memory[i].copy_counts;
        uint64_t large = has[i] ? REGION : 0, small = has[i] ? 999 : 0;
        CHECK(copied[DEVICE_TO_HOST].bytes == (i == 0 ? large : small));
        CHECK(copied[HOST_TO_DEVICE].bytes == (i == 0 ? small : large));
        CHECK(!has[i] || (copied[DEVICE_TO_HOST].copies > 0 && copied[HOST_TO_DEVICE].copies > 0));
    }
    rig_close(&rig);
}

/* The device of the sender or of the receiver stops copying. Both sides report it after about
 * silence_ms. When the device copies again, the connection works again. */
static void test_stuck(const char *tls, int whose)
{
    struct rig rig;
    silence_ms = 400;
    rig_open(&rig, tls, whose == 0, whose == 1, 0);
    silence_ms = SILENCE_MS;
    net_pair_connect(rig.sides, rig.address);
    memset(bytes_of(&rig, 0), 3, REGION);
    fake_memory_stick(rig.devices[whose], true);
    int64_t begin_ms = net_now_ms();
    write_all(&rig, 1);
    NET_WAIT(rig.sides, 2, rig.sides[0].down_count == 1 && rig.sides[1].down_count == 1);
    int took_ms = (int)(net_now_ms() - begin_ms);
    printf("stuck device of side %d: down after %d ms: %s\n", whose, took_ms,
           rig.sides[whose].text);
    CHECK(took_ms >= 350 && took_ms < 10000);
    CHECK(rig.sides[whose].why == ST_IO);
    CHECK(strstr(rig.sides[whose].text, "fake: a copy of KV is not done after 400 ms") != NULL);
    CHECK(rig.sides[0].failed_flush_count == 1 && rig.sides[0].flush_count == 0);
    fake_memory_stick(rig.devices[whose], false);
    net_pair_connect(rig.sides, rig.address);
    memset(bytes_of(&rig, 0), 4, REGION);
    write_all(&rig, 1);
    NET_WAIT(rig.sides, 2, rig.sides[0].flush_count == 1);
    CHECK(memcmp(bytes_of(&rig, 0), bytes_of(&rig, 1), REGION) == 0);
    rig_close(&rig);
}

/* The device fails before or during a transfer. */
static void test_failed(const char *tls, int whose, bool during)
{
    struct rig rig;
    rig_open(&rig, tls, whose == 0, whose == 1, during ? 30000 : 0);
    net_pair_connect(rig.sides, rig.address);
    memset(bytes_of(&rig, 0), 3, REGION);
    if (!during)
        fake_memory_fail(rig.devices[whose]);
    write_all(&rig, 1);
    if (during) {
        net_turn(rig.sides, 2, 0);
        fake_memory_fail(rig.devices[whose]);
    }
    NET_WAIT(rig.sides, 2, rig.sides[0].down_count == 1 && rig.sides[1].down_count == 1);
    CHECKF(rig.sides[whose].why == ST_IO, "%s", rig.sides[whose].text);
    CHECKF(strstr(rig.sides[whose].text, "fake: an illegal memory access") != NULL, "%s",
           rig.sides[whose].text);
    CHECK(rig.sides[0].failed_flush_count == 1);
    net_pair_connect(rig.sides, rig.address); /* Messages still arrive; KV does not. */
    write_all(&rig, 1);
    NET_WAIT(rig.sides, 2, rig.sides[0].down_count == 2 && rig.sides[1].down_count == 2);
    for (int i = 0; i < 50 && TEST_SANITIZED;
         i++) /* UCX 1.13 aborts if it is closed during its own greeting. */
        net_turn(rig.sides, 2, 1);
    rig_close(&rig);
}

/* No copy lands after the connection is down, because the blocks then belong to other requests. */
static void test_nothing_late(void)
{
    struct rig rig;
    rig_open(&rig, "tcp", false, true, 100);
    for (int round = 0; round < 30; round++) {
        net_pair_connect(rig.sides, rig.address);
        memset(bytes_of(&rig, 0), round + 1, REGION);
        write_all(&rig, 1);
        uint64_t copies = fake_memory_copies(rig.devices[1], HOST_TO_DEVICE);
        while (fake_memory_copies(rig.devices[1], HOST_TO_DEVICE) < copies + (uint64_t)round % 7)
            net_turn(rig.sides, 2, 10);
        if (round % 2 == 0) {
            transport_disconnect(rig.sides[1].transport, rig.sides[1].peer);
            rig.sides[1].peer = NULL;
        } else {
            transport_disconnect(rig.sides[0].transport, rig.sides[0].peer);
            rig.sides[0].peer = NULL;
            int downs = rig.sides[1].down_count;
            NET_WAIT(&rig.sides[1], 1, rig.sides[1].down_count > downs);
        }
        memset(bytes_of(&rig, 1), 0xee, REGION);
        int downs = rig.sides[0].down_count;
        if (round % 2 == 0)
            NET_WAIT(rig.sides, 2, rig.sides[0].down_count > downs);
        for (int i = 0; i < 20; i++)
            net_turn(rig.sides, 2, 1);
        for (uint64_t i = 0; i < REGION; i++)
            CHECK(bytes_of(&rig, 1)[i] == 0xee);
    }
    rig_close(&rig);
}

static void test_no_room(void)
{
    const struct fake_memory_options fake = {.room_bytes = REGION - 1, .is_cuda = true};
    struct fake_memory *device = fake_memory_open(&fake);
    struct transport_options options = net_options("t0", REGION);
    struct transport *t;
    struct error error;
    options.device = fake_memory_device(device);
    CHECK(transport_open(&transport_ucx, &options, &t, &error) == ST_NO_MEMORY);
    CHECKF(strcmp(error.text,
                  "fake: a KV region of 4194304 bytes: 4194303 of its 4194303 bytes are "
                  "free") == 0,
           "%s", error.text);
    options.region_bytes = 1 << 20;
    CHECK(transport_open(&transport_ucx, &options, &t, &error) == ST_OK);
    struct transport_memory memory;
    transport_memory(t, &memory);
    printf("pointers said to be CUDA's: %s: %s\n", transport_memory_way_name(memory.way),
           memory.why);
    CHECK(memory.way == TRANSPORT_WAY_STAGED &&
          strstr(memory.why, "does not support CUDA") != NULL);
    transport_close(t);
    fake_memory_close(device);
}

int main(void)
{
    seed = test_seed();
    static const char *const all_tls[] = {NULL, "tcp"};
    for (int i = 0; i < 2; i++) {
        for (int mix = 0; mix < 4; mix++)
            test_told(all_tls[i], mix & 1, mix >> 1);
        for (int whose = 0; whose < 2; whose++) {
            test_stuck(all_tls[i], whose);
            test_failed(all_tls[i], whose, false);
            test_failed(all_tls[i], whose, true);
        }
    }
    test_nothing_late();
    test_no_room();
    return 0;
}
