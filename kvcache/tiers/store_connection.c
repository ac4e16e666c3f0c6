/* store_connection: see the header. The socket does not block. Each call tries, and waits with
 * poll() until the socket is ready or the deadline has passed. */
#include "kvcache/tiers/store_connection.h"

#include "common/clock.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct store_tls {
    gnutls_certificate_credentials_t credentials;
};

struct store_connection {
    int fd;
    gnutls_session_t session; /* NULL = no TLS. */
};

enum status store_tls_open(const char *ca_file, struct store_tls **out, struct error *error)
{
    struct store_tls *tls = calloc(1, sizeof(*tls));
    if (tls == NULL || gnutls_certificate_allocate_credentials(&tls->credentials) != 0) {
        free(tls);
        return error_set(error, ST_NO_MEMORY, "out of memory");
    }
    bool has_file = ca_file != NULL && ca_file[0] != 0;
    int count = has_file ? gnutls_certificate_set_x509_trust_file(tls->credentials, ca_file,
                                                                  GNUTLS_X509_FMT_PEM)
                         : gnutls_certificate_set_x509_system_trust(tls->credentials);
    if (count <= 0) {
        store_tls_close(tls);
        return error_set(error, ST_INVALID, "%s: %s", has_file ? ca_file : "the system's CAs",
                         count < 0 ? gnutls_strerror(count) : "want certificates in PEM");
    }
    *out = tls;
    return ST_OK;
}

void store_tls_close(struct store_tls *tls)
{
    if (tls == NULL)
        return;
    gnutls_certificate_free_credentials(tls->credentials);
    free(tls);
}

/* Returns false if the descriptor is not ready at the deadline. */
static bool wait_ready(int fd, short events, int64_t deadline_us)
{
    struct pollfd wait = {.fd = fd, .events = events};
    for (;;) {
        int64_t left_us = deadline_us - clock_now_us(&clock_system);
        int64_t left_ms = left_us <= 0 ? 0 : (left_us + 999) / 1000;
        int ready = poll(&wait, 1, left_ms < INT_MAX ? (int)left_ms : INT_MAX);
        if (ready > 0)
            return true;
        if (left_us <= 0 && (ready == 0 || errno != EINTR))
            return false;
    }
}

static enum status timed_out(struct error *error, const char *what)
{
    return error_set(error, ST_TIMED_OUT, "%s within the time limit", what);
}

static enum status unreachable(struct error *error, int error_number)
{
    return error_set(error, ST_UNREACHABLE, "%s", strerror(error_number));
}

static enum status closed(struct error *error)
{
    return error_set(error, ST_UNREACHABLE, "the server closed the connection");
}

static enum status address_find(const struct store_connection_options *options,
                                struct address_found *out, struct error *error)
{
    for (;;) {
        enum status status = resolver_find(options->resolver, options->address, false, out, error);
        if (status != ST_IN_PROGRESS)
            return status;
        if (wait_ready(resolver_fd(options->resolver), POLLIN, options->deadline_us))
            continue;
        if (resolver_find(options->resolver, options->address, true, out, error) == ST_OK)
            return ST_OK;
        return timed_out(error, "no address of the host was found");
    }
}

/* Returns a descriptor, or -1 with the reason. */
static int connect_one(const struct sockaddr *to, socklen_t bytes, int64_t deadline_us,
                       enum status *status_out, struct error *error)
{
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        *status_out = unreachable(error, errno);
        return -1;
    }
    int failed = connect(fd, to, bytes) == 0 ? 0 : errno;
    socklen_t size = sizeof(failed);
    if (failed == EINPROGRESS) {
        if (!wait_ready(fd, POLLOUT, deadline_us)) {
            *status_out = timed_out(error, "no connection");
            close(fd);
            return -1;
        }
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) != 0)
            failed = errno;
    }
    if (failed != 0) {
        *status_out = unreachable(error, failed);
        close(fd);
        return -1;
    }
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* Tries the addresses in their order. Each gets an equal share of the time that is left. */
static enum status connect_any(const struct address_found *found, int64_t deadline_us, int *fd_out,
                               struct error *error)
{
    enum status status = error_set(error, ST_UNREACHABLE, "the host has no address");
    for (uint32_t i = 0; i < found->count; i++) {
        int64_t now_us = clock_now_us(&clock_system);
        int64_t until_us = now_us + (deadline_us - now_us) / (found->count - i);
        int fd = connect_one((const struct sockaddr *)&found->list[i].address, found->list[i].bytes,
                             until_us, &status, error);
        if (fd >= 0) {
            *fd_out = fd;
            return ST_OK;
        }
    }
    return status;
}

/* Waits until GnuTLS can go on after it returned `code`. */
static enum status tls_wait(struct store_connection *c, int code, int64_t deadline_us,
                            struct error *error)
{
    if (code != GNUTLS_E_AGAIN && code != GNUTLS_E_INTERRUPTED) {
        if (code == GNUTLS_E_PREMATURE_TERMINATION)
            return closed(error);
        return error_set(error, ST_UNREACHABLE, "TLS: %s", gnutls_strerror(code));
    }
    short events = gnutls_record_get_direction(c->session) == 0 ? POLLIN : POLLOUT;
    if (code == GNUTLS_E_INTERRUPTED || wait_ready(c->fd, events, deadline_us))
        return ST_OK;
    return timed_out(error, "no answer");
}

static enum status certificate_refused(struct store_connection *c, struct error *error)
{
    gnutls_datum_t text = {0};
    unsigned why = gnutls_session_get_verify_cert_status(c->session);
    if (gnutls_certificate_verification_status_print(why, GNUTLS_CRT_X509, &text, 0) != 0)
        return error_set(error, ST_MISMATCH, "TLS: the server's certificate is not trusted");
    error_set(error, ST_MISMATCH, "TLS: %.300s", (const char *)text.data);
    gnutls_free(text.data);
    return ST_MISMATCH;
}

static enum status tls_begin(struct store_connection *c,
                             const struct store_connection_options *options, struct error *error)
{
    const char *host = options->address->host;
    struct address_found numeric;
    if (gnutls_init(&c->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) != 0 ||
        gnutls_set_default_priority(c->session) != 0 ||
        gnutls_credentials_set(c->session, GNUTLS_CRD_CERTIFICATE, options->tls->credentials) != 0)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    if (!address_numeric(options->address, false, &numeric))
        (void)gnutls_server_name_set(c->session, GNUTLS_NAME_DNS, host, strlen(host));
    gnutls_session_set_verify_cert(c->session, host, 0);
    gnutls_transport_set_int(c->session, c->fd);
    for (;;) {
        int code = gnutls_handshake(c->session);
        if (code == 0)
            return ST_OK;
        if (code == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
            return certificate_refused(c, error);
        bool waits = code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED;
        if (!waits && !gnutls_error_is_fatal(code))
            continue; /* A warning of the server. */
        enum status status = tls_wait(c, code, options->deadline_us, error);
        if (status != ST_OK)
            return waits ? status : ST_MISMATCH;
    }
}

enum status store_connection_open(const struct store_connection_options *options,
                                  struct store_connection **out, struct error *error)
{
    struct address_found found = {0};
    enum status status = address_find(options, &found, error);
    if (status != ST_OK)
        return status;
    struct store_connection *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    c->fd = -1;
    status = connect_any(&found, options->deadline_us, &c->fd, error);
    if (status == ST_OK && options->tls != NULL)
        status = tls_begin(c, options, error);
    if (status != ST_OK) {
        store_connection_close(c);
        return status;
    }
    *out = c;
    return ST_OK;
}

void store_connection_close(struct store_connection *c)
{
    if (c == NULL)
        return;
    if (c->session != NULL)
        gnutls_deinit(c->session);
    if (c->fd >= 0)
        close(c->fd);
    free(c);
}

/* Returns the bytes that were sent (> 0), or 0 = nothing could be sent now, with *status_out. */
static size_t send_some(struct store_connection *c, const void *data, size_t bytes,
                        int64_t deadline_us, enum status *status_out, struct error *error)
{
    if (c->session != NULL) {
        ssize_t sent = gnutls_record_send(c->session, data, bytes);
        if (sent > 0)
            return (size_t)sent;
        *status_out = tls_wait(c, (int)sent, deadline_us, error);
        return 0;
    }
    ssize_t sent = send(c->fd, data, bytes, MSG_NOSIGNAL);
    if (sent > 0)
        return (size_t)sent;
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        *status_out = unreachable(error, errno);
    else if (!wait_ready(c->fd, POLLOUT, deadline_us))
        *status_out = timed_out(error, "the server took no data");
    return 0;
}

enum status store_connection_send(struct store_connection *c, const void *data, size_t bytes,
                                  int64_t deadline_us, struct error *error)
{
    enum status status = ST_OK;
    const char *at = data;
    while (bytes > 0 && status == ST_OK) {
        size_t sent = send_some(c, at, bytes, deadline_us, &status, error);
        at += sent;
        bytes -= sent;
        if (bytes > 0 && status == ST_OK && clock_now_us(&clock_system) >= deadline_us)
            return timed_out(error, "the server took too few data"); /* It takes them slowly. */
    }
    return status;
}

enum status store_connection_receive(struct store_connection *c, void *data, size_t capacity,
                                     int64_t deadline_us, size_t *bytes_out, struct error *error)
{
    enum status status = ST_OK;
    while (status == ST_OK) {
        ssize_t got = c->session != NULL ? gnutls_record_recv(c->session, data, capacity)
                                         : recv(c->fd, data, capacity, 0);
        int error_number = errno;
        if (got > 0) {
            *bytes_out = (size_t)got;
            return ST_OK;
        }
        if (got == 0)
            return closed(error);
        if (c->session != NULL)
            status = tls_wait(c, (int)got, deadline_us, error);
        else if (error_number != EAGAIN && error_number != EINTR)
            status = unreachable(error, error_number);
        else if (!wait_ready(c->fd, POLLIN, deadline_us))
            status = timed_out(error, "no answer");
    }
    return status;
}

bool store_connection_has_input(const struct store_connection *c)
{
    return wait_ready(c->fd, POLLIN, 0);
}
