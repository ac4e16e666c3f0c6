/* cluster_model: the policy of scheduler/cluster/cluster.h again, simple enough to check by eye:
 * requests and machines are arrays, and every sum and every choice is computed from them each time.
 * test_cluster.c gives each random event to this model and to the scheduler, and compares actions
 * and sums, on its one thread. It is slow, and reads no clock: each event has its time. */
#ifndef TESTS_SCHEDULER_CLUSTER_MODEL_H
#define TESTS_SCHEDULER_CLUSTER_MODEL_H

#include "scheduler/cluster/cluster.h"
#include "tests/scheduler/queue_model.h"

#define MODEL_MACHINES 6
#define MODEL_REQUESTS 24
#define MODEL_ACTIONS  (3 * MODEL_REQUESTS + MODEL_MACHINES)

struct model_request {
    enum { MODEL_GONE, MODEL_WAITING, MODEL_ROUTED } place;
    bool resumed;
    uint32_t key;
    uint32_t weight;
    int32_t priority;
    uint32_t answer_charged;
    uint32_t answer_memory;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    bool computed;           /* True: its prompt is computed. */
    bool prefilled;          /* True: its KV is on the token machine. */
    uint32_t prompt_machine; /* Index of its prompt machine. */
    uint32_t token_machine;
    int64_t stranded_us; /* -1 = not stranded. */
    /* [0]: too large for its prompt machine if that were mixed; [1]: for its token machine. */
    bool too_large_if_mixed[2];
};

struct model_machine {
    bool up;
    bool draining;
    bool was_up; /* True: the machine was up at least once, so its memory is known. */
    bool busy;
    enum pool home;
    enum pool pool;
    uint64_t order; /* Order of its last move; 0 = none. */
    uint64_t kv_tokens;
    uint64_t mixed_kv_tokens;
    struct sched_kv kv;
    uint32_t cores;
    uint32_t prompt_rate;
    uint32_t output_rate;
    uint32_t push_rate;
    struct sched_step step;
    struct sched_others others;
    bool link[MODEL_MACHINES];
};

struct model {
    struct sched_cluster_options options;
    int64_t now_us;
    struct queue_model queue;
    uint64_t moves;
    bool paired;
    int64_t first_up_us;
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

/* Return sums over the requests on a machine: tokens of prompts that are not computed yet,
 * scheduled KV tokens, prompts, and answers. model_waiting returns the number of waiting requests,
 * and model_ready what sched_cluster_ready must return. */
uint64_t model_pending(const struct model *m, uint32_t machine);
uint64_t model_memory(const struct model *m, uint32_t machine);
/* Returns the KV memory of a context of `tokens` tokens on the machine, and of all its blocks, in
 * tokens. has_prompt = the machine also computes the prompt. */
uint64_t model_kv_tokens(const struct model_machine *machine, uint64_t tokens, bool has_prompt);
uint64_t model_capacity(const struct model_machine *machine);
uint32_t model_prompts(const struct model *m, uint32_t machine);
uint32_t model_decodes(const struct model *m, uint32_t machine);
uint32_t model_waiting(const struct model *m);
bool model_ready(const struct model *m);

#endif
