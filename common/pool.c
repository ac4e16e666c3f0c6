/* pool: see the header. */
#include "common/pool.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

static const char *const names[POOL_COUNT] = {"prompt", "token", "mixed"};

const char *pool_name(enum pool pool)
{
    assert(pool < POOL_COUNT);
    return names[pool];
}

bool pool_by_name(const char *name, enum pool *pool_out)
{
    for (int pool = 0; name != NULL && pool < POOL_COUNT; pool++) {
        if (strcmp(names[pool], name) != 0)
            continue;
        *pool_out = (enum pool)pool;
        return true;
    }
    return false;
}
