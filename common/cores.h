/* cores: the number of this host's logical CPUs on which the calling thread may run (its CPU
 * affinity). With SMT, a core is several logical CPUs. Callers choose a number of threads by it, or
 * report it. It keeps no state, and any thread may call it. It does not read CPU quotas of control
 * groups, and it pins no thread to a CPU. */
#ifndef COMMON_CORES_H
#define COMMON_CORES_H

#include <stdint.h>

/* Returns the number of logical CPUs; 1 if the kernel reports an error, as it does on a host with
 * more than 1024 CPUs. */
uint32_t cores_usable(void);

#endif
