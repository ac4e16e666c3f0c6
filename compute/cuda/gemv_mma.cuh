/* gemv_mma: products of a few rows on tensor cores (mma.sync m16n8k16, bf16, fp32 sums): the
 * kernel, and gemv_typed, which queues the kernel for one type of weights. Included by gemv_mma.cu,
 * gemv_mma_f8.cu and gemv_mma_quantised.cu; each defines stage_multiply for its types of weights.
 * The functions run on the thread that computes (compute.h), allocate nothing, keep no state, and
 * do not wait for the device. gemv_mma.cu says why the kernel is made this way.
 *
 * MT and NT are the numbers of mma tiles that a block works on together: 16 · MT rows of W, and 8 ·
 * NT rows of activations. Below, a "tile" is 16 · MT rows of W. Tiles are distributed over the
 * blocks. In a tile, the 8 warps of a block divide the columns: step s belongs to warp s % 8, and
 * the warps' sums are added in the order of the warps at the end. A step is the columns whose
 * quants or elements take 128 bytes of a row (without the high bits of quants). So the order of a
 * sum depends only on the type and the columns.
 *
 * A lane with g = lane / 4 and t = lane % 4 has rows g and g + 8 of each 16 rows of W, and row g of
 * each 8 rows of activations. Of these rows and of each group of 32 columns, the lane has 8
 * elements: the first four are operands of one mma, the last four of another. An mma may take any
 * columns together if W and the activations have the same columns in the same places. So each lane
 * has the elements that lie together in memory, and lanes exchange nothing. The 8 elements are 8t …
 * 8t + 7, but 4t … 4t + 3 and 16 + 4t … 16 + 4t + 3 for types with scales per 16 columns
 * (weights.cuh). For F8_E4M3, a lane has the 16 elements from 16t on of each 64 columns
 * (gemv_mma_f8.cu). */
#ifndef COMPUTE_CUDA_GEMV_MMA_CUH
#define COMPUTE_CUDA_GEMV_MMA_CUH

#include "compute/cuda/gemv.cuh"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/ptx.cuh"
#include "compute/cuda/weights.cuh"

#include <string.h>

namespace
{
constexpr uint32_t WARPS = 8; /* Warps of a block. */
constexpr uint32_t THREADS = WARPS * 32;
constexpr uint32_t LINE = 128; /* Bytes of a row in a step, without high bits and scales. */

/* Contents of a stage: one step of 16 · MT rows. */
template <enum compute_type TYPE, uint32_t MT> struct stage {
    static constexpr uint32_t COLS = TYPE == COMPUTE_Q8_0 || TYPE == COMPUTE_F8_E4M3 ? 128
                                     : weights_float(TYPE)                           ? 64
                                                                                     : WEIGHTS_STEP;
    /* Units of a step: a unit has 128 columns, or 64 if a step has only 64. */
    static constexpr uint32_t UNITS = COLS == WEIGHTS_STEP ? 2 : 1;
    static constexpr uint32_t ROWS = 16 * MT;
    /* Bytes from step to step in a row of W: LINE and the high bits. */
    static constexpr uint32_t ROW_STEP = weights_float(TYPE)    ? LINE
                                         : TYPE == COMPUTE_Q8_0 ? LINE
                                                                : weights_step_bytes(TYPE);
    static constexpr uint32_t HIGH_BYTES = weights_high_bits(TYPE) * 32; /* Bytes per row. */
    static constexpr uint32_t SCALE_BYTES = weights_float(TYPE)    ? 0
                                            : TYPE == COMPUTE_Q8_0 ? 8
                                                                   : weights_scale_bytes(TYPE);
    /* Bytes per row of a K-quant's pair of f16 factors (of the scales and of the minima), or of the
     * scale of F8_E4M3. */
    static constexpr uint32_t SUPER_BYTES = weights_super(TYPE) || TYPE == COMPUTE_F8_E4M3 ? 4 : 0;
    /* Offsets in the stage of the high bits, the scales, and the bytes that SUPER_BYTES counts. The
     * LINE bytes of all rows begin at 0. */
    static constexpr uint32_t HIGH = ROWS * LINE;
    static constexpr uint32_t SCALES = HIGH + ROWS * HIGH_BYTES;
    static constexpr uint32_t SUPER = SCALES + ROWS * SCALE_BYTES;
    static constexpr uint32_t BYTES = (SUPER + ROWS * SUPER_BYTES + 15) / 16 * 16;
    static constexpr uint32_t COUNT = MT == 1 ? 3 : 2; /* Stages per warp. */
    /* Blocks per multiprocessor that registers and shared memory allow. */
    static constexpr uint32_t BLOCKS = MT == 2 && weights_halves(TYPE)                       ? 1
                                       : MT == 2 || weights_min(TYPE) || weights_super(TYPE) ? 2
                                                                                             : 3;
};

/* Returns the offset in a stage of a chunk: 16 of the LINE bytes of a row. In odd rows, the first
 * four and the last four chunks have changed places, so that 8 lanes use each bank of shared memory
 * once. */
__device__ __forceinline__ uint32_t line_at(uint32_t row, uint32_t chunk)
{
    return row * LINE + (chunk ^ (row % 2 * 4)) * 16;
}

/* Where a warp's next stage is read from. */
template <uint32_t MT> struct source {
    uint32_t tile = 0, step = 0;
    uint32_t lines[4]{}; /* With MT 1: offsets of the lane's chunks from the tile's first row. */
    uint32_t last = 0;   /* W's last row, counted from the tile's first; may be beyond the tile. */
    /* quants: of the tile's first row. scales: of the tile's first row; for F8_E4M3, of the tile's
     * row `lane`. */
    const uint8_t *quants = nullptr, *scales = nullptr;
};

/* Returns the index in the set of the matrix that has the tile. */
__device__ __forceinline__ uint32_t matrix_of(const struct gemv_set &set, uint32_t tile)
{
    uint32_t i = 0;
    while (i + 1 < set.count && tile >= set.first_tile[i + 1])
        i++;
    return i;
}

/* Returns the offset, from the tile's first row, of the ith chunk that this lane copies. For each
 * i, the 32 lanes of a warp copy the 8 chunks of each of 4 rows. Rows after row `last` are replaced
 * by row `last`. */
__device__ __forceinline__ uint32_t line_from(uint32_t last, uint32_t i, uint32_t row_bytes)
{
    return min(4 * i + threadIdx.x % 32 / 8, last) * row_bytes + threadIdx.x % 8 * 16;
}

/* Sets the fields that depend on the tile `from.tile`; no effect after the last tile. */
template <enum compute_type TYPE, uint32_t MT>
__device__ __forceinline__ void source_tile(struct source<MT> &from, const struct gemv_set &set)
{
    if (from.tile >= set.first_tile[set.count])
        return;
    const uint32_t i = matrix_of(set, from.tile);
    const uint32_t first = (from.tile - set.first_tile[i]) * 16 * MT;
    const struct cuda_weights &w = set.w[i];
    from.last = w.rows - 1 - first;
    /* row_bytes is the same for all matrices of the set. */
    from.quants = w.quants + first * w.row_bytes;
    if constexpr (TYPE == COMPUTE_F8_E4M3)
        from.scales =
            w.scales +
            ((size_t)(w.scale_first + first + min(threadIdx.x % 32, from.last)) >> w.scale_shift) *
                w.scale_row_bytes;
    else
        from.scales = w.scales + first * w.scale_row_bytes;
#pragma unroll
    for (uint32_t i = 0; i < 4 && MT == 1; i++)
        from.lines[i] = line_from(from.last, i, (uint32_t)w.row_bytes);
}

/* Starts copying the next stage to `to`, if there is a next stage, and advances `from`. Commits a
 * group of copies in any case. Rows beyond the end of W repeat the last row; their results are not
 * stored. steps: the steps of a row. */
template <enum compute_type TYPE, uint32_t MT>
__device__ __forceinline__ void source_next(struct source<MT> &from, const struct gemv_set &set,
                                            uint32_t steps, uint8_t *to)
{
    using S = stage<TYPE, MT>;
    const uint32_t lane = threadIdx.x % 32;
    const size_t row_bytes = set.w[0].row_bytes, scale_row_bytes = set.w[0].scale_row_bytes;
    if (from.tile < set.first_tile[set.count]) {
        const size_t at = (size_t)from.step * S::ROW_STEP;
        const uint8_t *line = from.quants + at;
        const bool there = !weights_float(TYPE) || at + lane % 8 * 16 < row_bytes;
#pragma unroll
        for (uint32_t i = 0; i < 4 * MT; i++) {
            const uint32_t offset =
                MT == 1 ? from.lines[i % 4] : line_from(from.last, i, (uint32_t)row_bytes);
            ptx_cp_async_16(to + line_at(4 * i + lane / 8, lane % 8),
                            there ? line + offset : from.quants, there);
        }
        if constexpr (S::HIGH_BYTES != 0) { /* [unit][row][high bit of a quant][16 bytes] */
            constexpr uint32_t CHUNKS = S::HIGH_BYTES / 16;
#pragma unroll
            for (uint32_t i = 0; i < S::ROWS * CHUNKS / 32; i++) {
                const uint32_t row = (i * 32 + lane) / CHUNKS, chunk = lane % CHUNKS;
                const uint32_t unit = chunk / (CHUNKS / 2), part = chunk % (CHUNKS / 2);
                ptx_cp_async_16(
                    to + S::HIGH + (unit * S::ROWS + row) * (S::HIGH_BYTES / 2) + part * 16,
                    from.quants + min(row, from.last) * row_bytes + at + LINE + chunk * 16);
            }
        }
        const uint8_t *scales = from.scales + (size_t)from.step * S::SCALE_BYTES;
        if constexpr (S::SCALE_BYTES == 8) { /* [row][8] */
#pragma unroll
            for (uint32_t i = 0; i < MT; i++) {
                const uint32_t row = i * 16 + lane / 2, four = lane % 2;
                ptx_cp_async_4(to + S::SCALES + row * 8 + four * 4,
                               scales + min(row, from.last) * scale_row_bytes + four * 4);
            }
        } else if constexpr (S::SCALE_BYTES == 16) { /* [row][16] */
            if (lane < S::ROWS)
                ptx_cp_async_16(to + S::SCALES + lane * 16,
                                scales + min(lane, from.last) * scale_row_bytes);
        } else if constexpr (S::SCALE_BYTES == 32) { /* [unit][row][16] */
#pragma unroll
            for (uint32_t i = 0; i < MT; i++) {
                const uint32_t row = i * 16 + lane / 2, unit = lane % 2;
                ptx_cp_async_16(to + S::SCALES + (unit * S::ROWS + row) * 16,
                                scales + min(row, from.last) * scale_row_bytes + unit * 16);
            }
        }
        if (TYPE == COMPUTE_F8_E4M3 && lane < S::ROWS)
            ptx_cp_async_4(to + S::SUPER + lane * 4,
                           from.scales + (set.w[0].scale_shift != 0 ? from.step * 4 : 0));
        else if (S::SUPER_BYTES != 0 && lane < S::ROWS)
            ptx_cp_async_4(to + S::SUPER + lane * 4,
                           from.scales + min(lane, from.last) * scale_row_bytes +
                               (size_t)steps * 16 + (size_t)from.step * 4);
        from.step += WARPS;
        if (from.step >= steps) {
            from.step = threadIdx.x / 32;
            from.tile += gridDim.x;
            source_tile<TYPE, MT>(from, set);
        }
    }
    ptx_cp_async_commit();
}

__device__ __forceinline__ uint4 shared16(const uint8_t *at)
{
    return *reinterpret_cast<const uint4 *>(at);
}

/* Loads a lane's 8 elements of the group of 32 columns that begins at `col`, as operands of two
 * mma. Elements beyond the row's end, and of rows that do not exist, are 0. */
template <enum compute_type TYPE>
__device__ __forceinline__ void input_load(const struct gemv_input &in, uint32_t row, uint32_t cols,
                                           uint32_t col, uint32_t (&b)[2][2])
{
    const uint32_t first = col + weights_column(TYPE, threadIdx.x % 4, 0);
    const bool there = row < in.rows && first < cols;
    const __nv_bfloat16 *at = in.a + (there ? (size_t)row * cols + first : 0);
    uint4 eight = make_uint4(0, 0, 0, 0);
    if constexpr (weights_halves(TYPE)) {
        const uint2 *fours = reinterpret_cast<const uint2 *>(at);
        const uint2 x = there ? fours[0] : make_uint2(0, 0), y = there ? fours[4] : x;
        eight = make_uint4(x.x, x.y, y.x, y.y);
    } else if (there) {
        eight = *reinterpret_cast<const uint4 *>(at);
    }
    b[0][0] = eight.x, b[0][1] = eight.y, b[1][0] = eight.z, b[1][1] = eight.w;
}

template <uint32_t MT, uint32_t NT> using sums = float[MT][NT][4];

/* Adds the products of the stage at `from` to acc. col: the stage's first column. Each file that
 * includes this header defines the function. */
template <enum compute_type TYPE, uint32_t MT, uint32_t NT>
__device__ __forceinline__ void stage_multiply(const uint8_t *from, const struct gemv_set &set,
                                               const struct gemv_input &in, uint32_t col,
                                               sums<MT, NT> &acc);

/* Adds up one tile's sums of all warps, in the order of the warps, and writes y. `shared`: memory
 * of finish_bytes bytes. */
template <uint32_t MT, uint32_t NT>
__device__ __forceinline__ void tile_finish(const struct gemv_set &set, uint32_t tile,
                                            uint32_t rows, const sums<MT, NT> &acc, float *shared)
{
    constexpr uint32_t STRIDE = 16 * MT + 4; /* The lanes of a fragment use each bank once. */
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    __syncthreads(); /* The tile before has been read. */
#pragma unroll
    for (uint32_t m = 0; m < MT; m++)
#pragma unroll
        for (uint32_t n = 0; n < NT; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                shared[(warp * 8 * NT + 8 * n + 2 * t + i % 2) * STRIDE + 16 * m + g + i / 2 * 8] =
                    acc[m][n][i];
    __syncthreads();
    const uint32_t matrix = matrix_of(set, tile);
    const uint32_t first = (tile - set.first_tile[matrix]) * 16 * MT;
    for (uint32_t i = threadIdx.x; i < 16 * MT * rows; i += THREADS) {
        const uint32_t weight_row = i % (16 * MT), row = i / (16 * MT);
        float sum = 0;
#pragma unroll
        for (uint32_t w = 0; w < WARPS; w++)
            sum += shared[(w * 8 * NT + row) * STRIDE + weight_row];
        if (first + weight_row < set.w[matrix].rows)
            gemv_put(set, matrix, row, first + weight_row, sum);
    }
}

template <uint32_t MT, uint32_t NT> constexpr __host__ __device__ uint32_t finish_bytes()
{
    return WARPS * 8 * NT * (16 * MT + 4) * sizeof(float);
}

template <enum compute_type TYPE, uint32_t MT, uint32_t NT> constexpr uint32_t shared_bytes()
{
    return WARPS * stage<TYPE, MT>::COUNT * stage<TYPE, MT>::BYTES + finish_bytes<MT, NT>();
}

template <enum compute_type TYPE, uint32_t MT, uint32_t NT>
__global__ void __launch_bounds__(THREADS, stage<TYPE, MT>::BLOCKS)
    multiply_mma(const struct gemv_set set, const struct gemv_input in)
{
    using S = stage<TYPE, MT>;
    CUDA_SHARED(uint8_t, shared);
    const uint32_t warp = threadIdx.x / 32, steps = (set.cols + S::COLS - 1) / S::COLS;
    float *finish = reinterpret_cast<float *>(shared);
    uint8_t *stages = shared + finish_bytes<MT, NT>() + warp * S::COUNT * S::BYTES;
    struct source<MT> from;
    from.tile = warp < steps ? blockIdx.x : set.first_tile[set.count];
    from.step = warp;
    source_tile<TYPE, MT>(from, set);
    for (uint32_t i = 0; i < S::COUNT; i++)
        source_next<TYPE, MT>(from, set, steps, stages + i * S::BYTES);
    /* The weights are loading while the kernel before this one still computes the activations. */
    ptx_launch_dependents();
    ptx_wait_dependency();
    uint32_t slot = 0;
    for (uint32_t tile = blockIdx.x; tile < set.first_tile[set.count]; tile += gridDim.x) {
        sums<MT, NT> acc = {};
        for (uint32_t step = warp; step < steps; step += WARPS) {
            uint8_t *here = stages + slot * S::BYTES;
            ptx_cp_async_wait<S::COUNT - 1>();
            __syncwarp(); /* The copies of the other lanes have arrived too. */
            stage_multiply<TYPE, MT, NT>(here, set, in, step * S::COLS, acc);
            __syncwarp(); /* All lanes have read the stage. */
            source_next<TYPE, MT>(from, set, steps, here);
            slot = slot + 1 == S::COUNT ? 0 : slot + 1;
        }
        tile_finish<MT, NT>(set, tile, in.rows, acc, finish);
    }
}

/* What a launch needs to know about the device. */
struct device_limits {
    int multiprocessors, shared_bytes_max;
};

inline struct device_limits device_limits()
{
    struct device_limits limits = {1, 49152};
    int device = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&limits.multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&limits.shared_bytes_max, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                           device);
    return limits;
}

/* Returns true if the device allows the shared memory that a block needs. */
template <enum compute_type TYPE, uint32_t MT, uint32_t NT>
bool fits(const struct device_limits &limits)
{
    return (int)shared_bytes<TYPE, MT, NT>() <= limits.shared_bytes_max;
}

/* Queues the kernel. An error of the launch is reported by cuda_launched (backend.cuh). */
template <enum compute_type TYPE, uint32_t MT, uint32_t NT>
void launch_mma(cudaStream_t stream, struct gemv_set set, const struct gemv_input &input,
                const struct device_limits &limits)
{
    constexpr uint32_t BYTES = shared_bytes<TYPE, MT, NT>();
    for (uint32_t i = 0; i < set.count; i++)
        set.first_tile[i + 1] = set.first_tile[i] + (set.w[i].rows + 16 * MT - 1) / (16 * MT);
    const uint32_t tiles = set.first_tile[set.count];
    const uint32_t most = (uint32_t)limits.multiprocessors * stage<TYPE, MT>::BLOCKS;
    cudaFuncSetAttribute(multiply_mma<TYPE, MT, NT>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)BYTES);
    CUDA_LAUNCH_EARLY((multiply_mma<TYPE, MT, NT>), dim3(tiles < most ? tiles : most),
                      dim3(THREADS), BYTES, stream, set, input);
}

/* Queues the product for one type of weights. With up to 4 rows of activations, a block works on 16
 * rows of W (MT 1); with more, on 32 rows (MT 2), so that two mma tiles share the activations. If
 * the device has too little shared memory for MT 2, the product is queued with MT 1, for 8 rows of
 * activations at a time. */
template <enum compute_type TYPE>
void gemv_typed(cudaStream_t stream, struct gemv_set set, struct gemv_input input)
{
    const struct device_limits limits = device_limits();
    const uint32_t rows = input.rows;
    if (rows > 8 && fits<TYPE, 2, 2>(limits)) {
        launch_mma<TYPE, 2, 2>(stream, set, input, limits);
        return;
    }
    if (rows > 4 && rows <= 8 && fits<TYPE, 2, 1>(limits)) {
        launch_mma<TYPE, 2, 1>(stream, set, input, limits);
        return;
    }
    for (uint32_t first = 0; first < rows; first += 8) {
        input.rows = rows - first < 8 ? rows - first : 8;
        launch_mma<TYPE, 1, 1>(stream, set, input, limits);
        input.a += (size_t)8 * set.cols;
        for (uint32_t i = 0; i < set.count; i++)
            set.y[i] += (size_t)8 * set.w[i].rows;
    }
}
} // namespace

#endif
