/* roofline: measures the present limits of this computer: the rate of vector arithmetic in
 * registers, and the rate of reads of memory and of the last-level cache, by several threads at the
 * same time. bench-engine (engine.c) calls it on its main thread before and after each sample;
 * engine_bound.h computes bounds from the rates. A call measures on the caller's thread and on
 * threads that it starts and joins. This part knows no model and stores no results. Other programs
 * that run meanwhile reduce the rates. */
#ifndef BENCH_ROOFLINE_H
#define BENCH_ROOFLINE_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define ROOFLINE_THREADS_MAX 64

enum roofline_rate {
    /* Dot products of 8-bit numbers into 32 bits (vpdpbusd; if neither AVX-512 nor AVX-VNNI is
     * used: vpmaddubsw, vpmaddwd and vpaddd). */
    ROOFLINE_INT8,
    /* Dot products of 16-bit numbers into 32 bits (vpdpwssd; with AVX2: vpmaddwd and vpaddd). */
    ROOFLINE_INT16,
    ROOFLINE_BF16, /* Dot products of bf16 numbers (vdpbf16ps, AVX-512 only). */
    ROOFLINE_FP32, /* Fused multiply-add (vfmadd231ps). */
    /* Repeated reads of the memory of roofline_memory_open. This rate and the next one are the
     * higher of two: with and without prefetch instructions. */
    ROOFLINE_MEMORY,
    ROOFLINE_CACHE, /* Repeated reads of 16 MiB, which most last-level caches hold. */
    ROOFLINE_RATES, /* Number of rates. */
};

/* The rates of one measurement, all threads together. Arithmetic: operations per second (a
 * multiplication and an addition are two operations) with the vectors of the engine's kernels:
 * AVX-512, or AVX2 if the CPU or CLEAVE_ISA excludes AVX-512; 0 = the instruction is missing. With
 * CLEAVE_ISA=portable, the rates are the rates of AVX2. Reads: bytes per second. */
struct roofline {
    double rates[ROOFLINE_RATES];
};

const char *roofline_rate_name(enum roofline_rate rate); /* Returns a constant such as "int8". */

/* Memory that the measurements read. All measurements can share one struct. */
struct roofline_memory;

/* Allocates the memory. memory_bytes = bytes that the benchmark reads repeatedly, such as a model's
 * weights. The memory has the same size (at least 16 MiB, rounded up to a multiple of 2 MiB), so
 * that the last-level cache holds the same share of the memory as of the weights. Returns
 * ST_NO_MEMORY on failure. */
enum status roofline_memory_open(size_t memory_bytes, struct roofline_memory **out);
void roofline_memory_close(struct roofline_memory *memory); /* NULL is fine */

/* Measures each rate for at least 4 ms with `threads` threads, including the caller's. Returns
 * ST_INVALID if `threads` is not from 1 to ROOFLINE_THREADS_MAX. Aborts the process if a thread
 * cannot be started. */
enum status roofline_measure(const struct roofline_memory *memory, uint32_t threads,
                             struct roofline *out);

/* Returns the mean of each rate of two measurements, such as those before and after a sample. */
struct roofline roofline_mean(const struct roofline *a, const struct roofline *b);

#endif
