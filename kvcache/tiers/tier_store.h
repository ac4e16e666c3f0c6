/* tier_store: a backend (tier_backend.h) that stores records in servers which speak RESP, such as
 * Valkey and Redis, so that machines share the records. The backend owns the connections to the
 * servers. A record is the value of the key "cleave:" and the record's name in hexadecimal. Several
 * servers share the records by rendezvous hashing (Thaler and Ravishankar, 1996): each name belongs
 * to the server with the highest score for the name. So when a server is added or removed, only the
 * names of that server move.
 *
 * A server fails if it cannot be reached, does not answer in time, refuses to read, or answers with
 * something else than RESP. A server that fails is skipped: for 1 s after the first failure, for
 * twice as long after each further failure, at most 64 s. Meanwhile its names belong to the other
 * servers. The first failure of a server is returned, with the server in the error's text. Until
 * the server works again, its further failures are not returned if another server can be asked. If
 * a server refuses to store (for example because its memory is full), `put` returns ST_NO_RESOURCE
 * for its names; the server is still read, and is asked to store again after 1 s, then 2 s, and so
 * on up to 64 s. If the caller's deadline ends a call before kv/tiers/store/deadline_ms, nothing is
 * found or stored; a call that ends in this way counts as a failure of the server only if it is the
 * third in a row.
 *
 * machine/tiers.c makes the backend when a machine starts, and then the tier's thread calls it
 * (tiers.h). The gateway's check of its config makes a backend to try the servers. Records may
 * expire (kv/tiers/store/expire_s), and servers may evict them. If `has` finds a record, the
 * record's time to expire begins again. The backend does not evict records itself. */
#ifndef KVCACHE_TIERS_TIER_STORE_H
#define KVCACHE_TIERS_TIER_STORE_H

#include "config/config.h"
#include "kvcache/tiers/tier_backend.h"

/* Makes a backend by the keys kv/tiers/store/…; ops->open connects. servers: the text of
 * kv/tiers/store/servers, or a part of it. A call of the backend ends after
 * kv/tiers/store/deadline_ms, or at the caller's deadline if that is earlier. Fails, for example,
 * if an address is wrong, if the file of password or CAs cannot be used, or if cleave was built
 * without hiredis (ST_UNSUPPORTED). */
enum status tier_store_make(const struct config *config, const char *servers,
                            struct tier_backend **out, struct error *error);

#endif
