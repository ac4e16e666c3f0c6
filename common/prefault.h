/* prefault: makes the kernel allocate the pages of a large piece of memory early, on a thread of
 * its own. A machine calls it for its KV memory at start-up. Without it, the thread that touches a
 * page first waits for the kernel: a page of shared memory costs 0.7 us, so a prompt's KV of 1000
 * tokens delays its first decode step by 4 ms. A GiB takes one core 0.2 s. The memory's content
 * does not change, and other threads may use the memory meanwhile. The functions may be called on
 * any thread. They do not own the memory. */
#ifndef COMMON_PREFAULT_H
#define COMMON_PREFAULT_H

#include "common/status.h"

#include <stdint.h>

struct prefault;

/* Starts a thread for `count` pieces of stride_bytes each, one after another: first the start of
 * every piece, then the rest. The thread ends early if less than a quarter of the host's memory is
 * available, or if the kernel cannot do it (before Linux 5.14). The remaining pages are then
 * allocated when they are touched. The memory must stay valid until prefault_stop. */
enum status prefault_start(void *base, uint64_t stride_bytes, uint32_t count, struct prefault **out,
                           struct error *error);
void prefault_stop(struct prefault *p); /* Stops the thread and waits for it. NULL is fine. */

#endif
