/* member: what etcd knows of a machine. Its key is PREFIX + "machines/" + its name; the value is
 * one JSON object: address, pool, metadata_hash and model_hash (16 hexadecimal digits each;
 * metadata is what gateways compare, model what machines do). Values with more members are read as
 * well: later versions may say more. Pure. */
#ifndef MEMBERSHIP_MEMBER_H
#define MEMBERSHIP_MEMBER_H

#include "common/config.h"
#include "common/limits.h"
#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct member {
    char name[LIMIT_NAME_BYTES];
    char address[LIMIT_ADDRESS_BYTES];
    enum config_pool pool;
    uint64_t metadata_hash;
    uint64_t model_hash;
};

#define MEMBER_KEY_BYTES 320

/* "PREFIXmachines/NAME"; name "": the beginning of all of them. */
void member_key(const char *prefix, const char *name, char out[MEMBER_KEY_BYTES]);

/* The value's text; free it. NULL: no memory. */
char *member_write(const struct member *member);
/* ST_INVALID: what is wrong with the value, without its key. */
enum status member_read(const char *name, const char *value, struct member *out,
                        struct error *error);

#endif
