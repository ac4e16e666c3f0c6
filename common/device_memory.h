/* device_memory: a table of functions that allocate and copy the memory of a GPU, because the host
 * cannot read this memory itself. compute/cuda/ and tests implement the table; devices that use
 * host memory have no table. Any folder may call the functions. The host uses a pointer into this
 * memory only as a number: for offsets, and as an argument of these functions. The functions start
 * no computation (those of compute/operations.h do).
 *
 * One thread makes all calls for a struct device_memory (in a machine, the event loop thread);
 * another thread may compute on the device meanwhile. Copies of one direction are done in the order
 * in which they were queued. A copy does not wait for computations: queue a copy from the device
 * only after the device has stored the data, and start kernels that read copied data only after
 * poll has reported the copy as done. */
#ifndef COMMON_DEVICE_MEMORY_H
#define COMMON_DEVICE_MEMORY_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Directions of copies. DEVICE_TO_PEER: into device memory of another process (copy_to_peer). */
enum device_direction { DEVICE_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_PEER, DEVICE_DIRECTIONS };

#define DEVICE_HANDLE_BYTES_MAX 128 /* Most bytes of a handle. */

/* With a handle, another process of the host can open a piece of device memory. Only the backend
 * that made the handle can interpret its bytes. */
struct device_handle {
    uint32_t bytes; /* Number of bytes of `data` that are used. */
    uint8_t data[DEVICE_HANDLE_BYTES_MAX];
};

/* A contiguous range of bytes to copy into another process's memory. */
struct device_run {
    const void *from; /* In the device's own memory. */
    void *to;         /* In another process's memory, which open_peer has opened. */
    size_t bytes;
};
#define DEVICE_RUNS_MAX 256 /* Most runs in one call of copy_to_peer. */

struct device_memory_ops {
    /* Allocates `bytes` bytes of the device's memory and fills them with zeros. Memory of 2 MiB or
     * more is aligned to 2 MiB. The caller frees the memory with `free`. Returns ST_NO_MEMORY (the
     * error says how much memory is free), ST_NO_RESOURCE if the backend cannot record one more
     * allocation, ST_IO if the device has failed. */
    enum status (*allocate)(void *self, uint64_t bytes, void **out, struct error *error);
    void (*free)(void *self, void *memory); /* Waits for all queued copies. NULL is fine. */
    /* Allocates pinned host memory: copies to and from pinned memory have full speed. The caller
     * frees the memory with host_free. Returns ST_NO_MEMORY on failure. */
    enum status (*host_allocate)(void *self, uint64_t bytes, void **out, struct error *error);
    void (*host_free)(void *self, void *memory); /* Waits for all queued copies. NULL is fine. */

    /* Queues a copy (DEVICE_TO_HOST or HOST_TO_DEVICE) and returns the number of the copy. Each
     * direction numbers its copies from 1. Does not wait for the copy. The bytes at `device` and at
     * `host` must not change until the copy is done. Returns 0 if the device has failed; then poll
     * returns the reason. */
    uint64_t (*copy)(void *self, enum device_direction direction, void *device, void *host,
                     size_t bytes);
    /* Stores the number n of finished copies of the direction: copies 1 to n are done. Returns
     * ST_IO if the device has failed: no further copy will be done. */
    enum status (*poll)(void *self, enum device_direction direction, uint64_t *done_out,
                        struct error *error);
    /* Makes the descriptor that `event_fd` returns readable when all copies that have been queued
     * in the direction are done, or when the device has failed. */
    void (*signal_when_done)(void *self, enum device_direction direction);
    /* Returns the non-blocking eventfd that signal_when_done signals, for all directions. The
     * eventfd also becomes readable when the device fails, without a call of signal_when_done. The
     * device owns the descriptor; the caller reads from it to reset it. */
    int (*event_fd)(void *self);
    /* Stores the free bytes and the total bytes of the device's memory; 0 = unknown. */
    void (*memory_sizes)(void *self, uint64_t *free_out, uint64_t *total_out);

    /* The four functions below share device memory between processes of this host. All four are
     * NULL if the backend cannot share memory. Pointers into a peer's memory stay valid when the
     * peer ends. */

    /* Makes a handle with which other processes can open the first `bytes` bytes of `memory`.
     * Returns ST_INVALID if `memory` was not returned by `allocate` or has less than `bytes` bytes,
     * ST_UNSUPPORTED if the driver cannot share the memory. */
    enum status (*share)(void *self, void *memory, uint64_t bytes, struct device_handle *out,
                         struct error *error);
    /* Opens another process's memory. The caller may only pass the pointer to copy_to_peer and
     * close_peer. Returns ST_INVALID if the handle was not made by this backend, `bytes` is not the
     * number of bytes that `share` was called with, or the driver does not confirm that the peer's
     * allocation has these bytes, ST_UNSUPPORTED if the driver refuses to open the memory,
     * ST_NO_RESOURCE if too many memories of peers are open, ST_IO if the device has failed. After
     * the other errors the device works. The call may take milliseconds. */
    enum status (*open_peer)(void *self, const struct device_handle *handle, uint64_t bytes,
                             void **out, struct error *error);
    /* Waits for all queued copies of direction DEVICE_TO_PEER, and closes the memory. NULL is
     * fine. */
    void (*close_peer)(void *self, void *peer);
    /* Queues 1 to DEVICE_RUNS_MAX runs as one copy of direction DEVICE_TO_PEER. Returns the number
     * of the copy; 0 = the device has failed. The runs of a copy are done in any order. The peer
     * learns of a copy only from the caller. `runs` need not stay valid after the call. */
    uint64_t (*copy_to_peer)(void *self, const struct device_run *runs, uint32_t count);
};

/* The memory of one device. The device's backend owns this struct and frees it when the device is
 * closed. */
struct device_memory {
    const struct device_memory_ops *ops;
    void *self;    /* Argument of the functions of `ops`. */
    char name[32]; /* Such as "cuda:0". */
    bool is_cuda;  /* Pointers are CUDA pointers, so UCX may be able to register the memory. */
};

#endif
