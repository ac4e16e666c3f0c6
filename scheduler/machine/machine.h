/* sched_machine: the scheduler of one machine. It decides which prompts and decodes form the next
 * batch, and which request gets KV memory next. machine/, prompt_pool/, token_pool/ and files of
 * scheduler/ call it on the machine's event loop thread; the simulator calls the same code. Not
 * thread-safe. Pure: no clock, no I/O, no log, no allocation after opening. The scheduler knows
 * requests as slots (indices of the caller's request tables) and memory as numbers of blocks. It
 * runs no batch and chooses no machine.
 *
 * Policy (Splitwise, section IV):
 * - Prompts run in the order of their queue (scheduler/queue.h). Waiting prompts join a batch
 *   whole, while the batch has fewer than prompt_fill_tokens prompt tokens and room for the prompt.
 *   A prompt that does not fit a batch without other prompts is cut into chunks; with several
 *   batches in flight, any prompt may be cut. A prompt whose blocks are reserved already may pass
 *   prompts that wait for blocks.
 * - A batch takes the decodes that can run (continuous batching). If the batch has too few places
 *   for all of them, the decodes alternate.
 * - A batch with decodes has at most mixed_prompt_tokens prompt tokens. If a prompt can run, one
 *   place of the batch is kept for a prompt; batches of one place alternate between prompts and
 *   decodes.
 * - Reservations are granted in the order of their queue (scheduler/queue.h).
 *
 * A machine with stages can have several batches in flight. The batches of a path end in the order
 * in which they began. A decode is in one batch at a time, and each batch takes an even share of
 * the decodes. Each path has its own batches and queues of prompts; all paths share the memory, the
 * queue of reservations and the accounts of the API keys. A machine without stages has one path and
 * one batch in flight.
 *
 * A decode may begin with less memory than its longest answer needs, and then grows while it runs.
 * When too few blocks are left, a victim gives up its memory: the least urgent decode that may be
 * preempted, and among equals the youngest. */
#ifndef SCHEDULER_MACHINE_MACHINE_H
#define SCHEDULER_MACHINE_MACHINE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t sched_slot; /* < options.slot_count */

#define SCHED_NO_SLOT UINT32_MAX /* No slot. */

/* With scheduler/turn_ms set, the turn of a batch that only decodes is longer by this factor. */
#define SCHED_DECODE_TURNS 4

struct sched_machine_options {
    uint32_t slot_count; /* From 1 to LIMIT_MACHINE_REQUESTS. */
    /* Prompts join a batch while it has fewer prompt tokens than this number; 0 = no such bound.
     * Used only with one batch in flight. */
    uint32_t prompt_fill_tokens;
    /* Most prompt tokens of a batch without decodes, from LIMIT_CHUNK_TOKENS_MIN to
     * LIMIT_BATCH_TOKENS. */
    uint32_t prompt_batch_tokens;
    /* Most prompt tokens of a batch with decodes, from LIMIT_CHUNK_TOKENS_MIN to
     * LIMIT_BATCH_TOKENS. sched_machine_mixed_tokens_set changes it. */
    uint32_t mixed_prompt_tokens;
    /* Most requests of a batch, and most rows of a batch that only decodes; from 1 to
     * LIMIT_BATCH_SEQUENCES. */
    uint32_t batch_sequences_max;
    /* Waiting time after which a request joins the next more urgent priority class; 0 = never. */
    int64_t ageing_us;
    uint32_t path_count; /* Paths, ≤ LIMIT_STAGE_PATHS; 0 = 1. */
    /* Batches in flight per path. On all paths together ≤ LIMIT_BATCHES_IN_FLIGHT; 0 = 1. */
    uint32_t batches_in_flight;
    /* Most batches in flight per path that contain decodes; 0 = batches_in_flight. */
    uint32_t decode_batches_in_flight;
    /* Most prompt tokens of a batch if several batches may be in flight. Prompts are then cut so
     * that batches are full. 0 = no such bound; otherwise at least LIMIT_CHUNK_TOKENS_MIN. */
    uint32_t micro_batch_tokens;
};

/* How urgent a request is on this machine, and the API key that it belongs to. */
struct sched_rank {
    /* Identifies the API key, with the same number from every gateway. */
    uint64_t key;
    uint32_t weight;  /* Weight of the key; 0 counts as 1. */
    int32_t priority; /* Lower is more urgent; from -LIMIT_PRIORITY to LIMIT_PRIORITY. */
    bool resumed;     /* The request was served before: it goes before others of its priority. */
    int64_t born_us;  /* Time of the client's request, for the choice of a victim. */
    /* Number of the request, with the same value on all machines. Earlier requests have lower
     * numbers (see sched_machine_deadlock_victim). */
    uint64_t request_number;
};

struct sched_machine;

/* Opens a scheduler without requests; *options is copied. Returns ST_INVALID if an option is
 * outside the range that its comment gives, ST_NO_MEMORY if memory is short. */
enum status sched_machine_open(const struct sched_machine_options *options,
                               struct sched_machine **out);
void sched_machine_close(struct sched_machine *sm); /* NULL is fine */

/* Sets the time and applies ageing, which may change the order of the queues. Must not be called
 * between sched_machine_prompt_after and the sched_machine_batch_next that uses its results. */
void sched_machine_time_set(struct sched_machine *sm, int64_t now_us);

/* Sets the option mixed_prompt_tokens for the batches that follow. Requires LIMIT_CHUNK_TOKENS_MIN
 * ≤ tokens ≤ LIMIT_BATCH_TOKENS. */
void sched_machine_mixed_tokens_set(struct sched_machine *sm, uint32_t tokens);

/* Sets the option prompt_fill_tokens for the batches that follow. */
void sched_machine_fill_tokens_set(struct sched_machine *sm, uint32_t tokens);

/* Adds a prompt of `tokens` (≥ 1) tokens to the queue of `path` (< path_count). blocks = number of
 * blocks that the caller takes before the prompt's first chunk runs; 0 = the prompt has its blocks
 * already, because this machine also decodes the request. rank NULL = no key, priority 0. Requires
 * an unused slot, or a slot whose reservation was granted. */
void sched_machine_prompt_add(struct sched_machine *sm, sched_slot slot, uint32_t path,
                              uint32_t tokens, uint32_t blocks, const struct sched_rank *rank);

/* Finds the waiting prompt that needs blocks and follows `after` in the queue of the path; after =
 * SCHED_NO_SLOT: the first such prompt of the queue. Returns false if there is none. */
bool sched_machine_prompt_after(const struct sched_machine *sm, uint32_t path, sched_slot after,
                                sched_slot *slot_out);
/* Sets the tokens that must still be computed for a waiting prompt, and the blocks that must still
 * be taken (≥ 1 each), after a look-up in the prefix cache. Requires a prompt that needs blocks. */
void sched_machine_prompt_left_set(struct sched_machine *sm, sched_slot slot, uint32_t tokens,
                                   uint32_t blocks);

/* Queues a reservation of `blocks` blocks for a request that this machine will decode, and charges
 * the request's key for `tokens` tokens. rank NULL = no key, priority 0. Requires an unused slot.
 */
void sched_machine_reserve_add(struct sched_machine *sm, sched_slot slot, uint32_t blocks,
                               uint32_t tokens, const struct sched_rank *rank);
/* Finds the first waiting reservation. Returns false if none waits. */
bool sched_machine_reserve_head(const struct sched_machine *sm, sched_slot *slot_out);
/* Sets the number of blocks that a waiting reservation must still take, after a look-up in the
 * prefix cache. */
void sched_machine_reserve_left_set(struct sched_machine *sm, sched_slot slot, uint32_t blocks);
/* Grants the first reservation: removes it from the queue and stores its slot. The caller then
 * takes the blocks at once. Returns false if none waits, or if blocks_free is less than this sum:
 * the reservation's blocks, and the blocks of each path's first prompt that waits for blocks, if it
 * arrived before the reservation. Later reservations then wait, too. */
bool sched_machine_reserve_next(struct sched_machine *sm, uint32_t blocks_free,
                                sched_slot *slot_out);

/* Records that a request whose reservation was granted has its blocks and awaits its KV from
 * another machine, until sched_machine_decode_add or sched_machine_remove. */
void sched_machine_await_begin(struct sched_machine *sm, sched_slot slot);

/* Finds the granted reservation that must be given up to break a deadlock between machines.
 * Requires that no batch can begin now. holders = number of requests with blocks of this machine.
 *
 * The deadlock: prompts on this machine wait for blocks that belong to reservations. The prompts of
 * these reservations wait on other machines for blocks that belong to other reservations, and so
 * on, in a circle.
 *
 * Returns true, and stores the holder with the highest request_number, if all holders await their
 * KV, the next prompt needs more than blocks_free, and some prompt that waits for blocks of this
 * machine has a lower request_number than that holder. scheduler/machine/memory.c proves that no
 * request waits for ever. */
bool sched_machine_deadlock_victim(const struct sched_machine *sm, uint32_t blocks_free,
                                   uint32_t holders, sched_slot *slot_out);

struct sched_decode {
    uint32_t path;
    uint32_t tokens_left; /* Most tokens left to generate. */
    uint32_t room_tokens; /* How many of the tokens_left tokens the request's blocks can hold. */
    struct sched_rank rank;
    bool pinned; /* The decode is never a victim. Requires room_tokens >= tokens_left. */
};

/* Starts to decode the request, whose KV is complete on this machine. Requires that the slot is
 * unused, that its reservation was granted, or that its prompt has ended on this machine. */
void sched_machine_decode_add(struct sched_machine *sm, sched_slot slot,
                              const struct sched_decode *decode);

/* Finds a decode whose blocks have no room for its next token; such a decode joins no batch. Before
 * waiting requests get memory, the caller takes the blocks of one more span for the decode, and
 * calls sched_machine_decode_grow. If too few blocks are left, the caller removes the decode that
 * sched_machine_victim_find finds; without a victim, the caller tries again after the next batch.
 * scheduler/machine/memory.c proves that the growth ends. */
bool sched_machine_short_find(const struct sched_machine *sm, sched_slot *slot_out);
/* Records that the decode has room for `tokens` (≥ 1) more tokens. Requires that the decode is in
 * no batch. */
void sched_machine_decode_grow(struct sched_machine *sm, sched_slot slot, uint32_t tokens);
/* Finds a decode in no batch whose next step would check more drafted tokens if the decode had more
 * blocks. The decode also runs without these blocks: take them only if many blocks are free. */
bool sched_machine_draft_short_find(struct sched_machine *sm, sched_slot *slot_out);
/* Finds the least urgent decode that is not pinned; among equals, the youngest. Returns false if
 * that decode is in a batch, or if no such decode exists. */
bool sched_machine_victim_find(const struct sched_machine *sm, sched_slot *slot_out);

/* Sets how many drafted tokens each step of a decode may check, until the next call.
 * sched_machine_decode_add sets 0. The step has one row more for each drafted token, as far as the
 * decode's memory and the batch have room; a batch that a prompt can join checks no drafts. After
 * the batch the caller reports the accepted tokens with sched_machine_decode_advance. */
void sched_machine_draft_set(struct sched_machine *sm, sched_slot slot, uint32_t tokens);
/* Records, after sched_machine_batch_done, that the step of a decode gave 1 + `tokens` tokens.
 * Requires tokens = 0, or that `tokens` is less than the item's token_count in that batch, and less
 * than the tokens that are then left to generate. */
void sched_machine_decode_advance(struct sched_machine *sm, sched_slot slot, uint32_t tokens);

/* Removes the request from the scheduler, in any state. Requires that it is in no batch. */
void sched_machine_remove(struct sched_machine *sm, sched_slot slot);
/* Keeps the further chunks of the prompt out of batches, if its first chunk was in a batch. No
 * effect on other requests. Call sched_machine_remove when no batch contains the prompt. */
void sched_machine_stop(struct sched_machine *sm, sched_slot slot);
/* Returns true if a batch in flight contains the request. */
bool sched_machine_in_batch(const struct sched_machine *sm, sched_slot slot);

struct sched_batch_item {
    sched_slot slot;
    bool is_prompt; /* true: a chunk of a prompt; false: one decode step. */
    /* The prompt's first chunk. The caller takes the prompt's blocks before the batch runs. */
    bool is_first_chunk;
    bool is_last_chunk;   /* The prompt's last chunk. */
    uint32_t first_token; /* Position of the chunk in the tokens that the prompt must compute. */
    /* Rows: the chunk's tokens; for a decode 1 + the drafted tokens to check. */
    uint32_t token_count;
};

struct sched_batch {
    /* Batch slot, < path_count × batches_in_flight. No other batch has the same index until this
     * batch ends. */
    uint32_t index;
    uint32_t path;
    uint32_t item_count;
    uint32_t row_count;                                   /* Sum of the items' token_count. */
    struct sched_batch_item items[LIMIT_BATCH_SEQUENCES]; /* Decodes first, then prompts. */
};

/* Builds the path's next batch. blocks_free = blocks that prompts can take. Returns false, with an
 * empty batch, if nothing can run or batches_in_flight batches of the path are in flight. */
bool sched_machine_batch_next(struct sched_machine *sm, uint32_t path, uint32_t blocks_free,
                              struct sched_batch *out);
/* Records that the batch with this index, which must be the oldest of its path, has ended. Prompts
 * whose last chunk was in the batch have ended, and the batch's decodes have one token less to
 * generate. Ended prompts and decodes keep their slots until sched_machine_remove; an ended prompt
 * may become a decode. */
void sched_machine_batch_done(struct sched_machine *sm, uint32_t index);
/* Finds the path's oldest batch in flight. Returns false if none is in flight. */
bool sched_machine_batch_oldest(const struct sched_machine *sm, uint32_t path, uint32_t *index_out);

struct sched_machine_load {
    uint32_t prompts_waiting; /* Prompts of which no chunk was in a batch. */
    /* Prompts whose first chunk was in a batch and whose last chunk is not computed. */
    uint32_t prompts_running;
    uint64_t prompt_tokens_pending; /* Prompt tokens not computed yet. */
    /* Prompt tokens not computed yet, plus the computed tokens of prompts that have more chunks to
     * put into a batch. */
    uint64_t prompt_tokens_open;
    uint32_t reservations_waiting;  /* Reservations that are not granted. */
    uint32_t decodes_running;       /* Decodes with tokens left to generate. */
    uint64_t decode_tokens_pending; /* Most tokens left to generate, of all decodes. */
};

/* Stores the load of all paths together. */
void sched_machine_load(const struct sched_machine *sm, struct sched_machine_load *out);

#endif
