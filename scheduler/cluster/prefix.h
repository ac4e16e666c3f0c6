/* cluster_prefix: remembers which machines hold the KV of which prefixes. A bounded table maps the
 * hash of a prefix to the machines that were added last. The table consists of small sets. In a
 * full set, a new hash replaces the hash whose latest cluster_prefixes_add is the longest ago. The
 * table is an estimate: a machine may have evicted a prefix in the meantime. Files of this folder
 * call the functions on the cluster scheduler's thread; not thread-safe. Pure: no clock, no I/O, no
 * allocation after opening. The table chooses no machines. */
#ifndef SCHEDULER_CLUSTER_PREFIX_H
#define SCHEDULER_CLUSTER_PREFIX_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Most machines that are remembered for a prefix. */
#define PREFIX_HOLDERS 4

struct cluster_prefixes;

/* Opens an empty table with room for about `count` prefixes. Returns ST_NO_MEMORY on failure. */
enum status cluster_prefixes_open(uint32_t count, struct cluster_prefixes **out);
void cluster_prefixes_close(struct cluster_prefixes *prefixes); /* NULL is fine */

/* Records that the machine holds the prefix. */
void cluster_prefixes_add(struct cluster_prefixes *prefixes, uint64_t hash, uint32_t machine);
/* Records that the machine no longer holds the prefix. */
void cluster_prefixes_remove(struct cluster_prefixes *prefixes, uint64_t hash, uint32_t machine);
/* Removes the machine from all prefixes. */
void cluster_prefixes_forget(struct cluster_prefixes *prefixes, uint32_t machine);

/* Calls `take` with each machine that is remembered for the prefix, beginning with the machine that
 * was added last. Returns true if any call returned true. */
bool cluster_prefixes_holders(const struct cluster_prefixes *prefixes, uint64_t hash,
                              bool (*take)(void *self, uint32_t machine), void *self);

#endif
