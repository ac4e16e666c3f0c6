/* http_tls: owns the certificate for HTTP over TLS, which can be replaced while the gateway serves.
 * A process has one certificate for new connections. server/serve*.c read and replace the
 * certificate; libmicrohttpd calls http_tls_pick for each new connection. All calls are made on the
 * gateway's event loop thread. The part does not check certificates of clients. */
#ifndef SERVER_HTTP_TLS_H
#define SERVER_HTTP_TLS_H

#include "common/status.h"

#include <gnutls/abstract.h>
#include <stdint.h>

/* GnuTLS priority string: TLS 1.3 and 1.2 with forward secrecy and authenticated encryption. There
 * is no CBC, and no key exchange by RSA encryption. */
#define HTTP_TLS_PRIORITIES                                                                        \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"                                                   \
    ":-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA"                                                             \
    ":-CIPHER-ALL:+AES-256-GCM:+CHACHA20-POLY1305:+AES-128-GCM:-MAC-ALL:+AEAD"

struct http_certificate; /* A certificate chain and its private key. */

/* Reads two PEM files of at most 256 KiB. Returns ST_INVALID if a file does not contain a
 * certificate chain or a key in PEM, or if the key does not belong to the chain's first
 * certificate; ST_NOT_FOUND, ST_IO or ST_TOO_LARGE for a file that cannot be read; ST_NO_MEMORY; or
 * an error of secret_file_read (common/secret.h), which reads the key. *error names the file. */
enum status http_certificate_read(const char *chain_path, const char *key_path,
                                  struct http_certificate **out, struct error *error);
void http_certificate_free(struct http_certificate *certificate); /* NULL is fine. */
/* Returns the time at which the chain's first certificate expires, in seconds since 1970. */
int64_t http_certificate_expires(const struct http_certificate *certificate);

/* Uses this certificate for new connections, and takes its memory over. Frees certificates that
 * were replaced 300 s ago or earlier; TLS hand-shakes may still use later ones. NULL = frees all
 * certificates; requires that http_close was called. */
void http_tls_use(struct http_certificate *certificate, int64_t now_us);

/* The callback for MHD_OPTION_HTTPS_CERT_CALLBACK of libmicrohttpd: stores the certificate for new
 * connections and returns 0, or returns -1 if there is none. */
int http_tls_pick(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                  const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
                  gnutls_pcert_st **chain_out, unsigned *chain_count_out,
                  gnutls_privkey_t *key_out);

#endif
