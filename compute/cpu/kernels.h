/* kernels: what an instruction set offers to the CPU backend: one table of functions per ISA,
 * filled from the same text (rows.h, attention.h over a vector_<isa>.h) plus a hand-written integer
 * GEMM each.
 *
 * Every function is pure arithmetic on its arguments, any thread. The bits of the results are the
 * same for every ISA; this header defines them:
 *
 * - A "vector" has 16 fp32 lanes on every ISA. A sum over a row adds element i to lane i % 16 in
 * order of i; the lanes are then folded 8, 4, 2, 1 apart.
 * - Activations are quantised per block of 32: s = amax / 127, q = nearest even of x * (127 /
 * amax). A block with amax < 2^-96 is zero; one with NaN or infinity has s = NaN, q = 0.
 * - In refined rows, blocks with an outlier keep 16 bits, in two planes: q = 256 h + l. Those are
 * the blocks with amax * n ≥ 3 Σ amax, the sum being over the row's n blocks in order. Their s =
 * amax / 32639; t = x * (32639 / amax), h = nearest even of t / 256, l = nearest even of t - 256 h,
 * kept within ±127.
 * - Quantised y = sum over blocks b in order: acc = Σ q_w q_a (exact, integer); p = d * s;
 *   f = fma(acc, p, f); then, if the type has a minimum, f = fma(m, s * Σ q_a, f). Q6_K has two
 *   sub-blocks of 16, each with its own p and fma. acc and Σ q_a are rounded to fp32 before use
 *   (of no effect but for 16 bits times byte forms). A bias is added to the finished f,
 *   and f is added to y, each rounded once.
 * - F32, F16 and `exact`: f = fma(w, x, f) over the columns in order.
 * - BF16: the same with x rounded to bfloat16 (nearest even), and without subnormal numbers: inputs
 *   below 2^-126 are 0, and so is an f that rounds (to 24 bits, with any exponent) below that. It
 *   is what AVX512_BF16's vdpbf16ps does, and fma with MXCSR's FTZ and DAZ set.
 * - F8_E4M3: the weights are bfloat16, exactly, without their scales. Each block of columns that
 *   shares scales is a product as BF16's; f is the sum of those times their scale, in order, each
 *   product and each sum rounded.
 * - Attention: attention.h (F16 and F32 caches), attention_fixed.h (I16 and I8). */
#ifndef COMPUTE_CPU_KERNELS_H
#define COMPUTE_CPU_KERNELS_H

#include "compute/compute.h"

#include <assert.h>

#define TILE_ROWS    6  /* rows of activations that a kernel works on at most */
#define GROUP_ROWS   32 /* rows of W, in two panels of 16 */
#define PANEL_ROWS   16
#define VECTOR_LANES 16

/* Tokens of a fixed cache that are worked on by themselves (attention_fixed.h). */
#define KERNELS_SEGMENT 512

/* Repacked forms of W, about the file's size each (layout.h says where things are). A group's
 * blocks of 32 columns follow each other, each [quants of both panels, a vector of each in
 * turn][scales of panel 0][of panel 1], 64-byte aligned. A panel's quants are 4 (nibbles) or 8
 * (bytes) vectors of 64 bytes; byte 4n + j of vector g is row n, column 4g + j: low nibble; columns
 * 16 + 4g + j: high nibble; byte forms have g = 0 … 7. What goes beyond nibbles follows them: in
 * FIVE one vector whose byte 4n + j has bit 4 of column 4g + j in bit g; in SIX two, whose byte 4n
 * + j has bits 4 and 5 of column 4g + j in bits 2 (g % 4) … of vector g / 4. The SUPER forms have a
 * header per 8 blocks: f16 units, whose products with a byte per row in each block are the scales
 * and minima. The float forms have, for each column, the 32 rows' values; BF16 for each two columns
 * (see layout_float_offset). */
enum kernels_form {
    FORM_NIBBLE_F16,     /* Q4_0: f16 scale, offset 8 */
    FORM_NIBBLE_F16_MIN, /* Q4_1: f16 scale and minimum */
    FORM_BYTE_F16,       /* Q8_0: f16 scale, offset 128 */
    FORM_FIVE_F16,       /* Q5_0: f16 scale, offset 16 */
    FORM_FIVE_F16_MIN,   /* Q5_1: f16 scale and minimum */
    FORM_NIBBLE_SUPER,   /* Q4_K: scale and minimum per 32, unsigned bytes */
    FORM_FIVE_SUPER,     /* Q5_K: the same */
    FORM_SIX_SUPER,      /* Q6_K: scale per 16, signed bytes, offset 32 */
    FORM_QUANTISED_COUNT,
    FORM_F32 = FORM_QUANTISED_COUNT,
    FORM_F16,
    FORM_BF16,
};

/* One block of 32 columns of a tile of quantised activations: h and what is said of both planes. */
struct kernels_block {
    int8_t quants[TILE_ROWS][32];
    float scale[TILE_ROWS];
    float scaled_sum[TILE_ROWS];     /* scale * Σ quants */
    int32_t minus_sum[2][TILE_ROWS]; /* -Σ quants; the same of the last 16 alone */
    uint8_t refined[8];              /* 1: the row has a second plane here */
};

static_assert(sizeof(struct kernels_block) == 296, "no padding");

/* The second plane, l; of other rows it says nothing. */
struct kernels_low {
    int8_t quants[TILE_ROWS][32];
};

/* Consecutive groups of one W times consecutive rows of x, into y: y[r * y_stride + n]. */
struct kernels_product {
    enum kernels_form form;
    const uint8_t *weights; /* of the first group; the groups follow each other */
    uint32_t groups;
    uint32_t blocks;                   /* of 32 columns */
    const struct kernels_block *tiles; /* of the first row */
    uint32_t tile_rows;                /* of each but the last, ≤ TILE_ROWS */
    const struct kernels_low *lows;    /* beside each block; not read where no row is refined */
    bool prefetch;                     /* ask for the weights ahead, past the groups' end too … */
    uintptr_t ahead_end;               /* … but beyond this for what is … */
    uintptr_t ahead_jump;              /* … so many bytes further on (modulo 2^64) */
    uint32_t rows;
    uint32_t outputs;  /* rows of W: groups * GROUP_ROWS, less if the last group is not whole */
    const float *bias; /* [outputs], or NULL */
    bool add;          /* y += */
    float *y;
    size_t y_stride;
};

/* Columns [first, last) of one group of a float form times `rows` ≤ TILE_ROWS rows of x. */
struct kernels_float {
    enum kernels_form form;
    const uint8_t *group; /* at column 0 */
    const void *x;        /* row 0 at column 0: fp32; for BF16 as `round` writes it */
    size_t x_stride;      /* in 4 bytes */
    uint32_t first, last; /* both even but a row's end */
    bool go_on;           /* on top of what is in `out` */
    uint32_t rows;
    bool prefetch; /* ask for the weights ahead, past the group's end too */
};

struct kernels_floats {
    const char *name; /* "": of the instruction set itself */
    /* out[r][n] */
    void (*gemm)(const struct kernels_float *p, float out[TILE_ROWS][GROUP_ROWS]);
    /* Rounds x to bfloat16 into `rounded`, rounded_bytes for each of `count` values, which this
     * table's gemm reads. An odd count is filled up with a zero. */
    uint32_t rounded_bytes;
    void (*round)(const float *x, uint32_t count, void *rounded);
};

/* The K and V of one KV head of one sequence. */
struct kernels_cache {
    const struct compute_kv *kv;
    const uint32_t *blocks;
    uint32_t kv_head;
    /* What decode reads after the last KV head, to be asked for: NULL, or another sequence's. */
    const uint32_t *next_blocks;
    uint32_t next_tokens;
};

struct kernels_rope {
    uint32_t dim;
    bool neox;
    const float *table; /* of one position: cos[dim / 2], sin[dim / 2] */
};

struct kernels {
    const char *name;
    /* Integer GEMM, for the quantised forms. */
    void (*gemm_quantised)(const struct kernels_product *product);
    const struct kernels_floats *floats;
    /* Quantises `count` (a multiple of 32) values into row `row` of consecutive blocks. With `lows`
     * the values are a whole row, to be refined. */
    void (*quantise)(const float *x, uint32_t count, struct kernels_block *blocks,
                     struct kernels_low *lows, uint32_t row);
    void (*norm)(const float *x, uint32_t cols, const float *weight, float epsilon, float *out);
    void (*silu_mul)(const float *gate, const float *up, uint32_t cols, float *out);
    void (*gelu_mul)(const float *gate, const float *up, uint32_t cols, float *out);
    /* Rotates one head's values in place. */
    void (*rope)(const struct kernels_rope *rope, float *head);
    /* Writes one token's K and V of one KV head into its block (K a column, V a row); f16
     * saturates. */
    void (*store)(const struct compute_kv *kv, uint8_t *head_block, uint32_t token, const float *k,
                  const float *v);
    /* Attention of `rows` query rows at positions first_position …, each with `heads` heads that
     * share KV head cache->kv_head. q of row r begins at q + r * q_stride. `scratch` has
     * kernels_scratch_floats(). out is [rows][heads * head_dim]. */
    void (*attention)(const struct kernels_cache *cache, uint32_t first_position, uint32_t rows,
                      uint32_t heads, float scale, const float *q, size_t q_stride, float *scratch,
                      float *out);
    /* The same for one row at `position` and a fixed cache, by segments, which may run side by
     * side: `part` gets segment `segment`'s result, kernels_part_floats() of them; then `join`
     * makes the result of `count` parts, `stride` floats apart, in the first one's place. The same
     * bits. */
    void (*attention_part)(const struct kernels_cache *cache, uint32_t position, uint32_t heads,
                           float scale, const float *q, uint32_t segment, float *scratch,
                           float *part);
    void (*attention_join)(uint32_t heads, uint32_t dim, uint32_t count, size_t stride,
                           float *parts);
};

static inline size_t kernels_part_floats(uint32_t heads, uint32_t dim)
{
    return ((size_t)heads * (dim + 2) + 15) / 16 * 16;
}

/* Scores are padded to whole vectors, and one more so that the rows of a tile do not share cache
 * sets; queries are padded to whole tiles of TILE_ROWS. */
static inline size_t kernels_score_stride(enum compute_kv_dtype dtype, uint32_t tokens)
{
    if (compute_kv_fixed(dtype))
        return KERNELS_SEGMENT + VECTOR_LANES;
    return ((size_t)tokens + VECTOR_LANES - 1) / VECTOR_LANES * VECTOR_LANES + VECTOR_LANES;
}

/* Per query: packed values, scores and, of the fixed forms, a second result and what scales all of
 * them; per token of these: the scale of V, and where it lies (three pointers for 8 tokens). */
static inline size_t kernels_scratch_floats(const struct compute_kv *kv, uint32_t queries,
                                            uint32_t tokens)
{
    size_t padded = ((size_t)queries + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    size_t stride = kernels_score_stride(kv->dtype, tokens), floats;
    floats = padded * (stride + kv->head_dim);
    if (compute_kv_fixed(kv->dtype))
        floats += padded * (kv->head_dim + stride / 64 + 8) + 2 * stride;
    return (floats + 15) / 16 * 16;
}

extern const struct kernels kernels_portable;
#ifdef CLEAVE_X86
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
/* Instead of kernels_avx512.floats, where the CPU has AVX512_BF16 and it rounds as above. */
extern const struct kernels_floats kernels_floats_avx512_bf16;
bool kernels_avx512_bf16_rounds(void);
void gemm_avx2(const struct kernels_product *product);
void gemm_avx512(const struct kernels_product *product);
#endif

#endif
