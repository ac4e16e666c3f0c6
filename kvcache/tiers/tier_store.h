/* tier_store: a backend (tier_backend.h) that stores records in servers which speak RESP, such as
 * Valkey and Redis, so that machines share them. A record is the value of the key "cleave:" and the
 * record's name in hexadecimal. Several servers share the records by rendezvous hashing (Thaler and
 * Ravishankar, 1996): each name belongs to the server with the highest score for it, so when a
 * server is added or removed, only the names of that server move.
 *
 * A server that cannot be reached, does not answer in time, refuses to read or answers with
 * something else than RESP is skipped: for 1 s after the first failure, for twice as long after
 * each further failure, at most 64 s. Its names belong to the other servers meanwhile. The first
 * failure is returned, with the server in its text. Further failures of that server, until it works
 * again, are returned only if no other server is left. A server that refuses to store, such as one
 * without memory, is still read; `put` returns ST_NO_RESOURCE for its names, and asks the server
 * again after the same times. If the caller's deadline ends a call before
 * kv/tiers/store/deadline_ms, nothing is found or stored; only three such calls in a row count as a
 * failure of the server.
 *
 * machine/tiers.c makes the backend when a machine starts, and `cleave check` makes one to try the
 * servers. In a machine, the tier's thread makes every other call (tiers.h). Values may expire (SET
 * with EX), and servers may evict them. If `has` finds a record, the record's time to expire begins
 * again. */
#ifndef KVCACHE_TIERS_TIER_STORE_H
#define KVCACHE_TIERS_TIER_STORE_H

#include "config/config.h"
#include "kvcache/tiers/tier_backend.h"

/* Makes a backend by the keys kv/tiers/store/…; ops->open connects. servers: the text of
 * kv/tiers/store/servers, or a part of it. A call ends after kv/tiers/store/deadline_ms, or at its
 * own deadline if that is earlier. Fails, for example, if an address is wrong, if the file of
 * password or CAs cannot be used, or if cleave was built without hiredis. */
enum status tier_store_make(const struct config *config, const char *servers,
                            struct tier_backend **out, struct error *error);

#endif
