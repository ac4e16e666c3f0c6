/* auth: two processes prove to each other that both have the cluster key, before they exchange
 * HELLO (handshake.h) or DATA (ucx_data.c):
 *
 *   connecting → accepting   AUTH         my identity, a nonce
 *   connecting ← accepting   AUTH_REPLY   my identity, a nonce, my proof
 *   connecting → accepting   AUTH_PROOF   my proof; then HELLO (handshake.h) or DATA (ucx_data.c)
 *
 * The frames travel inside TLS. A proof is an HMAC-SHA-256 with the cluster key of the TLS
 * hand-shake (tls.h), or with a new cluster key that replaces this key (AUTH_RENEWED_…). A proof
 * covers the direction, the names, roles and nonces of both sides, and a value that only the two
 * ends of the TLS session know (tls_channel_binding). So a proof is useless on another connection
 * and for the other side.
 *
 * This part encodes and decodes the frames and computes the proofs. It owns nothing and does no
 * I/O: ucx_greet.c and ucx_key.c send and check the proofs, on the one thread that owns the
 * transport. */
#ifndef TRANSPORT_AUTH_H
#define TRANSPORT_AUTH_H

#include "common/secret.h"
#include "transport/tls.h"
#include "transport/transport.h"

#define AUTH_NONCE_BYTES 32
#define AUTH_BYTES_MAX   128 /* Upper bound of the sizes of the three frames. */

/* What one side sends about itself. */
struct auth_side {
    char name[LIMIT_NAME_BYTES];
    uint32_t role; /* enum transport_role */
    uint8_t nonce[AUTH_NONCE_BYTES];
};

/* What the proofs of one connection cover. */
struct auth_exchange {
    struct auth_side connecting;
    struct auth_side accepting;
    /* Value of tls_channel_binding, equal on both sides. */
    uint8_t channel_binding[TLS_CHANNEL_BINDING_BYTES];
};

/* Which side gives the proof, and when. RENEWED: a proof of a new key, on a connection that is
 * already up (ucx_key.c). */
enum auth_direction {
    AUTH_BY_CONNECTING = 1,
    AUTH_BY_ACCEPTING = 2,
    AUTH_RENEWED_BY_CONNECTING = 3,
    AUTH_RENEWED_BY_ACCEPTING = 4,
};

/* Fills `side` with our identity and a fresh nonce. */
void auth_side_init(struct auth_side *side, const struct transport_identity *identity);

/* Computes the proof that `direction` names. Requires that all fields of *exchange are set. */
void auth_proof(const struct secret_key *key, const struct auth_exchange *exchange,
                enum auth_direction direction, uint8_t out[SECRET_HASH_BYTES]);

/* The payloads of AUTH and AUTH_REPLY; the payload of AUTH_PROOF is the proof itself. Encoders
 * return the size in bytes. Decoders return ST_INVALID for an invalid payload, or ST_MISMATCH if
 * the sender's version of the frames is not ours. */
size_t auth_encode(const struct auth_side *connecting, uint8_t out[AUTH_BYTES_MAX]);
enum status auth_decode(const uint8_t *data, size_t bytes, struct auth_side *connecting_out,
                        struct error *error);
size_t auth_reply_encode(const struct auth_side *accepting, const uint8_t proof[SECRET_HASH_BYTES],
                         uint8_t out[AUTH_BYTES_MAX]);
enum status auth_reply_decode(const uint8_t *data, size_t bytes, struct auth_side *accepting_out,
                              uint8_t proof_out[SECRET_HASH_BYTES], struct error *error);

#endif
