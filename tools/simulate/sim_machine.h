/* sim_machine: one machine of a simulated cluster. It runs the server's machine-level scheduler
 * (sched_machine) and the server's policy for KV blocks (sched_memory), and simulates their
 * effects: the number of free blocks, and the batches in flight through the machine's stages. A
 * simulation (sim_run.h) owns its machines, calls them on one thread and passes the virtual time. A
 * *task* is a reservation, a prompt or a copy of KV on the machine. A callback may remove tasks,
 * keep or forget KV, and call sim_machine_mixed_set. A callback must not add tasks, grant blocks,
 * or begin or end a batch. Not simulated here: quarantine, transfers of KV (sim_run_kv.c), and
 * shared cores (sim_cores.h). */
#ifndef TOOLS_SIMULATE_SIM_MACHINE_H
#define TOOLS_SIMULATE_SIM_MACHINE_H

#include "scheduler/machine/machine.h"
#include "scheduler/rates.h"
#include "tools/simulate/sim_cache.h"
#include "tools/simulate/sim_cores.h"
#include "tools/simulate/sim_machines.h"

struct sim_machine;

/* A computed chunk of a prompt. */
struct sim_chunk {
    uint32_t request;
    uint32_t first_token; /* Position of the chunk in the prompt. */
    uint32_t tokens;
    bool ends;      /* The prompt's last chunk. */
    double begin_s; /* When the chunk's batch began. */
    double end_s;   /* When the chunk's batch ended. */
};

/* What a machine reports. machine: the machine's index. request: the caller's number. */
struct sim_machine_calls {
    /* The request's reservation got its blocks. cached: first tokens whose KV the machine had. */
    void (*reserved)(void *self, uint32_t machine, uint32_t request, uint32_t cached);
    /* A batch contains a prompt task, or a reservation task, for the first time. cached: number of
     * the prompt's first tokens that are not computed, because the machine had their KV. */
    void (*began)(void *self, uint32_t machine, uint32_t request, uint32_t cached);
    /* A batch with a chunk of the request's prompt has ended. */
    void (*chunk_done)(void *self, uint32_t machine, const struct sim_chunk *chunk);
    /* A decode step has generated one more token of the request. */
    void (*decoded)(void *self, uint32_t machine, uint32_t request);
    /* A decode step has checked `checked` drafted tokens of an answer, and accepted the first
     * `accepted` tokens of this draft. */
    void (*drafted)(void *self, uint32_t checked, uint32_t accepted);
    /* The request has lost its reservation. decoding: true = the request decoded, and an answer
     * needed more blocks; false = the reservation awaited KV, and was given up to break a deadlock
     * between machines. */
    void (*preempted)(void *self, uint32_t machine, uint32_t request, bool decoding);
    /* Only with options.prefixes: returns an array with a number for each full span of the
     * request's prompt and answer (sim_pool.h), valid until the request ends. */
    const uint32_t *(*contents)(void *self, uint32_t request);
    /* Only with options.prefix_step > 0: a prefix has entered the machine's prefix cache, or has
     * left it (struct kv_prefix_listener). */
    void (*prefix_changed)(void *self, uint32_t machine, uint64_t hash, bool held);
};

struct sim_machine_options {
    const struct sim_machine_facts *host;
    const struct config *config;
    uint32_t index; /* The machine's index in the cluster. */
    /* A mixed machine keeps blocks free for a prompt of context_tokens tokens, but at most half of
     * its blocks. */
    uint32_t context_tokens;
    const struct sim_machine_calls *calls;
    void *self;        /* First argument of the calls. */
    bool use_recorded; /* The machine records what sim_machine_use returns. */
    bool prefixes;     /* Requests share prefixes in the machine's prefix cache. */
    /* Probability that a drafted token is right if all drafted tokens before it are right; 0 = no
     * drafts. A draft has scheduler/speculative_tokens tokens or fewer (scheduler/drafts.h). */
    double draft_right;
    uint64_t seed;        /* Seed of the draws whether drafted tokens are right. */
    uint32_t prefix_step; /* Spans from one reported prefix to the next; 0 = report no prefixes. */
};

/* Opens a machine in its home pool. Returns ST_NO_MEMORY, or an error of sched_paths_open,
 * sched_machine_open, sched_memory_open or sim_pool_open. */
enum status sim_machine_open(const struct sim_machine_options *options, struct sim_machine **out);
void sim_machine_close(struct sim_machine *m); /* NULL is fine. */

/* Sets whether the machine is in the mixed pool, where it keeps blocks for prompts. */
void sim_machine_mixed_set(struct sim_machine *m, bool mixed);

/* A reservation of blocks on the machine on which a request decodes. */
struct sim_reserve {
    uint32_t request;
    uint32_t prompt_tokens; /* Prompt, with the answer's tokens of earlier attempts. */
    uint32_t output_tokens; /* Tokens that are left to generate. */
    struct sched_rank rank;
    bool local;           /* The request's prompt is also computed on this machine. */
    uint32_t preemptions; /* Number of times that the request was preempted while it decoded. */
    /* Number of first tokens whose KV the machine has kept. Ignored with options.prefixes. */
    uint32_t cached;
    sim_cache_id kept; /* Blocks of the kept tokens (struct sim_kept); 0 = none. */
};

/* Adds a reservation to the queue. ST_NO_RESOURCE: no slot is free. ST_NO_MEMORY. */
enum status sim_machine_reserve(struct sim_machine *m, const struct sim_reserve *reserve,
                                sched_slot *slot_out);
/* A prompt that is computed on the machine. */
struct sim_prompt {
    uint32_t request;
    uint32_t tokens; /* Prompt, with the answer's tokens of earlier attempts. */
    /* Number of first tokens whose KV the machine has kept; < tokens. With options.prefixes,
     * ignored if `reserved` is SCHED_NO_SLOT. */
    uint32_t cached;
    /* Blocks of the kept tokens; 0 = none. Used only if `reserved` is SCHED_NO_SLOT. */
    sim_cache_id kept;
    /* Slot of the request's reservation on this machine; SCHED_NO_SLOT = decodes elsewhere. */
    sched_slot reserved;
    struct sched_rank rank;
};

/* Adds a prompt to the queue. ST_NO_RESOURCE: no slot is free. ST_NO_MEMORY. */
enum status sim_machine_prompt(struct sim_machine *m, const struct sim_prompt *prompt,
                               sched_slot *slot_out);
/* Begins to decode the request of the reservation in `slot`. Requires that the request's KV has
 * arrived. tokens_left: tokens left to generate. */
void sim_machine_decode(struct sim_machine *m, sched_slot slot, uint32_t tokens_left);
/* Removes a task. Frees the task's blocks and slot at once or, if batches in flight contain the
 * task, when the last of these batches ends. */
void sim_machine_remove(struct sim_machine *m, sched_slot slot);

/* ---- KV that stays in the prefix cache ---- */

/* KV of a request's first tokens that the machine keeps after the request has left. Other requests
 * may take the blocks of this KV. The blocks of the last tokens are taken first. */
struct sim_kept {
    uint32_t tokens; /* Tokens that were kept, in full blocks; 0 = none. */
    uint32_t blocks; /* Blocks of the kept tokens. */
    sim_cache_id id; /* The run of these blocks (sim_cache.h). */
};

/* Lets the machine keep the KV of the first `tokens` tokens of the task's request, in full blocks.
 * Call this function before sim_machine_remove. Keeps nothing if the task has no blocks, if KV of
 * the task is kept already, or if memory runs out. With options.prefixes, the KV enters the prefix
 * cache at once, and the result has no tokens. windows: also keep the KV of layers with a window;
 * used only with options.prefixes. */
struct sim_kept sim_machine_keep(struct sim_machine *m, sched_slot slot, uint32_t tokens,
                                 bool windows);
/* Returns how many of the kept tokens the machine still has. If a layer has a window, returns 0 as
 * soon as another request has taken one of the kept blocks. With options.prefixes, returns 0. */
uint32_t sim_machine_kept_tokens(const struct sim_machine *m, const struct sim_kept *kept);
/* Gives up the kept KV: the request will not return. Its blocks become unnamed (sim_cache.h). */
void sim_machine_forget(struct sim_machine *m, const struct sim_kept *kept);
/* Takes the blocks for a copy of `tokens` tokens of KV; sim_machine_remove frees them. windows:
 * also take blocks of layers with a window. kept: KV of these tokens that the machine has kept;
 * NULL = none. Returns false, with nothing changed, if the machine refuses copies now
 * (sched_memory_copy_grant), if its table is full, or if memory runs out. */
bool sim_machine_copy(struct sim_machine *m, uint32_t request, uint32_t tokens, bool windows,
                      const struct sim_kept *kept, sched_slot *slot_out);
/* Returns the number of the first tokens of a copy whose KV the machine had already. */
uint32_t sim_machine_copy_cached(const struct sim_machine *m, sched_slot slot);

/* Returns how many of the first `spans` spans of `contents` are in the prefix cache; 0 also if
 * memory runs out. Requires options.prefixes, and that no layer has a window. */
uint32_t sim_machine_prefix_spans(struct sim_machine *m, const uint32_t *contents, uint32_t spans);
/* Adds the first `spans` spans of `contents` to the prefix cache, as far as blocks are available.
 * Requirements are those of sim_machine_prefix_spans. Returns false if memory runs out. */
bool sim_machine_prefix_add(struct sim_machine *m, const uint32_t *contents, uint32_t spans);
/* Returns the measured microseconds of one prompt token; 0 = not known. */
double sim_machine_prompt_token_us(const struct sim_machine *m);

/* After each event of the machine, call sim_machine_grant, then sim_machine_start until it returns
 * false, then sim_machine_deadlock_break. */

/* Gives blocks to answers that need more, and preempts decodes if blocks are short. Then gives
 * blocks to the reservations that are next. */
void sim_machine_grant(struct sim_machine *m, double now_s);
/* Begins the next batch, and stores its work for sim_cores_batch_begin. Returns false if there is
 * no batch to begin. steps_s: sim_cores_steps_s of the machine; 0 = the machine shares no cores. */
bool sim_machine_start(struct sim_machine *m, double now_s, double steps_s,
                       struct sim_cores_work *work_out);
/* Gives up a reservation that awaits its KV, if machines may wait for each other in a circle
 * (sched_memory_deadlock_victim). */
void sim_machine_deadlock_break(struct sim_machine *m);
/* Returns when the next batch ends. Requires a batch in flight, and cores that are not shared. */
double sim_machine_due_s(const struct sim_machine *m);
/* Ends the batch in flight that ends next. */
void sim_machine_batch_end(struct sim_machine *m, double now_s);
/* Returns the number of batches in flight. */
uint32_t sim_machine_in_flight(const struct sim_machine *m);

/* The use of a machine. A device also counts as busy while its batch waits for shared cores. */
struct sim_machine_use {
    double prompt;  /* Share of the devices that is busy with prompts. */
    double decode;  /* Share of the devices that is busy with decodes. */
    double kv;      /* Share of the KV memory that is held. */
    uint32_t batch; /* Requests in the batches in flight. */
};
/* Stores the current use. Requires options.use_recorded. */
void sim_machine_use(const struct sim_machine *m, struct sim_machine_use *out);

/* Returns the tokens of the longest context that fits the KV memory. */
uint64_t sim_machine_kv_tokens(const struct sim_machine *m);
/* Returns the tokens of the longest context that fits the blocks that a mixed machine keeps free
 * for prompts. */
uint64_t sim_machine_mixed_kv_tokens(const struct sim_machine *m);
/* Returns what the cluster scheduler knows of the machine's KV memory. */
struct sched_kv sim_machine_kv(const struct sim_machine *m);
/* Returns the machine's measured rates, for the cluster scheduler. */
const struct sched_rates *sim_machine_rates(const struct sim_machine *m);

#endif
