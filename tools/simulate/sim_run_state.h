/* sim_run_state: the state of one simulation, shared by sim_run*.c: sim_run.c has the loop and the
 * events of machines, sim_run_cluster.c the scheduler, its actions and the failures,
 * sim_run_requests.c the steps of a request, sim_run_kv.c the transfers of KV and the KV that
 * machines keep, sim_run_copies.c the checkpoints, sim_run_prefixes.c the prefixes that requests
 * share, sim_run_tiers.c the tiers below the machines' memory. sim_run owns the state; all
 * functions run on the thread of sim_run. Other parts use sim_run.h. */
#ifndef TOOLS_SIMULATE_SIM_RUN_STATE_H
#define TOOLS_SIMULATE_SIM_RUN_STATE_H

#include "common/text.h"
#include "events/event_text.h"
#include "tools/simulate/event_heap.h"
#include "tools/simulate/sim_machine.h"
#include "tools/simulate/sim_run.h"

/* States of a request. The legal transitions:
 *
 *   FREE -> ARRIVED -> RESERVE_SENT -> RESERVING -> PREFILL_SENT -> PREFILLING
 *             |  |         ^                           ^  ^             |
 *             |  +-> PULLING --------------------------+  |             v
 *             +-------------------------------------------+  DECODING <- TRANSFERRING
 *
 * from each state after ARRIVED to ARRIVED, when the request has lost its machine or its blocks,
 * and from each state except FREE to FREE, when the request ends. The event of the request's slot
 * ends RESERVE_SENT, PREFILL_SENT and TRANSFERRING, and ends a new request that is RESERVING for
 * too long (scheduler/queue_ms). */
enum run_request_state {
    RUN_FREE,    /* No request uses the slot. */
    RUN_ARRIVED, /* Waits until the scheduler routes the request. */
    RUN_PULLING, /* KV is copied from another machine's cache to the prompt machine. */
    /* The token machine does not have the reservation yet: RESERVE is on its way, or the machine
     * loads KV from a tier. */
    RUN_RESERVE_SENT,
    RUN_RESERVING, /* Waits for blocks of the token machine. */
    /* The prompt machine does not have the prompt yet: RESERVED and PREFILL are on their way, or
     * the machine loads KV from a tier. */
    RUN_PREFILL_SENT,
    RUN_PREFILLING,   /* The prompt is on the prompt machine, waiting or computed in part. */
    RUN_TRANSFERRING, /* The first token is generated; KV is on its way. */
    RUN_DECODING,     /* The token machine generates the answer. */
    RUN_STATE_COUNT
};

/* KV of a request that a machine keeps after the request has left the machine. */
struct run_kept {
    uint32_t machine;
    /* Failures of `machine` when the KV was kept. After one more failure, the KV is lost. */
    uint32_t failures;
    /* The blocks of layers with a window are also kept. If the model has such layers, a prompt
     * needs these blocks. */
    bool windows;
    struct sim_kept kv; /* 0 tokens = the entry is not in use. */
};

#define RUN_KEPT_MAX 4 /* Most machines of which a request records kept KV. */

/* The machine that keeps the most KV of a request, as far as the gateway knows. */
struct run_held {
    uint32_t machine;
    /* Failures of `machine` when the KV was kept. After one more failure, the KV is lost. */
    uint32_t failures;
    uint32_t tokens; /* Number of first tokens whose KV the machine keeps; 0 = no machine. */
    bool checkpoint; /* The KV belongs to a checkpoint. */
};

/* An arrival of KV on the token machine. */
struct run_arrival {
    double at_s;     /* Virtual time of the arrival. */
    uint32_t tokens; /* Number of the prompt's first tokens whose KV has then arrived. */
};

#define RUN_ARRIVALS_MAX 4 /* Most entries of run_request.arrivals. */

enum run_copy_state {
    RUN_COPY_NONE,         /* No copy is under way. */
    RUN_COPY_RESERVE_SENT, /* RESERVE is on its way to the second machine. */
    /* RESERVED is on its way to the gateway, or PREFILL to the machine that sends the KV. */
    RUN_COPY_PREFILL_SENT,
    RUN_COPY_WRITING, /* The KV is on its way to the second machine. */
};

/* A copy of KV on a second machine. A checkpoint copies the KV of a running answer. A pull
 * (RUN_PULLING) copies KV to the prompt machine, which then is the second machine. */
struct run_copy {
    enum run_copy_state state;
    bool chosen;                /* `machine` and `failures` are set. */
    bool partial;               /* The next copy adds SCHED_CHECKPOINT_BLOCKS_MAX blocks at most. */
    bool includes_windows;      /* The copy under way includes blocks of layers with a window. */
    bool had_windows;           /* `machine` had the window blocks of had_tokens before the copy. */
    bool pull;                  /* The copy under way is a pull. */
    uint32_t source;            /* The machine that sends the copy under way. */
    uint32_t source_failures;   /* Failures of `source` when the copy began. */
    uint32_t machine;           /* The second machine, which gets the copy. */
    uint32_t failures;          /* Failures of `machine` when it was chosen. */
    uint32_t tokens;            /* Tokens whose KV `machine` has, perhaps without window blocks. */
    uint32_t resumable_tokens;  /* Tokens after which the answer can be resumed on `machine`. */
    uint32_t tokens_after_copy; /* Tokens of `machine` after the copy under way; 0 = no copy. */
    uint32_t had_tokens;        /* Tokens that `machine` had before the copy under way. */
    sched_slot slot;            /* The copy's task on `machine`; SCHED_NO_SLOT = none. */
    int64_t due_us;             /* Earliest begin of the next checkpoint; 0 = not known. */
};

/* A checkpoint that is due. */
struct run_due {
    int64_t at_us;   /* When the checkpoint became due. */
    uint64_t number; /* Number of the request (struct run_request). */
    uint32_t slot;   /* Slot of the request. */
};

struct run_request {
    struct sim_arrival arrival;
    enum run_request_state state;
    bool prompt_began; /* A batch has contained the prompt, in any attempt. */
    /* This attempt: tokens of the prompt, including the answer's tokens of earlier attempts. */
    uint32_t attempt_prompt_tokens;
    uint32_t answer_tokens_before; /* Tokens of the answer when this attempt began. */
    uint32_t answer_tokens;        /* Tokens of the answer that were generated. */
    uint32_t prompt_machine;       /* SCHED_NO_MACHINE = not routed yet. */
    uint32_t token_machine;        /* SCHED_NO_MACHINE = none. */
    sched_slot prompt_slot;        /* Slot of the prompt on prompt_machine; SCHED_NO_SLOT = none. */
    sched_slot token_slot; /* Slot of the reservation on token_machine; SCHED_NO_SLOT = none. */
    uint64_t number;       /* Number of requests that got a slot before this request. */
    uint32_t preempted;    /* Number of preemptions while the request decoded. */
    uint32_t given_up;     /* Number of reservations that were given up while awaiting KV. */
    uint32_t restarted;    /* Number of restarts after a machine failed. */
    double ttft_s;         /* See struct sim_result. */
    double queue_s;        /* See struct sim_result. */
    double prompt_end_s;   /* When this attempt's first token was generated. */
    double transfer_s;     /* See struct sim_result. */
    double token_s;        /* When the request's latest token was generated. */
    double gap_s;          /* See struct sim_result. */
    uint64_t recomputed_tokens; /* See struct sim_result. */
    uint64_t reused_tokens;     /* See struct sim_result. */
    uint64_t checkpoint_tokens; /* See struct sim_result. */

    uint32_t cached_tokens;   /* This attempt: tokens that the prompt machine had in its cache. */
    uint32_t computed_tokens; /* This attempt: tokens whose KV the prompt machine has. */
    uint32_t sent_tokens;     /* This attempt: tokens whose KV was sent or need not be sent. */
    bool layerwise;           /* This attempt: KV is sent layer by layer. */
    uint32_t arrived_tokens;  /* This attempt: tokens whose arrival was reported (PROGRESS). */
    uint32_t arrival_count;   /* Entries of `arrivals` in use. */
    struct run_arrival arrivals[RUN_ARRIVALS_MAX]; /* The next changes of arrived_tokens. */
    struct run_kept kept[RUN_KEPT_MAX];
    struct run_held held;
    /* The scheduler's latest decision for the request, until the outcome is logged. */
    struct event_decision decision;
    uint32_t *contents; /* A number for each full span (sim_pool.h); NULL without prefixes. */
    /* A machine loads KV of the request from a tier; the event of the slot ends the load. */
    bool load_pending;
    uint32_t load_end; /* Number of first spans that the machine will have after the load. */
    struct run_copy copy;
};

/* A change of a machine's prefix cache. */
struct run_prefix_change {
    uint64_t hash; /* Hash of the prefix. */
    uint32_t machine;
    bool held; /* True: the prefix has entered the cache. False: it has left the cache. */
};

/* A machine of the cluster, and its links. */
struct run_machine {
    struct sim_machine *machine; /* NULL = the machine is down. */
    enum pool pool;              /* Current pool. */
    enum pool home;              /* Home pool. */
    bool begin_pending;          /* The machine is in `pending`. */
    /* While a batch is in flight: start of the time that has not been added to busy_s (struct
     * sim_machine_totals) yet. */
    double busy_since_s;
    bool latest_has_prompts; /* The batch that began last has prompt tokens. */
    double out_free_s;       /* When the machine's link can send again. */
    double in_free_s;        /* When the machine's link can receive again. */
    uint32_t failures;       /* Number of failures of the machine. */
};

struct run {
    struct sim_run_options options;
    struct sim_trace *trace;
    struct sim_report *report;
    struct error *error;
    enum status status; /* Error of a callback; ends the run. */
    double now_s;
    struct sched_cluster_options sched_options;
    struct sched_cluster *scheduler; /* The gateway's scheduler. */
    struct text text;                /* A line of the event log. */
    struct event_heap events;
    struct sim_cores cores;
    /* Requests share prefixes: the trace has hash ids, and kv/prefix_cache is on. */
    bool prefixes;
    /* Cores are limited, and all machines together have more threads than cores. */
    bool cores_shared;
    uint64_t number_next; /* Number of the next request. */
    /* Number of events since the last end of a batch or turn, or of a step of a request. */
    uint32_t quiet_events;
    uint32_t pending_count;
    /* Machines that may begin a batch after the current event. */
    uint32_t pending[SCHED_MACHINES_MAX];
    uint32_t lost_count;
    /* Requests reported as lost that have not arrived again yet. */
    uint32_t lost[LIMIT_CLUSTER_REQUESTS];
    uint32_t open;         /* Requests that have arrived and not ended. */
    uint32_t queued;       /* Open requests whose prompt has not begun yet. */
    bool check_is_planned; /* The heap has the event of the next check for checkpoints. */
    /* Scratch room of run_copies_check. */
    struct run_due dues[LIMIT_CLUSTER_REQUESTS];
    /* [change_count]: changes of prefix caches that are not reported yet. */
    struct run_prefix_change *changes;
    uint32_t change_count;
    uint32_t change_capacity; /* Capacity of `changes`. */
    struct run_tiers *tiers;  /* NULL = no machine has tiers. */
    uint32_t next_kill;       /* First entry of options.kills that is not done. */
    uint32_t slots_used;      /* Slots with this index or a higher index have never been used. */
    uint32_t free_count;
    uint32_t free_slots[LIMIT_CLUSTER_REQUESTS];
    struct run_request requests[LIMIT_CLUSTER_REQUESTS];
    struct run_machine hosts[SCHED_MACHINES_MAX];
    struct sim_run_totals *totals;
};

/* Ids of the events in the heap, in this order: each machine's end of a batch (with shared cores
 * also the end of a turn), each machine's failure or repair, the scheduler's timer, the report of
 * rates, the next kill of the list, the check for checkpoints, the report of prefixes, each
 * request's step, each request's copy. */
static inline uint32_t event_of_failure(const struct run *r, uint32_t host)
{
    return r->options.machines->count + host;
}

static inline uint32_t event_tick(const struct run *r)
{
    return 2 * r->options.machines->count;
}

static inline uint32_t event_rates(const struct run *r)
{
    return 2 * r->options.machines->count + 1;
}

static inline uint32_t event_kill(const struct run *r)
{
    return 2 * r->options.machines->count + 2;
}

static inline uint32_t event_copies(const struct run *r)
{
    return 2 * r->options.machines->count + 3;
}

static inline uint32_t event_prefixes(const struct run *r)
{
    return 2 * r->options.machines->count + 4;
}

static inline uint32_t event_of_slot(const struct run *r, uint32_t slot)
{
    return 2 * r->options.machines->count + 5 + slot;
}

static inline uint32_t event_of_copy(const struct run *r, uint32_t slot)
{
    return event_of_slot(r, LIMIT_CLUSTER_REQUESTS) + slot;
}

static inline int64_t run_now_us(const struct run *r)
{
    return (int64_t)(r->now_s * 1e6);
}

/* ---- sim_run.c ---- */

/* Lets the machine begin its next batch after the current event. */
void run_begin_later(struct run *r, uint32_t host);
/* Cancels the event of the machine's batches, because the machine has failed. */
void run_flights_forget(struct run *r, uint32_t host);

/* ---- sim_run_cluster.c ---- */

/* Open and close the scheduler, the machines and the tiers. Call run_cluster_close also after an
 * error of run_cluster_open, which sets r->error. */
enum status run_cluster_open(struct run *r);
void run_cluster_close(struct run *r);
/* Gives the scheduler an event, at the current time, and does the scheduler's actions. */
void run_event_apply(struct run *r, struct sched_event *event);
/* Writes the outcome of the scheduler's decision for the request to the event log, and forgets the
 * decision. computed: true = the prompt is computed; false = the attempt ended before. Does nothing
 * if there is no decision. */
void run_outcome_log(struct run *r, uint32_t slot, bool computed);
/* Handles the scheduler's timer. */
void run_tick(struct run *r);
/* Reports the rates of all machines that are up, and plans the next report. */
void run_rates_report(struct run *r);
/* Lets the machine fail or, if it is down, brings it back. */
void run_failure(struct run *r, uint32_t host);
/* Lets the machine of the next kill fail, if it is up. */
void run_kill(struct run *r);

/* Records the current use of a machine. Does nothing if options.usage is NULL. */
void run_usage_machine(struct run *r, uint32_t host);
/* Records the numbers of open and of queued requests. Does nothing if options.usage is NULL. */
void run_usage_requests(struct run *r);

/* ---- sim_run_requests.c ---- */

extern const struct sim_machine_calls run_machine_calls;

/* Begins a request, or adds the request to the report as refused if no slot is free. */
void run_request_arrive(struct run *r, const struct sim_arrival *arrival);
/* Does the next step of a request whose event is due. */
void run_request_step_end(struct run *r, uint32_t slot);
/* Does the scheduler's action SCHED_ROUTE. If the action names a machine to pull at least one block
 * from, and no layer has a window, begins the pull; else calls run_request_send. */
void run_request_route(struct run *r, const struct sched_action *action);
/* Sends a routed request (RUN_ARRIVED or RUN_PULLING) to its machines: RESERVE to the token machine
 * or, if there is none, PREFILL to the prompt machine. */
void run_request_send(struct run *r, uint32_t slot);
/* Ends a request that the scheduler has refused or that has expired. Rejects a new request that is
 * larger than any machine (sim_trace_reject), which ends the run unless wrong rows are skipped. */
void run_request_not_served(struct run *r, const struct sched_action *action);
/* Ends all open requests as failed. */
void run_requests_abandon(struct run *r);
/* Handles the loss of one of the request's machines: removes the request's tasks on other machines,
 * and lets the request arrive again. */
void run_request_lost(struct run *r, uint32_t slot);

/* ---- sim_run_kv.c ---- */

/* Records a computed chunk of the prompt, and sends the chunk's KV. Returns the time when the token
 * machine has all KV up to the chunk's end; the current time if no KV is sent. */
double run_kv_chunk(struct run *r, struct run_request *q, const struct sim_chunk *chunk);
/* Sends KV that is ready now over the links of two machines. Returns the time of its arrival. */
double run_kv_copy_s(struct run *r, uint32_t from, uint32_t to, uint64_t bytes);
/* Lets the machine keep the KV of the request's first tokens, and stores this KV in the machine's
 * tiers. Call this function before the request's task in `slot` is removed. windows: also keep the
 * blocks of layers with a window. Does nothing if `slot` is SCHED_NO_SLOT, if the machine is down,
 * or if kv/prefix_cache is off. */
void run_kv_keep(struct run *r, struct run_request *q, uint32_t machine, sched_slot slot,
                 uint32_t tokens, bool windows);
/* Does what run_kv_keep does if requests share prefixes (r->prefixes); else does nothing. */
void run_kv_share(struct run *r, struct run_request *q, uint32_t machine, sched_slot slot,
                  uint32_t tokens, bool windows);
/* Returns the entry of the KV that the machine keeps of the request; NULL = none. */
const struct run_kept *run_kv_kept(const struct run *r, const struct run_request *q,
                                   uint32_t machine);
/* Returns for how many of the request's first tokens a prompt can use the machine's kept KV. */
uint32_t run_kv_kept_tokens(const struct run *r, const struct run_request *q, uint32_t machine);
/* Tells the machines that keep KV of the request that the request has ended. */
void run_kv_forget(struct run *r, struct run_request *q);
/* Lets the machines of a lost request keep its KV, and records in q->held which KV the gateway
 * knows of. Call this function before the request's tasks are removed. Does nothing if
 * kv/prefix_cache is off. */
void run_kv_lost(struct run *r, struct run_request *q);

/* ---- sim_run_prefixes.c ---- */

/* Open and close q->contents, which are made from the hash ids of q->arrival. Do nothing if
 * requests share no prefixes. run_contents_open returns false if memory runs out. */
bool run_contents_open(struct run *r, struct run_request *q);
void run_contents_close(struct run_request *q);
/* Returns the number of spans from one reported prefix to the next; 0 = none are reported. */
uint32_t run_prefix_step(const struct run *r);
/* Stores the hashes of the prompt's prefixes for SCHED_ARRIVED, and returns their number. */
uint32_t run_prefix_hashes(const struct run *r, const struct run_request *q,
                           uint64_t out[SCHED_PREFIX_MAX]);
/* Records a change of the machine's prefix cache, for run_prefixes_report. */
void run_prefix_changed(struct run *r, uint32_t machine, uint64_t hash, bool held);
/* Forgets the changes of a machine that has failed. */
void run_prefixes_forget(struct run *r, uint32_t machine);
/* Reports all changes to the scheduler. */
void run_prefixes_report(struct run *r);

/* ---- sim_run_tiers.c ---- */

/* Open and close r->tiers. Returns ST_NO_MEMORY on failure. */
enum status run_tiers_open(struct run *r);
void run_tiers_close(struct run *r);
/* Empties the memory tier of a machine that comes up, forgets the measured loads of its tiers, and
 * reports its tiers to the scheduler. */
void run_tiers_up(struct run *r, uint32_t machine);
/* Stores the KV of the request's first `tokens` tokens in the machine's tiers. Call this function
 * when the KV has entered the machine's prefix cache. */
void run_tiers_store(struct run *r, const struct run_request *q, uint32_t machine, uint32_t tokens);
/* Call this function when the request's prompt or reservation reaches the machine. If loading KV
 * from tiers is faster than computing, begins to load the KV and returns true: the request must
 * wait until the event of its slot, when the load ends. A second call at that time ends the load
 * and returns false. */
bool run_tiers_wait(struct run *r, uint32_t slot, uint32_t machine);

/* ---- sim_run_copies.c ---- */

/* Begins the checks for due checkpoints, if checkpoints are made and no check is planned. */
void run_copies_begin(struct run *r);
/* Begins checkpoints that are due, and plans the next check if a request is open. */
void run_copies_check(struct run *r);
/* Call this function at the event of the request's copy: does the next step of the copy. */
void run_copy_step_end(struct run *r, uint32_t slot);
/* Begins to pull the KV of `tokens` tokens (full blocks) from `source` to the request's prompt
 * machine. Calls run_request_send when the pull has ended or failed. */
void run_pull_begin(struct run *r, uint32_t slot, uint32_t source, uint32_t tokens);
/* Cancels the request's copy, if one is under way, and resets the request's struct run_copy. */
void run_copy_end(struct run *r, uint32_t slot);

#endif
