/* device_memory: memory of a device that the host cannot read (a GPU's), through functions that
 * anybody can call: the seam between who has the device (compute/) and who moves KV (transport/).
 * A pointer into it is a number to the host: for offsets, and for the calls below.
 *
 * One event loop thread makes every call of one struct device_memory, while another thread computes
 * on the device. Copies run beside what is computed, in order per direction; they see what the
 * device had stored when they were queued, and what they bring is seen by what is computed from
 * when they are told to be done. */
#ifndef COMMON_DEVICE_MEMORY_H
#define COMMON_DEVICE_MEMORY_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum device_direction { DEVICE_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_PEER, DEVICE_DIRECTIONS };

/* Names memory of a device to other processes of the computer; only backends know what is in it. */
#define DEVICE_HANDLE_BYTES_MAX 128
struct device_handle {
    uint32_t bytes;
    uint8_t data[DEVICE_HANDLE_BYTES_MAX];
};

/* From the device's own memory into another process's. */
struct device_run {
    const void *from;
    void *to;
    size_t bytes;
};
#define DEVICE_RUNS_MAX 256

struct device_memory_ops {
    /* `bytes` of the device's memory, zeroed, aligned to 2 MiB where it is so large. An error says
     * how much there is. */
    enum status (*take)(void *self, uint64_t bytes, void **out, struct error *error);
    void (*free)(void *self, void *memory); /* waits for copies; NULL is fine */
    /* Memory of the host that copies go through at full speed (pinned). */
    enum status (*host_take)(void *self, uint64_t bytes, void **out, struct error *error);
    void (*host_free)(void *self, void *memory); /* likewise */

    /* Queues a copy: the n-th of its direction, from 1. Never blocks. Both sides stay as they are
     * until it is done. 0: the device takes none, and poll says why. */
    uint64_t (*copy)(void *self, enum device_direction direction, void *device, void *host,
                     size_t bytes);
    /* How many copies of the direction are done: all up to that number. An error is the device's:
     * no copy is done any more, and none touches the host's memory. */
    enum status (*poll)(void *self, enum device_direction direction, uint64_t *done_out,
                        struct error *error);
    /* The descriptor becomes readable once what has been queued of the direction until now is
     * done, or as soon as that is known to fail. */
    void (*wake)(void *self, enum device_direction direction);
    int (*fd)(void *self); /* an eventfd, one for all; the caller reads it */
    /* Bytes that can be taken, and all that there are. */
    void (*room)(void *self, uint64_t *free_out, uint64_t *total_out);

    /* Memory of other processes of the computer, on this device or another one that it reaches;
     * NULL, all four: there is no way. The driver keeps what one process has taken as long as
     * another one has it open: a process that ends leaves nobody with a pointer into others'
     * memory. */
    /* Lets other processes open `bytes` from `memory`, which begins a piece that was taken. */
    enum status (*share)(void *self, void *memory, uint64_t bytes, struct device_handle *out,
                         struct error *error);
    /* Another process's memory, a pointer for copy_to_peer only. What the handle says of its size
     * is not believed. ST_INVALID: no handle of this backend, or not of `bytes`; ST_UNSUPPORTED:
     * the driver does not open it. The device goes on after both. It may take milliseconds. */
    enum status (*open_peer)(void *self, const struct device_handle *handle, uint64_t bytes,
                             void **out, struct error *error);
    void (*close_peer)(void *self, void *peer); /* waits for copies; NULL is fine */
    /* Like copy, of 1 to DEVICE_RUNS_MAX runs that count as one of DEVICE_TO_PEER; they are done in
     * any order. What the peer computes after it has heard, by whatever way, that they are done
     * sees them. `runs` is read before it returns. */
    uint64_t (*copy_to_peer)(void *self, const struct device_run *runs, uint32_t count);
};

struct device_memory {
    const struct device_memory_ops *ops;
    void *self;
    char name[32]; /* "cuda:0" */
    bool cuda;     /* pointers are CUDA's: UCX may be asked to register them */
};

#endif
