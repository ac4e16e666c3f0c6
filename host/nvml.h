/* nvml: the energy and the power limit of one NVIDIA GPU, by the driver's library libnvidia-ml.so.1,
 * which is loaded at run time. A machine's process opens one struct nvml for its device and uses it
 * on the same thread. Only NVIDIA's driver knows the power: of a GPU, not of its host's CPUs. */
#ifndef HOST_NVML_H
#define HOST_NVML_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/* All zeros = not open. */
struct nvml {
    void *library; /* NULL = not open. */
    void *device;  /* The driver's handle of the GPU. */
    int (*energy)(void *device, unsigned long long *out_mj);
    int (*limit_get)(void *device, unsigned *out_mw);
    int (*limit_set)(void *device, unsigned mw);
    const char *(*error_text)(int code);
};

/* Opens the GPU that CUDA numbers as `device` says ("cuda:0"), by CUDA_VISIBLE_DEVICES.
 * ST_NOT_FOUND: there is no driver, or no such GPU. ST_UNSUPPORTED: the GPUs of this computer
 * differ, so the driver may number them in another way than CUDA; CUDA_DEVICE_ORDER=PCI_BUS_ID, or
 * UUIDs in CUDA_VISIBLE_DEVICES, help. The caller ends with nvml_close, also on failure. */
enum status nvml_open(const char *device, struct nvml *out, struct error *error);
/* Sets *out_uj to the microjoules that the GPU has used since its driver was loaded. Returns false
 * if the GPU has no meter (before Volta). */
bool nvml_energy_uj(struct nvml *n, uint64_t *out_uj);
/* Sets *out_mw to the limit of the GPU's mean power in milliwatts. Returns false on failure. */
bool nvml_limit_mw(struct nvml *n, uint32_t *out_mw);
/* Limits the GPU's mean power. ST_IO: the driver refuses; only root may do it, and only between the
 * least and the greatest limit of the GPU. */
enum status nvml_limit_set(struct nvml *n, uint32_t mw, struct error *error);
void nvml_close(struct nvml *n);

#endif
