/* roofline: see the header. Every thread runs the same loop on its own share of the data. The rate
 * is the sum of the threads' rates, each from the common start to the thread's own end. */
#include "bench/roofline.h"

#include "common/clock.h"
#if defined(__x86_64__)
#include "compute/cpu/cpuid.h"
#endif

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
/* Larger than any second-level cache; fits most last-level caches. */
#define CACHE_BYTES     ((size_t)16 << 20)
#define BURST_US        4000 /* Time for one rate. */
#define VECTORS_A_ROUND 120
#define AHEAD_VECTORS   128 /* 8 KiB. */

typedef uint64_t vector __attribute__((vector_size(64)));

struct roofline_memory {
    vector *data;
    size_t bytes;
};

struct share {
    pthread_t thread;
    pthread_barrier_t *start;
    enum roofline_rate rate;
    const vector *data; /* NULL = arithmetic. */
    size_t vectors;
    bool ahead;   /* Prefetch what is read. */
    uint64_t sum; /* Keeps the compiler from removing the reads. */
    double a_second;
};

const char *roofline_rate_name(enum roofline_rate rate)
{
    static const char *const names[ROOFLINE_RATES] = {"int8", "int16",  "bf16",
                                                      "fp32", "memory", "cache"};
    return names[rate];
}

#if defined(__x86_64__)
/* Twelve sums, for two units with up to six cycles of latency. All values are 0 and stay 0; other
 * values could become denormal numbers, which are slower on some units. */
#define ALL_SUMS                                                                                   \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11"
#define TWELVE(op)                                                                                 \
    op " %%zmm30, %%zmm31, %%zmm0\n" op " %%zmm30, %%zmm31, %%zmm1\n" op                           \
       " %%zmm30, %%zmm31, %%zmm2\n" op " %%zmm30, %%zmm31, %%zmm3\n" op                           \
       " %%zmm30, %%zmm31, %%zmm4\n" op " %%zmm30, %%zmm31, %%zmm5\n" op                           \
       " %%zmm30, %%zmm31, %%zmm6\n" op " %%zmm30, %%zmm31, %%zmm7\n" op                           \
       " %%zmm30, %%zmm31, %%zmm8\n" op " %%zmm30, %%zmm31, %%zmm9\n" op                           \
       " %%zmm30, %%zmm31, %%zmm10\n" op " %%zmm30, %%zmm31, %%zmm11\n"
#define ROUND(name, op)                                                                            \
    static __attribute__((target("avx512f"))) void name(void)                                      \
    {                                                                                              \
        __asm__ volatile("vzeroall\nvpxorq %%zmm30, %%zmm30, %%zmm30\n"                            \
                         "vpxorq %%zmm31, %%zmm31, %%zmm31\n" ::                                   \
                             : ALL_SUMS, "xmm12", "xmm13", "xmm14", "xmm15", "xmm30", "xmm31");    \
        for (int i = 0; i < VECTORS_A_ROUND / 12; i++)                                             \
            __asm__ volatile(TWELVE(op)::: ALL_SUMS);                                              \
    }

ROUND(round_int8, "vpdpbusd")
ROUND(round_int16, "vpdpwssd")
ROUND(round_bf16, "vdpbf16ps")
ROUND(round_fp32, "vfmadd231ps")

/* The same with AVX2, in 32-byte vectors. Without dot products of one instruction, 8-bit ones take
 * three (AVX-VNNI: one), and 16-bit ones two. */
#define EACH_SUM(step)                                                                             \
    step("0") step("1") step("2") step("3") step("4") step("5") step("6") step("7") step("8")      \
        step("9") step("10") step("11")
#define STEP_INT8(sum)                                                                             \
    "vpmaddubsw %%ymm15, %%ymm14, %%ymm12\n"                                                       \
    "vpmaddwd %%ymm13, %%ymm12, %%ymm12\n"                                                         \
    "vpaddd %%ymm12, %%ymm" sum ", %%ymm" sum "\n"
#define STEP_INT8_VNNI(sum) "%{vex%} vpdpbusd %%ymm15, %%ymm14, %%ymm" sum "\n"
#define STEP_INT16(sum)                                                                            \
    "vpmaddwd %%ymm15, %%ymm14, %%ymm12\n"                                                         \
    "vpaddd %%ymm12, %%ymm" sum ", %%ymm" sum "\n"
#define STEP_FP32(sum) "vfmadd231ps %%ymm15, %%ymm14, %%ymm" sum "\n"
#define ROUND_AVX2(name, step)                                                                     \
    static __attribute__((target("avx2,fma"))) void name(void)                                     \
    {                                                                                              \
        __asm__ volatile("vzeroall\n" ::: ALL_SUMS, "xmm12", "xmm13", "xmm14", "xmm15");           \
        for (int i = 0; i < VECTORS_A_ROUND / 12; i++)                                             \
            __asm__ volatile(EACH_SUM(step)::: ALL_SUMS, "xmm12");                                 \
    }

ROUND_AVX2(round_int8_avx2, STEP_INT8)
ROUND_AVX2(round_int8_avx_vnni, STEP_INT8_VNNI)
ROUND_AVX2(round_int16_avx2, STEP_INT16)
ROUND_AVX2(round_fp32_avx2, STEP_FP32)

/* True if CLEAVE_ISA lets the engine choose its instruction set, or is `isa`. */
static bool isa_allowed(const char *isa)
{
    const char *named = getenv("CLEAVE_ISA");
    return named == NULL || named[0] == 0 || strcmp(named, "auto") == 0 || strcmp(named, isa) == 0;
}

/* True if the engine uses AVX-512 here. */
static bool wide(void)
{
    return __builtin_cpu_supports("avx512f") && isa_allowed("avx512");
}

/* True if the engine uses AVX-VNNI here. */
static bool narrow_vnni(void)
{
    return !wide() && isa_allowed("avx-vnni") && cpuid_has_avx_vnni();
}

/* Returns the loop of a rate for this computer. Chosen once, before the measurement: reading the
 * environment takes longer than the loop. */
static void (*arithmetic_loop(enum roofline_rate rate))(void)
{
    static void (*const wide_loops[])(void) = {round_int8, round_int16, round_bf16, round_fp32};
    static void (*const narrow_loops[])(void) = {round_int8_avx2, round_int16_avx2, NULL,
                                                 round_fp32_avx2};
    if (rate == ROOFLINE_INT8 && narrow_vnni())
        return round_int8_avx_vnni;
    return wide() ? wide_loops[rate] : narrow_loops[rate];
}

static bool arithmetic_known(enum roofline_rate rate)
{
    if (!wide())
        return rate != ROOFLINE_BF16 && __builtin_cpu_supports("avx2") &&
               __builtin_cpu_supports("fma");
    if (rate == ROOFLINE_BF16)
        return __builtin_cpu_supports("avx512bf16");
    return rate == ROOFLINE_FP32 || __builtin_cpu_supports("avx512vnni");
}
#else
static bool wide(void)
{
    return false;
}

static void (*arithmetic_loop(enum roofline_rate rate))(void)
{
    (void)rate;
    return NULL;
}

static bool arithmetic_known(enum roofline_rate rate)
{
    (void)rate;
    return false;
}
#endif

/* Operations of one step: of a vector of 64 bytes, or 32. */
static double vector_operations(enum roofline_rate rate)
{
    return (rate == ROOFLINE_INT8 ? 128 : rate == ROOFLINE_FP32 ? 32 : 64) / (wide() ? 1.0 : 2.0);
}

/* Loads in order. On some CPUs, the hardware alone does not prefetch enough: with `ahead`, vectors
 * that are read AHEAD_VECTORS later are prefetched (beyond the data, this does nothing). */
static inline __attribute__((always_inline)) uint64_t read_body(const vector *data, size_t vectors,
                                                                bool ahead)
{
    vector sums[4] = {{0}};
    for (size_t i = 0; i + 4 <= vectors; i += 4)
        for (size_t k = 0; k < 4; k++) {
            if (ahead)
                __builtin_prefetch((const char *)data + (i + k + AHEAD_VECTORS) * sizeof(vector));
            sums[k] |= data[i + k];
        }
    sums[0] |= sums[1] | sums[2] | sums[3];
    return sums[0][0] | sums[0][7];
}

#if defined(__x86_64__)
static __attribute__((target("avx512f"))) uint64_t read_wide(const vector *data, size_t vectors,
                                                             bool ahead)
{
    return ahead ? read_body(data, vectors, true) : read_body(data, vectors, false);
}
#endif

static uint64_t read_all(const vector *data, size_t vectors, bool ahead)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return read_wide(data, vectors, ahead);
#endif
    return ahead ? read_body(data, vectors, true) : read_body(data, vectors, false);
}

static void *share_run(void *argument)
{
    struct share *share = argument;
    void (*loop)(void) = share->data == NULL ? arithmetic_loop(share->rate) : NULL;
    double operations = vector_operations(share->rate), work = 0;
    if (share->data != NULL) /* Read once before the measurement to fill the cache. */
        share->sum = read_all(share->data, share->vectors, share->ahead);
    pthread_barrier_wait(share->start);
    int64_t begin = clock_now_us(&clock_system), took;
    do {
        if (share->data != NULL) {
            share->sum |= read_all(share->data, share->vectors, share->ahead);
            work += (double)share->vectors * sizeof(vector);
        } else {
            for (int i = 0; i < 100; i++)
                loop();
            work += 100 * VECTORS_A_ROUND * operations;
        }
        took = clock_now_us(&clock_system) - begin;
    } while (took < BURST_US);
    share->a_second = work * 1e6 / (double)took;
    return NULL;
}

/* Returns the rate of all threads together. */
static double rate_measure(enum roofline_rate rate, uint32_t threads, const vector *data,
                           size_t vectors, bool ahead)
{
    struct share shares[ROOFLINE_THREADS_MAX] = {0};
    pthread_barrier_t start;
    double sum = 0;
    pthread_barrier_init(&start, NULL, threads);
    for (uint32_t i = 0; i < threads; i++) {
        shares[i] = (struct share){.start = &start,
                                   .rate = rate,
                                   .data = data != NULL ? data + i * (vectors / threads) : NULL,
                                   .vectors = vectors / threads,
                                   .ahead = ahead};
        if (i > 0 && pthread_create(&shares[i].thread, NULL, share_run, &shares[i]) != 0)
            abort(); /* The other threads wait at the barrier; a benchmark cannot continue. */
    }
    share_run(&shares[0]);
    for (uint32_t i = 0; i < threads; i++) {
        if (i > 0)
            pthread_join(shares[i].thread, NULL);
        sum += shares[i].a_second;
    }
    pthread_barrier_destroy(&start);
    return sum;
}

enum status roofline_memory_open(size_t memory_bytes, struct roofline_memory **out)
{
    struct roofline_memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL)
        return ST_NO_MEMORY;
    memory->bytes = memory_bytes > CACHE_BYTES ? memory_bytes : CACHE_BYTES;
    memory->bytes = (memory->bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    memory->data = aligned_alloc(HUGE_PAGE_BYTES, memory->bytes);
    if (memory->data == NULL) {
        free(memory);
        return ST_NO_MEMORY;
    }
    (void)madvise(memory->data, memory->bytes, MADV_HUGEPAGE); /* Like the engine's weights. */
    memset(memory->data, 1, memory->bytes);
    *out = memory;
    return ST_OK;
}

void roofline_memory_close(struct roofline_memory *memory)
{
    if (memory == NULL)
        return;
    free(memory->data);
    free(memory);
}

enum status roofline_measure(const struct roofline_memory *memory, uint32_t threads,
                             struct roofline *out)
{
    struct roofline found = {0};
    if (threads == 0 || threads > ROOFLINE_THREADS_MAX)
        return ST_INVALID;
    for (enum roofline_rate rate = 0; rate < ROOFLINE_RATES; rate++) {
        size_t vectors = (rate == ROOFLINE_MEMORY ? memory->bytes : CACHE_BYTES) / sizeof(vector);
        bool reads = rate == ROOFLINE_MEMORY || rate == ROOFLINE_CACHE;
        if (!reads && !arithmetic_known(rate))
            continue;
        const vector *data = reads ? memory->data : NULL;
        found.rates[rate] = rate_measure(rate, threads, data, vectors, false);
        double ahead = reads ? rate_measure(rate, threads, data, vectors, true) : 0;
        if (ahead > found.rates[rate])
            found.rates[rate] = ahead;
    }
    *out = found;
    return ST_OK;
}

struct roofline roofline_mean(const struct roofline *a, const struct roofline *b)
{
    struct roofline mean = {0};
    for (int i = 0; i < ROOFLINE_RATES; i++)
        mean.rates[i] = (a->rates[i] + b->rates[i]) / 2;
    return mean;
}
