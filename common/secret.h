/* secret: functions for secrets: a hash, a keyed hash and a comparison in constant time (from
 * GnuTLS), random bytes (from the kernel), reading files with secrets, erasing memory, and stopping
 * core dumps. Any folder may call them, on any thread. They keep no state and no keys, encrypt
 * nothing and do no TLS (transport/ and server/http/ do). */
#ifndef COMMON_SECRET_H
#define COMMON_SECRET_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECRET_HASH_BYTES 32 /* Bytes of a SHA-256. */

/* Stores the SHA-256 of the data. */
void secret_hash(const void *data, size_t bytes, uint8_t out[SECRET_HASH_BYTES]);

/* One piece of the data that secret_mac hashes. */
struct secret_piece {
    const void *data;
    size_t bytes;
};

/* Stores a keyed hash (HMAC-SHA-256) of the pieces, joined without separators. The hash does not
 * depend on where a piece ends. Use pieces of fixed sizes if the ends matter. */
void secret_mac(const void *key, size_t key_bytes, const struct secret_piece *pieces, size_t count,
                uint8_t out[SECRET_HASH_BYTES]);

/* Returns true if two pieces of `bytes` bytes are equal. The time that the function takes does not
 * depend on the contents. */
bool secret_bytes_equal(const void *a, const void *b, size_t bytes);

/* Fills `out` with random bytes from the kernel, for keys and nonces. Aborts the process if the
 * kernel returns an error. */
void secret_random(void *out, size_t bytes);

/* Overwrites memory with zeros. The compiler cannot remove the call. NULL is fine. */
void secret_wipe(void *data, size_t bytes);

/* Stops core dumps, which would contain keys and prompts, of this process and of processes that it
 * starts later. Sets the limit RLIMIT_CORE to 1 byte, at which the kernel also starts no program
 * for core dumps (core(5)). If the hard limit is 0, the function cannot set 1 byte and returns
 * ST_OK; the kernel may then still pass a dump to a program. Returns ST_IO if the kernel does not
 * change the limit. */
enum status secret_core_dumps_stop(struct error *error);

/* Opens a file with secret content for reading. The file must be a regular file of at most
 * bytes_max bytes, must belong to the effective user of this process or to root, and must give no
 * access to its group or to others. The caller closes *fd_out. Errors name the path: ST_NOT_FOUND,
 * ST_IO, ST_TOO_LARGE, and ST_INVALID for a wrong owner, mode or type. */
enum status secret_file_open(const char *path, size_t bytes_max, int *fd_out, struct error *error);

/* Reads a file with secret content, with the checks of secret_file_open. *text_out is
 * NUL-terminated; the caller erases the text with secret_wipe and then frees the text. Returns the
 * errors of secret_file_open and ST_NO_MEMORY. */
enum status secret_file_read(const char *path, size_t bytes_max, char **text_out, size_t *bytes_out,
                             struct error *error);

/* Reads an API key, the first word of a file, with the checks of secret_file_open. Writes the key
 * with a NUL to out[0..capacity). The whole file may have at most capacity - 1 bytes. Returns the
 * errors of secret_file_read, and ST_INVALID if the file is empty or begins with white space. */
enum status secret_api_key_read(const char *path, char *out, size_t capacity, struct error *error);

/* Reads a password, the first line of a file, with the checks of secret_file_open. The whole file
 * may have at most 1,024 bytes. The caller frees *out with secret_password_free. Returns the errors
 * of secret_file_read, and ST_INVALID if the first line is empty. */
enum status secret_password_read(const char *path, char **out, struct error *error);
/* Erases and frees a password. NULL is fine. */
void secret_password_free(char *password);

#endif
