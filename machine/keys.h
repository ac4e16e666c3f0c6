/* machine_keys: the cluster keys of a process of `cleave machine`: where they come from, at the
 * start and while it runs. They come from cluster/key_file, which SIGHUP makes the process read
 * again, or through a pipe from the process that started this one (host/child.h). main.c opens
 * them; process.c takes new ones on the event loop thread and gives them to the machine or the stage
 * process. */
#ifndef MACHINE_KEYS_H
#define MACHINE_KEYS_H

#include "common/secret_keys.h"
#include "config/config.h"

struct machine_keys {
    struct secret_keys keys;     /* Those in use. count 0 = none. */
    int fd;                      /* The pipe; -1 = none. Readable when new keys have arrived. */
    char path[LIMIT_PATH_BYTES]; /* The file; empty = none. */
};

/* Reads the first keys: from the pipe `fd`, whose first keys it waits for, or if fd is -1 from the
 * config's key file. */
enum status machine_keys_open(struct machine_keys *keys, const struct config *config, int fd,
                              struct error *error);
/* Wipes the keys and closes the pipe. */
void machine_keys_done(struct machine_keys *keys);

/* Read new keys from the pipe, or the file again (SIGHUP). Return true if *next_out differs from
 * the keys in use, which the caller then replaces with machine_keys_use. Mistakes are logged and
 * change nothing. */
bool machine_keys_receive(struct machine_keys *keys, struct secret_keys *next_out);
bool machine_keys_read_again(const struct machine_keys *keys, struct secret_keys *next_out);
void machine_keys_use(struct machine_keys *keys, const struct secret_keys *next);

#endif
