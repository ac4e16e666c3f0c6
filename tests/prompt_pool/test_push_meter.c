/* Goal: the meter finds latency and bandwidth of a link although the link is idle between layers,
 * although the writes of several requests mix, and although it is the link, not computing, that
 * limits. Method: a simulated link that sends in the order of the writes, with known latency and
 * bandwidth; random writes and flushes with pauses, the meter's estimate against the truth. Then
 * flushes that end out of order, links that end, and full tables. The seed is printed; an argument
 * sets it. */
#include "prompt_pool/push_meter.h"

#include "common/random.h"
#include "tests/check.h"

#include <stdlib.h>

static uint64_t seed = 1, drawn;

static uint64_t draw(uint64_t below)
{
    return random_at(seed, drawn++) % below;
}

/* ---- a simulated link ---- */

struct link {
    double latency_us;
    double bytes_per_us;
    double free_us; /* When everything so far has left. */
};

static void link_write(struct link *link, struct push_meter *meter, uint64_t bytes, int64_t now_us)
{
    double begin_us = link->free_us > (double)now_us ? link->free_us : (double)now_us;
    link->free_us = begin_us + (double)bytes / link->bytes_per_us;
    push_meter_write(meter, bytes, now_us);
}

/* Prompts of 20 layers with up to 4 requests at a time. A layer is computed in up to layer_us. */
static void prompts_run(struct link *link, struct push_meter *meter, uint32_t layer_us)
{
    int64_t now_us = 0;
    for (uint64_t cookie = 1; cookie <= 400; cookie++) {
        uint64_t requests = 1 + draw(4), bytes = 2000 + draw(200000);
        for (uint32_t layer = 0; layer < 20; layer++) {
            now_us += 1 + (int64_t)draw(layer_us);
            for (uint64_t i = 0; i < requests; i++)
                link_write(link, meter, bytes, now_us);
        }
        push_meter_flush(meter, cookie);
        double ends_us =
            (link->free_us > (double)now_us ? link->free_us : (double)now_us) + link->latency_us;
        now_us = (int64_t)ends_us;
        CHECK(push_meter_flushed(meter, cookie, now_us));
        now_us += (int64_t)draw(1000);
    }
}

static bool within(double value, double truth, double part)
{
    return value > truth * (1 - part) && value < truth * (1 + part);
}

static void test_truth(void)
{
    static const struct {
        double latency_us, bytes_per_us;
        uint32_t layer_us;
    } cases[] = {{100, 1000, 20}, {100, 1000, 5000}, {2000, 125, 2000}, {30, 5000, 300}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct link link = {.latency_us = cases[i].latency_us,
                            .bytes_per_us = cases[i].bytes_per_us};
        struct push_meter meter = {.bytes_written = 0};
        prompts_run(&link, &meter, cases[i].layer_us);
        const struct link_estimate found = link_speed_estimate(&meter.speed);
        CHECKF(within((double)found.bytes_per_s, link.bytes_per_us * 1e6, 0.15),
               "case %zu: %llu bytes/s, want %.0f", i, (unsigned long long)found.bytes_per_s,
               link.bytes_per_us * 1e6);
        CHECKF(within(found.latency_us, link.latency_us, 0.3), "case %zu: %u us, want %.0f", i,
               found.latency_us, link.latency_us);
        CHECKF(found.error_percent <= 10, "case %zu: error %u %%", i, found.error_percent);
    }
}

/* ---- the books ---- */

static void test_books(void)
{
    struct push_meter meter = {.bytes_written = 0};
    CHECK(!push_meter_flushed(&meter, 1, 5)); /* There is no such flush. */
    push_meter_flush(&meter, 1);
    CHECK(!push_meter_flushed(&meter, 1, 5)); /* It covers no bytes. */
    CHECK(link_speed_estimate(&meter.speed).bytes_per_s == 0);

    push_meter_write(&meter, 1000, 10);
    push_meter_flush(&meter, 2);
    push_meter_write(&meter, 1000, 20);
    push_meter_flush(&meter, 3);
    CHECK(push_meter_flushed(&meter, 3, 30)); /* With it, flush 2 has ended. */
    CHECK(!push_meter_flushed(&meter, 2, 40));
    CHECK(meter.bytes_arrived == 2000 && meter.flush_count == 0);
    CHECK(link_speed_estimate(&meter.speed).bytes_per_s == 100000000);

    push_meter_write(&meter, 1000, 50); /* The link ends before it arrives. */
    push_meter_flush(&meter, 4);
    push_meter_disconnected(&meter);
    CHECK(!push_meter_flushed(&meter, 4, 60) && meter.speed.transfers == 1);

    push_meter_write(&meter, 1000, 70); /* No time has passed: no point. */
    push_meter_flush(&meter, 5);
    CHECK(!push_meter_flushed(&meter, 5, 70) && meter.speed.transfers == 1);

    for (uint32_t i = 0; i < 3 * PUSH_METER_WRITES; i++) {
        push_meter_write(&meter, 100, 1000 + i);
        push_meter_flush(&meter, 100 + i);
    }
    CHECK(meter.write_count <= PUSH_METER_WRITES && meter.flush_count == PUSH_METER_FLUSHES);
    CHECK(!push_meter_flushed(&meter, 100, 2000)); /* Forgotten. */
    CHECK(push_meter_flushed(&meter, 100 + 3 * PUSH_METER_WRITES - 1, 2000));
    CHECK(meter.bytes_arrived == meter.bytes_written);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    test_truth();
    test_books();
    return 0;
}
