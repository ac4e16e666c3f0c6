/* See roofline.h. Every thread runs the same loop on its own share; the rate is all work over the
 * slowest thread's time. */
#include "bench/roofline.h"

#include "common/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define READ_BYTES      ((size_t)256 << 20) /* of all threads: in no cache */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define DOT_ROUNDS      100000
#define TRIES           9
#define THREADS_MAX     64

struct share {
    pthread_t thread;
    pthread_barrier_t *start;
    const uint64_t *data; /* NULL: dot products */
    size_t count;
    uint64_t sum; /* keeps the reads */
    int64_t took_us;
};

#if defined(__x86_64__)
#define DOT_OPS_A_ROUND (10 * 128.0)

static bool dot_known(void)
{
    return __builtin_cpu_supports("avx512vnni");
}

static __attribute__((target("avx512f,avx512vnni"))) void dot_run(void)
{
    for (int i = 0; i < DOT_ROUNDS; i++)
        __asm__ volatile("vpdpbusd %%zmm30, %%zmm31, %%zmm0\nvpdpbusd %%zmm30, %%zmm31, %%zmm1\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm2\nvpdpbusd %%zmm30, %%zmm31, %%zmm3\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm4\nvpdpbusd %%zmm30, %%zmm31, %%zmm5\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm6\nvpdpbusd %%zmm30, %%zmm31, %%zmm7\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm8\nvpdpbusd %%zmm30, %%zmm31, %%zmm9\n" ::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                               "xmm8", "xmm9");
}
#else
#define DOT_OPS_A_ROUND 0.0

static bool dot_known(void)
{
    return false;
}

static void dot_run(void)
{
}
#endif

static void *share_run(void *argument)
{
    struct share *share = argument;
    pthread_barrier_wait(share->start);
    int64_t started = clock_now_us(&clock_system);
    uint64_t sums[8] = {0};
    if (share->data == NULL)
        dot_run();
    for (size_t i = 0; i + 8 <= share->count; i += 8)
        for (size_t k = 0; k < 8; k++)
            sums[k] += share->data[i + k];
    for (size_t k = 0; k < 8; k++)
        share->sum += sums[k];
    share->took_us = clock_now_us(&clock_system) - started;
    return NULL;
}

/* Microseconds of the slowest thread; 0 if they cannot be started. */
static int64_t all_run(uint32_t threads, const uint64_t *data)
{
    struct share shares[THREADS_MAX] = {0};
    pthread_barrier_t start;
    uint32_t started = 0;
    int64_t slowest = 1;
    if (pthread_barrier_init(&start, NULL, threads) != 0)
        return 0;
    size_t count = data != NULL ? READ_BYTES / sizeof(*data) / threads : 0;
    for (; started < threads; started++) {
        shares[started] = (struct share){
            .start = &start, .data = data != NULL ? data + started * count : NULL, .count = count};
        if (started > 0 &&
            pthread_create(&shares[started].thread, NULL, share_run, &shares[started]) != 0)
            abort(); /* the others wait for it: a benchmark has nothing better to do */
    }
    share_run(&shares[0]);
    for (uint32_t i = 0; i < threads; i++) {
        if (i > 0)
            pthread_join(shares[i].thread, NULL);
        slowest = shares[i].took_us > slowest ? shares[i].took_us : slowest;
    }
    pthread_barrier_destroy(&start);
    return slowest;
}

enum status roofline_measure(uint32_t threads, struct roofline *out)
{
    if (threads == 0 || threads > THREADS_MAX)
        return ST_INVALID;
    uint64_t *data = aligned_alloc(HUGE_PAGE_BYTES, READ_BYTES);
    if (data == NULL)
        return ST_NO_MEMORY;
    (void)madvise(data, READ_BYTES, MADV_HUGEPAGE); /* as the engine's weights */
    memset(data, 1, READ_BYTES);
    struct roofline best = {.threads = threads};
    enum status status = ST_OK;
    for (int i = 0; i < TRIES && status == ST_OK; i++) {
        int64_t reading = all_run(threads, data), dots = all_run(threads, NULL);
        if (reading == 0 || dots == 0) {
            status = ST_NO_RESOURCE;
            break;
        }
        double bytes = (double)READ_BYTES * 1e6 / (double)reading;
        double ops = DOT_OPS_A_ROUND * DOT_ROUNDS * threads * 1e6 / (double)dots;
        best.read_bytes = bytes > best.read_bytes ? bytes : best.read_bytes;
        if (dot_known())
            best.dot_ops = ops > best.dot_ops ? ops : best.dot_ops;
    }
    free(data);
    if (status == ST_OK)
        *out = best;
    return status;
}

double roofline_seconds(const struct roofline *roofline, double dot_ops, double flops, double bytes,
                        bool *reads_out)
{
    if (roofline->dot_ops == 0)
        return 0;
    double arithmetic = (dot_ops + 4 * flops) / roofline->dot_ops;
    double reading = bytes / roofline->read_bytes;
    *reads_out = reading > arithmetic;
    return *reads_out ? reading : arithmetic;
}
