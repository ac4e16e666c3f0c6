/* machine_keys: the cluster keys of a process of `cleave machine`. They are read from the file
 * cluster/key_file, again after SIGHUP; or they arrive through a pipe from the process that started
 * this process (host/child.h). machine/main.c opens and closes the keys; process.c asks for new
 * keys and passes them to the machine or the stage process. Both run on the main thread, which is
 * also the event loop thread. This part does not check peers with the keys (transport/ does). */
#ifndef MACHINE_KEYS_H
#define MACHINE_KEYS_H

#include "common/secret_keys.h"
#include "config/config.h"

struct machine_keys {
    struct secret_keys keys; /* The keys in use; count 0 = none. */
    /* The pipe; -1 = none. Readable when new keys have arrived, or when the other process has
     * ended. */
    int pipe_fd;
    char file_path[LIMIT_PATH_BYTES]; /* Path of the key file; empty = none. */
};

/* Reads the first keys: from the pipe `fd`, waiting until they arrive; or, if fd is -1, from the
 * config's key file. If the config names no key file, there are no keys. Returns ST_IO if the pipe
 * brings no keys, or an error of the key file. */
enum status machine_keys_open(struct machine_keys *keys, const struct config *config, int fd,
                              struct error *error);
/* Wipes the keys and closes the pipe. */
void machine_keys_done(struct machine_keys *keys);

/* Read new keys: from the pipe (requires a pipe), and from the file (after SIGHUP). Return true if
 * there are keys in *next_out that differ from the keys in use. The caller then makes them the keys
 * in use with machine_keys_use. If the other process has ended, machine_keys_receive closes the
 * pipe. machine_keys_read_again logs errors; they change nothing. */
bool machine_keys_receive(struct machine_keys *keys, struct secret_keys *next_out);
bool machine_keys_read_again(const struct machine_keys *keys, struct secret_keys *next_out);
/* Copies the keys, and logs their ids. */
void machine_keys_use(struct machine_keys *keys, const struct secret_keys *next);

#endif
