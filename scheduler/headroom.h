/* headroom: by which factor the present traffic can grow until the SLO breaks. It replays the
 * latest answers (arrival, tokens) on the cluster's machines with the times between arrivals
 * divided by a factor, and searches for the greatest factor with which at most HEADROOM_MISSES of
 * the answers miss the limits of `slo`. The gateway calls it on its event loop thread, one replay
 * at a time. Pure: no clock, no I/O and no allocation. The caller owns struct headroom.
 *
 * Times of machines are the measured ones by which the scheduler decides (rates.h); a machine that
 * computes prompts beside answers divides its time as pace.h says. Unlike the simulator
 * (tools/simulate/), it knows no batches and no messages: the prompts of a machine are computed one
 * after another, each answer gets a token per step, and a step takes time by the number of answers.
 * Machines are chosen by rules 1 and 2 of cluster.h, where mixed machines help with a prompt that
 * would wait for half of the TTFT limit; no machine is lent, and every request of a prompt machine
 * is split. Drafted tokens (drafts.h) do not count. */
#ifndef SCHEDULER_HEADROOM_H
#define SCHEDULER_HEADROOM_H

#include "common/limits.h"
#include "scheduler/pace.h"
#include "scheduler/rates.h"

#define HEADROOM_ANSWERS  512
#define HEADROOM_MACHINES LIMIT_MACHINES
/* The SLO is broken if more than this part of the answers misses it, as for the alarm
 * CleaveSloMissed. */
#define HEADROOM_MISSES 0.1
/* The greatest factor that is searched and reported. */
#define HEADROOM_MOST 100.0

struct headroom_answer {
    int64_t at_us;            /* Arrival. */
    uint32_t computed_tokens; /* Prompt tokens that were not found in a cache. */
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
};

/* A machine, or several machines that take turns on the same cores. */
struct headroom_machine {
    bool prompts; /* It computes prompts. */
    bool answers; /* It computes answers. */
    struct sched_rates rates;
    uint64_t kv_tokens; /* Tokens for which it has KV memory. */
};

struct headroom_options {
    struct sched_pace_targets targets; /* The limits of the SLO. */
    uint32_t fill_tokens;   /* Prompt tokens that a batch has at least while prompts wait. */
    uint32_t batch_tokens;  /* Most prompt tokens of a batch. */
    uint32_t sequences_max; /* Most answers of a batch. */
    /* Gateways with the same machines, this one included. All count as having equal traffic. */
    uint32_t gateways;
};

/* What a factor is about. */
enum headroom_part {
    HEADROOM_PROMPTS, /* The time to the first token, without waiting for KV memory. */
    /* The mean time between tokens, and waiting for KV memory; as if machines that compute only
     * prompts took no time. */
    HEADROOM_TOKENS,
    HEADROOM_ALL, /* Both: an answer misses the SLO if it misses one of them. */
    HEADROOM_PARTS
};

struct headroom_result {
    double factor[HEADROOM_PARTS]; /* 0 = the SLO breaks even with a hundredth of the traffic. */
    /* The factor of the tokens is only a lower bound: all steps had the same number of answers, so
     * the time of larger steps is not known and was assumed to grow in proportion. */
    bool at_least;
};

/* A request in a replay. Lists of requests are linked by index + 1; 0 = the end. */
struct headroom_request {
    double at_us;    /* Arrival. */
    double since_us; /* When it got its first token, or its answer began. */
    /* Time that the rest of its prompt takes alone. When its answer has begun: time for which the
     * answer waited for KV memory. */
    double work_us;
    double last_token; /* Value of machine.token when its answer ends. */
    uint32_t next;
};

struct headroom_state {
    double now_us;      /* Its requests are as of this time. */
    double next_us;     /* When its next prompt or answer ends. */
    double prompt_rate; /* Prompt time that passes in a microsecond. */
    double token_rate;  /* Tokens of each answer in a microsecond. */
    double work_us;     /* Of all open prompts. */
    double token;       /* Tokens that an answer would have now if it had begun at time 0. */
    uint64_t kv_used;
    uint32_t answer_count;
    uint32_t prompts, prompts_last; /* The list of open prompts, in order of arrival. */
    uint32_t answers;               /* The list of answers, in order of their ends. */
    uint32_t waiting, waiting_last; /* The list of answers that wait for KV memory. */
};

/* A search. The caller fills the first six fields, then calls headroom_begin. */
struct headroom {
    struct headroom_options options;
    int64_t until_us; /* The time until which `answers` has all arrivals. */
    uint32_t answer_count;
    uint32_t machine_count;
    struct headroom_machine machines[HEADROOM_MACHINES];
    struct headroom_answer answers[HEADROOM_ANSWERS]; /* In order of arrival. */

    struct headroom_result result; /* Valid after headroom_step returned true. */

    double low[HEADROOM_PARTS];  /* The greatest factor that is known to be good; 0 = none. */
    double high[HEADROOM_PARTS]; /* The least factor that is known to be bad. */
    double span_us;              /* From the first arrival to until_us. */
    struct sched_step steps[HEADROOM_MACHINES];
    struct headroom_state states[HEADROOM_MACHINES];
    struct headroom_request requests[2 * HEADROOM_ANSWERS];
    bool tokens_only; /* This replay is about HEADROOM_TOKENS. */
    uint32_t missed[HEADROOM_PARTS];
    uint32_t counted;
};

/* Begins a search. Returns false if too little is known: fewer than 20 answers, no time between the
 * first arrival and until_us, no machine for a phase, or no machine with measured times for a
 * phase. Machines without measured times count as the mean of the others. */
bool headroom_begin(struct headroom *h);
/* Makes one replay, in about (answers × machines × 10) ns. Returns true when the search is over. */
bool headroom_step(struct headroom *h);

#endif
