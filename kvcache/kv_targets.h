/* kv_targets: writes the KV of one process of a machine to other machines: KV of prompts to token
 * machines, and copies of KV for the prefix caches of other machines (prompt_pool/prompt_copy.c). A
 * target is one of these other machines. For each target, this part owns the list of the target's
 * processes that store layers and KV heads of this process, the connections to these processes, and
 * the flushes that have not ended. KV is written directly to the processes that store it, however
 * the two machines are split into stages and ranks.
 *
 * machine/executor/ calls the functions, on the event loop thread of a machine or of a stage
 * process. The caller numbers the targets and opens the transport. kv_targets chooses no blocks,
 * does not know prompts, and does not repeat a failed write. A flush has a cookie: a number that
 * the caller chooses. Below, "our" layers and heads are the layers and heads of this process. */
#ifndef KVCACHE_KV_TARGETS_H
#define KVCACHE_KV_TARGETS_H

#include "common/status.h"
#include "kvcache/kv_transfer.h"
#include "transport/message.h"
#include "transport/transport.h"

struct kv_targets;

struct kv_targets_options {
    struct transport *transport; /* Must outlive the targets. */
    struct kv_arena arena;       /* Layout of this process's region: its layers and heads. */
    uint32_t context_spans;      /* Most blocks of one request in one layer group. */
    /* Called when the state of a target has changed. up = true: all connections to the target are
     * up, and `text` names the transport of the first connection. up = false: the target has
     * failed, and `text` says why; the target is already dropped (kv_targets_drop). */
    void (*link_changed)(void *self, uint32_t target, bool up, const char *text);
    /* Called when the flush with this cookie has ended. ST_OK: all writes have arrived. Any other
     * status: some writes may not have arrived. */
    void (*flushed)(void *self, uint64_t cookie, enum status status);
    void *self; /* First argument of link_changed and flushed. */
};

/* Opens an empty set of targets; *options is copied. Returns ST_NO_MEMORY on failure. */
enum status kv_targets_open(const struct kv_targets_options *options, struct kv_targets **out);
/* Drops all targets and frees them. NULL is fine. */
void kv_targets_close(struct kv_targets *t);

/* Drops the earlier target with the number `target` (< LIMIT_MACHINES), if there is one, and gives
 * this number to the machine `name`. stages: the processes of this machine. Connects to the
 * processes that store some of our layers and heads. If our arena.copy_count is above 1, the ranks
 * of our stage divide these processes among themselves. A rank connects to its share of the
 * processes; a rank without a share connects to one process of each stage, for flushes, and writes
 * nothing. A process without an address is reached over `peer`, the caller's connection to the
 * machine (NULL = none). `link_changed` reports the result, during this call or later.
 *
 * On each path, at least one process must store each KV head of each of our layers; exactly one
 * process if our arena.copy_count is 0. Otherwise the target fails. `name` and `stages` are
 * copied. */
void kv_targets_set(struct kv_targets *t, uint32_t target, const char *name,
                    struct transport_peer *peer, const struct message_stages *stages);
/* Ends the connections that kv_targets made to the target, and forgets the target's flushes. Calls
 * neither `flushed` nor `link_changed`. No effect without this target. */
void kv_targets_drop(struct kv_targets *t, uint32_t target);

/* Returns true if the target is up and has the path. Requires that `path` is below
 * LIMIT_STAGE_PATHS. */
bool kv_targets_up(const struct kv_targets *t, uint32_t target, uint32_t path);

/* KV of one request to be written to a target. */
struct kv_push {
    /* The request, so that the target can drop a write that arrives too late; id 0 = unchecked. */
    struct transport_request request;
    uint32_t target; /* Number of the target. */
    uint32_t path;   /* The request's path through the target's stages. */
    /* In layer group g, our block source_blocks[g * source_stride + i] is written to the target's
     * block target_blocks[g * target_stride + i], for every span i that is written. The caller owns
     * both arrays. */
    const kv_block_id *source_blocks;
    const kv_block_id *target_blocks;
    uint32_t source_stride;
    uint32_t target_stride;
    uint32_t first; /* The spans [first, first + count) are written. */
    uint32_t count;
    uint32_t full_first;   /* In groups without a window, spans before full_first are skipped. */
    uint32_t window_first; /* In groups with a window, spans before window_first are skipped. */
    uint32_t layer;        /* The first layer that is not written yet. */
};

/* Begins to write our heads of the layers [push->layer, layer_end) to the target's processes, and
 * adds 1 to push->layer for each layer. The writes arrive later (kv_targets_flush). Requires that
 * these layers are ours, and that push->count is at most context_spans. Returns ST_OK if every
 * write has begun, ST_UNREACHABLE if kv_targets_up is false, ST_INVALID if target_blocks names a
 * block that a process does not have, or the transport's error. After an error some blocks may have
 * been written. */
enum status kv_targets_push(struct kv_targets *t, struct kv_push *push, uint32_t layer_end);
/* Begins a flush: `flushed` is called later, from kv_targets_flushed, when all KV that was written
 * before to the processes of the path has arrived or a write has failed; `flushed` is not called if
 * the target is dropped or fails before that. Requires that kv_targets_up is true, that no
 * pending flush has the cookie, and fewer than 2 × LIMIT_MACHINE_REQUESTS pending flushes. */
void kv_targets_flush(struct kv_targets *t, uint32_t target, uint32_t path, uint64_t cookie);

/* The caller passes on these events of the transport: peer_up and peer_down of peers of kind
 * PEER_TARGET (transport/peer_user.h), and `flushed` with a cookie of kv_targets_flush (other
 * cookies have no effect). */
void kv_targets_peer_up(struct kv_targets *t, struct transport_peer *peer);
void kv_targets_peer_down(struct kv_targets *t, struct transport_peer *peer, const char *text);
void kv_targets_flushed(struct kv_targets *t, const struct transport_peer *peer, uint64_t cookie,
                        enum status status);

#endif
