/* sched_memory: the policy for the KV blocks of one machine. It decides about the requests that are
 * decoded on the machine: how many blocks a request gets before its KV arrives; which waiting
 * reservation is granted next; which answer gets more blocks; which answer is preempted when too
 * few blocks are left; and which reservation is given up to break a deadlock between machines.
 * token_pool/ opens and calls it on the machine's event loop thread, and the simulator calls the
 * same code; not thread-safe. Any thread may call the functions that take only numbers or options.
 * Pure: no clock, no I/O, no log, no allocation after opening.
 *
 * A sched_memory does not know block ids: the caller owns the blocks, passes the number that can be
 * taken, and carries out the decisions. Requests are slots of a sched_machine, which keeps their
 * order. A sched_memory does not know the prompts that this machine computes for requests that are
 * decoded elsewhere; the sched_machine does.
 *
 * Reservations are granted in the order of their queue (scheduler/queue.h). Running answers go
 * before reservations: the caller calls sched_memory_grow until the result is SCHED_GROWTH_DONE,
 * and then grants reservations. */
#ifndef SCHEDULER_MEMORY_H
#define SCHEDULER_MEMORY_H

#include "common/layer_groups.h"
#include "scheduler/machine/machine.h"

struct sched_memory;

struct sched_memory_options {
    uint32_t block_count;  /* KV blocks of the machine. */
    uint32_t block_tokens; /* Tokens of a block, ≥ 1. */
    struct layer_groups groups;
    uint32_t chunk_tokens;   /* Most tokens of a prompt that are computed at once. */
    uint32_t context_tokens; /* Longest context: prompt and answer of the largest request. */
    /* In layers with a window, an answer keeps a block for this number of tokens after its last use
     * of the block. Meanwhile, the block can be copied to another machine (kv/checkpoint). */
    uint32_t window_spare_tokens;
    uint32_t draft_tokens; /* Most drafted tokens that a decode step checks for an answer. */
    /* Slots of the requests that are decoded here: first_slot … first_slot + slot_count - 1. */
    sched_slot first_slot;
    uint32_t slot_count;
    /* Number of the answer's first tokens for which a reservation has blocks; 0 = 1. */
    uint32_t growth_tokens;
    /* While any answer may grow, a grant leaves blocks free: this percentage of all blocks, or the
     * blocks of one span for each answer that may grow, whichever is more. */
    uint32_t growth_reserve_percent;
    /* A request that was preempted at least this number of times gets blocks for its whole answer
     * at once, so the answer does not grow. 0 = every request. */
    uint32_t preemptions_max;
};

/* The values from which the cluster scheduler computes how much of a machine's KV memory a request
 * takes; sched_memory_kv makes these values from the machine's options. All zeros = not known, or a
 * model without windows: a request with N tokens then takes the memory of N tokens. */
struct sched_kv {
    /* Number of tokens whose KV of all layers fits the memory; 0 = the kv_tokens of the machine's
     * SCHED_MACHINE_UP (scheduler/cluster/cluster.h). */
    uint64_t capacity_tokens;
    struct layer_groups groups;
    uint32_t block_tokens;
    /* layer_groups_spans_kept of a request: [1] = the machine computes the prompt, [0] = not. */
    uint32_t kept_spans[2];
};

/* Returns how requests fill the memory of a machine with these options. */
struct sched_kv sched_memory_kv(const struct sched_memory_options *options);

/* Opens a policy without requests; copies *options. `sched` must outlive the policy. Returns
 * ST_NO_MEMORY on failure. */
enum status sched_memory_open(const struct sched_memory_options *options,
                              struct sched_machine *sched, struct sched_memory **out);
void sched_memory_close(struct sched_memory *memory); /* NULL is fine */
/* Returns the options of sched_memory_open. */
const struct sched_memory_options *sched_memory_options(const struct sched_memory *memory);

/* ---- the share of prompts ---- */

/* Returns the prompts' share: the number of blocks that a mixed machine keeps for prompts, so that
 * two mixed machines seldom wait for each other (sched_machine_deadlock_victim). The share is the
 * number of blocks of the longest context, at most half of all blocks. */
uint32_t sched_memory_prompt_share(const struct sched_memory_options *options);

/* Returns how much memory grants leave free for answers that may grow: `percent` of `total` or
 * `growing`, whichever is larger; 0 if `growing` is 0. growing = number of these answers × the
 * memory that an answer takes next. All sizes are in one unit, blocks or tokens. */
uint64_t sched_memory_growth_reserve(uint64_t total, uint32_t percent, uint64_t growing);

/* Sets whether sched_memory_candidate_find keeps the prompts' share; false after opening. */
void sched_memory_mixed_set(struct sched_memory *memory, bool mixed);

/* ---- one request ---- */

/* A request that is decoded on this machine. */
struct sched_memory_request {
    uint32_t prompt_tokens;
    uint32_t answer_tokens; /* Most tokens of the answer. */
    uint32_t preemptions;   /* Number of times that the request was preempted. */
    uint32_t path;          /* Path through the machine's stages. */
    bool prompt_is_local;   /* The request's prompt runs on this machine, in the reserved blocks. */
    struct sched_rank rank; /* Urgency and API key. */
};

/* The blocks of a request. */
struct sched_memory_blocks {
    /* Blocks that the request has, or gets with the grant if it is not granted. In layers without a
     * window, this includes blocks of the prefix cache that the request reads. */
    uint32_t count;
    uint32_t spans;         /* Spans of the request (common/layer_groups.h) that have blocks. */
    uint32_t spans_max;     /* Spans of the prompt and the longest answer. */
    uint32_t growth_blocks; /* Blocks of the latest SCHED_GROWTH_SPAN. */
    /* layer_groups_spans_kept of the request; 0 = a copy without blocks in layers with a window. */
    uint32_t kept_spans;
    /* In layers with a window, the request has no own blocks for the spans before this span. */
    uint32_t window_held;
    bool granted; /* The reservation was granted. */
};

/* Returns the number of spans that hold `tokens` tokens. */
uint32_t sched_memory_spans_of(const struct sched_memory_options *options, uint32_t tokens);
/* Returns the number of spans that layers with a window keep of a request. computes_prompt = this
 * machine computes the request's prompt. */
uint32_t sched_memory_kept_spans(const struct sched_memory_options *options, bool computes_prompt);
/* Returns the number of blocks of a request with a context of `tokens` tokens. */
uint32_t sched_memory_blocks_of(const struct sched_memory_options *options, uint32_t tokens,
                                bool computes_prompt);
/* Returns the KV memory, in tokens (layer_groups_kv_tokens), of a context of `tokens` tokens. */
uint64_t sched_memory_tokens_of(const struct sched_memory_options *options, uint64_t tokens,
                                bool computes_prompt);
/* Returns the tokens of the longest context that fits `blocks` blocks on the machine that computes
 * its prompt. */
uint64_t sched_memory_tokens_most(const struct sched_memory_options *options, uint32_t blocks);

/* Queues a reservation. Requires an unused slot and enough memory for the longest answer. */
void sched_memory_reserve(struct sched_memory *memory, sched_slot slot,
                          const struct sched_memory_request *request);
/* Adds a copy: a request that is not decoded, and whose KV of `tokens` tokens, in full blocks, is
 * stored on this machine. The copy waits in no queue: call sched_memory_copy_grant next, and
 * sched_memory_remove if the result is false. windows = the copy has blocks in layers with a
 * window, too. Requires an unused slot. */
void sched_memory_copy_add(struct sched_memory *memory, sched_slot slot, uint32_t tokens,
                           bool windows);
/* Grants the copy its blocks; the caller must take blocks_needed of them. Returns false if a
 * reservation waits for memory, or if less than half of the machine's blocks would be left free. */
bool sched_memory_copy_grant(struct sched_memory *memory, sched_slot slot, uint32_t blocks_needed,
                             uint32_t blocks_free);
/* Returns the blocks of a request. Requires that sched_memory_reserve or sched_memory_copy_add has
 * added the request. The pointer is valid until sched_memory_remove. */
const struct sched_memory_blocks *sched_memory_blocks(const struct sched_memory *memory,
                                                      sched_slot slot);
/* Sets the request's window_held: in layers with a window, the request will take no blocks for the
 * spans before span window_held, because the prefix cache holds the blocks that these layers read.
 * Computes the request's number of blocks again. Requires that the request is not granted. */
void sched_memory_window_held_set(struct sched_memory *memory, sched_slot slot,
                                  uint32_t window_held);
/* Starts to decode a granted request whose KV is complete. tokens_left = most tokens to generate.
 */
void sched_memory_decode(struct sched_memory *memory, sched_slot slot, uint32_t tokens_left);
/* Removes a granted request from the sched_machine. Its blocks count as used until
 * sched_memory_remove, because a prompt machine may still write into them. */
void sched_memory_quarantine(struct sched_memory *memory, sched_slot slot);
/* Removes the request in any state, also from the sched_machine. The caller frees its blocks.
 * Requires that no batch contains the request. */
void sched_memory_remove(struct sched_memory *memory, sched_slot slot);

/* ---- decisions ---- */

enum sched_memory_growth {
    /* Nothing now: no answer lacks room, or the answer that must be preempted is in a batch. */
    SCHED_GROWTH_DONE,
    SCHED_GROWTH_SPAN,    /* The caller must take the blocks of one more span of the request. */
    SCHED_GROWTH_PREEMPT, /* The caller must free the request's blocks and remove the request. */
};

/* Returns what must happen next so that answers have room for their next tokens, and for their
 * drafts if many blocks are free. *slot_out is the request; not valid with SCHED_GROWTH_DONE.
 * blocks_free = blocks that can be taken. */
enum sched_memory_growth sched_memory_grow(struct sched_memory *memory, uint32_t blocks_free,
                                           sched_slot *slot_out);

/* Finds the candidate: the first waiting reservation. Returns false if no reservation waits, or if
 * the candidate must wait because of the prompts' share. Later reservations wait behind it.
 *
 * A candidate whose prompt runs on this machine does not wait for the share. Any other candidate
 * waits while its blocks and shared_blocks (struct sched_memory_counts) together are more than the
 * blocks outside the share. If its blocks alone are more, the candidate waits until shared_blocks
 * is 0. */
bool sched_memory_candidate_find(const struct sched_memory *memory, sched_slot *slot_out);
/* Grants the candidate the blocks that sched_memory_blocks reports. blocks_needed = blocks that the
 * caller must take: all these blocks, or fewer if the prefix cache has some. Returns false if
 * blocks_free is less than the sum of
 * - blocks_needed,
 * - the blocks that grants leave free for growing answers (growth_reserve_percent),
 * - the blocks of each path's first prompt that waits for blocks, if it arrived before the
 *   candidate. */
bool sched_memory_grant(struct sched_memory *memory, sched_slot slot, uint32_t blocks_needed,
                        uint32_t blocks_free);

/* Finds the granted reservation that must be given up to break a deadlock between machines
 * (sched_machine_deadlock_victim). If the result is true, the caller quarantines or removes the
 * request. Requires that no batch can begin now. prompt_holders = number of requests that hold
 * blocks of this machine and are decoded elsewhere, plus 1 if loads from tiers hold blocks. */
bool sched_memory_deadlock_victim(const struct sched_memory *memory, uint32_t blocks_free,
                                  uint32_t prompt_holders, sched_slot *slot_out);

struct sched_memory_counts {
    uint32_t holders; /* Requests that hold blocks. */
    uint32_t growing; /* Holders that have fewer spans than their spans_max. */
    /* Blocks of holders whose prompts do not run on this machine, copies included. A block of the
     * prefix cache that several requests read counts once for each request. */
    uint32_t shared_blocks;
};
/* Returns the present counts. The pointer is valid until sched_memory_close. */
const struct sched_memory_counts *sched_memory_counts(const struct sched_memory *memory);

#endif
