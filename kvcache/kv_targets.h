/* kv_targets: the processes that KV is written to. For each token machine (a target), it holds the
 * processes that store the layers and KV heads of this process, the connections to them, and the
 * flushes under way. A token machine without stages is one such process. A machine with stages has
 * several; each head of each layer is written straight to the process that holds it, in whatever
 * way the two machines are split into stages and ranks.
 *
 * Its user is a machine's own process (prompt_pool/ through machine/executor/local.c) or a stage
 * process (machine/executor/stage*.c). The event loop thread of that process makes every call. The
 * user gives each target a number and opens the transport. kv_targets does not know requests (only
 * cookies: numbers by which the user recognises a flush) or prompts, chooses no blocks, and never
 * repeats a failed write. */
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
    uint32_t context_blocks;     /* Most blocks of one request. */
    /* Called when all connections to the target are up (up = true), or when one has ended or could
     * not be made (up = false). In the second case the target is dropped, and its pending flushes
     * are never reported. `text` names the transport, or says what failed. */
    void (*link)(void *self, uint32_t target, bool up, const char *text);
    /* The flush with this cookie has ended: everything has arrived (ST_OK), or not. */
    void (*flushed)(void *self, uint64_t cookie, enum status status);
    void *self; /* Argument of both functions. */
};

/* Opens an empty set of targets; *options is copied. Returns ST_NO_MEMORY on failure. */
enum status kv_targets_open(const struct kv_targets_options *options, struct kv_targets **out);
/* NULL is fine. Call it before the transport is closed. */
void kv_targets_close(struct kv_targets *t);

/* Sets target `target` (< LIMIT_MACHINES) to the machine `name`, whose processes `stages` lists,
 * after dropping the previous target of this number. Connects to each process that holds a part of
 * ours; for a stage without an address it uses `peer`, the caller's connection to the machine
 * itself (NULL = none). The processes must hold each of our heads of each of our layers exactly
 * once on each path; else `link` reports an error that names the first fault. `link` is called
 * inside this call or later. `name` and `stages` are copied. */
void kv_targets_set(struct kv_targets *t, uint32_t target, const char *name,
                    struct transport_peer *peer, const struct message_stages *stages);
/* Ends the target's connections and forgets its flushes. `link` is not called. */
void kv_targets_drop(struct kv_targets *t, uint32_t target);

/* True if the target is up and has the path (< LIMIT_STAGE_PATHS). */
bool kv_targets_up(const struct kv_targets *t, uint32_t target, uint32_t path);

/* KV of one request that goes to a target. */
struct kv_push {
    struct transport_request request; /* For the target's check of each write. */
    uint32_t target;
    uint32_t path; /* The request's path through the target's stages. */
    /* Our block source[i] is written to the target's block blocks[i], for every i in [first, first
     * + count). Both arrays belong to the caller. */
    const kv_block_id *source;
    const kv_block_id *blocks;
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
/* Asks for a call of `flushed` when everything written to the processes of the path has arrived.
 * Requires kv_targets_up, and a cookie that differs from those of pending flushes. */
void kv_targets_flush(struct kv_targets *t, uint32_t target, uint32_t path, uint64_t cookie);

/* The caller passes the transport's events on by these functions: peer_up and peer_down for peers
 * of kind PEER_TARGET (transport/peer_user.h), flushed for every peer. */
void kv_targets_peer_up(struct kv_targets *t, struct transport_peer *peer);
void kv_targets_peer_down(struct kv_targets *t, struct transport_peer *peer, const char *text);
void kv_targets_flushed(struct kv_targets *t, const struct transport_peer *peer, uint64_t cookie,
                        enum status status);

#endif
