/* tier_backend: the interface of a store for KV below the KV memory of a machine: memory of the
 * host, a file on an SSD, or a store that machines share. A backend stores records. A record is a
 * sequence of bytes that tier_record.h has made, under a name that tells nothing about its content.
 * All records of a backend have the same size.
 *
 * Only the thread of the tier (tiers.h) calls the functions. Each of them may block until its
 * deadline: a time of clock_system in microseconds. A backend has no thread of its own, logs
 * nothing and does not look into records: tiers.h makes the names, checks the records and decides
 * what is stored. */
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
 *   ST_NOT_FOUND     There is no record with this name.
 *   ST_NO_RESOURCE   The record was not stored, because there is no room for it.
 *   ST_INVALID       `get`: the record is damaged; the caller counts it and calls `drop`.
 *                    `open`: the store's settings are wrong; the tier is off.
 *   ST_UNREACHABLE   The store cannot be used now; ST_TIMED_OUT means the same. A backend of a
 *                    store that is known to be down returns this at once, and tries the store again
 *                    by itself after a while.
 *   any other error  The store can no longer be used: the tier is off until the machine is started
 *                    again.
 *
 * The text of the error names the place and says what is wrong. */
struct tier_backend_ops {
    enum tier_kind kind;

    /* Makes the store ready, before every other function except `close`. `identity` is a digest of
     * what decides the content of KV, such as the model; record_bytes is the size of all records. A
     * backend that can hold the records of one identity only removes those of other identities.
     * After ST_OK, the text of the error says which records were removed; empty = none were.
     * After ST_UNREACHABLE or ST_TIMED_OUT, `open` is called again later. */
    enum status (*open)(struct tier_backend *b, const struct digest *identity, size_t record_bytes,
                        int64_t deadline_us, struct error *error);
    /* Stores in *count_out how many names, counted from the first one up to the first name without
     * a record, have a record. These records count as used. */
    enum status (*has)(struct tier_backend *b, const struct digest *names, uint32_t count,
                       int64_t deadline_us, uint32_t *count_out, struct error *error);
    /* Reads a record. record_out has room for record_bytes bytes. */
    enum status (*get)(struct tier_backend *b, const struct digest *name, void *record_out,
                       int64_t deadline_us, struct error *error);
    /* Stores a record. If there is a record with this name, the store keeps that record. The store
     * may remove other records. */
    enum status (*put)(struct tier_backend *b, const struct digest *name, const void *record,
                       int64_t deadline_us, struct error *error);
    /* Removes a damaged record. */
    enum status (*drop)(struct tier_backend *b, const struct digest *name, int64_t deadline_us,
                        struct error *error);
    /* Frees the backend. Also called if `open` was not called or has failed. */
    void (*close)(struct tier_backend *b);
};

/* First member of every backend. */
struct tier_backend {
    const struct tier_backend_ops *ops;
};

#endif
