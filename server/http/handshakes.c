/* http_handshakes: TLS handshakes run on the event loop thread, and one costs up to 10 ms (RSA with
 * 4096 bits). So that many of them at once do not stop the event loop, GnuTLS reads from connections
 * in the state ARRIVING through handshake_pull. It suspends a connection in two cases:
 *
 * - This iteration's time for handshakes is used up. The next iteration resumes the connection.
 * - The socket is empty. When bytes arrive, the connection is resumed. libmicrohttpd 0.9.75 and 1.0
 *   would call gnutls_handshake again and again, and the event loop would never sleep. */
#include "server/http/internal.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum status http_handshakes_open(struct http *h)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    h->handshakes_epoll = epoll_create1(EPOLL_CLOEXEC);
    if (h->handshakes_epoll < 0)
        return ST_IO;
    if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->handshakes_epoll, &event) == 0)
        return ST_OK;
    close(h->handshakes_epoll);
    return ST_IO;
}

void http_handshakes_close(struct http *h)
{
    http_clients_limits_set(h->clients, 1, 0, 1); /* Closes each client that is ARRIVING. */
    http_clients_turn(h->clients, clock_now_us(h->options.clock));
    http_handshakes_resume(h);
    close(h->handshakes_epoll);
}

/* Suspends the connection until its socket has bytes, or has been closed. Returns false if it cannot
 * be suspended. */
static bool connection_wait(struct http_connection *c)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.ptr = c->mhd};
    int change = c->handshake_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(c->http->handshakes_epoll, change, http_client_fd(c->client), &event) != 0)
        return false;
    c->handshake_watched = true;
    MHD_suspend_connection(c->mhd);
    return true;
}

/* GnuTLS's function to read from the socket. It has the contract of recv. */
static ssize_t handshake_pull(gnutls_transport_ptr_t self, void *data, size_t bytes)
{
    struct http_connection *c = self;
    bool arriving = http_client_state(c->client) == HTTP_CLIENT_ARRIVING;
    if (arriving &&
        !http_client_handshake_permit(c->client, clock_now_us(c->http->options.clock)) &&
        connection_wait(c)) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t got = recv(http_client_fd(c->client), data, bytes, 0);
    if (got < 0 && errno == EAGAIN && arriving) {
        connection_wait(c);
        errno = EAGAIN;
    }
    return got;
}

void http_handshake_pace(struct http_connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info == NULL)
        return;
    gnutls_session_t session = info->tls_session;
    gnutls_transport_set_ptr2(session, c,
                              (gnutls_transport_ptr_t)(intptr_t)http_client_fd(c->client));
    gnutls_transport_set_pull_function(session, handshake_pull);
}

void http_handshakes_resume(struct http *h)
{
    struct epoll_event events[64];
    int count;
    do {
        count = epoll_wait(h->handshakes_epoll, events, 64, 0);
        for (int i = 0; i < count; i++)
            MHD_resume_connection(events[i].data.ptr);
    } while (count == 64);
}
