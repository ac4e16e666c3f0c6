/* tls: see the header. */
#include "transport/tls.h"

#include <assert.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* TLS 1.3 with a pre-shared key and an elliptic-curve exchange, nothing else. Pre-shared keys that
 * are not tickets are tied to SHA-256, so no suite of another hash is named. */
#define PRIORITY                                                                                   \
    "NONE:+VERS-TLS1.3:+AES-128-GCM:+CHACHA20-POLY1305:+AEAD:+ECDHE-PSK:+GROUP-X25519:"            \
    "+GROUP-SECP256R1:+SIGN-ALL:+COMP-NULL"
#define PSK_LABEL     "cleave link, TLS 1.3 pre-shared key, 1"
#define CHANNEL_LABEL "EXPORTER-cleave-link-1"
/* Largest message of a hand-shake; ours have a few hundred bytes. */
#define HANDSHAKE_MOST 4096
/* A key of AES-GCM is good for 2^24.5 full records (RFC 8446, section 5.5). GnuTLS changes it after
 * 2^24 records by itself, unless its build does not. */
#define REKEY_BYTES   ((uint64_t)64 << 30)
#define REKEY_RECORDS ((uint64_t)1 << 23)
#define NAME_BYTES    (2 * SECRET_KEY_ID_BYTES + 1)

struct tls_psk {
    char name[NAME_BYTES]; /* The key's id in hexadecimal digits: its name in the ClientHello. */
    uint8_t id[SECRET_KEY_ID_BYTES];
    uint8_t bytes[SECRET_HASH_BYTES];
};

struct tls_keys {
    uint32_t users; /* The owner, and sessions in their hand-shake. */
    uint32_t count;
    struct tls_psk psks[SECRET_KEYS_MAX];
    gnutls_psk_client_credentials_t client;
    gnutls_psk_server_credentials_t server;
    gnutls_priority_t priority;
};

struct tls {
    gnutls_session_t session;
    struct tls_options options; /* keys: NULL after the hand-shake. */
    uint8_t key_id[SECRET_KEY_ID_BYTES];
    uint64_t key_bytes, key_records; /* Sent under the current key. */
    uint64_t taken_bytes;            /* Received encrypted bytes. */
};

static enum status tls_error(struct error *error, enum status status, int code)
{
    return error_set(error, status, "TLS: %s", gnutls_strerror(code));
}

/* GnuTLS frees the copy. */
static int psk_copy(const struct tls_psk *psk, gnutls_datum_t *out)
{
    out->data = gnutls_malloc(sizeof(psk->bytes));
    if (out->data == NULL)
        return -1;
    memcpy(out->data, psk->bytes, sizeof(psk->bytes));
    out->size = sizeof(psk->bytes);
    return 0;
}

/* Gives GnuTLS the key with this name. For an unknown name GnuTLS takes random bytes, so that the
 * hand-shake fails as with a wrong key. */
static int on_name(gnutls_session_t session, const char *name, gnutls_datum_t *key)
{
    struct tls *tls = gnutls_session_get_ptr(session);
    const struct tls_keys *keys = tls->options.keys;
    const struct tls_psk *found = NULL;
    char wanted[NAME_BYTES] = "";
    memcpy(wanted, name, strnlen(name, sizeof(wanted)));
    if (wanted[NAME_BYTES - 1] != 0)
        return 1;
    /* All keys are compared, so that the time does not show which one matches. */
    for (uint32_t i = 0; i < keys->count; i++)
        if (secret_bytes_equal(keys->psks[i].name, wanted, NAME_BYTES))
            found = &keys->psks[i];
    if (found == NULL)
        return 1;
    memcpy(tls->key_id, found->id, sizeof(tls->key_id));
    return psk_copy(found, key);
}

static void psk_make(const struct secret_key *key, struct tls_psk *out)
{
    const struct secret_piece label = {PSK_LABEL, sizeof(PSK_LABEL)};
    secret_mac(key->bytes, sizeof(key->bytes), &label, 1, out->bytes);
    memcpy(out->id, key->id, sizeof(out->id));
    for (size_t i = 0; i < sizeof(out->id); i++)
        snprintf(out->name + 2 * i, NAME_BYTES - 2 * i, "%02x", out->id[i]);
}

enum status tls_keys_open(const struct secret_keys *cluster_keys, struct tls_keys **out,
                          struct error *error)
{
    assert(cluster_keys->count > 0);
    struct tls_keys *keys = calloc(1, sizeof(*keys));
    if (keys == NULL)
        return error_set(error, ST_NO_MEMORY, "TLS: out of memory");
    keys->users = 1;
    keys->count = cluster_keys->count;
    for (uint32_t i = 0; i < cluster_keys->count; i++)
        psk_make(&cluster_keys->keys[i], &keys->psks[i]);
    const gnutls_datum_t psk = {keys->psks[0].bytes, sizeof(keys->psks[0].bytes)};
    int code = gnutls_psk_allocate_client_credentials(&keys->client);
    if (code == 0)
        code = gnutls_psk_set_client_credentials(keys->client, keys->psks[0].name, &psk,
                                                 GNUTLS_PSK_KEY_RAW);
    if (code == 0)
        code = gnutls_psk_allocate_server_credentials(&keys->server);
    if (code == 0)
        code = gnutls_priority_init(&keys->priority, PRIORITY, NULL);
    if (code != 0) {
        tls_keys_close(keys);
        return tls_error(error, ST_UNSUPPORTED, code);
    }
    gnutls_psk_set_server_credentials_function(keys->server, on_name);
    *out = keys;
    return ST_OK;
}

void tls_keys_close(struct tls_keys *keys)
{
    if (keys == NULL || --keys->users > 0)
        return;
    if (keys->client != NULL)
        gnutls_psk_free_client_credentials(keys->client);
    if (keys->server != NULL)
        gnutls_psk_free_server_credentials(keys->server);
    if (keys->priority != NULL)
        gnutls_priority_deinit(keys->priority);
    secret_wipe(keys, sizeof(*keys));
    free(keys);
}

static ssize_t on_push(gnutls_transport_ptr_t self, const void *data, size_t bytes)
{
    struct tls *tls = self;
    if (tls->options.send(tls->options.self, data, bytes))
        return (ssize_t)bytes;
    gnutls_transport_set_errno(tls->session, ENOMEM);
    return -1;
}

static ssize_t on_pull(gnutls_transport_ptr_t self, void *data, size_t capacity)
{
    struct tls *tls = self;
    size_t bytes = tls->options.take(tls->options.self, data, capacity);
    tls->taken_bytes += bytes;
    if (bytes > 0)
        return (ssize_t)bytes;
    gnutls_transport_set_errno(tls->session, EAGAIN);
    return -1;
}

static int session_set(struct tls *tls)
{
    const struct tls_keys *keys = tls->options.keys;
    bool accepting = tls->options.accepting;
    void *credentials = accepting ? (void *)keys->server : (void *)keys->client;
    gnutls_session_set_ptr(tls->session, tls);
    gnutls_transport_set_ptr(tls->session, tls);
    gnutls_transport_set_push_function(tls->session, on_push);
    gnutls_transport_set_pull_function(tls->session, on_pull);
    gnutls_handshake_set_timeout(tls->session, 0); /* The transport has a deadline of its own. */
    gnutls_handshake_set_max_packet_length(tls->session, HANDSHAKE_MOST);
    int code = gnutls_priority_set(tls->session, keys->priority);
    return code != 0 ? code : gnutls_credentials_set(tls->session, GNUTLS_CRD_PSK, credentials);
}

static void keys_leave(struct tls *tls)
{
    tls_keys_close(tls->options.keys);
    tls->options.keys = NULL;
}

enum status tls_open(const struct tls_options *options, struct tls **out)
{
    struct tls *tls = calloc(1, sizeof(*tls));
    unsigned flags = (options->accepting ? GNUTLS_SERVER : GNUTLS_CLIENT) | GNUTLS_NONBLOCK |
                     GNUTLS_NO_TICKETS | GNUTLS_NO_SIGNAL;
    if (tls == NULL)
        return ST_NO_MEMORY;
    tls->options = *options;
    tls->options.keys->users++;
    if (options->rekey_bytes == 0)
        tls->options.rekey_bytes = REKEY_BYTES;
    if (options->rekey_records == 0)
        tls->options.rekey_records = REKEY_RECORDS;
    if (!options->accepting)
        memcpy(tls->key_id, options->keys->psks[0].id, sizeof(tls->key_id));
    if (gnutls_init(&tls->session, flags) != 0) {
        keys_leave(tls);
        free(tls);
        return ST_NO_MEMORY;
    }
    if (session_set(tls) != 0) {
        tls_close(tls);
        return ST_NO_MEMORY;
    }
    *out = tls;
    return ST_OK;
}

void tls_close(struct tls *tls)
{
    if (tls == NULL)
        return;
    gnutls_deinit(tls->session);
    keys_leave(tls);
    free(tls);
}

/* The errors of a peer that speaks TLS 1.3 and has another key: the accepting side finds a wrong
 * proof (binder) in the ClientHello, and the connecting side gets its alert. */
static bool other_key(int code)
{
    return code == GNUTLS_E_RECEIVED_ILLEGAL_PARAMETER || code == GNUTLS_E_FATAL_ALERT_RECEIVED ||
           code == GNUTLS_E_DECRYPTION_FAILED;
}

enum status tls_handshake(struct tls *tls, struct error *error)
{
    int code;
    do
        code = gnutls_handshake(tls->session);
    while (code == GNUTLS_E_INTERRUPTED || code == GNUTLS_E_WARNING_ALERT_RECEIVED);
    if (code == GNUTLS_E_AGAIN)
        return ST_IN_PROGRESS;
    if (code == 0) {
        gnutls_credentials_clear(tls->session);
        keys_leave(tls);
        return ST_OK;
    }
    (void)gnutls_alert_send_appropriate(tls->session, code);
    return tls_error(error, other_key(code) ? ST_MISMATCH : ST_INVALID, code);
}

void tls_channel_binding(struct tls *tls, uint8_t out[TLS_CHANNEL_BINDING_BYTES])
{
    int code = gnutls_prf_rfc5705(tls->session, sizeof(CHANNEL_LABEL) - 1, CHANNEL_LABEL, 0, NULL,
                                  TLS_CHANNEL_BINDING_BYTES, (char *)out);
    assert(code == 0); /* Fails only before the hand-shake is done. */
    (void)code;
}

const uint8_t *tls_key_id(const struct tls *tls)
{
    assert(tls->options.keys == NULL); /* Until the hand-shake is done, nothing is proved. */
    return tls->key_id;
}

/* Changes the key that this side encrypts with, if the key has been used enough. */
static enum status rekey(struct tls *tls, struct error *error)
{
    if (tls->key_bytes <= tls->options.rekey_bytes &&
        tls->key_records <= tls->options.rekey_records)
        return ST_OK;
    int code = gnutls_session_key_update(tls->session, 0);
    tls->key_bytes = tls->key_records = 0;
    return code == 0 ? ST_OK : tls_error(error, ST_UNREACHABLE, code);
}

enum status tls_write(struct tls *tls, const void *data, size_t bytes, struct error *error)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        enum status status = rekey(tls, error);
        if (status != ST_OK)
            return status;
        ssize_t sent = gnutls_record_send(tls->session, at,
                                          bytes < TLS_RECORD_BYTES ? bytes : TLS_RECORD_BYTES);
        if (sent < 0) /* on_push takes everything, so there is nothing to wait for. */
            return tls_error(error, ST_UNREACHABLE, (int)sent);
        tls->key_bytes += (uint64_t)sent;
        tls->key_records++;
        at += sent;
        bytes -= (size_t)sent;
    }
    return ST_OK;
}

enum status tls_read(struct tls *tls, void *data, size_t capacity, size_t *bytes_out,
                     struct error *error)
{
    ssize_t got;
    uint64_t before;
    do { /* After a message without data, such as a new key, GnuTLS wants to be called again. */
        before = tls->taken_bytes;
        got = gnutls_record_recv(tls->session, data, capacity);
    } while ((got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED) && tls->taken_bytes != before);
    if (got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED)
        return ST_IN_PROGRESS;
    if (got == 0)
        return error_set(error, ST_UNREACHABLE, "connection closed by the peer");
    if (got < 0)
        return tls_error(error, ST_UNREACHABLE, (int)got);
    *bytes_out = (size_t)got;
    return ST_OK;
}
