/* bench-yardstick [--repeats N]: compares cleave's matmul of Q4_1 weights with oneDNN's of int8,
 * bf16 and f32 weights, for the matrices of the default model, in Gop/s (a multiplication and an
 * addition are two operations). cleave itself does not use oneDNN. oneDNN's weights are larger in
 * memory, and its matmul does less (no scales of blocks). The contents of oneDNN's matrices are
 * constant, because they do not matter; its weights have the layout that it asks for.
 *
 * Each pass uses more matrices than any cache holds. The four kinds take turns, with a pause in
 * which the threads of the previous kind can fall asleep. */
#include "common/clock.h"
#include "common/random.h"
#include "compute/compute.h"
#include "tools/report/table.h"

#include <assert.h>
#include <getopt.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define WEIGHTS_TOTAL (64u << 20) /* Elements; as Q4_1 they are 40 MB. */
#define MATRICES_MAX  256
#define ROWS_MAX      512
#define REPEATS_MAX   31
#define FILL          0x3c /* 60 as a byte, 0.011 as bf16 and f32. */
#define PAUSE_NS      5000000
/* A pass that takes this long is the last of its kind, because its threads have lost a core. */
#define SLOW_US 300000

enum kind { OURS_Q4_1, DNNL_INT8, DNNL_BF16, DNNL_F32, KINDS };

static const struct {
    dnnl_data_type_t source, weights, result;
    size_t weight_bytes;
} types[KINDS] = {
    [DNNL_INT8] = {dnnl_u8, dnnl_s8, dnnl_s32, 1},
    [DNNL_BF16] = {dnnl_bf16, dnnl_bf16, dnnl_f32, 2},
    [DNNL_F32] = {dnnl_f32, dnnl_f32, dnnl_f32, 4},
};

static const struct {
    uint32_t rows, cols; /* Size of W in y = W · x; y has `rows` elements. */
} shapes[] = {{576, 576}, {1536, 576}, {576, 1536}};
static const uint32_t row_counts[] = {1, 8, 32, 128, 512};

#define SHAPES     (sizeof(shapes) / sizeof(shapes[0]))
#define ROW_COUNTS (sizeof(row_counts) / sizeof(row_counts[0]))

/* cleave's matrices of one shape. */
struct ours {
    struct compute *compute[2]; /* With one and with two threads. */
    struct compute_matrix *matrices[2][MATRICES_MAX];
    uint32_t count;
    float *x, *y, *ones;
};

/* One oneDNN primitive with `count` sets of weights. */
struct theirs {
    dnnl_primitive_t matmul;
    dnnl_memory_t source, result;
    dnnl_memory_t weights[MATRICES_MAX];
    uint32_t count;
};

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static uint8_t *weights_memory, *source_memory, *result_memory;

static void dnnl_check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "bench-yardstick: oneDNN: %s failed with status %d\n", what, (int)status);
    exit(1);
}

static void *memory_filled(size_t bytes)
{
    void *memory = aligned_alloc(2u << 20, (bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20));
    if (memory == NULL) {
        fprintf(stderr, "bench-yardstick: no memory\n");
        exit(1);
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, FILL, bytes);
    return memory;
}

static dnnl_memory_desc_t desc_of(uint32_t rows, uint32_t cols, dnnl_data_type_t type,
                                  dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t desc;
    const dnnl_dims_t dims = {rows, cols};
    dnnl_check(dnnl_memory_desc_init_by_tag(&desc, 2, dims, type, tag), "describing a matrix");
    return desc;
}

/* False: oneDNN has no matmul for these types on this CPU. */
static bool theirs_open(struct theirs *t, enum kind kind, size_t shape, uint32_t n)
{
    uint32_t out = shapes[shape].rows, in = shapes[shape].cols;
    const dnnl_memory_desc_t source = desc_of(n, in, types[kind].source, dnnl_ab);
    const dnnl_memory_desc_t weights = desc_of(in, out, types[kind].weights, dnnl_format_tag_any);
    const dnnl_memory_desc_t result = desc_of(n, out, types[kind].result, dnnl_ab);
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t made;
    dnnl_check(dnnl_matmul_desc_init(&desc, &source, &weights, NULL, &result), "a matmul");
    if (dnnl_primitive_desc_create(&made, &desc, NULL, engine, NULL) != dnnl_success)
        return false;
    const dnnl_memory_desc_t *packed = dnnl_primitive_desc_query_md(made, dnnl_query_weights_md, 0);
    size_t bytes = (dnnl_memory_desc_get_size(packed) + 63) / 64 * 64;
    *t = (struct theirs){.count = WEIGHTS_TOTAL / (out * in)};
    while (t->count * bytes > (size_t)WEIGHTS_TOTAL * sizeof(float)) /* The layout can be padded. */
        t->count--;
    for (uint32_t i = 0; i < t->count; i++)
        dnnl_check(dnnl_memory_create(&t->weights[i], packed, engine, weights_memory + i * bytes),
                   "weights");
    dnnl_check(dnnl_memory_create(&t->source, &source, engine, source_memory), "activations");
    dnnl_check(dnnl_memory_create(&t->result, &result, engine, result_memory), "a result");
    dnnl_check(dnnl_primitive_create(&t->matmul, made), "making a matmul");
    dnnl_check(dnnl_primitive_desc_destroy(made), "a matmul");
    return true;
}

static void theirs_run(const struct theirs *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, t->source},
                                             {DNNL_ARG_WEIGHTS, t->weights[i]},
                                             {DNNL_ARG_DST, t->result}};
        dnnl_check(dnnl_primitive_execute(t->matmul, stream, 3, arguments), "a matmul");
    }
    dnnl_check(dnnl_stream_wait(stream), "a matmul");
}

static void theirs_close(struct theirs *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        dnnl_memory_destroy(t->weights[i]);
    dnnl_memory_destroy(t->source);
    dnnl_memory_destroy(t->result);
    dnnl_primitive_destroy(t->matmul);
}

/* Makes random Q4_1 blocks of 32 numbers: two f16 (scale and minimum) and 16 bytes of numbers. */
static uint8_t *q4_1_random(uint32_t rows, uint32_t cols)
{
    size_t bytes = (size_t)rows * cols / 32 * 20;
    uint8_t *out = malloc(bytes);
    assert(out != NULL);
    for (size_t i = 0; i < bytes; i += 4) {
        /* Scale and minimum are 1/16. */
        uint32_t bits = i % 20 == 0 ? 0x2c002c00u : (uint32_t)random_at(1, i);
        memcpy(out + i, &bits, 4);
    }
    return out;
}

static void ours_open(struct ours *o, size_t shape)
{
    uint32_t rows = shapes[shape].rows, cols = shapes[shape].cols;
    struct error error = {0};
    uint8_t *source = q4_1_random(rows, cols);
    const struct compute_source weights = {
        .type = COMPUTE_Q4_1, .rows = rows, .cols = cols, .data = source};
    o->count = WEIGHTS_TOTAL / (rows * cols);
    assert(o->count <= MATRICES_MAX);
    for (uint32_t t = 0; t < 2; t++) {
        const struct compute_options options = {.threads = t + 1};
        if (compute_cpu.open(&options, &o->compute[t], &error) != ST_OK) {
            fprintf(stderr, "bench-yardstick: %s\n", error.text);
            exit(1);
        }
        for (uint32_t i = 0; i < o->count; i++)
            if (compute_cpu.matrix_open(o->compute[t], &weights, &o->matrices[t][i]) != ST_OK)
                abort();
    }
    free(source);
    o->x = memory_filled((size_t)ROWS_MAX * cols * sizeof(float));
    o->y = memory_filled((size_t)ROWS_MAX * rows * sizeof(float));
    o->ones = memory_filled(cols * sizeof(float));
}

static void ours_close(struct ours *o)
{
    for (uint32_t t = 0; t < 2; t++) {
        for (uint32_t i = 0; i < o->count; i++)
            compute_cpu.matrix_close(o->compute[t], o->matrices[t][i]);
        compute_cpu.close(o->compute[t]);
    }
    free(o->x);
    free(o->y);
    free(o->ones);
}

static void ours_run(const struct ours *o, uint32_t t, const struct compute_activations *a,
                     uint32_t n)
{
    for (uint32_t i = 0; i < o->count; i++) {
        const struct compute_matrix *one[] = {o->matrices[t][i]};
        compute_cpu.matmul(o->compute[t], one, NULL, 1, a, n, &o->y);
    }
}

static double gops(int64_t took_us, uint32_t count, size_t shape, uint32_t n)
{
    return 2e-3 * count * n * shapes[shape].rows * shapes[shape].cols / (double)took_us;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void pause_short(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    nanosleep(&pause, NULL);
}

/* The four kinds on one shape, with one number of rows and of threads. */
struct contest {
    bool there[KINDS];
    bool slow[KINDS];
    uint32_t counts[KINDS]; /* Number of figures; figures are in Gop/s. */
    double figures[KINDS][REPEATS_MAX];
    struct theirs theirs[KINDS];
};

static void contest_round(struct contest *contest, const struct ours *o, size_t shape, uint32_t n,
                          uint32_t threads, const struct compute_activations *a)
{
    for (enum kind kind = 0; kind < KINDS; kind++) {
        const struct theirs *theirs = &contest->theirs[kind];
        if (!contest->there[kind] || contest->slow[kind])
            continue;
        pause_short();
        int64_t begin = clock_now_us(&clock_system);
        if (kind == OURS_Q4_1)
            ours_run(o, threads - 1, a, n);
        else
            theirs_run(theirs);
        int64_t took_us = clock_now_us(&clock_system) - begin;
        contest->slow[kind] = took_us > SLOW_US;
        contest->figures[kind][contest->counts[kind]++] =
            gops(took_us, kind == OURS_Q4_1 ? o->count : theirs->count, shape, n);
    }
}

/* 0 = no figures. */
static double contest_median(struct contest *contest, enum kind kind)
{
    uint32_t count = contest->counts[kind];
    double *figures = contest->figures[kind];
    qsort(figures, count, sizeof(double), by_value);
    return count > 0 ? (figures[(count - 1) / 2] + figures[count / 2]) / 2 : 0;
}

static void compare(const struct ours *o, size_t shape, uint32_t n, uint32_t threads,
                    uint32_t repeats, double medians[KINDS])
{
    static struct contest contest;
    struct compute *c = o->compute[threads - 1];
    struct compute_activations *a;
    uint32_t cols = shapes[shape].cols;
    unsigned needs = compute_cpu.matrix_needs(o->matrices[threads - 1][0]);
    if (compute_cpu.activations_open(c, n, cols, needs, &a) != ST_OK)
        abort();
    compute_cpu.norm(c, o->x, NULL, n, cols, o->ones, 1e-5f, a);
    omp_set_num_threads((int)threads); /* oneDNN reads this when it plans. */
    memset(&contest, 0, sizeof(contest));
    contest.there[OURS_Q4_1] = true;
    for (enum kind kind = DNNL_INT8; kind < KINDS; kind++)
        contest.there[kind] = theirs_open(&contest.theirs[kind], kind, shape, n);
    for (uint32_t r = 0; r < repeats; r++)
        contest_round(&contest, o, shape, n, threads, a);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        medians[kind] = contest_median(&contest, kind);
        if (kind != OURS_Q4_1 && contest.there[kind])
            theirs_close(&contest.theirs[kind]);
    }
    compute_cpu.activations_close(c, a);
}

static const char *isa_name(void)
{
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx512_core:
        return "avx512";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512-vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512-bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "avx512-amx";
    default:
        return "another instruction set";
    }
}

static void table_begin(struct table *table, uint32_t threads)
{
    static const char *const heads[] = {"rows",        "ours Q4_1",  "oneDNN int8",
                                        "oneDNN bf16", "oneDNN f32", "ours/int8"};
    table_init(table, 7);
    table_cell_add(table, "Gop/s, %u thread%s", threads, threads == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        table_cell_add(table, "%s", heads[i]);
}

static void table_row(struct table *table, size_t shape, uint32_t n, const double medians[KINDS])
{
    table_cell_add(table, "%u x %u", shapes[shape].rows, shapes[shape].cols);
    table_cell_add(table, "%u", n);
    for (enum kind kind = 0; kind < KINDS; kind++)
        table_cell_add(table, "%.0f", medians[kind]);
    table_cell_add(table, "%.2f",
                   medians[DNNL_INT8] > 0 ? medians[OURS_Q4_1] / medians[DNNL_INT8] : 0);
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"repeats", required_argument, NULL, 'r'}, {0}};
    static struct table tables[2];
    static struct ours ours;
    uint32_t repeats = 3;
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        repeats = option == 'r' ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
    if (repeats < 1 || repeats > REPEATS_MAX || optind != argc) {
        fprintf(stderr, "usage: bench-yardstick [--repeats 1..%d]\n", REPEATS_MAX);
        return 2;
    }
    dnnl_check(dnnl_engine_create(&engine, dnnl_cpu, 0), "starting");
    dnnl_check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "starting");
    weights_memory = memory_filled((size_t)WEIGHTS_TOTAL * sizeof(float));
    source_memory = memory_filled((size_t)ROWS_MAX * 1536 * sizeof(float));
    result_memory = memory_filled((size_t)ROWS_MAX * 1536 * sizeof(float));
    table_begin(&tables[0], 1);
    table_begin(&tables[1], 2);
    for (size_t shape = 0; shape < SHAPES; shape++) {
        ours_open(&ours, shape);
        for (size_t i = 0; i < ROW_COUNTS; i++)
            for (uint32_t t = 0; t < 2; t++) {
                double medians[KINDS];
                compare(&ours, shape, row_counts[i], t + 1, repeats, medians);
                table_row(&tables[t], shape, row_counts[i], medians);
            }
        ours_close(&ours);
    }
    const dnnl_version_t *version = dnnl_version();
    printf("oneDNN %d.%d.%d takes this CPU for %s; medians of %u, 64 M weights a pass.\n",
           version->major, version->minor, version->patch, isa_name(), repeats);
    for (int t = 0; t < 2; t++) {
        printf("\n");
        table_print_markdown(&tables[t], stdout);
    }
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    free(weights_memory);
    free(source_memory);
    free(result_memory);
    return 0;
}
