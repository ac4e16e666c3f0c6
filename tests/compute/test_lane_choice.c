/* Goal: lane_choice finds the faster of two ways to compute a batch from times that scatter, asks
 * the distance of the cores first, computes few batches in the slower way, and follows a change.
 * Method: batches with random times, whose true ratio is known; batches of one size, and of sizes
 * that alternate. */
#include "compute/cpu/lane_choice.h"

#include "common/random.h"
#include "tests/check.h"

#include <math.h>

#define LANES 2u

struct run {
    struct lane_choice choice;
    uint64_t drawn;
    int64_t now_us;
    bool far;
};

static double draw(struct run *run)
{
    return random_unit_at(7, run->drawn++);
}

/* Returns how many of `batches` batches had lanes. They take exp(log_ratio) times as long with
 * lanes, times a random factor of up to 1 ± scatter. */
static uint32_t batches_run(struct run *run, uint32_t batches, double log_ratio, double scatter,
                            bool sizes_alternate, int64_t pause_us)
{
    uint32_t in_lanes = 0;
    for (uint32_t i = 0; i < batches; i++) {
        const uint32_t rows = sizes_alternate && i % 2 == 1 ? 15 : 8 + (uint32_t)(draw(run) * 1.5);
        const bool lanes = lane_choice_pick(&run->choice, rows, LANES, run->far, run->now_us);
        /* A batch has a fixed cost, so that large batches take less time per row. */
        double us = (4000 + 300 * rows) * (1 + scatter * (2 * draw(run) - 1));
        us *= lanes ? exp(log_ratio) : 1;
        run->now_us += (int64_t)us;
        lane_choice_add(&run->choice, rows, LANES, run->far, lanes, run->now_us, us);
        run->now_us += pause_us;
        in_lanes += lanes ? 1 : 0;
    }
    return in_lanes;
}

static void check_found(double log_ratio, double scatter, bool sizes_alternate, bool far)
{
    struct run run = {.far = far};
    const bool first = lane_choice_pick(&run.choice, 8, LANES, far, 0);
    CHECK(first == far);
    batches_run(&run, 400, log_ratio, scatter, sizes_alternate, 1000);
    const uint32_t in_lanes = batches_run(&run, 2000, log_ratio, scatter, sizes_alternate, 1000);
    const uint32_t slower = log_ratio < 0 ? 2000 - in_lanes : in_lanes;
    CHECKF(slower <= 60, "%u of 2000 in the slower way (log ratio %.2f, scatter %.2f, %s, far %d)",
           slower, log_ratio, scatter, sizes_alternate ? "alternating" : "equal", far);
}

static void check_change(void)
{
    struct run run = {.far = true};
    batches_run(&run, 2000, 0.2, 0.2, false, 1000);
    batches_run(&run, 6000, -0.2, 0.2, false, 1000);
    const uint32_t in_lanes = batches_run(&run, 1000, -0.2, 0.2, false, 1000);
    CHECKF(in_lanes >= 950, "%u", in_lanes);
    /* Cores at the other distance are learned anew; the first guess is their distance. */
    run.far = false;
    CHECK(!lane_choice_pick(&run.choice, 8, LANES, false, run.now_us));
}

/* Batches that are long apart are not compared: the first guess remains. */
static void check_no_pairs(void)
{
    struct run run = {.far = true};
    CHECK(batches_run(&run, 500, 0.5, 0.1, false, 1000000) == 500);
}

/* The classes do not know of each other: 8 rows may be faster with lanes and 200 without. */
static void check_classes(void)
{
    struct run run = {.far = false};
    for (uint32_t i = 0; i < 2000; i++) {
        const uint32_t rows = i / 20 % 2 == 0 ? 8 : 200;
        const bool lanes = lane_choice_pick(&run.choice, rows, LANES, false, run.now_us);
        const double us = lanes == (rows == 8) ? 1000 : 1200;
        run.now_us += (int64_t)us;
        lane_choice_add(&run.choice, rows, LANES, false, lanes, run.now_us, us);
    }
    uint32_t small = 0, large = 0;
    for (uint32_t i = 0; i < 100; i++) {
        small += lane_choice_pick(&run.choice, 8, LANES, false, run.now_us) ? 1 : 0;
        large += lane_choice_pick(&run.choice, 200, LANES, false, run.now_us) ? 1 : 0;
    }
    CHECKF(small >= 95 && large <= 5, "%u %u", small, large);
}

int main(void)
{
    for (uint32_t i = 0; i < 16; i++)
        check_found((i & 1) != 0 ? 0.15 : -0.15, (i & 2) != 0 ? 0.25 : 0.05, (i & 4) != 0,
                    (i & 8) != 0);
    check_change();
    check_no_pairs();
    check_classes();
    return 0;
}
