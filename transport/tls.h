/* tls: encrypts and decrypts the bytes of one connection between processes of a cluster: TLS 1.3 by
 * GnuTLS. This part owns the TLS sessions and the keys that are derived from the cluster keys. It
 * owns no socket and never waits: the caller (stream.c) sends and receives the encrypted bytes. The
 * one thread that owns the transport makes every call.
 *
 * In the TLS hand-shake, both sides prove that they have the same cluster key, from which a
 * pre-shared key is derived. The connecting side uses its first cluster key and sends the id of
 * this key; the accepting side uses its own key with this id. Each session makes a fresh
 * Diffie-Hellman exchange, so recorded traffic stays secret even if the cluster key leaks later. */
#ifndef TRANSPORT_TLS_H
#define TRANSPORT_TLS_H

#include "common/secret_keys.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLS_CHANNEL_BINDING_BYTES 32
#define TLS_RECORD_BYTES          ((size_t)16 << 10) /* Most unencrypted bytes of one record. */

struct tls_keys; /* Keys that are derived from the cluster keys, for any number of sessions. */
struct tls;      /* The session of one connection. */

/* Derives a key from each cluster key. Requires at least one cluster key; `cluster_keys` may be
 * freed after the call. The caller calls tls_keys_close. Returns ST_NO_MEMORY, or ST_UNSUPPORTED if
 * GnuTLS fails. */
enum status tls_keys_open(const struct secret_keys *cluster_keys, struct tls_keys **out,
                          struct error *error);
/* Frees the keys as soon as no session uses them in its hand-shake. NULL is accepted. */
void tls_keys_close(struct tls_keys *keys);

/* Queues encrypted bytes for the other side; copies `data`. Returns false if memory is short. */
typedef bool (*tls_send_call)(void *self, const void *data, size_t bytes);
/* Moves at most `capacity` received encrypted bytes to `data`. Returns their number; 0 = none. */
typedef size_t (*tls_take_call)(void *self, void *data, size_t capacity);

struct tls_options {
    struct tls_keys *keys; /* The caller may call tls_keys_close after tls_open. */
    bool accepting;        /* True: the accepting side; false: the connecting side. */
    tls_send_call send;
    tls_take_call take;
    void *self; /* First argument of `send` and `take`. */
    /* The session changes its encryption key when it has encrypted more than rekey_bytes bytes (0 =
     * 64 GiB) or more than rekey_records records (0 = 2^23) with the key. If there are more than
     * eight changes within a second, the session of the other side fails. */
    uint64_t rekey_bytes, rekey_records;
};

/* Opens a session and copies *options. Sends nothing. Any failure is ST_NO_MEMORY. */
enum status tls_open(const struct tls_options *options, struct tls **out);
void tls_close(struct tls *tls); /* Frees the session. Sends nothing. NULL is accepted. */

/* Continues the hand-shake. ST_OK: the hand-shake is done. ST_IN_PROGRESS: the hand-shake waits for
 * bytes of the other side; call the function again when tls_options.take has bytes. ST_MISMATCH:
 * the other side does not have the key, or has refused the hand-shake. ST_INVALID: the hand-shake
 * failed for another reason. After a failure, an alert for the other side may have been passed to
 * tls_options.send. */
enum status tls_handshake(struct tls *tls, struct error *error);
/* Stores a value that only the two ends of this connection know: equal at both ends, and different
 * for each connection. Requires that the hand-shake is done. */
void tls_channel_binding(struct tls *tls, uint8_t out[TLS_CHANNEL_BINDING_BYTES]);

/* Returns the id (SECRET_KEY_ID_BYTES bytes) of the cluster key that both sides have proved; valid
 * until tls_close. Requires that the hand-shake is done. */
const uint8_t *tls_key_id(const struct tls *tls);

/* Encrypts `data` and passes the encrypted bytes to tls_options.send. Requires that the hand-shake
 * is done. Returns ST_UNREACHABLE if GnuTLS cannot encrypt or `send` returned false. */
enum status tls_write(struct tls *tls, const void *data, size_t bytes, struct error *error);
/* Takes encrypted bytes from tls_options.take, and stores at most `capacity` decrypted bytes in
 * `data`. Requires that the hand-shake is done. ST_OK: *bytes_out is the number of bytes in `data`,
 * at least 1. ST_IN_PROGRESS: no byte can be decrypted now. ST_UNREACHABLE: the other side has
 * ended the session, or GnuTLS cannot decrypt the bytes, e.g. because they were changed.
 * Only ST_OK sets *bytes_out. */
enum status tls_read(struct tls *tls, void *data, size_t capacity, size_t *bytes_out,
                     struct error *error);

#endif
