/* cores: the number of this host's cores on which the calling thread may run (its CPU affinity).
 * Callers choose a number of threads by it, or report it. It keeps no state, and any thread may
 * call it. It does not read CPU quotas of control groups, and it pins no thread to a core. */
#ifndef COMMON_CORES_H
#define COMMON_CORES_H

#include <stdint.h>

/* Returns the number of cores, at least 1. Returns 1 if the kernel reports an error. */
uint32_t cores_usable(void);

#endif
