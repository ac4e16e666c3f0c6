/* power_limit: limits the power of this host's CPUs (with the long-term limit of RAPL, in Linux's
 * powercap folder), or the power of one GPU (nvml.h). A machine's process (not a stage process)
 * sets the limit before it enters the sandbox (sandbox.h), and restores the former limit when it
 * ends, both on its main thread. If the process is killed, the limit stays. Short peaks of power
 * are not limited. */
#ifndef HOST_POWER_LIMIT_H
#define HOST_POWER_LIMIT_H

#include "common/status.h"
#include "host/energy.h"

#include <stdint.h>

struct power_limit {
    struct power_limit_package {
        int fd;             /* The open file of the package's limit. */
        uint64_t former_uw; /* The limit before power_limit_set, in microwatts. */
        uint64_t set_uw;    /* The new limit, which the hardware may have rounded. */
    } packages[ENERGY_PACKAGES_MAX];
    uint32_t package_count; /* Number of limited CPU packages; 0 = none. */
    struct nvml gpu;        /* The limited GPU; all zeros = none. */
    /* The GPU's limit before power_limit_set_gpu, and the new limit. */
    uint32_t gpu_former_mw, gpu_set_mw;
};

/* Limits the power of all CPU packages in `folder` (ENERGY_FOLDER) together to `watts` > 0. Each
 * package gets an equal share. The limit holds on average over a time that the hardware chooses
 * (often 1 to 28 s). Returns ST_UNSUPPORTED if energy_packages returns 0 or a package has no
 * long-term limit, or ST_IO if the kernel refuses (only root may set a limit). After an error, no
 * package is limited. The caller calls power_limit_restore, also after an error. */
enum status power_limit_set(const char *folder, uint32_t watts, struct power_limit *out,
                            struct error *error);
/* Limits the power of the GPU `device`, such as "cuda:0", to `watts`. Returns the errors of
 * nvml_open and nvml_limit_set, ST_UNSUPPORTED if the GPU has no power limit, or ST_IO if the new
 * limit cannot be read. The caller calls power_limit_restore, also after an error. */
enum status power_limit_set_gpu(const char *device, uint32_t watts, struct power_limit *out,
                                struct error *error);
/* Restores the former limit of each package and of the GPU, except where the limit was changed
 * since it was set. Sets *limit to zeros. */
void power_limit_restore(struct power_limit *limit);

#endif
