/* prefault: makes the kernel allocate the pages of a large piece of memory early, on a thread of
 * its own. machine/executor/device.c calls it for KV in host memory: prefault_start when the device
 * is opened, prefault_stop before that memory is freed. Without it, the thread that touches a page
 * first waits for the kernel: a page of shared memory costs 0.7 us, so a prompt's KV of 1000 tokens
 * delays its first decode step by 4 ms. A GiB takes one core 0.2 s. The memory's content does not
 * change, and other threads may use the memory meanwhile. Start and stop may be called on any
 * thread. prefault does not own the memory, and it neither locks pages nor reports when it is done.
 */
#ifndef COMMON_PREFAULT_H
#define COMMON_PREFAULT_H

#include "common/status.h"

#include <stdint.h>

struct prefault;

/* Starts a thread for the `count` pieces of stride_bytes each that follow one another at `base`.
 * The thread allocates the start of every piece first, then the rest. The thread ends early if less
 * than a quarter of the host's memory is available, or if the kernel has no call for it (before
 * Linux 5.14). The remaining pages are then allocated when they are touched. The memory must stay
 * valid until prefault_stop. Returns ST_NO_RESOURCE if there is no thread. */
enum status prefault_start(void *base, uint64_t stride_bytes, uint32_t count, struct prefault **out,
                           struct error *error);
void prefault_stop(struct prefault *p); /* Stops the thread and waits for it. NULL is fine. */

#endif
