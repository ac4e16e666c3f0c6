/* machine_member: owns a machine's registration in etcd (membership/registration.h), and logs when
 * the machine is registered, or why it is not. machine/process.c calls the functions on the event
 * loop thread. A machine that does not register has member NULL, which all functions except
 * machine_member_open accept. This part does not decide when the machine stops. */
#ifndef MACHINE_MEMBER_H
#define MACHINE_MEMBER_H

#include "machine/machine.h"

struct machine_member;

/* Begins to register the machine `m`, whose config entry has the name `name`. address: the address
 * on which the machine listens; if it is a wildcard ("0.0.0.0:7400"), the config's address is
 * registered instead. Returns ST_INVALID if the address to register is empty or a wildcard,
 * ST_NO_MEMORY, or an error of registration_open. */
enum status machine_member_open(const struct config *config, const struct machine *m,
                                const char *name, const char *address, struct machine_member **out,
                                struct error *error);
void machine_member_close(struct machine_member *member); /* NULL is fine. */

int machine_member_fd(const struct machine_member *member); /* Descriptor to wait for; -1 = none. */
/* Runs one iteration. If the machine is stopping, the iteration begins to remove the entry from
 * etcd. Returns the milliseconds until the next iteration: timeout_ms (-1 = no limit), or less. */
int machine_member_turn(struct machine_member *member, const struct machine *m, int timeout_ms);
/* Returns true if the process may end: the removal of the registration has ended
 * (registration_removed), or `member` is NULL. */
bool machine_member_may_end(const struct machine_member *member);

#endif
