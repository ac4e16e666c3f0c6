/* resolver: finds the socket addresses of hosts without blocking the caller. A numeric address is
 * converted at once. A host name is looked up on a separate thread, which may outlive the resolver.
 * The resolver owns the last good answer for each of the up to 1024 hosts and ports that were asked
 * for last, for use while the name server does not answer. The resolver opens no connections.
 *
 * UCX transports and the tier of the shared KV store (kvcache/tiers/tier_store.c) own resolvers.
 * Different threads may call one resolver, but not at the same time. */
#ifndef TRANSPORT_RESOLVER_H
#define TRANSPORT_RESOLVER_H

#include "transport/address.h"

struct resolver;

/* A function that finds the addresses of a host, and may block, such as address_resolve.
 * for_listening is always false. */
typedef enum status resolver_look_up(const struct address *address, bool for_listening,
                                     struct address_found *out, struct error *error);

/* Opens a resolver. `look_up` is called on threads that resolver_find starts, and may still run
 * after resolver_close. Returns ST_NO_MEMORY, or ST_IO if no descriptor is left. */
enum status resolver_open(resolver_look_up *look_up, struct resolver **out, struct error *error);
/* Frees the resolver without waiting for look-ups that still run. NULL is accepted. */
void resolver_close(struct resolver *resolver);

/* Returns a descriptor that becomes readable when any look-up has ended. Every resolver_find makes
 * the descriptor unreadable again. The descriptor belongs to the resolver. */
int resolver_fd(const struct resolver *resolver);

/* Finds the addresses of a host. A result of a look-up, good or failed, is used for 1 s; after
 * that, the next call starts a new look-up. Returns one of these:
 * - ST_OK: *out is the numeric address, the good result of the last second, or an older good
 *   result. An older good result is returned if the look-up failed within the last second or could
 *   not begin. While a look-up runs, an older good result is returned only if accept_old is true.
 * - ST_IN_PROGRESS: a look-up runs. Call the function again when resolver_fd is readable.
 * - ST_NO_RESOURCE: no look-up could begin, because no thread or descriptor is left or too many
 *   look-ups run.
 * - ST_NO_MEMORY: memory is short.
 * - The status with which `look_up` failed within the last second, if the resolver has no older
 *   good result for the host. */
enum status resolver_find(struct resolver *resolver, const struct address *address, bool accept_old,
                          struct address_found *out, struct error *error);

#endif
