/* member: a machine's entry in etcd as a struct, and its text. The key is PREFIX + "machines/" +
 * name. The value is a JSON object with address, pool, metadata_hash (16 lower-case hexadecimal
 * digits) and model_hash (64). Other keys of the object are ignored, so that later releases can
 * add keys. registration.c and watch.c call the functions, on the event loop thread of their
 * process. The functions do no I/O and keep no state. They do not check that a machine listens at
 * the address. */
#ifndef MEMBERSHIP_MEMBER_H
#define MEMBERSHIP_MEMBER_H

#include "common/digest.h"
#include "common/limits.h"
#include "common/status.h"
#include "config/config.h"

#include <stddef.h>
#include <stdint.h>

/* One registered machine. */
struct member {
    char name[LIMIT_NAME_BYTES];
    char address[LIMIT_ADDRESS_BYTES]; /* "host:port" where the machine listens. */
    enum pool pool;
    uint64_t metadata_hash;   /* model_file_metadata_hash of the model and its adapters. */
    struct digest model_hash; /* model_file_digest of the model and its adapters. */
};

#define MEMBER_KEY_BYTES 320 /* A key with its NUL. */

/* Writes "PREFIXmachines/NAME", with at most 256 bytes of the prefix; name "" = the common prefix
 * of all machines. */
void member_key(const char *prefix, const char *name, char out[MEMBER_KEY_BYTES]);

/* Returns the value's text, which the caller frees; NULL = no memory. */
char *member_encode(const struct member *member);
/* Reads the value of the machine `name`. Returns ST_INVALID, and leaves *out unchanged, if name or
 * value cannot be used; the error says what was wanted, but does not name the key. */
enum status member_decode(const char *name, const char *value, struct member *out,
                          struct error *error);

#endif
