/* tier_memory: a backend (tier_backend.h) that stores records in the memory of the host, beside a
 * machine's KV memory. It helps where KV memory is small or cannot be made larger, for example on a
 * GPU. The records end with the machine's process. When all places are taken, the next record
 * takes the place that tier_index.h says.
 *
 * Records and index together use at most the given bytes. Memory is taken from the kernel when a
 * place is first written, and given back by `close`. Core dumps do not contain the records. The
 * tier's thread calls the backend (tiers.h). */
#ifndef KVCACHE_TIERS_TIER_MEMORY_H
#define KVCACHE_TIERS_TIER_MEMORY_H

#include "kvcache/tiers/tier_backend.h"

/* Makes a backend; its ops->open returns ST_INVALID if `bytes` is too few for four records, or
 * ST_NO_MEMORY. The functions ignore their deadlines. Returns ST_NO_MEMORY on failure. */
enum status tier_memory_make(uint64_t bytes, struct tier_backend **out);

#endif
