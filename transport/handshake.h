/* handshake: encodes, decodes and compares the frame HELLO, with which both sides of a connection
 * begin. With a cluster key, HELLO follows the proofs of auth.h. The frame contains the identity of
 * the process, the layout of its KV, and what a peer needs to write into its region. The first
 * fields (magic, version, name) are the same in every version, so that two versions can recognize
 * each other. This part does no I/O. The decoder is fuzzed. The one thread that owns the transport
 * makes every call. */
#ifndef TRANSPORT_HANDSHAKE_H
#define TRANSPORT_HANDSHAKE_H

#include "transport/fabric.h"

#define HANDSHAKE_BYTES_MAX (64u << 10) /* Largest size of the frame. */

struct handshake {
    uint32_t version;
    struct transport_identity identity;
    struct transport_region_info region;
    /* Zero for a peer without a region. A decoded address points into the frame. */
    struct fabric_address address;
    uint64_t token; /* Names the inbox that the sender keeps for the receiver. */
};

/* Writes the frame's payload to `out`; returns its size, or 0 if it does not fit. */
size_t handshake_encode(const struct handshake *handshake, uint8_t *out, size_t capacity);

/* Returns ST_INVALID if the frame is not a hand-shake or one of its fields is invalid. From a frame
 * of another version, only version and name are set. Pointers of `out` point into `data`. */
enum status handshake_decode(const uint8_t *data, size_t bytes, struct handshake *out,
                             struct error *error);

/* Copies a name out of a frame, for error texts and logs; `from` and `to` have LIMIT_NAME_BYTES
 * bytes. Each character that cannot be printed, and each space, becomes '?'. Returns false if the
 * name has no NUL. */
bool handshake_name_copy(const char *from, char *to);

/* Returns ST_OK if a connection between the two is allowed, else ST_MISMATCH with a text that names
 * the difference and both values, those of `first` before those of `second`. */
enum status handshake_check(const struct handshake *first, const struct handshake *second,
                            struct error *error);

#endif
