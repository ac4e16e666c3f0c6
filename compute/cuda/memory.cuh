/* memory: what memory.cu (device memory and its copies) and peers.cu (memory of other processes)
 * share; no other file includes it. Together they implement struct device_memory
 * (common/device_memory.h), whose functions the event loop thread calls. memory.cu also implements
 * marks, for the thread that computes. The memory of weights and activations is not here (cuda_take
 * in backend.cuh). */
#ifndef COMPUTE_CUDA_MEMORY_CUH
#define COMPUTE_CUDA_MEMORY_CUH

#include "compute/cuda/backend.cuh"

/* Most allocations of KV memory, and most opened allocations of other processes. */
#define PIECES_MAX 64
/* Events per direction; when more copies are in flight, several share an event. */
#define COPIES 256

/* The copies of one direction that are not known to be done. Copies are numbered from 1. */
struct copies {
    cudaStream_t stream;
    cudaEvent_t events[COPIES]; /* A ring that begins at `first`. */
    uint64_t numbers[COPIES];   /* When the event is done, all copies up to this number are done. */
    uint32_t first, count;      /* Events in use. */
    /* Numbers of copies: the last copy that was queued, the last copy that an event covers, and the
     * last copy that is known to be done. */
    uint64_t queued, recorded, done;
};

/* One allocation, of this process or opened from another process. */
struct piece {
    void *memory; /* Address as it was returned to the caller; NULL = the entry is free. */
    void *base;   /* Base address of the allocation. */
    uint64_t bytes;
};

struct cuda_memory {
    struct compute *c;
    struct device_memory as_given; /* What compute_ops.device_memory returns. */
    struct copies copies[DEVICE_DIRECTIONS];
    struct piece pieces[PIECES_MAX]; /* Allocations of this process. */
    struct piece peers[PIECES_MAX];  /* Opened allocations of other processes. */
    bool no_copy_lists;              /* True: the driver does not support lists of copies. */
    cudaStream_t marks;              /* Stream whose host functions report marks. */
    cudaEvent_t mark;                /* The last mark on the stream that computes. */
    int fd;                          /* The eventfd that device_memory_ops.event_fd returns. */
};

/* memory.cu: counts a copy that was just queued. Returns the number of the copy; 0 = the device has
 * failed. */
uint64_t cuda_copy_queued(struct cuda_memory *m, enum device_direction direction);

/* peers.cu: see struct device_memory_ops. */
enum status cuda_peer_share(void *self, void *memory, uint64_t bytes, struct device_handle *out,
                            struct error *error);
enum status cuda_peer_open(void *self, const struct device_handle *handle, uint64_t bytes,
                           void **out, struct error *error);
void cuda_peer_close(void *self, void *peer);
uint64_t cuda_peer_copy(void *self, const struct device_run *runs, uint32_t count);

#endif
