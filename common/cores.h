/* cores: the number of this host's logical CPUs on which the calling thread may run (its CPU
 * affinity). With SMT, one core has several logical CPUs. Callers derive a number of threads from
 * this number, or report it. The function keeps no state, and any thread may call it. It does not
 * read CPU quotas of control groups, and it pins no thread to a CPU. */
#ifndef COMMON_CORES_H
#define COMMON_CORES_H

#include <stdint.h>

/* Returns the number of logical CPUs; 1 if the kernel reports an error, as it does on a host with
 * more than 1024 CPUs. */
uint32_t cores_usable(void);

#endif
