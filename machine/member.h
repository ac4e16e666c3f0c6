/* machine_member: a machine's registration in etcd (membership/registration.h), and its log lines.
 * The machine's process (process.c) calls it on its event loop thread. A machine that does not
 * register has member = NULL, which every function except machine_member_open accepts. It does not
 * decide when the machine stops, and it does not read the entries of other machines. */
#ifndef MACHINE_MEMBER_H
#define MACHINE_MEMBER_H

#include "machine/machine.h"

struct machine_member;

/* Begins to register the machine. address: the address on which the machine listens. Returns
 * ST_INVALID if this address is a wildcard ("0.0.0.0:7400") and the config has no address or a
 * wildcard too; else the errors of registration_open. */
enum status machine_member_open(const struct config *config, const struct machine *m,
                                const char *name, const char *address, struct machine_member **out,
                                struct error *error);
/* NULL is fine. */
void machine_member_close(struct machine_member *member);

int machine_member_fd(const struct machine_member *member); /* Descriptor to wait for; -1 = none. */
/* Runs one iteration; when the machine stops, it begins to remove the entry. Returns the
 * milliseconds until the next iteration: timeout_ms, or less; -1 = no limit. */
int machine_member_turn(struct machine_member *member, const struct machine *m, int timeout_ms);
/* Returns true if the process may end: the registration is removed (registration_removed), or
 * `member` is NULL. */
bool machine_member_removed(const struct machine_member *member);

#endif
