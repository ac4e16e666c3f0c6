/* latent: an optional ability of a backend: the operations of latent attention (DeepSeek-V2, 2024,
 * section 2.1) that other models do not need. The CPU and the CUDA backend have this ability. A key
 * or value of a head is the product of a matrix of the head with the token's latent vector. Here
 * the matrices are multiplied with the query, and with the result of attention, instead of with the
 * latent vector of each token (they are "absorbed"). So attention reads the latent vectors
 * themselves (struct compute_kv). The forward pass calls the functions on the engine thread or, in
 * lanes, on a worker thread. They store no KV (compute_ops.rope_store does). */
#ifndef COMPUTE_LATENT_H
#define COMPUTE_LATENT_H

#include "compute/objects.h"

struct compute;

/* The matrices of all heads are one compute_matrix m of COMPUTE_F32, head after head. The rows of
 * each head must be a multiple of COMPUTE_LATENT_ROWS. */
#define COMPUTE_LATENT_ROWS 32

struct compute_latent_ops {
    /* Makes the keys of row_count rows: k[r] = own[r] (`own_cols` values, which are rotated later),
     * followed by the RMSNorm of latent[r] (`cols` values) with the weights weight[0..cols). */
    void (*join)(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                 uint32_t own_cols, uint32_t cols, const float *own, const float *latent, float *k);
    /* Makes queries. x[r][head] is cols(m) values, then `rotated` values. q[r][head] becomes first
     * the `rotated` values, then the product of the head's matrix with the cols(m) values. */
    void (*absorb)(struct compute *c, const struct compute_matrix *m, uint32_t head_count,
                   uint32_t rotated, uint32_t row_count, const float *x, float *q);
    /* a[r][head] = the head's matrix times x[r][head]; x has COMPUTE_NEEDS_F32. */
    void (*expand)(struct compute *c, const struct compute_matrix *m, uint32_t head_count,
                   uint32_t row_count, const struct compute_activations *x,
                   struct compute_activations *a);
};

#endif
