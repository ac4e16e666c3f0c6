/* memory: what memory.cu (device memory and its copies) and peers.cu (memory of other processes)
 * share. */
#ifndef COMPUTE_CUDA_MEMORY_CUH
#define COMPUTE_CUDA_MEMORY_CUH

#include "compute/cuda/backend.cuh"

/* Most allocations of KV memory, and most opened allocations of other processes. */
#define PIECES_MAX 64
/* Events per direction; when more copies are in flight, several share an event. */
#define COPIES 256

struct copies {
    cudaStream_t stream;
    cudaEvent_t events[COPIES]; /* A ring that begins at `first`. */
    uint64_t numbers[COPIES];   /* When the event is done, all copies up to this number are done. */
    uint32_t first, count;
    uint64_t queued, recorded, done;
};

struct piece {
    void *memory; /* Address as it was returned to the caller; NULL = the entry is free. */
    void *base;   /* Base address of the allocation. */
    uint64_t bytes;
};

struct cuda_memory {
    struct compute *c;
    struct device_memory as_given;
    struct copies copies[DEVICE_DIRECTIONS];
    struct piece pieces[PIECES_MAX];
    struct piece peers[PIECES_MAX];
    bool no_batches; /* The driver does not support lists of copies. */
    cudaStream_t marks;
    cudaEvent_t mark;
    int fd;
};

/* memory.cu: returns the number of the copy that was just queued, counted after all earlier copies;
 * 0 = the device has failed. */
uint64_t cuda_copy_queued(struct cuda_memory *m, enum device_direction direction);

/* peers.cu: see struct device_memory_ops. */
enum status cuda_peer_share(void *self, void *memory, uint64_t bytes, struct device_handle *out,
                            struct error *error);
enum status cuda_peer_open(void *self, const struct device_handle *handle, uint64_t bytes,
                           void **out, struct error *error);
void cuda_peer_close(void *self, void *peer);
uint64_t cuda_peer_copy(void *self, const struct device_run *runs, uint32_t count);

#endif
