/* machine_join: the config of a machine that has no config file: `cleave machine --join`. main.c
 * calls it once, on the main thread, before it enters the sandbox. It keeps no state, and registers
 * nothing (member.h does). */
#ifndef MACHINE_JOIN_H
#define MACHINE_JOIN_H

#include "config/config.h"

struct machine_join {
    const char *endpoints; /* "etcd://HOST:PORT,HOST:PORT"; etcds:// = over TLS. */
    const char *pool;      /* "prompt", "token" or "mixed". */
    const char *name;      /* NULL = the name of the host up to its first dot, "-" and the pool. */
    const char *listen;    /* NULL = port 7400 of the address from which this host reaches etcd. */
};

/* Changes *config, the default config, to a config with this one machine, which registers itself in
 * etcd, and writes the machine's name. Looks up the name of the first etcd host. Returns ST_USAGE
 * if a value is wrong, and ST_UNREACHABLE if this host has no way to etcd. */
enum status machine_join_config(const struct machine_join *join, char name_out[LIMIT_NAME_BYTES],
                                struct config *config, struct error *error);

#endif
