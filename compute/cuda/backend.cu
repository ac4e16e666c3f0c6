/* backend: opening and closing of the CUDA backend, errors and memory. An error of the device is
 * permanent: the first error is kept, after it every operation does nothing, and compute_ops.check
 * returns the error. */
#include "compute/cuda/backend.cuh"

extern "C" {
#include "compute/plugin.h"
}

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>

#define CAPABILITY_MIN 75
/* Most bytes by which scratch memory grows beyond what is needed. */
#define GROWTH_BYTES ((size_t)64 << 20)

/* ---- errors and memory ---- */

void cuda_fail(struct compute *c, const char *format, ...)
{
    std::lock_guard<std::mutex> lock(c->failing);
    if (c->failed)
        return;
    va_list arguments;
    int used = snprintf(c->why.text, sizeof(c->why.text), "device cuda:%d: ", c->device);
    va_start(arguments, format);
    vsnprintf(c->why.text + used, sizeof(c->why.text) - (size_t)used, format, arguments);
    va_end(arguments);
    c->failed = true;
    if (c->memory != NULL)
        cuda_memory_failed(c);
}

bool cuda_enter(struct compute *c)
{
    return !c->failed && cuda_good(c, cudaSetDevice(c->device), "choosing the device");
}

bool cuda_good(struct compute *c, cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return true;
    cuda_fail(c, "%s: %s (CUDA error %d)", what, cudaGetErrorString(result), (int)result);
    return false;
}

bool cuda_launched(struct compute *c, const char *what)
{
    return cuda_good(c, cudaGetLastError(), what);
}

uint64_t cuda_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void *cuda_take(struct compute *c, size_t bytes, bool zeroed)
{
    void *memory = NULL;
    if (!cuda_enter(c))
        return NULL;
    cudaError_t result = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
    if (result == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return NULL;
    }
    if (!cuda_good(c, result, "taking memory"))
        return NULL;
    if (zeroed && !(cuda_good(c, cudaMemsetAsync(memory, 0, bytes, c->stream), "zeroing memory") &&
                    cuda_good(c, cudaStreamSynchronize(c->stream), "zeroing memory"))) {
        (void)cudaFree(memory);
        return NULL;
    }
    return memory;
}

void cuda_give(struct compute *c, void *memory)
{
    if (memory == NULL)
        return;
    (void)cudaSetDevice(c->device);
    (void)cudaStreamSynchronize(c->stream);
    (void)cudaFree(memory);
}

bool cuda_grow(struct compute *c, void **memory, size_t *bytes_held, size_t bytes, const char *what)
{
    if (bytes <= *bytes_held)
        return true;
    if (cuda_step_recording(c)) {
        cuda_fail(c, "%s: a recorded step needs more memory than before", what);
        return false;
    }
    /* Grows in large steps, not by a little each time. */
    const size_t more = *bytes_held < GROWTH_BYTES ? 2 * *bytes_held : *bytes_held + GROWTH_BYTES;
    cuda_steps_forget(c);
    cuda_give(c, *memory);
    *bytes_held = 0;
    *memory = more > bytes ? cuda_take(c, more, true) : NULL;
    if (*memory != NULL)
        bytes = more;
    else
        *memory = cuda_take(c, bytes, true);
    if (*memory == NULL) {
        cuda_fail(c, "%s: no memory for %zu bytes", what, bytes);
        return false;
    }
    *bytes_held = bytes;
    return true;
}

/* ---- life ---- */

static enum status find_device(int device, struct error *error)
{
    int count = 0;
    cudaError_t result = cudaGetDeviceCount(&count);
    if (result == cudaErrorInsufficientDriver)
        return error_set(error, ST_UNSUPPORTED,
                         "no driver: NVIDIA's driver is missing or too old (CUDA error %d: %s)",
                         (int)result, cudaGetErrorString(result));
    if (result == cudaErrorNoDevice || (result == cudaSuccess && count == 0))
        return error_set(error, ST_NOT_FOUND, "no device: the driver finds none");
    if (result != cudaSuccess)
        return error_set(error, ST_UNSUPPORTED, "listing devices: %s (CUDA error %d)",
                         cudaGetErrorString(result), (int)result);
    if (device >= count)
        return error_set(error, ST_NOT_FOUND,
                         count == 1 ? "this computer has one device, cuda:0"
                                    : "this computer has %d devices, cuda:0 to cuda:%d",
                         count, count - 1);
    return ST_OK;
}

/* A kernel of the plugin, used to check that the plugin has code for this device. */
static __global__ void probe(void)
{
}

static enum status describe_device(struct compute *c, struct error *error)
{
    struct cudaDeviceProp properties;
    struct cudaFuncAttributes attributes;
    if (!cuda_good(c, cudaSetDevice(c->device), "choosing the device") ||
        !cuda_good(c, cudaGetDeviceProperties(&properties, c->device), "asking what it is"))
        return error_set(error, ST_IO, "%s", c->why.text);
    c->capability = properties.major * 10 + properties.minor;
    c->multiprocessors = properties.multiProcessorCount;
    c->memory_bytes = properties.totalGlobalMem;
    if (c->capability < CAPABILITY_MIN ||
        cudaFuncGetAttributes(&attributes, probe) != cudaSuccess) {
        (void)cudaGetLastError();
        return error_set(error, ST_UNSUPPORTED,
                         "%.64s has compute capability %d.%d, which the plugin was not built for",
                         properties.name, properties.major, properties.minor);
    }
    snprintf(c->description, sizeof(c->description),
             "cuda:%d: %.64s, %.1f GiB, compute capability %d.%d, %d multiprocessors; %s",
             c->device, properties.name, (double)properties.totalGlobalMem / (double)(1ull << 30),
             properties.major, properties.minor, properties.multiProcessorCount,
             c->exact ? "fp32 throughout"
                      : "bf16 activations, cuBLASLt from 17 rows, graphs for token steps");
    c->description_used = strlen(c->description);
    return ST_OK;
}

/* Decides as what E4M3 weights are multiplied, and describes it. */
static void describe_f8(struct compute *c, bool bf16_activations)
{
    const char *off = getenv("CLEAVE_CUDA_F8");
    const size_t used = strlen(c->description);
    c->f8_off = bf16_activations || (off != NULL && strcmp(off, "0") == 0);
    cuda_f8_probe(c);
    if (c->exact || c->capability < 89)
        return;
    const bool rows = c->f8_forms[CUDA_F8_ROWS] || c->f8_forms[CUDA_F8_PLAIN];
    snprintf(c->description + used, sizeof(c->description) - used, ", E4M3 products%s",
             !cuda_f8_supported(c)                 ? " none"
             : rows && c->f8_forms[CUDA_F8_BLOCKS] ? " of rows and 128 x 128"
             : rows                                ? " of rows"
                                                   : " of 128 x 128");
    c->description_used = strlen(c->description);
}

static void cuda_close(struct compute *c)
{
    if (c == NULL)
        return;
    (void)cudaSetDevice(c->device);
    if (c->stream != NULL)
        (void)cudaStreamSynchronize(c->stream);
    cuda_memory_close(c);
    cuda_steps_close(c);
    cuda_group_close(c); /* After the recordings, which use the group. */
    cuda_gemm_close(c);
    cuda_staging_close(c);
    if (c->samples != NULL)
        (void)cudaFreeHost(c->samples);
    if (c->sampled != NULL)
        (void)cudaFreeHost(c->sampled);
    cuda_give(c, c->attention_scratch);
    cuda_give(c, c->low_rank_scratch);
    cuda_give(c, c->edits);
    cuda_give(c, c->weights_scratch);
    cuda_give(c, c->f8_scratch);
    if (c->stream != NULL)
        (void)cudaStreamDestroy(c->stream);
    delete c;
}

static enum status cuda_open(const struct compute_options *options, struct compute **out,
                             struct error *error)
{
    enum status status = find_device((int)options->device, error);
    if (status != ST_OK)
        return status;
    struct compute *c = new (std::nothrow) struct compute();
    if (c == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a device");
    c->device = (int)options->device;
    c->exact = options->exact;
    status = describe_device(c, error);
    if (status == ST_OK &&
        !cuda_good(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "a stream"))
        status = error_set(error, ST_IO, "%s", c->why.text);
    if (status == ST_OK &&
        (!cuda_good(c, cudaMallocHost(&c->samples, COMPUTE_SAMPLES_MAX * sizeof(*c->samples)),
                    "pinned memory") ||
         !cuda_good(c, cudaMallocHost(&c->sampled, COMPUTE_SAMPLES_MAX * sizeof(*c->sampled)),
                    "pinned memory")))
        status = error_set(error, ST_IO, "%s", c->why.text);
    if (status == ST_OK)
        status = cuda_gemm_open(c, error);
    if (status == ST_OK)
        describe_f8(c, options->bf16_activations);
    if (status == ST_OK)
        status = cuda_memory_open(c, error);
    if (status == ST_OK) {
        status = cuda_steps_open(c);
        if (status != ST_OK)
            error_set(error, status, "no memory for steps on the device");
    }
    if (status != ST_OK) {
        cuda_close(c);
        return status;
    }
    *out = c;
    return ST_OK;
}

static const char *cuda_describe(const struct compute *c)
{
    return c->description;
}

static enum status cuda_check(struct compute *c, struct error *error)
{
    cuda_group_check(c);
    if (!c->failed)
        return ST_OK;
    std::lock_guard<std::mutex> lock(c->failing);
    if (error != NULL)
        *error = c->why;
    return ST_IO;
}

/* ---- memory of the engine ---- */

static enum status memory_allocate(struct compute *c, size_t floats, float **out)
{
    float *memory = (float *)cuda_take(c, floats * sizeof(float), true);
    if (memory == NULL)
        return c->failed ? ST_IO : ST_NO_MEMORY;
    *out = memory;
    return ST_OK;
}

static void memory_free(struct compute *c, float *memory)
{
    cuda_steps_forget(c);
    cuda_give(c, memory);
}

void cuda_write(struct compute *c, void *to, const void *from, size_t bytes)
{
    if (cuda_enter(c) &&
        cuda_good(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->stream), "a copy"))
        cuda_good(c, cudaStreamSynchronize(c->stream), "a copy to the device");
}

static void memory_read(struct compute *c, void *to, const void *from, size_t bytes)
{
    if (cuda_enter(c) &&
        cuda_good(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream), "a copy"))
        cuda_good(c, cudaStreamSynchronize(c->stream), "an operation before a copy");
    if (c->failed)
        memset(to, 0, bytes); /* Never old data: the engine ends before it is used. */
}

/* Completes the description of the device with the number of weights that have a copy: without
 * copies, prompts are slower. */
static void prepare(struct compute *c)
{
    if (!cuda_enter(c))
        return;
    cuda_matrices_settle(c);
    if (c->copied + c->uncopied > 0)
        snprintf(c->description + c->description_used, sizeof(c->description) - c->description_used,
                 "; %u of %u quantised matrices have a bf16 copy", c->copied,
                 c->copied + c->uncopied);
}

/* ---- the plugin ---- */

static const struct compute_steps_ops steps_ops = {
    cuda_step_begin, cuda_step_end, cuda_step_padded_rows, prepare, cuda_step_next_shape};

static struct compute_ops ops_make()
{
    struct compute_ops ops = {};
    ops.name = "cuda";
    ops.open = cuda_open;
    ops.close = cuda_close;
    ops.describe = cuda_describe;
    ops.memory_allocate = memory_allocate;
    ops.memory_free = memory_free;
    ops.device_memory = cuda_memory_of;
    ops.memory_write = cuda_write;
    ops.memory_read = memory_read;
    ops.mark = cuda_mark;
    ops.wait = cuda_wait;
    ops.check = cuda_check;
    ops.group = &cuda_group_ops;
    ops.experts = &cuda_experts_ops;
    ops.steps = &steps_ops;
    cuda_operations_set(&ops);
    return ops;
}

static const struct compute_ops cuda_ops = ops_make();

extern "C" __attribute__((visibility("default"))) const struct compute_plugin cleave_compute_plugin;
const struct compute_plugin cleave_compute_plugin = {COMPUTE_PLUGIN_ABI, COMPUTE_PLUGIN_OPS_BYTES,
                                                     sizeof(struct compute_options), CLEAVE_VERSION,
                                                     &cuda_ops};
