/* machine_keys: the cluster keys of a process of `cleave machine`. They are read from the file
 * cluster/key_file, again after SIGHUP; or they arrive through a pipe from the process that started
 * this process (host/child.h). main.c opens the keys when the process starts, on the main thread.
 * process.c asks for new keys on the event loop thread (the same thread), and passes them to the
 * machine or the stage process. It does not prove or check keys (transport/ does). */
#ifndef MACHINE_KEYS_H
#define MACHINE_KEYS_H

#include "common/secret_keys.h"
#include "config/config.h"

struct machine_keys {
    struct secret_keys keys; /* The keys in use; count 0 = none. */
    int pipe_fd;             /* The pipe; -1 = none. Readable when new keys have arrived. */
    char file_path[LIMIT_PATH_BYTES]; /* Path of the key file; empty = none. */
};

/* Reads the first keys: from the pipe `fd`, waiting until they arrive; or, if fd is -1, from the
 * config's key file. */
enum status machine_keys_open(struct machine_keys *keys, const struct config *config, int fd,
                              struct error *error);
/* Wipes the keys and closes the pipe. */
void machine_keys_done(struct machine_keys *keys);

/* Read new keys: from the pipe, and from the file (after SIGHUP). Return true if *next_out differs
 * from the keys in use. The caller then makes them the keys in use with machine_keys_use. Errors
 * are logged and change nothing. */
bool machine_keys_receive(struct machine_keys *keys, struct secret_keys *next_out);
bool machine_keys_read_again(const struct machine_keys *keys, struct secret_keys *next_out);
void machine_keys_use(struct machine_keys *keys, const struct secret_keys *next);

#endif
