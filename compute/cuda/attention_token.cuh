/* attention_token: the work of one warp of attention_token.cu: some tiles of one KV head's context
 * against up to 8 heads of one row. token_tensor computes f16 and integer caches on tensor cores;
 * token_plain (attention_plain.cuh) computes F32 caches. Device code for attention_token.cu, which
 * divides contexts into chunks and joins the warps' results. A tile is 64 tokens. A unit is a piece
 * of a tile's K or V that is copied at once; the units of a warp go through a ring of buffers in
 * shared memory. */
#ifndef COMPUTE_CUDA_ATTENTION_TOKEN_CUH
#define COMPUTE_CUDA_ATTENTION_TOKEN_CUH

#include "compute/cuda/attention.cuh"

#define TOKEN_WARPS   4
#define TOKEN_THREADS (32 * TOKEN_WARPS)
#define TOKEN_HEADS   ATTENTION_HEADS
#define TOKEN_TILE    64                /* Tokens of a tile. */
#define TOKEN_SLOTS   7                 /* Units in a warp's ring; one of them is being read. */
#define TOKEN_AHEAD   (TOKEN_SLOTS - 1) /* Units that are being copied. */

/* Sizes of one variant of the kernel. PLAIN: an F32 cache. FIXED: a cache of integers. NARROW: a
 * cache of 8-bit integers. */
template <int HEAD_DIM, int DTYPE> struct token_shape {
    static constexpr int DIM = HEAD_DIM;
    static constexpr bool PLAIN = DTYPE == COMPUTE_KV_F32;
    static constexpr bool FIXED = DTYPE == COMPUTE_KV_I16 || DTYPE == COMPUTE_KV_I8;
    static constexpr bool NARROW = DTYPE == COMPUTE_KV_I8;
    static constexpr int ELEMENT = PLAIN ? 4 : NARROW ? 1 : 2; /* Bytes of an element. */
    /* Bytes from token to token of K. */
    static constexpr int TOKEN_STEP = FIXED ? 2 * ELEMENT : ELEMENT;
    /* Sets of 64 dimensions of V. */
    static constexpr int SETS = (DIM + 63) / 64;
    static constexpr int K_UNITS = DIM / 16;
    static constexpr int UNITS = K_UNITS + 4 * SETS;
    /* Pieces of 16 bytes that each thread has of a unit. */
    static constexpr int PIECES = NARROW ? 2 : 4;
    static constexpr int UNIT_BYTES = PIECES * 16 * 32;
    /* Without PLAIN, the warp's result overwrites the ring at the end. With PLAIN, the memory has
     * weights, then the result. */
    static constexpr int RING_BYTES = PLAIN ? TOKEN_HEADS * 32 * 4 : TOKEN_SLOTS * UNIT_BYTES;
    static constexpr int RESULT_BYTES = TOKEN_HEADS * DIM * 4;
    static constexpr int WARP_BYTES = PLAIN                       ? RING_BYTES + RESULT_BYTES
                                      : RING_BYTES > RESULT_BYTES ? RING_BYTES
                                                                  : RESULT_BYTES;
    static constexpr int RESULT = PLAIN ? RING_BYTES : 0; /* Offset of the result. */
    static constexpr int Q_BYTES = PLAIN ? TOKEN_HEADS * DIM * 4 : 0;
    static constexpr int SHARED = TOKEN_WARPS * WARP_BYTES + Q_BYTES;
};

/* What a thread block works on at a time. */
struct token_item {
    uint32_t row;  /* Row of the batch. */
    uint32_t slot; /* Index in scratch memory (struct attention). */
    uint32_t kv_head;
    uint32_t first_head;    /* Counted over all heads. */
    uint32_t heads;         /* From 1 to TOKEN_HEADS. */
    uint32_t table;         /* Index of the sequence's first block id. */
    uint32_t begin, end;    /* Tokens [begin, end). */
    uint32_t first;         /* The first token that the row sees, at most begin + 7. */
    uint32_t chunk, chunks; /* This chunk of the context, and the number of chunks. */
};

/* Result of a warp for one head. The weighted sums of V are in shared memory, as o[head][DIM]. */
struct token_sums {
    float most; /* Greatest score. */
    float sum;  /* Sum of weights. */
};

/* ---- sources ---- */

/* What this thread copies of one tile. With g = lane / 4 and t = lane % 4, of K: the 8 tokens from
 * 8g on, dimensions 2t, 2t + 1, 2t + 8, 2t + 9 of each 16. Of V: the 8 dimensions from 8g on of
 * each 64, and the 16 tokens from 16t on. A thread copies exactly the pieces that it needs in its
 * own registers. */
struct token_source {
    const uint8_t *k, *v[2], *scale; /* v: of the first and the second 8 tokens. */
    uint32_t begin, end;
};

/* Block ids of the tokens of a token_source. */
struct token_blocks {
    uint32_t k, v[2];
};

static __device__ __forceinline__ uint32_t token_bounded(const struct token_item *item,
                                                         uint32_t token)
{
    return min(token, (item->end - 1) & ~7u);
}

static __device__ __forceinline__ struct token_blocks
token_blocks_of(const struct attention *a, const struct token_item *item, uint32_t begin)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t *table = a->s.blocks + item->table;
    return {table[token_bounded(item, begin + 8 * g) / a->block_tokens],
            {table[token_bounded(item, begin + 16 * t) / a->block_tokens],
             table[token_bounded(item, begin + 16 * t + 8) / a->block_tokens]}};
}

template <class S>
static __device__ __forceinline__ struct token_source
token_source_at(const struct attention *a, const struct token_item *item, uint32_t begin,
                struct token_blocks blocks)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t tokens = a->block_tokens;
    const uint8_t *heads = a->base + item->kv_head * a->head_bytes;
    struct token_source source;
    source.begin = begin;
    source.end = item->end;
    const uint32_t k_within = token_bounded(item, begin + 8 * g) % tokens;
    source.scale = heads + blocks.k * a->block_bytes + k_within * 2;
    source.k = heads + blocks.k * a->block_bytes + (S::FIXED ? tokens * 4 : 0) +
               (k_within + (S::FIXED ? t : 2 * t) * tokens) * S::TOKEN_STEP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t within = token_bounded(item, begin + 16 * t + 8 * i) % tokens;
        source.v[i] = heads + blocks.v[i] * a->block_bytes + (S::FIXED ? tokens * 4 : 0) +
                      (size_t)S::DIM * S::ELEMENT * (tokens + within) + 8 * g * S::TOKEN_STEP;
    }
    return source;
}

/* Starts copying unit `u` of a tile. Tokens after the item become zeros, because their memory may
 * hold NaN. */
template <class S>
static __device__ __forceinline__ void
token_copy(const struct attention *a, const struct token_source *source, int u, uint8_t *slot)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    slot += lane * 16;
    if (u < S::K_UNITS) {
        const uint32_t step = a->block_tokens * S::TOKEN_STEP;
        const bool there = source->begin + 8 * g < source->end;
#pragma unroll
        for (int i = 0; i < S::PIECES; i++) {
            const uint32_t rows = !S::FIXED   ? 16 * u + i % 2 + i / 2 * 8
                                  : S::NARROW ? 8 * u + 4 * i
                                              : 8 * u + i / 2 * 4;
            const uint32_t in = S::FIXED && !S::NARROW ? i % 2 * 16 : 0;
            ptx_cp_async_16(slot + i * 512, source->k + (size_t)(rows * step) + in, there);
        }
        return;
    }
    const int s = (u - S::K_UNITS) / S::SETS, set = (u - S::K_UNITS) % S::SETS;
#pragma unroll
    for (int i = 0; i < S::PIECES; i++) {
        const int half = S::NARROW ? i : i / 2, second = S::NARROW ? 0 : i % 2;
        const uint32_t offset =
            set * 64 * S::TOKEN_STEP +
            (S::FIXED ? s * S::DIM * S::TOKEN_STEP + second * 16 : (2 * s + second) * S::DIM * 2);
        const uint32_t token = source->begin + 16 * t + 8 * half + 2 * s + (S::FIXED ? 0 : second);
        const bool there = token < source->end && (S::DIM % 64 == 0 || 64 * set + 8 * g < S::DIM);
        ptx_cp_async_16(slot + i * 512, source->v[half] + offset, there);
    }
}

/* ---- from pieces to A operands ---- */

/* Reads a unit of the ring: pairs[i][n] is the pair along the sum (two dimensions of token n, or
 * two tokens of dimension n); i selects the first or the second 8 elements of the sum. */
template <class S>
static __device__ __forceinline__ void token_pairs(const uint8_t *slot, bool values,
                                                   uint32_t pairs[2][8])
{
    uint32_t words[2][8];
#pragma unroll
    for (int i = 0; i < S::PIECES; i++) {
        const uint4 piece = *(const uint4 *)(slot + i * 512 + threadIdx.x % 32 * 16);
        const int at = S::NARROW ? i : i / 2, from = S::NARROW ? 0 : i % 2 * 4;
        words[at][from] = piece.x, words[at][from + 1] = piece.y;
        words[at][from + 2] = piece.z, words[at][from + 3] = piece.w;
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int n = 0; n < 8; n++) {
            if (S::NARROW)
                pairs[i][n] = attention_pair8(words[i][n / 2], n % 2 != 0, values);
            else if (S::FIXED)
                pairs[i][n] = attention_pair16(words[i][n], values);
            else
                pairs[i][n] =
                    __byte_perm(words[i][n / 2], words[i][4 + n / 2], n % 2 != 0 ? 0x7632 : 0x5410);
        }
}

/* ---- tensor cores ---- */

/* Sᵀ = Kᵀ · Qᵀ and Oᵀ = Vᵀ · Pᵀ: the rows of an mma are tokens, then dimensions; its 8 columns are
 * heads. A thread therefore has heads 2t and 2t + 1 in both products, and can rescale o to a new
 * greatest score without data of other threads. Elements 0 and 1 of s[i] belong to token 8g + 2i of
 * the tile, elements 2 and 3 to token 8g + 2i + 1. */
template <class S> struct token_state {
    uint32_t q[S::K_UNITS][2];
    float o[4 * S::SETS][4]; /* [4 * set + i]: dimensions 64 set + 8g + 2i and the next one. */
    float s[4][4];
    /* Of head g; p[i][h]: tokens 16t + 8h + 2i and 16t + 8h + 2i + 1. */
    uint32_t p[4][2];
    float most[2], sum[2];
};

template <class S>
static __device__ __forceinline__ void
token_query(const struct attention *a, const struct token_item *item, token_state<S> &state)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float *q = a->q + ((size_t)item->row * a->head_count + item->first_head + g) * S::DIM;
#pragma unroll
    for (int u = 0; u < S::K_UNITS; u++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float2 x = make_float2(0, 0);
            if (g < item->heads)
                x = *(const float2 *)(q + u * 16 + i * 8 + t * 2);
            state.q[u][i] =
                attention_pack(attention_clamp(x.x * a->scale), attention_clamp(x.y * a->scale));
        }
#pragma unroll
    for (int i = 0; i < 4 * S::SETS; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            state.o[i][k] = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        state.most[h] = -INFINITY;
        state.sum[h] = 0;
    }
}

/* Returns the scale of the thread's i-th token of a tile. */
static __device__ __forceinline__ float token_scale(uint4 scales, int i)
{
    const uint32_t words[4] = {scales.x, scales.y, scales.z, scales.w};
    return attention_bf16(words[i / 2] >> i % 2 * 16 & 0xffff);
}

/* Turns scores into weights (times the scales of V, if the cache has any) and passes them to the
 * threads that need them. */
template <class S>
static __device__ __forceinline__ void
token_weigh(const struct attention *a, const struct token_item *item, uint32_t first,
            uint4 k_scales, uint4 v_scales, token_state<S> &state)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t seen = item->first, end = item->end;
    float factor[2];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (S::FIXED)
                state.s[i][k] *= token_scale(k_scales, 2 * i + k / 2);
            if (a->cap != 0)
                state.s[i][k] = attention_capped(a, state.s[i][k]);
            if (first + 2 * i + k / 2 >= end || first + 2 * i + k / 2 < seen)
                state.s[i][k] = -INFINITY;
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = state.most[h], sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            most = fmaxf(most, fmaxf(state.s[i][h], state.s[i][h + 2]));
#pragma unroll
        for (int i = 4; i < 32; i *= 2)
            most = fmaxf(most, __shfl_xor_sync(ATTENTION_ALL_LANES, most, i));
        factor[h] = ptx_exp2(state.most[h] - most);
        state.most[h] = most;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int k = h; k < 4; k += 2) {
                float p = ptx_exp2(state.s[i][k] - most);
                sum += p;
                /* V is in [-1, 1] times this scale. For tokens outside the item the scale may be
                 * NaN. */
                if (S::FIXED)
                    p = first + 2 * i + k / 2 >= end || first + 2 * i + k / 2 < seen
                            ? 0
                            : p * (token_scale(v_scales, 2 * i + k / 2) * (S::NARROW ? 128 : 8192));
                state.s[i][k] = p;
            }
        state.sum[h] = state.sum[h] * factor[h] + sum;
    }
    if (__any_sync(ATTENTION_ALL_LANES, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
        for (int i = 0; i < 4 * S::SETS; i++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                state.o[i][k] *= factor[k % 2];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (S::FIXED) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                state.s[i][k] = attention_clamp(state.s[i][k]);
        }
        const uint32_t even = attention_pack(state.s[i][0], state.s[i][2]);
        const uint32_t odd = attention_pack(state.s[i][1], state.s[i][3]);
#pragma unroll
        for (int half = 0; half < 2;
             half++) { /* From the thread with tokens 16t + 8 half, head g. */
            const uint32_t from = (2 * t + half) * 4 + g / 2;
            const uint32_t x = __shfl_sync(ATTENTION_ALL_LANES, even, from);
            const uint32_t y = __shfl_sync(ATTENTION_ALL_LANES, odd, from);
            state.p[i][half] = g % 2 != 0 ? y : x;
        }
    }
}

template <class S>
static __device__ __forceinline__ void token_multiply(int u, const uint8_t *slot,
                                                      token_state<S> &state)
{
    uint32_t pairs[2][8];
    token_pairs<S>(slot, u >= S::K_UNITS, pairs);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t rows[4] = {pairs[0][2 * i], pairs[0][2 * i + 1], pairs[1][2 * i],
                                  pairs[1][2 * i + 1]};
        if (u < S::K_UNITS) {
            ptx_mma_f16_16816(state.s[i], rows, state.q[u < S::K_UNITS ? u : 0]);
        } else {
            const int v = u - S::K_UNITS;
            ptx_mma_f16_16816(state.o[v % S::SETS * 4 + i], rows, state.p[v / S::SETS % 4]);
        }
    }
}

/* Computes the warp's tiles of an item: every TOKEN_WARPS-th tile, at least one. */
template <class S>
static __device__ __forceinline__ void token_tensor(const struct attention *a,
                                                    const struct token_item *item, uint8_t *ring,
                                                    struct token_sums *sums)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t begin = item->begin + threadIdx.x / 32 * TOKEN_TILE, slot = 0;
    struct token_source source =
        token_source_at<S>(a, item, begin, token_blocks_of(a, item, begin));
#pragma unroll
    for (int u = 0; u < TOKEN_AHEAD; u++) {
        token_copy<S>(a, &source, u, ring + u * S::UNIT_BYTES);
        ptx_cp_async_commit();
    }
    token_state<S> state;
    token_query<S>(a, item, state);
#pragma unroll 1
    for (; begin < item->end; begin += TOKEN_WARPS * TOKEN_TILE) {
        const uint32_t next_begin = begin + TOKEN_WARPS * TOKEN_TILE;
        const bool more = next_begin < item->end;
        const uint8_t *scale = source.scale;
        uint4 k_scales = make_uint4(0, 0, 0, 0), v_scales = k_scales;
        const struct token_blocks next = token_blocks_of(a, item, more ? next_begin : begin);
#pragma unroll
        for (int i = 0; i < 16; i++)
            state.s[i / 4][i % 4] = 0;
#pragma unroll
        for (int u = 0; u < S::UNITS; u++) {
            if (S::FIXED && u == S::K_UNITS - 1) {
                k_scales = *(const uint4 *)scale;
                v_scales = *(const uint4 *)(scale + a->block_tokens * 2);
            }
            if (u == S::K_UNITS)
                token_weigh<S>(a, item, begin + 8 * g, k_scales, v_scales, state);
            if (u + TOKEN_AHEAD == S::UNITS)
                source = token_source_at<S>(a, item, more ? next_begin : begin, next);
            /* Into the slot that was read last. */
            uint8_t *last = ring + (slot > 0 ? slot : S::RING_BYTES) - S::UNIT_BYTES;
            if (u + TOKEN_AHEAD < S::UNITS || more)
                token_copy<S>(a, &source, (u + TOKEN_AHEAD) % S::UNITS, last);
            ptx_cp_async_commit();
            ptx_cp_async_wait<TOKEN_AHEAD>();
            token_multiply<S>(u, ring + slot, state);
            slot = slot + S::UNIT_BYTES < S::RING_BYTES ? slot + S::UNIT_BYTES : 0;
        }
    }
    ptx_cp_async_wait<0>();
    __syncwarp();
    float *o = (float *)ring;
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int i = 4; i < 32; i *= 2)
            state.sum[h] += __shfl_xor_sync(ATTENTION_ALL_LANES, state.sum[h], i);
        if (g == 0)
            sums[2 * t + h] = {state.most[h], state.sum[h]};
#pragma unroll
        for (int i = 0; i < 4 * S::SETS; i++) {
            const uint32_t d = i / 4 * 64 + 8 * g + i % 4 * 2;
            if (d < S::DIM)
                *(float2 *)(o + (2 * t + h) * S::DIM + d) =
                    make_float2(state.o[i][h], state.o[i][h + 2]);
        }
    }
}

#endif
