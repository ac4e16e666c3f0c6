/* Goal: the forward pass tells the device when a batch has ended for which the device chose lanes,
 * so that the device can time its choices (compute_lanes_ops.done). Method: batches of many sizes
 * through functions that count the calls and then call the CPU's functions. */
#include "tests/check.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/synthetic.h"

#include <stdlib.h>

#define ROWS_MAX 128

static struct {
    uint32_t picks, dones;
    uint32_t rows; /* Of the latest pick. */
    uint32_t lanes;
} calls;

static uint32_t pick_counted(struct compute *c, uint32_t row_count)
{
    CHECKF(calls.picks == calls.dones, "%u batches began, %u ended", calls.picks, calls.dones);
    calls.picks++;
    calls.rows = row_count;
    calls.lanes = compute_cpu.lanes->pick(c, row_count);
    return calls.lanes;
}

static void done_counted(struct compute *c)
{
    calls.dones++;
    CHECKF(calls.picks == calls.dones, "%u batches began, %u ended", calls.picks, calls.dones);
    compute_cpu.lanes->done(c);
}

static void batch_check(struct engine *e, const uint32_t *ids, uint32_t rows, uint32_t threads,
                        bool always)
{
    const uint32_t before = calls.picks;
    engine_run(e, ids, rows, 0, rows - 1);
    CHECKF(calls.dones == calls.picks, "%u rows: %u chosen, %u done", rows, calls.picks,
           calls.dones);
    if (threads == 1) {
        CHECK(calls.picks == before);
        return;
    }
    CHECKF(calls.picks == before + 1 && calls.rows == rows, "%u rows: %u choices, of %u rows", rows,
           calls.picks - before, calls.rows);
    CHECK(calls.lanes == (always ? threads : 1));
}

static void settings_check(const struct model_file *file, const uint32_t *ids, uint32_t threads,
                           bool always)
{
    struct compute_lanes_ops lanes = *compute_cpu.lanes;
    lanes.pick = pick_counted;
    lanes.done = done_counted;
    struct compute_ops ops = compute_cpu;
    ops.lanes = &lanes;
    struct engine_options options = engine_options_small(false);
    options.ops = &ops;
    options.threads = threads;
    options.lanes = always ? COMPUTE_LANES_ALWAYS : COMPUTE_LANES_NEVER;
    options.rows_max = ROWS_MAX;
    options.block_count = ROWS_MAX / options.block_tokens + 1;
    struct engine e;
    engine_open(file, &options, &e);
    static const uint32_t rows[] = {1, 2, 7, 16, 33, 128};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        batch_check(&e, ids, rows[i], threads, always);
    engine_close(&e);
}

int main(void)
{
    struct synthetic model = synthetic_default();
    model.context = ROWS_MAX;
    uint8_t *image;
    struct model_file *file = synthetic_open(&model, "model", &image);
    uint32_t ids[ROWS_MAX];
    synthetic_tokens(&model, ROWS_MAX, ids);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        settings_check(file, ids, threads, false);
        settings_check(file, ids, threads, true);
    }
    model_file_close(file);
    free(image);
    return 0;
}
