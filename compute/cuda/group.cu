/* group: sums over the GPUs of several processes, by NCCL, on the stream that everything else is
 * queued on, so that they are recorded with a step's other launches. What a block adds is sent as
 * bfloat16, which halves the bytes and is what activations are rounded to next. fp32 is used where
 * rounding would show (embeddings, and what is normalised next) and in exact mode. The links are
 * the limit: 2 (n - 1) / n of the bytes in each direction. Every rank gets the same bits.
 * Reference: compute/cpu/group.c.
 *
 * NCCL is opened at the first group_make or group_join: the plugin neither links it nor needs its
 * header. The dozen functions used are NCCL's stable C interface (libnccl.so.2), whose types are
 * numbers and pointers. tests/gpu/nccl_header.cc compares the declarations here with the header,
 * where it is installed.
 *
 * A launch after one of NCCL's is a plain launch (CUDA_LAUNCH), never an early one. */
#include "compute/cuda/backend.cuh"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/nccl_abi.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <thread>

#define THREADS          256
#define GRID_MAX         4096
#define NCCL_VERSION_MIN 21003 /* 2.10.3: bfloat16. */

static_assert(sizeof(struct nccl_id) == COMPUTE_GROUP_ID_BYTES, "an id is NCCL's");

struct cuda_group {
    struct nccl nccl;
    nccl_comm comm;
    uint32_t rank, ranks;
    void *scratch; /* Data sent as bfloat16; at rank 0 also the other ranks' parts of logits. */
    size_t scratch_bytes;
};

/* ---- kernels ---- */

namespace
{
__global__ void __launch_bounds__(THREADS)
    round_bf16(const float *y, size_t count, __nv_bfloat16 *out)
{
    const size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride)
        out[i] = __float2bfloat16(y[i]);
}

__global__ void __launch_bounds__(THREADS) add_bf16(const __nv_bfloat16 *y, size_t count, float *x)
{
    const size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride)
        x[i] += __bfloat162float(y[i]);
}

__global__ void __launch_bounds__(THREADS) add_f32(const float *y, size_t count, float *x)
{
    const size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride)
        x[i] += y[i];
}

/* sums[row * count] = the sum of x² of the row; one block per row, in an order that depends only on
 * the number of columns. */
__global__ void __launch_bounds__(THREADS)
    row_squares(const float *x, uint32_t cols, uint32_t count, float *sums)
{
    __shared__ float parts[THREADS / 32];
    const float *row = x + (size_t)blockIdx.x * cols;
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < cols; i += THREADS)
        sum += row[i] * row[i];
    for (int width = 16; width > 0; width /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, width);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (uint32_t i = 1; i < THREADS / 32; i++)
        sum += parts[i];
    sums[(size_t)blockIdx.x * count] = sum;
}

/* RMSNorm of a row from the sum of its squares on all ranks; one block per row. */
__global__ void __launch_bounds__(THREADS)
    row_weigh(const float *sums, uint32_t count, const float *weight, float epsilon, uint32_t cols,
              uint32_t cols_all, float *x)
{
    float *row = x + (size_t)blockIdx.x * cols;
    const float mean = sums[(size_t)blockIdx.x * count] / (float)cols_all;
    const float factor = 1.0f / sqrtf(mean + epsilon);
    for (uint32_t i = threadIdx.x; i < cols; i += THREADS)
        row[i] = row[i] * factor * weight[i];
}

/* Copies part [rows × cols] to columns [first, first + cols) of `all`; one block per row and 1024
 * columns. */
__global__ void __launch_bounds__(THREADS)
    put_columns(const float *part, uint32_t cols, uint32_t first, uint32_t all_cols, float *all)
{
    const float *from = part + (size_t)blockIdx.x * cols;
    float *to = all + (size_t)blockIdx.x * all_cols + first;
    const uint32_t begin = blockIdx.y * THREADS * 4 + threadIdx.x;
    for (uint32_t i = begin; i < begin + THREADS * 4 && i < cols; i += THREADS)
        to[i] = from[i];
}

/* Separates NCCL's launch from kernels that may be launched early. */
__global__ void after(const float *y)
{
    (void)y;
}

dim3 grid_of(size_t count)
{
    const size_t blocks = (count + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX));
}
} // namespace

/* ---- NCCL ---- */

static enum status nccl_open(struct nccl *nccl, struct error *error)
{
    const char *named = getenv("CLEAVE_NCCL");
    const char *file = named != NULL && named[0] != 0 ? named : "libnccl.so.2";
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    int version = 0;
    if (library == NULL)
        return error_set(error, ST_UNSUPPORTED,
                         "tensor parallelism on GPUs needs NCCL: %s (CLEAVE_NCCL names the file)",
                         dlerror());
#define FIND(name, function)                                                                       \
    *(void **)&nccl->name = dlsym(library, function);                                              \
    if (nccl->name == NULL)                                                                        \
    return error_set(error, ST_UNSUPPORTED, "NCCL of %s has no %s", file, function)
    NCCL_FUNCTIONS(FIND);
#undef FIND
    if (nccl->version(&version) != NCCL_SUCCESS || version < NCCL_VERSION_MIN)
        return error_set(error, ST_UNSUPPORTED, "NCCL of %s is version %d, want %d or later", file,
                         version, NCCL_VERSION_MIN);
    return ST_OK; /* The library stays open until the process ends. */
}

static enum status group_take(struct compute *c, struct error *error)
{
    if (c->group != NULL)
        return ST_OK;
    c->group = (struct cuda_group *)calloc(1, sizeof(*c->group));
    if (c->group == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a group");
    return nccl_open(&c->group->nccl, error);
}

static enum status group_make(struct compute *c, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                              struct error *error)
{
    struct nccl_id id;
    enum status status = group_take(c, error);
    if (status != ST_OK)
        return status;
    int result = c->group->nccl.make_id(&id);
    if (result != NCCL_SUCCESS)
        return error_set(error, ST_IO, "NCCL: making a group: %s",
                         c->group->nccl.error_text(result));
    memcpy(id_out, &id, sizeof(id));
    return ST_OK;
}

/* State of joining. NCCL waits for the other ranks without a limit, so it runs on a separate
 * thread, which is abandoned when the time is up. */
struct joining {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    int result = NCCL_SUCCESS;
    cudaError_t chosen = cudaSuccess;
    nccl_comm comm = nullptr;
};

static bool join_within(struct compute *c, const struct nccl_id &id, uint32_t timeout_ms,
                        const std::shared_ptr<struct joining> &joining)
{
    const struct cuda_group group = *c->group;
    const int device = c->device;
    std::thread([=] {
        nccl_comm comm = nullptr;
        int result = NCCL_SUCCESS;
        const cudaError_t chosen = cudaSetDevice(device);
        if (chosen == cudaSuccess)
            result = group.nccl.join(&comm, (int)group.ranks, id, (int)group.rank);
        std::lock_guard<std::mutex> lock(joining->mutex);
        joining->done = true;
        joining->result = result;
        joining->chosen = chosen;
        joining->comm = comm;
        joining->changed.notify_all();
    }).detach();
    std::unique_lock<std::mutex> lock(joining->mutex);
    return joining->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                     [&] { return joining->done; });
}

static enum status group_join(struct compute *c, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                              uint32_t rank, uint32_t ranks, uint32_t timeout_ms,
                              struct error *error)
{
    struct nccl_id name;
    enum status status = group_take(c, error);
    if (status != ST_OK)
        return status;
    struct cuda_group *group = c->group;
    memcpy(&name, id, sizeof(name));
    group->rank = rank;
    group->ranks = ranks;
    auto joining = std::make_shared<struct joining>();
    if (!join_within(c, name, timeout_ms, joining)) {
        cuda_fail(c, "rank %u of %u: the others have not joined within %u ms", rank, ranks,
                  timeout_ms);
        return error_set(error, ST_TIMED_OUT, "%s", c->why.text);
    }
    if (!cuda_good(c, joining->chosen, "choosing the device"))
        return error_set(error, ST_IO, "%s", c->why.text);
    if (joining->result != NCCL_SUCCESS) {
        cuda_fail(c, "rank %u of %u: NCCL: joining: %s", rank, ranks,
                  group->nccl.error_text(joining->result));
        return error_set(error, ST_UNREACHABLE, "%s", c->why.text);
    }
    group->comm = joining->comm;
    return ST_OK;
}

void cuda_group_close(struct compute *c)
{
    struct cuda_group *group = c->group;
    if (group == NULL)
        return;
    if (group->comm != NULL)
        (void)(c->failed ? group->nccl.abort : group->nccl.leave)(group->comm);
    cuda_give(c, group->scratch);
    free(group);
    c->group = NULL;
}

static bool good(struct compute *c, int result, const char *what)
{
    if (result == NCCL_SUCCESS)
        return true;
    cuda_fail(c, "NCCL: %s: %s", what, c->group->nccl.error_text(result));
    return false;
}

void cuda_group_check(struct compute *c)
{
    int result = NCCL_SUCCESS;
    if (c->group == NULL || c->group->comm == NULL || c->failed)
        return;
    if (good(c, c->group->nccl.async_error(c->group->comm, &result), "asking after it") &&
        result != NCCL_IN_PROGRESS)
        good(c, result, "a rank of the group");
}

/* ---- operations ---- */

static bool enter(struct compute *c)
{
    if (!cuda_enter(c))
        return false;
    if (c->group != NULL && c->group->comm != NULL)
        return true;
    cuda_fail(c, "a sum over ranks without a group");
    return false;
}

static bool sum(struct compute *c, void *y, size_t count, int type)
{
    const struct cuda_group *group = c->group;
    return good(c, group->nccl.all_reduce(y, y, count, type, NCCL_SUM, group->comm, c->stream),
                "a sum");
}

static void group_sum(struct compute *c, size_t count, float *y)
{
    if (!enter(c) || !sum(c, y, count, NCCL_FLOAT32))
        return;
    CUDA_LAUNCH(after, dim3(1), dim3(1), 0, c->stream, y);
    cuda_launched(c, "a sum over ranks");
}

static void group_add(struct compute *c, size_t count, float *y, float *x)
{
    struct cuda_group *group = c->group;
    if (!enter(c))
        return;
    if (c->exact) {
        if (!sum(c, y, count, NCCL_FLOAT32))
            return;
        CUDA_LAUNCH(add_f32, grid_of(count), dim3(THREADS), 0, c->stream, y, count, x);
    } else {
        if (!cuda_grow(c, &group->scratch, &group->scratch_bytes, count * sizeof(__nv_bfloat16),
                       "a sum over ranks"))
            return;
        __nv_bfloat16 *half = (__nv_bfloat16 *)group->scratch;
        CUDA_LAUNCH(round_bf16, grid_of(count), dim3(THREADS), 0, c->stream, y, count, half);
        if (!cuda_launched(c, "a sum over ranks") || !sum(c, half, count, NCCL_BFLOAT16))
            return;
        CUDA_LAUNCH(add_bf16, grid_of(count), dim3(THREADS), 0, c->stream, half, count, x);
    }
    cuda_launched(c, "a sum over ranks");
}

static void group_norm(struct compute *c, const struct compute_group_norm *norms, uint32_t count,
                       float epsilon, uint32_t row_count)
{
    struct cuda_group *group = c->group;
    if (!enter(c) || !cuda_grow(c, &group->scratch, &group->scratch_bytes,
                                (size_t)row_count * count * sizeof(float), "a norm over ranks"))
        return;
    float *sums = (float *)group->scratch;
    for (uint32_t i = 0; i < count; i++)
        CUDA_LAUNCH(row_squares, dim3(row_count), dim3(THREADS), 0, c->stream, norms[i].x,
                    norms[i].cols, count, sums + i);
    if (!cuda_launched(c, "a norm over ranks") ||
        !sum(c, sums, (size_t)row_count * count, NCCL_FLOAT32))
        return;
    for (uint32_t i = 0; i < count; i++)
        CUDA_LAUNCH(row_weigh, dim3(row_count), dim3(THREADS), 0, c->stream, sums + i, count,
                    norms[i].weight, epsilon, norms[i].cols, norms[i].cols_all, norms[i].x);
    cuda_launched(c, "a norm over ranks");
}

static void columns_put(struct compute *c, const float *part, uint32_t rows, uint32_t cols,
                        uint32_t first, uint32_t all_cols, float *all)
{
    const dim3 grid(rows, (cols + THREADS * 4 - 1) / (THREADS * 4));
    CUDA_LAUNCH(put_columns, grid, dim3(THREADS), 0, c->stream, part, cols, first, all_cols, all);
    cuda_launched(c, "gathering logits");
}

/* Receives the other ranks' parts into rank 0's scratch memory, one after the other. */
static bool receive(struct compute *c, uint32_t rows, const uint32_t *counts, size_t elements)
{
    struct cuda_group *group = c->group;
    if (!cuda_grow(c, &group->scratch, &group->scratch_bytes, elements * sizeof(float),
                   "gathering logits") ||
        !good(c, group->nccl.begin(), "gathering logits"))
        return false;
    float *to = (float *)group->scratch;
    for (uint32_t i = 1; i < group->ranks; to += (size_t)rows * counts[i++])
        if (!good(c,
                  group->nccl.receive(to, (size_t)rows * counts[i], NCCL_FLOAT32, (int)i,
                                      group->comm, c->stream),
                  "gathering logits"))
            return false;
    return good(c, group->nccl.end(), "gathering logits");
}

static void group_gather(struct compute *c, uint32_t row_count, const float *part,
                         const uint32_t *counts, float *all)
{
    const struct cuda_group *group = c->group;
    uint32_t cols = 0, first = 0;
    if (!enter(c))
        return;
    if (group->rank > 0) {
        good(c,
             group->nccl.send(part, (size_t)row_count * counts[group->rank], NCCL_FLOAT32, 0,
                              group->comm, c->stream),
             "gathering logits");
        return;
    }
    for (uint32_t i = 0; i < group->ranks; i++)
        cols += counts[i];
    if (group->ranks > 1 && !receive(c, row_count, counts, (size_t)row_count * (cols - counts[0])))
        return;
    const float *from = (const float *)group->scratch;
    for (uint32_t i = 0; i < group->ranks && !c->failed; first += counts[i++]) {
        columns_put(c, i == 0 ? part : from, row_count, counts[i], first, cols, all);
        if (i > 0)
            from += (size_t)row_count * counts[i];
    }
}

const struct compute_group_ops cuda_group_ops = {group_make, group_join, group_sum,
                                                 group_add,  group_norm, group_gather};
