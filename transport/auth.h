/* auth: two processes prove to each other that both hold the cluster's key, before either process
 * reads any other frame of the other:
 *
 *   connecting → accepting   AUTH         my identity, a nonce
 *   connecting ← accepting   AUTH_REPLY   my identity, a nonce, my proof
 *   connecting → accepting   AUTH_PROOF   my proof; then HELLO (handshake.h) or DATA (ucx_data.c)
 *
 * TLS has authenticated both sides with one of the cluster's keys (tls.h). A proof is an
 * HMAC-SHA-256 with the same key. When a new key replaces this key, both sides prove over the same
 * connection that they hold the new key (AUTH_RENEWED_…). A proof covers the direction, both nonces
 * and both identities (name and role). A proof is valid for one connection and one side only: a
 * replayed or reflected proof is refused. The frames travel inside TLS (tls.h), and a proof also
 * covers a value that only the two ends of this TLS session know (tls_channel_binding). So a proof
 * is useless on any other connection, and all later frames come from the process that gave the
 * proof.
 *
 * This part encodes and decodes the frames and computes the proofs; ucx_greet.c and ucx_key.c send
 * and check the proofs. This part does no I/O. Each kind of frame has a fixed size. The decoders
 * are fuzzed. Only files of this folder and tests include this header. The one thread that owns the
 * transport makes every call. */
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

/* The payloads of the three frames. Encoders return the size. Decoders return ST_INVALID with a
 * text that names the fault, or ST_MISMATCH if the version differs from ours. */
size_t auth_encode(const struct auth_side *connecting, uint8_t out[AUTH_BYTES_MAX]);
enum status auth_decode(const uint8_t *data, size_t bytes, struct auth_side *connecting_out,
                        struct error *error);
size_t auth_reply_encode(const struct auth_side *accepting, const uint8_t proof[SECRET_HASH_BYTES],
                         uint8_t out[AUTH_BYTES_MAX]);
enum status auth_reply_decode(const uint8_t *data, size_t bytes, struct auth_side *accepting_out,
                              uint8_t proof_out[SECRET_HASH_BYTES], struct error *error);
/* The payload of AUTH_PROOF is the proof itself. */

#endif
