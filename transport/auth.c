/* auth: see the header. */
#include "transport/auth.h"

#include "transport/handshake.h"

#include <assert.h>
#include <string.h>

#define AUTH_MAGIC   0x74756163u /* "caut" */
#define AUTH_VERSION 2u

struct wire_auth { /* AUTH. In AUTH_REPLY, the proof follows. */
    uint32_t magic;
    uint32_t version;
    uint32_t role;
    uint32_t padding;
    char name[LIMIT_NAME_BYTES];
    uint8_t nonce[AUTH_NONCE_BYTES];
};
static_assert(sizeof(struct wire_auth) == 80, "wire size");
static_assert(sizeof(struct wire_auth) + SECRET_HASH_BYTES <= AUTH_BYTES_MAX, "frames fit");

/* The data under a proof's HMAC. */
struct wire_transcript {
    char label[24];
    uint32_t version;
    uint32_t direction;
    uint32_t roles[2];
    char names[2][LIMIT_NAME_BYTES];
    uint8_t nonces[2][AUTH_NONCE_BYTES];
    uint8_t channel[TLS_CHANNEL_BINDING_BYTES];
};
static_assert(sizeof(struct wire_transcript) == 200, "the proved struct has no padding");

void auth_side_init(struct auth_side *side, const struct transport_identity *identity)
{
    memset(side, 0, sizeof(*side));
    memcpy(side->name, identity->name, strnlen(identity->name, LIMIT_NAME_BYTES - 1));
    side->role = identity->role;
    secret_random(side->nonce, sizeof(side->nonce));
}

void auth_proof(const struct secret_key *key, const struct auth_exchange *exchange,
                enum auth_direction direction, uint8_t out[SECRET_HASH_BYTES])
{
    struct wire_transcript transcript = {
        .label = "cleave cluster key",
        .version = AUTH_VERSION,
        .direction = direction,
        .roles = {exchange->connecting.role, exchange->accepting.role},
    };
    memcpy(transcript.names[0], exchange->connecting.name, LIMIT_NAME_BYTES);
    memcpy(transcript.names[1], exchange->accepting.name, LIMIT_NAME_BYTES);
    memcpy(transcript.nonces[0], exchange->connecting.nonce, AUTH_NONCE_BYTES);
    memcpy(transcript.nonces[1], exchange->accepting.nonce, AUTH_NONCE_BYTES);
    memcpy(transcript.channel, exchange->channel_binding, TLS_CHANNEL_BINDING_BYTES);
    const struct secret_piece piece = {&transcript, sizeof(transcript)};
    secret_mac(key->bytes, sizeof(key->bytes), &piece, 1, out);
}

size_t auth_encode(const struct auth_side *connecting, uint8_t out[AUTH_BYTES_MAX])
{
    struct wire_auth wire = {
        .magic = AUTH_MAGIC, .version = AUTH_VERSION, .role = connecting->role};
    memcpy(wire.name, connecting->name, sizeof(wire.name));
    memcpy(wire.nonce, connecting->nonce, sizeof(wire.nonce));
    memcpy(out, &wire, sizeof(wire));
    return sizeof(wire);
}

size_t auth_reply_encode(const struct auth_side *accepting, const uint8_t proof[SECRET_HASH_BYTES],
                         uint8_t out[AUTH_BYTES_MAX])
{
    size_t bytes = auth_encode(accepting, out);
    memcpy(out + bytes, proof, SECRET_HASH_BYTES);
    return bytes + SECRET_HASH_BYTES;
}

static enum status side_decode(const uint8_t *data, struct auth_side *out, struct error *error)
{
    struct wire_auth wire;
    struct auth_side side = {.name = ""};
    memcpy(&wire, data, sizeof(wire));
    if (wire.magic != AUTH_MAGIC)
        return error_set(error, ST_INVALID, "not a peer of this kind (it sent no proof of a key)");
    if (wire.version != AUTH_VERSION)
        return error_set(error, ST_MISMATCH, "proof of the cluster key: version %u: want %u",
                         wire.version, AUTH_VERSION);
    if (!handshake_name_copy(wire.name, side.name))
        return error_set(error, ST_INVALID,
                         "proof of the cluster key: name has no end within %d bytes",
                         LIMIT_NAME_BYTES);
    /* The proof covers the name as it was sent, so a name with unprintable characters is
     * refused. */
    if (memcmp(side.name, wire.name, sizeof(wire.name)) != 0)
        return error_set(
            error, ST_INVALID,
            "proof of the cluster key: name \"%s\" has characters that are not allowed", side.name);
    if (wire.role != TRANSPORT_GATEWAY && wire.role != TRANSPORT_MACHINE)
        return error_set(error, ST_INVALID, "proof of the cluster key: role = %u: want 1 or 2",
                         wire.role);
    side.role = wire.role;
    memcpy(side.nonce, wire.nonce, sizeof(side.nonce));
    *out = side;
    return ST_OK;
}

enum status auth_decode(const uint8_t *data, size_t bytes, struct auth_side *connecting_out,
                        struct error *error)
{
    if (bytes != sizeof(struct wire_auth))
        return error_set(error, ST_INVALID, "proof of the cluster key: %zu bytes: want %zu", bytes,
                         sizeof(struct wire_auth));
    return side_decode(data, connecting_out, error);
}

enum status auth_reply_decode(const uint8_t *data, size_t bytes, struct auth_side *accepting_out,
                              uint8_t proof_out[SECRET_HASH_BYTES], struct error *error)
{
    size_t want = sizeof(struct wire_auth) + SECRET_HASH_BYTES;
    if (bytes != want)
        return error_set(error, ST_INVALID, "proof of the cluster key: %zu bytes: want %zu", bytes,
                         want);
    enum status status = side_decode(data, accepting_out, error);
    if (status == ST_OK)
        memcpy(proof_out, data + sizeof(struct wire_auth), SECRET_HASH_BYTES);
    return status;
}
