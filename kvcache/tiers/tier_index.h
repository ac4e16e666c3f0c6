/* tier_index: which record is in which place of a store with places of one size (tier_file.h,
 * tier_memory.h), and which place the next record gets. When all places are taken, the next record
 * gets the place of the oldest record that was not used since the previous round ("second chance").
 * So records are written one place after the other, and prefixes that many requests begin with
 * stay.
 *
 * The index keeps names in memory, and reads and writes no record. It has no lock: the tier's
 * thread makes every call. */
#ifndef KVCACHE_TIERS_TIER_INDEX_H
#define KVCACHE_TIERS_TIER_INDEX_H

#include "common/digest.h"
#include "common/status.h"

#include <stdint.h>

#define TIER_INDEX_NONE UINT32_MAX

struct tier_index;

/* Makes an index of `count` places, 1 to TIER_INDEX_NONE - 1, all empty. Returns ST_NO_MEMORY on
 * failure. */
enum status tier_index_open(uint32_t count, struct tier_index **out);
void tier_index_close(struct tier_index *index); /* NULL is fine. */
/* Returns the memory of an index of `count` places. */
uint64_t tier_index_bytes(uint32_t count);

/* Returns the place of a record, or TIER_INDEX_NONE. Only the first 16 bytes of names are compared;
 * tier_record_open compares the whole name. */
uint32_t tier_index_find(const struct tier_index *index, const struct digest *name);
/* Returns how many names, counted from the first one up to the first name without a place, have a
 * place. These records count as used. */
uint32_t tier_index_count(struct tier_index *index, const struct digest *names, uint32_t count);
/* Records that the record in this place was used: the record keeps its place for one round more. */
void tier_index_use(struct tier_index *index, uint32_t place);

/* Returns the place of the next record, which is empty then: add the record there, or leave it
 * empty. */
uint32_t tier_index_take(struct tier_index *index);
/* Records that an empty place now has the record `name`, which has no other place. */
void tier_index_add(struct tier_index *index, uint32_t place, const struct digest *name);
/* Records that the place is empty now. Requires a record there. */
void tier_index_remove(struct tier_index *index, uint32_t place);
/* Sets the place of the latest record, behind which tier_index_take goes on. */
void tier_index_latest_set(struct tier_index *index, uint32_t place);

#endif
