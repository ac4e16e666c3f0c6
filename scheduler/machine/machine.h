/* sched_machine: the scheduler of one machine. It decides which prompts and decodes make up the
 * next batch, and which request gets KV memory next. It knows requests as slots (dense indices of
 * the caller's request table) and memory as numbers of blocks. Called by the machine's event loop;
 * the simulator calls the same code. Pure: no clock, no I/O, no log, no allocation after opening.
 * Not thread-safe.
 *
 * Policy (Splitwise, section IV):
 * - Prompts run in the order of their queue. Whole prompts are batched up to prompt_batch_tokens
 *   (and not beyond prompt_fill_tokens); longer prompts are cut into chunks.
 * - Decodes run in a continuous batch, as many as memory holds.
 * - On a machine with both, running decodes join every prompt batch. The prompt part of such a
 *   batch has at most mixed_prompt_tokens, and one place of the batch is kept for a prompt, so that
 *   neither kind starves the other.
 * - When memory is full, requests wait in order. Requests that wait for memory or for a batch are
 *   ordered by priority, and API keys share by weight (queue.h); without priorities and keys, the
 *   order is that of arrival, whichever gateway sent them.
 *
 * A machine whose layers are divided into stages has several batches in flight (GPipe's
 * micro-batches; Narayanan et al., PipeDream): a batch begins before the previous one is done, and
 * batches end in the order in which they began. The next chunk of a prompt follows directly behind
 * the chunk before. A decode is in one batch at a time, and each batch takes an even share of the
 * decodes. Where stages have replicas, a request keeps one path, because its KV is there. Each path
 * has its own batches and queues; all paths share the memory and the account of the keys. A machine
 * without stages has one path and one batch in flight.
 *
 * A decode may begin with less memory than its longest answer needs. It then grows while it runs.
 * When no block is left, a victim gives up its memory: the least urgent decode, and among equals
 * the youngest. */
#ifndef SCHEDULER_MACHINE_MACHINE_H
#define SCHEDULER_MACHINE_MACHINE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t sched_slot; /* < options.slot_count */

#define SCHED_NO_SLOT UINT32_MAX

/* Number of turns on a host's cores (host/turns.h) that a batch of decodes alone may take. A
 * decode step is short and all its answers wait for its end, so that it is cut only if it takes
 * many turns. */
#define SCHED_DECODE_TURNS 4

struct sched_machine_options {
    uint32_t slot_count; /* ≤ LIMIT_MACHINE_REQUESTS */
    /* Prompts join a batch while it has fewer prompt tokens than this; 0 = no such bound. */
    uint32_t prompt_fill_tokens;
    /* Most prompt tokens of a batch without decodes; usually 512; ≤ LIMIT_BATCH_TOKENS. */
    uint32_t prompt_batch_tokens;
    /* Most prompt tokens of a batch that has decodes as well; usually 512. */
    uint32_t mixed_prompt_tokens;
    uint32_t batch_sequences_max; /* ≤ LIMIT_BATCH_SEQUENCES */
    /* Waiting time after which a request joins the next more urgent priority class; 0 = never. */
    int64_t ageing_us;
    uint32_t path_count; /* Paths, ≤ LIMIT_STAGE_PATHS; 0 means 1. */
    /* Batches in flight per path, together ≤ LIMIT_BATCHES_IN_FLIGHT; 0 means 1. */
    uint32_t batches_in_flight;
    /* Most batches in flight per path that contain decodes: the groups over which decodes are
     * spread. The other batches contain only prompts, so that the next prompt batch is ready when
     * the first stage is free. 0 = all. */
    uint32_t decode_batches_in_flight;
    /* Prompt tokens of a batch if several batches may be in flight; replaces prompt_fill_tokens. A
     * prompt is cut so that each batch has this many. 0 = no such bound. */
    uint32_t micro_batch_tokens;
};

/* The urgency of a request on this machine, and the API key that it belongs to. */
struct sched_rank {
    /* Identifies the user; the same for all requests of a user, from every gateway. */
    uint64_t key;
    uint32_t weight;  /* Weight of the key against other keys; 0 counts as 1. */
    int32_t priority; /* Lower is more urgent; from -LIMIT_PRIORITY to LIMIT_PRIORITY. */
    bool resumed;     /* The request was served before: it goes before its equals. */
    int64_t born_us;  /* Time of the client's request: among equals, the youngest is the victim. */
    /* Number of the request, the same on all machines. Earlier requests have lower numbers (see
     * sched_machine_deadlock_victim). */
    uint64_t number;
};

struct sched_machine;

enum status sched_machine_open(const struct sched_machine_options *options,
                               struct sched_machine **out);
void sched_machine_close(struct sched_machine *sm); /* NULL is fine */

/* Sets the time, from which ageing follows; the order of the queues may change. Requires that it is
 * not called between a query of a queue and the batch that is built from the result. */
void sched_machine_time(struct sched_machine *sm, int64_t now_us);

/* Adds a prompt of `tokens` (≥ 1) tokens to the queue of `path` (< path_count). `blocks` is what
 * the prompt takes from this machine's block pool before it starts; 0 = its blocks are reserved
 * already (on a mixed machine that will decode the request too). rank NULL = no key, priority 0. */
void sched_machine_prompt_add(struct sched_machine *sm, sched_slot slot, uint32_t path,
                              uint32_t tokens, uint32_t blocks, const struct sched_rank *rank);

/* Finds the path's waiting prompt that needs blocks and follows `after` in the order in which
 * prompts start (SCHED_NO_SLOT = the first one). Returns false when there is no further one. */
bool sched_machine_prompt_after(const struct sched_machine *sm, uint32_t path, sched_slot after,
                                sched_slot *slot_out);
/* Sets how many tokens of a waiting prompt are left to compute and how many blocks are left to take
 * (≥ 1 each), after the beginning of the prompt was found in a prefix cache. Requires a prompt that
 * needs blocks. */
void sched_machine_prompt_left(struct sched_machine *sm, sched_slot slot, uint32_t tokens,
                               uint32_t blocks);

/* Queues a request for `blocks` blocks; the request has `tokens` tokens and will be decoded here.
 * It waits until sched_machine_reserve_next returns it. rank as in sched_machine_prompt_add. */
void sched_machine_reserve_add(struct sched_machine *sm, sched_slot slot, uint32_t blocks,
                               uint32_t tokens, const struct sched_rank *rank);
/* Finds the first waiting reservation, regardless of its size. Returns false if none waits. */
bool sched_machine_reserve_head(const struct sched_machine *sm, sched_slot *slot_out);
/* Sets how many blocks a waiting reservation still has to take, after others were found in a prefix
 * cache. */
void sched_machine_reserve_left(struct sched_machine *sm, sched_slot slot, uint32_t blocks);
/* Takes the first reservation out of the queue if blocks_free holds both it and the blocks of the
 * first prompt of each path, where that prompt arrived earlier. A large reservation at the head is
 * not overtaken. Returns false if there is none. The caller takes the blocks at once. */
bool sched_machine_reserve_next(struct sched_machine *sm, uint32_t blocks_free,
                                sched_slot *slot_out);

/* The request that sched_machine_reserve_next returned has its blocks, and its prompt runs on
 * another machine. It *awaits* its KV until sched_machine_decode_add or sched_machine_remove. */
void sched_machine_awaits(struct sched_machine *sm, sched_slot slot);

/* Finds the reservation that must be given up to break a deadlock between machines. Call it when no
 * further batch can begin.
 *
 * The deadlock: prompts on this machine wait for blocks. The blocks belong to reservations whose
 * prompts wait on other machines for blocks, and so on, until a prompt waits for blocks of this
 * machine again. A mixed machine keeps a share of its blocks for prompts, which prevents this. But
 * a machine's pool can change while it has both kinds of work, and a prompt that arrived before the
 * change may be larger than the share.
 *
 * Returns true, with the reservation to give up, if
 * - all `holders` requests that hold blocks here await their KV,
 * - the prompt that is next does not fit blocks_free, and
 * - the youngest request that awaits its KV (that with the highest number) is younger than some
 *   prompt that waits here. That request is returned.
 *
 * Why no request waits for ever: a request that holds blocks here and does not await KV is running,
 * being sent or being given back, and ends by itself. If all holders await their KV and none is
 * given up, each holder has a lower number than all prompts that wait here. The prompt of a holder
 * is computed, or waits on a machine where the same is true for a still lower number. Numbers are
 * the same everywhere, so such a chain ends at a prompt that runs. And no request is given up for
 * ever: it is given up only for a lower number, of which there is a finite number, and it then
 * waits behind the prompts that it gave way to. */
bool sched_machine_deadlock_victim(const struct sched_machine *sm, uint32_t blocks_free,
                                   uint32_t holders, sched_slot *slot_out);

struct sched_decode {
    uint32_t path;
    uint32_t tokens_left; /* Most tokens left to generate. */
    uint32_t room;        /* Tokens, of tokens_left, for which the request has memory already. */
    struct sched_rank rank;
    bool pinned; /* Never a victim. Requires room = tokens_left. */
};

/* Starts to decode `slot`, whose KV is complete on this machine. */
void sched_machine_decode_add(struct sched_machine *sm, sched_slot slot,
                              const struct sched_decode *decode);

/* Growth. Before each batch, and before memory is given to waiting requests, the caller gives
 * another block to each decode that sched_machine_short names, and reports the block with
 * sched_machine_grown (room for `tokens` ≥ 1 more tokens). If no block is left, the caller takes
 * the blocks of sched_machine_victim, which it removes. If there is no victim, the caller goes on.
 * A decode without room is in no batch, and no batch takes it.
 *
 * Why this ends: a decode that is short is not pinned, so a victim exists (perhaps the decode
 * itself) unless the least urgent decode is in flight. Each victim is one decode less. If the least
 * urgent decode is in flight, its batch will be done, and the caller then looks again: either
 * blocks have come free, or that decode is the victim. Only a still less urgent decode that has got
 * into a batch meanwhile can delay this. That decode had its memory before, because no request gets
 * memory while a decode is short, so each decode delays it at most once. (With one batch in flight,
 * no decode is in flight when the caller looks.) */
bool sched_machine_short(const struct sched_machine *sm, sched_slot *slot_out);
void sched_machine_grown(struct sched_machine *sm, sched_slot slot, uint32_t tokens);
/* Finds the least urgent decode that is not pinned; among equals, the youngest. Returns false if
 * that decode is in a batch and must be waited for, or if all are pinned. */
bool sched_machine_victim(const struct sched_machine *sm, sched_slot *slot_out);

/* Removes the request from the scheduler in any state (finished, cancelled, failed). Requires that
 * it is in no batch: the caller waits for sched_machine_batch_done. */
void sched_machine_remove(struct sched_machine *sm, sched_slot slot);
/* No further batch takes a chunk of the prompt, which the caller removes when it is in no batch. */
void sched_machine_stop(struct sched_machine *sm, sched_slot slot);
bool sched_machine_in_batch(const struct sched_machine *sm, sched_slot slot);

struct sched_batch_item {
    sched_slot slot;
    bool prompt; /* true: a chunk of a prompt; false: one decode step. */
    /* The prompt's first chunk. The caller takes the prompt's blocks before running it. */
    bool starts;
    bool ends;            /* The prompt's last chunk. A token is sampled from its last row. */
    uint32_t first_token; /* Position of the chunk in the prompt. */
    uint32_t token_count; /* Rows; 1 for a decode. */
};

struct sched_batch {
    /* Batch slot, < path_count × batches_in_flight; not reused until the batch is done. */
    uint32_t index;
    uint32_t path;
    uint32_t item_count;
    uint32_t row_count;
    struct sched_batch_item items[LIMIT_BATCH_SEQUENCES];
};

/* Builds the path's next batch. blocks_free = blocks that prompts may take when they start. Returns
 * false, with an empty batch, when there is nothing to run or the path has batches_in_flight
 * batches. */
bool sched_machine_batch_next(struct sched_machine *sm, uint32_t path, uint32_t blocks_free,
                              struct sched_batch *out);
/* Records that the path's oldest batch in flight has run: prompts whose last chunk was in it have
 * ended, and its decodes have one token less to generate. Ended prompts and finished decodes stay
 * known until they are removed or (a prompt on a mixed machine) become decodes. */
void sched_machine_batch_done(struct sched_machine *sm, uint32_t index);
/* Finds the path's oldest batch in flight, which is done next. Returns false if none is in flight.
 */
bool sched_machine_batch_oldest(const struct sched_machine *sm, uint32_t path, uint32_t *index_out);

struct sched_machine_load {
    uint32_t prompts_waiting;
    uint32_t prompts_running;
    uint64_t prompt_tokens_pending; /* Prompt tokens not computed yet. */
    uint32_t reservations_waiting;
    uint32_t decodes_running;
    uint64_t decode_tokens_pending;
};

void sched_machine_load(const struct sched_machine *sm, struct sched_machine_load *out);

#endif
