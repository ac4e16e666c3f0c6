/* memory: how much more memory this process and its children may use (what the kernel reports as
 * available, within the limits of their control groups), and how much this process uses. Machines
 * and stage processes (for their load), the model update of the gateway, prefault.h, `cleave
 * doctor` and `cleave profile` call it. Any thread; no state. It allocates and limits nothing, and
 * does not know the memory of GPUs. */
#ifndef COMMON_MEMORY_H
#define COMMON_MEMORY_H

#include "common/status.h"

#include <stdint.h>

/* Stores the available bytes; page cache counts as available. `root` is "", or in tests a folder
 * that contains proc/ and sys/ for the function to read. Returns ST_NOT_FOUND if the kernel does
 * not report it. */
enum status memory_available(const char *root, uint64_t *bytes_out);

uint64_t memory_resident(void); /* Resident bytes of this process; 0 = unknown. */

#endif
