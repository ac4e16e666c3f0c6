/* cores: how many of this computer's cores this process may run on. */
#ifndef COMMON_CORES_H
#define COMMON_CORES_H

#include <stdint.h>

uint32_t cores_usable(void); /* ≥ 1 */

#endif
