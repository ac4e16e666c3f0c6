/* http_tls: owns the process's certificate for HTTP over TLS, which can be replaced while the
 * gateway serves. server/serve*.c read and replace the certificate, and libmicrohttpd calls
 * http_tls_pick, on the gateway's event loop thread. `cleave check`, which has no gateway, reads a
 * certificate on its main thread. The part does not check certificates of clients. */
#ifndef SERVER_HTTP_TLS_H
#define SERVER_HTTP_TLS_H

#include "common/status.h"

#include <gnutls/abstract.h>
#include <stdint.h>

/* GnuTLS priority string: TLS 1.3 and 1.2 with forward secrecy and authenticated encryption. */
#define HTTP_TLS_PRIORITIES                                                                        \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"                                                   \
    ":-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA"                                                             \
    ":-CIPHER-ALL:+AES-256-GCM:+CHACHA20-POLY1305:+AES-128-GCM:-MAC-ALL:+AEAD"

struct http_certificate; /* A certificate chain and its private key. */

/* Reads two PEM files of at most 256 KiB: a chain of at most 8 certificates, and the private key of
 * the first certificate. The key is read with secret_file_read (common/secret.h). On failure
 * returns a negative status; *error names the file. */
enum status http_certificate_read(const char *chain_path, const char *key_path,
                                  struct http_certificate **out, struct error *error);
void http_certificate_free(struct http_certificate *certificate); /* NULL is fine. */
/* Returns the time at which the chain's first certificate expires, in seconds since 1970. */
int64_t http_certificate_expires(const struct http_certificate *certificate);

/* Uses this certificate for new connections, and takes over its memory. Frees the certificates that
 * were replaced at least two hours ago: no TLS handshake still uses them. NULL = frees all
 * certificates; requires that http_close was called. */
void http_tls_use(struct http_certificate *certificate, int64_t now_us);

/* The callback for MHD_OPTION_HTTPS_CERT_CALLBACK of libmicrohttpd: stores the certificate for new
 * connections and returns 0, or returns -1 if there is none. */
int http_tls_pick(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                  const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
                  gnutls_pcert_st **chain_out, unsigned *chain_count_out,
                  gnutls_privkey_t *key_out);

#endif
