/* prefault: makes the kernel allocate the pages of a large piece of memory early, on a thread of
 * its own. Otherwise whichever thread touches a page first waits for it: a page of shared memory
 * costs 0.7 us, so a prompt's KV of 1000 tokens delays its first decode step by 4 ms. A GiB takes
 * one core 0.2 s. The memory's content does not change, and other threads may use the memory
 * meanwhile. */
#ifndef COMMON_PREFAULT_H
#define COMMON_PREFAULT_H

#include "common/status.h"

#include <stdint.h>

struct prefault;

/* Starts a thread for `count` pieces of stride_bytes each, one after another: first the start of
 * every piece, then the rest. The thread ends early if the host would have less than a quarter of
 * its memory left, and if the kernel cannot do it (before Linux 5.14); then pages are allocated
 * when they are touched. The memory must stay valid until prefault_stop. */
enum status prefault_start(void *base, uint64_t stride_bytes, uint32_t count, struct prefault **out,
                           struct error *error);
void prefault_stop(struct prefault *p); /* Waits until the thread has ended. NULL is fine. */

#endif
