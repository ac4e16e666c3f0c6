/* tls: TLS 1.3 for connections between the processes of a cluster, over GnuTLS. Both sides prove
 * a cluster key (a pre-shared key is derived from it) in the TLS hand-shake, with a fresh
 * Diffie-Hellman exchange, so recorded traffic stays secret even if the key leaks later. There are
 * no certificates, no tickets and no early data. The connecting side uses its first key and sends
 * the key's id; the accepting side takes the key of that id. Long before the limits of AES-GCM,
 * each side changes the key that it encrypts with.
 *
 * A session only turns bytes into other bytes: it owns no socket and never waits. The caller
 * (stream.c) carries the encrypted bytes. Only files of this folder include it. The transport's one
 * thread calls it. */
#ifndef TRANSPORT_TLS_H
#define TRANSPORT_TLS_H

#include "common/secret_keys.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLS_CHANNEL_BYTES 32
#define TLS_RECORD_BYTES  ((size_t)16 << 10) /* Most bytes of one record. */

struct tls_keys; /* Cluster keys, for all sessions that begin while they are in use. */
struct tls;

/* Requires at least one key. */
enum status tls_keys_open(const struct secret_keys *from, struct tls_keys **out,
                          struct error *error);
/* Gives up the caller's use. Sessions whose hand-shake is not done keep the keys. NULL is fine. */
void tls_keys_close(struct tls_keys *keys);

/* Encrypted bytes to send; the callee copies them. Returns false if there is no memory. */
typedef bool (*tls_send_call)(void *self, const void *data, size_t bytes);
/* Takes up to `capacity` received encrypted bytes. Returns 0 if there are none now. */
typedef size_t (*tls_take_call)(void *self, void *data, size_t capacity);

struct tls_options {
    struct tls_keys *keys; /* The session keeps them while it needs them. */
    bool accepting;        /* False: the connecting side. */
    tls_send_call send;
    tls_take_call take;
    void *self; /* First argument of both calls. */
    /* The session changes the key that it encrypts with after more than this number of bytes or
     * records; 0 = 64 GiB, 2^23. GnuTLS refuses a ninth change by the other side in a second. */
    uint64_t rekey_bytes, rekey_records;
};

enum status tls_open(const struct tls_options *options, struct tls **out);
void tls_close(struct tls *tls); /* NULL is fine. Sends nothing. */

/* Continues the hand-shake. Returns ST_OK when it is done, ST_IN_PROGRESS if it waits for the other
 * side, ST_MISMATCH if the other side does not have the key, another error if it speaks no TLS
 * 1.3. */
enum status tls_handshake(struct tls *tls, struct error *error);
/* A value that only the two ends of this connection know, different for each connection. Requires
 * that the hand-shake is done. */
void tls_channel(struct tls *tls, uint8_t out[TLS_CHANNEL_BYTES]);

/* The id of the cluster key that both sides have proved. Requires that the hand-shake is done. */
const uint8_t *tls_key_id(const struct tls *tls);

/* Encrypts and sends all bytes. */
enum status tls_write(struct tls *tls, const void *data, size_t bytes, struct error *error);
/* Decrypts up to `capacity` bytes. Returns ST_IN_PROGRESS if there are none now, ST_UNREACHABLE if
 * the other side has ended the session or bytes were forged. */
enum status tls_read(struct tls *tls, void *data, size_t capacity, size_t *bytes_out,
                     struct error *error);

#endif
