/* prefault: a thread that makes the kernel allocate the pages of a large piece of memory before
 * other threads need the pages. machine/executor/ uses it for KV in host memory. Without prefault,
 * the first thread that touches a page waits for the kernel, about 0.7 us for a page of shared
 * memory. The content of the memory does not change, and other threads may use the memory
 * meanwhile. Any thread may call the functions. prefault does not own the memory, locks no pages,
 * and does not report its end. */
#ifndef COMMON_PREFAULT_H
#define COMMON_PREFAULT_H

#include "common/status.h"

#include <stdint.h>

struct prefault;

/* Starts a thread for `count` consecutive pieces of memory of stride_bytes bytes each, the first
 * piece at `base`. The thread allocates the beginnings of all pieces first. It ends early if the
 * available memory is less than a quarter of the host's memory or is not known, or if the kernel
 * refuses (Linux before 5.14). Requires that `base` is aligned to a page, and that the memory is
 * writable and stays valid until prefault_stop. Returns ST_NO_RESOURCE if no thread can be started,
 * ST_NO_MEMORY if an allocation fails; *out is then NULL. */
enum status prefault_start(void *base, uint64_t stride_bytes, uint32_t count, struct prefault **out,
                           struct error *error);
/* Stops the thread, waits for its end and frees *p. NULL is fine. */
void prefault_stop(struct prefault *p);

#endif
