/* Goal: TLS accepts no cipher with CBC and no key exchange by RSA encryption, and serves clients of
 * TLS 1.2 and 1.3. Method: handshakes of a GnuTLS client that offers one kind only, against a
 * certificate that the test makes. */
#include "server/http/tls.h"
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void file_write(const char *path, const gnutls_datum_t *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fwrite(text->data, 1, text->size, file) == text->size);
    CHECK(fclose(file) == 0 && chmod(path, 0600) == 0);
}

/* A certificate for RSA, which serves both the ciphers that are wanted and those that are not. */
static struct http_certificate *certificate_make(void)
{
    char folder[] = "/tmp/cleave-tls-XXXXXX", chain[64], key[64];
    gnutls_x509_privkey_t private;
    gnutls_x509_crt_t own;
    gnutls_datum_t text;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(chain, sizeof(chain), "%s/chain.pem", folder);
    snprintf(key, sizeof(key), "%s/key.pem", folder);
    CHECK(gnutls_x509_privkey_init(&private) == 0 && gnutls_x509_crt_init(&own) == 0);
    CHECK(gnutls_x509_privkey_generate(private, GNUTLS_PK_RSA, 2048, 0) == 0);
    CHECK(gnutls_x509_crt_set_key(own, private) == 0 && gnutls_x509_crt_set_version(own, 3) == 0);
    CHECK(gnutls_x509_crt_set_serial(own, "\1", 1) == 0);
    CHECK(gnutls_x509_crt_set_activation_time(own, time(NULL) - 3600) == 0);
    CHECK(gnutls_x509_crt_set_expiration_time(own, time(NULL) + 3600) == 0);
    CHECK(gnutls_x509_crt_set_key_usage(own, GNUTLS_KEY_DIGITAL_SIGNATURE |
                                                 GNUTLS_KEY_KEY_ENCIPHERMENT) == 0);
    CHECK(gnutls_x509_crt_sign2(own, own, private, GNUTLS_DIG_SHA256, 0) == 0);
    CHECK(gnutls_x509_crt_export2(own, GNUTLS_X509_FMT_PEM, &text) == 0);
    file_write(chain, &text);
    gnutls_free(text.data);
    CHECK(gnutls_x509_privkey_export2(private, GNUTLS_X509_FMT_PEM, &text) == 0);
    file_write(key, &text);
    gnutls_free(text.data);
    gnutls_x509_crt_deinit(own);
    gnutls_x509_privkey_deinit(private);
    struct http_certificate *certificate = NULL;
    struct error error;
    CHECKF(http_certificate_read(chain, key, &certificate, &error) == ST_OK, "%s", error.text);
    CHECK(unlink(chain) == 0 && unlink(key) == 0 && rmdir(folder) == 0);
    return certificate;
}

/* True if the server answers a client that offers only this. */
static bool served(const char *priorities)
{
    static const char request[] = "GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n";
    gnutls_certificate_credentials_t credentials;
    gnutls_session_t session;
    char answer[512];
    int fd = dial();
    CHECK(gnutls_certificate_allocate_credentials(&credentials) == 0);
    CHECK(gnutls_init(&session, GNUTLS_CLIENT) == 0);
    CHECKF(gnutls_priority_set_direct(session, priorities, NULL) == 0, "%s", priorities);
    CHECK(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials) == 0);
    gnutls_transport_set_int(session, fd);
    int result;
    do {
        result = gnutls_handshake(session);
    } while (result < 0 && !gnutls_error_is_fatal(result));
    bool good = result == 0;
    if (good) {
        CHECK(gnutls_record_send(session, request, sizeof(request) - 1) > 0);
        ssize_t got = gnutls_record_recv(session, answer, sizeof(answer) - 1);
        CHECKF(got > 0, "%s", gnutls_strerror((int)got));
        answer[got] = 0;
        CHECKF(strncmp(answer, "HTTP/1.1 200", 12) == 0, "%s", answer);
    }
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(credentials);
    close(fd);
    return good;
}

int main(void)
{
    server_config_default();
    http_tls_use(certificate_make(), 0);
    server_start((struct http_options){.tls = true});
    CHECK(served("NORMAL"));
    CHECK(served("NORMAL:-VERS-ALL:+VERS-TLS1.3"));
    CHECK(served("NORMAL:-VERS-ALL:+VERS-TLS1.2"));
    CHECK(served("NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ECDHE-RSA:-CIPHER-ALL:+AES-128-GCM"));
    CHECK(!served("NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+RSA"));
    CHECK(!served("NORMAL:-VERS-ALL:+VERS-TLS1.2:-CIPHER-ALL:+AES-128-CBC:+AES-256-CBC"));
    CHECK(!served("NORMAL:-VERS-ALL:+VERS-TLS1.1"));
    server_stop();
    http_tls_use(NULL, 0);
    return 0;
}
