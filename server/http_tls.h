/* http_tls: the certificate with which HTTP is served over TLS, and a newer one while it is served.
 * One per process: libmicrohttpd's callback knows no owner. The loop thread calls it. */
#ifndef SERVER_HTTP_TLS_H
#define SERVER_HTTP_TLS_H

#include "common/status.h"

#include <gnutls/abstract.h>
#include <stdint.h>

struct http_certificate; /* a chain and its private key */

/* Reads two PEM files; the key's must be as secret as common/secret.h wants it. ST_INVALID also
 * when the key is not the certificate's. Errors name the file. */
enum status http_certificate_read(const char *chain_path, const char *key_path,
                                  struct http_certificate **out, struct error *error);
void http_certificate_free(struct http_certificate *certificate); /* NULL is fine */
/* When it ends to be valid, in seconds since 1970. */
int64_t http_certificate_expires(const struct http_certificate *certificate);

/* Connections that begin from now on get this one; takes it over. One that it replaces stays until
 * no hand-shake can be using it. NULL frees all: after the daemon has stopped. */
void http_tls_use(struct http_certificate *certificate, int64_t now_us);

/* For MHD_OPTION_HTTPS_CERT_CALLBACK. */
int http_tls_pick(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                  const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
                  gnutls_pcert_st **chain_out, unsigned *chain_count_out,
                  gnutls_privkey_t *key_out);

#endif
