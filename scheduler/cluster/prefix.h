/* cluster_prefix: which machines hold the KV of which prefixes. A bounded table maps the hash of a
 * prefix to the few machines that most recently got a prompt with that prefix or reported that they
 * hold it. When the table is full, the entry that was added or confirmed longest ago is replaced.
 * The table may be wrong, because a machine can evict a prefix by itself; the prompt is then
 * computed as on any other machine. Called by the cluster scheduler on its thread. Pure; no
 * allocation after opening. */
#ifndef SCHEDULER_CLUSTER_PREFIX_H
#define SCHEDULER_CLUSTER_PREFIX_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Machines remembered per prefix. If more machines hold a prefix, it is no reason to prefer one of
 * them. */
#define PREFIX_HOLDERS 4

struct cluster_prefixes;

enum status cluster_prefixes_open(uint32_t count, struct cluster_prefixes **out);
void cluster_prefixes_close(struct cluster_prefixes *prefixes); /* NULL is fine */

/* Records that the machine holds the prefix now. */
void cluster_prefixes_add(struct cluster_prefixes *prefixes, uint64_t hash, uint32_t machine);
void cluster_prefixes_remove(struct cluster_prefixes *prefixes, uint64_t hash, uint32_t machine);
/* Removes the machine from all prefixes. */
void cluster_prefixes_forget(struct cluster_prefixes *prefixes, uint32_t machine);

/* Calls `take` with each machine that holds the prefix. Returns true if any call returned true. */
bool cluster_prefixes_holders(const struct cluster_prefixes *prefixes, uint64_t hash,
                              bool (*take)(void *self, uint32_t machine), void *self);

#endif
