/* prefault: makes the kernel allocate the pages of a large piece of memory early, on a thread of
 * its own. machine/executor/device.c calls it for KV in host memory: prefault_start when the device
 * is opened, prefault_stop before that memory is freed. Without prefault, the first thread that
 * touches a page waits for the kernel, about 0.7 us a page of shared memory. The memory's content
 * does not change, and other threads may use the memory meanwhile. Start and stop may be called on
 * any thread. prefault does not own the memory. It neither locks pages nor reports when it is done.
 */
#ifndef COMMON_PREFAULT_H
#define COMMON_PREFAULT_H

#include "common/status.h"

#include <stdint.h>

struct prefault;

/* Starts a thread for `count` consecutive pieces of memory, the first at `base`, each of
 * stride_bytes bytes. The thread allocates 256 KiB of every piece, then the next 256 KiB of every
 * piece, and so on. The thread ends early if less memory is available than a quarter of the host's
 * memory, if the kernel does not report the available memory, or if the kernel is older than Linux
 * 5.14. The remaining pages are allocated when they are touched. The memory must stay valid until
 * prefault_stop. Returns ST_NO_RESOURCE if no thread can be started, ST_NO_MEMORY. */
enum status prefault_start(void *base, uint64_t stride_bytes, uint32_t count, struct prefault **out,
                           struct error *error);
void prefault_stop(struct prefault *p); /* Stops the thread and waits for it. NULL is fine. */

#endif
