/* unpack_choice: measures for which forms of weights a product of many rows is faster if each group
 * is first unpacked to bytes. That depends on the CPU: where dot products, multiplications and
 * shifts share two units (Intel's), unpacking for each tile of 6 rows takes a tenth to a third of
 * the time; where shifts have units of their own (Zen 5), it is nearly free. matrix.c asks when it
 * opens a matrix. The choice changes no bits of a result. */
#include "compute/cpu/cpu.h"
#include "compute/cpu/layout.h"

#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

#define ROWS    (20 * TILE_ROWS)
#define BLOCKS  16
#define REPEATS 9

enum status cpu_unpack_rule(struct compute *c, struct error *error)
{
    enum status status = cpu_choice_read("CLEAVE_UNPACK", &c->unpack.rule, error);
    if (!c->kernels->unpacks)
        c->unpack.rule = CPU_CHOICE_NEVER;
    return status;
}

/* Zeros take as long to multiply as other integers. */
struct probe {
    uint8_t *weights; /* A group. */
    struct kernels_block *tiles;
    float *y;
};

static void probe_close(struct probe *probe)
{
    free(probe->weights);
    free(probe->tiles);
    free(probe->y);
}

static bool probe_open(enum kernels_form form, struct probe *out)
{
    const size_t weight_bytes = layout_group_bytes(form, BLOCKS);
    const size_t tile_bytes = ROWS / TILE_ROWS * BLOCKS * sizeof(struct kernels_block);
    const size_t y_bytes = (size_t)ROWS * GROUP_ROWS * sizeof(float);
    *out = (struct probe){cpu_memory_allocate(weight_bytes), cpu_memory_allocate(tile_bytes),
                          cpu_memory_allocate(y_bytes)};
    if (out->weights == NULL || out->tiles == NULL || out->y == NULL) {
        probe_close(out);
        return false;
    }
    memset(out->weights, 0, weight_bytes);
    memset(out->tiles, 0, tile_bytes);
    return true;
}

/* Returns true if the shortest of several runs is at least 2 % shorter with unpacking. */
static bool measure(const struct compute *c, enum kernels_form form, const struct probe *probe)
{
    static const int8_t codes[16] = {0};
    struct kernels_product p = {.form = form,
                                .codes = codes,
                                .factor = 1,
                                .weights = probe->weights,
                                .groups = 1,
                                .blocks = BLOCKS,
                                .tiles = probe->tiles,
                                .tile_rows = TILE_ROWS,
                                .rows = ROWS,
                                .outputs = GROUP_ROWS,
                                .y = probe->y,
                                .y_stride = GROUP_ROWS};
    int64_t shortest[2] = {INT64_MAX, INT64_MAX};
    for (uint32_t i = 0; i < 2 * REPEATS; i++) {
        p.unpack = i % 2 != 0;
        int64_t begin = clock_now_us(&clock_system);
        for (uint32_t k = 0; k < 2; k++)
            c->kernels->gemm_quantised(&p);
        int64_t took = clock_now_us(&clock_system) - begin;
        if (took < shortest[p.unpack])
            shortest[p.unpack] = took;
    }
    return shortest[true] * 50 < shortest[false] * 49;
}

bool cpu_unpack_pays(struct compute *c, enum kernels_form form)
{
    struct unpack_choice *choice = &c->unpack;
    struct probe probe;
    if (choice->rule != CPU_CHOICE_AUTO)
        return choice->rule == CPU_CHOICE_ALWAYS;
    if (!choice->known[form] && probe_open(form, &probe)) {
        choice->pays[form] = measure(c, form, &probe);
        choice->known[form] = true;
        probe_close(&probe);
    }
    return choice->pays[form];
}
