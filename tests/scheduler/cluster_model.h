/* cluster_model: a second implementation of the policy of scheduler/cluster/cluster.h, simple
 * enough to check by eye: requests and machines are arrays, and every sum and every choice is
 * computed from them each time. test_cluster.c gives each random event to this model and to the
 * scheduler, and compares actions and sums, on its one thread. The caller owns the struct. The
 * model is slow, and reads no clock: each event has its time. */
#ifndef TESTS_SCHEDULER_CLUSTER_MODEL_H
#define TESTS_SCHEDULER_CLUSTER_MODEL_H

#include "scheduler/cluster/cluster.h"
#include "tests/scheduler/queue_model.h"

#define MODEL_MACHINES 6
#define MODEL_REQUESTS 24
#define MODEL_ACTIONS  (3 * MODEL_REQUESTS + MODEL_MACHINES)

struct model_request {
    enum { MODEL_GONE, MODEL_WAITING, MODEL_ROUTED } state;
    bool resumed;
    uint32_t key;
    uint32_t weight;
    int32_t priority;
    uint32_t answer_charged; /* Answer tokens that the request's key is charged. */
    uint32_t answer_memory;  /* Answer tokens for which memory is counted. */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    bool computed;           /* true: its prompt is computed. */
    bool prefilled;          /* true: its KV is on the token machine. */
    uint32_t prompt_machine; /* Index of its prompt machine. */
    uint32_t token_machine;  /* Index of its token machine. */
    /* Since when no machine could serve the request, even if all were idle; -1 = some could. */
    int64_t stranded_us;
    /* [0]: the request would be too large for its prompt machine in the mixed pool; [1]: for its
     * token machine. */
    bool too_large_if_mixed[2];
};

struct model_machine {
    bool up;
    bool draining;
    bool shared_cores; /* True: the machine shared cores at some time. */
    bool was_up;       /* True: the machine was up at least once, so its memory is known. */
    bool busy;
    enum pool home;
    enum pool pool;
    uint64_t order; /* Order of its last move; 0 = none. */
    uint64_t kv_tokens;
    uint64_t mixed_kv_tokens;
    struct sched_kv kv;
    uint32_t cores;
    uint32_t core_count;
    uint32_t threads;
    uint32_t prompt_rate;
    uint32_t output_rate;
    int64_t sends_until_us;    /* When the KV that the machine sends has left. */
    int64_t receives_until_us; /* When the KV that is sent to the machine has arrived. */
    struct sched_step_time step;
    struct sched_others others;
    /* Prompt tokens that came lately, the time in which they came, and when the latest came. */
    double recent_tokens;
    double recent_us;
    int64_t recent_at_us;
    bool link[MODEL_MACHINES];
};

struct model {
    struct sched_cluster_options options;
    int64_t now_us;
    struct queue_model queue;
    uint64_t moves;
    /* true: at some time, a prompt machine and a token machine were linked to each other. */
    bool paired;
    int64_t first_up_us; /* When the first machine was up. */
    struct model_request requests[MODEL_REQUESTS];
    struct model_machine machines[MODEL_MACHINES];
    struct {
        enum pool pool;
        enum pool home;
    } reported[MODEL_MACHINES];
    uint32_t action_count;
    struct sched_action actions[MODEL_ACTIONS];
};

void model_open(struct model *m, const struct sched_cluster_options *options);
/* Handles an event. Leaves the expected actions in m->actions. */
void model_event(struct model *m, const struct sched_event *event);
void model_configure(struct model *m, const struct sched_cluster_options *options, int64_t now_us);

/* Returns the tokens of the machine's prompts that are not computed yet. */
uint64_t model_pending(const struct model *m, uint32_t machine);
/* Returns the KV tokens that are scheduled on the machine. */
uint64_t model_memory(const struct model *m, uint32_t machine);
/* Returns the KV memory, in tokens, that a context of `tokens` tokens needs on the machine.
 * has_prompt = the machine also computes the prompt. */
uint64_t model_kv_tokens(const struct model_machine *machine, uint64_t tokens, bool has_prompt);
/* Returns the KV memory of all blocks of the machine, in tokens. */
uint64_t model_capacity(const struct model_machine *machine);
/* Return the number of prompts, and of answers, on the machine. */
uint32_t model_prompts(const struct model *m, uint32_t machine);
uint32_t model_decodes(const struct model *m, uint32_t machine);
/* Returns the part of the machine's time that its recent prompts take, with a rate in tokens/s. */
double model_prompts_part(const struct model *m, uint32_t machine, double rate);
/* Returns the number of waiting requests. */
uint32_t model_waiting(const struct model *m);
/* Returns what sched_cluster_ready must return. */
bool model_ready(const struct model *m);

#endif
