/* cores: the number of this host's cores that this process may run on (its CPU affinity). Backends
 * and commands call it to choose a number of threads. Any thread. It does not read CPU quotas of
 * control groups, and it pins nothing. */
#ifndef COMMON_CORES_H
#define COMMON_CORES_H

#include <stdint.h>

uint32_t cores_usable(void); /* At least 1. */

#endif
