/* http_tls: owns the certificates for HTTP over TLS, which can be replaced while the gateway
 * serves. A process uses one certificate at a time, because libmicrohttpd's callback has no context
 * argument. server/serve*.c read and replace the certificate; libmicrohttpd calls http_tls_pick for
 * each new connection. All calls are made on the main thread, which is the gateway's event loop
 * thread. The part does not check certificates of clients. */
#ifndef SERVER_HTTP_TLS_H
#define SERVER_HTTP_TLS_H

#include "common/status.h"

#include <gnutls/abstract.h>
#include <stdint.h>

/* TLS 1.3 and 1.2 with forward secrecy and ciphers that authenticate what they encrypt: no CBC, and
 * no key exchange by RSA encryption. */
#define HTTP_TLS_PRIORITIES                                                                        \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"                                                   \
    ":-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA"                                                             \
    ":-CIPHER-ALL:+AES-256-GCM:+CHACHA20-POLY1305:+AES-128-GCM:-MAC-ALL:+AEAD"

struct http_certificate; /* A certificate chain and its private key. */

/* Reads two PEM files of at most 256 KiB; errors name the file. The key file is read with
 * secret_file_read (common/secret.h), whose errors are returned. Returns ST_INVALID if a file does
 * not contain a certificate chain or a key in PEM, or if the key does not belong to the
 * certificate; ST_NO_MEMORY; or an error of reading a file. */
enum status http_certificate_read(const char *chain_path, const char *key_path,
                                  struct http_certificate **out, struct error *error);
void http_certificate_free(struct http_certificate *certificate); /* NULL is fine */
/* Returns the time at which the certificate expires, in seconds since 1970. */
int64_t http_certificate_expires(const struct http_certificate *certificate);

/* Uses this certificate for new connections, and takes it over. The previous certificate is kept
 * for 300 s, because TLS hand-shakes may still use it; a later call frees it. certificate NULL =
 * frees all certificates; requires that the daemon has stopped. */
void http_tls_use(struct http_certificate *certificate, int64_t now_us);

/* The callback for MHD_OPTION_HTTPS_CERT_CALLBACK: stores the certificate in use and returns 0, or
 * returns -1 if there is none. */
int http_tls_pick(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                  const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
                  gnutls_pcert_st **chain_out, unsigned *chain_count_out,
                  gnutls_privkey_t *key_out);

#endif
