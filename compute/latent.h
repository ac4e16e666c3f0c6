/* latent: an optional ability of a backend: the operations of latent attention (DeepSeek-V2, 2024,
 * section 2.1) that other models do not need.
 *
 * In latent attention, a key or value of a head is the product of the head's matrix and the token's
 * latent vector. These functions do not compute the keys and values: `absorb` multiplies the matrix
 * of the keys with the query, and `expand` multiplies the matrix of the values with the result of
 * attention. So attention reads the latent vectors themselves (struct compute_kv).
 *
 * model/forward/ calls the functions, one thread at a time for each device (compute.h), and owns
 * the matrices. The functions store no KV (compute_ops.rope_store does). */
#ifndef COMPUTE_LATENT_H
#define COMPUTE_LATENT_H

#include "compute/objects.h"

struct compute;

/* The matrices of all heads are one compute_matrix m of type COMPUTE_F32, head after head. Below,
 * cols(m) is the number of columns of m. The number of rows of each head must be a multiple of
 * COMPUTE_LATENT_ROWS. */
#define COMPUTE_LATENT_ROWS 32

struct compute_latent_ops {
    /* Makes the keys of row_count rows: k[r] is own[r] (`own_cols` values, which rope_store rotates
     * later), followed by the RMSNorm of latent[r] (`cols` values) with weight[0..cols). */
    void (*join)(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                 uint32_t own_cols, uint32_t cols, const float *own, const float *latent, float *k);
    /* Makes the queries of row_count rows. x[r][head] has cols(m) values, then `rotated` values.
     * q[r][head] gets first the `rotated` values, then the product of the head's matrix and the
     * cols(m) values. */
    void (*absorb)(struct compute *c, const struct compute_matrix *m, uint32_t head_count,
                   uint32_t rotated, uint32_t row_count, const float *x, float *q);
    /* Computes a[r][head], the product of the head's matrix and x[r][head], for row_count rows.
     * Requires that x has COMPUTE_NEEDS_F32. */
    void (*expand)(struct compute *c, const struct compute_matrix *m, uint32_t head_count,
                   uint32_t row_count, const struct compute_activations *x,
                   struct compute_activations *a);
};

#endif
