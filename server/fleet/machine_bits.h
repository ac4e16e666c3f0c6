/* machine_bits: a set of machines of the fleet, with one bit per index. server/gateway/ uses it on
 * the gateway's event loop thread. The functions do not check that an index is below
 * LIMIT_MACHINES. */
#ifndef SERVER_FLEET_MACHINE_BITS_H
#define SERVER_FLEET_MACHINE_BITS_H

#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* All zeros = the empty set. */
struct machine_bits {
    uint64_t words[(LIMIT_MACHINES + 63) / 64];
};

/* Returns true if the machine is in the set. */
static inline bool machine_bits_has(const struct machine_bits *bits, uint32_t machine)
{
    return (bits->words[machine / 64] >> (machine % 64) & 1) != 0;
}

/* Adds the machine to the set if `in` is true; otherwise removes the machine from the set. */
static inline void machine_bits_set(struct machine_bits *bits, uint32_t machine, bool in)
{
    uint64_t bit = 1ull << (machine % 64);
    uint64_t *word = &bits->words[machine / 64];
    *word = in ? *word | bit : *word & ~bit;
}

#endif
