/* ucx_prove: whether UCX reaches the peer, before the connection is up.
 *
 * UCX reports an endpoint as open before it has exchanged a byte, and an RDMA network may carry
 * nothing: a firewall, a wrong GID or VLAN. So the connecting side, which writes, sends a probe
 * over its link first:
 *
 *   connecting side                      accepting side
 *
 *   probe and flush       ═══ UCX ════▶
 *   LINK_SEEN             ◀───────────   the probe has arrived
 *   flushed, seen: up
 *   LINK_READY            ───────────▶   up
 *
 * A link that has failed, or is not proved within link_ms, is replaced by data connections, which
 * go to the same address as the control connection; the reason is reported as the peer's note. The
 * connecting side sends LINK_READY at once if it has no link, or if its link does not use UCX over
 * a network. The caller's messages are sent only after LINK_READY, so neither side receives one
 * before its peer_up.
 *
 * While the link goes over data connections because UCX carried nothing, the connecting side tries
 * UCX again after link_retry_ms. Each failure doubles this time, up to RETRY_FACTOR_MAX ×
 * link_retry_ms. The side opens a second link, the candidate, and proves the candidate in the same
 * way. Once the candidate is proved and no write of the old link is under way, the candidate
 * becomes the link. */
#include "transport/peers.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>

#define PATH_LATER       "a path chosen at the first write"
#define RETRY_FACTOR_MAX 16

static void up(struct peer *peer)
{
    peer->state = PEER_UP;
    peer_key_renew(peer);
    if (peer->link != NULL && fabric_link_by_data(peer->link))
        data_connections_open(peer);
    if (peer->failing == ST_OK)
        peer->ucx->options.events.peer_up(peer->ucx->options.self, &peer->base);
}

static void ready(struct peer *peer)
{
    if (peer_send(peer, FRAME_LINK_READY, NULL, 0) == ST_OK)
        up(peer);
}

/* Sets when UCX is tried again. */
static void retry_later(struct peer *peer)
{
    const uint32_t first_ms = peer->ucx->options.link_retry_ms;
    if (peer->retry_pause_ms == 0)
        peer->retry_pause_ms = first_ms;
    else if (peer->retry_pause_ms / RETRY_FACTOR_MAX < first_ms)
        peer->retry_pause_ms *= 2;
    peer->retry_us = clock_now_us(&clock_system) + (int64_t)peer->retry_pause_ms * 1000;
}

static void give_up(struct peer *peer, const char *why)
{
    char note[sizeof(peer->base.note)];
    snprintf(note, sizeof(note), "%.60s %.90s", fabric_link_path(peer->link), why);
    fabric_link_close(peer->link, -1);
    peer->link = NULL;
    if (peer_link_open(peer, true) == NULL)
        return;
    memcpy(peer->base.note, note, sizeof(note));
    retry_later(peer);
    ready(peer);
}

void prove_begin(struct peer *peer)
{
    const struct ucx *ucx = peer->ucx;
    bool writable = ucx->fabric != NULL && peer->hello_fields.region.bytes > 0;
    peer->state = PEER_PROVING;
    peer->proving_us = ucx->now_us;
    memcpy(peer->base.path, "messages only", sizeof("messages only"));
    /* Usually the connecting side writes. If this side writes, the first write opens a link. */
    if (peer->accepted && writable)
        memcpy(peer->base.path, PATH_LATER, sizeof(PATH_LATER));
    if (peer->accepted)
        return;
    if (writable && peer_link_open(peer, false) == NULL)
        return;                                     /* The peer is failing. */
    peer->proving_us = clock_now_us(&clock_system); /* Opening the link may have taken long. */
    if (!writable || !fabric_link_probe(peer->link))
        ready(peer);
}

void prove_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes)
{
    struct error error;
    if (kind == FRAME_REFUSE && !peer->accepted) {
        peer_refused(peer, data, bytes);
    } else if (kind == FRAME_LINK_SEEN && !peer->accepted) {
        peer->link_seen = true;
    } else if (kind == FRAME_LINK_READY && peer->accepted) {
        up(peer);
    } else if (kind != FRAME_PING) {
        error_set(&error, ST_INVALID, "a frame of kind %u before the link is ready", kind);
        peer_fail(peer, ST_INVALID, &error);
    }
}

bool prove_progress(struct peer *peer)
{
    struct error error;
    if (peer->accepted)
        return peer->inbox != NULL && fabric_inbox_probed(peer->inbox) &&
               peer_send(peer, FRAME_LINK_SEEN, NULL, 0) == ST_OK;
    if (peer->link == NULL)
        return false;
    if (fabric_link_failed(peer->link, &error) != ST_OK) {
        char why[96];
        snprintf(why, sizeof(why), "failed at once: %.70s", error.text);
        give_up(peer, why);
        return true;
    }
    if (!peer->link_seen || !fabric_link_probed(peer->link))
        return false;
    ready(peer);
    return true;
}

void prove_deadline_check(struct peer *peer)
{
    const struct transport_options *options = &peer->ucx->options;
    int64_t past_us = peer->ucx->now_us - peer->proving_us;
    char why[96];
    struct error error;
    if (!peer->accepted && peer->link != NULL && past_us > (int64_t)options->link_ms * 1000) {
        snprintf(why, sizeof(why), "carried nothing within %u ms (%s)", options->link_ms,
                 fabric_link_probed(peer->link) ? "sent, but not received"
                                                : "no answer to its first message");
        give_up(peer, why);
    } else if (past_us > (int64_t)options->connect_ms * 1000 + (int64_t)options->link_ms * 1000) {
        error_set(&error, ST_TIMED_OUT, "its link is not ready within %u ms",
                  options->connect_ms + options->link_ms);
        peer_fail(peer, ST_TIMED_OUT, &error);
    }
}

void prove_again_end(struct peer *peer)
{
    if (peer->candidate != NULL)
        fabric_link_close(peer->candidate, -1);
    peer->candidate = NULL;
}

void prove_again_tick(struct peer *peer)
{
    const struct ucx *ucx = peer->ucx;
    const int64_t link_us = (int64_t)ucx->options.link_ms * 1000;
    struct error error;
    if (peer->retry_us == 0 || ucx->now_us < peer->retry_us || peer->failing != ST_OK)
        return;
    if (peer->candidate != NULL) {
        if (ucx->now_us - peer->proving_us > link_us) {
            prove_again_end(peer);
            retry_later(peer);
        }
        return;
    }
    /* See peer_link_open: the memory of a peer that has ended may be gone. */
    if (peer->link == NULL || !fabric_link_by_data(peer->link) || stream_ended(&peer->stream))
        return;
    peer->link_seen = false;
    if (fabric_link_open(ucx->fabric, &peer->hello_fields.address, peer->hello_fields.token, false,
                         &peer->candidate, &error) != ST_OK) {
        peer->candidate = NULL;
        retry_later(peer);
    } else if (!fabric_link_probe(peer->candidate)) { /* UCX cannot open the link. */
        prove_again_end(peer);
        retry_later(peer);
    }
    peer->proving_us = clock_now_us(&clock_system); /* Opening the link may have taken long. */
}

/* The candidate is proved, and nothing of the old link is under way. */
static void link_replace(struct peer *peer)
{
    const struct transport_options *options = &peer->ucx->options;
    fabric_link_epochs_continue(peer->candidate, peer->link);
    fabric_link_close(peer->link, -1);
    peer->link = peer->candidate;
    peer->candidate = NULL;
    peer->retry_us = 0;
    peer->base.note[0] = 0;
    snprintf(peer->base.path, sizeof(peer->base.path), "%s", fabric_link_path(peer->link));
    if (options->events.path_changed != NULL)
        options->events.path_changed(options->self, &peer->base);
}

bool prove_again_progress(struct peer *peer)
{
    struct error error;
    if (peer->accepted)
        return peer->inbox != NULL && fabric_inbox_probed(peer->inbox) &&
               peer_send(peer, FRAME_LINK_SEEN, NULL, 0) == ST_OK;
    if (peer->candidate == NULL)
        return false;
    if (fabric_link_failed(peer->candidate, &error) != ST_OK) {
        prove_again_end(peer);
        retry_later(peer);
        return true;
    }
    if (!peer->link_seen || !fabric_link_probed(peer->candidate) || !fabric_link_idle(peer->link))
        return false;
    link_replace(peer);
    return true;
}
