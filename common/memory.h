/* memory: how much host memory this process may still use, and how much it uses now. Any folder may
 * call the functions, on any thread; they keep no state. They do not know the memory of GPUs
 * (device_memory.h). */
#ifndef COMMON_MEMORY_H
#define COMMON_MEMORY_H

#include "common/status.h"

#include <stdint.h>

/* Stores the smaller of two numbers: the bytes that the kernel reports as available on the host,
 * and the bytes that are left below the limits of this process's control groups. Page cache that
 * the kernel can reclaim counts as available on the host. In a control group, only the inactive
 * part of the page cache counts as available. `root` is "", or in tests a folder with proc/ and
 * sys/. Returns ST_NOT_FOUND if the kernel does not report the available memory. */
enum status memory_available(const char *root, uint64_t *bytes_out);

/* Returns the bytes of this process's memory that are resident; 0 = unknown. */
uint64_t memory_resident(void);

#endif
