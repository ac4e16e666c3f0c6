/* power_limit: limits the power of this computer's CPUs by their own means (the long-term limit of
 * RAPL, in Linux's powercap folder), or that of one GPU (nvml.h). A machine's process sets the limit before it gives up its
 * rights (host/sandbox.h), and restores the former limit when it ends, on the same thread. If the
 * process is killed, the limit stays. Short peaks of power are not limited. */
#ifndef HOST_POWER_LIMIT_H
#define HOST_POWER_LIMIT_H

#include "common/status.h"
#include "host/energy.h"

#include <stdint.h>

struct power_limit {
    struct power_limit_package {
        int fd;             /* The open file of the package's limit. */
        uint64_t former_uw; /* The limit before, in microwatts. */
        uint64_t set_uw;    /* The limit after, which the hardware may have rounded. */
    } packages[ENERGY_PACKAGES_MAX];
    uint32_t package_count; /* 0 = no CPU is limited. */
    struct nvml gpu;        /* All zeros = no GPU is limited. */
    uint32_t gpu_former_mw, gpu_set_mw;
};

/* Limits all CPU packages in `folder` (ENERGY_FOLDER) together to `watts` > 0, each to an equal
 * share, on average over the time that the hardware uses (often 1 to 28 s). If one package cannot
 * be limited, none is: ST_UNSUPPORTED (there is no package with a limit) or ST_IO (the kernel
 * refuses; it lets only root do it). The caller ends with power_limit_restore, also on failure. */
enum status power_limit_set(const char *folder, uint32_t watts, struct power_limit *out,
                            struct error *error);
/* Limits the power of a GPU, such as "cuda:0". Returns the errors of nvml_open and nvml_limit_set.
 * The caller ends with power_limit_restore, also on failure. */
enum status power_limit_set_gpu(const char *device, uint32_t watts, struct power_limit *out,
                                struct error *error);
/* Restores the former limit of each package, and of the GPU, that still has the limit set here. */
void power_limit_restore(struct power_limit *limit);

#endif
