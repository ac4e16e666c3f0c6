/* cluster_prefix: which machines hold the KV of which prefixes: a bounded table from a prefix's
 * hash to the few machines that got it last, or said so. What was neither routed to nor confirmed
 * for longest is forgotten first. It may be wrong (a machine evicts what it was not asked to keep):
 * then a prompt costs what it would have cost elsewhere. Pure; nothing is allocated after opening.
 */
#ifndef SCHEDULER_CLUSTER_PREFIX_H
#define SCHEDULER_CLUSTER_PREFIX_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Machines that are remembered for one prefix: a prefix that more hold is no reason to choose. */
#define PREFIX_HOLDERS 4

struct cluster_prefixes;

enum status cluster_prefixes_open(uint32_t count, struct cluster_prefixes **out);
void cluster_prefixes_close(struct cluster_prefixes *prefixes); /* NULL is fine */

/* The machine holds the prefix, as of now. */
void cluster_prefixes_add(struct cluster_prefixes *prefixes, uint64_t hash, uint32_t machine);
void cluster_prefixes_remove(struct cluster_prefixes *prefixes, uint64_t hash, uint32_t machine);
/* It has lost all of them. */
void cluster_prefixes_forget(struct cluster_prefixes *prefixes, uint32_t machine);

/* Calls `take` with each machine that holds the prefix; true if it said so of any. */
bool cluster_prefixes_holders(const struct cluster_prefixes *prefixes, uint64_t hash,
                              bool (*take)(void *self, uint32_t machine), void *self);

#endif
