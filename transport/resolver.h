/* resolver: finds the socket addresses of hosts without blocking the caller. A numeric address is
 * converted at once. A host name is looked up on a separate thread; the last good answer is kept,
 * for times when the name server does not answer. Each transport, and each client of a KV
 * store (kvcache/tiers/), owns one struct resolver and calls it on its thread. It opens no
 * connections. */
#ifndef TRANSPORT_RESOLVER_H
#define TRANSPORT_RESOLVER_H

#include "transport/address.h"

struct resolver;

/* A function that finds the addresses of a host and may block: address_resolve, or a function of a
 * test. */
typedef enum status resolver_look_up(const struct address *address, bool for_listening,
                                     struct address_found *out, struct error *error);

/* Opens without any look-up. `look_up` is called on threads that resolver_find starts. Returns
 * ST_NO_MEMORY, or ST_IO if there is no descriptor. */
enum status resolver_open(resolver_look_up *look_up, struct resolver **out, struct error *error);
/* Frees the resolver without waiting: a look-up that still runs ends later by itself. NULL is
 * fine. */
void resolver_close(struct resolver *resolver);

/* Returns a descriptor that becomes readable when a look-up has ended. resolver_find makes it
 * unreadable again. */
int resolver_fd(const struct resolver *resolver);

/* Finds the addresses of a host. Returns ST_OK with *out = a numeric address, a good answer that is
 * not older than 1 s, or the last good answer. The last good answer is given if the latest look-up
 * failed or could not begin, or if a look-up runs and accept_old is true: the caller cannot wait
 * for it any longer. Otherwise returns ST_IN_PROGRESS while a look-up runs (call it again when
 * resolver_fd is readable), ST_UNREACHABLE for 1 s after a failed look-up, ST_NO_RESOURCE if no
 * look-up could begin (no thread or descriptor, or too many look-ups), ST_NO_MEMORY. */
enum status resolver_find(struct resolver *resolver, const struct address *address, bool accept_old,
                          struct address_found *out, struct error *error);

#endif
