/* member: a machine's entry in etcd. The key is PREFIX + "machines/" + name. The value is a JSON
 * object with address, pool, metadata_hash and model_hash (16 hexadecimal digits each; gateways
 * compare metadata_hash, machines also model_hash). Further members of the object are ignored, so
 * that later releases can add some. Pure functions, no I/O: any thread. */
#ifndef MEMBERSHIP_MEMBER_H
#define MEMBERSHIP_MEMBER_H

#include "common/limits.h"
#include "common/status.h"
#include "config/config.h"

#include <stddef.h>
#include <stdint.h>

struct member {
    char name[LIMIT_NAME_BYTES];
    char address[LIMIT_ADDRESS_BYTES];
    enum pool pool;
    uint64_t metadata_hash;
    uint64_t model_hash;
};

#define MEMBER_KEY_BYTES 320

/* Writes "PREFIXmachines/NAME"; name "" = the common prefix of all machines. */
void member_key(const char *prefix, const char *name, char out[MEMBER_KEY_BYTES]);

/* Returns the value's text, which the caller frees; NULL = no memory. */
char *member_write(const struct member *member);
/* Reads a value. Returns ST_INVALID with what is wrong with the value (without its key). */
enum status member_read(const char *name, const char *value, struct member *out,
                        struct error *error);

#endif
