/* tier_index: which record is in which place of a store (tier_file.h, tier_memory.h), and which
 * place the next record gets. A store has a fixed number of places, each for one record. New
 * records take the places in order, round after round. A record that was used since the previous
 * round keeps its place for one round more ("second chance").
 *
 * The index owns a part of each record's name, and reads and writes no record. The backend calls
 * the functions, on one thread at a time (tier_backend.h). */
#ifndef KVCACHE_TIERS_TIER_INDEX_H
#define KVCACHE_TIERS_TIER_INDEX_H

#include "common/digest.h"
#include "common/status.h"

#include <stdint.h>

#define TIER_INDEX_NONE UINT32_MAX /* No place. */

struct tier_index;

/* Makes an index of place_count empty places. Requires 1 to TIER_INDEX_NONE - 1 places. Returns
 * ST_NO_MEMORY on failure. */
enum status tier_index_open(uint32_t place_count, struct tier_index **out);
void tier_index_close(struct tier_index *index); /* NULL is fine. */
/* Returns the bytes of memory that an index of place_count places takes. */
uint64_t tier_index_bytes(uint32_t place_count);

/* Returns the place of a record, or TIER_INDEX_NONE. Only the first 16 bytes of names are compared;
 * tier_record_open compares the whole name. */
uint32_t tier_index_find(const struct tier_index *index, const struct digest *name);
/* Returns the number of names before the first name without a place. The records of these names
 * count as used. */
uint32_t tier_index_count(struct tier_index *index, const struct digest *names, uint32_t count);
/* Notes that the record in this place was used: the record keeps its place for one round more. */
void tier_index_use(struct tier_index *index, uint32_t place);

/* Returns the place for the next record, and removes the record that was there from the index. */
uint32_t tier_index_take(struct tier_index *index);
/* Notes that the record `name` is in an empty place now. Requires that the index does not have this
 * name. */
void tier_index_add(struct tier_index *index, uint32_t place, const struct digest *name);
/* Notes that the place is empty now. Requires that the place had a record. */
void tier_index_remove(struct tier_index *index, uint32_t place);
/* Sets the place of the latest record: tier_index_take goes on behind this place. */
void tier_index_latest_set(struct tier_index *index, uint32_t place);

#endif
