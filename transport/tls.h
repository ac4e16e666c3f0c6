/* tls: TLS 1.3 for connections between the processes of a cluster, over GnuTLS. In the TLS
 * hand-shake both sides prove that they have a cluster key, from which a pre-shared key is derived.
 * Each session makes a fresh Diffie-Hellman exchange, so recorded traffic stays secret even if the
 * cluster key leaks later. Certificates, tickets and early data are not used. The connecting side
 * uses its first cluster key and sends the key's id; the accepting side uses its key with this id.
 * Each side changes the key that it encrypts with, long before the limits of AES-GCM are reached.
 *
 * A session only encrypts and decrypts: it owns no socket and never waits. The caller (stream.c)
 * sends and receives the encrypted bytes. Only files of this folder and tests include it. The
 * thread that owns the transport makes every call. */
#ifndef TRANSPORT_TLS_H
#define TRANSPORT_TLS_H

#include "common/secret_keys.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLS_CHANNEL_BINDING_BYTES 32
#define TLS_RECORD_BYTES          ((size_t)16 << 10) /* Most bytes of one record. */

struct tls_keys; /* Cluster keys in the form that sessions use. Counts its users. */
struct tls;

/* Copies the keys; requires at least one. Returns ST_NO_MEMORY, or ST_UNSUPPORTED if GnuTLS refuses
 * the keys or the parameters. */
enum status tls_keys_open(const struct secret_keys *cluster_keys, struct tls_keys **out,
                          struct error *error);
/* Ends the caller's use of the keys. Sessions keep the keys until their hand-shake is done. NULL is
 * fine. */
void tls_keys_close(struct tls_keys *keys);

/* Sends encrypted bytes; copies `data`. Returns false if there is no memory. */
typedef bool (*tls_send_call)(void *self, const void *data, size_t bytes);
/* Moves up to `capacity` received encrypted bytes to `data` and returns their number; 0 = none
 * now. */
typedef size_t (*tls_take_call)(void *self, void *data, size_t capacity);

struct tls_options {
    struct tls_keys *keys; /* The session adds itself to the users of the keys. */
    bool accepting;        /* False: the connecting side. */
    tls_send_call send;
    tls_take_call take;
    void *self; /* First argument of `send` and `take`. */
    /* The session changes the key that it encrypts with after more than rekey_bytes bytes (0 = 64
     * GiB) or rekey_records records (0 = 2^23). GnuTLS refuses more than eight changes by the other
     * side within a second. */
    uint64_t rekey_bytes, rekey_records;
};

/* Opens a session; sends nothing yet. Returns ST_NO_MEMORY. */
enum status tls_open(const struct tls_options *options, struct tls **out);
void tls_close(struct tls *tls); /* NULL is fine. Sends nothing. */

/* Continues the hand-shake. ST_OK: it is done. ST_IN_PROGRESS: it waits for the other side.
 * ST_MISMATCH: the other side does not have the key or refused the session. ST_INVALID: it failed
 * for another reason. */
enum status tls_handshake(struct tls *tls, struct error *error);
/* Stores a value that only the two ends of this connection know and that is different for each
 * connection. Requires that the hand-shake is done. */
void tls_channel_binding(struct tls *tls, uint8_t out[TLS_CHANNEL_BINDING_BYTES]);

/* Returns the id of the cluster key that both sides have proved. Requires that the hand-shake is
 * done. */
const uint8_t *tls_key_id(const struct tls *tls);

/* Encrypts all bytes and passes them to tls_options.send. Returns ST_UNREACHABLE if GnuTLS cannot
 * encrypt or `send` returned false. */
enum status tls_write(struct tls *tls, const void *data, size_t bytes, struct error *error);
/* Decrypts received bytes (tls_options.take) and stores at most `capacity` bytes. Returns
 * ST_IN_PROGRESS if no bytes can be decrypted now, ST_UNREACHABLE if the other side has ended the
 * session or bytes were forged. */
enum status tls_read(struct tls *tls, void *data, size_t capacity, size_t *bytes_out,
                     struct error *error);

#endif
