/* roofline: measures the limits of this computer at the moment: the rate of vector arithmetic in
 * registers, and the rate of plain reads of memory and of the last-level cache, by several threads
 * at the same time. bench-engine (engine.c) calls it before and after each sample; engine_bound.h
 * turns the rates into bounds. A call measures on the caller's thread and on threads that end with
 * the call. It knows no model, keeps no history, and does not keep other programs off the cores. */
#ifndef BENCH_ROOFLINE_H
#define BENCH_ROOFLINE_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define ROOFLINE_THREADS_MAX 64

enum roofline_rate {
    ROOFLINE_INT8, /* Dot products of 8-bit numbers into 32 bits (vpdpbusd). */
    /* Dot products of 16-bit numbers into 32 bits (vpdpwssd). */
    ROOFLINE_INT16,
    ROOFLINE_BF16,   /* Dot products of bf16 numbers (vdpbf16ps). */
    ROOFLINE_FP32,   /* Fused multiply-add (vfmadd231ps). */
    ROOFLINE_MEMORY, /* Repeated reads of the memory of roofline_memory_open. */
    ROOFLINE_CACHE,  /* Repeated reads of 16 MiB, which most last-level caches hold. */
    ROOFLINE_RATES,  /* Number of rates. */
};

/* The rates that one measurement found. Arithmetic: operations per second (a multiplication and an
 * addition are two), with 64-byte vectors; 0 = the CPU or this build does not have the instruction
 * for AVX-512. Reads: bytes per second. */
struct roofline {
    double rates[ROOFLINE_RATES];
};

const char *roofline_rate_name(enum roofline_rate rate); /* Returns a constant such as "int8". */

/* Memory that the measurements read, with all pages touched. One serves all measurements. */
struct roofline_memory;

/* memory_bytes: the bytes that the benchmark itself reads repeatedly, such as a model's weights.
 * The measurement reads as many (at least 16 MiB), so that the last-level cache holds the same part
 * of them as it holds of the weights. ST_NO_MEMORY. */
enum status roofline_memory_open(size_t memory_bytes, struct roofline_memory **out);
void roofline_memory_close(struct roofline_memory *memory); /* NULL is fine */

/* Measures all rates with `threads` threads, the caller's included, in about 30 ms. Each rate is a
 * mean over 4 ms, so other work on the computer reduces it as it reduces the benchmark's figures.
 * ST_INVALID: `threads` is not from 1 to ROOFLINE_THREADS_MAX. */
enum status roofline_measure(const struct roofline_memory *memory, uint32_t threads,
                             struct roofline *out);

/* Returns the mean of each rate of two measurements, such as those before and after a sample. */
struct roofline roofline_mean(const struct roofline *a, const struct roofline *b);

#endif
