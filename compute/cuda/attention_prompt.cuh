/* attention_prompt: how a thread block of attention_prompt.cu finds its tile, and how queries, K
 * and V are copied to shared memory as f16. Device code for attention_prompt.cu, which has the
 * kernel and its products. A tile is a run of tokens of one sequence times the query heads that
 * share one KV head; a step is BC tokens of the context. */
#ifndef COMPUTE_CUDA_ATTENTION_PROMPT_CUH
#define COMPUTE_CUDA_ATTENTION_PROMPT_CUH

#include "compute/cuda/attention.cuh"

#define PROMPT_THREADS 128 /* Threads of a block. */

/* Sizes of one variant of the kernel. SPLIT: tiles are split (attention_split.cuh). FIXED: a cache
 * of integers. BC: tokens of a step. ROWS: queries of a tile. MT: groups of 16 queries of a warp.
 * STAGES: steps that are in shared memory at once. */
template <int SHAPE, int HEAD_DIM, int DTYPE, bool IN_PARTS> struct prompt_shape {
    static constexpr bool SPLIT = IN_PARTS;
    static constexpr int DIM = HEAD_DIM;
    static constexpr bool FIXED = DTYPE == COMPUTE_KV_I16 || DTYPE == COMPUTE_KV_I8;
    /* A cache of 8-bit integers: a piece of 16 bytes becomes two pieces of f16. */
    static constexpr bool NARROW = DTYPE == COMPUTE_KV_I8;
    static constexpr int ELEMENT = NARROW ? 1 : 2; /* Bytes of an element. */
    /* Bytes from token to token of K. */
    static constexpr int TOKEN_STEP = FIXED ? 2 * ELEMENT : ELEMENT;
    static constexpr int MT = SHAPE != ATTENTION_SMALL && DIM <= 128 ? 2 : 1;
    static constexpr int BC = SHAPE != ATTENTION_SMALL && DIM <= 128 ? 64 : 32;
    static constexpr int STAGES = SHAPE == ATTENTION_HOPPER ? 2 : 1;
    static constexpr int ROWS = PROMPT_THREADS / 2 * MT;
    static constexpr int GROUPS = BC / 8;   /* Groups of 8 tokens of a step (prompt_place). */
    static constexpr int K_STRIDE = BC + 8; /* In f16 elements. */
    static constexpr int V_STRIDE = DIM + 8;
    static constexpr int K_BYTES = DIM * K_STRIDE * 2;
    static constexpr int V_BYTES = BC * V_STRIDE * 2;
    /* K, V, the scales of K, and the scales of V. */
    static constexpr int STAGE_BYTES = K_BYTES + V_BYTES + 2 * BC * 2;
    static constexpr int Q_BYTES = ROWS * V_STRIDE * 2;
    /* Includes the addresses (prompt_place) of two steps. */
    static constexpr int SHARED = Q_BYTES + STAGES * STAGE_BYTES + 2 * GROUPS * 32;
};

/* ---- which tile ---- */

/* The tile of a thread block. */
struct prompt_tile {
    uint32_t sequence;
    uint32_t first;      /* The tile's first row, counted from the sequence's first row. */
    uint32_t count;      /* Number of rows of the batch in the tile. */
    uint32_t steps;      /* Number of steps of BC tokens up to the last row. */
    uint32_t first_step; /* The first step with a token that a row sees. */
    uint32_t begin;      /* The first such token, rounded down to a multiple of 8. */
};

/* Returns how many of the sequence's tiles need at least `steps` steps of `width` tokens. These are
 * the last tiles of the sequence. */
static __device__ uint32_t prompt_tiles(uint32_t rows, uint32_t first_position, uint32_t per_tile,
                                        uint32_t width, uint32_t steps)
{
    if (rows <= ATTENTION_TOKEN_ROWS)
        return 0;
    /* Number of rows of the sequence up to and including the first one that sees token
     * (steps - 1) * width; below 1 = the first row sees a later token, too. */
    int64_t needed = (int64_t)(steps - 1) * width + 1 - first_position;
    if (needed > rows)
        return 0;
    uint32_t all = (rows + per_tile - 1) / per_tile;
    return needed < 1 ? all : all - (uint32_t)(needed - 1) / per_tile;
}

static __device__ uint32_t prompt_sum(uint32_t x)
{
    for (int i = 16; i > 0; i /= 2)
        x += __shfl_xor_sync(ATTENTION_ALL_LANES, x, i);
    return x;
}

/* Finds tile number `rank` in an order that starts with the tiles with the most steps. Returns
 * false if there are fewer tiles. All warps of a block find the same tile. */
static __device__ bool prompt_find(const struct attention *a, uint32_t rank, uint32_t per_tile,
                                   uint32_t width, struct prompt_tile *out)
{
    const uint32_t lane = threadIdx.x % 32, sequences = a->s.sequences;
    auto tiles_of = [&](uint32_t s, uint32_t steps) {
        return s < sequences
                   ? prompt_tiles(a->s.row_count[s], a->s.first_position[s], per_tile, width, steps)
                   : 0;
    };
    auto tiles = [&](uint32_t steps) {
        uint32_t sum = 0;
        for (uint32_t s = lane; s < sequences; s += 32)
            sum += tiles_of(s, steps);
        return prompt_sum(sum);
    };
    uint32_t low = 1, high = (a->s.context_tokens_max + width - 1) / width + 1, longer = 0;
    if (rank >= tiles(1))
        return false;
    while (high - low > 1) { /* tiles(low) > rank >= tiles(high) */
        uint32_t middle = (low + high) / 2, count = tiles(middle);
        if (count > rank) {
            low = middle;
        } else {
            high = middle;
            longer = count;
        }
    }
    rank -= longer;
    for (uint32_t begin = 0; begin < sequences; begin += 32) {
        uint32_t at_least = tiles_of(begin + lane, low);
        uint32_t here = at_least - tiles_of(begin + lane, low + 1), upto = here;
        for (uint32_t i = 1; i < 32; i *= 2) {
            uint32_t before = __shfl_up_sync(ATTENTION_ALL_LANES, upto, i);
            upto += lane >= i ? before : 0;
        }
        uint32_t found = __ballot_sync(ATTENTION_ALL_LANES, rank < upto);
        if (found != 0) {
            uint32_t owner = __ffs(found) - 1, s = begin + owner, rows = a->s.row_count[s];
            uint32_t skipped = (rows + per_tile - 1) / per_tile - at_least + rank - (upto - here);
            out->sequence = s;
            out->first = __shfl_sync(ATTENTION_ALL_LANES, skipped, owner) * per_tile;
            out->count = min(per_tile, rows - out->first);
            out->steps = low;
            out->begin = attention_first(a, a->s.first_position[s] + out->first) & ~7u;
            out->first_step = out->begin / width;
            return true;
        }
        rank -= __shfl_sync(ATTENTION_ALL_LANES, upto, 31);
    }
    return false; /* Not reached. */
}

/* ---- copies ---- */

/* Addresses of 8 tokens that start at a multiple of 8, and are therefore in one block. */
struct __align__(16) prompt_place
{
    const uint8_t *k, *v, *k_scale, *v_scale;
};

template <class S>
static __device__ __forceinline__ struct prompt_place
prompt_place_at(const struct attention *a, uint32_t block, uint32_t kv_head, uint32_t token)
{
    const uint32_t within = token % a->block_tokens;
    struct prompt_place place;
    place.k_scale = a->base + block * a->block_bytes + kv_head * a->head_bytes + within * 2;
    place.v_scale = place.k_scale + a->block_tokens * 2;
    place.k = place.k_scale - within * 2 + (S::FIXED ? a->block_tokens * 4 : 0);
    place.v =
        place.k + (size_t)S::DIM * a->block_tokens * S::ELEMENT + within * S::DIM * S::ELEMENT;
    place.k += within * S::TOKEN_STEP;
    return place;
}

/* Starts copying the step's K, V and scales. Tokens before `first` (a multiple of 8) and from `end`
 * on become zeros, because their memory may hold NaN or be gone. Exception: a group of 8 tokens (of
 * K and scales) or a pair of tokens (of V of an integer cache) that has a token before `end` is
 * copied whole. Pieces of an integer cache are copied to the place of their later f16 values, so
 * prompt_convert works in place. All threads of the thread block call the function. The caller
 * commits and waits for the copies, and places the barriers. */
template <class S>
static __device__ __forceinline__ void
prompt_copy(const struct attention *a, const struct prompt_place *places, uint8_t *stage,
            uint32_t begin, uint32_t first, uint32_t end)
{
    constexpr uint32_t F = S::FIXED, WARPS = PROMPT_THREADS / 32;
    __half *k = (__half *)stage, *v = (__half *)(stage + S::K_BYTES);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    /* K: two groups per warp. In a cache of f16, two neighbouring lanes read 32 contiguous bytes
     * (one sector): 16 tokens of one dimension. The lanes take the even dimensions of each 8 first,
     * because neighbouring dimensions would write the same banks. */
    constexpr uint32_t SHARE = WARPS / (S::GROUPS / 2); /* Warps that share the groups. */
    const uint32_t group = warp / SHARE * 2 + lane % 2, row = lane / 2;
    const uint32_t d = warp % SHARE * 16 + row / 8 * 8 + row / 4 % 2 + row % 4 * 2;
    const uint32_t row_step = a->block_tokens * S::TOKEN_STEP;
    const uint8_t *from = places[group].k + (d >> F) * row_step + (d & F) * 16;
    const bool there = begin + group * 8 < end && begin + group * 8 >= first;
    k += d * S::K_STRIDE + group * 8;
#pragma unroll
    for (uint32_t i = 0; i < S::DIM / 16 / SHARE; i++) {
        if (!S::NARROW || d % 2 == 0)
            ptx_cp_async_16(k + i * SHARE * 16 * S::K_STRIDE,
                            from + (size_t)(i * (SHARE * 16 >> F) * row_step), there);
    }
    /* V: whole rows. */
    constexpr uint32_t PIECES = S::DIM / 8, TOKENS = S::BC / WARPS;
#pragma unroll
    for (uint32_t i = 0; i < TOKENS * PIECES / 32; i++) {
        const uint32_t at = i * 32 + lane;
        const uint32_t t = 32 % PIECES == 0 ? i * (32 / PIECES) + lane / PIECES : at / PIECES;
        const uint32_t c = 32 % PIECES == 0 ? lane % PIECES : at % PIECES;
        const uint32_t token = warp * TOKENS + t;
        if (!S::NARROW || t % 2 == 0)
            ptx_cp_async_16(v + token * S::V_STRIDE + c * 8,
                            places[token / 8].v + (t % 8 >> F) * (S::DIM * S::TOKEN_STEP) +
                                c * 8 * S::TOKEN_STEP + (t & F) * 16,
                            begin + (token & ~F) < end && begin + token >= first);
    }
    if (S::FIXED && threadIdx.x < 2 * S::GROUPS) { /* Scales of K, then of V. */
        const uint32_t g = threadIdx.x / 2, kind = threadIdx.x % 2;
        ptx_cp_async_16(stage + S::K_BYTES + S::V_BYTES + (kind * S::BC + g * 8) * 2,
                        kind == 0 ? places[g].k_scale : places[g].v_scale,
                        begin + g * 8 < end && begin + g * 8 >= first);
    }
}

/* *first and *second hold 8 pairs of integers; `narrow`: *first alone holds them. Writes to *first,
 * as f16, the first integer of each pair i times first_scale[i * scale_step]. Writes the second
 * integers times second_scale to *second in this way. */
static __device__ __forceinline__ void prompt_split(bool narrow, uint4 *first, uint4 *second,
                                                    const float *first_scale,
                                                    const float *second_scale, int scale_step)
{
    uint4 low = *first, high = narrow ? low : *second;
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    uint32_t a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int x[4];
        if (narrow) {
            const int word = (int)words[i];
            x[0] = word << 24 >> 24, x[1] = word << 16 >> 24;
            x[2] = word << 8 >> 24, x[3] = word >> 24;
        } else {
            const int one = (int)words[2 * i], two = (int)words[2 * i + 1];
            x[0] = one << 16 >> 16, x[1] = one >> 16;
            x[2] = two << 16 >> 16, x[3] = two >> 16;
        }
        const int s = 2 * i * scale_step;
        a[i] =
            attention_pack((float)x[0] * first_scale[s], (float)x[2] * first_scale[s + scale_step]);
        b[i] = attention_pack((float)x[1] * second_scale[s],
                              (float)x[3] * second_scale[s + scale_step]);
    }
    *first = make_uint4(a[0], a[1], a[2], a[3]);
    *second = make_uint4(b[0], b[1], b[2], b[3]);
}

/* Returns scale i, limited so that no integer times the scale exceeds the range of f16. */
static __device__ __forceinline__ float prompt_scale(const __nv_bfloat16 *scales, uint32_t i,
                                                     bool narrow)
{
    const float most = 65504.0f / (narrow ? 127 : 8191), scale = __bfloat162float(scales[i]);
    return scale > most ? most : scale;
}

/* Converts a copied step of integers to f16, in place. All threads of the thread block call the
 * function. The caller places a barrier before and after the call. */
template <class S>
static __device__ void prompt_convert(uint8_t *stage, uint32_t begin, uint32_t end)
{
    __half *k = (__half *)stage, *v = (__half *)(stage + S::K_BYTES);
    const __nv_bfloat16 *scales = (const __nv_bfloat16 *)(stage + S::K_BYTES + S::V_BYTES);
#pragma unroll 1
    for (uint32_t at = threadIdx.x; at < S::DIM / 2 * S::GROUPS; at += PROMPT_THREADS) {
        const uint32_t group = at % S::GROUPS, d = at / S::GROUPS * 2;
        uint4 *row = (uint4 *)(k + d * S::K_STRIDE + group * 8);
        float scale[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            scale[i] = prompt_scale(scales, group * 8 + i, S::NARROW);
        prompt_split(S::NARROW, row, row + S::K_STRIDE / 8, scale, scale, 1);
    }
#pragma unroll 1
    for (uint32_t at = threadIdx.x; at < S::BC / 2 * (S::DIM / 8); at += PROMPT_THREADS) {
        const uint32_t t = at / (S::DIM / 8) * 2, c = at % (S::DIM / 8);
        uint4 *row = (uint4 *)(v + t * S::V_STRIDE + c * 8);
        float scale[2];
#pragma unroll
        for (int i = 0; i < 2; i++) /* The second token of a pair may not be written yet. */
            scale[i] = begin + t + i < end ? prompt_scale(scales + S::BC, t + i, S::NARROW) : 0;
        prompt_split(S::NARROW, row, row + S::V_STRIDE / 8, &scale[0], &scale[1], 0);
    }
}

/* Writes the tile's queries times the scale as f16; zeros for queries that the tile does not
 * have. */
template <class S>
static __device__ void prompt_queries(const struct attention *a, const struct prompt_tile *tile,
                                      uint32_t kv_head, __half *to)
{
    const uint32_t first_row = a->s.first_row[tile->sequence] + tile->first;
    for (uint32_t at = threadIdx.x; at < S::ROWS * (S::DIM / 4); at += PROMPT_THREADS) {
        const uint32_t row = at / (S::DIM / 4), d = at % (S::DIM / 4) * 4;
        const uint32_t position = row / a->group, head = kv_head * a->group + row % a->group;
        float4 x = make_float4(0, 0, 0, 0);
        if (position < tile->count)
            x = *(const float4 *)(a->q +
                                  ((size_t)(first_row + position) * a->head_count + head) * S::DIM +
                                  d);
        uint2 pairs;
        pairs.x = attention_pack(attention_clamp(x.x * a->scale), attention_clamp(x.y * a->scale));
        pairs.y = attention_pack(attention_clamp(x.z * a->scale), attention_clamp(x.w * a->scale));
        *(uint2 *)(to + row * S::V_STRIDE + d) = pairs;
    }
}

/* The queries of a warp as its threads hold them: a thread has queries lane / 4 and lane / 4 + 8 of
 * each 16. A query is one head of one token. */
template <class S> struct prompt_rows {
    float o[S::MT][S::DIM / 8][4];
    float most[S::MT][2];
    float sum[S::MT][2]; /* Sum over this thread's columns. */
    uint32_t position[S::MT][2];
    uint32_t first, last; /* Positions of the warp's first and last query. */
};

template <class S>
static __device__ __forceinline__ void
prompt_begin(const struct attention *a, const struct prompt_tile *tile, prompt_rows<S> &r)
{
    const uint32_t first_position = a->s.first_position[tile->sequence] + tile->first;
    const uint32_t warp_row = threadIdx.x / 32 * 16 * S::MT;
    auto position = [&](uint32_t row) {
        return first_position + min(row / a->group, tile->count - 1);
    };
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            r.position[m][h] = position(warp_row + m * 16 + h * 8 + threadIdx.x % 32 / 4);
            r.most[m][h] = -INFINITY;
            r.sum[m][h] = 0;
        }
    r.first = position(warp_row);
    r.last = position(warp_row + 16 * S::MT - 1);
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                r.o[m][n][i] = 0;
}

template <class S>
static __device__ __forceinline__ void prompt_write(const struct attention *a,
                                                    const struct prompt_tile *tile,
                                                    uint32_t kv_head, const prompt_rows<S> &r)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t first_row = a->s.first_row[tile->sequence] + tile->first;
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = r.sum[m][h];
            sum += __shfl_xor_sync(ATTENTION_ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ATTENTION_ALL_LANES, sum, 2);
            const uint32_t row = threadIdx.x / 32 * 16 * S::MT + m * 16 + h * 8 + lane / 4;
            const uint32_t position = row / a->group, head = kv_head * a->group + row % a->group;
            const float of_sink =
                a->sinks != NULL ? attention_sink(a, head, r.most[m][h], &sum) : 1;
            const float inverse = of_sink / sum;
            if (position >= tile->count)
                continue;
            const size_t at =
                ((size_t)(first_row + position) * a->head_count + head) * S::DIM + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < S::DIM / 8; n++) {
                const float x = r.o[m][n][2 * h] * inverse, y = r.o[m][n][2 * h + 1] * inverse;
                if (a->out != NULL)
                    *(__nv_bfloat162 *)(a->out + at + n * 8) = __floats2bfloat162_rn(x, y);
                if (a->out_f32 != NULL)
                    *(float2 *)(a->out_f32 + at + n * 8) = make_float2(x, y);
            }
        }
}

#endif
