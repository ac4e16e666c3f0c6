/* attention_latent: attention over a latent cache (struct compute_kv): every head of every row
 * reads the same vectors, and the values are the last part of the keys. One kernel for prompts and
 * decode steps. Plain reference: compute/cpu; tests/gpu/test_latent compares.
 *
 * A thread block computes up to 64 heads of one row (16 where shared memory is small, or where
 * there are few heads) over a chunk of the row's context, 32 tokens at a time. The vectors of a
 * tile are copied by cp.async while the tile before is computed, then turned into f16, with a row
 * of 32 tokens for each dimension: q · K reads these rows transposed, and p · V reads them as they
 * are, so a vector is read from memory once for both products. Products use tensor cores
 * (mma.m16n8k16). An F32 cache is computed by `plain`, in fp32.
 *
 * How a context is split depends only on its own length, and on whether the batch has more than
 * ATTENTION_LATENT_ROWS rows, which is enough work without splitting. The block that ends last
 * joins the chunks in their order; it is found by a counter, which it resets to 0.
 *
 * Bound, for 128 heads, 512 + 64 values in f16: arithmetic, 2 * 128 * 1088 operations for 1152
 * bytes of a token. With 64 heads a block, the vectors come from the L2 cache twice. Shared memory
 * is 150 KiB, so a multiprocessor has one block of 8 warps, with 128 sums in the registers of each
 * thread. Nothing here was measured. */
#include "compute/cuda/attention.cuh"

#include <assert.h>

#define LATENT_THREADS 256
#define LATENT_TILE    32  /* Tokens. */
#define LATENT_RANK    512 /* Largest number of values. */
#define LATENT_OWN     64  /* Most dimensions of a key before the values. */
#define LATENT_P_ROW   (LATENT_TILE + 8)
#define LATENT_UNKNOWN (-INFINITY)

/* Variants: type of the cache, and groups of 16 heads in a block (1 or 4). */
template <int DTYPE, int COUNT> struct latent_shape {
    static constexpr bool FIXED = DTYPE == COMPUTE_KV_I16 || DTYPE == COMPUTE_KV_I8;
    static constexpr bool NARROW = DTYPE == COMPUTE_KV_I8;
    static constexpr int GROUPS = COUNT;
    static constexpr int HEADS = 16 * GROUPS;
    /* Warps that share the values of a group of heads, and the 8 values each of them has at
     * most. */
    static constexpr int SHARERS = 8 / GROUPS;
    static constexpr int EIGHTS = LATENT_RANK / 8 / SHARERS;
    /* A tile as the cache has it: rows of tokens, in pieces of 16 bytes. A row is one dimension, or
     * two if the cache has integers. */
    static constexpr int TOKEN_BYTES = FIXED && !NARROW ? 4 : 2; /* Of a token in a row. */
    static constexpr int PIECE_TOKENS = 16 / TOKEN_BYTES;
    static constexpr int PIECES = LATENT_TILE / PIECE_TOKENS;
    static constexpr int ROW_DIMS = FIXED ? 2 : 1;
    static constexpr float UNIT = NARROW ? 128 : FIXED ? 8192 : 1; /* 1 / the integers' factor. */
};

/* Sizes that only the launch knows. */
struct latent_sizes {
    uint32_t own, rank; /* Dimensions of a key before the values; values. */
    uint32_t padded;    /* `own`, rounded up to a multiple of 16. */
    uint32_t parts_max; /* Parts for which scratch memory has room. */
    bool split;
};

static __host__ __device__ inline uint32_t latent_dims(const struct latent_sizes &z)
{
    return z.own + z.rank;
}

/* f16 from query to query in shared memory: 8 more than a query has, so that the rows of a matrix
 * that ldmatrix loads are in different banks. */
static __host__ __device__ inline uint32_t latent_q_row(const struct latent_sizes &z)
{
    return z.padded + z.rank + 8;
}

/* Dynamic shared memory: the queries, the tile as the cache has it, the tile as f16 and the
 * weights. */
struct latent_memory {
    uint32_t raw, tile, weights, bytes; /* Offsets; the queries begin at 0. */
};

template <class S>
static __host__ __device__ inline struct latent_memory latent_layout(const struct latent_sizes &z)
{
    struct latent_memory m;
    m.raw = S::HEADS * latent_q_row(z) * 2;
    m.tile = m.raw + latent_dims(z) / S::ROW_DIMS * S::PIECES * 16;
    m.weights = m.tile + (z.padded + z.rank) * LATENT_TILE * 2;
    m.bytes = m.weights + S::HEADS * LATENT_P_ROW * 2;
    if (m.bytes < S::HEADS * ATTENTION_LATENT_PARTS * sizeof(float)) /* See latent_join. */
        m.bytes = S::HEADS * ATTENTION_LATENT_PARTS * sizeof(float);
    return m;
}

/* What a thread block computes: tokens [begin, end) for heads [head, head + heads) of a row. */
struct latent_item {
    uint32_t row, head, heads;
    uint32_t table; /* Index of the sequence's first block id. */
    uint32_t first; /* The first token that the row sees, at most begin + 7. */
    uint32_t begin, end;
    uint32_t part, parts;
};

/* False: the block has nothing to do. */
static __device__ bool latent_item_of(const struct attention *a, const struct latent_sizes &z,
                                      uint32_t heads, struct latent_item *out)
{
    const uint32_t tiles = (a->head_count + heads - 1) / heads;
    struct latent_item item;
    item.row = blockIdx.x / tiles;
    item.head = blockIdx.x % tiles * heads;
    item.heads = min(heads, a->head_count - item.head);
    item.part = blockIdx.y;
    const uint32_t sequence = a->s.row_sequence[item.row];
    if (sequence >= a->s.sequences) /* Padding. */
        return false;
    const uint32_t position = a->s.row_position[item.row];
    item.table = a->s.table_begin[sequence];
    item.first = attention_first(a, position);
    const uint32_t begin = item.first & ~7u, context = position + 1 - begin;
    uint32_t chunk = ATTENTION_LATENT_CHUNK;
    while ((context + chunk - 1) / chunk > ATTENTION_LATENT_PARTS)
        chunk *= 2;
    if (!z.split)
        chunk = context;
    item.parts = (context + chunk - 1) / chunk;
    item.begin = begin + item.part * chunk;
    item.end = min(position + 1, item.begin + chunk);
    *out = item;
    return item.part < item.parts;
}

/* ---- from the cache to f16 ---- */

/* Starts copying the tile that begins at token `begin`. Tokens outside the item become zeros. */
template <class S>
static __device__ __forceinline__ void
latent_copy(const struct attention *a, const struct latent_sizes &z, const struct latent_item *item,
            uint32_t begin, uint8_t *raw)
{
    const uint32_t piece = threadIdx.x % S::PIECES, tokens = a->block_tokens;
    const uint32_t token = begin + piece * S::PIECE_TOKENS;
    const bool there = token < item->end;
    const uint32_t bounded = min(token, (item->end - 1) / S::PIECE_TOKENS * S::PIECE_TOKENS);
    const uint8_t *from = a->base + a->s.blocks[item->table + bounded / tokens] * a->block_bytes +
                          (S::FIXED ? tokens * 4 : 0) + bounded % tokens * S::TOKEN_BYTES;
    const uint32_t rows = latent_dims(z) / S::ROW_DIMS;
    for (uint32_t r = threadIdx.x / S::PIECES; r < rows; r += LATENT_THREADS / S::PIECES)
        ptx_cp_async_16(raw + (r * S::PIECES + piece) * 16,
                        from + (size_t)r * tokens * S::TOKEN_BYTES, there);
    ptx_cp_async_commit();
}

/* Where 8 tokens of a dimension are: rows of 64 bytes, whose four pieces change places so that no
 * two of 8 neighbouring rows have a piece in the same banks. */
static __device__ __forceinline__ uint8_t *latent_at(uint8_t *tile, uint32_t dim, uint32_t piece)
{
    return tile + dim * (LATENT_TILE * 2) + (piece ^ (dim >> 1 & 3)) * 16;
}

/* The words {low halves of x and y} and {high halves}. */
static __device__ __forceinline__ uint32_t latent_low(uint32_t x, uint32_t y)
{
    return __byte_perm(x, y, 0x5410);
}

static __device__ __forceinline__ uint32_t latent_high(uint32_t x, uint32_t y)
{
    return __byte_perm(x, y, 0x7632);
}

/* Turns one piece of the raw tile into f16. `valid`: tokens of the piece that are in the item. An
 * f16 cache may hold NaN in the place of the others. */
template <class S>
static __device__ __forceinline__ void latent_convert(uint4 v, uint32_t dim, uint32_t piece,
                                                      uint32_t valid, uint8_t *tile)
{
    uint32_t words[4] = {v.x, v.y, v.z, v.w};
    if constexpr (!S::FIXED) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            words[i] = 2 * i + 1 < valid ? words[i] : 2 * i < valid ? words[i] & 0xffff : 0;
        *(uint4 *)latent_at(tile, dim, piece) = make_uint4(words[0], words[1], words[2], words[3]);
    } else if constexpr (!S::NARROW) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            words[i] = attention_pair16(words[i], true);
        uint8_t *first = latent_at(tile, dim, piece / 2) + piece % 2 * 8;
        uint8_t *second = latent_at(tile, dim + 1, piece / 2) + piece % 2 * 8;
        *(uint2 *)first =
            make_uint2(latent_low(words[0], words[1]), latent_low(words[2], words[3]));
        *(uint2 *)second =
            make_uint2(latent_high(words[0], words[1]), latent_high(words[2], words[3]));
    } else {
        uint32_t low[4], high[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t even = attention_pair8(words[i], false, true);
            const uint32_t odd = attention_pair8(words[i], true, true);
            low[i] = latent_low(even, odd);
            high[i] = latent_high(even, odd);
        }
        *(uint4 *)latent_at(tile, dim, piece) = make_uint4(low[0], low[1], low[2], low[3]);
        *(uint4 *)latent_at(tile, dim + 1, piece) = make_uint4(high[0], high[1], high[2], high[3]);
    }
}

template <class S>
static __device__ __forceinline__ void latent_tile(const struct latent_sizes &z,
                                                   const struct latent_item *item, uint32_t begin,
                                                   const uint8_t *raw, uint8_t *tile)
{
    const uint32_t count = latent_dims(z) / S::ROW_DIMS * S::PIECES;
    for (uint32_t i = threadIdx.x; i < count; i += LATENT_THREADS) {
        const uint32_t piece = i % S::PIECES, token = begin + piece * S::PIECE_TOKENS;
        const uint32_t dim = i / S::PIECES * S::ROW_DIMS;
        latent_convert<S>(*(const uint4 *)(raw + i * 16),
                          dim < z.own ? dim : dim - z.own + z.padded, piece,
                          token < item->end ? item->end - token : 0, tile);
    }
}

/* Reads the two scales of the tile's tokens; 0 for those outside the item. */
static __device__ __forceinline__ void latent_scales(const struct attention *a,
                                                     const struct latent_item *item, uint32_t begin,
                                                     float unit, float (*scales)[LATENT_TILE])
{
    const uint32_t token = begin + threadIdx.x, tokens = a->block_tokens;
    float own = 0, values = 0;
    if (threadIdx.x >= LATENT_TILE)
        return;
    if (token < item->end) {
        const uint16_t *block =
            (const uint16_t *)(a->base +
                               a->s.blocks[item->table + token / tokens] * a->block_bytes);
        own = attention_bf16(block[token % tokens]) * unit;
        values = attention_bf16(block[tokens + token % tokens]) * unit;
    }
    scales[0][threadIdx.x] = own;
    scales[1][threadIdx.x] = values;
}

/* Writes the queries, times the scale, as f16; zeros for heads and dimensions that are not
 * there. */
template <class S>
static __device__ void latent_queries(const struct attention *a, const struct latent_sizes &z,
                                      const struct latent_item *item, __half *q)
{
    const uint32_t width = z.padded + z.rank;
    for (uint32_t i = threadIdx.x; i < S::HEADS * width; i += LATENT_THREADS) {
        const uint32_t head = i / width, d = i % width;
        const bool there = head < item->heads && (d < z.own || d >= z.padded);
        const size_t from =
            ((size_t)item->row * a->head_count + item->head + head) * latent_dims(z);
        const float x = there ? a->q[from + (d < z.own ? d : d - z.padded + z.own)] : 0.0f;
        q[head * latent_q_row(z) + d] = __float2half_rn(attention_clamp(x * a->scale));
    }
}

/* ---- tensor cores ---- */

/* A thread's part of the results: heads lane / 4 and lane / 4 + 8 of the warp's group, and two of
 * each 8 values. */
template <class S> struct latent_state {
    float o[S::EIGHTS][4];
    float most[2], sum[2];
};

/* Scores of 16 heads and 16 tokens: s[n] are tokens 8n to 8n + 7 of the warp's half of the tile. */
static __device__ __forceinline__ void latent_multiply(const struct latent_sizes &z,
                                                       const __half *q, uint8_t *tile,
                                                       uint32_t half, uint32_t first, uint32_t end,
                                                       float (&s)[2][4])
{
    const uint32_t lane = threadIdx.x % 32;
    const __half *row = q + lane % 16 * latent_q_row(z) + lane / 16 * 8;
    for (uint32_t d = first; d < end; d += 16) {
        uint32_t queries[4], keys[4];
        ptx_ldmatrix_x4(queries, row + d);
        ptx_ldmatrix_x4_trans(keys, latent_at(tile, d + lane % 16, 2 * half + lane / 16));
        ptx_mma_f16_16816(s[0], queries, {keys[0], keys[1]});
        ptx_mma_f16_16816(s[1], queries, {keys[2], keys[3]});
    }
}

template <class S>
static __device__ __forceinline__ void
latent_scores(const struct attention *a, const struct latent_sizes &z,
              const struct latent_item *item, const __half *q, uint8_t *tile,
              const float (*scales)[LATENT_TILE], uint32_t half, uint32_t begin, float (&s)[2][4])
{
    float own[2][4] = {}, values[2][4] = {};
    latent_multiply(z, q, tile, half, 0, z.padded, own);
    latent_multiply(z, q, tile, half, z.padded, z.padded + z.rank, values);
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t t = 16 * half + 8 * n + threadIdx.x % 4 * 2 + i % 2;
            s[n][i] = S::FIXED ? fmaf(own[n][i], scales[0][t], values[n][i] * scales[1][t])
                               : own[n][i] + values[n][i];
            if (a->cap != 0)
                s[n][i] = attention_capped(a, s[n][i]);
            if (begin + t < item->first || begin + t >= item->end)
                s[n][i] = LATENT_UNKNOWN;
        }
}

/* Turns scores into weights, adds them to the sums, and writes them (times the scale of V) as
 * f16. */
template <class S>
static __device__ __forceinline__ void latent_weigh(const float (*scales)[LATENT_TILE],
                                                    uint32_t half, const float (&s)[2][4],
                                                    latent_state<S> &state, __half *weights)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float p[2];
            const uint32_t t = 16 * half + 8 * n + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float score = s[n][2 * h + i];
                p[i] = ptx_exp2(score - state.most[h]);
                state.sum[h] += p[i];
                if (S::FIXED)
                    p[i] = score == LATENT_UNKNOWN ? 0 : attention_clamp(p[i] * scales[1][t + i]);
            }
            *(uint32_t *)(weights + (lane / 4 + 8 * h) * LATENT_P_ROW + t) =
                attention_pack(p[0], p[1]);
        }
}

/* o += weights · V, for the warp's values: `count` times 8 from row `first` of the tile on. */
template <class S>
static __device__ __forceinline__ void
latent_values(const __half *weights, uint8_t *tile, uint32_t first, uint32_t count,
              const float (&factor)[2], latent_state<S> &state)
{
    const uint32_t lane = threadIdx.x % 32;
    const __half *row = weights + lane % 16 * LATENT_P_ROW + lane / 16 * 8;
    uint32_t p[2][4];
    ptx_ldmatrix_x4(p[0], row);
    ptx_ldmatrix_x4(p[1], row + 16);
#pragma unroll
    for (int n = 0; n < S::EIGHTS; n++) {
        if (n >= (int)count)
            break;
        uint32_t v[4];
        ptx_ldmatrix_x4(v, latent_at(tile, first + 8 * n + lane % 8, lane / 8));
#pragma unroll
        for (int i = 0; i < 4; i++)
            state.o[n][i] *= factor[i / 2];
        ptx_mma_f16_16816(state.o[n], p[0], {v[0], v[1]});
        ptx_mma_f16_16816(state.o[n], p[1], {v[2], v[3]});
    }
}

/* ---- results ---- */

/* Index of a head in the results, and of part 0 of the head in sums and parts. */
static __device__ __forceinline__ size_t latent_head(const struct attention *a,
                                                     const struct latent_item *item, uint32_t head)
{
    return (size_t)item->row * a->head_count + item->head + head;
}

/* Joins the chunks' results, in their order, if this block is the last of the item's. weights:
 * shared memory, [heads][ATTENTION_LATENT_PARTS]. */
static __device__ void latent_join(const struct attention *a, const struct latent_sizes &z,
                                   const struct latent_item *item, float *weights)
{
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(&a->parts_done[blockIdx.x], 1u) == item->parts - 1;
        if (is_last)
            a->parts_done[blockIdx.x] = 0;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    for (uint32_t h = threadIdx.x; h < item->heads; h += LATENT_THREADS) {
        const float2 *sums = a->sums + latent_head(a, item, h) * z.parts_max;
        float most = -INFINITY, sum = 0;
        for (uint32_t p = 0; p < item->parts; p++)
            most = fmaxf(most, __ldcg(&sums[p].x));
        for (uint32_t p = 0; p < item->parts; p++) {
            const float weight = ptx_exp2(__ldcg(&sums[p].x) - most);
            sum = fmaf(__ldcg(&sums[p].y), weight, sum);
            weights[h * ATTENTION_LATENT_PARTS + p] = weight;
        }
        for (uint32_t p = 0; p < item->parts; p++)
            weights[h * ATTENTION_LATENT_PARTS + p] /= sum;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < item->heads * z.rank; i += LATENT_THREADS) {
        const uint32_t h = i / z.rank, d = i % z.rank;
        const size_t head = latent_head(a, item, h);
        const float *part = a->parts + head * z.parts_max * z.rank + d;
        float o = 0;
        for (uint32_t p = 0; p < item->parts; p++)
            o = fmaf(__ldcg(part + (size_t)p * z.rank), weights[h * ATTENTION_LATENT_PARTS + p], o);
        attention_write(a, head * z.rank + d, o);
    }
}

/* Writes the warp's results, or, if the context is split, the chunk's to scratch memory. `total`:
 * the sums of weights of the thread's two heads; `first`: the warp's first value. */
template <class S>
static __device__ __forceinline__ void
latent_write(const struct attention *a, const struct latent_sizes &z,
             const struct latent_item *item, uint32_t group, uint32_t first, uint32_t count,
             const float (&total)[2], const latent_state<S> &state)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t number = 16 * group + lane / 4 + 8 * h;
        if (number >= item->heads)
            continue;
        const size_t head = latent_head(a, item, number);
        const size_t part = head * z.parts_max + item->part;
        if (item->parts > 1 && first == 0 && lane % 4 == 0)
            a->sums[part] = make_float2(state.most[h], total[h]);
#pragma unroll
        for (int n = 0; n < S::EIGHTS; n++) {
            if (n >= (int)count)
                break;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t d = first + 8 * n + lane % 4 * 2 + i;
                const float o = state.o[n][2 * h + i];
                if (item->parts > 1)
                    a->parts[part * z.rank + d] = o;
                else
                    attention_write(a, head * z.rank + d, o / total[h]);
            }
        }
    }
}

/* ---- the kernels ---- */

template <int DTYPE, int GROUPS>
static __global__ void __launch_bounds__(LATENT_THREADS, 1)
    latent_kernel(const __grid_constant__ struct attention a,
                  const __grid_constant__ struct latent_sizes z)
{
    using S = latent_shape<DTYPE, GROUPS>;
    CUDA_SHARED(uint8_t, memory);
    __shared__ float scales[2][LATENT_TILE], most_of[S::HEADS][2], sum_of[S::HEADS][2];
    const struct latent_memory at = latent_layout<S>(z);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    /* The warp's heads, its half of the tokens for scores, and its values. */
    const uint32_t group = warp / S::SHARERS, half = warp % S::SHARERS;
    const uint32_t share = (z.rank / 8 + S::SHARERS - 1) / S::SHARERS;
    const uint32_t value = half * share * 8;
    const uint32_t count = value < z.rank ? min(share, (z.rank - value) / 8) : 0;
    __half *q = (__half *)memory + 16 * group * latent_q_row(z);
    uint8_t *raw = memory + at.raw, *tile = memory + at.tile;
    __half *weights = (__half *)(memory + at.weights) + 16 * group * LATENT_P_ROW;
    struct latent_item item;
    ptx_launch_dependents();
    ptx_wait_dependency();
    if (!latent_item_of(&a, z, S::HEADS, &item))
        return;
    latent_copy<S>(&a, z, &item, item.begin, raw);
    latent_queries<S>(&a, z, &item, (__half *)memory);
    for (uint32_t i = z.own * LATENT_TILE + threadIdx.x; i < z.padded * LATENT_TILE;
         i += LATENT_THREADS)
        ((__half *)tile)[i] = __float2half_rn(0.0f);
    latent_state<S> state;
#pragma unroll
    for (int n = 0; n < S::EIGHTS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            state.o[n][i] = 0;
    state.most[0] = state.most[1] = -INFINITY;
    state.sum[0] = state.sum[1] = 0;
#pragma unroll 1
    for (uint32_t begin = item.begin; begin < item.end; begin += LATENT_TILE) {
        float s[2][4], factor[2];
        ptx_cp_async_wait<0>();
        __syncthreads(); /* The raw tile is there, and the tile before has been used. */
        latent_tile<S>(z, &item, begin, raw, tile);
        if (S::FIXED)
            latent_scales(&a, &item, begin, S::UNIT, scales);
        __syncthreads();
        if (begin + LATENT_TILE < item.end)
            latent_copy<S>(&a, z, &item, begin + LATENT_TILE, raw);
        if (half < 2) {
            latent_scores<S>(&a, z, &item, q, tile, scales, half, begin, s);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float most =
                    fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
                most = fmaxf(most, __shfl_xor_sync(ATTENTION_ALL_LANES, most, 1));
                most = fmaxf(most, __shfl_xor_sync(ATTENTION_ALL_LANES, most, 2));
                if (lane % 4 == 0)
                    most_of[16 * group + lane / 4 + 8 * h][half] = most;
            }
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float *of = most_of[16 * group + lane / 4 + 8 * h];
            const float most = fmaxf(state.most[h], fmaxf(of[0], of[1]));
            factor[h] = ptx_exp2(state.most[h] - most);
            state.most[h] = most;
            state.sum[h] *= factor[h];
        }
        if (half < 2)
            latent_weigh<S>(scales, half, s, state, weights);
        __syncthreads();
        latent_values<S>(weights, tile, z.padded + value, count, factor, state);
    }
    float total[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        state.sum[h] += __shfl_xor_sync(ATTENTION_ALL_LANES, state.sum[h], 1);
        state.sum[h] += __shfl_xor_sync(ATTENTION_ALL_LANES, state.sum[h], 2);
        if (half < 2 && lane % 4 == 0)
            sum_of[16 * group + lane / 4 + 8 * h][half] = state.sum[h];
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *of = sum_of[16 * group + lane / 4 + 8 * h];
        total[h] = of[0] + of[1];
    }
    latent_write<S>(&a, z, &item, group, value, count, total, state);
    if (item.parts > 1)
        latent_join(&a, z, &item, (float *)memory);
}

/* A warp per head of a row, over a cache in fp32: simple rather than fast. Shared memory: the
 * queries of the block's warps. */
static __global__ void __launch_bounds__(LATENT_THREADS)
    latent_plain(const __grid_constant__ struct attention a,
                 const __grid_constant__ struct latent_sizes z)
{
    CUDA_SHARED(float, queries);
    const uint32_t lane = threadIdx.x % 32, dims = latent_dims(z), tokens = a.block_tokens;
    const size_t head = (size_t)blockIdx.x * (LATENT_THREADS / 32) + threadIdx.x / 32;
    float *q = queries + threadIdx.x / 32 * dims, o[LATENT_RANK / 32] = {};
    float most = -INFINITY, sum = 0;
    ptx_launch_dependents();
    ptx_wait_dependency();
    if (head >= (size_t)a.s.rows * a.head_count)
        return;
    const uint32_t row = (uint32_t)(head / a.head_count), sequence = a.s.row_sequence[row];
    if (sequence >= a.s.sequences) /* Padding. */
        return;
    const uint32_t end = a.s.row_position[row] + 1, first = attention_first(&a, end - 1);
    const uint32_t *table = a.s.blocks + a.s.table_begin[sequence];
    for (uint32_t d = lane; d < dims; d += 32)
        q[d] = a.q[head * dims + d] * a.scale;
    __syncwarp();
    for (uint32_t begin = first; begin < end; begin += 32) {
        const uint32_t token = min(begin + lane, end - 1), count = min(32u, end - begin);
        const float *k =
            (const float *)(a.base + table[token / tokens] * a.block_bytes) + token % tokens;
        float s = 0;
        for (uint32_t d = 0; d < dims; d++)
            s = fmaf(q[d], k[(size_t)d * tokens], s);
        if (a.cap != 0)
            s = attention_capped(&a, s);
        if (lane >= count)
            s = LATENT_UNKNOWN;
        float greatest = fmaxf(most, s);
#pragma unroll
        for (int i = 1; i < 32; i *= 2)
            greatest = fmaxf(greatest, __shfl_xor_sync(ATTENTION_ALL_LANES, greatest, i));
        const float factor = ptx_exp2(most - greatest), p = ptx_exp2(s - greatest);
        most = greatest;
        sum = fmaf(sum, factor, p);
#pragma unroll
        for (int w = 0; w < LATENT_RANK / 32; w++)
            o[w] *= factor;
        for (uint32_t i = 0; i < count; i++) {
            const float weight = __shfl_sync(ATTENTION_ALL_LANES, p, i);
            const float *v =
                (const float *)__shfl_sync(ATTENTION_ALL_LANES, (unsigned long long)k, i);
#pragma unroll
            for (int w = 0; w < LATENT_RANK / 32; w++)
                if (w * 32 < (int)z.rank)
                    o[w] = fmaf(weight, v[(size_t)(z.own + w * 32 + lane) * tokens], o[w]);
        }
    }
#pragma unroll
    for (int i = 1; i < 32; i *= 2)
        sum += __shfl_xor_sync(ATTENTION_ALL_LANES, sum, i);
#pragma unroll
    for (int w = 0; w < LATENT_RANK / 32; w++)
        if (w * 32 < (int)z.rank)
            attention_write(&a, head * z.rank + w * 32 + lane, o[w] / sum);
}

/* ---- launches ---- */

static struct latent_sizes latent_sizes_of(const struct cuda_sequences *s,
                                           const struct compute_kv *kv)
{
    struct latent_sizes z = {};
    /* At least two chunks, as in the shortest context that a step is recorded for (graph.cu):
     * scratch memory that grows drops recordings. */
    const uint32_t tokens = s->context_tokens_max > 2 * ATTENTION_LATENT_CHUNK
                                ? s->context_tokens_max
                                : 2 * ATTENTION_LATENT_CHUNK;
    const uint32_t chunks = (tokens + ATTENTION_LATENT_CHUNK - 1) / ATTENTION_LATENT_CHUNK;
    z.rank = kv->latent;
    z.own = 2 * kv->head_dim - kv->latent;
    z.padded = (z.own + 15) / 16 * 16;
    z.split = s->rows <= ATTENTION_LATENT_ROWS;
    z.parts_max = !z.split ? 1 : chunks < ATTENTION_LATENT_PARTS ? chunks : ATTENTION_LATENT_PARTS;
    return z;
}

/* Most shared memory of a block on the current device. */
static uint32_t latent_shared_max()
{
    static const uint32_t bytes = [] {
        int device = 0, most = 0;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        return (uint32_t)most - 2048; /* For the kernel's own arrays. */
    }();
    return bytes;
}

template <class S> static bool latent_fits(const struct latent_sizes &z)
{
    return latent_layout<S>(z).bytes <= latent_shared_max();
}

template <int DTYPE> static bool latent_wide(const struct latent_sizes &z, uint32_t head_count)
{
    return head_count > 16 && latent_fits<latent_shape<DTYPE, 4>>(z);
}

template <int DTYPE, int GROUPS>
static void latent_launch(cudaStream_t stream, const struct attention *a,
                          const struct latent_sizes &z)
{
    using S = latent_shape<DTYPE, GROUPS>;
    static const cudaError_t once =
        attention_shared(latent_kernel<DTYPE, GROUPS>, (int)latent_shared_max());
    (void)once; /* An error is reported at the launch. */
    const uint32_t tiles = (a->head_count + S::HEADS - 1) / S::HEADS;
    CUDA_LAUNCH_EARLY((latent_kernel<DTYPE, GROUPS>), dim3(a->s.rows * tiles, z.parts_max),
                      dim3(LATENT_THREADS), latent_layout<S>(z).bytes, stream, *a, z);
}

template <int DTYPE>
static void latent_launch_wide(cudaStream_t stream, const struct attention *a,
                               const struct latent_sizes &z)
{
    if (latent_wide<DTYPE>(z, a->head_count))
        latent_launch<DTYPE, 4>(stream, a, z);
    else
        latent_launch<DTYPE, 1>(stream, a, z);
}

bool attention_latent_takes(const struct compute_kv *kv, uint32_t head_count)
{
    const struct cuda_sequences none = {};
    const struct latent_sizes z = latent_sizes_of(&none, kv);
    const bool fits = kv->dtype == COMPUTE_KV_F32  ? true
                      : kv->dtype == COMPUTE_KV_I8 ? latent_fits<latent_shape<COMPUTE_KV_I8, 1>>(z)
                      : kv->dtype == COMPUTE_KV_I16
                          ? latent_fits<latent_shape<COMPUTE_KV_I16, 1>>(z)
                          : latent_fits<latent_shape<COMPUTE_KV_F16, 1>>(z);
    return fits && head_count > 0 && kv->head_count == 1 && z.rank <= LATENT_RANK &&
           z.rank % 32 == 0 && z.own > 0 && z.own <= LATENT_OWN && z.own % 2 == 0 &&
           kv->block_tokens % 8 == 0 && kv->block_bytes % 16 == 0;
}

/* Counters, then sums and parts. The counters have the same place for every batch and stay 0. */
static size_t latent_place(struct attention *a, const struct latent_sizes &z, uint8_t *scratch)
{
    const size_t tiles = (a->head_count + 15) / 16;
    const size_t counters = (ATTENTION_LATENT_ROWS * tiles * sizeof(uint32_t) + 255) / 256 * 256;
    const size_t parts = z.parts_max > 1 ? (size_t)a->s.rows * a->head_count * z.parts_max : 0;
    const size_t sums = (parts * sizeof(float2) + 255) / 256 * 256;
    a->parts_done = (uint32_t *)scratch;
    a->sums = (float2 *)(scratch + counters);
    a->parts = (float *)(scratch + counters + sums);
    return counters + sums + parts * z.rank * sizeof(float);
}

size_t attention_latent_scratch(const struct cuda_sequences *s, const struct compute_kv *kv,
                                uint32_t head_count)
{
    struct attention a = {};
    a.s = *s;
    a.head_count = head_count;
    return latent_place(&a, latent_sizes_of(s, kv), NULL);
}

void attention_latent(cudaStream_t stream, const struct attention *from,
                      const struct compute_kv *kv, void *scratch)
{
    struct attention a = *from;
    const struct latent_sizes z = latent_sizes_of(&a.s, kv);
    assert(a.sinks == NULL);
    latent_place(&a, z, (uint8_t *)scratch);
    const size_t warps = (size_t)a.s.rows * a.head_count, each = LATENT_THREADS / 32;
    switch (kv->dtype) {
    case COMPUTE_KV_F32:
        CUDA_LAUNCH_EARLY(latent_plain, dim3((uint32_t)((warps + each - 1) / each)),
                          dim3(LATENT_THREADS), each * latent_dims(z) * sizeof(float), stream, a,
                          z);
        return;
    case COMPUTE_KV_I16:
        return latent_launch_wide<COMPUTE_KV_I16>(stream, &a, z);
    case COMPUTE_KV_I8:
        return latent_launch_wide<COMPUTE_KV_I8>(stream, &a, z);
    default:
        return latent_launch_wide<COMPUTE_KV_F16>(stream, &a, z);
    }
}
