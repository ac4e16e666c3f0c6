/* fake_memory: a struct device_memory without a device. Its memory is mapped PROT_NONE, so that
 * whoever touches it is killed on the spot; only its own copies, which work through another mapping
 * of the same pages, reach it. Copies run on a thread of their own, late: those of a direction may
 * be carried out in any order that cannot be told from theirs, and are told done in theirs. Until
 * then a host's memory that is copied into reads as 0xa5. Other processes, and other devices of
 * this one, can open its memory, which is a file without a name. */
#ifndef TESTS_DEVICE_FAKE_MEMORY_H
#define TESTS_DEVICE_FAKE_MEMORY_H

#include "common/device_memory.h"

#include <stdbool.h>
#include <stdint.h>

struct fake_memory_options {
    uint32_t delay_us; /* a batch of copies takes up to so long */
    uint64_t
        fail_after; /* the device fails instead of copy so and so, of both directions; 0: never */
    uint64_t stick_after; /* that copy and all later ones are never done; 0: never */
    uint64_t room_bytes;  /* of the device; 0: 1 GiB */
    uint64_t count;       /* devices that there are (fake_compute.h); 0: as many as asked for */
    bool hang, crash;     /* whoever opens one waits without end, or dies */
    bool cuda;            /* it says that its pointers are CUDA's */
    bool alone;           /* it cannot share memory with other processes */
    bool refuse;          /* it opens nobody's memory */
    bool garbage;         /* its handles are random bytes */
    uint64_t seed;
};

struct fake_memory;

struct fake_memory *fake_memory_open(const struct fake_memory_options *options);
/* Everything that was taken must be back: it ends the process else. */
void fake_memory_close(struct fake_memory *fake);
const struct device_memory *fake_memory_device(struct fake_memory *fake);
/* From now on. */
void fake_memory_fail(struct fake_memory *fake);
void fake_memory_stick(struct fake_memory *fake, bool stick);
bool fake_memory_failed(struct fake_memory *fake);
uint64_t fake_memory_copies(struct fake_memory *fake, enum device_direction direction);

/* What a test looks at and fills: the same bytes as `device` has. */
void *fake_memory_see(struct fake_memory *fake, const void *device);
/* What the device computes on: what copies bring is there; what is computed there, at `compute`, is
 * copied out once it has been stored. NULL: no pointer into the device's memory. */
void *fake_memory_compute(struct fake_memory *fake, const void *device);
void fake_memory_store(struct fake_memory *fake, const void *compute, const void *stored,
                       size_t bytes);

#endif
