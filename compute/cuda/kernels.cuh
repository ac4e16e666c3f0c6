/* kernels: the launchers of compute/cuda: what backend.cu calls, one .cu file a family. Internal to
 * compute/cuda. Unless said otherwise pointers are memory of the device, matrices row-major.
 *
 * A launcher queues its kernels on the stream and returns: it allocates nothing, reads no memory of
 * the host afterwards and tells no errors (they stay with the device until the backend asks), so
 * that a CUDA graph can record it. */
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

/* A struct compute_batch on the device. The arrays have fixed addresses, so that a recorded graph
 * finds the next batch where it found this one. */
struct cuda_sequences {
    const uint32_t *row_sequence;   /* [rows] */
    const uint32_t *row_position;   /* [rows] absolute */
    const uint32_t *first_row;      /* [sequences] */
    const uint32_t *row_count;      /* [sequences] */
    const uint32_t *first_position; /* [sequences] */
    const uint32_t *table_begin;    /* [sequences] where its block ids begin in `blocks` */
    const uint32_t *blocks;         /* block ids of all sequences */
    /* The launch's shape, numbers of the host: a graph keeps those it was recorded with. */
    uint32_t rows;
    uint32_t sequences;
    uint32_t rows_longest;   /* rows of the longest sequence */
    uint32_t tokens_longest; /* at least the longest context, its rows included: a graph's bucket.
                                Each sequence's own length is to be taken from the arrays. */
};

/* Weights [rows × cols] of y = W · x. A row begins at quants + row * row_bytes: elements of bf16,
 * f16 or fp32 as they are, or the quants of blocks, whose scales (and minima) lie apart at
 * scales + row * scale_row_bytes (weights.cu says how). Rows begin on 16 bytes. */
struct cuda_weights {
    enum compute_type type;
    uint32_t rows;
    uint32_t cols;
    const uint8_t *quants;
    const uint8_t *scales; /* NULL: the type has none */
    size_t row_bytes;
    size_t scale_row_bytes;
    /* Of F8_E4M3, elements as they are with fp32 scales: shift 0, scale_row_bytes 4: one for each
     * row. Shift 7: one for each 128 columns (at + 4 · (column / 128)) of 128 rows, of which the
     * matrix begins at the scale_first-th. Row r's are at scales + ((scale_first + r) >> shift) *
     * scale_row_bytes. */
    uint32_t scale_shift = 0;
    uint32_t scale_first = 0;
};

/* Rows up to which a product is bound by reading weights and cuda_gemv does it; more are multiplied
 * by tensor cores (gemm.cu). */
#define CUDA_GEMV_ROWS 16

/* Elementwise, elementwise.cu. out and out_f32 hold the same numbers, either may be NULL. */

/* RMSNorm of rows rows_in[r], or r where rows_in is NULL. */
void cuda_norm(cudaStream_t stream, const float *x, const uint32_t *rows_in, uint32_t rows,
               uint32_t cols, const float *weight, float epsilon, __nv_bfloat16 *out,
               float *out_f32);
/* x += RMSNorm of y. */
void cuda_norm_add(cudaStream_t stream, const float *y, uint32_t rows, uint32_t cols,
                   const float *weight, float epsilon, float *x);
/* RMSNorm of each head, in place. */
void cuda_head_norm(cudaStream_t stream, const float *weight, float epsilon, uint32_t rows,
                    uint32_t heads, uint32_t head_dim, float *x);
/* silu(gate) * up, or gelu (tanh form). */
void cuda_gated(cudaStream_t stream, bool gelu, const float *gate, const float *up, uint32_t rows,
                uint32_t cols, __nv_bfloat16 *out, float *out_f32);
void cuda_scale(cudaStream_t stream, float factor, size_t count, float *x);
void cuda_gather(cudaStream_t stream, const float *x, const uint32_t *rows, uint32_t count,
                 uint32_t cols, float *y);
void cuda_embed(cudaStream_t stream, const struct cuda_weights *w, const uint32_t *ids,
                uint32_t count, float *y);
/* y[r] += bias. */
void cuda_bias_add(cudaStream_t stream, const float *bias, uint32_t rows, uint32_t cols, float *y);

/* rope_store.cu: table is [positions][cos of dim/2, sin of dim/2]. Rotates q and k in place and
 * writes K and V where kv has them. Rows whose row_sequence is no sequence are passed over. */
void cuda_rope_store(cudaStream_t stream, const float *table, uint32_t dim, bool neox,
                     const struct cuda_sequences *s, const struct compute_kv *kv,
                     uint32_t head_count, float *q, float *k, const float *v);

/* gemv.cu: y = W · a for up to CUDA_GEMV_ROWS rows, or y += with `add`. a_f32, where it is given,
 * is taken instead of a, and nothing is rounded. */
void cuda_gemv(cudaStream_t stream, const struct cuda_weights *w, const __nv_bfloat16 *a,
               const float *a_f32, uint32_t rows, bool add, float *y);
/* y[i] = w[i] · a + biases[i] for up to CUDA_GEMV_SET matrices with the same number of columns, so
 * that small ones fill the device together. biases, or an entry of it, may be NULL. A result's bits
 * are those of cuda_gemv, whatever the set and the number of rows. */
#define CUDA_GEMV_SET 4
void cuda_gemv_set(cudaStream_t stream, const struct cuda_weights *const *w,
                   const float *const *biases, uint32_t count, const __nv_bfloat16 *a,
                   const float *a_f32, uint32_t rows, bool add, float *const *y);

/* dequantize.cu: the same weights as [rows × cols] of bf16, or of fp32. */
void cuda_dequantize(cudaStream_t stream, const struct cuda_weights *w, __nv_bfloat16 *out);
void cuda_dequantize_f32(cudaStream_t stream, const struct cuda_weights *w, float *out);

/* quantize_f8.cu: bf16 rows as E4M3, with scales of the rows, or [cols / 128][stride ≥ rows] of 128
 * columns each; cols is a multiple of 16, or of 128. */
void cuda_quantize_rows(cudaStream_t stream, const __nv_bfloat16 *a, uint32_t rows, uint32_t cols,
                        uint8_t *out, float *scales);
void cuda_quantize_groups(cudaStream_t stream, const __nv_bfloat16 *a, uint32_t rows, uint32_t cols,
                          uint32_t stride, uint8_t *out, float *scales);
/* y[r][n] (+)= product[r][n] * a_scales[r] * w_scales[n]. */
void cuda_scale_product(cudaStream_t stream, const float *product, const float *a_scales,
                        const float *w_scales, uint32_t rows, uint32_t cols, bool add, float *y);

/* weights.cu, on the host: from a file's rows to the device's layout, in memory of the host. */
struct cuda_weights_layout {
    size_t row_bytes;       /* of the quants, or of elements */
    size_t scale_row_bytes; /* 0: no scales */
};
struct cuda_weights_layout cuda_weights_layout(enum compute_type type, uint32_t cols);
/* Packs `rows` rows, source_row bytes apart: quants gets rows * row_bytes, scales rows *
 * scale_row_bytes. */
void cuda_weights_pack(enum compute_type type, uint32_t rows, uint32_t cols, const void *source,
                       size_t source_row, uint8_t *quants, uint8_t *scales);
/* Of F8_E4M3: sets what *w says of its scales, and fills cuda_weights_f8_bytes(w) of them in, if
 * `scales` is not NULL. False: there is no such layout (other blocks than 128 × 128, or one that a
 * slice cuts). rows of *w are to be there. */
bool cuda_weights_f8(const struct compute_source *source, struct cuda_weights *w, float *scales);
size_t cuda_weights_f8_bytes(const struct cuda_weights *w);

/* attention_prompt.cu, attention_token.cu: causal attention with grouped heads over the paged
 * cache, after cuda_rope_store. A row whose row_sequence is no sequence, or one of no rows, is
 * passed over (a recorded graph's rows that a batch does not fill). */

/* False: no kernel for this head_dim, block or number of heads. */
bool cuda_attention_takes(const struct compute_kv *kv, uint32_t head_count);
/* Bytes of scratch that a batch of the shape of s needs. Zeros when it is new; the kernels leave
 * its counters at 0, so batches of all shapes can have the same. */
size_t cuda_attention_scratch(const struct cuda_sequences *s, const struct compute_kv *kv,
                              uint32_t head_count);
void cuda_attention(cudaStream_t stream, const struct cuda_sequences *s,
                    const struct compute_kv *kv, uint32_t head_count, float scale, const float *q,
                    void *scratch, __nv_bfloat16 *out, float *out_f32);

/* sample.cu: from rows of logits to tokens, by the rules and with the numbers of model/sampler.h.
 */
#define CUDA_SAMPLE_MASKED 16
#define CUDA_SAMPLE_NONE   UINT32_MAX

struct cuda_sample {
    float temperature; /* as struct sampling has them */
    float top_p;
    float min_p;
    uint32_t top_k;
    uint64_t seed;
    int32_t logprobs; /* at most LIMIT_LOGPROBS */
    uint32_t position;
    uint32_t given; /* this id is scored (sampler_score); CUDA_SAMPLE_NONE: one is drawn */
    uint32_t masked_count;
    uint32_t masked[CUDA_SAMPLE_MASKED]; /* ids */
};

struct cuda_sampled {
    uint32_t undecided; /* 1: more candidates than the kernel has room for: ask sampler_draw */
    uint32_t id;
    float logprob;
    uint32_t top_count;
    uint32_t top_ids[LIMIT_LOGPROBS];
    float top_logprobs[LIMIT_LOGPROBS];
};

/* logits is [count × vocab]; rows and out may be pinned memory of the host. */
void cuda_sample(cudaStream_t stream, const float *logits, uint32_t vocab,
                 const struct cuda_sample *rows, uint32_t count, struct cuda_sampled *out);

#endif
