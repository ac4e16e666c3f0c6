/* roofline: what this machine could do at best in these moments, measured: vector arithmetic from
 * registers and plain reads of memory and of the last cache, by some threads at once. A benchmark
 * divides its figures by it (engine_bound.h). Measures in the caller's process, a few milliseconds
 * a rate; knows no model. */
#ifndef BENCH_ROOFLINE_H
#define BENCH_ROOFLINE_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define ROOFLINE_THREADS_MAX 64

enum roofline_rate {
    ROOFLINE_INT8,   /* dot products of 8-bit numbers into 32 bits (vpdpbusd) */
    ROOFLINE_INT16,  /* of 16-bit ones (vpdpwssd): 2 multiplications a 32-bit lane */
    ROOFLINE_BF16,   /* vdpbf16ps */
    ROOFLINE_FP32,   /* fused multiply-add */
    ROOFLINE_MEMORY, /* reads of a set of `memory_bytes`, again and again */
    ROOFLINE_CACHE,  /* reads of a set that the last cache holds */
    ROOFLINE_RATES,
};

/* Operations (a multiplication and an addition are two) or bytes a second; 0: this CPU has no such
 * instruction, or this build knows none for it. */
struct roofline {
    double rates[ROOFLINE_RATES];
};

const char *roofline_rate_name(enum roofline_rate rate); /* "int8" */

struct roofline_memory; /* what is read: one for all measurements, its pages there before the clock
                         */

/* `memory_bytes`: as much as the benchmark reads again and again (a model's weights), since the
 * last cache keeps a part of it for both. */
enum status roofline_memory_open(size_t memory_bytes, struct roofline_memory **out);
void roofline_memory_close(struct roofline_memory *memory); /* NULL is fine */

/* All rates with `threads` threads, each over some milliseconds: an average, so that a neighbour
 * who takes a part of the machine takes it here too. About 30 ms. ST_INVALID, ST_NO_RESOURCE. */
enum status roofline_measure(const struct roofline_memory *memory, uint32_t threads,
                             struct roofline *out);

/* The mean of each rate: of the moments before and after something. */
struct roofline roofline_mean(const struct roofline *a, const struct roofline *b);

#endif
