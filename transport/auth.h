/* auth: how two processes prove to each other that both hold the cluster's key, before anything
 * else of theirs is looked at:
 *
 *   connecting → accepting   AUTH         who I am, a nonce
 *   connecting ← accepting   AUTH_REPLY   who I am, a nonce, my proof
 *   connecting → accepting   AUTH_PROOF   my proof; then the hand-shake as ever
 *
 * A proof is HMAC-SHA-256 under the key over the direction, both nonces and both identities, so it
 * fits one connection and one side of it: it can be neither replayed nor reflected. It says who is
 * there when the connection begins; what follows is neither encrypted nor authenticated (TCP and
 * UCX), so a network where others may write into connections needs a tunnel besides.
 *
 * Frames have one size each. Pure but for the nonces that callers draw; fuzzed. Included by files
 * of this folder only. */
#ifndef TRANSPORT_AUTH_H
#define TRANSPORT_AUTH_H

#include "common/secret.h"
#include "transport/transport.h"

#define AUTH_NONCE_BYTES 32
#define AUTH_BYTES_MAX   128 /* no frame of these is larger */

struct auth_side {
    char name[LIMIT_NAME_BYTES];
    uint32_t role; /* enum transport_role */
    uint8_t nonce[AUTH_NONCE_BYTES];
};

struct auth_exchange {
    struct auth_side connecting;
    struct auth_side accepting;
};

enum auth_direction { AUTH_BY_CONNECTING = 1, AUTH_BY_ACCEPTING = 2 };

/* Our side, with a fresh nonce. */
void auth_side_init(struct auth_side *side, const struct transport_identity *identity);

void auth_proof(const uint8_t key[TRANSPORT_KEY_BYTES], const struct auth_exchange *exchange,
                enum auth_direction by, uint8_t out[SECRET_HASH_BYTES]);

/* The three frames' payloads: encoders return the size, decoders ST_INVALID (name the fault), or
 * ST_MISMATCH for a version that is not ours. */
size_t auth_encode(const struct auth_side *connecting, uint8_t out[AUTH_BYTES_MAX]);
enum status auth_decode(const uint8_t *data, size_t bytes, struct auth_side *connecting_out,
                        struct error *error);
size_t auth_reply_encode(const struct auth_side *accepting, const uint8_t proof[SECRET_HASH_BYTES],
                         uint8_t out[AUTH_BYTES_MAX]);
enum status auth_reply_decode(const uint8_t *data, size_t bytes, struct auth_side *accepting_out,
                              uint8_t proof_out[SECRET_HASH_BYTES], struct error *error);
/* AUTH_PROOF is the proof alone. */

#endif
