/* names: finds the socket addresses of hosts without blocking the caller. A numeric address is
 * answered at once; a host name is looked up on a thread of its own, and the last good answer is
 * kept for times when the name server does not answer. Each transport owns one struct names and
 * calls it on its thread. It opens no connections. */
#ifndef TRANSPORT_NAMES_H
#define TRANSPORT_NAMES_H

#include "transport/address.h"

struct names;

/* A function that finds the addresses of a host and may block: address_resolve, or a function of a
 * test. */
typedef enum status names_look_up(const struct address *address, bool for_listening,
                                  struct address_found *out, struct error *error);

/* Opens without any look-up. `look_up` is called on threads that names_find starts. Returns
 * ST_NO_MEMORY, or ST_IO if there is no descriptor. */
enum status names_open(names_look_up *look_up, struct names **out, struct error *error);
/* Frees `names` without waiting: a look-up that still runs ends later by itself. NULL is fine. */
void names_close(struct names *names);

/* Returns a descriptor that becomes readable when a look-up has ended. names_find makes it
 * unreadable again. */
int names_fd(const struct names *names);

/* Finds the addresses of a host. Returns ST_OK with *out = a numeric address, a good answer that is
 * not older than 1 s, or the last good answer. The last good answer is given if the latest look-up
 * failed or could not begin, or if a look-up runs and `late` is true (the caller does not want to
 * wait any longer). Otherwise returns ST_IN_PROGRESS while a look-up runs (call it again when
 * names_fd is readable), ST_UNREACHABLE for 1 s after a failed look-up, ST_NO_RESOURCE if no
 * look-up could begin (no thread or descriptor, or too many look-ups), ST_NO_MEMORY. */
enum status names_find(struct names *names, const struct address *address, bool accept_old,
                       struct address_found *out, struct error *error);

#endif
