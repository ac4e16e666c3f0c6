/* http_tls: see the header. */
#include "server/http/tls.h"

#include "common/secret.h"

#include <errno.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (256u << 10)
#define CHAIN_MAX      8
/* A replaced certificate is kept for this time: after it, each handshake that uses the certificate
 * has ended, or its connection has timed out (http/headers_ms, at most one hour). */
#define RETIRED_US 7200000000ll

struct http_certificate {
    struct http_certificate *older;
    int64_t retired_us;
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned chain_count;
    gnutls_privkey_t key;
    int64_t expires;
};

static struct http_certificate *newest;

/* Reads a certificate's file, which need not be secret. */
static enum status public_file_read(const char *path, char **text_out, size_t *bytes_out,
                                    struct error *error)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return error_set(error, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path,
                         strerror(errno));
    enum status status = ST_OK;
    char *text = malloc(FILE_BYTES_MAX + 1);
    size_t bytes = text != NULL ? fread(text, 1, FILE_BYTES_MAX + 1, file) : 0;
    if (text == NULL)
        status = error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
    else if (ferror(file))
        status = error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    else if (bytes > FILE_BYTES_MAX)
        status = error_set(error, ST_TOO_LARGE, "%s: want at most %u bytes", path, FILE_BYTES_MAX);
    fclose(file);
    if (status != ST_OK) {
        free(text);
        return status;
    }
    *text_out = text;
    *bytes_out = bytes;
    return ST_OK;
}

static enum status chain_read(struct http_certificate *c, const char *path, struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    enum status status = public_file_read(path, &text, &bytes, error);
    if (status != ST_OK)
        return status;
    gnutls_datum_t pem = {(unsigned char *)text, (unsigned)bytes};
    unsigned count = CHAIN_MAX;
    int failed = gnutls_pcert_list_import_x509_raw(c->chain, &count, &pem, GNUTLS_X509_FMT_PEM, 0);
    free(text);
    if (failed < 0)
        return error_set(error, ST_INVALID, "%s: no certificate in PEM: %s", path,
                         gnutls_strerror(failed));
    c->chain_count = count;
    gnutls_x509_crt_t first;
    if (gnutls_pcert_export_x509(&c->chain[0], &first) < 0)
        return error_set(error, ST_INVALID, "%s: its first certificate cannot be read", path);
    c->expires = (int64_t)gnutls_x509_crt_get_expiration_time(first);
    gnutls_x509_crt_deinit(first);
    return ST_OK;
}

static enum status key_read(struct http_certificate *c, const char *path, struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    enum status status = secret_file_read(path, FILE_BYTES_MAX, &text, &bytes, error);
    if (status != ST_OK)
        return status;
    gnutls_datum_t pem = {(unsigned char *)text, (unsigned)bytes};
    int failed = gnutls_privkey_init(&c->key);
    if (failed >= 0)
        failed = gnutls_privkey_import_x509_raw(c->key, &pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    secret_wipe(text, bytes);
    free(text);
    if (failed < 0)
        return error_set(error, ST_INVALID, "%s: no private key in PEM (without a password): %s",
                         path, gnutls_strerror(failed));
    return ST_OK;
}

/* Returns true if the key belongs to the certificate: compares the public keys. */
static bool key_fits(const struct http_certificate *c)
{
    unsigned char ids[2][64];
    size_t bytes[2] = {sizeof(ids[0]), sizeof(ids[1])};
    gnutls_pubkey_t half;
    if (gnutls_pubkey_init(&half) < 0)
        return false;
    bool good = gnutls_pubkey_import_privkey(half, c->key, 0, 0) >= 0 &&
                gnutls_pubkey_get_key_id(half, 0, ids[0], &bytes[0]) >= 0 &&
                gnutls_pubkey_get_key_id(c->chain[0].pubkey, 0, ids[1], &bytes[1]) >= 0;
    gnutls_pubkey_deinit(half);
    return good && bytes[0] == bytes[1] && memcmp(ids[0], ids[1], bytes[0]) == 0;
}

enum status http_certificate_read(const char *chain_path, const char *key_path,
                                  struct http_certificate **out, struct error *error)
{
    struct http_certificate *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", chain_path);
    enum status status = chain_read(c, chain_path, error);
    if (status == ST_OK)
        status = key_read(c, key_path, error);
    if (status == ST_OK && !key_fits(c))
        status = error_set(error, ST_INVALID, "%s: it is not the key of the certificate in %s",
                           key_path, chain_path);
    if (status != ST_OK) {
        http_certificate_free(c);
        return status;
    }
    *out = c;
    return ST_OK;
}

void http_certificate_free(struct http_certificate *c)
{
    if (c == NULL)
        return;
    for (unsigned i = 0; i < c->chain_count; i++)
        gnutls_pcert_deinit(&c->chain[i]);
    if (c->key != NULL)
        gnutls_privkey_deinit(c->key);
    free(c);
}

int64_t http_certificate_expires(const struct http_certificate *c)
{
    return c->expires;
}

void http_tls_use(struct http_certificate *certificate, int64_t now_us)
{
    if (newest != NULL)
        newest->retired_us = now_us;
    struct http_certificate **at = &newest;
    while (*at != NULL) {
        struct http_certificate *c = *at;
        if (certificate != NULL && now_us - c->retired_us < RETIRED_US) {
            at = &c->older;
            continue;
        }
        *at = c->older;
        http_certificate_free(c);
    }
    if (certificate == NULL)
        return;
    certificate->older = newest;
    newest = certificate;
}

int http_tls_pick(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                  const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
                  gnutls_pcert_st **chain_out, unsigned *chain_count_out, gnutls_privkey_t *key_out)
{
    (void)session;
    (void)authorities;
    (void)authority_count;
    (void)algorithms;
    (void)algorithm_count;
    if (newest == NULL)
        return -1;
    *chain_out = newest->chain;
    *chain_count_out = newest->chain_count;
    *key_out = newest->key;
    return 0;
}
