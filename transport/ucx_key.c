/* ucx_key: another cluster key for connections that are up. See peers.h.
 *
 * An operator changes the keys of a cluster while it runs (docs/operation.md): every process gets
 * the new key beside the old one, then uses the new one to connect, then forgets the old one.
 * Connections must not end for that, so both sides prove the new key to each other over the old
 * connection:
 *
 *   KEY         id of my first key, my proof of it
 *   KEY_REPLY   the same id, your proof
 *
 * A proof covers what the proofs of the greeting cover (auth.h): names, roles, nonces, direction,
 * and a value that only the two ends of this TLS session know. So a stranger between the two, with
 * the old key, could not pass them on. KEY with an unknown id is ignored: the other process will
 * read its keys again later, and then sends KEY itself. */
#include "transport/peers.h"

#include <assert.h>
#include <string.h>

struct wire_key {
    uint8_t id[SECRET_KEY_ID_BYTES];
    uint8_t proof[SECRET_HASH_BYTES];
};
static_assert(sizeof(struct wire_key) == 40, "wire size");

static void proof_make(const struct peer *peer, const struct secret_key *key, bool ours,
                       uint8_t out[SECRET_HASH_BYTES])
{
    bool by_accepting = ours == peer->accepted;
    auth_proof(key, &peer->auth_exchange,
               by_accepting ? AUTH_RENEWED_BY_ACCEPTING : AUTH_RENEWED_BY_CONNECTING, out);
}

static void key_send(struct peer *peer, enum frame_kind kind, const struct secret_key *key)
{
    struct wire_key wire;
    memcpy(wire.id, key->id, sizeof(wire.id));
    proof_make(peer, key, true, wire.proof);
    (void)peer_send(peer, kind, &wire, sizeof(wire));
}

const struct secret_key *peer_key(const struct peer *peer)
{
    return secret_keys_find(&peer->ucx->keys, peer->key_id);
}

void peer_key_renew(struct peer *peer)
{
    const struct secret_key *first = &peer->ucx->keys.keys[0];
    if (!peer->ucx->has_key || peer->state != PEER_UP || peer->failing != ST_OK ||
        memcmp(peer->key_id, first->id, sizeof(first->id)) == 0)
        return;
    if (peer_key(peer) == NULL)
        peer->key_by_us = peer->ucx->now_us + (int64_t)peer->ucx->options.connect_ms * 1000;
    key_send(peer, FRAME_KEY, first);
}

void peer_key_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes)
{
    struct wire_key wire;
    uint8_t want[SECRET_HASH_BYTES];
    struct error error;
    if (bytes != sizeof(wire)) {
        error_set(&error, ST_INVALID, "a KEY frame of %zu bytes", bytes);
        peer_fail(peer, ST_INVALID, &error);
        return;
    }
    memcpy(&wire, data, sizeof(wire));
    const struct secret_key *key = secret_keys_find(&peer->ucx->keys, wire.id);
    if (key == NULL)
        return;
    proof_make(peer, key, false, want);
    if (!secret_bytes_equal(wire.proof, want, sizeof(want))) {
        error_set(&error, ST_MISMATCH, "%s", PEER_KEYS_DIFFER);
        peer_fail(peer, ST_MISMATCH, &error);
        return;
    }
    memcpy(peer->key_id, wire.id, sizeof(wire.id));
    peer->key_by_us = 0;
    if (kind == FRAME_KEY)
        key_send(peer, FRAME_KEY_REPLY, key);
}

void peer_key_tick(struct peer *peer)
{
    struct error error;
    if (peer->key_by_us == 0 || peer->state != PEER_UP || peer->failing != ST_OK ||
        peer->ucx->now_us < peer->key_by_us)
        return;
    error_set(&error, ST_MISMATCH, "%s: it does not prove a key that is still in use",
              PEER_KEYS_DIFFER);
    peer_fail(peer, ST_MISMATCH, &error);
}

enum status ucx_keys_set(struct ucx *ucx, const struct secret_keys *keys, struct error *error)
{
    struct tls_keys *tls_keys;
    enum status status = tls_keys_open(keys, &tls_keys, error);
    if (status != ST_OK)
        return status;
    tls_keys_close(ucx->tls_keys);
    ucx->tls_keys = tls_keys;
    ucx->keys = *keys;
    for (struct peer *peer = ucx->peers; peer != NULL; peer = peer->next) {
        peer->key_by_us = 0;
        peer_key_renew(peer); /* Does nothing for a peer that is not up yet. */
    }
    ucx_work_signal(ucx);
    return ST_OK;
}
