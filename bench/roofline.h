/* roofline: what this machine could do at best, measured: 8-bit dot products from registers and
 * plain reads of memory, by some threads at once. A benchmark divides its work by it. Measures in
 * the caller's process for about half a second; knows no model. */
#ifndef BENCH_ROOFLINE_H
#define BENCH_ROOFLINE_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct roofline {
    double dot_ops;    /* 8-bit multiplications and additions a second; 0: no such instruction */
    double read_bytes; /* a second, from memory */
    uint32_t threads;
};

/* The best of several tries: other processes can only make it less. */
enum status roofline_measure(uint32_t threads, struct roofline *out);

/* Seconds that the work takes at least: the longer of arithmetic and reading. `flops` are fp32
 * multiplications and additions, which a vector unit does a quarter as fast as 8-bit ones. 0 if it
 * is not known. `reads_out` says whether reading is the longer. */
double roofline_seconds(const struct roofline *roofline, double dot_ops, double flops, double bytes,
                        bool *reads_out);

#endif
