/* fake_nvml: see the header. */
#include "tests/host/fake_nvml.h"

#include <stdio.h>
#include <string.h>

extern struct fake_gpu fake_gpus[2];
extern int fake_fails;
struct fake_gpu fake_gpus[2] = {
    {"H200", "GPU-aaaa", 5000, 700000, 200000, 700000},
    {"H200", "GPU-bbbb", 9000, 700000, 200000, 700000},
};
int fake_fails;

enum { NOT_FOUND = 6, INVALID = 2 };

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *out);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out);
int nvmlDeviceGetName(void *device, char *out, unsigned bytes);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out);
int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *out);
int nvmlDeviceSetPowerManagementLimit(void *device, unsigned mw);
const char *nvmlErrorString(int code);

int nvmlInit_v2(void)
{
    return fake_fails;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    *out = 2;
    return fake_fails;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    if (index > 1)
        return NOT_FOUND;
    *out = &fake_gpus[index];
    return fake_fails;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    for (unsigned i = 0; i < 2; i++)
        if (strcmp(fake_gpus[i].uuid, uuid) == 0)
            return nvmlDeviceGetHandleByIndex_v2(i, out);
    return NOT_FOUND;
}

int nvmlDeviceGetName(void *device, char *out, unsigned bytes)
{
    const struct fake_gpu *gpu = device;
    snprintf(out, bytes, "%s", gpu->name);
    return fake_fails;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out)
{
    const struct fake_gpu *gpu = device;
    *out = gpu->energy_mj;
    return fake_fails;
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *out)
{
    const struct fake_gpu *gpu = device;
    *out = gpu->limit_mw;
    return fake_fails;
}

int nvmlDeviceSetPowerManagementLimit(void *device, unsigned mw)
{
    struct fake_gpu *gpu = device;
    if (mw < gpu->least_mw || mw > gpu->greatest_mw)
        return INVALID;
    gpu->limit_mw = mw;
    return fake_fails;
}

const char *nvmlErrorString(int code)
{
    return code == NOT_FOUND ? "Not Found" : code == INVALID ? "Invalid Argument" : "Failed";
}
