/* kernels: the launchers of the kernels, which the backend's host files call; one .cu file per
 * family of kernels. Internal to compute/cuda/. Unless stated otherwise, pointers are device memory
 * and matrices are row-major. struct compute_ops defines the arithmetic.
 *
 * A launcher queues its kernels on the stream and returns, so that a CUDA graph can record the
 * kernels. A launcher allocates nothing and keeps no state. It reports no errors: the device keeps
 * an error until the caller asks for it (cuda_launched in backend.cuh). Structs and arrays in host
 * memory may change after the call, except the arguments of cuda_sample. The thread that computes
 * (compute.h) calls the launchers. */
#ifndef COMPUTE_CUDA_KERNELS_CUH
#define COMPUTE_CUDA_KERNELS_CUH

#ifdef __cplusplus
extern "C" {
#endif
#include "common/limits.h"
#include "compute/compute.h"
#ifdef __cplusplus
}
#endif

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stddef.h>
#include <stdint.h>

/* A struct compute_batch on the device. The arrays keep their addresses while a recorded graph uses
 * them, so that the graph finds each new batch in the same place. */
struct cuda_sequences {
    const uint32_t *row_sequence;   /* [rows]: index of the sequence; UINT32_MAX = padding. */
    const uint32_t *row_position;   /* [rows]: positions in the sequence. */
    const uint32_t *first_row;      /* [sequences]: as in struct compute_sequence. */
    const uint32_t *row_count;      /* [sequences]; 0 = padding. */
    const uint32_t *first_position; /* [sequences] */
    /* [sequences] index of the sequence's first block id in `blocks`. */
    const uint32_t *table_begin;
    const uint32_t *blocks; /* Block ids of all sequences. */
    /* Shape of the launch, in host memory: a graph keeps the values that it was recorded with. */
    uint32_t rows;
    uint32_t sequences;
    uint32_t rows_longest; /* Rows of the longest sequence. */
    /* Upper bound of the length of every context, including the rows of this batch. A recorded
     * graph keeps the bound that it was recorded with, so kernels must take each sequence's own
     * length from the arrays. */
    uint32_t context_tokens_max;
    /* [rows], on the device: the rows whose sequence has a low-rank adapter, ordered by adapter.
     * Valid if `adapted` is not 0. */
    const uint32_t *adapted_rows = NULL;
    /* [rows], on the device: the adapter of each of adapted_rows; 0 = the list ends. Valid if
     * `adapted` is not 0. */
    const uint32_t *adapters = NULL;
    /* Number of rows with an adapter. A recorded graph is valid either for 0 or for any number
     * above 0. */
    uint32_t adapted = 0;
};

/* Weights [rows × cols] of y = W · x. A row begins at quants + row * row_bytes, aligned to 16
 * bytes. It has elements (bf16, f16, fp32, E4M3), or the quants of blocks. Their scales and minima
 * are at scales + row * scale_row_bytes (weights.cuh). */
struct cuda_weights {
    enum compute_type type;
    uint32_t rows;
    uint32_t cols;
    const uint8_t *quants;
    const uint8_t *scales;  /* NULL = the type has no scales. */
    size_t row_bytes;       /* Bytes from row to row of `quants`. */
    size_t scale_row_bytes; /* Bytes from row to row of `scales`. */
    /* For F8_E4M3, whose scales are fp32. The scales of row r begin at scales + ((scale_first + r)
     * >> scale_shift) * scale_row_bytes:
     *   scale_shift 0   one scale per row; scale_row_bytes is 4
     *   scale_shift 7   one scale per block of 128 rows and 128 columns: column c has scale number
     *                   c / 128, from 0
     * scale_first: rows of the first block that precede the matrix's row 0. */
    uint32_t scale_shift = 0;
    uint32_t scale_first = 0;
    /* For types whose quants are indices (weights_coded): the 16 values, one byte each, and the
     * factor of the scales. */
    uint32_t codes[4] = {};
    float factor = 1;
};

/* Most rows of a product that cuda_gemv computes: with so few rows, reading the weights takes
 * longer than the arithmetic. gemm.cu computes products of more rows. */
#define CUDA_GEMV_ROWS 16

/* elementwise.cu. out and out_f32 get the same numbers; either may be NULL. */

/* RMSNorm of row rows_in[r], or of row r if rows_in is NULL. weight NULL = copies the row. */
void cuda_norm(cudaStream_t stream, const float *x, const uint32_t *rows_in, uint32_t rows,
               uint32_t cols, const float *weight, float epsilon, __nv_bfloat16 *out,
               float *out_f32);
/* LayerNorm of row rows_in[r], or of row r if rows_in is NULL; bias may be NULL. */
void cuda_layer_norm(cudaStream_t stream, const float *x, const uint32_t *rows_in, uint32_t rows,
                     uint32_t cols, const float *weight, const float *bias, float epsilon,
                     __nv_bfloat16 *out, float *out_f32);
/* x += RMSNorm of y. */
void cuda_norm_add(cudaStream_t stream, const float *y, uint32_t rows, uint32_t cols,
                   const float *weight, float epsilon, float *x);
/* RMSNorm of each head, in place. */
void cuda_head_norm(cudaStream_t stream, const float *weight, float epsilon, uint32_t rows,
                    uint32_t heads, uint32_t head_dim, float *x);
/* activation(gate) * up; up NULL = all ones. */
void cuda_gated(cudaStream_t stream, enum compute_activation activation, const float *gate,
                const float *up, uint32_t rows, uint32_t cols, __nv_bfloat16 *out, float *out_f32);
/* x = cap * tanh(x / cap). */
void cuda_cap(cudaStream_t stream, float cap, size_t count, float *x);
/* x *= factor. */
void cuda_scale(cudaStream_t stream, float factor, size_t count, float *x);
/* x += factor * y. */
void cuda_scale_add(cudaStream_t stream, float factor, size_t count, const float *y, float *x);
/* y[i] = row rows[i] of x. */
void cuda_gather(cudaStream_t stream, const float *x, const uint32_t *rows, uint32_t count,
                 uint32_t cols, float *y);
/* y[i] = row ids[i] of the dequantised w. */
void cuda_embed(cudaStream_t stream, const struct cuda_weights *w, const uint32_t *ids,
                uint32_t count, float *y);
/* y[r] += bias. */
void cuda_bias_add(cudaStream_t stream, const float *bias, uint32_t rows, uint32_t cols, float *y);

/* latent.cu: compute_latent_ops on the device. */

/* k[r] = own[r] (`own_cols` values), then the RMSNorm of latent[r] (`cols` values). */
void cuda_latent_join(cudaStream_t stream, const float *weight, float epsilon, uint32_t rows,
                      uint32_t own_cols, uint32_t cols, const float *own, const float *latent,
                      float *k);
/* x is [rows][heads][x_width], w is [heads][outputs][cols]. The result of row r and head h is
 * x[r][h][cols..x_width), then w[h] · x[r][h][0..cols). */
struct cuda_latent_product {
    const float *w;
    size_t w_row; /* Floats from one row of `cols` weights to the next. */
    uint32_t heads, outputs, cols;
    const float *x;
    uint32_t x_width;
    uint32_t rows;
    __nv_bfloat16 *out;
    float *out_f32;
};
void cuda_latent_multiply(cudaStream_t stream, const struct cuda_latent_product *product);

/* rope_store.cu: rotates q and k in place and writes K and V into the blocks of kv. table:
 * [positions][cos of dim/2, sin of dim/2]; dim 0 = q and k are not rotated, and table is not used.
 * neox: the pairs are (i, i + dim/2); otherwise (2i, 2i + 1). Rows without a sequence are skipped.
 */
void cuda_rope_store(cudaStream_t stream, const float *table, uint32_t dim, bool neox,
                     const struct cuda_sequences *s, const struct compute_kv *kv,
                     uint32_t head_count, float *q, float *k, const float *v);

/* low_rank.cu: adds the products of low-rank adapters to y [rows × ranks->rows], for the rows of
 * the batch's list. `factors`: scratch memory of s->rows * ranks->rank_max floats. */
void cuda_low_rank(cudaStream_t stream, const struct cuda_sequences *s,
                   const struct compute_low_ranks *ranks, const float *x, uint32_t cols,
                   float *factors, float *y);

/* gemv.cu: y = W · a (or y += with `add`) for up to CUDA_GEMV_ROWS rows. If a_f32 is not NULL, it
 * is used instead of a, and nothing is rounded. */
void cuda_gemv(cudaStream_t stream, const struct cuda_weights *w, const __nv_bfloat16 *a,
               const float *a_f32, uint32_t rows, bool add, float *y);
/* y[i] = w[i] · a + biases[i] (or y[i] += with `add`) for up to CUDA_GEMV_SET matrices with the
 * same number of columns, so that small matrices fill the device together. biases, or an entry, may
 * be NULL. Each result has the same bits as a result of cuda_gemv, for any set and any number of
 * rows. */
#define CUDA_GEMV_SET 4
void cuda_gemv_set(cudaStream_t stream, const struct cuda_weights *const *w,
                   const float *const *biases, uint32_t count, const __nv_bfloat16 *a,
                   const float *a_f32, uint32_t rows, bool add, float *const *y);

/* experts.cu: the experts of a layer, and the workspace for one batch. */
struct cuda_experts {
    struct compute_gate kind;   /* Rule of the layer's gate: activation, limit and alpha. */
    uint32_t first, count;      /* This process has experts [first, first + count). */
    uint32_t used, hidden, ffn; /* As in compute/experts.h. */
    const struct cuda_weights *gate, *up, *down;  /* [count] */
    const float *gate_bias, *up_bias, *down_bias; /* [count × rows of a matrix]; NULL = none. */
    const uint32_t *ids;                          /* [rows × used] */
    const float *weights;                         /* [rows × used] */
    /* [rows × used × ffn]: activation(gate) * up of each expert of a row (`kind`), in bf16. */
    __nv_bfloat16 *activated;
    float *activated_f32; /* `activated` in fp32; NULL = `activated` is used. */
};
/* Writes the experts of each row, ascending, and their weights. */
void cuda_experts_choose(cudaStream_t stream, const struct compute_routing *routing,
                         const float *product, uint32_t rows, uint32_t *ids, float *weights);
/* Computes y = the weighted sum of each row's experts, or y += with `add`. `type`: type of all gate
 * and up matrices. a_f32 is used if it is not NULL. Requires rows * used ≤ 65,535. */
void cuda_experts_run(cudaStream_t stream, const struct cuda_experts *e, enum compute_type type,
                      enum compute_type down_type, const __nv_bfloat16 *a, const float *a_f32,
                      uint32_t rows, bool add, float *y);
/* x[r] *= sigmoid(gates[r]). */
void cuda_row_gate(cudaStream_t stream, const float *gates, uint32_t rows, uint32_t cols, float *x);

/* dequantize.cu: writes the weights as [rows × cols] of bf16. */
void cuda_dequantize(cudaStream_t stream, const struct cuda_weights *w, __nv_bfloat16 *out);
/* Writes the weights as [rows × cols] of fp32. */
void cuda_dequantize_f32(cudaStream_t stream, const struct cuda_weights *w, float *out);

/* quantize_f8.cu: converts bf16 rows to E4M3, with one scale per row. Requires cols to be a
 * multiple of 16. */
void cuda_quantize_rows(cudaStream_t stream, const __nv_bfloat16 *a, uint32_t rows, uint32_t cols,
                        uint8_t *out, float *scales);
/* Converts bf16 rows to E4M3, with one scale per 128 columns of a row. The scales are
 * [cols / 128][stride], stride ≥ rows. Requires cols to be a multiple of 128. */
void cuda_quantize_groups(cudaStream_t stream, const __nv_bfloat16 *a, uint32_t rows, uint32_t cols,
                          uint32_t stride, uint8_t *out, float *scales);
/* y[r][n] = product[r][n] * a_scales[r] * w_scales[n], or y[r][n] += with `add`. */
void cuda_scale_product(cudaStream_t stream, const float *product, const float *a_scales,
                        const float *w_scales, uint32_t rows, uint32_t cols, bool add, float *y);

/* weights.cu: converts a file's rows to the device's layout, in host memory. These functions run on
 * the host, on the thread that opens a matrix; cuda_weights_pack runs on up to 8 threads at once.
 */
struct cuda_weights_layout {
    size_t row_bytes;       /* Bytes of the quants, or of the elements. */
    size_t scale_row_bytes; /* 0 = no scales. */
};
/* `type` is the type of weights in a file. Returns the type that these weights have on the device
 * (cuda_weights.type). Types with the same layout become one type. */
enum compute_type cuda_weights_kept(enum compute_type type);
/* Sets the codes and the factor of weights of this type in a file. */
void cuda_weights_codes(enum compute_type type, struct cuda_weights *w);
/* Returns the layout of a matrix of this type in a file with `cols` columns. */
struct cuda_weights_layout cuda_weights_layout(enum compute_type type, uint32_t cols);
/* Packs `rows` rows, source_row bytes apart. `quants` receives rows * row_bytes bytes, `scales`
 * rows * scale_row_bytes bytes. */
void cuda_weights_pack(enum compute_type type, uint32_t rows, uint32_t cols, const void *source,
                       size_t source_row, uint8_t *quants, uint8_t *scales);
/* For F8_E4M3: sets the fields of *w that describe scales and, if `scales` is not NULL, writes
 * cuda_weights_f8_bytes(w) bytes of scales. Returns false if there is no layout for these scales:
 * rows have several scales, and the blocks are not 128 × 128 or do not begin at column 0. Requires
 * that w->rows is set. */
bool cuda_weights_f8(const struct compute_source *source, struct cuda_weights *w, float *scales);
/* Returns the bytes of the scales of an F8_E4M3 matrix. */
size_t cuda_weights_f8_bytes(const struct cuda_weights *w);

/* attention.cu: causal attention with grouped heads over the paged cache, after cuda_rope_store.
 * The padding of a recorded graph is skipped: rows that belong to no sequence, and sequences that
 * have no rows. */

/* Returns false if there is no kernel for these heads and blocks on the current device. */
bool cuda_attention_takes(const struct compute_kv *kv, uint32_t head_count);
/* Returns the bytes of scratch memory that a batch of the shape of s needs. New scratch memory must
 * be zeroed; the kernels leave its counters at 0, so batches of all shapes can use the same memory.
 */
size_t cuda_attention_scratch(const struct cuda_sequences *s, const struct compute_kv *kv,
                              uint32_t head_count);
void cuda_attention(cudaStream_t stream, const struct cuda_sequences *s,
                    const struct compute_kv *kv, uint32_t head_count,
                    const struct compute_attention *parameters, const float *q, void *scratch,
                    __nv_bfloat16 *out, float *out_f32);

/* sample.cu: chooses tokens from rows of logits, by the rules of model/forward/sampler.h. logits is
 * [count × vocab]; `rows` and `out` may be pinned host memory. The kernel changes the logits that
 * have edits, and restores them before it ends; `saved` has room for one float for each edit. */
void cuda_sample(cudaStream_t stream, float *logits, uint32_t vocab,
                 const struct compute_sample *rows, uint32_t count,
                 const struct compute_edit *edits, float *saved, struct compute_sampled *out);

#endif
