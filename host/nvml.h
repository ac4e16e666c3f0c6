/* nvml: reads the energy and the power limit of one NVIDIA GPU, and sets the limit, with the
 * driver's library libnvidia-ml.so.1, which is loaded at run time. energy.c and power_limit.c open
 * one struct nvml each. Each struct is used on one thread. */
#ifndef HOST_NVML_H
#define HOST_NVML_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/* One GPU; all zeros = not open. */
struct nvml {
    void *library; /* Handle of the library; NULL = not open. */
    void *device;  /* The driver's handle of the GPU; NULL = no GPU was found. */
    /* Functions of the library. All except error_text return 0 or the code of an error. */
    int (*energy)(void *device, unsigned long long *out_mj);
    int (*limit_get)(void *device, unsigned *out_mw);
    int (*limit_set)(void *device, unsigned mw);
    const char *(*error_text)(int code);
};

/* Opens the GPU `device`, such as "cuda:0". The number is CUDA's, and counts the GPUs in the
 * environment variable CUDA_VISIBLE_DEVICES if the variable is set. Returns ST_NOT_FOUND if there
 * is no usable driver or no such GPU. Returns ST_UNSUPPORTED if this host's GPUs are not all of one
 * model, because the driver and CUDA may then number the GPUs in different orders. The environment
 * variable CUDA_DEVICE_ORDER=PCI_BUS_ID, or UUIDs in CUDA_VISIBLE_DEVICES, prevent this error. The
 * caller calls nvml_close, also after an error. */
enum status nvml_open(const char *device, struct nvml *out, struct error *error);
/* Stores the microjoules that the GPU has used since the driver was loaded. Returns false if no GPU
 * is open, or if the meter cannot be read (GPUs before Volta have no meter). */
bool nvml_energy_uj(struct nvml *n, uint64_t *out_uj);
/* Stores the limit of the GPU's mean power, in milliwatts. Returns false if no GPU is open, or if
 * the limit cannot be read. */
bool nvml_limit_mw(struct nvml *n, uint32_t *out_mw);
/* Limits the GPU's mean power to `mw` milliwatts. Requires an open GPU. Returns ST_IO if the driver
 * refuses: only root may set the limit, and the GPU has a least and a greatest limit. */
enum status nvml_limit_set(struct nvml *n, uint32_t mw, struct error *error);
void nvml_close(struct nvml *n); /* All zeros are fine. Sets *n to zeros. */

#endif
