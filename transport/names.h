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

/* Finds the addresses of a host. Returns ST_IN_PROGRESS while a look-up runs: call it again when
 * names_fd is readable. If the look-up has failed, or if it still runs and `late` is true, stores
 * the last good answer. Without a good answer, returns ST_UNREACHABLE after a failure, and
 * ST_IN_PROGRESS while the look-up runs. Returns ST_NO_RESOURCE if too many look-ups run,
 * ST_NO_MEMORY. */
enum status names_find(struct names *names, const struct address *address, bool late,
                       struct address_found *out, struct error *error);

#endif
