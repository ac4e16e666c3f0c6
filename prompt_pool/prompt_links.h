/* prompt_links: the connections from this machine to the token machines that it writes KV to. They
 * are made when a gateway sends PEER, retried with increasing pauses, and reported with LINK. A
 * link is up when the machine is connected and has reported its stages (STAGES), and when all our
 * processes that write KV have reached its processes; the user (machine/) establishes the latter in
 * `prepare`. machine/ changes links and prompt_pool.c looks them up, all on the machine's event
 * loop thread. It writes no KV and does not choose the machines of a request. */
#ifndef PROMPT_POOL_PROMPT_LINKS_H
#define PROMPT_POOL_PROMPT_LINKS_H

#include "common/status.h"
#include "transport/message.h"
#include "transport/transport.h"

struct prompt_links;

struct prompt_links_options {
    /* Name of this machine; must outlive the links. The link to itself is always up. */
    const char *name;
    struct transport *transport;
    /* The state of a link has changed, or a gateway wants a link that is up. To be sent to all
     * gateways. */
    void (*report)(void *self, const struct message_link *link);
    /* The connection has ended: no write to the peer is in flight any longer. */
    void (*lost)(void *self, struct transport_peer *peer, const char *text);
    /* Target `target` (a small number, fixed while the machine is known) is connected and has these
     * processes. The user calls prompt_links_prepared, inside this call or later. */
    void (*prepare)(void *self, uint32_t target, const struct message_peer *machine,
                    struct transport_peer *peer, const struct message_stages *stages);
    /* What was prepared for the target is no longer valid. */
    void (*drop)(void *self, uint32_t target);
    void *self;
};

enum status prompt_links_open(const struct prompt_links_options *options,
                              struct prompt_links **out);
/* NULL is fine. Call it before the transport is closed. */
void prompt_links_close(struct prompt_links *links);

/* Handles PEER of a gateway (`gateway` = its index, below 32): keeps a connection to this machine.
 * A new address replaces the old one, unless the old one is connected and another gateway wants it.
 * An empty address = the gateway no longer has this machine; the connection ends when no gateway
 * has it. Reports a link that is up. Tries one that is down again soon, and reports the result.
 * Returns ST_NO_RESOURCE if there are already LIMIT_MACHINES links, ST_INVALID if the machine has
 * no name. */
enum status prompt_links_want(struct prompt_links *links, uint32_t gateway,
                              const struct message_peer *peer, int64_t now_us);
/* The gateway's connection has ended, so it wants no links. The links stay, because the gateway may
 * come back and want them again. */
void prompt_links_gateway_gone(struct prompt_links *links, uint32_t gateway);

/* Returns the peer of the link with this name if the link is up, else NULL with the reason in
 * *text_out. */
struct transport_peer *prompt_links_find(const struct prompt_links *links, const char *name,
                                         uint32_t *target_out, const char **text_out);
/* True if requests may take `path` (< LIMIT_STAGE_PATHS) through a target that is connected. */
bool prompt_links_has_path(const struct prompt_links *links, uint32_t target, uint32_t path);

/* The result of `prepare`, or later the report that it is no longer valid. */
void prompt_links_prepared(struct prompt_links *links, uint32_t target, bool up, const char *text,
                           int64_t now_us);

/* To be called on the transport's events, for peers of kind PEER_LINK
 * (transport/peer_user.h), and on STAGES. A second STAGES on a connection ends the connection. */
void prompt_links_stages(struct prompt_links *links, struct transport_peer *peer,
                         const struct message_stages *stages, int64_t now_us);
void prompt_links_up(struct prompt_links *links, struct transport_peer *peer, int64_t now_us);
void prompt_links_down(struct prompt_links *links, struct transport_peer *peer, const char *text,
                       int64_t now_us);

/* Connects again where a pause has ended. Returns when to call next; INT64_MAX = never. */
int64_t prompt_links_turn(struct prompt_links *links, int64_t now_us);

#endif
