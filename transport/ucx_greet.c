/* ucx_greet: the start of a connection until it is up: with a cluster key the proofs of auth.h,
 * then the hand-shake.
 *
 *   connecting side                      accepting side
 *
 *                    TLS hand-shake
 *   AUTH                  ───────────▶
 *                         ◀───────────   AUTH_REPLY
 *   check the proof
 *   AUTH_PROOF, HELLO     ───────────▶
 *                                        check the proof
 *                                        check the HELLO
 *                         ◀───────────   HELLO, or REFUSE: closed
 *   check the HELLO
 *                 the link: ucx_prove.c
 *
 * Without a key both sides begin at HELLO. Both sides make the same checks. But the connecting side
 * sends HELLO first, so the accepting side finds a mismatch first, and its REFUSE carries the text:
 * both sides report the same words. Until a stranger has proved the key, it costs a socket, a
 * buffer of STRANGER_BYTES_MAX and one or two hashes, for connect_ms at most. */
#include "transport/peers.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest frame of a peer that has not proved the key. It is large enough for the HELLO of a peer
 * without a key, which is then told what is missing. */
#define STRANGER_BYTES_MAX 4096
static_assert(STRANGER_BYTES_MAX >= AUTH_BYTES_MAX, "proofs fit");

struct wire_refuse {
    int32_t status;
    uint32_t padding;
    char text[256];
};
static_assert(sizeof(struct wire_refuse) == 264, "wire size");

static void tls_begin(struct peer *peer);

static void fail_text(struct peer *peer, enum status why, const char *text)
{
    struct error error;
    error_set(&error, why, "%s", text);
    peer_fail(peer, why, &error);
}

void peer_refuse(struct peer *peer, enum status why, const struct error *error)
{
    struct wire_refuse refuse = {.status = why};
    memcpy(refuse.text, error->text, strnlen(error->text, sizeof(refuse.text) - 1));
    (void)peer_send(peer, FRAME_REFUSE, &refuse, sizeof(refuse));
    peer_fail(peer, why, error);
}

static void refuse_text(struct peer *peer, enum status why, const char *text)
{
    struct error error;
    error_set(&error, why, "%s", text);
    peer_refuse(peer, why, &error);
}

static void hello_send(struct peer *peer)
{
    struct ucx *ucx = peer->ucx;
    struct error error;
    struct handshake greeting;
    handshake_init(&greeting, ucx->options.protocol_version);
    greeting.identity = ucx->options.identity;
    greeting.region =
        (struct transport_region_info){.bytes = ucx->options.region_bytes,
                                       .block_count = ucx->options.block_count,
                                       .layer_stride_bytes = ucx->options.layer_stride_bytes};
    if (ucx->fabric != NULL) {
        if (fabric_inbox_open(ucx->fabric, &peer->base, &peer->inbox) != ST_OK) {
            error_set(&error, ST_NO_MEMORY, "out of memory");
            peer_fail(peer, ST_NO_MEMORY, &error);
            return;
        }
        greeting.address = *fabric_address(ucx->fabric);
        greeting.token = fabric_inbox_token(peer->inbox);
    }
    static uint8_t frame[HANDSHAKE_BYTES_MAX];
    size_t bytes = handshake_encode(&greeting, frame, sizeof(frame));
    if (bytes == 0) {
        error_set(&error, ST_TOO_LARGE, "our UCX address does not fit a hand-shake");
        peer_fail(peer, ST_TOO_LARGE, &error);
        return;
    }
    (void)peer_send(peer, FRAME_HELLO, frame, bytes);
}

/* What the connecting side sends when the key is proved. */
static void greeting_send(struct peer *peer)
{
    if (peer->control != NULL)
        data_connection_begin(peer);
    else
        hello_send(peer);
}

void peer_greet(struct peer *peer)
{
    if (peer->ucx->has_key)
        tls_begin(peer);
    else if (!peer->accepted)
        greeting_send(peer);
}

/* ---- the key ---- */

static void proof_begin(struct peer *peer)
{
    struct auth_exchange *auth = &peer->auth_exchange;
    const struct transport_identity *identity = &peer->ucx->options.identity;
    auth_side_init(peer->accepted ? &auth->accepting : &auth->connecting, identity);
    peer->step = peer->accepted ? GREETING_AUTH : GREETING_AUTH_REPLY;
    if (peer->accepted)
        return;
    uint8_t frame[AUTH_BYTES_MAX];
    (void)peer_send(peer, FRAME_AUTH, frame, auth_encode(&auth->connecting, frame));
}

static void tls_begin(struct peer *peer)
{
    peer->step = GREETING_TLS;
    if (stream_tls_begin(&peer->stream, peer->ucx->tls_keys, peer->accepted) != ST_OK)
        fail_text(peer, ST_NO_MEMORY, "out of memory");
    else if (!peer->accepted)
        (void)peer_greet_tls(peer);
}

bool peer_greet_tls(struct peer *peer)
{
    struct error error = {{0}};
    struct ucx *ucx = peer->ucx;
    if (peer->stream.tls == NULL)
        return true; /* The other side speaks no TLS: its first frame shows what it is. */
    if (ucx->handshakes_left == 0) {
        peer->input_left = true; /* Continues in the next iteration. */
        return false;
    }
    ucx->handshakes_left--;
    enum status status = stream_handshake(&peer->stream, &error);
    if (status == ST_OK) {
        tls_channel_binding(peer->stream.tls, peer->auth_exchange.channel_binding);
        memcpy(peer->key_id, tls_key_id(peer->stream.tls), sizeof(peer->key_id));
        proof_begin(peer);
    } else if (status == ST_MISMATCH) {
        error_prefix(&error, PEER_KEYS_DIFFER);
    }
    peer_epoll_update(peer);
    if (status != ST_OK && status != ST_IN_PROGRESS && status != ST_UNSUPPORTED) {
        peer_greet_explain(peer, &error);
        peer_fail(peer, status, &error);
    }
    return (status == ST_OK || status == ST_UNSUPPORTED) && peer->failing == ST_OK;
}

/* No machine connects to itself, so a peer with our name sends our own words back to us. */
static bool is_ourselves(const struct peer *peer, const struct auth_side *side)
{
    const struct transport_identity *own = &peer->ucx->options.identity;
    return side->role == (uint32_t)own->role && strcmp(side->name, own->name) == 0;
}

#define OURSELVES "it has the same name as this process"

static void on_auth(struct peer *peer, const uint8_t *data, size_t bytes)
{
    struct auth_exchange *auth = &peer->auth_exchange;
    uint8_t proof[SECRET_HASH_BYTES];
    uint8_t frame[AUTH_BYTES_MAX];
    struct error error;
    enum status status = auth_decode(data, bytes, &auth->connecting, &error);
    if (status != ST_OK) {
        peer_refuse(peer, status, &error);
        return;
    }
    if (is_ourselves(peer, &auth->connecting)) {
        refuse_text(peer, ST_INVALID, OURSELVES);
        return;
    }
    const struct secret_key *key = peer_key(peer);
    if (key == NULL) {
        refuse_text(peer, ST_MISMATCH, PEER_KEYS_DIFFER);
        return;
    }
    peer->step = GREETING_AUTH_PROOF;
    auth_proof(key, auth, AUTH_BY_ACCEPTING, proof);
    size_t size = auth_reply_encode(&auth->accepting, proof, frame);
    (void)peer_send(peer, FRAME_AUTH_REPLY, frame, size);
}

static void on_auth_reply(struct peer *peer, const uint8_t *data, size_t bytes)
{
    struct auth_exchange *auth = &peer->auth_exchange;
    uint8_t proof[SECRET_HASH_BYTES];
    uint8_t want[SECRET_HASH_BYTES];
    struct error error;
    enum status status = auth_reply_decode(data, bytes, &auth->accepting, proof, &error);
    if (status != ST_OK) {
        peer_fail(peer, status, &error);
        return;
    }
    if (is_ourselves(peer, &auth->accepting)) {
        fail_text(peer, ST_INVALID, OURSELVES);
        return;
    }
    const struct secret_key *key = peer_key(peer);
    if (key != NULL)
        auth_proof(key, auth, AUTH_BY_ACCEPTING, want);
    if (key == NULL || !secret_bytes_equal(proof, want, sizeof(want))) {
        fail_text(peer, ST_MISMATCH, PEER_KEYS_DIFFER);
        return;
    }
    auth_proof(key, auth, AUTH_BY_CONNECTING, proof);
    peer->step = GREETING_HELLO;
    if (peer_send(peer, FRAME_AUTH_PROOF, proof, sizeof(proof)) == ST_OK)
        greeting_send(peer);
}

static void on_auth_proof(struct peer *peer, const uint8_t *data, size_t bytes)
{
    uint8_t want[SECRET_HASH_BYTES];
    const struct secret_key *key = peer_key(peer);
    if (key != NULL)
        auth_proof(key, &peer->auth_exchange, AUTH_BY_CONNECTING, want);
    if (key == NULL || bytes != sizeof(want) || !secret_bytes_equal(data, want, sizeof(want)))
        refuse_text(peer, ST_MISMATCH, PEER_KEYS_DIFFER);
    else
        peer->step = GREETING_HELLO;
}

/* After the proof, the peer must use the name and role that it proved the key with. */
static bool proved(const struct peer *peer, const struct transport_identity *identity)
{
    const struct auth_side *side =
        peer->accepted ? &peer->auth_exchange.connecting : &peer->auth_exchange.accepting;
    return !peer->ucx->has_key || (side->role == (uint32_t)identity->role &&
                                   memcmp(side->name, identity->name, LIMIT_NAME_BYTES) == 0);
}

/* ---- the hand-shake ---- */

static void on_hello(struct peer *peer, const uint8_t *data, size_t bytes)
{
    struct ucx *ucx = peer->ucx;
    struct error error;
    struct handshake own;
    handshake_init(&own, ucx->options.protocol_version);
    own.identity = ucx->options.identity;
    peer->hello_frame = malloc(bytes > 0 ? bytes : 1);
    if (peer->hello_frame == NULL) {
        error_set(&error, ST_NO_MEMORY, "out of memory");
        peer_fail(peer, ST_NO_MEMORY, &error);
        return;
    }
    memcpy(peer->hello_frame, data, bytes);
    enum status status = handshake_decode(peer->hello_frame, bytes, &peer->hello_fields, &error);
    if (status != ST_OK) {
        peer_fail(peer, status, &error);
        return;
    }
    const struct handshake *theirs = &peer->hello_fields;
    if (!proved(peer, &theirs->identity)) {
        refuse_text(peer, ST_INVALID, "it proved the cluster key with another name");
        return;
    }
    peer->base.identity = theirs->identity;
    status =
        handshake_check(peer->accepted ? theirs : &own, peer->accepted ? &own : theirs, &error);
    if (status != ST_OK) {
        peer_refuse(peer, ST_MISMATCH, &error);
        return;
    }
    if (peer->accepted && linger_full(ucx) && theirs->identity.role == TRANSPORT_MACHINE) {
        refuse_text(peer, ST_NO_RESOURCE,
                    "too many earlier connections have not been closed by their machines");
        return;
    }
    peer->base.version = handshake_version(&own, theirs);
    peer->base.versions_equal = own.version == theirs->version;
    if (peer->accepted) {
        hello_send(peer);
        ucx->accepted_greeting--;
    }
    peer->writes_directly = ucx->fabric != NULL && theirs->identity.role == TRANSPORT_MACHINE &&
                            fabric_writes_directly(ucx->fabric, &theirs->address, &peer->same_host);
    /* A gateway, which writes nothing, needs the region's size. */
    peer->base.region = theirs->region;
    prove_begin(peer);
}

/* ---- frames ---- */

void peer_refused(struct peer *peer, const uint8_t *data, size_t bytes)
{
    struct wire_refuse refuse;
    struct error error;
    if (bytes != sizeof(refuse)) {
        error_set(&error, ST_INVALID, "a REFUSE frame of %zu bytes", bytes);
        peer_fail(peer, ST_INVALID, &error);
        return;
    }
    memcpy(&refuse, data, sizeof(refuse));
    refuse.text[sizeof(refuse.text) - 1] = 0;
    error_set(&error, ST_MISMATCH, "%.255s", refuse.text);
    peer_fail(peer, refuse.status == ST_MISMATCH ? ST_MISMATCH : ST_UNREACHABLE, &error);
}

/* Handles a frame other than the awaited one. The usual cause is two configurations that do not
 * agree. */
void peer_greet_foreign(struct peer *peer)
{
    refuse_text(peer, ST_MISMATCH, "it has a cluster key, and here is none (cluster/key_file)");
}

static void out_of_turn(struct peer *peer, uint32_t kind)
{
    char text[96];
    bool proof = kind == FRAME_AUTH || kind == FRAME_AUTH_REPLY || kind == FRAME_AUTH_PROOF;
    if (kind == FRAME_HELLO && peer->ucx->has_key) {
        refuse_text(peer, ST_MISMATCH, "it has no cluster key, and here is one (cluster/key_file)");
    } else if (proof && !peer->ucx->has_key) {
        peer_greet_foreign(peer);
    } else {
        snprintf(text, sizeof(text), "not a peer of this kind (first frame: %u)", kind);
        fail_text(peer, ST_INVALID, text);
    }
}

void peer_greet_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes)
{
    static const uint32_t awaited[] = {
        [GREETING_HELLO] = FRAME_HELLO,
        [GREETING_TLS] = UINT32_MAX, /* None. */
        [GREETING_AUTH] = FRAME_AUTH,
        [GREETING_AUTH_REPLY] = FRAME_AUTH_REPLY,
        [GREETING_AUTH_PROOF] = FRAME_AUTH_PROOF,
    };
    if (kind == FRAME_REFUSE && !peer->accepted)
        peer_refused(peer, data, bytes);
    else if (kind == FRAME_DATA && peer->accepted && peer->step == GREETING_HELLO)
        data_connection_accept(peer, data, bytes);
    else if (kind != awaited[peer->step])
        out_of_turn(peer, kind);
    else if (kind == FRAME_HELLO)
        on_hello(peer, data, bytes);
    else if (kind == FRAME_AUTH)
        on_auth(peer, data, bytes);
    else if (kind == FRAME_AUTH_REPLY)
        on_auth_reply(peer, data, bytes);
    else
        on_auth_proof(peer, data, bytes);
}

size_t peer_greet_bytes_max(const struct peer *peer)
{
    return peer->step == GREETING_HELLO ? HANDSHAKE_BYTES_MAX : STRANGER_BYTES_MAX;
}

void peer_greet_explain(const struct peer *peer, struct error *error)
{
    if (peer->state == PEER_GREETING && peer->step != GREETING_HELLO)
        error_prefix(error, "it has not proved the cluster key (cluster/key_file)");
}
