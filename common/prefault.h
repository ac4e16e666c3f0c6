/* prefault: a large piece of memory that will be used up is taken from the kernel soon, by a thread
 * of its own, and not page by page by whoever touches it first: of shared memory a page costs 0.7
 * us, so that a prompt's KV of 1000 tokens holds up its first decode step by 4 ms. A GiB takes a
 * core for 0.2 s. What is in the memory stays; others may use it meanwhile. */
#ifndef COMMON_PREFAULT_H
#define COMMON_PREFAULT_H

#include "common/status.h"

#include <stdint.h>

struct prefault;

/* `count` pieces of stride_bytes each, one behind the other: first the beginning of every piece,
 * then what follows. It ends early where the computer would be left with less than a quarter of its
 * memory, and where the kernel cannot do it (before Linux 5.14): then pages come when they are
 * touched. The memory stays the caller's, until prefault_stop. */
enum status prefault_start(void *base, uint64_t stride_bytes, uint32_t count, struct prefault **out,
                           struct error *error);
void prefault_stop(struct prefault *p); /* NULL is fine; waits for the page in hand */

#endif
