/* secret: see the header. */
#include "common/secret.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PASSWORD_BYTES_MAX 1024

void secret_hash(const void *data, size_t bytes, uint8_t out[SECRET_HASH_BYTES])
{
    int failed = gnutls_hash_fast(GNUTLS_DIG_SHA256, data, bytes, out);
    assert(failed == 0); /* It fails only for unknown algorithms. */
}

void secret_mac(const void *key, size_t key_bytes, const struct secret_piece *pieces, size_t count,
                uint8_t out[SECRET_HASH_BYTES])
{
    gnutls_hmac_hd_t mac;
    int failed = gnutls_hmac_init(&mac, GNUTLS_MAC_SHA256, key, key_bytes);
    assert(failed == 0);
    for (size_t i = 0; i < count; i++) {
        failed = gnutls_hmac(mac, pieces[i].data, pieces[i].bytes);
        assert(failed == 0);
    }
    gnutls_hmac_deinit(mac, out);
}

bool secret_bytes_equal(const void *a, const void *b, size_t bytes)
{
    return gnutls_memcmp(a, b, bytes) == 0;
}

void secret_random(void *out, size_t bytes)
{
    uint8_t *at = out;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            abort();
        at += got;
        bytes -= (size_t)got;
    }
}

void secret_wipe(void *data, size_t bytes)
{
    if (data != NULL)
        explicit_bzero(data, bytes);
}

static enum status check_file(int fd, const char *path, size_t bytes_max, struct error *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return error_set(error, ST_INVALID, "%s: want a regular file", path);
    if ((info.st_mode & 077) != 0)
        return error_set(error, ST_INVALID,
                         "%s: mode %04o lets other users read a secret: want 0600 (chmod 600 %s)",
                         path, (unsigned)info.st_mode & 07777, path);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return error_set(error, ST_INVALID,
                         "%s: its owner is user %u: want user %u, who runs this program", path,
                         (unsigned)info.st_uid, (unsigned)geteuid());
    if ((uint64_t)info.st_size > bytes_max)
        return error_set(error, ST_TOO_LARGE, "%s: %llu bytes: want at most %zu", path,
                         (unsigned long long)info.st_size, bytes_max);
    return ST_OK;
}

enum status secret_core_dumps_stop(struct error *error)
{
    struct rlimit limit;
    bool is_set = getrlimit(RLIMIT_CORE, &limit) == 0;
    /* 1 byte is too small for any core file, and the kernel starts no program for core dumps then,
     * which it does at 0 (core(5)). */
    if (is_set && limit.rlim_max >= 1) {
        limit.rlim_cur = 1;
        is_set = setrlimit(RLIMIT_CORE, &limit) == 0;
    }
    if (is_set)
        return ST_OK;
    return error_set(error, ST_IO,
                     "a crash may write a core dump with keys and prompts: RLIMIT_CORE cannot be "
                     "set to 1 byte: %s",
                     strerror(errno));
}

enum status secret_file_open(const char *path, size_t bytes_max, int *fd_out, struct error *error)
{
    /* Non-blocking: a FIFO of that name must not block before fstat shows what it is. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(error, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path,
                         strerror(errno));
    enum status status = check_file(fd, path, bytes_max, error);
    if (status != ST_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return ST_OK;
}

enum status secret_file_read(const char *path, size_t bytes_max, char **text_out, size_t *bytes_out,
                             struct error *error)
{
    int fd;
    enum status status = secret_file_open(path, bytes_max, &fd, error);
    if (status != ST_OK)
        return status;
    char *text = malloc(bytes_max + 1);
    if (text == NULL) {
        status = error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
        goto undo_fd;
    }
    size_t bytes = 0;
    ssize_t got = 1;
    while (got > 0 && bytes < bytes_max) {
        got = read(fd, text + bytes, bytes_max - bytes);
        if (got > 0)
            bytes += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
    }
    if (got < 0) {
        status = error_set(error, ST_IO, "%s: %s", path, strerror(errno));
        secret_wipe(text, bytes);
        free(text);
        goto undo_fd;
    }
    text[bytes] = 0;
    *text_out = text;
    *bytes_out = bytes;

undo_fd:
    close(fd);
    return status;
}

enum status secret_api_key_read(const char *path, char *out, size_t capacity, struct error *error)
{
    char *text;
    size_t bytes;
    enum status status = secret_file_read(path, capacity - 1, &text, &bytes, error);
    if (status != ST_OK)
        return status;
    snprintf(out, capacity, "%.*s", (int)strcspn(text, " \t\r\n"), text);
    secret_wipe(text, bytes);
    free(text);
    return out[0] != 0 ? ST_OK : error_set(error, ST_INVALID, "%s: no key in the first line", path);
}

enum status secret_password_read(const char *path, char **out, struct error *error)
{
    char *text;
    size_t bytes;
    enum status status = secret_file_read(path, PASSWORD_BYTES_MAX, &text, &bytes, error);
    if (status != ST_OK)
        return status;
    size_t length = strcspn(text, "\r\n");
    secret_wipe(text + length, bytes - length);
    if (length == 0) {
        free(text);
        return error_set(error, ST_INVALID, "%s: want a password in the first line", path);
    }
    *out = text;
    return ST_OK;
}

void secret_password_free(char *password)
{
    if (password != NULL)
        secret_wipe(password, strlen(password));
    free(password);
}
