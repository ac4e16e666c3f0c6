/* product_choice: measures for which forms of weights a product of many rows is faster in another
 * way. matrix.c asks when it opens a matrix. The choice changes no bits of a result.
 *
 * - Each group is first unpacked to bytes. That depends on the CPU: where dot products,
 *   multiplications and shifts share two units (Intel's), unpacking for each tile of 6 rows takes a
 *   tenth to a third of the time; where shifts have units of their own (Zen 5), it is nearly free.
 * - Tile registers (AMX) make the sums, for forms with one scale per 32 columns. */
#include "compute/cpu/cpu.h"
#include "compute/cpu/layout.h"

#include "common/clock.h"

#include <stdlib.h>
#include <string.h>
#if defined(CLEAVE_X86) && defined(__linux__)
#include "compute/cpu/cpuid.h"

#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA  18
#endif

#define ROWS    (20 * TILE_ROWS)
#define STRIPS  ((ROWS + KERNELS_STRIP_ROWS - 1) / KERNELS_STRIP_ROWS)
#define BLOCKS  16
#define REPEATS 9

/* Returns true if the CPU has AMX, and the operating system saves its registers for the threads of
 * this process. Linux wants to be asked. */
static bool amx_permitted(void)
{
#if defined(CLEAVE_X86) && defined(__linux__)
    return cpuid_has_amx_int8() &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

enum status cpu_product_rules(struct compute *c, struct error *error)
{
    struct product_choice *choice = &c->product_choice;
    enum status status = cpu_choice_read("CLEAVE_UNPACK", &choice->unpack, error);
    if (status == ST_OK)
        status = cpu_choice_read("CLEAVE_AMX", &choice->strips, error);
    if (!c->kernels->unpacks)
        choice->unpack = CPU_CHOICE_NEVER;
    if (c->kernels->gemm_strips == NULL || choice->strips == CPU_CHOICE_NEVER || !amx_permitted())
        choice->strips = CPU_CHOICE_NEVER;
    return status;
}

/* Zeros take as long to multiply as other integers. */
struct probe {
    uint8_t *weights; /* A group. */
    struct kernels_block *tiles;
    struct kernels_strip *strips;
    float *y;
};

static void probe_close(struct probe *probe)
{
    free(probe->weights);
    free(probe->tiles);
    free(probe->strips);
    free(probe->y);
}

static bool probe_open(enum kernels_form form, struct probe *out)
{
    const size_t weight_bytes = layout_group_bytes(form, BLOCKS);
    const size_t tile_bytes = ROWS / TILE_ROWS * BLOCKS * sizeof(struct kernels_block);
    const size_t strip_bytes = STRIPS * BLOCKS * sizeof(struct kernels_strip);
    const size_t y_bytes = (size_t)ROWS * GROUP_ROWS * sizeof(float);
    *out = (struct probe){cpu_memory_allocate(weight_bytes), cpu_memory_allocate(tile_bytes),
                          cpu_memory_allocate(strip_bytes), cpu_memory_allocate(y_bytes)};
    if (out->weights == NULL || out->tiles == NULL || out->strips == NULL || out->y == NULL) {
        probe_close(out);
        return false;
    }
    memset(out->weights, 0, weight_bytes);
    memset(out->tiles, 0, tile_bytes);
    memset(out->strips, 0, strip_bytes);
    return true;
}

enum way { WAY_PLAIN, WAY_UNPACK, WAY_STRIPS, WAY_COUNT };

/* Measures the shortest of several runs in each way, in turn. */
static void measure(const struct compute *c, enum kernels_form form, const struct probe *probe,
                    bool strips, int64_t shortest_us[WAY_COUNT])
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
                                .strips = probe->strips,
                                .rows = ROWS,
                                .outputs = GROUP_ROWS,
                                .y = probe->y,
                                .y_stride = GROUP_ROWS};
    const enum way ways = strips ? WAY_COUNT : WAY_STRIPS;
    for (enum way way = 0; way < WAY_COUNT; way++)
        shortest_us[way] = INT64_MAX;
    for (uint32_t i = 0; i < REPEATS * (uint32_t)ways; i++) {
        const enum way way = (enum way)(i % (uint32_t)ways);
        p.unpack = way == WAY_UNPACK;
        int64_t begin = clock_now_us(&clock_system);
        for (uint32_t k = 0; k < 2; k++)
            (way == WAY_STRIPS ? c->kernels->gemm_strips : c->kernels->gemm_quantised)(&p);
        int64_t took = clock_now_us(&clock_system) - begin;
        if (took < shortest_us[way])
            shortest_us[way] = took;
    }
}

/* Returns the faster ways: unpacking, if it takes at least 2 % less time; strips, if they take at
 * least 5 % less than the best other way, because strips are also written. */
static struct cpu_product_way ways_compare(const int64_t us[WAY_COUNT])
{
    struct cpu_product_way pays = {.unpack = us[WAY_UNPACK] * 50 < us[WAY_PLAIN] * 49};
    const int64_t other = pays.unpack ? us[WAY_UNPACK] : us[WAY_PLAIN];
    pays.strips = us[WAY_STRIPS] != INT64_MAX && us[WAY_STRIPS] * 20 < other * 19;
    return pays;
}

/* Returns true if the rule is ALWAYS, or is AUTO and the measured way pays. */
static bool rule_apply(enum cpu_choice rule, bool pays)
{
    return rule == CPU_CHOICE_ALWAYS || (rule == CPU_CHOICE_AUTO && pays);
}

struct cpu_product_way cpu_product_way(struct compute *c, enum kernels_form form)
{
    struct product_choice *choice = &c->product_choice;
    const bool measures = choice->unpack == CPU_CHOICE_AUTO || choice->strips == CPU_CHOICE_AUTO;
    const bool strips = choice->strips != CPU_CHOICE_NEVER && !layout_has_halves(form);
    struct probe probe;
    if (measures && !choice->known[form] && probe_open(form, &probe)) {
        int64_t shortest_us[WAY_COUNT];
        measure(c, form, &probe, strips, shortest_us);
        choice->pays[form] = ways_compare(shortest_us);
        choice->known[form] = true;
        probe_close(&probe);
    }
    return (struct cpu_product_way){
        .unpack = rule_apply(choice->unpack, choice->pays[form].unpack),
        .strips = strips && rule_apply(choice->strips, choice->pays[form].strips),
    };
}
