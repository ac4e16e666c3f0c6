/* tier_backend: the interface of the stores of tiers: memory of the host, a file on an SSD, or a
 * store that machines share. A backend owns the memory, the file, or the connections to a
 * shared store. A record is a sequence of bytes under a name (tier_record.h). All records of a
 * backend have the same size.
 *
 * One thread at a time uses a backend: the thread of the tier (tiers.h), or the thread that makes
 * and closes the backend. A deadline is a time of clock_system in microseconds. A backend that uses
 * a network returns at the deadline at the latest; the other backends ignore deadlines. A backend
 * has no thread of its own, except for look-ups of host names (transport/resolver.h). It logs
 * nothing and does not look into records: tiers.c makes the names and checks the records. */
#ifndef KVCACHE_TIERS_TIER_BACKEND_H
#define KVCACHE_TIERS_TIER_BACKEND_H

#include "common/digest.h"
#include "common/status.h"
#include "common/tier_kind.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tier_backend;

/* All functions return ST_OK, or:
 *
 *   ST_NOT_FOUND     There is no record with this name, or no answer by the deadline.
 *   ST_NO_RESOURCE   `put`: the record was not stored; other calls still work.
 *   ST_INVALID       `get`: the record is damaged; the caller calls `drop`.
 *                    `open`: the store's settings are wrong; the tier is off.
 *   ST_UNREACHABLE   The store cannot be used now; the caller tries the store again later. The
 *                    caller treats ST_TIMED_OUT in the same way.
 *   any other error  The store can no longer be used: the tier is off until the machine is started
 *                    again.
 *
 * The text of an error says what is wrong, and in which file or server; ST_NOT_FOUND may have no
 * text. */
struct tier_backend_ops {
    enum tier_kind kind; /* For logs and statistics. */

    /* Makes the store ready. The functions below, except `close`, require that `open` has returned
     * ST_OK. `identity` is a digest of what decides the content of KV, such as the model
     * (tier_identity_make); record_bytes is the size of every record. The store may remove records
     * of other identities. After ST_OK, the text of the error is a remark for an operator, such as
     * which records were removed; empty = no remark. */
    enum status (*open)(struct tier_backend *b, const struct digest *identity, size_t record_bytes,
                        int64_t deadline_us, struct error *error);
    /* Counts the names before the first name without a record, or with a record on a server that is
     * known to fail. The records of these names count as used, except in a shared store without
     * expiry. */
    enum status (*stored_count)(struct tier_backend *b, const struct digest *names, uint32_t count,
                                int64_t deadline_us, uint32_t *count_out, struct error *error);
    /* Reads a record. record_out has room for record_bytes bytes. */
    enum status (*get)(struct tier_backend *b, const struct digest *name, void *record_out,
                       int64_t deadline_us, struct error *error);
    /* Stores a record. If there is a record with this name, the store keeps that record. The store
     * may remove other records. */
    enum status (*put)(struct tier_backend *b, const struct digest *name, const void *record,
                       int64_t deadline_us, struct error *error);
    /* Removes a record, if there is one with this name. */
    enum status (*drop)(struct tier_backend *b, const struct digest *name, int64_t deadline_us,
                        struct error *error);
    /* Frees the backend. May be called if `open` was not called or has failed. */
    void (*close)(struct tier_backend *b);
};

/* First member of every backend. */
struct tier_backend {
    const struct tier_backend_ops *ops;
};

#endif
