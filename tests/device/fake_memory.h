/* fake_memory: a struct device_memory without a device. Its memory is mapped PROT_NONE, so a
 * process that touches it is killed at once; only its own copies reach it, through another mapping
 * of the same pages. Copies run late, on a separate thread. Copies of one direction run in a random
 * order that gives the same bytes, but are reported as done in the order in which they were queued.
 * Until then, host memory that is a copy's destination reads as 0xa5. Other processes, and other
 * devices of this process, can open the memory, which is an unnamed file.
 *
 * The transport's tests open it themselves; fake_compute.c opens one for each of its devices. A
 * test may call the functions below on any thread. The fake computes nothing. */
#ifndef TESTS_DEVICE_FAKE_MEMORY_H
#define TESTS_DEVICE_FAKE_MEMORY_H

#include "common/device_memory.h"

#include <stdbool.h>
#include <stdint.h>

struct fake_memory_options {
    uint32_t delay_us; /* Longest delay of a batch of copies. */
    /* The device fails instead of doing this copy, counted over both directions; 0 = never. */
    uint64_t fail_after;
    uint64_t stick_after; /* This copy and all later ones are never done; 0 = none. */
    uint64_t room_bytes;  /* Size of the device's memory; 0 = 1 GiB. */
    uint64_t count;       /* Number of devices (fake_compute.h); 0 = any number. */
    bool hang;            /* Opening a device never returns. */
    bool crash;           /* Opening a device kills the process. */
    bool is_cuda;         /* The device says that its pointers are CUDA pointers. */
    bool alone;           /* The device cannot share memory with other processes. */
    bool refuse;          /* The device refuses to open other memory. */
    bool garbage;         /* The device's memory handles are random bytes. */
    uint64_t seed;        /* Seed of the delays and of the order of copies. */
};

struct fake_memory;

/* Opens a device's memory; fails the test if that is impossible. */
struct fake_memory *fake_memory_open(const struct fake_memory_options *options);
/* Requires that all memory was returned; otherwise ends the process. */
void fake_memory_close(struct fake_memory *fake);
/* Returns the interface that the code under test gets; valid until the memory is closed. */
const struct device_memory *fake_memory_device(struct fake_memory *fake);
/* fake_memory_fail: the device fails now. fake_memory_stick: while `stick` is true, no copy is
 * done. fake_memory_failed: returns true if the device has failed. fake_memory_copies: returns the
 * number of copies of one direction that are done. */
void fake_memory_fail(struct fake_memory *fake);
void fake_memory_stick(struct fake_memory *fake, bool stick);
bool fake_memory_failed(struct fake_memory *fake);
uint64_t fake_memory_copies(struct fake_memory *fake, enum device_direction direction);

/* Returns a mapping of the device memory at `device`, which the test may read and write. */
void *fake_memory_mapping(struct fake_memory *fake, const void *device);
/* fake_memory_compute: returns the host memory in which the device computes, and into which copies
 * to the device write; NULL = `device` is not in the device's memory. fake_memory_store: makes
 * values that were computed at `compute` visible to copies from the device. */
void *fake_memory_compute(struct fake_memory *fake, const void *device);
void fake_memory_store(struct fake_memory *fake, const void *compute, const void *stored,
                       size_t bytes);

#endif
