/* memory: what memory.cu (a device's memory, its copies) and peers.cu (other processes' memory)
 * share.
 */
#ifndef COMPUTE_CUDA_MEMORY_CUH
#define COMPUTE_CUDA_MEMORY_CUH

#include "compute/cuda/backend.cuh"

#define PIECES_MAX 64  /* of KV memory that are taken, and of other processes' that are open */
#define COPIES     256 /* events of a direction; more copies in flight share them */

struct copies {
    cudaStream_t stream;
    cudaEvent_t events[COPIES]; /* a ring, from `first` on */
    uint64_t numbers[COPIES];   /* all copies up to that one are done when the event is */
    uint32_t first, count;
    uint64_t queued, recorded, done;
};

struct piece {
    void *memory; /* as it was given out; NULL: free */
    void *base;   /* of its allocation */
    uint64_t bytes;
};

struct cuda_memory {
    struct compute *c;
    struct device_memory as_given;
    struct copies copies[DEVICE_DIRECTIONS];
    struct piece pieces[PIECES_MAX];
    struct piece peers[PIECES_MAX];
    bool no_batches; /* the driver takes no lists of copies */
    cudaStream_t marks;
    cudaEvent_t mark;
    int fd;
};

/* memory.cu: the copy that was just queued, behind the others: its number; 0: the device has
 * failed. */
uint64_t cuda_copy_queued(struct cuda_memory *m, enum device_direction direction);

/* peers.cu: struct device_memory_ops */
enum status cuda_peer_share(void *self, void *memory, uint64_t bytes, struct device_handle *out,
                            struct error *error);
enum status cuda_peer_open(void *self, const struct device_handle *handle, uint64_t bytes,
                           void **out, struct error *error);
void cuda_peer_close(void *self, void *peer);
uint64_t cuda_peer_copy(void *self, const struct device_run *runs, uint32_t count);

#endif
