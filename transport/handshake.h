/* handshake: encodes, decodes and compares the frame HELLO, with which both sides of a connection
 * begin. With a cluster key, HELLO follows the proofs of auth.h. The frame contains the identity of
 * the process, the range of protocol versions that it speaks (protocol.h), the layout of its KV,
 * and what a peer needs to write into its region. The first fields (magic, highest version, name,
 * and since TRANSPORT_PROTOCOL_RANGES the lowest version) are the same in every version, so that
 * two versions can recognize each other. Later versions may add fields at the end of the fixed
 * part, whose size is in the frame. This part does no I/O. The decoder is fuzzed. ucx_greet.c makes
 * and reads the frame, on the one thread that owns the transport. */
#ifndef TRANSPORT_HANDSHAKE_H
#define TRANSPORT_HANDSHAKE_H

#include "transport/fabric.h"

#define HANDSHAKE_BYTES_MAX (64u << 10) /* Largest size of the frame. */

/* Versions of what both sides compute (common/formats.h). */
struct handshake_formats {
    uint32_t kv;
    uint32_t prefix_hash;
    uint32_t model_hash;
};

struct handshake {
    uint32_t version_lowest; /* The versions that the sender speaks: from this one … */
    uint32_t version;        /* … to this one. */
    struct handshake_formats formats;
    struct transport_identity identity;
    struct transport_region_info region;
    /* Zero for a peer without a region. A decoded address points into the frame. */
    struct fabric_address address;
    uint64_t token; /* Names the inbox that the sender keeps for the receiver. */
};

/* Writes the frame's payload to `out`; returns its size, or 0 if it does not fit. */
size_t handshake_encode(const struct handshake *handshake, uint8_t *out, size_t capacity);

/* Sets the versions and formats of this program. `version`: the highest version to speak. */
void handshake_init(struct handshake *out, uint32_t version);

/* Returns ST_INVALID if the frame is not a hand-shake or one of its fields is invalid. From the
 * frame of a peer that speaks no version of this program, only versions and name are set. Fields
 * that this program does not know are ignored. Pointers of `out` point into `data`. */
enum status handshake_decode(const uint8_t *data, size_t bytes, struct handshake *out,
                             struct error *error);

/* Copies a name out of a frame, for error texts and logs; `from` and `to` have LIMIT_NAME_BYTES
 * bytes. Each character that cannot be printed, and each space, becomes '?'. Returns false if the
 * name has no NUL. */
bool handshake_name_copy(const char *from, char *to);

/* Returns the highest version that both sides speak; 0 = none. */
uint32_t handshake_version(const struct handshake *first, const struct handshake *second);

/* Returns ST_OK if a connection between the two is allowed, else ST_MISMATCH with a text that names
 * the difference and both values, those of `first` before those of `second`. */
enum status handshake_check(const struct handshake *first, const struct handshake *second,
                            struct error *error);

#endif
