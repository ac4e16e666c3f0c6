/* routing: chooses the experts of one row (compute/experts.h). Plain C with operations in a fixed
 * order (scores in fp32; exponentials and weights in fp64), so the bits are the same on every
 * instruction set and C library. experts.c and `cleave profile` call the functions, on any thread.
 * The functions have no state, and do not compute the router's product or an expert. */
#ifndef COMPUTE_CPU_ROUTING_H
#define COMPUTE_CPU_ROUTING_H

#include "compute/experts.h"

/* Returns 1 / (1 + e^-x). */
float routing_sigmoid(float x);
/* Chooses the experts of a row: writes ids[routing->used] in ascending order, and the experts'
 * weights to weights[routing->used]. `product`: the row's product with the router's matrix. If a
 * score is NaN, the ids are still distinct and in range; weights may be NaN. */
void routing_choose(const struct compute_routing *routing, const float *product, uint32_t *ids,
                    float *weights);

#endif
