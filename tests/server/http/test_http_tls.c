/* Goal: TLS accepts no cipher with CBC and no key exchange by RSA encryption, and serves clients of
 * TLS 1.2 and 1.3. Many handshakes at once, or handshakes that stop, do not occupy the event loop.
 * Method: handshakes of a GnuTLS client that offers one kind only, against a certificate that the
 * test makes; iterations of the event loop that the test runs itself. */
#include "server/http/tls.h"
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>
#include <sys/socket.h>
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

static char hello[4096]; /* A ClientHello. */
static size_t hello_bytes;

static ssize_t hello_push(gnutls_transport_ptr_t self, const void *data, size_t bytes)
{
    (void)self;
    CHECK(bytes <= sizeof(hello) - hello_bytes);
    memcpy(hello + hello_bytes, data, bytes);
    hello_bytes += bytes;
    return (ssize_t)bytes;
}

static ssize_t nothing_pull(gnutls_transport_ptr_t self, void *data, size_t bytes)
{
    (void)self;
    (void)data;
    (void)bytes;
    errno = EAGAIN;
    return -1;
}

static void hello_make(void)
{
    gnutls_certificate_credentials_t credentials;
    gnutls_session_t session;
    CHECK(gnutls_certificate_allocate_credentials(&credentials) == 0);
    CHECK(gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_NONBLOCK) == 0);
    CHECK(gnutls_set_default_priority(session) == 0);
    CHECK(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials) == 0);
    gnutls_transport_set_push_function(session, hello_push);
    gnutls_transport_set_pull_function(session, nothing_pull);
    CHECK(gnutls_handshake(session) == GNUTLS_E_AGAIN && hello_bytes > 100);
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(credentials);
}

static bool answered(int fd, int flags)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | flags) == 1;
}

/* In one iteration of the event loop, handshakes go on only until their time is used up. */
static void check_handshakes_wait(void)
{
    enum { CLIENTS = 8 };
    int fds[CLIENTS], early = 0;
    server_pause();
    clock_step(HTTP_CLIENT_HANDSHAKES_US / 8);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = dial();
        send_bytes(fds[i], hello, hello_bytes);
    }
    for (int turn = 0; turn < 100 && early == 0; turn++) {
        http_turn(http);
        for (int i = 0; i < CLIENTS; i++)
            early += answered(fds[i], MSG_DONTWAIT);
    }
    CHECKF(early > 0 && early < CLIENTS, "%d", early);
    clock_step(0);
    server_resume();
    for (int i = 0; i < CLIENTS; i++) {
        CHECK(answered(fds[i], 0));
        close(fds[i]);
    }
}

/* A request is served, wherever its connection had to wait. */
static void check_waiting_requests_are_served(void)
{
    for (int part = 1; part <= 10; part++) {
        clock_step(HTTP_CLIENT_HANDSHAKES_US / part);
        CHECK(served("NORMAL"));
    }
    clock_step(0);
}

/* Returns a client that has sent half of its ClientHello, which the server has read. */
static int half_send(void)
{
    int fd = dial();
    send_bytes(fd, hello, hello_bytes / 2);
    server_pause();
    for (int turn = 0; turn < 10; turn++)
        http_turn(http);
    CHECK(http_turn(http) != 0); /* The event loop may sleep. */
    server_resume();
    return fd;
}

static void check_stopped_handshakes(void)
{
    int fd = half_send();
    send_bytes(fd, hello + hello_bytes / 2, hello_bytes - hello_bytes / 2);
    CHECK(answered(fd, 0));
    close(fd);
    fd = half_send();
    clock_advance(config.http.headers_ms * 1000ll);
    wait_closed(fd);
    close(half_send());
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
    hello_make();
    check_handshakes_wait();
    check_waiting_requests_are_served();
    check_stopped_handshakes();
    CHECK(served("NORMAL"));
    int open = half_send();
    server_stop();
    close(open);
    http_tls_use(NULL, 0);
    return 0;
}
