/* sched_memory: the policy for the KV blocks of one machine. It decides how many blocks a request
 * that is decoded on the machine gets before its KV arrives, which waiting reservation is granted
 * next, which answer gets one more block, which answer is preempted when no block is left, and
 * which reservation is given up so that machines do not wait for each other. The token pool, the
 * simulator and the tests of the scheduler use this code, so that a simulated machine decides as a
 * real one. The gateway calls sched_memory_prompt_share, which needs no machine.
 *
 * The caller reports events and carries out the decisions. It owns the blocks themselves (their ids
 * and contents) and passes how many can be taken. Requests are slots of a sched_machine, which
 * keeps their order. Prompts that are computed here and decoded elsewhere are not given to
 * sched_memory, only to that sched_machine: they take their blocks when they start.
 *
 * Pure: no clock, no I/O, no log, no allocation after opening; bounded by slot_count. Called by the
 * machine's event loop; not thread-safe.
 *
 * A machine calls this module in the following order, before its next batches:
 * 1. sched_memory_grow until it returns SCHED_GROWTH_DONE (and again after each batch that begins
 *    while others are in flight): running answers go before new requests.
 * 2. sched_memory_candidate and sched_memory_grant, until one of them returns false.
 * 3. sched_memory_deadlock_victim, after all batches that can begin have begun.
 *
 * No request waits for ever. Blocks are held by four kinds of requests:
 * - Running answers. They end, grow or are preempted. An answer that must grow never waits for
 *   another answer to end, because one is preempted if no block is left. (If that one is in a
 *   batch, the machine waits for the batch; scheduler/machine/machine.h says why that wait ends.)
 * - Reservations whose KV is awaited. If the prompt runs on this machine, it uses the reserved
 *   blocks. Another machine may keep a part of its memory for such prompts
 *   (sched_memory_prompt_share). If it does not, the prompt may wait there for blocks that such
 *   reservations hold; then one of them is given up in time (sched_machine_deadlock_victim says
 *   why no circle is left).
 * - Prompts that are decoded elsewhere. They leave with their KV.
 * - Quarantined requests. A message of the prompt machine frees them, or the end of their lease.
 *
 * So all blocks come back. The first waiting reservation gets its blocks, because no later one is
 * served before it, and because no blocks are left to growing answers (growth_reserve_percent) when
 * there are none. A request is preempted at most preemptions_max times; then its whole answer is
 * reserved, and it needs no further block. */
#ifndef SCHEDULER_MEMORY_H
#define SCHEDULER_MEMORY_H

#include "scheduler/machine/machine.h"

struct sched_memory;

struct sched_memory_options {
    uint32_t block_count;    /* KV blocks of the machine. */
    uint32_t block_tokens;   /* Tokens of a block. */
    uint32_t context_tokens; /* Longest context: prompt and answer of the largest request. */
    /* Slots of the requests that are decoded here: first_slot … first_slot + slot_count - 1. */
    sched_slot first_slot;
    uint32_t slot_count;
    uint32_t growth_tokens; /* Tokens of an answer whose blocks are reserved with its prompt. */
    /* Percentage of all blocks that new requests leave to growing answers. */
    uint32_t growth_reserve_percent;
    /* After this many preemptions, a request's whole answer is reserved. */
    uint32_t preemptions_max;
};

/* `sched` must outlive the result. */
enum status sched_memory_open(const struct sched_memory_options *options,
                              struct sched_machine *sched, struct sched_memory **out);
void sched_memory_close(struct sched_memory *memory); /* NULL is fine */

/* ---- the share of prompts ---- */

/* Returns the number of blocks that a machine in the mixed pool keeps from reservations whose
 * prompts run elsewhere: the blocks of one context, at most half of all blocks.
 *
 * Without a share, two mixed machines that prefill for each other could wait for each other for
 * ever once reservations filled both: a reservation holds blocks until its prompt has run, and that
 * prompt needs blocks on the other machine. Prompts with a share of their own always run, and free
 * it again. The gateway routes no request to a mixed machine that is larger than these shares. But
 * pools change while a machine has work of both phases, and a prompt that was sent before may be
 * larger than the share: then a reservation is given up (sched_memory_deadlock_victim). The share
 * makes that rare. */
uint32_t sched_memory_prompt_share(uint32_t block_count, uint32_t block_tokens,
                                   uint32_t context_tokens);

/* Sets whether the machine is in the mixed pool and keeps that share. False after opening. Takes
 * effect with the next reservation. */
void sched_memory_mixed_set(struct sched_memory *memory, bool mixed);

/* ---- one request ---- */

struct sched_memory_request {
    uint32_t prompt_tokens;
    uint32_t answer_tokens; /* Length of the longest answer. */
    uint32_t preemptions;   /* How often the request was preempted. */
    uint32_t path;          /* Path through the machine's stages. */
    bool local;             /* The request's prompt runs on this machine, in the reserved blocks. */
    struct sched_rank rank;
};

/* The blocks of a request. */
struct sched_memory_blocks {
    uint32_t count;     /* Blocks that the request has; until `granted`, that it gets first. */
    uint32_t count_max; /* Blocks for the prompt and the longest answer. */
    bool granted;       /* The reservation was granted. */
};

/* Returns the number of blocks that `tokens` tokens fill, the last one perhaps in part. */
uint32_t sched_memory_blocks_of(const struct sched_memory *memory, uint32_t tokens);

/* Queues a reservation. Requires an unused slot, and not more blocks than the machine has. */
void sched_memory_reserve(struct sched_memory *memory, sched_slot slot,
                          const struct sched_memory_request *request);
/* Returns the blocks of a request from sched_memory_reserve to sched_memory_remove. The pointer
 * stays valid until then. */
const struct sched_memory_blocks *sched_memory_blocks(const struct sched_memory *memory,
                                                      sched_slot slot);
/* Starts to decode a granted request, whose KV is complete. tokens_left = most tokens left to
 * generate. */
void sched_memory_decode(struct sched_memory *memory, sched_slot slot, uint32_t tokens_left);
/* Ends a granted request before its decode starts. Its blocks count as held until
 * sched_memory_remove, because a prompt machine may still write into them. */
void sched_memory_quarantine(struct sched_memory *memory, sched_slot slot);
/* Removes the request in any state, also from the sched_machine. The caller frees its blocks.
 * Requires that no batch contains the request. */
void sched_memory_remove(struct sched_memory *memory, sched_slot slot);

/* ---- decisions ---- */

enum sched_memory_growth {
    SCHED_GROWTH_DONE,    /* Every answer has room for its next token, or waits for a victim. */
    SCHED_GROWTH_BLOCK,   /* The caller takes one more block for the request. */
    SCHED_GROWTH_PREEMPT, /* The caller preempts the request: frees its blocks and removes it. */
};

/* Returns what is next for answers whose next token has no room, and for which request.
 * blocks_free = blocks that can be taken. */
enum sched_memory_growth sched_memory_grow(struct sched_memory *memory, uint32_t blocks_free,
                                           sched_slot *slot_out);

/* Finds the reservation that is next in the order. Returns false if none waits, or if the prompts'
 * share leaves no room for it; then no other reservation passes it. */
bool sched_memory_candidate(const struct sched_memory *memory, sched_slot *slot_out);
/* Grants the candidate its first blocks. blocks_needed = how many of these the caller must take:
 * all, or fewer if a prefix cache has some. Returns false, and the candidate waits, if blocks_free
 * is less than the sum of blocks_needed, the blocks left to growing answers, and those that prompts
 * before it in the order need. */
bool sched_memory_grant(struct sched_memory *memory, sched_slot slot, uint32_t blocks_needed,
                        uint32_t blocks_free);

/* Finds the reservation that must be given up to break a deadlock between machines
 * (sched_machine_deadlock_victim). prompt_holders = prompts that hold blocks of this machine and
 * are decoded elsewhere. On true the caller tells the request's gateway, and quarantines or removes
 * the request. */
bool sched_memory_deadlock_victim(const struct sched_memory *memory, uint32_t blocks_free,
                                  uint32_t prompt_holders, sched_slot *slot_out);

struct sched_memory_counts {
    uint32_t holders; /* Requests that hold blocks. */
    uint32_t growing; /* Holders that have fewer blocks than they may need. */
    /* Blocks of holders whose prompts run elsewhere. A block that several requests read counts for
     * each of them. */
    uint32_t shared_blocks;
};

const struct sched_memory_counts *sched_memory_counts(const struct sched_memory *memory);

#endif
