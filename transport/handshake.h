/* handshake: the first frame on a connection, in both directions: who we are, what our KV looks
 * like, and how to write to us. Its first fields (magic, version, name) never change, so that two
 * versions can tell each other apart. Pure; fuzzed. Included by files of this folder only. */
#ifndef TRANSPORT_HANDSHAKE_H
#define TRANSPORT_HANDSHAKE_H

#include "transport/fabric.h"

#define HANDSHAKE_BYTES_MAX (64u << 10) /* what a stranger may make us hold */

struct handshake {
    uint32_t version;
    struct transport_identity identity;
    struct transport_region_info region;
    struct fabric_address address; /* of a peer that has a region; points into the frame */
    uint64_t token;                /* of the inbox that it keeps for us */
};

/* Writes the frame's payload to `out`; returns its size, or 0 if it does not fit. */
size_t handshake_encode(const struct handshake *handshake, uint8_t *out, size_t capacity);

/* ST_INVALID: not a hand-shake. A frame of another version has only version and name. */
enum status handshake_decode(const uint8_t *data, size_t bytes, struct handshake *out,
                             struct error *error);

/* Copies the name of a frame, LIMIT_NAME_BYTES, which goes into error texts and logs: what cannot
 * be printed becomes '?'. False: it has no end. */
bool handshake_name_copy(const char *from, char *to);

/* ST_MISMATCH names what differs, in the order first, second (transport_internal.h). */
enum status handshake_check(const struct handshake *first, const struct handshake *second,
                            struct error *error);

#endif
