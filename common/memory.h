/* memory: how much host memory this process may still use, and how much it uses now. Any folder may
 * call it, on any thread; it keeps no state. It allocates and limits nothing, and does not know the
 * memory of GPUs. */
#ifndef COMMON_MEMORY_H
#define COMMON_MEMORY_H

#include "common/status.h"

#include <stdint.h>

/* Stores the bytes that the kernel reports as available, or the bytes left below the limits of this
 * process's control groups if these are fewer. Page cache that the kernel can reclaim counts as
 * available. `root` is "", or in tests a folder with proc/ and sys/ to read. Returns ST_NOT_FOUND
 * if the kernel does not report the available memory. */
enum status memory_available(const char *root, uint64_t *bytes_out);

/* Returns the resident bytes of this process; 0 = unknown. */
uint64_t memory_resident(void);

#endif
