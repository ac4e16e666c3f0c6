/* cores: the number of this host's logical CPUs on which the calling thread may run (its CPU
 * affinity). With SMT, one core has several logical CPUs. Any folder may call the function, on any
 * thread; the function keeps no state. It does not read CPU quotas of control groups, and pins no
 * thread to a CPU. */
#ifndef COMMON_CORES_H
#define COMMON_CORES_H

#include <stdint.h>

/* Returns the number of logical CPUs; 1 if the kernel reports an error, as it does on a host with
 * more than 1024 CPUs. */
uint32_t cores_usable(void);

#endif
