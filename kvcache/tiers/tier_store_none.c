/* tier_store_none: replaces tier_store.c in a build without hiredis. */
#include "kvcache/tiers/tier_store.h"

enum status tier_store_make(const struct config *config, const char *servers,
                            struct tier_backend **out, struct error *error)
{
    (void)config;
    (void)servers;
    (void)out;
    return error_set(error, ST_UNSUPPORTED,
                     "kv/tiers/store: cleave was built without hiredis (Debian: libhiredis-dev)");
}
