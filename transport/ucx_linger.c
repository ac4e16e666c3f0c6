/* ucx_linger: the end of a connection whose peer writes into our memory itself, over shared memory,
 * RDMA or from device to device. See peers.h.
 *
 * Such a peer may be stopped in the middle of a write, for any time, and finish the write when it
 * runs again. Closing our side does not prevent that. But its kernel keeps its socket open for as
 * long as its process exists, and the process closes the socket only when its link has ended
 * (fabric_link_close). So after the end of a connection that we did not learn from the peer's
 * kernel, the socket stays and is only read. When it ends, no write can land any more:
 *
 *   us                                    the peer
 *   silent for too long: peer_down        stopped in a write
 *   FIN                   ───────────▶
 *                                         runs again, finishes the write, …
 *                                         reads the end, closes its link, then its socket
 *                         ◀───────────    FIN, also if it is killed instead
 *   writes_ended
 *
 * If the network ends the connection instead (no answer for about 15 minutes), the peer counts as
 * dead if it is on another host. A process of this host may still run, so nothing is reported. */
#include "transport/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGERING_MAX  256
#define READS_PER_TURN 16

bool linger_full(const struct ucx *ucx)
{
    return ucx->lingering_count >= LINGERING_MAX;
}

bool linger_await(struct peer *peer)
{
    if (!peer->writes_directly || peer->stream.closed)
        return false;
    if (peer->stream.failed || peer->stream.fd < 0)
        return peer->same_host;
    peer->writes_awaited = true;
    return true;
}

static void linger_add(struct peer *peer, int fd)
{
    struct ucx *ucx = peer->ucx;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    stream_init(&peer->stream, fd);
    peer->state = PEER_LINGERING;
    peer->next = ucx->lingering;
    ucx->lingering = peer;
    ucx->lingering_count++;
    (void)epoll_ctl(ucx->epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

void linger_begin(struct peer *peer)
{
    struct ucx *ucx = peer->ucx;
    struct fabric_link *link = peer->link;
    bool lingers = peer->writes_awaited;
    prove_again_end(peer);
    int fd = stream_release(&peer->stream);
    peer->link = NULL;
    peer->state = PEER_DEAD;
    if (lingers && fd >= 0) {
        linger_add(peer, fd);
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    } else {
        if (fd >= 0) /* It may be closed later, and epoll watches it until then. */
            (void)epoll_ctl(ucx->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        peer->next = ucx->ended_peers;
        ucx->ended_peers = peer;
    }
    /* The other side learns of the end when our own writes have ended. If there was no descriptor,
     * it finds us silent (transport_options.silence_ms). */
    if (link != NULL)
        fabric_link_close(link, fd);
    else
        fabric_writes_end(fd);
}

static void linger_end(struct peer *peer)
{
    struct ucx *ucx = peer->ucx;
    struct peer **at = &ucx->lingering;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    ucx->lingering_count--;
    stream_done(&peer->stream);
    peer->state = PEER_DEAD;
    peer->next = ucx->ended_peers;
    ucx->ended_peers = peer;
}

void linger_socket_ready(struct peer *peer)
{
    const struct transport_options *options = &peer->ucx->options;
    static uint8_t ignored[64 << 10];
    ssize_t got = 1;
    for (int i = 0; i < READS_PER_TURN && (got > 0 || errno == EINTR); i++)
        got = recv(peer->stream.fd, ignored, sizeof(ignored), MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    bool ended = got == 0 || errno == ECONNRESET || !peer->same_host;
    uint64_t number = peer->base.number;
    linger_end(peer);
    if (ended)
        options->events.writes_ended(options->self, number);
}

void linger_close(struct ucx *ucx)
{
    while (ucx->lingering != NULL)
        linger_end(ucx->lingering);
}
