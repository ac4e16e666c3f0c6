/* tier_store: a backend (tier_backend.h) that stores records in servers which speak RESP, such as
 * Valkey and Redis, so that machines share the records. The backend owns the connections to the
 * servers. A record is the value of the key "cleave:" and the record's name in hexadecimal. Several
 * servers share the records by rendezvous hashing (Thaler and Ravishankar, 1996): each name belongs
 * to the server with the highest score for the name. So when a server is added or removed, only the
 * names of that server move.
 *
 * `open` succeeds if one server works. A server that fails is skipped for 1 s, and after further
 * failures for longer, at most 64 s; meanwhile its names belong to the other servers. Except
 * `open`, a call returns ST_UNREACHABLE at the first failure of a server, or if no server can be
 * asked. If a server refuses to store, `put` returns ST_NO_RESOURCE for the names of this server;
 * the server is still read, and is asked to store again after a pause of 1 to 64 s. A call that
 * ends at the caller's deadline finds or stores nothing, and counts as a failure of the server only
 * if it is at least the third such call in a row.
 *
 * Backends are made by machine/, and by the gateway when it checks its config. One thread at a time
 * uses a backend (tier_backend.h). Records may expire (kv/tiers/store/expire_s), and servers may
 * evict records. If `stored_count` finds a record, the record's time to expire begins again, and
 * the server counts the record as used. The backend does not evict records itself. */
#ifndef KVCACHE_TIERS_TIER_STORE_H
#define KVCACHE_TIERS_TIER_STORE_H

#include "config/config.h"
#include "kvcache/tiers/tier_backend.h"

/* Makes a backend by the keys kv/tiers/store/…; ops->open connects. servers: the text of
 * kv/tiers/store/servers, or a part of it. A call of the backend ends after
 * kv/tiers/store/deadline_ms (`open`: after this time for each server), or at the caller's deadline
 * if that is earlier. Returns ST_UNSUPPORTED if cleave was built without hiredis, or another error
 * if an address is wrong, or if the password or the CAs cannot be read. */
enum status tier_store_make(const struct config *config, const char *servers,
                            struct tier_backend **out, struct error *error);

#endif
