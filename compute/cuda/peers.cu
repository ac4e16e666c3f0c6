/* peers: device memory of other processes on this host (CUDA IPC), and copies into it: on the same
 * device, or on another device that is reachable over NVLink or PCIe (peer access is enabled when
 * such memory is opened). Bound: the link between the devices, or half of the memory's bandwidth.
 *
 * The runs of a copy are passed to the driver as one list, for its copy engines: no kernel, which
 * would wait for multiprocessors that compute a prompt, and no launch per run, which takes the
 * event loop about 2 us. Copies wait only for the copies before them, as in memory.cu. */
#include "compute/cuda/memory.cuh"

#define HANDLE_MAGIC "cudaipc"

struct handle {
    char magic[8];
    cudaIpcMemHandle_t memory; /* The allocation that contains the shared memory. */
    uint64_t offset;           /* Offset in the allocation. */
    uint64_t bytes;
};
static_assert(sizeof(struct handle) <= DEVICE_HANDLE_BYTES_MAX, "fits a handle");

static struct cuda_memory *memory_of(void *self)
{
    return (struct cuda_memory *)self;
}

static struct piece *piece_of(struct piece *pieces, const void *memory)
{
    for (uint32_t i = 0; i < PIECES_MAX; i++)
        if (pieces[i].memory == memory)
            return &pieces[i];
    return NULL;
}

/* Returns an error of the driver that is not an error of the device. */
static enum status refused(cudaError_t result, const char *what, struct error *error)
{
    (void)cudaGetLastError();
    return error_set(error, ST_UNSUPPORTED, "%s: %s", what, cudaGetErrorString(result));
}

enum status cuda_peer_share(void *self, void *memory, uint64_t bytes, struct device_handle *out,
                            struct error *error)
{
    struct cuda_memory *m = memory_of(self);
    const struct piece *piece = piece_of(m->pieces, memory);
    struct handle handle = {HANDLE_MAGIC, {}, 0, bytes};
    if (memory == NULL || piece == NULL || bytes > piece->bytes)
        return error_set(error, ST_INVALID, "no allocation has this size");
    (void)cudaSetDevice(m->c->device);
    cudaError_t result = cudaIpcGetMemHandle(&handle.memory, piece->base);
    if (result != cudaSuccess)
        return refused(result, "cudaIpcGetMemHandle", error);
    handle.offset = (uint64_t)((char *)piece->memory - (char *)piece->base);
    out->bytes = sizeof(handle);
    memcpy(out->data, &handle, sizeof(handle));
    return ST_OK;
}

/* Returns how many bytes there are from `memory` on, according to the driver; 0 = unknown. It uses
 * a function of the driver that is found through the runtime: the plugin does not link the driver.
 */
static uint64_t bytes_from(const void *memory)
{
    typedef int (*range_call)(unsigned long long *, size_t *, unsigned long long);
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult parameters = cudaDriverEntryPointSymbolNotFound;
    unsigned long long base = 0, at = (unsigned long long)(uintptr_t)memory;
    size_t bytes = 0;
    if (cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 12000, cudaEnableDefault,
                                         &parameters) != cudaSuccess ||
        parameters != cudaDriverEntryPointSuccess || ((range_call)found)(&base, &bytes, at) != 0 ||
        at < base || at - base > bytes) {
        (void)cudaGetLastError();
        return 0;
    }
    return bytes - (at - base);
}

enum status cuda_peer_open(void *self, const struct device_handle *given, uint64_t bytes,
                           void **out, struct error *error)
{
    struct cuda_memory *m = memory_of(self);
    struct handle handle;
    struct piece *slot = piece_of(m->peers, NULL);
    void *base = NULL;
    if (given->bytes != sizeof(handle) || memcmp(given->data, HANDLE_MAGIC, 8) != 0)
        return error_set(error, ST_INVALID, "not a handle of CUDA memory");
    memcpy(&handle, given->data, sizeof(handle));
    if (bytes == 0 || handle.bytes != bytes || handle.offset > UINT64_MAX - bytes)
        return error_set(error, ST_INVALID, "a handle of memory of another size");
    if (m->c->failed) {
        std::lock_guard<std::mutex> lock(m->c->failing);
        return error_set(error, ST_IO, "%s", m->c->why.text);
    }
    if (slot == NULL)
        return error_set(error, ST_NO_RESOURCE, "more than %d memories of peers", PIECES_MAX);
    (void)cudaSetDevice(m->c->device);
    cudaError_t result = cudaIpcOpenMemHandle(&base, handle.memory, cudaIpcMemLazyEnablePeerAccess);
    if (result != cudaSuccess)
        return refused(result, "cudaIpcOpenMemHandle", error);
    uint64_t most = bytes_from(base);
    if (handle.offset + bytes > most) {
        (void)cudaIpcCloseMemHandle(base);
        return error_set(error, ST_INVALID, "%llu bytes at %llu of an allocation of %llu",
                         (unsigned long long)bytes, (unsigned long long)handle.offset,
                         (unsigned long long)most);
    }
    slot->base = base;
    slot->memory = (char *)base + handle.offset;
    slot->bytes = bytes;
    *out = slot->memory;
    return ST_OK;
}

/* The same allocation may be open twice (two connections to one process): the driver counts. */
void cuda_peer_close(void *self, void *peer)
{
    struct cuda_memory *m = memory_of(self);
    struct piece *slot = peer != NULL ? piece_of(m->peers, peer) : NULL;
    if (slot == NULL)
        return;
    (void)cudaSetDevice(m->c->device);
    (void)cudaStreamSynchronize(m->copies[DEVICE_TO_PEER].stream);
    (void)cudaIpcCloseMemHandle(slot->base);
    *slot = {};
}

/* False: the driver does not support lists, and has queued nothing. */
static bool list_queued(struct cuda_memory *m, const struct device_run *runs, uint32_t count)
{
    void *to[DEVICE_RUNS_MAX];
    const void *from[DEVICE_RUNS_MAX];
    size_t bytes[DEVICE_RUNS_MAX], first = 0;
    struct cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
    for (uint32_t i = 0; i < count; i++) {
        to[i] = runs[i].to;
        from[i] = runs[i].from;
        bytes[i] = runs[i].bytes;
    }
    cudaError_t result = cudaMemcpyBatchAsync(to, from, bytes, count, &attributes, &first, 1,
                                              m->copies[DEVICE_TO_PEER].stream);
    if (result == cudaErrorNotSupported || result == cudaErrorInvalidValue) {
        (void)cudaGetLastError();
        m->no_copy_lists = true;
        return false;
    }
    (void)cuda_good(m->c, result, "copies to a peer");
    return true;
}

uint64_t cuda_peer_copy(void *self, const struct device_run *runs, uint32_t count)
{
    struct cuda_memory *m = memory_of(self);
    if (!cuda_enter(m->c))
        return 0;
    if (m->no_copy_lists || !list_queued(m, runs, count)) {
        for (uint32_t i = 0; i < count && !m->c->failed; i++)
            (void)cuda_good(m->c,
                            cudaMemcpyAsync(runs[i].to, runs[i].from, runs[i].bytes,
                                            cudaMemcpyDeviceToDevice,
                                            m->copies[DEVICE_TO_PEER].stream),
                            "a copy to a peer");
    }
    return m->c->failed ? 0 : cuda_copy_queued(m, DEVICE_TO_PEER);
}
