/* device_memory: memory of a device that the host cannot read (a GPU's), as a table of functions.
 * compute/cuda/ implements the table; devices without memory of their own have no such table.
 * transport/ calls the functions to move KV, machine/draft.c to allocate the KV memory of the draft
 * model, and `cleave profile` and `cleave doctor` to measure. The host uses a pointer into such
 * memory only as a number: for offsets, and as an argument of these functions. The functions start
 * no computation (compute/operations.h does).
 *
 * All calls for one struct device_memory are made on one thread, in a machine the event loop
 * thread, while another thread computes on the device. Copies run at the same time as computations.
 * Copies of one direction are done in the order in which they were queued. A copy does not wait for
 * computations: the caller queues a copy from the device after the data has been stored, and starts
 * the kernels that read copied data after poll has reported the copy as done. */
#ifndef COMMON_DEVICE_MEMORY_H
#define COMMON_DEVICE_MEMORY_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* DEVICE_TO_PEER: from the device into memory of another process (copy_to_peer). */
enum device_direction { DEVICE_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_PEER, DEVICE_DIRECTIONS };

#define DEVICE_HANDLE_BYTES_MAX 128 /* Largest handle of any backend. */

/* With a handle, other processes of the host can open a piece of device memory. Only the backend
 * that made the handle can interpret its bytes. */
struct device_handle {
    uint32_t bytes; /* Bytes of `data` in use. */
    uint8_t data[DEVICE_HANDLE_BYTES_MAX];
};

/* A contiguous piece to copy from the device's own memory into another process's memory. */
struct device_run {
    const void *from; /* In the device's own memory. */
    void *to;         /* In memory that open_peer has opened. */
    size_t bytes;
};
#define DEVICE_RUNS_MAX 256 /* Most runs in one call of copy_to_peer. */

struct device_memory_ops {
    /* Allocates `bytes` of the device's memory and fills them with zeros. Memory of 2 MiB or more
     * is aligned to 2 MiB. The caller frees the memory with `free`. ST_NO_MEMORY: the error says
     * how much memory is free. */
    enum status (*take)(void *self, uint64_t bytes, void **out, struct error *error);
    void (*free)(void *self, void *memory); /* Waits for all queued copies. NULL is fine. */
    /* Allocates pinned host memory, which copies use at full speed. The caller frees it with
     * host_free. */
    enum status (*host_take)(void *self, uint64_t bytes, void **out, struct error *error);
    void (*host_free)(void *self, void *memory); /* Waits for all queued copies. NULL is fine. */

    /* Queues a copy (DEVICE_TO_HOST or HOST_TO_DEVICE) and returns the number of the copy. Each
     * direction numbers its copies from 1. Does not wait for the copy. The bytes at `device` and at
     * `host` must not change until the copy is done. Returns 0 if the device has failed; then poll
     * returns the reason. */
    uint64_t (*copy)(void *self, enum device_direction direction, void *device, void *host,
                     size_t bytes);
    /* Stores the number of finished copies: if it is n, copies 1 to n of the direction are done.
     * Returns ST_IO if the device has failed: no further copy will be done. */
    enum status (*poll)(void *self, enum device_direction direction, uint64_t *done_out,
                        struct error *error);
    /* Makes the descriptor that `fd` returns readable when all copies queued so far in the
     * direction are done, or when the device has failed. */
    void (*signal_when_done)(void *self, enum device_direction direction);
    /* Returns the eventfd that all directions signal. The device owns the descriptor. The caller
     * reads from it to reset it. */
    int (*event_fd)(void *self);
    /* Stores the free bytes and the total bytes of the device's memory. */
    void (*memory_sizes)(void *self, uint64_t *free_out, uint64_t *total_out);

    /* The four functions below share memory between processes of this host, on this device or on a
     * device that this device can reach. All four are NULL if the backend cannot share memory. The
     * driver keeps memory allocated while another process has it open, so pointers into a peer's
     * memory stay valid when the peer ends. */

    /* Makes a handle with which other processes can open the first `bytes` bytes of `memory`.
     * Requires that `memory` was returned by `take`. */
    enum status (*share)(void *self, void *memory, uint64_t bytes, struct device_handle *out,
                         struct error *error);
    /* Opens another process's memory. The pointer may only be passed to copy_to_peer and
     * close_peer. Returns ST_INVALID if the handle was not made by this backend or its memory does
     * not have `bytes` bytes, ST_UNSUPPORTED if the driver refuses to open the memory,
     * ST_NO_RESOURCE if too many are open or the device has failed. The device keeps working after
     * ST_INVALID and ST_UNSUPPORTED. The call may take milliseconds. */
    enum status (*open_peer)(void *self, const struct device_handle *handle, uint64_t bytes,
                             void **out, struct error *error);
    /* Waits for all queued copies of direction DEVICE_TO_PEER. NULL is fine. */
    void (*close_peer)(void *self, void *peer);
    /* Queues 1 to DEVICE_RUNS_MAX runs as one copy of direction DEVICE_TO_PEER, and returns the
     * copy's number as `copy` does. The runs are done in any order. When the copy is done, the
     * caller informs the peer. Kernels that the peer starts after that see the data. `runs` need
     * not stay valid after the call. */
    uint64_t (*copy_to_peer)(void *self, const struct device_run *runs, uint32_t count);
};

/* The memory of one device. The device's backend owns this struct until the device is closed. */
struct device_memory {
    const struct device_memory_ops *ops;
    void *self;
    char name[32]; /* Such as "cuda:0". */
    bool cuda;     /* Pointers are CUDA pointers, so UCX may be able to register them. */
};

#endif
