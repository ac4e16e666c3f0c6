/* attention_token: attention for sequences with few rows in a batch: decode steps. Plain reference:
 * attention_typed and attention_part of compute/cpu; tests/gpu/test_attention compares.
 *
 * Flash-decoding (Dao et al. 2023): the context of a row is split into chunks of 256 tokens (more
 * where there would be over 128 chunks). Each chunk, per KV head and 8 heads that share it, is a
 * work item for a thread block of 4 warps. How a context is split depends only on its own length,
 * and warps and chunks are joined in their order, so a row's bits do not depend on the batch. The
 * block that finishes the last chunk of a row joins them (it is found by a counter, which it resets
 * to 0). As many blocks as the device runs at once take items in turn. They read from the device
 * which items there are, so the shape of a launch depends only on rows and context_tokens_max, and
 * short rows beside a long one cost nothing.
 *
 * Each thread copies, by cp.async, exactly the 16-byte pieces that it will need as A operands, into
 * its own ring in shared memory (56 KiB per block, 3 blocks per multiprocessor on Hopper): no
 * barriers and no bank conflicts, 6 of 7 units in flight, 12 KiB per warp. f16 K and V have the
 * pair along the sum in different rows: byte permutations join them. Integers are stored in pairs
 * already and become f16 in three or five operations per pair.
 *
 * Bound: reading KV once. An H200 is reported to read about 4.3 TB/s (a copy); 12 warps of 12 KiB
 * have 144 KiB in flight per multiprocessor, 19 MB in all, where 4.8 TB/s times 1 us are 5 MB. A
 * tile of 64 tokens, 128 dimensions, f16, is 32 KiB and takes 64 mma, 256 byte permutations, 64
 * shared loads and about 400 other instructions of a warp: 1 k issue slots on 4 schedulers, while a
 * multiprocessor needs 1.8 k cycles to read the tile at its share of the bandwidth. So memory
 * should be the limit for any number of heads per KV head. Partial results are 2 % of the KV read
 * (group 4), in the L2 cache. Nothing here was measured. */
#include "compute/cuda/attention_plain.cuh"

/* ---- items ---- */

/* A row's work: tokens [begin, end), and how many make a chunk. */
struct token_row {
    uint32_t first; /* The first token that the row sees. */
    uint32_t begin; /* `first`, rounded down to a multiple of 8. */
    uint32_t end;   /* 0 = the row is not for this kernel. */
    uint32_t chunk;
    uint32_t chunks;
};

static __device__ struct token_row token_row_of(const struct attention *a, uint32_t row, bool all)
{
    struct token_row r = {0, 0, 0, 0, 0};
    const uint32_t sequence = row < a->s.rows ? a->s.row_sequence[row] : a->s.sequences;
    const uint32_t rows = sequence < a->s.sequences ? a->s.row_count[sequence] : 0;
    if (rows == 0 || (!all && rows > ATTENTION_TOKEN_ROWS))
        return r;
    r.first = attention_first(a, a->s.row_position[row]);
    r.begin = r.first & ~7u;
    r.end = a->s.row_position[row] + 1;
    const uint32_t context = r.end - r.begin;
    r.chunk = ATTENTION_CHUNK;
    while ((context + r.chunk - 1) / r.chunk > ATTENTION_CHUNKS_MAX)
        r.chunk *= 2;
    /* There are enough rows without splitting, and scratch memory has no place for their parts. */
    if (rows > ATTENTION_TOKEN_ROWS)
        r.chunk = context;
    r.chunks = (context + r.chunk - 1) / r.chunk;
    return r;
}

/* Computes before[thread]: the chunks of the rows before the thread's share of rows. Returns the
 * number of all chunks. */
static __device__ uint32_t token_count(const struct attention *a, bool all, uint32_t share,
                                       uint32_t *before, uint32_t (&of_warps)[TOKEN_WARPS])
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t mine = 0, total = 0;
    for (uint32_t i = 0; i < share; i++)
        mine += token_row_of(a, threadIdx.x * share + i, all).chunks;
    uint32_t upto = mine;
    for (uint32_t step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(ATTENTION_ALL_LANES, upto, step);
        upto += lane >= step ? other : 0;
    }
    if (lane == 31)
        of_warps[warp] = upto;
    __syncthreads();
    for (uint32_t w = 0; w < TOKEN_WARPS; w++) {
        upto += w < warp ? of_warps[w] : 0;
        total += of_warps[w];
    }
    before[threadIdx.x] = upto - mine;
    __syncthreads();
    return total;
}

/* Finds item `number`: items are numbered by KV head first, then chunk, then row. Called by one
 * warp. */
static __device__ void token_find(const struct attention *a, bool all, uint32_t share,
                                  const uint32_t *before, uint32_t number, struct token_item *out)
{
    const uint32_t per_kv = attention_tiles_per_kv(a->group), tiles = a->kv_heads * per_kv;
    const uint32_t tile = number % tiles, lane = threadIdx.x % 32;
    uint32_t chunk = number / tiles, shares = 0; /* Shares that begin at or before the chunk. */
    for (uint32_t i = lane; i < TOKEN_THREADS; i += 32)
        shares += __popc(__ballot_sync(ATTENTION_ALL_LANES, before[i] <= chunk));
    chunk -= before[shares - 1];
    struct token_item item;
    struct token_row row;
    for (item.row = (shares - 1) * share;; item.row++) {
        row = token_row_of(a, item.row, all);
        if (chunk < row.chunks)
            break;
        chunk -= row.chunks;
    }
    const uint32_t sequence = a->s.row_sequence[item.row];
    item.slot = a->slots < a->s.rows
                    ? sequence * ATTENTION_TOKEN_ROWS + item.row - a->s.first_row[sequence]
                    : item.row;
    item.kv_head = tile / per_kv;
    item.first_head = item.kv_head * a->group + tile % per_kv * TOKEN_HEADS;
    item.heads = min((uint32_t)TOKEN_HEADS, a->group - tile % per_kv * TOKEN_HEADS);
    item.table = a->s.table_begin[sequence];
    item.first = row.first;
    item.begin = row.begin + chunk * row.chunk;
    item.end = min(row.end, item.begin + row.chunk);
    item.chunk = chunk;
    item.chunks = row.chunks;
    if (lane == 0)
        *out = item;
}

/* ---- joining ---- */

/* Index of chunk 0 of a row's head in parts and sums. */
static __device__ size_t token_part(const struct attention *a, const struct token_item *item,
                                    uint32_t head)
{
    return ((size_t)item->slot * a->head_count + item->first_head + head) * a->chunks_max;
}

/* Joins the warps' results, in their order, into the row's result, or into the chunk's result in
 * scratch memory. */
template <class S>
static __device__ void
token_join_warps(const struct attention *a, const struct token_item *item, const uint8_t *memory,
                 const struct token_sums (*sums)[TOKEN_HEADS], float (*factors)[TOKEN_HEADS])
{
    constexpr uint32_t STEP = S::PLAIN ? 32 : TOKEN_TILE;
    const uint32_t warps = min((uint32_t)TOKEN_WARPS, (item->end - item->begin + STEP - 1) / STEP);
    const uint32_t head = threadIdx.x;
    if (head < item->heads) {
        float most = sums[0][head].most, sum = 0;
        for (uint32_t w = 1; w < warps; w++)
            most = fmaxf(most, sums[w][head].most);
        for (uint32_t w = 0; w < warps; w++) {
            factors[w][head] = ptx_exp2(sums[w][head].most - most);
            sum += sums[w][head].sum * factors[w][head];
        }
        if (item->chunks == 1) {
            const float of_sink =
                a->sinks != NULL ? attention_sink(a, item->first_head + head, most, &sum) : 1;
            for (uint32_t w = 0; w < warps; w++)
                factors[w][head] *= of_sink / sum;
        } else {
            a->sums[token_part(a, item, head) + item->chunk] = make_float2(most, sum);
        }
    }
    __syncthreads();
    for (uint32_t at = threadIdx.x; at < item->heads * S::DIM; at += TOKEN_THREADS) {
        const uint32_t h = at / S::DIM, d = at % S::DIM;
        float o = 0;
        for (uint32_t w = 0; w < warps; w++)
            o = fmaf(((const float *)(memory + w * S::WARP_BYTES + S::RESULT))[at], factors[w][h],
                     o);
        if (item->chunks == 1)
            attention_write(
                a, ((size_t)item->row * a->head_count + item->first_head + h) * S::DIM + d, o);
        else
            a->parts[(token_part(a, item, h) + item->chunk) * S::DIM + d] = o;
    }
}

/* Joins the chunks' results, in their order, into the row's result. `weights`:
 * [head][ATTENTION_CHUNKS_MAX]. */
template <class S>
static __device__ void token_join_chunks(const struct attention *a, const struct token_item *item,
                                         float *weights)
{
    constexpr uint32_t SHARE = TOKEN_THREADS / TOKEN_HEADS; /* Threads per head. */
    const uint32_t head = threadIdx.x / SHARE;
    const bool there = head < item->heads;
    const float2 *sums = a->sums + token_part(a, item, there ? head : 0);
    float most = -INFINITY, sum = 0;
    for (uint32_t c = threadIdx.x % SHARE; c < item->chunks; c += SHARE)
        most = fmaxf(most, __ldcg(&sums[c].x));
    for (uint32_t i = 1; i < SHARE; i *= 2)
        most = fmaxf(most, __shfl_xor_sync(ATTENTION_ALL_LANES, most, i));
    for (uint32_t c = threadIdx.x % SHARE; c < item->chunks; c += SHARE) {
        const float weight = ptx_exp2(__ldcg(&sums[c].x) - most);
        sum = fmaf(__ldcg(&sums[c].y), weight, sum);
        weights[head * ATTENTION_CHUNKS_MAX + c] = weight;
    }
    for (uint32_t i = 1; i < SHARE; i *= 2)
        sum += __shfl_xor_sync(ATTENTION_ALL_LANES, sum, i);
    const float of_sink =
        a->sinks != NULL && there ? attention_sink(a, item->first_head + head, most, &sum) : 1;
    for (uint32_t c = threadIdx.x % SHARE; c < item->chunks; c += SHARE)
        weights[head * ATTENTION_CHUNKS_MAX + c] *= of_sink / sum;
    __syncthreads();
    for (uint32_t at = threadIdx.x; at < item->heads * S::DIM; at += TOKEN_THREADS) {
        const uint32_t h = at / S::DIM, d = at % S::DIM;
        const float *part = a->parts + token_part(a, item, h) * S::DIM + d;
        float o = 0;
#pragma unroll 8
        for (uint32_t c = 0; c < item->chunks; c++)
            o = fmaf(__ldcg(part + (size_t)c * S::DIM), weights[h * ATTENTION_CHUNKS_MAX + c], o);
        attention_write(a, ((size_t)item->row * a->head_count + item->first_head + h) * S::DIM + d,
                        o);
    }
}

/* ---- the kernel ---- */

/* Blocks of 57 KiB that fit in a multiprocessor's shared memory. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && __CUDA_ARCH__ / 100 != 9 &&                  \
    __CUDA_ARCH__ / 100 != 10
#define TOKEN_BLOCKS 1
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 800
#define TOKEN_BLOCKS 2
#else
#define TOKEN_BLOCKS 3
#endif

template <int DIM, int DTYPE>
static __global__ void __launch_bounds__(TOKEN_THREADS, DIM <= 128 ? TOKEN_BLOCKS : 1)
    token_kernel(const __grid_constant__ struct attention a, bool all)
{
    using S = token_shape<DIM, DTYPE>;
    CUDA_SHARED(uint8_t, memory);
    __shared__ uint32_t before[TOKEN_THREADS], of_warps[TOKEN_WARPS];
    __shared__ struct token_sums sums[TOKEN_WARPS][TOKEN_HEADS];
    __shared__ float factors[TOKEN_WARPS][TOKEN_HEADS];
    __shared__ struct token_item item;
    /* In shared memory, because all registers are needed in between. */
    __shared__ uint32_t items, number;
    __shared__ bool is_last;
    ptx_launch_dependents();
    ptx_wait_dependency();
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t share = (a.s.rows + TOKEN_THREADS - 1) / TOKEN_THREADS;
    const uint32_t per_kv = attention_tiles_per_kv(a.group);
    const uint32_t chunks = token_count(&a, all, share, before, of_warps);
    if (threadIdx.x == 0) {
        items = chunks * a.kv_heads * per_kv;
        number = blockIdx.x;
    }
    __syncthreads();
#pragma unroll 1
    while (number < items) {
        if (warp == 0)
            token_find(&a, all, share, before, number, &item);
        __syncthreads();
        if constexpr (S::PLAIN) {
            float *q = (float *)(memory + TOKEN_WARPS * S::WARP_BYTES);
            token_plain_query<S>(&a, &item, q);
            __syncthreads();
            if (item.begin + warp * 32 < item.end)
                token_plain<S>(&a, &item, q, memory + warp * S::WARP_BYTES, sums[warp]);
        } else {
            if (item.begin + warp * TOKEN_TILE < item.end)
                token_tensor<S>(&a, &item, memory + warp * S::WARP_BYTES, sums[warp]);
        }
        __syncthreads();
        token_join_warps<S>(&a, &item, memory, sums, factors);
        if (item.chunks > 1) {
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) {
                uint32_t *parts_done =
                    &a.parts_done[item.slot * a.kv_heads * per_kv + number % (a.kv_heads * per_kv)];
                is_last = atomicAdd(parts_done, 1u) == item.chunks - 1;
                if (is_last)
                    *parts_done = 0;
                __threadfence();
            }
            __syncthreads();
            if (is_last)
                token_join_chunks<S>(&a, &item, (float *)memory);
        }
        __syncthreads(); /* Shared memory is free for the next item. */
        if (threadIdx.x == 0)
            number += gridDim.x;
        __syncthreads();
    }
}

/* ---- launches ---- */

static uint32_t token_multiprocessors()
{
    static const uint32_t count = [] {
        int device = 0, multiprocessors = 1;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
        return (uint32_t)multiprocessors;
    }();
    return count;
}

template <int DIM, int DTYPE>
static void token_launch(cudaStream_t stream, const struct attention *a, bool all)
{
    using S = token_shape<DIM, DTYPE>;
    static const cudaError_t once = attention_shared(token_kernel<DIM, DTYPE>, S::SHARED);
    (void)once; /* An error is reported at the launch. */
    /* A row of a long sequence is one item. */
    const size_t items =
        (size_t)a->s.rows * a->chunks_max * a->kv_heads * attention_tiles_per_kv(a->group);
    const size_t blocks = (size_t)token_multiprocessors() * 3;
    CUDA_LAUNCH_EARLY((token_kernel<DIM, DTYPE>), dim3((uint32_t)(items < blocks ? items : blocks)),
                      dim3(TOKEN_THREADS), S::SHARED, stream, *a, all);
}

template <int DIM>
static void token_launch_dtype(cudaStream_t stream, const struct attention *a, bool all)
{
    switch (a->dtype) {
    case COMPUTE_KV_F32:
        return token_launch<DIM, COMPUTE_KV_F32>(stream, a, all);
    case COMPUTE_KV_I16:
        return token_launch<DIM, COMPUTE_KV_I16>(stream, a, all);
    case COMPUTE_KV_I8:
        return token_launch<DIM, COMPUTE_KV_I8>(stream, a, all);
    default:
        return token_launch<DIM, COMPUTE_KV_F16>(stream, a, all);
    }
}

void attention_token(cudaStream_t stream, const struct attention *a, uint32_t head_dim, bool all)
{
    switch (head_dim) {
    case 64:
        return token_launch_dtype<64>(stream, a, all);
    case 80:
        return token_launch_dtype<80>(stream, a, all);
    case 96:
        return token_launch_dtype<96>(stream, a, all);
    case 128:
        return token_launch_dtype<128>(stream, a, all);
    default:
        return token_launch_dtype<256>(stream, a, all);
    }
}
