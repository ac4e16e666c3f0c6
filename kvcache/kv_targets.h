/* kv_targets: the processes that KV is written to. For each token machine (a target), it holds the
 * processes that store the layers and KV heads of this process, the connections to them, and the
 * flushes under way. A token machine without stages is one such process. A machine with stages has
 * several; each head of each layer is written straight to the process that holds it, however the
 * two machines are split.
 *
 * Its user gives each target a number. It does not know requests (only cookies) or prompts. A
 * machine's own process uses it, and so does each stage process. The event loop thread makes every
 * call. */
#ifndef KVCACHE_KV_TARGETS_H
#define KVCACHE_KV_TARGETS_H

#include "common/status.h"
#include "kvcache/kv_transfer.h"
#include "transport/message.h"
#include "transport/transport.h"

struct kv_targets;

struct kv_targets_options {
    struct transport *transport;
    struct kv_arena arena;   /* Layout of this process's region: its layers and heads. */
    uint32_t context_blocks; /* Most blocks of one request. */
    /* up: all connections to the target are up. Else one has ended or could not be made; then the
     * target is dropped, and pending flushes are never reported. */
    void (*link)(void *self, uint32_t target, bool up, const char *text);
    void (*flushed)(void *self, uint64_t cookie, enum status status);
    void *self;
};

enum status kv_targets_open(const struct kv_targets_options *options, struct kv_targets **out);
/* NULL is fine. Call it before the transport is closed. */
void kv_targets_close(struct kv_targets *t);

/* Sets target `target` (< LIMIT_MACHINES) to the machine `name` with these processes, after
 * dropping the previous one. `peer` is the caller's connection to the machine itself, for a stage
 * without address; NULL = none. The processes must hold each of our heads of each of our layers
 * exactly once on each path; else `link` reports an error that names the first fault. `link` is
 * called inside this call or later. */
void kv_targets_set(struct kv_targets *t, uint32_t target, const char *name,
                    struct transport_peer *peer, const struct message_stages *stages);
/* Ends the target's connections and forgets its flushes. `link` is not called. */
void kv_targets_drop(struct kv_targets *t, uint32_t target);

/* True if the target is up and has the path (< LIMIT_STAGE_PATHS). */
bool kv_targets_up(const struct kv_targets *t, uint32_t target, uint32_t path);

/* KV of one request that goes to a target. */
struct kv_push {
    struct transport_request request; /* For the target's check of each write; id 0 = not named. */
    uint32_t target;
    uint32_t path;             /* The request's path through the target's stages. */
    const kv_block_id *source; /* Our block source[i] is written to the target's block blocks[i], */
    const kv_block_id *blocks; /* for i in [first, first + count). */
    uint32_t first;
    uint32_t count;
    uint32_t layer; /* First layer that is not written yet. */
};

/* Writes our heads of the layers [push->layer, layer_end) to every process that holds a part of
 * them, and moves push->layer past each layer written. Requires that these layers are ours, and
 * count <= context_blocks. Returns ST_UNREACHABLE if the target is not up or has no such path,
 * ST_INVALID if a process does not have a block, or the transport's error. After any error the
 * request has failed. */
enum status kv_targets_push(struct kv_targets *t, struct kv_push *push, uint32_t layer_end);
/* Asks for `flushed` when everything written to the processes of the path has arrived. Requires
 * kv_targets_up, and a cookie that differs from those of pending flushes. */
void kv_targets_flush(struct kv_targets *t, uint32_t target, uint32_t path, uint64_t cookie);

/* To be called on the transport's events: peer_up and peer_down for peers of kind PEER_TARGET
 * (transport/peer_user.h), flushed for all. */
void kv_targets_peer_up(struct kv_targets *t, struct transport_peer *peer);
void kv_targets_peer_down(struct kv_targets *t, struct transport_peer *peer, const char *text);
void kv_targets_flushed(struct kv_targets *t, const struct transport_peer *peer, uint64_t cookie,
                        enum status status);

#endif
