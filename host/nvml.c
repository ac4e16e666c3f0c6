/* nvml: see the header. The declarations are those of NVIDIA's nvml.h: functions return 0, or an
 * error. */
#include "host/nvml.h"

#include "common/device_name.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY          "libnvidia-ml.so.1"
#define GPU_NAME_BYTES   96
#define VISIBLE_BYTES    64
#define MICRO_OF_A_MILLI 1000u

struct functions {
    int (*init)(void);
    int (*count)(unsigned *out);
    int (*by_index)(unsigned index, void **out);
    int (*by_uuid)(const char *uuid, void **out);
    int (*name)(void *device, char *out, unsigned bytes);
};

/* POSIX lets a function's address be stored as that of an object. */
static bool function_load(void *library, const char *name, void *out)
{
    void *symbol = dlsym(library, name);
    memcpy(out, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static bool functions_load(struct nvml *n, struct functions *f)
{
    void *library = n->library;
    return function_load(library, "nvmlInit_v2", &f->init) &&
           function_load(library, "nvmlDeviceGetCount_v2", &f->count) &&
           function_load(library, "nvmlDeviceGetHandleByIndex_v2", &f->by_index) &&
           function_load(library, "nvmlDeviceGetHandleByUUID", &f->by_uuid) &&
           function_load(library, "nvmlDeviceGetName", &f->name) &&
           function_load(library, "nvmlDeviceGetTotalEnergyConsumption", &n->energy) &&
           function_load(library, "nvmlDeviceGetPowerManagementLimit", &n->limit_get) &&
           function_load(library, "nvmlDeviceSetPowerManagementLimit", &n->limit_set) &&
           function_load(library, "nvmlErrorString", &n->error_text);
}

/* Copies entry `number` of CUDA_VISIBLE_DEVICES to `out`, or the number itself if the variable is
 * not set. Returns false if there is no such entry. */
static bool visible_entry(uint32_t number, char out[VISIBLE_BYTES])
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    if (at == NULL) {
        snprintf(out, VISIBLE_BYTES, "%u", number);
        return true;
    }
    for (uint32_t i = 0; i < number; i++) {
        at = strchr(at, ',');
        if (at == NULL)
            return false;
        at++;
    }
    size_t bytes = strcspn(at, ",");
    if (bytes == 0 || bytes >= VISIBLE_BYTES)
        return false;
    memcpy(out, at, bytes);
    out[bytes] = 0;
    return true;
}

/* Whether CUDA and the driver number the GPUs alike: equal GPUs are numbered by their places. */
static bool numbers_agree(const struct functions *f)
{
    char first[GPU_NAME_BYTES] = "", name[GPU_NAME_BYTES];
    unsigned count;
    void *device;
    const char *order = getenv("CUDA_DEVICE_ORDER");
    if (order != NULL && strcmp(order, "PCI_BUS_ID") == 0)
        return true;
    if (f->count(&count) != 0)
        return false;
    for (unsigned i = 0; i < count; i++) {
        if (f->by_index(i, &device) != 0 || f->name(device, name, sizeof(name)) != 0)
            return false;
        if (i == 0)
            memcpy(first, name, sizeof(first));
        if (strcmp(first, name) != 0)
            return false;
    }
    return true;
}

/* `entry`: a number, or a UUID. */
static enum status device_find(struct nvml *n, const struct functions *f, const char *device,
                               const char *entry, struct error *error)
{
    char *end;
    unsigned long index = strtoul(entry, &end, 10);
    const bool by_number = end != entry && *end == 0;
    if (by_number && !numbers_agree(f))
        return error_set(error, ST_UNSUPPORTED,
                         "%s: the GPUs of this computer differ, and CUDA_DEVICE_ORDER is not "
                         "PCI_BUS_ID",
                         device);
    int code = by_number ? f->by_index((unsigned)index, &n->device) : f->by_uuid(entry, &n->device);
    if (code != 0)
        return error_set(error, ST_NOT_FOUND, "%s: %s", device, n->error_text(code));
    return ST_OK;
}

enum status nvml_open(const char *device, struct nvml *out, struct error *error)
{
    struct functions f;
    char entry[VISIBLE_BYTES];
    uint32_t number;
    *out = (struct nvml){.library = NULL};
    if (!device_name_gpu(device, &number) || !visible_entry(number, entry))
        return error_set(error, ST_NOT_FOUND, "%s is no visible GPU", device);
    out->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (out->library == NULL)
        return error_set(error, ST_NOT_FOUND, "there is no %s", LIBRARY);
    if (!functions_load(out, &f))
        return error_set(error, ST_NOT_FOUND, "%s lacks a function", LIBRARY);
    int code = f.init();
    if (code != 0)
        return error_set(error, ST_NOT_FOUND, "%s: %s", LIBRARY, out->error_text(code));
    return device_find(out, &f, device, entry, error);
}

bool nvml_energy_uj(struct nvml *n, uint64_t *out_uj)
{
    unsigned long long mj;
    if (n->device == NULL || n->energy(n->device, &mj) != 0)
        return false;
    *out_uj = (uint64_t)mj * MICRO_OF_A_MILLI;
    return true;
}

bool nvml_limit_mw(struct nvml *n, uint32_t *out_mw)
{
    return n->device != NULL && n->limit_get(n->device, out_mw) == 0;
}

enum status nvml_limit_set(struct nvml *n, uint32_t mw, struct error *error)
{
    int code = n->limit_set(n->device, mw);
    return code == 0 ? ST_OK
                     : error_set(error, ST_IO, "the GPU's power limit of %u mW: %s", mw,
                                 n->error_text(code));
}

/* The library stays initialised: another part of the process may use it, too. */
void nvml_close(struct nvml *n)
{
    if (n->library != NULL)
        dlclose(n->library);
    *n = (struct nvml){.library = NULL};
}
