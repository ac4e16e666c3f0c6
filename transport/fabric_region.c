/* fabric_region: the memory that peers write to: host memory that UCX allocates, or a device's
 * memory. See fabric_internal.h. */
#include "transport/fabric_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Finds free address space for the region that is aligned to a huge page: the kernel attaches a
 * shared segment at any page, and without alignment no part of it can be a huge page. Returns NULL
 * if none is found. The address is only a hint, because another thread could take it before UCX
 * does. */
static void *region_place(uint64_t bytes)
{
    const size_t huge = (size_t)2 << 20;
    void *map =
        mmap(NULL, bytes + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    munmap(map, bytes + huge);
    return (void *)(((uintptr_t)map + huge - 1) & ~(huge - 1));
}

/* UCX makes System V segments with mode 0660 when it opens and while it works. The linker gives its
 * calls of shmget this function, so that no other user can attach them at any time. */
__attribute__((visibility("default"))) int shmget(key_t key, size_t bytes, int flags)
{
    return (int)syscall(SYS_shmget, key, bytes, flags & ~077);
}

static bool knows_cuda(const struct fabric *fabric)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    return fabric->context != NULL && ucp_context_query(fabric->context, &attr) == UCS_OK &&
           (attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

/* Registers the device's memory if UCX knows its kind. The context is asked, because ucp_mem_map
 * reports success even if UCX does not know CUDA. */
static enum status device_region_open(struct fabric *fabric, const struct fabric_options *options,
                                      struct error *error)
{
    const struct device_memory *device = options->device;
    enum status status = fabric_staging_open(fabric, options);
    if (status != ST_OK)
        return error_set(error, status, "ucx: out of memory");
    status = device->ops->allocate(device->self, options->region_bytes, &fabric->region, error);
    if (status != ST_OK) {
        fabric_staging_close(fabric);
        error_prefix(error, "%s: a KV region of %llu bytes", device->name,
                     (unsigned long long)options->region_bytes);
        return status;
    }
    fabric->region_bytes = options->region_bytes;
    fabric->address.memory = FABRIC_MEMORY_DEVICE;
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
        .address = fabric->region,
        .length = options->region_bytes,
        .memory_type = UCS_MEMORY_TYPE_CUDA,
    };
    ucs_status_t ucs = UCS_OK;
    if (!device->is_cuda)
        snprintf(fabric->staged_why, sizeof(fabric->staged_why), "%s is not CUDA memory",
                 device->name);
    else if (fabric->context == NULL)
        snprintf(fabric->staged_why, sizeof(fabric->staged_why), "UCX is not open");
    else if (!knows_cuda(fabric))
        snprintf(fabric->staged_why, sizeof(fabric->staged_why),
                 "UCX %s does not support CUDA memory", ucp_get_version_string());
    else if (fabric->messages_only)
        snprintf(fabric->staged_why, sizeof(fabric->staged_why), "CLEAVE_KV_WRITE is am");
    else if ((ucs = ucp_mem_map(fabric->context, &params, &fabric->registration)) != UCS_OK)
        snprintf(fabric->staged_why, sizeof(fabric->staged_why), "UCX does not register it: %s",
                 ucs_status_string(ucs));
    else
        fabric->address.memory = FABRIC_MEMORY_CUDA;
    return ST_OK;
}

void fabric_region_unmap(struct fabric *fabric)
{
    if (fabric->registration != NULL)
        ucp_mem_unmap(fabric->context, fabric->registration);
}

void fabric_region_free(struct fabric *fabric)
{
    if (fabric->plain_region)
        munmap(fabric->region, fabric->region_bytes);
    if (fabric->staging == NULL)
        return;
    const struct device_memory *device = fabric->staging->device;
    fabric_staging_close(fabric);
    device->ops->free(device->self, fabric->region);
}

/* Allocates host memory without UCX. */
static enum status plain_region_open(struct fabric *fabric, uint64_t bytes, struct error *error)
{
    void *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
        return error_set(error, ST_NO_MEMORY, "a KV region of %llu bytes: %s",
                         (unsigned long long)bytes, strerror(errno));
    fabric->region = region;
    fabric->region_bytes = bytes;
    fabric->plain_region = true;
    (void)madvise(fabric->region, bytes, MADV_HUGEPAGE);
    return ST_OK;
}

enum status fabric_region_open(struct fabric *fabric, const struct fabric_options *options,
                               struct error *error)
{
    const uint64_t bytes = options->region_bytes;
    if (options->device != NULL)
        return device_region_open(fabric, options, error);
    if (fabric->context == NULL)
        return plain_region_open(fabric, bytes, error);
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .address = region_place(bytes),
        .length = bytes,
        .flags = UCP_MEM_MAP_ALLOCATE,
    };
    ucs_status_t status = ucp_mem_map(fabric->context, &params, &fabric->registration);
    if (status != UCS_OK && params.address != NULL) {
        params.address = NULL;
        status = ucp_mem_map(fabric->context, &params, &fabric->registration);
    }
    if (status != UCS_OK)
        return error_set(error, ST_NO_MEMORY, "ucx: a KV region of %llu bytes: %s",
                         (unsigned long long)bytes, ucs_status_string(status));
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    status = ucp_mem_query(fabric->registration, &attr);
    if (status != UCS_OK) {
        ucp_mem_unmap(fabric->context, fabric->registration);
        return error_set(error, ST_IO, "ucx: memory: %s", ucs_status_string(status));
    }
    fabric->region = attr.address;
    fabric->region_bytes = bytes;
    /* Huge pages cause fewer TLB misses. It is not an error if the kernel refuses. */
    (void)madvise(fabric->region, bytes, MADV_HUGEPAGE);
    return ST_OK;
}
