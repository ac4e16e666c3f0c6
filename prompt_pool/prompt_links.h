/* prompt_links: the connections from this machine to the token machines that it pushes KV to: made
 * when a gateway asks for them, kept up with back-off, and reported with LINK. A link is up when
 * the machine is connected and has said where its layers are (STAGES), and when all that write KV
 * of ours reach them: that is the user's part (`prepare`). The event loop thread makes every call.
 */
#ifndef PROMPT_POOL_PROMPT_LINKS_H
#define PROMPT_POOL_PROMPT_LINKS_H

#include "common/status.h"
#include "transport/message.h"
#include "transport/transport.h"

struct prompt_links;

struct prompt_links_options {
    const char *name; /* of this machine; kept. A link to it is always up */
    struct transport *transport;
    /* The state of a link has changed, or was asked for and is up: all gateways hear of it. */
    void (*report)(void *self, const struct message_link *link);
    /* The connection is gone: no write to the peer is in flight any more. */
    void (*lost)(void *self, struct transport_peer *peer, const char *text);
    /* Target `target` (a small number, kept while the machine is known) is connected, and these are
     * its processes: prompt_links_prepared is called later, or inside. */
    void (*prepare)(void *self, uint32_t target, const struct message_peer *machine,
                    struct transport_peer *peer, const struct message_stages *stages);
    /* What was prepared of it does not count any more. */
    void (*drop)(void *self, uint32_t target);
    void *self;
};

enum status prompt_links_open(const struct prompt_links_options *options,
                              struct prompt_links **out);
void prompt_links_close(
    struct prompt_links *links); /* NULL is fine; before the transport is closed */

/* PEER of a gateway (an index below 32 while it is connected): keep a connection to this machine. A
 * new address replaces the old one, unless that one is connected and another gateway wants it. No
 * address: this gateway has no such machine any more; the connection ends when none has.
 * ST_NO_RESOURCE: there are LIMIT_MACHINES already; ST_INVALID: it has no name. Reports a link that
 * is up; one that is not is tried again soon, and what comes of that is reported. */
enum status prompt_links_want(struct prompt_links *links, uint32_t gateway,
                              const struct message_peer *peer, int64_t now_us);
/* It wants nothing any more. Its connections stay: it may come back, with the same wishes. */
void prompt_links_gateway_gone(struct prompt_links *links, uint32_t gateway);

/* The connected peer of that name, or NULL; then *text_out says why. */
struct transport_peer *prompt_links_find(const struct prompt_links *links, const char *name,
                                         uint32_t *target_out, const char **text_out);
/* Whether requests may take `path` (< LIMIT_STAGE_PATHS) through a target that is connected. */
bool prompt_links_has_path(const struct prompt_links *links, uint32_t target, uint32_t path);

/* What came of `prepare`; or, later, that it does not hold any more. */
void prompt_links_prepared(struct prompt_links *links, uint32_t target, bool up, const char *text,
                           int64_t now_us);

/* The transport's events, for peers whose user begins with KV_USER_LINK (kv_targets.h), and
 * STAGES of one: the first of a connection, which a second one ends. */
void prompt_links_stages(struct prompt_links *links, struct transport_peer *peer,
                         const struct message_stages *stages, int64_t now_us);
void prompt_links_up(struct prompt_links *links, struct transport_peer *peer, int64_t now_us);
void prompt_links_down(struct prompt_links *links, struct transport_peer *peer, const char *text,
                       int64_t now_us);

/* Connects again what is due. Returns when to call next, or INT64_MAX. */
int64_t prompt_links_turn(struct prompt_links *links, int64_t now_us);

#endif
