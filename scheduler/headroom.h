/* headroom: estimates by which factor the present traffic can grow until the SLO breaks. A replay
 * simulates the latest requests on the cluster's machines, with the times between arrivals divided
 * by a factor. A search finds the greatest factor with which at most the part HEADROOM_MISSES of
 * the answers misses the limits of the SLO. The gateway calls the functions on its event loop
 * thread. Pure: no clock, no I/O and no allocation. The caller owns struct headroom.
 *
 * The machines' times are the measured times by which the scheduler decides (rates.h). A machine
 * that computes prompts beside answers divides its time as pace.h says. A replay is simpler than
 * the simulator (tools/simulate/): there are no messages, the prompts of a machine are computed one
 * after another, each step gives each answer one token, and the number of answers decides how long
 * the step takes. Machines are chosen by rules 1 and 2 of cluster.h, simplified: a mixed machine
 * with less work takes a prompt that would wait longer than half of the TTFT limit. No machine is
 * lent. */
#ifndef SCHEDULER_HEADROOM_H
#define SCHEDULER_HEADROOM_H

#include "common/limits.h"
#include "scheduler/pace.h"
#include "scheduler/rates.h"

/* Most answers of a search. A replay runs the whole list of answers twice. The first pass fills the
 * machines; only the second pass is counted. */
#define HEADROOM_ANSWERS 512
/* Most machines of a replay. */
#define HEADROOM_MACHINES LIMIT_MACHINES
/* The SLO is broken if more than this part of the answers misses its limits. */
#define HEADROOM_MISSES 0.1
/* The greatest factor that is reported. */
#define HEADROOM_MOST 100.0

struct headroom_answer {
    int64_t arrived_us;       /* When the request arrived. */
    uint32_t computed_tokens; /* Prompt tokens that were not found in a cache, ≥ 1. */
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
};

/* A machine, or several machines that take turns on the same cores. */
struct headroom_machine {
    bool computes_prompts;
    bool computes_answers;
    struct sched_rates rates;
    uint64_t kv_tokens; /* Tokens for which the machine has KV memory. */
};

struct headroom_options {
    struct sched_pace_targets targets; /* The limits of the SLO. */
    /* Waiting prompts join a batch until the batch has this many prompt tokens. */
    uint32_t fill_tokens;
    uint32_t batch_tokens;  /* Most prompt tokens of a batch. */
    uint32_t sequences_max; /* Most answers of a batch. */
    /* Gateways that share these machines, this gateway included; all have equal traffic. 0 = 1. */
    uint32_t gateways;
};

/* Which misses of the SLO a factor counts. */
enum headroom_part {
    HEADROOM_PROMPTS, /* The TTFT, without waiting for KV memory. */
    /* The mean TBT of an answer, and a TTFT that is too long only because the answer waited for KV
     * memory. In the replay, machines that compute only prompts take no time. */
    HEADROOM_TOKENS,
    HEADROOM_ALL, /* A miss of HEADROOM_PROMPTS or of HEADROOM_TOKENS. */
    HEADROOM_PARTS
};

struct headroom_result {
    double factor[HEADROOM_PARTS]; /* 0 = the SLO breaks even with a hundredth of the traffic. */
    /* The factor HEADROOM_TOKENS is only a lower bound: the fixed part of a machine's step time is
     * not known, so the time of larger steps was assumed to grow in proportion to the answers. */
    bool at_least;
};

/* A request in a replay. In lists, 1 + index in headroom.requests names a request; 0 = the end. */
struct headroom_request {
    double at_us;          /* When the request arrives. */
    double first_token_us; /* When the first token was computed. */
    double began_us;       /* When the answer began, after it waited for KV memory. */
    /* Time that the rest of the prompt takes if the machine computes no answers beside the prompt,
     * in batches filled with other prompts. */
    double work_us;
    double last_token; /* Value of headroom_state.token_clock at which the answer ends. */
    uint32_t next;     /* The next request of the list. */
};

/* The state of a machine in a replay. */
struct headroom_state {
    double now_us;           /* Time of this state. */
    double next_us;          /* When the machine's next prompt or answer ends. */
    double prompt_rate;      /* Part of the machine's time that prompts get. */
    double token_rate;       /* Tokens of each answer in a microsecond. */
    double work_us;          /* Sum of headroom_request.work_us of the open prompts. */
    double token_clock;      /* Tokens that an answer would have now if it had begun at time 0. */
    uint64_t kv_used_tokens; /* KV memory that the answers use, in tokens. */
    uint32_t answer_count;   /* Answers in the list `answers`. */
    uint32_t prompts, prompts_last; /* First and last open prompt, in order of arrival. */
    uint32_t answers;               /* First answer, in order of their ends. */
    uint32_t waiting, waiting_last; /* First and last answer that waits for KV memory. */
};

/* A search. The caller sets the fields before `result`, then calls headroom_begin, then
 * headroom_step until it returns true. */
struct headroom {
    struct headroom_options options;
    int64_t until_us; /* End of the period in which the requests of `answers` arrived. */
    uint32_t answer_count;
    uint32_t machine_count;
    struct headroom_machine machines[HEADROOM_MACHINES];
    struct headroom_answer answers[HEADROOM_ANSWERS]; /* In order of arrival. */

    struct headroom_result result; /* Valid after headroom_step has returned true. */

    /* The greatest factor that is known to be good; at first 0.01, which is not tested. */
    double low[HEADROOM_PARTS];
    /* The least factor that is known to be bad; at first more than HEADROOM_MOST, not tested. */
    double high[HEADROOM_PARTS];
    double span_us;                                  /* From the first arrival to until_us. */
    struct sched_step_time steps[HEADROOM_MACHINES]; /* Times of decode steps. */
    struct headroom_state states[HEADROOM_MACHINES];
    struct headroom_request requests[2 * HEADROOM_ANSWERS];
    bool tokens_only;                /* The replay is about HEADROOM_TOKENS. */
    uint32_t missed[HEADROOM_PARTS]; /* Answers of the replay that miss the SLO. */
    uint32_t counted;                /* Answers of the replay that have ended and count. */
};

/* Begins a search. Returns false if too little is known: fewer than 20 answers, no time between the
 * first arrival and until_us, no machine for a phase, or no measured times of a phase. Gives
 * machines without measured times the mean of the others. */
bool headroom_begin(struct headroom *h);
/* Makes one replay, in time O(answers × (machines + answers that run at once)). Returns true when
 * the search is over. */
bool headroom_step(struct headroom *h);

#endif
