/* cores: the number of this host's cores that this process may run on. Any thread. */
#ifndef COMMON_CORES_H
#define COMMON_CORES_H

#include <stdint.h>

uint32_t cores_usable(void); /* At least 1. */

#endif
