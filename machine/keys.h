/* machine_keys: the cluster keys of a process of `cleave machine`. The source of the keys is a pipe
 * from the process that started this process (host/child.h), or else the file that cluster/key_file
 * names. machine/main.c and process.c call the functions on the main thread, which is also the
 * event loop thread. This part does not check peers with the keys (transport/ does). */
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

/* Reads the first keys. If pipe_fd is not -1, waits for keys from the pipe. Otherwise, reads the
 * config's key file; if the config names none, there are no keys. Returns ST_IO if no keys come
 * from the pipe or a signal ends the wait, or an error of the key file. */
enum status machine_keys_open(struct machine_keys *keys, const struct config *config, int pipe_fd,
                              struct error *error);
/* Wipes the keys and closes the pipe. */
void machine_keys_done(struct machine_keys *keys);

/* Reads new keys from the pipe, without waiting. Returns true if *next_out has keys that differ
 * from the keys in use; the caller then makes them the keys in use with machine_keys_use. Closes
 * the pipe if the other process has ended or has sent bytes that are not keys. Requires a pipe. */
bool machine_keys_receive(struct machine_keys *keys, struct secret_keys *next_out);
/* Reads the key file again. Returns true as machine_keys_receive does. If there are no new keys,
 * logs why. */
bool machine_keys_read_again(const struct machine_keys *keys, struct secret_keys *next_out);
/* Makes a copy of *next the keys in use, and logs their ids. */
void machine_keys_use(struct machine_keys *keys, const struct secret_keys *next);

#endif
