/* machine_join: makes the config of a machine that has no config file: `cleave machine --join`.
 * machine/main.c calls the function once, on the main thread, before the process enters the
 * sandbox. This part owns nothing, and does not register the machine (member.h does). */
#ifndef MACHINE_JOIN_H
#define MACHINE_JOIN_H

#include "config/config.h"

struct machine_join {
    const char *endpoints; /* "etcd://HOST:PORT,HOST:PORT"; etcds:// = over TLS. */
    const char *pool;      /* "prompt", "token" or "mixed". */
    /* NULL = the host's name up to its first dot (cut if it is too long), "-" and the pool. */
    const char *name;
    /* HOST:PORT to listen on. PORT 0 = the config has no address, and the machine listens on any
     * free port. NULL = port 7400 of the address from which this host reaches etcd. */
    const char *listen;
};

/* Changes *config, which must be the default config, to a config with one machine that registers
 * itself in etcd. Writes the machine's name to name_out. If `listen` is NULL, looks up the name of
 * the first etcd host. Returns ST_USAGE if a value is wrong, an error of the look-up, or
 * ST_UNREACHABLE if this host has no way to etcd. */
enum status machine_join_config(const struct machine_join *join, char name_out[LIMIT_NAME_BYTES],
                                struct config *config, struct error *error);

#endif
