/* handshake: encodes, decodes and compares the payload of the frame HELLO. On a control connection
 * (peers.h), both sides send HELLO before any message, and after the proofs of auth.h if there is a
 * cluster key. HELLO contains the identity of the process, the range of protocol versions that the
 * process speaks (protocol.h), and the address and keys with which a peer can write into the
 * process's region (the memory with its KV).
 *
 * This part owns nothing and does no I/O: ucx_greet.c sends and receives the frame. The one thread
 * that owns the transport makes every call. */
#ifndef TRANSPORT_HANDSHAKE_H
#define TRANSPORT_HANDSHAKE_H

#include "transport/fabric.h"

#define HANDSHAKE_BYTES_MAX (64u << 10) /* Largest payload of HELLO. */

/* The sender's format of KV, and its formats of two hashes (common/formats.h). Peers refuse each
 * other if a format differs; only machines compare `kv`. */
struct handshake_formats {
    uint32_t kv;
    uint32_t prefix_hash;
    uint32_t model_hash;
};

struct handshake {
    uint32_t version_lowest; /* Lowest protocol version that the sender speaks. */
    uint32_t version;        /* Highest protocol version that the sender speaks. */
    struct handshake_formats formats;
    struct transport_identity identity;
    struct transport_region_info region;
    /* All sizes in the address are 0 if the sender has no region. The pointers of a decoded address
     * point into the payload. */
    struct fabric_address address;
    /* Identifies the inbox of the process that sent this HELLO. The peer puts this number into
     * every write to that process (fabric_inbox_token). */
    uint64_t token;
};

/* Writes the payload of HELLO to `out`. Returns the size in bytes, or 0 if the payload is larger
 * than `capacity` or HANDSHAKE_BYTES_MAX. */
size_t handshake_encode(const struct handshake *handshake, uint8_t *out, size_t capacity);

/* Sets the formats and the lowest version of this program, and all other fields to 0. `version`:
 * the highest protocol version to speak. */
void handshake_init(struct handshake *out, uint32_t version);

/* Decodes the payload of HELLO. Returns ST_OK, or ST_INVALID if the payload is no HELLO or one of
 * its fields is invalid; *out is then unchanged. If the sender speaks no version that this program
 * speaks, returns ST_OK and sets the versions and the name; all other fields are 0. */
enum status handshake_decode(const uint8_t *data, size_t bytes, struct handshake *out,
                             struct error *error);

/* Copies the name of a process out of a frame; `from` and `to` have LIMIT_NAME_BYTES bytes. Each
 * character that is not printable ASCII, and each space, becomes '?'. Returns false if the name has
 * no NUL; `to` is then unchanged. */
bool handshake_name_copy(const char *from, char *to);

/* Returns the highest protocol version that both sides speak; 0 = none. */
uint32_t handshake_version(const struct handshake *first, const struct handshake *second);

/* Returns ST_OK if versions, formats and identities allow a connection (struct transport_identity),
 * else ST_MISMATCH. The error text names what differs and both values, first the value of `first`.
 * `first`: the side that has connected. */
enum status handshake_check(const struct handshake *first, const struct handshake *second,
                            struct error *error);

#endif
