/* machine_member: a machine's registration in etcd (membership/registration.h), and its log lines.
 * The machine's process (process.c) calls it on its event loop thread. A machine that does not
 * register has member = NULL, which every function except machine_member_open accepts. It does not
 * decide when the machine stops, and it does not read the entries of other machines. */
#ifndef MACHINE_MEMBER_H
#define MACHINE_MEMBER_H

#include "machine/machine.h"

struct machine_member;

/* address: the address on which the machine listens. ST_INVALID: both this address and that of the
 * config are wildcards ("0.0.0.0:7400"), or the config has none. Other errors: registration_open.
 */
enum status machine_member_open(const struct config *config, const struct machine *m,
                                const char *name, const char *address, struct machine_member **out,
                                struct error *error);
void machine_member_close(struct machine_member *member);

int machine_member_fd(const struct machine_member *member); /* Descriptor to wait for; -1 = none. */
/* Runs one iteration; begins to remove the entry when the machine stops. Returns the milliseconds
 * until the next iteration: timeout_ms, or less; -1 = no limit. */
int machine_member_turn(struct machine_member *member, const struct machine *m, int timeout_ms);
/* True if the process may end: registration_left, or member is NULL. */
bool machine_member_left(const struct machine_member *member);

#endif
