/* prompt_links: the connections from this machine to the token machines that it writes KV to. It
 * connects when a gateway sends PEER, tries again with increasing pauses, and reports the state of
 * each link (LINK). A link is up when two conditions hold: the token machine is connected and has
 * sent STAGES; and every process of this machine that writes KV is connected to the token machine's
 * processes (`target_prepare`). prompt_links also measures the speed of each link (push_meter.h).
 * machine/ opens and changes the links; the prompt pool looks them up and reports what it writes;
 * all on the machine's event loop thread. prompt_links writes no KV, and does not choose the
 * machines of a request. */
#ifndef PROMPT_POOL_PROMPT_LINKS_H
#define PROMPT_POOL_PROMPT_LINKS_H

#include "common/status.h"
#include "scheduler/link_speed.h"
#include "transport/message.h"
#include "transport/transport.h"

struct prompt_links;

struct prompt_links_options {
    /* Name of this machine; must outlive the links. A PEER with this name makes no connection; its
     * link is reported as up, because the KV then stays on this machine. */
    const char *name;
    struct transport *transport;
    /* Called when the state of a link or its text has changed, and when a gateway asks for a link
     * that is up. The function sends the message LINK to all gateways. */
    void (*link_changed)(void *self, const struct message_link *link);
    /* Called for the first measured speed of a link, and later when the speed differs by 10 % from
     * the speed that was reported last, at most once a second. The function sends the message LINK
     * to all gateways. */
    void (*link_measured)(void *self, const struct message_link *link);
    /* Called when a connection has ended. No write to `peer` is in flight any longer. `peer` is
     * valid during the call; `text` says why the connection has ended. */
    void (*peer_lost)(void *self, struct transport_peer *peer, const char *text);
    /* Called when token machine number `target` is connected and has sent its processes, `stages`.
     * The number stays the same while a gateway wants the link. The function connects the processes
     * of this machine with those of the token machine. Then, during the call or later, it calls
     * prompt_links_target_prepared. */
    void (*target_prepare)(void *self, uint32_t target, const struct message_peer *machine,
                           struct transport_peer *peer, const struct message_stages *stages);
    /* Ends the connections that `target_prepare` made for the target. */
    void (*target_drop)(void *self, uint32_t target);
    void *self; /* First argument of all functions. */
};

/* Opens an empty set of links; *options is copied. Returns ST_NO_MEMORY on failure. */
enum status prompt_links_open(const struct prompt_links_options *options,
                              struct prompt_links **out);
/* NULL is fine. Call it before the transport is closed. */
void prompt_links_close(struct prompt_links *links);

/* Handles PEER of a gateway: keeps a connection to the machine that `peer` names. `gateway` is the
 * gateway's index, below 32. A new address ends the connection and replaces the old address, except
 * if the link is up and another gateway wants the link. An empty address means that the gateway no
 * longer has the machine; the link ends if no other gateway wants the link. A link that is up is
 * reported again. A link that waits for its next attempt is tried at the next prompt_links_turn,
 * and the result is reported. Returns ST_NO_RESOURCE if there are already LIMIT_MACHINES links,
 * ST_INVALID if the machine has no name. */
enum status prompt_links_peer_set(struct prompt_links *links, uint32_t gateway,
                                  const struct message_peer *peer, int64_t now_us);
/* Call it when the gateway's connection has ended. The links that the gateway wanted stay, because
 * the gateway may connect again. */
void prompt_links_gateway_gone(struct prompt_links *links, uint32_t gateway);

/* If the link to the machine `name` is up, returns the link's peer, and stores the number of the
 * target in *target_out. Else returns NULL and stores the reason in *text_out, which is valid until
 * the link changes. */
struct transport_peer *prompt_links_find(const struct prompt_links *links, const char *name,
                                         uint32_t *target_out, const char **text_out);
/* Returns true if the target has sent STAGES, and its stages have the path. Requires that `path` is
 * below LIMIT_STAGE_PATHS. */
bool prompt_links_has_path(const struct prompt_links *links, uint32_t target, uint32_t path);

/* Measure the link to the target. Call them when bytes are written to the target, when a flush of
 * everything written so far begins, and when the flush with this cookie has ended. */
void prompt_links_written(struct prompt_links *links, uint32_t target, uint64_t bytes,
                          int64_t now_us);
void prompt_links_flush_begun(struct prompt_links *links, uint32_t target, uint64_t cookie);
void prompt_links_flushed(struct prompt_links *links, uint32_t target, uint64_t cookie,
                          int64_t now_us);

/* Returns the measured speed of the link to the target. */
struct link_estimate prompt_links_speed(const struct prompt_links *links, uint32_t target);

/* Reports the result of `target_prepare`. up = false also reports, after up = true, that a
 * connection of `target_prepare` has ended. With up = false the link goes down, and is tried again
 * after a pause. No effect if the link's connection has ended in the meantime. */
void prompt_links_target_prepared(struct prompt_links *links, uint32_t target, bool up,
                                  const char *text, int64_t now_us);

/* Through these functions the caller passes on the message STAGES and the transport's events of
 * peers of kind PEER_LINK (transport/peer_user.h). A second STAGES on a connection ends the
 * connection, and so does a peer that is another machine than the link's. */
void prompt_links_stages_take(struct prompt_links *links, struct transport_peer *peer,
                              const struct message_stages *stages, int64_t now_us);
void prompt_links_peer_up(struct prompt_links *links, struct transport_peer *peer, int64_t now_us);
/* Call it when KV begins to travel to the peer over another transport, which `text` names. Reports
 * the new text if the link is up. */
void prompt_links_transport_changed(struct prompt_links *links, struct transport_peer *peer,
                                    const char *text);
void prompt_links_peer_down(struct prompt_links *links, struct transport_peer *peer,
                            const char *text, int64_t now_us);

/* Connects again where the pause after a failure has ended. Returns the time of the next call;
 * INT64_MAX = none. */
int64_t prompt_links_turn(struct prompt_links *links, int64_t now_us);

#endif
