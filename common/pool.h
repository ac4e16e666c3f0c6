/* pool: the pools that a machine can belong to, and their names. The numbers of the enum are in
 * messages and event logs: do not reorder them. Any folder may call the functions, on any thread;
 * they keep no state. They do not know which machine is in which pool (server/fleet/fleet.h
 * does). */
#ifndef COMMON_POOL_H
#define COMMON_POOL_H

#include <stdbool.h>

enum pool { POOL_PROMPT, POOL_TOKEN, POOL_MIXED, POOL_COUNT };

/* Returns "prompt", "token" or "mixed". */
const char *pool_name(enum pool pool);

/* Stores the pool with this name. Returns false if no pool has the name, or if `name` is NULL. */
bool pool_by_name(const char *name, enum pool *pool_out);

#endif
