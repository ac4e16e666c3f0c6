/* device_memory: memory of a device that the host cannot read (a GPU's), as a table of functions.
 * compute/cuda implements it; devices without memory of their own have none. transport/ calls it to
 * move KV, and so do `cleave profile` and `cleave doctor` for their measurements. The host uses a
 * pointer into such memory only as a number: for offsets, and as an argument of these functions. It
 * starts no computation (compute/operations.h does).
 *
 * One thread, the event loop's in a machine, makes every call for one struct device_memory, while
 * another thread computes on the device. Copies run at the same time as computations. Copies of one
 * direction are done in the order in which they were queued. A copy from the device reads the
 * memory as it was when the copy was queued. Data copied to the device is visible to kernels that
 * start after poll has reported the copy as done. */
#ifndef COMMON_DEVICE_MEMORY_H
#define COMMON_DEVICE_MEMORY_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* DEVICE_TO_PEER: from the device into memory of another process (copy_to_peer). */
enum device_direction { DEVICE_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_PEER, DEVICE_DIRECTIONS };

#define DEVICE_HANDLE_BYTES_MAX 128

/* A name of device memory by which other processes of the host can open the memory. Only the
 * backend that made the handle can interpret its bytes. */
struct device_handle {
    uint32_t bytes; /* Bytes of `data` in use. */
    uint8_t data[DEVICE_HANDLE_BYTES_MAX];
};

/* A piece to copy from the device's own memory into another process's memory. */
struct device_run {
    const void *from;
    void *to;
    size_t bytes;
};
#define DEVICE_RUNS_MAX 256 /* Runs of one call of copy_to_peer. */

struct device_memory_ops {
    /* Allocates `bytes` of the device's memory, zeroed, and aligned to 2 MiB if it is that large.
     * The caller frees the memory. The error says how much memory is available. */
    enum status (*take)(void *self, uint64_t bytes, void **out, struct error *error);
    void (*free)(void *self, void *memory); /* Waits for copies. NULL is fine. */
    /* Allocates pinned host memory, which copies use at full speed. The caller frees it with
     * host_free. */
    enum status (*host_take)(void *self, uint64_t bytes, void **out, struct error *error);
    void (*host_free)(void *self, void *memory); /* Waits for copies. NULL is fine. */

    /* Queues a copy and returns the number of the copy; each direction numbers its copies from 1.
     * Never blocks. Neither memory may change until the copy is done. Returns 0 if the device
     * accepts no copy; then poll returns the reason. */
    uint64_t (*copy)(void *self, enum device_direction direction, void *device, void *host,
                     size_t bytes);
    /* Stores n, the number of copies of the direction that are done: the copies 1 to n. On an error
     * the device has failed: no further copy will be done, and no copy touches host memory any
     * longer. */
    enum status (*poll)(void *self, enum device_direction direction, uint64_t *done_out,
                        struct error *error);
    /* Makes the descriptor of `fd` readable once all copies queued so far in the direction are
     * done, or once it is known that they fail. */
    void (*wake)(void *self, enum device_direction direction);
    /* Returns an eventfd that serves all directions. The device owns it; the caller reads it after
     * each wake. */
    int (*fd)(void *self);
    /* Stores the bytes of the device's memory that can be allocated, and all its bytes. */
    void (*room)(void *self, uint64_t *free_out, uint64_t *total_out);

    /* The four functions below reach memory of other processes of this host, on this device or on a
     * device that this one can reach. All four are NULL if the backend cannot share memory between
     * processes. The driver keeps memory allocated while another process has it open, so the end of
     * a process leaves no other process with an invalid pointer. */

    /* Lets other processes open `bytes` from `memory`. Requires that `memory` is the start of an
     * allocation. */
    enum status (*share)(void *self, void *memory, uint64_t bytes, struct device_handle *out,
                         struct error *error);
    /* Opens another process's memory. The pointer may only be passed to copy_to_peer and
     * close_peer. The size that the handle contains is not trusted. Returns ST_INVALID if the
     * handle was not made by this backend or its memory does not have `bytes` bytes, ST_UNSUPPORTED
     * if the driver refuses to open the memory; the device keeps working after both errors. The
     * call may take milliseconds. */
    enum status (*open_peer)(void *self, const struct device_handle *handle, uint64_t bytes,
                             void **out, struct error *error);
    void (*close_peer)(void *self, void *peer); /* Waits for copies. NULL is fine. */
    /* Queues 1 to DEVICE_RUNS_MAX runs as one copy of direction DEVICE_TO_PEER, and returns its
     * number as `copy` does. The runs are done in any order. The peer's device sees the data in
     * everything that it computes after the peer has been informed that the copy is done. `runs`
     * need not stay valid after the call. */
    uint64_t (*copy_to_peer)(void *self, const struct device_run *runs, uint32_t count);
};

/* Memory of one device. Its backend owns it until the device is closed. */
struct device_memory {
    const struct device_memory_ops *ops;
    void *self;
    char name[32]; /* Such as "cuda:0". */
    bool cuda;     /* Pointers are CUDA pointers, so UCX may be able to register them. */
};

#endif
