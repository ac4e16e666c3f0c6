/* machine_member: a machine's registration in etcd (membership/registration.h), and what the log
 * has of it. NULL is a machine that does not register: all of these do nothing then. */
#ifndef MACHINE_MACHINE_MEMBER_H
#define MACHINE_MACHINE_MEMBER_H

#include "machine/machine.h"

struct machine_member;

/* address: where the machine listens. */
enum status machine_member_open(const struct config *config, const struct machine *m,
                                const char *name, const char *address, struct machine_member **out,
                                struct error *error);
void machine_member_close(struct machine_member *member);

int machine_member_fd(const struct machine_member *member); /* -1: none */
/* Leaves when the machine stops. Returns the time until the next turn: timeout_ms, or sooner. */
int machine_member_turn(struct machine_member *member, const struct machine *m, int timeout_ms);
/* It has taken its entry back. */
bool machine_member_left(const struct machine_member *member);

#endif
