/* machine_keys: see the header. */
#include "machine/keys.h"

#include "common/log.h"
#include "host/child.h"

#include <unistd.h>

void machine_keys_use(struct machine_keys *keys, const struct secret_keys *next)
{
    char ids[SECRET_KEYS_TEXT_BYTES];
    keys->keys = *next;
    secret_keys_text(next, ids);
    log_info("cluster keys: %s", ids);
}

enum status machine_keys_open(struct machine_keys *keys, const struct config *config, int pipe_fd,
                              struct error *error)
{
    struct secret_keys first;
    *keys = (struct machine_keys){.pipe_fd = pipe_fd};
    if (pipe_fd >= 0)
        return child_keys_receive(pipe_fd, true, &keys->keys) == ST_OK
                   ? ST_OK
                   : error_set(error, ST_IO, "--cluster-keys-fd %d: no keys", pipe_fd);
    if (config->cluster.key_file[0] == 0)
        return ST_OK;
    enum status status = config_file_path(config, config->cluster.key_file, keys->file_path, error);
    if (status == ST_OK)
        status = secret_keys_read(keys->file_path, &first, error);
    if (status != ST_OK)
        return status;
    machine_keys_use(keys, &first);
    secret_wipe(&first, sizeof(first));
    return ST_OK;
}

void machine_keys_done(struct machine_keys *keys)
{
    secret_wipe(&keys->keys, sizeof(keys->keys));
    if (keys->pipe_fd >= 0)
        close(keys->pipe_fd);
    keys->pipe_fd = -1;
}

bool machine_keys_receive(struct machine_keys *keys, struct secret_keys *next_out)
{
    bool any = false;
    enum status status = ST_OK;
    while (status == ST_OK) { /* The latest keys count. */
        status = child_keys_receive(keys->pipe_fd, false, next_out);
        any |= status == ST_OK;
    }
    if (status != ST_IN_PROGRESS) { /* The process that started this one has ended. */
        close(keys->pipe_fd);
        keys->pipe_fd = -1;
    }
    return any && !secret_keys_equal(&keys->keys, next_out);
}

bool machine_keys_read_again(const struct machine_keys *keys, struct secret_keys *next_out)
{
    struct error error;
    if (keys->file_path[0] == 0) {
        log_info("SIGHUP: nothing to read: %s",
                 keys->pipe_fd >= 0 ? "the process that started this one gives it the cluster keys"
                                    : "the config names no cluster/key_file");
        return false;
    }
    if (secret_keys_read_again(keys->file_path, &keys->keys, next_out, &error) != ST_OK) {
        log_warn("SIGHUP: nothing is changed: %s", error.text);
        return false;
    }
    if (!secret_keys_equal(&keys->keys, next_out))
        return true;
    log_info("SIGHUP: the cluster keys are as before");
    return false;
}
