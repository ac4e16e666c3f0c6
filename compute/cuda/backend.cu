/* backend: CUDA behind struct compute_ops. */
#include "compute/cuda/kernels.cuh"
extern "C" {
#include "compute/plugin.h"
}

static enum status cuda_open(const struct compute_options *options, struct compute **out,
                             struct error *error)
{
    (void)options, (void)out;
    int count = 0;
    cudaError_t failed = cudaGetDeviceCount(&count);
    if (failed != cudaSuccess)
        return error_set(error, ST_UNSUPPORTED, "%s (CUDA error %d)", cudaGetErrorString(failed),
                         (int)failed);
    return error_set(error, ST_UNSUPPORTED, "not built yet");
}

static struct compute_ops cuda_ops_make()
{
    struct compute_ops ops = {};
    ops.name = "cuda";
    ops.open = cuda_open;
    return ops;
}

static const struct compute_ops cuda_ops = cuda_ops_make();

extern "C" __attribute__((visibility("default"))) const struct compute_plugin cleave_compute_plugin;
const struct compute_plugin cleave_compute_plugin = {COMPUTE_PLUGIN_ABI, sizeof(struct compute_ops),
                                                     sizeof(struct compute_options), CLEAVE_VERSION,
                                                     &cuda_ops};
