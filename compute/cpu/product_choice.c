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

/* Numbers of rows for which unpacking is measured, rising. Unpacking is never faster with one tile.
 */
static const uint32_t unpack_rows[] = {2 * TILE_ROWS, 3 * TILE_ROWS,  4 * TILE_ROWS,
                                       6 * TILE_ROWS, 10 * TILE_ROWS, ROWS};
#define UNPACK_COUNT (sizeof(unpack_rows) / sizeof(unpack_rows[0]))

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

/* Returns how long a product of `rows` rows takes, repeated so often that it has about 4 × ROWS
 * rows. */
static int64_t product_time_us(const struct compute *c, enum kernels_form form,
                               const struct probe *probe, uint32_t rows, enum way way)
{
    static const int8_t codes[16] = {0};
    const struct kernels_product p = {.form = form,
                                      .codes = codes,
                                      .factor = 1,
                                      .weights = probe->weights,
                                      .groups = 1,
                                      .blocks = BLOCKS,
                                      .tiles = probe->tiles,
                                      .tile_rows = TILE_ROWS,
                                      .strips = probe->strips,
                                      .unpack = way == WAY_UNPACK,
                                      .rows = rows,
                                      .outputs = GROUP_ROWS,
                                      .y = probe->y,
                                      .y_stride = GROUP_ROWS};
    const int64_t begin = clock_now_us(&clock_system);
    for (uint32_t k = 0; k < 4 * ROWS / rows; k++)
        (way == WAY_STRIPS ? c->kernels->gemm_strips : c->kernels->gemm_quantised)(&p);
    return clock_now_us(&clock_system) - begin;
}

/* Measures the shortest of several runs in each way, in turn. */
static void ways_measure(const struct compute *c, enum kernels_form form, const struct probe *probe,
                         uint32_t rows, bool strips, int64_t shortest_us[WAY_COUNT])
{
    const enum way ways = strips ? WAY_COUNT : WAY_STRIPS;
    for (enum way way = 0; way < WAY_COUNT; way++)
        shortest_us[way] = INT64_MAX;
    for (uint32_t i = 0; i < REPEATS * (uint32_t)ways; i++) {
        const enum way way = (enum way)(i % (uint32_t)ways);
        const int64_t took = product_time_us(c, form, probe, rows, way);
        if (took < shortest_us[way])
            shortest_us[way] = took;
    }
}

/* Returns true if unpacking takes at least 2 % less time. */
static bool unpack_pays(const int64_t us[WAY_COUNT])
{
    return us[WAY_UNPACK] * 50 < us[WAY_PLAIN] * 49;
}

/* Returns the faster ways. Strips must take at least 5 % less than the best other way, because
 * strips are also written. Unpacking begins one step after the smallest number of rows from which
 * on it always pays here, where the weights are in the L1 cache: of weights from memory, unpacking
 * takes longer (six forms on Ice Lake: it pays from 18 to 48 rows on, here from 12 to 36). */
static struct cpu_product_way ways_compare(const struct compute *c, enum kernels_form form,
                                           const struct probe *probe, bool strips)
{
    struct cpu_product_way pays = {.unpack_rows = UINT32_MAX};
    int64_t us[WAY_COUNT];
    ways_measure(c, form, probe, ROWS, strips, us);
    const int64_t other = unpack_pays(us) ? us[WAY_UNPACK] : us[WAY_PLAIN];
    pays.strips = us[WAY_STRIPS] != INT64_MAX && us[WAY_STRIPS] * 20 < other * 19;
    for (size_t i = UNPACK_COUNT; i > 0 && unpack_pays(us); i--) {
        pays.unpack_rows = unpack_rows[i < UNPACK_COUNT ? i : i - 1];
        if (i > 1)
            ways_measure(c, form, probe, unpack_rows[i - 2], false, us);
    }
    return pays;
}

struct cpu_product_way cpu_product_way(struct compute *c, enum kernels_form form)
{
    struct product_choice *choice = &c->product_choice;
    const bool measures = choice->unpack == CPU_CHOICE_AUTO || choice->strips == CPU_CHOICE_AUTO;
    const bool strips = choice->strips != CPU_CHOICE_NEVER && !layout_has_halves(form);
    struct probe probe;
    if (measures && !choice->known[form] && probe_open(form, &probe)) {
        choice->pays[form] = ways_compare(c, form, &probe, strips);
        choice->known[form] = true;
        probe_close(&probe);
    }
    struct cpu_product_way way = {.unpack_rows = UINT32_MAX};
    if (choice->known[form])
        way = choice->pays[form];
    if (choice->unpack != CPU_CHOICE_AUTO)
        way.unpack_rows = choice->unpack == CPU_CHOICE_ALWAYS ? unpack_rows[0] : UINT32_MAX;
    if (choice->strips != CPU_CHOICE_AUTO)
        way.strips = strips && choice->strips == CPU_CHOICE_ALWAYS;
    return way;
}
