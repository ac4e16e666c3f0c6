/* objects: types of the objects that a device keeps for its operations (weights, activations,
 * rotary tables), and parameters of operations. model/forward/ and benchmarks open and close these
 * objects through struct compute_ops; only the backend that opened an object knows its content.
 * Types only: no functions, no threads. KV is described in kv.h. */
#ifndef COMPUTE_OBJECTS_H
#define COMPUTE_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

/* A weight matrix W [rows × cols], repacked for the device. Products compute y = W · x, where x has
 * `cols` elements and y has `rows` elements. */
struct compute_matrix;
/* Activations of a batch, in the forms that products read (enum compute_needs). The largest number
 * of rows is fixed when activations are opened. */
struct compute_activations;
struct compute_rope_table; /* Tables of cos and sin for each position. */

/* Forms of activations; activations can have several forms at once. Activations need the OR of
 * compute_ops.matrix_needs of the matrices that are multiplied with them. Activations that
 * compute_ops.low_rank or compute_latent_ops.expand reads need COMPUTE_NEEDS_F32. */
enum compute_needs {
    COMPUTE_NEEDS_F32 = 1,
    COMPUTE_NEEDS_Q8 = 2, /* 8-bit integers, with a scale for each 32 columns. */
    /* Blocks of 32 columns with an outlier keep about 16 bits of each value. No effect without
     * COMPUTE_NEEDS_Q8. Not allowed for activations that compute_ops.attention writes. */
    COMPUTE_NEEDS_REFINED = 4,
    COMPUTE_NEEDS_BF16 = 8,
    COMPUTE_NEEDS_F8 = 16, /* E4M3; no effect on devices that do not multiply E4M3. */
    /* With COMPUTE_NEEDS_Q8, the same integers a second time, in the order that tile registers
     * read. Products are possible without this form, but large batches are then slower. */
    COMPUTE_NEEDS_STRIPS = 32,
};

/* The function that a feed-forward applies to the product with its gate matrix. */
enum compute_activation {
    COMPUTE_SILU,    /* x / (1 + e^-x) */
    COMPUTE_GELU,    /* GELU in its tanh form (Hendrycks and Gimpel 2016). */
    COMPUTE_GELU_ERF /* x (1 + erf(x / sqrt(2))) / 2 */
};

/* Parameters of the rotary embedding (Su et al. 2021) of a model. */
struct compute_rope {
    uint32_t dim; /* Number of rotated dimensions of a head; even. */
    /* True: dimensions i and i + dim/2 are rotated together, as in GPT-NeoX. False: dimensions 2i
     * and 2i + 1. */
    bool neox;
    float freq_base;  /* Base of the frequencies, such as 10000. */
    float freq_scale; /* Positions are multiplied by this number (linear scaling). */
    /* [dim / 2] divisors of the frequencies (Llama 3's rope_freqs); NULL = none. */
    const float *factors;
    float amplitude;        /* Factor of cos and sin; 0 = 1. */
    uint32_t positions_max; /* The table has positions 0 to positions_max - 1. */
};

/* Parameters of the attention of one layer. */
struct compute_attention {
    float scale; /* Factor of q·K. */
    /* Tokens of the window: a row at position p reads positions p - window + 1 to p. The ids of
     * blocks that end before these positions are not used. 0 = all positions up to p. */
    uint32_t window;
    float cap; /* Each score x (q·K times `scale`) becomes cap * tanh(x / cap). 0 = no cap. */
    /* [head_count], in device memory: the softmax of head h adds e^sinks[h] to its sum of weights.
     * NULL = none. */
    const float *sinks;
};

#endif
