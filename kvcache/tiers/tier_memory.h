/* tier_memory: a backend (tier_backend.h) that stores records in the memory of the host, beside a
 * machine's KV memory. The backend owns the memory of the records; `close` frees it. When this
 * memory is full, a new record replaces the record that tier_index.h chooses.
 *
 * The memory is allocated when records are first written to it, not by `open`. Core dumps do not
 * contain the records. machine/ makes the backend on its event loop thread; the tier's thread
 * (tiers.h) uses it. */
#ifndef KVCACHE_TIERS_TIER_MEMORY_H
#define KVCACHE_TIERS_TIER_MEMORY_H

#include "kvcache/tiers/tier_backend.h"

/* Makes a backend. bytes_max: most bytes of records and index together; with too few bytes for four
 * records, ops->open returns ST_INVALID. Returns ST_NO_MEMORY on failure. */
enum status tier_memory_make(uint64_t bytes_max, struct tier_backend **out);

#endif
