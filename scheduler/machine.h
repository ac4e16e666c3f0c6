/* sched_machine: the machine-level scheduler: which prompts and which tokens make the next batch,
 * and who gets KV memory next. Pure: no clock, no I/O, no log, no allocation after opening; events
 * go in, batches come out. The simulator links the same object. It knows requests as slots (dense
 * indices of its caller's table) and memory as block counts.
 *
 * Policy (Splitwise, section IV): prompts in the order of their queue, whole ones batched up to
 * prompt_batch_tokens (and not beyond prompt_fill_tokens), longer ones in chunks; tokens in a
 * continuous batch, as many as memory holds; on a machine with both, running decodes ride along
 * with every prompt batch, whose prompt part is then at most mixed_prompt_tokens, and one place of
 * a batch is a prompt's: so neither kind starves the other. Memory full means waiting, in order.
 * Those that wait for memory or for a batch are served by priority, and keys share by weight
 * (queue.h); without these, in the order of their arrival, from whatever gateway they came.
 *
 * A machine whose layers are pipelined over stages has several batches in flight (GPipe's
 * micro-batches; Narayanan et al., PipeDream): the next one begins before the last one is done, and
 * batches end in the order in which they began. A prompt's next chunk goes right behind the one
 * before; a decode is in one batch at a time, and each batch takes its part of them, so that they
 * spread evenly however many come and go. Where stages are replicated, a request has one *path*, a
 * replica of each stage, for its KV is there: each path has batches and queues of its own, and all
 * share the memory and the account of the keys. With one path and one batch in flight nothing of
 * this shows.
 *
 * A decode may begin with less memory than its longest answer needs. Then it grows while it runs;
 * when there is no block left for one, a victim gives its memory up: the least urgent, then the
 * youngest. */
#ifndef SCHEDULER_MACHINE_H
#define SCHEDULER_MACHINE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t sched_slot; /* < options.slot_count */

#define SCHED_NO_SLOT UINT32_MAX

/* Of the turns on a computer's cores (common/turns.h) that a batch of decodes alone may take: a
 * step is short, and all its answers wait for its end, so that it is cut only if it is many turns
 * long. */
#define SCHED_DECODE_TURNS 4

struct sched_machine_options {
    uint32_t slot_count;          /* ≤ LIMIT_MACHINE_REQUESTS */
    uint32_t prompt_fill_tokens;  /* prompts join a batch while it has fewer prompt tokens; 0: no
                                     such bound */
    uint32_t prompt_batch_tokens; /* 512; ≤ LIMIT_BATCH_TOKENS */
    uint32_t mixed_prompt_tokens; /* 512: prompt tokens in a batch that has decodes as well */
    uint32_t batch_sequences_max; /* ≤ LIMIT_BATCH_SEQUENCES */
    int64_t ageing_us;   /* who waits for so long joins the next more urgent class; 0: never */
    uint32_t path_count; /* ≤ LIMIT_STAGE_PATHS; 0: 1 */
    uint32_t batches_in_flight; /* of one path; all paths: ≤ LIMIT_BATCHES_IN_FLIGHT. 0: 1 */
    /* Of these, so many have decodes at a time: the groups that they are spread over. The others
     * are of prompts only, whose next batch waits where the first stage takes it. 0: all. */
    uint32_t decode_batches_in_flight;
    /* Prompt tokens of a batch where several may be in flight, instead of prompt_fill_tokens: a
     * prompt is cut so that each batch has as many. 0: no such bound. */
    uint32_t micro_batch_tokens;
};

/* How urgent a request is among others on this machine, and whose. */
struct sched_rank {
    uint64_t key;     /* the same for all requests of one user, at every gateway */
    uint32_t weight;  /* of that key against others; 0 counts as 1 */
    int32_t priority; /* a lower one comes earlier; ± LIMIT_PRIORITY */
    bool resumed;     /* was served before: goes before its equals */
    int64_t born_us;  /* when its client asked: of equals, the youngest is the victim */
    /* Of the request, and the same on all machines: the lower one came first (yields, below). */
    uint64_t number;
};

struct sched_machine;

enum status sched_machine_open(const struct sched_machine_options *options,
                               struct sched_machine **out);
void sched_machine_close(struct sched_machine *sm); /* NULL is fine */

/* What time it is, for those that wait. Not between a look at those that wait and the batch that
 * follows from it: their order may change. */
void sched_machine_time(struct sched_machine *sm, int64_t now_us);

/* A prompt of `tokens` (≥ 1) has arrived. `blocks` is what it needs from this machine's pool before
 * it starts; 0 when its blocks are booked already (a mixed machine that will decode it too). rank
 * NULL: nobody's, of priority 0. path < path_count. */
void sched_machine_prompt_add(struct sched_machine *sm, sched_slot slot, uint32_t path,
                              uint32_t tokens, uint32_t blocks, const struct sched_rank *rank);

/* The path's waiting prompt that needs blocks and comes after `after` (SCHED_NO_SLOT: the first) in
 * the order in which they start; false: no more. */
bool sched_machine_prompt_after(const struct sched_machine *sm, uint32_t path, sched_slot after,
                                sched_slot *slot_out);
/* Of a waiting prompt that needs blocks, so many tokens are left to compute, and so many blocks to
 * take (≥ 1 each): the beginning was found in a cache. */
void sched_machine_prompt_left(struct sched_machine *sm, sched_slot slot, uint32_t tokens,
                               uint32_t blocks);

/* A request that will be decoded here asks for `blocks` blocks, for so many tokens. It waits, in
 * order, until sched_machine_reserve_next gives it its turn. rank as above. */
void sched_machine_reserve_add(struct sched_machine *sm, sched_slot slot, uint32_t blocks,
                               uint32_t tokens, const struct sched_rank *rank);
/* Whose turn is next, whatever it needs. False: nobody waits. */
bool sched_machine_reserve_head(const struct sched_machine *sm, sched_slot *slot_out);
/* Of a waiting reservation, so many blocks are left to take: others are found in a cache. */
void sched_machine_reserve_left(struct sched_machine *sm, sched_slot slot, uint32_t blocks);
/* The next reservation that fits blocks_free, beside what the first of the prompts that came before
 * of each path needs (a large one at the head is not overtaken). False: none. The caller takes the
 * blocks at once. */
bool sched_machine_reserve_next(struct sched_machine *sm, uint32_t blocks_free,
                                sched_slot *slot_out);

/* The reservation that had its turn has its blocks now, and its prompt runs on another machine. It
 * *awaits* its KV, until sched_machine_decode_add or sched_machine_remove. */
void sched_machine_awaits(struct sched_machine *sm, sched_slot slot);

/* The way out of a circle: prompts here wait for blocks of reservations whose prompts wait for
 * blocks elsewhere, and so on, until one waits for blocks here. A mixed machine keeps a share of
 * its blocks for prompts, so that this cannot begin; but roles change while both kinds of work are
 * there, and a prompt that came before may be larger than the share. The reservation that has to
 * be given up, if there is one: nothing but what awaits its KV holds blocks here (`holders`
 * requests do), the prompt whose turn is next does not fit blocks_free, and of those that await
 * their KV it is the youngest, and younger than some prompt that waits here. Asked when no more
 * batches begin.
 *
 * So nobody waits for ever. Whoever holds blocks here and awaits no KV runs, or is being sent, or
 * is given back, and ends by itself. If all who hold blocks await it and none has to be given up,
 * each of them has a lower number than all prompts that wait here; each one's own prompt is
 * computed, or waits on a machine of which the same holds, for a number that is lower still.
 * Numbers are the same everywhere, so such a chain ends, with a prompt that runs. And nobody is
 * given up for ever, for that happens only for the sake of a lower number, of which there are so
 * many; it waits behind the prompts that it made way for. */
bool sched_machine_yields(const struct sched_machine *sm, uint32_t blocks_free, uint32_t holders,
                          sched_slot *slot_out);

struct sched_decode {
    uint32_t path;
    uint32_t tokens_left; /* to generate, at most */
    uint32_t room;        /* of these, tokens that its memory holds already */
    struct sched_rank rank;
    bool pinned; /* never a victim; room = tokens_left, so it asks for nothing */
};

/* The KV is here: `slot` decodes. */
void sched_machine_decode_add(struct sched_machine *sm, sched_slot slot,
                              const struct sched_decode *decode);

/* Growth. Before each batch, and before memory is given to those that wait for it, the caller gives
 * each decode that sched_machine_short names another block, and says so with sched_machine_grown
 * (`tokens` ≥ 1 more have room). Has it no block left, it takes those of sched_machine_victim,
 * which it removes; is there no victim, it goes on without. One that is short is in no batch, and
 * no batch takes it.
 *
 * That ends. Whoever is short is not pinned, so there is a victim (perhaps itself) unless the one
 * that has to give way is in flight, and each victim is one decode less. In flight means that a
 * batch will be done, and then the caller looks again: either blocks have come free, or that decode
 * is the victim. Only a decode that is less urgent still and got into a batch meanwhile can put
 * this off; that one has its memory since before, for nobody gets any while one is short, so each
 * of those that hold memory now does it once at most. (With one batch in flight nobody is in flight
 * when the caller looks.) */
bool sched_machine_short(const struct sched_machine *sm, sched_slot *slot_out);
void sched_machine_grown(struct sched_machine *sm, sched_slot slot, uint32_t tokens);
/* The least urgent decode that is not pinned, of equals the youngest. False: that one is in a
 * batch, and to be waited for; or all are pinned. */
bool sched_machine_victim(const struct sched_machine *sm, sched_slot *slot_out);

/* The request leaves the scheduler, wherever it stands (finished, cancelled, failed). Legal at any
 * time but while it is in a batch: the caller waits for batch_done then. */
void sched_machine_remove(struct sched_machine *sm, sched_slot slot);
/* The prompt will be removed as soon as it is in no batch: no further batch takes a chunk of it. */
void sched_machine_stop(struct sched_machine *sm, sched_slot slot);
bool sched_machine_in_batch(const struct sched_machine *sm, sched_slot slot);

struct sched_batch_item {
    sched_slot slot;
    bool prompt; /* a chunk of a prompt, else one decode step */
    bool starts; /* the prompt's first chunk: the caller takes its `blocks` before running it */
    bool ends;   /* the prompt's last chunk: its last row is sampled */
    uint32_t first_token; /* of the chunk, in the prompt */
    uint32_t token_count; /* rows: 1 for a decode */
};

struct sched_batch {
    uint32_t index; /* which of those in flight: < path_count * batches_in_flight, and stays its own
                       until it is done */
    uint32_t path;
    uint32_t item_count;
    uint32_t row_count;
    struct sched_batch_item items[LIMIT_BATCH_SEQUENCES];
};

/* Builds the path's next batch: blocks_free is what the pool has for prompts that start. False (and
 * an empty batch) when there is nothing to run, or the path has batches_in_flight of them. */
bool sched_machine_batch_next(struct sched_machine *sm, uint32_t path, uint32_t blocks_free,
                              struct sched_batch *out);
/* The batch ran, the path's oldest one that was not done: prompts whose last chunk it had have
 * ended, decodes have one token less to go. Prompts that ended and decodes that are finished stay
 * known until they are removed or (a prompt on a mixed machine) become decodes. */
void sched_machine_batch_done(struct sched_machine *sm, uint32_t index);
/* The path's oldest batch in flight, which is done next. False: none is. */
bool sched_machine_batch_oldest(const struct sched_machine *sm, uint32_t path, uint32_t *index_out);

struct sched_machine_load {
    uint32_t prompts_waiting;
    uint32_t prompts_running;
    uint64_t prompt_tokens_pending; /* not computed yet */
    uint32_t reservations_waiting;
    uint32_t decodes_running;
    uint64_t decode_tokens_pending;
};

void sched_machine_load(const struct sched_machine *sm, struct sched_machine_load *out);

#endif
