/* prompt_links: the links from this machine to the token machines that it writes KV to. A struct
 * prompt_links owns the connections to these machines. This part connects when a gateway sends the
 * message PEER, tries again with increasing pauses, and reports the state and the measured speed of
 * each link. machine/ and the prompt pool call the functions on the machine's event loop thread.
 * This part writes no KV, and does not choose the machines of a request.
 *
 * A link is up when two conditions hold. The token machine is connected and has sent the message
 * STAGES. And every process of this machine that writes KV is connected to the token machine's
 * processes (`target_prepare`). */
#ifndef PROMPT_POOL_PROMPT_LINKS_H
#define PROMPT_POOL_PROMPT_LINKS_H

#include "common/status.h"
#include "scheduler/link_speed.h"
#include "transport/message.h"
#include "transport/transport.h"

struct prompt_links;

struct prompt_links_options {
    /* Name of this machine; must outlive the links. A PEER with this name makes no connection, and
     * is reported as a link that is up. */
    const char *name;
    struct transport *transport;
    /* Called when the state of a link or its text has changed. The function sends the message LINK
     * to all gateways. */
    void (*link_changed)(void *self, const struct message_link *link);
    /* Called when a gateway sends PEER for a link that is up. The function sends the message LINK
     * to all gateways. */
    void (*link_asked)(void *self, const struct message_link *link);
    /* Called when the speed of a link is measured for the first time or has changed clearly. The
     * function sends the message LINK to all gateways. */
    void (*link_measured)(void *self, const struct message_link *link);
    /* Called when a link's connection has ended, also if the link was never up. No write to `peer`
     * is in flight any longer. `peer` only identifies the connection: its memory may be freed.
     * `text` says why the connection ended. */
    void (*peer_lost)(void *self, struct transport_peer *peer, const char *text);
    /* Called when the token machine `machine` is connected and has sent STAGES, the list of its
     * processes (`stages`). `target` is the machine's number, which stays the same until the link
     * is removed (prompt_links_peer_set). The function connects the processes of this machine with
     * those of the token machine. Then, during the call or later, it calls
     * prompt_links_target_prepared. */
    void (*target_prepare)(void *self, uint32_t target, const struct message_peer *machine,
                           struct transport_peer *peer, const struct message_stages *stages);
    /* Ends the connections that `target_prepare` made for the target, if there are any. Called
     * before each peer_lost. */
    void (*target_drop)(void *self, uint32_t target);
    void *self; /* First argument of all functions. */
};

/* Opens an empty set of links; *options is copied. Returns ST_NO_MEMORY on failure. */
enum status prompt_links_open(const struct prompt_links_options *options,
                              struct prompt_links **out);
/* Ends the connections, without calling the functions of the options. NULL is fine. Call it before
 * the transport is closed. */
void prompt_links_close(struct prompt_links *links);

/* Handles PEER of a gateway: keeps a link to the machine that `peer` names. `gateway` is the
 * gateway's index, below 32.
 * - New machine: begins to connect.
 * - The link has this address, or is up and wanted by another gateway: the link keeps its address.
 *   A link that is up is reported again. A link that waits for its next attempt is tried at the
 *   next prompt_links_turn, and the result is reported.
 * - Any other link with another address: ends the connection and connects to the new address.
 * - Empty address: the gateway no longer has the machine. The link ends if no other gateway wants
 *   the link.
 * Returns ST_NO_RESOURCE if there are already LIMIT_MACHINES links, ST_INVALID if the machine has
 * no name. */
enum status prompt_links_peer_set(struct prompt_links *links, uint32_t gateway,
                                  const struct message_peer *peer, int64_t now_us);
/* Call it when the gateway's connection has ended. The links that the gateway wanted stay, because
 * the gateway may connect again. */
void prompt_links_gateway_gone(struct prompt_links *links, uint32_t gateway);

/* If the link to the machine `name` is up, returns the link's peer, and stores the machine's number
 * in *target_out. Else returns NULL, and stores the reason in *text_out. The reason is valid until
 * the link changes. */
struct transport_peer *prompt_links_find(const struct prompt_links *links, const char *name,
                                         uint32_t *target_out, const char **text_out);

/* In the following functions, `target` is the number of a token machine (`target_prepare`). */

/* Returns true if the target has sent STAGES, and its stages have the path. Requires that `path` is
 * below LIMIT_STAGE_PATHS. */
bool prompt_links_has_path(const struct prompt_links *links, uint32_t target, uint32_t path);

/* Call it when bytes are written to the target. This function and the next two measure the link. */
void prompt_links_written(struct prompt_links *links, uint32_t target, uint64_t bytes,
                          int64_t now_us);
/* Call it at the start of a flush that covers all earlier writes to the target. */
void prompt_links_flush_begun(struct prompt_links *links, uint32_t target, uint64_t cookie);
/* Call it when the flush with this cookie has ended with ST_OK. */
void prompt_links_flushed(struct prompt_links *links, uint32_t target, uint64_t cookie,
                          int64_t now_us);

/* Returns the measured speed of the link to the target. */
struct link_estimate prompt_links_speed(const struct prompt_links *links, uint32_t target);

/* Call it with the result of `target_prepare`, and with up = false when a connection of
 * `target_prepare` has ended later. up = true: the link is up. up = false: the link's connection
 * ends, and the link is tried again after a pause. `text` describes the state. No effect if the
 * link's connection has already ended. */
void prompt_links_target_prepared(struct prompt_links *links, uint32_t target, bool up,
                                  const char *text, int64_t now_us);

/* The caller passes on the message STAGES and the transport's events of peers of kind PEER_LINK
 * (transport/peer_user.h) through the next four functions. A second STAGES on a connection ends the
 * connection. A peer whose name is not the name of the link's machine ends the connection, too. */
void prompt_links_stages_take(struct prompt_links *links, struct transport_peer *peer,
                              const struct message_stages *stages, int64_t now_us);
void prompt_links_peer_up(struct prompt_links *links, struct transport_peer *peer, int64_t now_us);
/* Call it when KV begins to travel to the peer in another way, which `text` names. Forgets the
 * measured speed, and reports `text` if the link is up. */
void prompt_links_transport_changed(struct prompt_links *links, struct transport_peer *peer,
                                    const char *text);
void prompt_links_peer_down(struct prompt_links *links, struct transport_peer *peer,
                            const char *text, int64_t now_us);

/* Connects each link whose pause after a failure has ended. Returns the time at which to call the
 * function again; INT64_MAX = no link waits. */
int64_t prompt_links_turn(struct prompt_links *links, int64_t now_us);

#endif
