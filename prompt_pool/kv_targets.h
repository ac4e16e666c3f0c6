/* kv_targets: where KV is written to: the processes of token machines that hold layers and KV heads
 * which this process computes, the connections to them, and writes and flushes over these. A token
 * machine without stages is one such process; one with stages has several, and each head of each
 * layer goes straight to its owner, however the two machines are split.
 *
 * A target has a number that its user gave it. It knows no requests but cookies, and no prompts.
 * Used by a machine's own process, and by each of its stages. The event loop thread makes every
 * call. */
#ifndef PROMPT_POOL_KV_TARGETS_H
#define PROMPT_POOL_KV_TARGETS_H

#include "common/status.h"
#include "kvcache/kv_transfer.h"
#include "transport/message.h"
#include "transport/transport.h"

struct kv_targets;

/* What the `user` of each connection that this machine makes begins with. */
enum kv_user { KV_USER_LINK, KV_USER_PLACE, KV_USER_STAGE };

struct kv_targets_options {
    struct transport *transport;
    struct kv_arena arena;   /* of this process's region: its layers and heads */
    uint32_t context_blocks; /* of one request at most */
    /* All connections to the target are up, or one has ended, or was never made: then the target
     * is not known any more, and what was to be flushed is never reported. */
    void (*link)(void *self, uint32_t target, bool up, const char *text);
    void (*flushed)(void *self, uint64_t cookie, enum status status);
    void *self;
};

enum status kv_targets_open(const struct kv_targets_options *options, struct kv_targets **out);
void kv_targets_close(struct kv_targets *t); /* NULL is fine; before the transport is closed */

/* Target `target` (< LIMIT_MACHINES; what it was before is dropped) is the machine `name` with
 * these processes. `peer` is the connection to the machine itself, for a stage without address; it
 * stays the caller's (NULL: there is none). Processes that do not have each of our heads of each of
 * our layers once on each path are an error that names the first that is missing. `link` is called
 * later, or inside. */
void kv_targets_set(struct kv_targets *t, uint32_t target, const char *name,
                    struct transport_peer *peer, const struct message_stages *stages);
/* Ends its connections. `link` is not called. */
void kv_targets_drop(struct kv_targets *t, uint32_t target);

/* It is, and has that path (< LIMIT_STAGE_PATHS). */
bool kv_targets_up(const struct kv_targets *t, uint32_t target, uint32_t path);

/* One layer's KV, of our heads, of blocks [first, first + count) of a request that takes `path`
 * through the target. Our layer; context_blocks at most. All of it is written, to as many processes
 * as have some, or an error says that the request has failed: ST_UNREACHABLE (the target is not up,
 * or has no such path), ST_INVALID (a block that it does not have), or of the link, which goes down
 * next. */
enum status kv_targets_write(struct kv_targets *t, uint32_t target, uint32_t path, uint32_t layer,
                             const kv_block_id *source, const kv_block_id *blocks, uint32_t first,
                             uint32_t count);
/* `flushed` is called when all that was written to that path's processes is there. The
 * target is up and has the path; cookies of flushes that are on their way differ. */
void kv_targets_flush(struct kv_targets *t, uint32_t target, uint32_t path, uint64_t cookie);

/* The transport's events, for peers whose user begins with KV_USER_PLACE; flushed for all. */
void kv_targets_peer_up(struct kv_targets *t, struct transport_peer *peer);
void kv_targets_peer_down(struct kv_targets *t, struct transport_peer *peer, const char *text);
void kv_targets_flushed(struct kv_targets *t, const struct transport_peer *peer, uint64_t cookie,
                        enum status status);

#endif
