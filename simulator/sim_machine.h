/* sim_machine: one machine of a simulated cluster: the server's machine-level scheduler
 * (sched_machine), and as much of the two pools as decides who waits for whom: KV blocks, answers
 * that grow into them and are preempted (token_pool/token_memory.c), the share that a mixed machine
 * keeps, the batches in flight through its stages. Virtual time; what it has to say comes out as
 * calls, during which tasks may be removed, and nothing else may be asked of it. */
#ifndef SIMULATOR_SIM_MACHINE_H
#define SIMULATOR_SIM_MACHINE_H

#include "scheduler/machine.h"
#include "scheduler/rates.h"
#include "simulator/sim_cores.h"
#include "simulator/sim_host.h"

struct sim_machine;

/* A chunk of a prompt has run from begin_s to end_s; `ends`: it was the last one. */
struct sim_chunk {
    uint32_t request;
    uint32_t tokens;
    bool ends;
    double begin_s;
    double end_s;
};

struct sim_machine_calls {
    void (*reserved)(void *self, uint32_t machine, uint32_t request);
    void (*began)(void *self, uint32_t machine, uint32_t request); /* its prompt, or decode */
    void (*chunk_done)(void *self, uint32_t machine, const struct sim_chunk *chunk);
    void (*decoded)(void *self, uint32_t machine, uint32_t request); /* one token more */
    void (*preempted)(void *self, uint32_t machine, uint32_t request);
};

struct sim_machine_options {
    const struct sim_host *host;
    const struct config *config; /* scheduler/ and kv/ */
    uint32_t index;
    uint32_t context_tokens; /* a mixed machine keeps blocks for so many, at most half */
    const struct sim_machine_calls *calls;
    void *self;   /* of the calls */
    bool watched; /* sim_machine_use will be asked */
};

enum status sim_machine_open(const struct sim_machine_options *options, struct sim_machine **out);
void sim_machine_close(struct sim_machine *m); /* NULL is fine */

/* Another pool: what it shares with others has changed. */
void sim_machine_role(struct sim_machine *m, enum sched_pool pool);

struct sim_reserve {
    uint32_t request;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    struct sched_rank rank;
    bool local;  /* its prompt runs here as well */
    bool pinned; /* was preempted so often that its whole answer is booked */
};

/* ST_NO_RESOURCE: the machine knows as many requests as it can. */
enum status sim_machine_reserve(struct sim_machine *m, const struct sim_reserve *reserve,
                                sched_slot *slot_out);
/* reserved: of a prompt that is decoded here as well, its reservation's slot; or SCHED_NO_SLOT. */
enum status sim_machine_prompt(struct sim_machine *m, uint32_t request, uint32_t tokens,
                               sched_slot reserved, const struct sched_rank *rank,
                               sched_slot *slot_out);
/* The KV of a reservation is here. */
void sim_machine_decode(struct sim_machine *m, sched_slot slot, uint32_t tokens_left);
/* The task goes, at once or when its batches are done; its number is the machine's again. */
void sim_machine_remove(struct sim_machine *m, sched_slot slot);

/* Grants memory, and begins the next batch, if there is one to begin; *work_out is what its cores
 * have to do for it. */
bool sim_machine_start(struct sim_machine *m, double now_s, struct sim_cores_work *work_out);
/* When the next batch in flight ends, on a machine that has its cores for itself. There is one. */
double sim_machine_due_s(const struct sim_machine *m);
/* That batch ends. */
void sim_machine_batch_end(struct sim_machine *m, double now_s);
uint32_t sim_machine_in_flight(const struct sim_machine *m);

/* Now: shares of all its devices that compute prompts and decodes, as long as it has cores for all
 * of them; the share of its KV memory that is held; requests in its batches in flight. */
struct sim_machine_use {
    double prompt;
    double decode;
    double kv;
    uint32_t batch;
};
void sim_machine_use(const struct sim_machine *m, struct sim_machine_use *out);

uint64_t sim_machine_kv_tokens(const struct sim_machine *m);
uint64_t sim_machine_mixed_kv_tokens(const struct sim_machine *m);
const struct sched_rates *sim_machine_rates(const struct sim_machine *m);

#endif
