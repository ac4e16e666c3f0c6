/* kernels: the functions that each instruction set (ISA) provides to the CPU backend: one table per
 * ISA. The other files of compute/cpu/ call the functions through the table that cpu.c has chosen.
 * The functions have no state and allocate nothing: any thread may call them. The callers divide
 * the work among threads.
 *
 * Every ISA gives the same bits, which the list below defines. In the list, amax is the greatest
 * |x| of a block; s is the scale of a block of activations; d and m are the scale and the minimum
 * of a block of weights; f is an output's sum of products so far:
 *
 * - A "vector" has 16 fp32 lanes on every ISA. A sum over a row adds element i to lane i % 16 in
 *   order of i. Then lanes that are 8 apart are added, then lanes that are 4, 2 and 1 apart.
 * - Activations are quantised per block of 32: s = amax / 127, q = x * (127 / amax) rounded to the
 *   nearest integer (ties to even). A block with amax < 2^-96 becomes zero; a block with NaN or
 *   infinity gets s = NaN, q = 0.
 * - In refined rows (COMPUTE_NEEDS_REFINED), blocks with an outlier keep 16 bits in two planes: q =
 *   256 h + l. A block has an outlier if amax * n ≥ 3 Σ amax, where the sum is over the row's n
 *   blocks in order. Then s = amax / 32639; t = x * (32639 / amax); h = t / 256 and l = t - 256 h,
 *   each rounded to the nearest integer (ties to even), and l is limited to ±127.
 * - Products of quantised weights: for each block in order, acc = Σ q_w q_a (exact, integer); p = d
 *   * s; f = fma(acc, p, f); then, if the type has a minimum, f = fma(m, s * Σ q_a, f). acc and
 *   Σ q_a are rounded to fp32 before use.
 * - Forms with a scale per 16 columns have two sub-blocks, each with its own p and fma (and, for
 *   Q2_K, m and Σ q_a).
 * - F32 and F16 weights, and all weights with compute_options.exact: f = fma(w, x, f) over the
 *   columns in order.
 * - BF16 weights: f = fma(w, x, f) with x rounded to bfloat16 (ties to even), and without subnormal
 *   numbers: an input below 2^-126 counts as 0. The exact result is rounded to 24 bits as if
 *   exponents had no lower limit; a rounded result below 2^-126 becomes 0. (The instruction
 *   vdpbf16ps rounds like this, and so does fma with FTZ and DAZ set in MXCSR.)
 * - F8_E4M3 weights are converted to bfloat16 (exactly), without their scales. Each block of
 *   columns that share a scale is a product as for BF16; f is the sum, in order, of these products
 *   times their scales, with each multiplication and each addition rounded.
 * - At the end of a product, the bias is added to f, and (for a product that adds) f is added to y;
 *   each addition rounds once.
 * - Attention: attention.h (F16 and F32 caches), attention_fixed.h (I16 and I8 caches). */
#ifndef COMPUTE_CPU_KERNELS_H
#define COMPUTE_CPU_KERNELS_H

#include "compute/compute.h"

#include <assert.h>

#define TILE_ROWS    6  /* Most rows of activations that a kernel works on at once. */
#define GROUP_ROWS   32 /* Rows of W in a group: two panels. */
#define PANEL_ROWS   16 /* Rows of W in a panel. */
#define VECTOR_LANES 16 /* Floats of a vector. */

/* Tokens of a segment of an integer cache (attention_fixed.h). */
#define KERNELS_SEGMENT 512

/* Forms into which a weight matrix W is repacked. layout.h has the offsets.
 *
 * Quantised forms: the blocks of 32 columns of a group follow each other. Each block is 64-byte
 * aligned and has the layout
 *
 *   [quants of both panels, their vectors alternating][scales of panel 0][scales of panel 1]
 *
 * A panel's quants are 2 (two bits), 4 (nibbles) or 8 (bytes) vectors of 64 bytes. In every vector,
 * byte 4n + j (j = 0 … 3) belongs to row n of the panel:
 *
 *   two bits  column 4g + j is in vector g / 4, at bits 2 (g % 4) and 2 (g % 4) + 1 of the byte
 *   nibbles   vector g has column 4g + j in the low nibble, column 16 + 4g + j in the high nibble
 *   bytes     vector g has column 4g + j; g = 0 … 7
 *   FIVE      nibbles, and one more vector: bit g of byte 4n + j is bit 4 of column 4g + j
 *   THREE     two bits, and one more vector: bit g of byte 4n + j is bit 2 of column 4g + j
 *   SIX       nibbles, and two more vectors: they have bits 4 and 5 of the quants at the places
 *             where the vectors of "two bits" have bits 0 and 1
 *
 * The quants of the CODE and THREE forms are indices of the 16 values in kernels_product.codes.
 *
 * SUPER forms have two levels of scales, as GGUF's K types have. A header precedes each run
 * of 8 blocks, and has f16 units for each row. In these blocks, a row's scales and minima are
 * multiplied by its units, and the scales also by kernels_product.factor. A row has two bytes in a
 * block:
 *
 *   NIBBLE, FIVE  scale; minimum
 *   SIX, THREE    scale of the first 16 columns; scale of the last 16 columns
 *   TWO           as in SIX, with the scales in low nibbles and minima in high nibbles
 *   CODE          scale; a byte that is not used
 *
 * A group of a float form has, column by column, the values of its 32 rows; in BF16, the values of
 * two columns alternate (layout_float_offset). */
enum kernels_form {
    FORM_NIBBLE_F16,     /* Q4_0: f16 scale, offset 8. */
    FORM_NIBBLE_F16_MIN, /* Q4_1: f16 scale and minimum. */
    FORM_BYTE_F16,       /* Q8_0: f16 scale, offset 128. */
    FORM_FIVE_F16,       /* Q5_0: f16 scale, offset 16. */
    FORM_FIVE_F16_MIN,   /* Q5_1: f16 scale and minimum. */
    FORM_NIBBLE_SUPER,   /* Q4_K: scale and minimum per 32 columns, unsigned bytes. */
    FORM_FIVE_SUPER,     /* Q5_K: scale and minimum per 32 columns, unsigned bytes. */
    FORM_SIX_SUPER,      /* Q6_K: scale per 16 columns, signed bytes, offset 32. */
    FORM_TWO_F16,        /* TQ1_0, TQ2_0: f16 scale, offset 1. */
    FORM_TWO_SUPER,      /* Q2_K: scale and minimum per 16 columns, nibbles. */
    FORM_THREE_SUPER,    /* Q3_K, IQ2, IQ1: codes, scale per 16 columns, signed bytes. */
    FORM_CODE_F16,       /* IQ4_NL: codes, f16 scale. */
    FORM_CODE_BF16,      /* MXFP4: codes, bf16 scale. */
    FORM_CODE_SUPER,     /* IQ4_XS, IQ3: codes, scale per 32 columns, signed bytes. */
    FORM_QUANTISED_COUNT,
    FORM_F32 = FORM_QUANTISED_COUNT,
    FORM_F16,
    FORM_BF16,
};

/* One block of 32 columns of a tile of quantised activations. In a row with a second plane,
 * `quants` is the plane h, and the sums are over both planes. */
struct kernels_block {
    int8_t quants[TILE_ROWS][32];
    float scale[TILE_ROWS];
    float scaled_sum[TILE_ROWS];     /* scale * Σ q. */
    int32_t minus_sum[2][TILE_ROWS]; /* -Σ q of all 32 columns, and -Σ q of the last 16 columns. */
    uint8_t refined[8];              /* [row]: 1 = the row has a second plane in this block. */
};

static_assert(sizeof(struct kernels_block) == 296, "no padding");

/* The second plane, l, of a block. Rows without a second plane have undefined values. */
struct kernels_second_plane {
    int8_t quants[TILE_ROWS][32];
};

/* Rows of a strip: of activations as tile registers (AMX) read them. */
#define KERNELS_STRIP_ROWS 16
/* Most blocks of a product with strips: the weights of a group are then 640 KiB on the stack. */
#define KERNELS_STRIP_BLOCKS 512

/* One block of 32 columns of a strip: a copy of what struct kernels_block has of these rows. */
struct kernels_strip {
    _Alignas(64) int8_t quants[KERNELS_STRIP_ROWS][32];
    float scale[KERNELS_STRIP_ROWS];
    float scaled_sum[KERNELS_STRIP_ROWS];
    int32_t shift[KERNELS_STRIP_ROWS]; /* 8 = the row has a second plane in this block; or 0. */
};

/* The second plane of a block of a strip. Rows without a second plane have zeros. */
struct kernels_strip_plane {
    _Alignas(64) int8_t quants[KERNELS_STRIP_ROWS][32];
};

/* A product with quantised weights: consecutive groups of one W times consecutive rows of
 * activations. Row n of W times row r goes to y[r * y_stride + n]. The fields `unpack`,
 * `prefetch…` and `ahead…` do not change the result; a kernel may ignore these fields. */
struct kernels_product {
    enum kernels_form form;
    const int8_t *codes; /* [16]; NULL = the form has no codes. */
    float factor; /* Factor of the scales of a SUPER form with codes: a power of two, up to 1. */
    const uint8_t *weights; /* Weights of the first group; the groups are contiguous. */
    uint32_t groups;
    uint32_t blocks;                   /* Blocks of 32 columns. */
    const struct kernels_block *tiles; /* Blocks of the first tile, then of the next tiles. */
    uint32_t tile_rows;                /* Rows of each tile except the last, ≤ TILE_ROWS. */
    /* Second planes, one per entry of `tiles`; NULL = the activations are not refined. */
    const struct kernels_second_plane *second_planes;
    /* The kernel unpacks each group once, before it multiplies the group with all rows. */
    bool unpack;
    /* The same rows as strips, for kernels.gemm_strips; NULL = the activations have no strips. */
    const struct kernels_strip *strips;
    const struct kernels_strip_plane *strip_planes; /* One per entry of `strips`, or NULL. */
    bool prefetch; /* The first tile prefetches the next weights, also beyond the last group. */
    /* If there are few passes over a group, each prefetches its share of the next group. */
    bool prefetch_shares;
    /* The weights of the thread's share end at ahead_end. Instead of an address A ≥ ahead_end, the
     * kernel prefetches A + ahead_jump (modulo 2^64). */
    uintptr_t ahead_end;
    uintptr_t ahead_jump;
    uint32_t rows;     /* Rows of activations. */
    uint32_t outputs;  /* Rows of W: groups * GROUP_ROWS, or fewer if the last group is not full. */
    const float *bias; /* [outputs]; NULL = none. */
    bool adds_to_y;    /* Add to y; false = replace y. */
    float *y;
    size_t y_stride; /* Floats in y from one row of activations to the next. */
};

/* A product with float weights: columns [first_col, end_col) of one group times `rows` ≤ TILE_ROWS
 * rows of activations x. */
struct kernels_float {
    enum kernels_form form;
    const uint8_t *group; /* The group's weights, from column 0 on. */
    /* Activations from row 0 and column 0 on. FORM_BF16: as kernels_floats.round writes them; other
     * forms: fp32. */
    const void *x;
    size_t x_stride;             /* In units of 4 bytes. */
    uint32_t first_col, end_col; /* Both even, except that `end_col` may be the end of the row. */
    bool continues_sum;          /* The sums begin with the values in `out`; false = with 0. */
    uint32_t rows;
    bool prefetch; /* Prefetch the next weights. */
};

/* Products of the float forms. */
struct kernels_floats {
    const char *name; /* Follows the ISA's name in `describe`: "bf16"; "" = nothing. */
    /* Computes out[r][n] for row r of x and row n of the group. */
    void (*gemm)(const struct kernels_float *p, float out[TILE_ROWS][GROUP_ROWS]);
    uint32_t rounded_bytes; /* Bytes of a value that `round` writes: 2 or 4. */
    /* Rounds `count` values of x to bfloat16, and writes them to `rounded` in the form that this
     * table's gemm reads. After an odd count, writes one more value, 0. */
    void (*round)(const float *x, uint32_t count, void *rounded);
};

/* K and V of one KV head of one sequence. */
struct kernels_cache {
    const struct compute_kv *kv;
    const uint32_t *blocks; /* compute_sequence.blocks. */
    uint32_t kv_head;       /* Index of the KV head. */
    /* `blocks` of the sequence that the thread probably reads next, to prefetch; NULL = none. */
    const uint32_t *next_blocks;
    uint32_t next_tokens; /* Tokens of the next sequence up to and including its first row. */
};

/* The rotary embedding at one position. */
struct kernels_rope {
    uint32_t dim;       /* compute_rope.dim; 0 = no dimension is rotated. */
    bool neox;          /* compute_rope.neox. */
    const float *table; /* cos[dim / 2], then sin[dim / 2], of the position. */
};

/* The functions of one instruction set. */
struct kernels {
    const char *name; /* For compute_ops.describe, such as "avx2". */
    /* Integer GEMM for the quantised forms. */
    void (*gemm_quantised)(const struct kernels_product *product);
    bool unpacks; /* gemm_quantised uses kernels_product.unpack. */
    /* Integer GEMM that uses kernels_product.strips, for CPUs with AMX, for forms with one scale
     * per 32 columns and up to KERNELS_STRIP_BLOCKS blocks; NULL = none. */
    void (*gemm_strips)(const struct kernels_product *product);
    const struct kernels_floats *floats;
    /* Quantises `count` values (a multiple of 32) into row `row` of consecutive blocks. With
     * second_planes, the values must be a whole row, and the row is refined. */
    void (*quantise)(const float *x, uint32_t count, struct kernels_block *blocks,
                     struct kernels_second_plane *second_planes, uint32_t row);
    /* Computes one row of compute_ops.norm. */
    void (*norm)(const float *x, uint32_t cols, const float *weight, float epsilon, float *out);
    /* Computes one row of compute_ops.layer_norm. */
    void (*layer_norm)(const float *x, uint32_t cols, const float *weight, const float *bias,
                       float epsilon, float *out);
    /* Returns the sum of x², the first step of `norm`. */
    float (*squares)(const float *x, uint32_t cols);
    /* Computes out = x * scale * weight, the second step of `norm`. */
    void (*weigh)(const float *x, uint32_t cols, const float *weight, float scale, float *out);
    /* Three functions that compute one row of compute_ops.gate_mul, each for one activation. */
    void (*silu_mul)(const float *gate, const float *up, uint32_t cols, float *out);
    void (*gelu_mul)(const float *gate, const float *up, uint32_t cols, float *out);
    void (*gelu_erf_mul)(const float *gate, const float *up, uint32_t cols, float *out);
    /* Computes x = cap * tanh(x / cap) for `count` values. */
    void (*cap)(float cap, uint32_t count, float *x);
    /* Rotates one head's values in place. */
    void (*rope)(const struct kernels_rope *rope, float *head);
    /* Writes K and V of one token and one KV head; v is not used for a latent cache. head_block:
     * address of the KV head in the token's block. token: index in the block. f16 values are
     * limited to ±65504. */
    void (*store)(const struct compute_kv *kv, uint8_t *head_block, uint32_t token, const float *k,
                  const float *v);
    /* Attention of `rows` rows at positions from first_position on, each with `heads` heads that
     * share KV head cache->kv_head. q of row r begins at q + r * q_stride. `scratch` has
     * kernels_scratch_floats() floats, for rows * heads queries and for the tokens from the first
     * token that a row sees (rounded down to a multiple of VECTOR_LANES) to the last. Writes
     * out[rows][heads * dimensions of a value]. */
    void (*attention)(const struct kernels_cache *cache, uint32_t first_position, uint32_t rows,
                      uint32_t heads, const struct compute_attention *parameters, const float *q,
                      size_t q_stride, float *scratch, float *out);
    /* Attention of one row at `position` over one segment of an integer cache, which begins at
     * position segment * KERNELS_SEGMENT. Writes the result to `part`, which has
     * kernels_part_floats() floats. `scratch` has the size that `attention` needs for this row. */
    void (*attention_part)(const struct kernels_cache *cache, uint32_t position, uint32_t heads,
                           const struct compute_attention *parameters, const float *q,
                           uint32_t segment, float *scratch, float *part);
    /* Joins `count` parts, which are `stride` floats apart, and the heads' sinks (NULL = none). The
     * result is in the first part, and has the same bits as the result of `attention`. */
    void (*attention_join)(uint32_t heads, uint32_t dim, uint32_t count, size_t stride,
                           const float *sinks, float *parts);
};

/* Returns the number of floats of a result of attention_part: o [dim], m and z (attention_fixed.h)
 * of each head, padded to whole vectors; the padding is not written. dim: dimensions of a value. */
static inline size_t kernels_part_floats(uint32_t heads, uint32_t dim)
{
    return ((size_t)heads * (dim + 2) + 15) / 16 * 16;
}

/* Returns the number of floats from the scores of one query to the scores of the next query. */
static inline size_t kernels_score_stride(enum compute_kv_dtype dtype, uint32_t tokens)
{
    if (compute_kv_fixed(dtype))
        return KERNELS_SEGMENT + VECTOR_LANES;
    return ((size_t)tokens + VECTOR_LANES - 1) / VECTOR_LANES * VECTOR_LANES + VECTOR_LANES;
}

/* Returns the number of floats at the end of the scratch memory that a latent cache needs: for the
 * values of a segment or, in a float cache, for the values of a block and 1 / z of each query. 0 =
 * not a latent cache. */
static inline size_t kernels_latent_floats(const struct compute_kv *kv, size_t queries)
{
    if (kv->latent == 0)
        return 0;
    if (compute_kv_fixed(kv->dtype))
        return (size_t)KERNELS_SEGMENT * kv->latent * compute_kv_element_bytes(kv->dtype) / 4;
    return ((size_t)kv->block_tokens * kv->latent + queries + 15) / 16 * 16;
}

/* Returns the number of floats of scratch memory that attention needs for `queries` queries over
 * `tokens` tokens. */
static inline size_t kernels_scratch_floats(const struct compute_kv *kv, uint32_t queries,
                                            uint32_t tokens)
{
    size_t padded = ((size_t)queries + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    size_t stride = kernels_score_stride(kv->dtype, tokens), floats;
    floats = padded * (stride + compute_kv_key_dim(kv));
    if (compute_kv_fixed(kv->dtype))
        floats += padded * (compute_kv_value_dim(kv) + stride / 64 + 8) + 2 * stride;
    return (floats + 15) / 16 * 16 + kernels_latent_floats(kv, padded);
}

extern const struct kernels kernels_portable;
#ifdef CLEAVE_X86
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx_vnni; /* AVX2 and AVX-VNNI. */
extern const struct kernels kernels_avx512;
/* For CPUs that have AVX512_BF16 and on which kernels_avx512_bf16_rounds is true. */
extern const struct kernels_floats kernels_floats_avx512_bf16;
/* Returns true if this CPU's vdpbf16ps rounds as the comment at the top of this file defines. */
bool kernels_avx512_bf16_rounds(void);
void gemm_avx2(const struct kernels_product *product);
void gemm_avx_vnni(const struct kernels_product *product);
void gemm_avx512(const struct kernels_product *product);
void gemm_amx(const struct kernels_product *product);
#endif

#endif
