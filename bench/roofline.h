/* roofline: measures the computer's limits at the moment: vector arithmetic in registers, and plain
 * reads of memory and of the last-level cache, by several threads at once. Benchmarks divide their
 * figures by these limits (engine_bound.h). Knows no model. The caller's thread and its own threads
 * measure, a few milliseconds for each rate. */
#ifndef BENCH_ROOFLINE_H
#define BENCH_ROOFLINE_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define ROOFLINE_THREADS_MAX 64

enum roofline_rate {
    ROOFLINE_INT8, /* Dot products of 8-bit numbers into 32 bits (vpdpbusd). */
    /* Dot products of 16-bit numbers (vpdpwssd): 2 multiplications per 32-bit lane. */
    ROOFLINE_INT16,
    ROOFLINE_BF16,   /* Dot products of bf16 numbers (vdpbf16ps). */
    ROOFLINE_FP32,   /* Fused multiply-add. */
    ROOFLINE_MEMORY, /* Repeated reads of `memory_bytes` bytes. */
    ROOFLINE_CACHE,  /* Repeated reads of a set that fits the last-level cache. */
    ROOFLINE_RATES,
};

/* Operations per second (a multiplication and an addition are two) or bytes per second. 0 = the CPU
 * or this build has no such instruction. */
struct roofline {
    double rates[ROOFLINE_RATES];
};

const char *roofline_rate_name(enum roofline_rate rate); /* Returns a name such as "int8". */

/* The memory that is read: one for all measurements, with all pages touched. */
struct roofline_memory;

/* `memory_bytes`: what the benchmark reads repeatedly (a model's weights), because the last-level
 * cache keeps a part of it in both cases. */
enum status roofline_memory_open(size_t memory_bytes, struct roofline_memory **out);
void roofline_memory_close(struct roofline_memory *memory); /* NULL is fine */

/* Measures all rates with `threads` threads, in about 30 ms. Each rate is a mean over some
 * milliseconds, so other work on the computer reduces it as it reduces the benchmark's figures.
 * ST_INVALID: wrong number of threads. */
enum status roofline_measure(const struct roofline_memory *memory, uint32_t threads,
                             struct roofline *out);

/* Returns the mean of each rate, e.g. of the measurements before and after a benchmark. */
struct roofline roofline_mean(const struct roofline *a, const struct roofline *b);

#endif
