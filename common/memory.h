/* memory: how much more this process and its children may take: what the kernel says is available,
 * and what the limits of their control groups leave; and what this process has. */
#ifndef COMMON_MEMORY_H
#define COMMON_MEMORY_H

#include "common/status.h"

#include <stdint.h>

/* Bytes. root: "" (tests: a folder with proc/ and sys/ in it). Page cache counts as available.
 * ST_NOT_FOUND: the kernel does not say. */
enum status memory_available(const char *root, uint64_t *bytes_out);

uint64_t memory_resident(void); /* bytes of this process; 0: the kernel does not say */

#endif
