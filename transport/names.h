/* names: finds the socket addresses of hosts without blocking the caller. A numeric address is
 * answered at once; a host name is looked up on a thread of its own, and the last good answer is
 * kept for times when the name server does not answer. A transport has one, and calls it on its
 * thread. It opens no connections. */
#ifndef TRANSPORT_NAMES_H
#define TRANSPORT_NAMES_H

#include "transport/address.h"

struct names;

/* Finds the addresses of a host; may block (address_resolve, or a test's own function). */
typedef enum status names_look_up(const struct address *address, bool for_listening,
                                  struct address_found *out, struct error *error);

enum status names_open(names_look_up *look_up, struct names **out, struct error *error);
/* Returns at once: a look-up that still runs ends by itself, later. NULL is fine. */
void names_close(struct names *names);

/* Returns a descriptor that becomes readable when a look-up has ended. names_find makes it
 * unreadable again. */
int names_fd(const struct names *names);

/* Finds the addresses of a host. ST_IN_PROGRESS: a look-up runs; call again when names_fd is
 * readable. If it fails, or if `late` is true while it runs, the last good answer is returned, if
 * there is one. Else ST_UNREACHABLE, or ST_NO_RESOURCE if too many look-ups run. */
enum status names_find(struct names *names, const struct address *address, bool late,
                       struct address_found *out, struct error *error);

#endif
