/* cores: the number of this host's cores that this process may run on (its CPU affinity). The CPU
 * backend, host/turns and the commands `cleave doctor`, `plan` and `profile` call it, to choose a
 * number of threads or to report it. Any thread; no state. It does not read CPU quotas of control
 * groups, and it pins no thread to a core. */
#ifndef COMMON_CORES_H
#define COMMON_CORES_H

#include <stdint.h>

/* Returns the number of cores; at least 1. If the kernel does not answer: 1. */
uint32_t cores_usable(void);

#endif
