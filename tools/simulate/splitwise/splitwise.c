/* splitwise: see the header. A machine's event is the end of its run, a request's event is a try or
 * the end of its transfer. Arrivals come from the sorted trace, and go before events of the same
 * time. */
#include "tools/simulate/splitwise/splitwise.h"

#include "tools/simulate/event_heap.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* What splitwise_request does not have. */
struct request {
    struct sim_arrival arrival;
    double ttft_s;
    uint32_t prompt_machine;
    uint32_t token_machine;
    /* True: the event of the slot is the end of the transfer. False: it is a try to begin it. */
    bool sending;
    bool retries; /* An earlier try found no memory. */
};

struct host {
    struct splitwise_machine machine;
    uint32_t waiting; /* Waiting tasks that are counted in run.waiting. */
    double due_s;     /* Time of the machine's event; < 0 = none. */
    bool busy;        /* As last reported to the scheduler. */
};

struct run {
    const struct splitwise_setup *setup;
    struct sim_trace *trace;
    splitwise_done_call done;
    void *self;
    struct error *error;
    enum status status;
    double now_s;
    struct sched_cluster *sc;
    struct sched_actions actions;
    struct event_heap events; /* Ids: hosts, then slots. */
    struct host *hosts;
    /* Indexed by slot. Entries above open_most are never touched, so their pages use no memory. */
    struct splitwise_request *tasks;
    struct request *requests;
    uint32_t *free_slots;
    uint32_t free_count;
    uint32_t open;
    uint32_t waiting;
    uint32_t retrying; /* Transfers that found no memory. */
    uint64_t vain;     /* Tries in a row that found no memory, since the last other event. */
    struct splitwise_totals totals;
};

void splitwise_setup_default(struct splitwise_setup *out)
{
    *out = (struct splitwise_setup){
        .link_bytes_per_s = 200.0 * (1 << 30),
        .retry_s = 1,
        .prompt_queue_threshold_tokens = 8192,
        .machine = {.batch_tasks_max = 512, .batch_tokens_max = 2048, .preemptions_max = 4},
    };
}

/* ---- the scheduler ---- */

static uint32_t slots_most(const struct run *r)
{
    uint32_t most = r->setup->open_max;
    return most > 0 && most < SCHED_REQUESTS_MAX ? most : SCHED_REQUESTS_MAX;
}

/* Opens the scheduler of cluster.h with the reference's behaviour where it differs. The options do
 * not come from sched_cluster_options_make, because the reference knows no config and has none of
 * cleave's own rules: every option that is not set here (limits of a machine's work, answers that
 * grow, ageing, the grace period, a preference to stay, deadlines, repurposing) is off. */
static enum status scheduler_open(struct run *r)
{
    const struct splitwise_setup *setup = r->setup;
    const struct sched_cluster_options options = {
        .request_count = slots_most(r),
        .machine_count = setup->host_count,
        .queue_requests_max = slots_most(r),
        .prompt_queue_threshold_tokens = setup->prompt_queue_threshold_tokens,
        .token_memory_threshold = true,
        .adaptive = setup->split,
        .unsplit = !setup->split,
        .busy_is_reported = true,
        .homing = SCHED_HOMING_REPORTED,
        .lends_as_splitwise = true,
    };
    return sched_cluster_open(&options, &r->sc);
}

static void event_apply(struct run *r, const struct sched_event *event)
{
    sched_cluster_event(r->sc, event, &r->actions);
    r->totals.events++;
    for (uint32_t i = 0; i < r->actions.count; i++)
        r->totals.moves += r->actions.items[i].kind == SCHED_MOVED;
}

static int64_t now_us(const struct run *r)
{
    return (int64_t)(r->now_s * 1e6);
}

static void request_event_apply(struct run *r, enum sched_event_kind kind, uint32_t slot)
{
    event_apply(r, &(struct sched_event){.kind = kind, .now_us = now_us(r), .request = slot});
}

/* Returns the tokens of KV that fit beside the weights. The reference refuses a request if the
 * scheduled tokens and its own equal the memory, so the scheduler gets one token less if the memory
 * is a whole number of tokens. */
static uint64_t memory_tokens(const struct splitwise_setup *setup, uint32_t i, bool scheduled)
{
    uint64_t all = setup->hosts[i].memory_bytes;
    uint64_t bytes = all > setup->weights_bytes ? all - setup->weights_bytes : 0;
    uint64_t tokens = bytes / setup->kv_bytes_per_token;
    tokens = tokens < UINT32_MAX ? tokens : UINT32_MAX;
    return scheduled && tokens > 0 && bytes % setup->kv_bytes_per_token == 0 ? tokens - 1 : tokens;
}

static void machines_announce(struct run *r)
{
    uint32_t count = r->setup->host_count;
    for (uint32_t i = 0; i < count; i++)
        event_apply(r, &(struct sched_event){.kind = SCHED_MACHINE_UP,
                                             .machine = i,
                                             .pool = r->setup->hosts[i].home,
                                             .kv_tokens = memory_tokens(r->setup, i, true)});
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < count; j++)
            if (i != j)
                event_apply(r,
                            &(struct sched_event){.kind = SCHED_LINK_UP, .machine = i, .peer = j});
}

/* ---- machines ---- */

/* Records the use of a machine. A batch of prompts and decodes is divided by its tokens. */
static void usage_set(struct run *r, uint32_t i)
{
    struct host *host = &r->hosts[i];
    const struct splitwise_machine *m = &host->machine;
    struct sim_usage *usage = r->setup->usage;
    if (usage == NULL)
        return;
    double decodes = m->batch_count - m->batch_prompts;
    double share = m->batch_count > 0 ? decodes / fmax(decodes, (double)m->batch_tokens) : 0;
    r->waiting += m->waiting.count - host->waiting;
    host->waiting = m->waiting.count;
    sim_usage_set(usage, i, SIM_USAGE_PROMPT, m->batch_count > 0 ? 1 - share : 0, r->now_s);
    sim_usage_set(usage, i, SIM_USAGE_DECODE, share, r->now_s);
    sim_usage_set(usage, i, SIM_USAGE_KV, (double)m->used_tokens / fmax(m->memory_tokens, 1),
                  r->now_s);
    sim_usage_set(usage, i, SIM_USAGE_BATCH, m->batch_count, r->now_s);
    sim_usage_set_cluster(usage, SIM_USAGE_OPEN, r->open, r->now_s);
    sim_usage_set_cluster(usage, SIM_USAGE_QUEUED, r->waiting, r->now_s);
}

/* Updates the machine's event and its report to the scheduler after every call of the machine. */
static void host_sync(struct run *r, uint32_t i)
{
    struct host *host = &r->hosts[i];
    const struct splitwise_machine *m = &host->machine;
    if (m->out_of_memory)
        r->status = error_set(r->error, ST_NO_MEMORY, "out of memory");
    if (m->batch_count > 0 && host->due_s != m->run_ends_s) {
        host->due_s = m->run_ends_s;
        event_heap_put(&r->events, i, host->due_s);
    }
    usage_set(r, i);
    if (host->busy == (m->pending.count > 0) || !r->setup->split)
        return;
    host->busy = !host->busy;
    event_apply(
        r, &(struct sched_event){
               .kind = SCHED_MACHINE_QUEUE, .now_us = now_us(r), .machine = i, .busy = host->busy});
}

static void task_arrives(struct run *r, uint32_t i, uint32_t slot, enum splitwise_kind kind)
{
    splitwise_machine_arrive(&r->hosts[i].machine, slot, kind, r->now_s);
    host_sync(r, i);
}

/* ---- requests ---- */

static enum status slot_take(struct run *r, uint32_t *slot_out)
{
    uint32_t slots = r->events.capacity - r->setup->host_count;
    if (r->free_count == 0 && r->open == slots_most(r))
        return error_set(r->error, ST_NO_RESOURCE, "%s: more than %u requests are open",
                         r->trace->name, slots_most(r));
    if (r->open == slots &&
        event_heap_reserve(&r->events, r->setup->host_count + (slots == 0 ? 1024 : 2 * slots)) !=
            ST_OK)
        return error_set(r->error, ST_NO_MEMORY, "out of memory");
    *slot_out = r->free_count > 0 ? r->free_slots[--r->free_count] : r->open;
    r->open++;
    if (r->open > r->totals.open_max)
        r->totals.open_max = r->open;
    return ST_OK;
}

static void slot_give(struct run *r, uint32_t slot)
{
    r->free_slots[r->free_count++] = slot;
    r->open--;
}

static void request_end(struct run *r, uint32_t slot)
{
    const struct request *request = &r->requests[slot];
    double e2e_s = r->now_s - request->arrival.at_s;
    const struct splitwise_result result = {
        .arrival = &request->arrival,
        .ttft_s = request->ttft_s,
        .tbt_s = (e2e_s - request->ttft_s) / request->arrival.output_tokens,
        .e2e_s = e2e_s,
        .prompt_machine = request->prompt_machine,
        .token_machine = request->token_machine,
    };
    r->totals.requests++;
    r->totals.last_s = r->now_s;
    event_apply(r, &(struct sched_event){.kind = SCHED_ENDED,
                                         .now_us = now_us(r),
                                         .request = slot,
                                         .output_tokens = request->arrival.output_tokens});
    r->done(r->self, &result);
    slot_give(r, slot);
}

/* Returns true if the answer is one token. The reference then makes a decode of no tokens, which
 * never ends; here the request ends with its prompt. */
static bool answer_is_one(const struct run *r, uint32_t slot)
{
    return r->requests[slot].arrival.output_tokens == 1;
}

static enum status request_arrive(struct run *r, const struct sim_arrival *arrival)
{
    uint32_t slot = 0;
    enum status status = slot_take(r, &slot);
    if (status != ST_OK)
        return status;
    event_apply(r, &(struct sched_event){.kind = SCHED_ARRIVED,
                                         .now_us = now_us(r),
                                         .request = slot,
                                         .prompt_tokens = arrival->prompt_tokens,
                                         .output_tokens = arrival->output_tokens,
                                         .key_index = UINT32_MAX,
                                         .weight = 1});
    assert(r->actions.count > 0);
    const struct sched_action *action = &r->actions.items[r->actions.count - 1];
    if (action->kind != SCHED_ROUTE) {
        slot_give(r, slot);
        return sim_trace_reject(r->trace, arrival, "larger than any machine", r->error);
    }
    r->requests[slot] = (struct request){.arrival = *arrival,
                                         .prompt_machine = action->machine,
                                         .token_machine = action->token_machine};
    r->tasks[slot] = (struct splitwise_request){.arrival_s = arrival->at_s,
                                                .prompt_tokens = arrival->prompt_tokens,
                                                .answer_tokens = arrival->output_tokens - 1,
                                                .answer_left = arrival->output_tokens - 1};
    task_arrives(r, action->machine, slot, SPLITWISE_PROMPT);
    if (r->requests[slot].prompt_machine == r->requests[slot].token_machine &&
        !answer_is_one(r, slot))
        task_arrives(r, r->requests[slot].prompt_machine, slot, SPLITWISE_DECODE);
    return ST_OK;
}

/* ---- transfers ---- */

static void transfer_try(struct run *r, uint32_t slot)
{
    struct request *request = &r->requests[slot];
    struct splitwise_machine *to = &r->hosts[request->token_machine].machine;
    uint32_t tokens = request->arrival.prompt_tokens;
    request->sending = splitwise_machine_fits(to, tokens + 1);
    r->retrying += (request->sending ? 0 : 1) - (request->retries ? 1 : 0);
    request->retries = !request->sending;
    r->vain = request->sending ? 0 : r->vain + 1;
    double after_s = r->setup->retry_s;
    if (request->sending) {
        to->used_tokens += tokens + 1;
        after_s = (double)(r->setup->kv_bytes_per_token * tokens) / r->setup->link_bytes_per_s;
    }
    usage_set(r, request->token_machine);
    r->totals.transfers += request->sending;
    r->totals.retries += !request->sending;
    event_heap_put(&r->events, r->setup->host_count + slot, r->now_s + after_s);
}

static void transfer_end(struct run *r, uint32_t slot)
{
    const struct request *request = &r->requests[slot];
    uint32_t from = request->prompt_machine;
    r->hosts[from].machine.used_tokens -= request->arrival.prompt_tokens + 1;
    request_event_apply(r, SCHED_PREFILLED, slot);
    task_arrives(r, request->token_machine, slot, SPLITWISE_DECODE);
    splitwise_machine_transfer_end(&r->hosts[from].machine, r->now_s);
    host_sync(r, from);
}

/* ---- ends of runs ---- */

static void prompt_end(struct run *r, uint32_t slot)
{
    struct request *request = &r->requests[slot];
    request->ttft_s = r->now_s - request->arrival.at_s;
    request_event_apply(r, SCHED_COMPUTED, slot);
    if (answer_is_one(r, slot)) {
        r->hosts[request->prompt_machine].machine.used_tokens -= r->tasks[slot].held_tokens;
        request_end(r, slot);
    } else if (request->prompt_machine != request->token_machine) {
        transfer_try(r, slot);
    }
}

static void host_event(struct run *r, uint32_t i)
{
    uint32_t ended[SPLITWISE_BATCH_TASKS];
    struct host *host = &r->hosts[i];
    host->due_s = -1;
    uint32_t count = splitwise_machine_run_end(&host->machine, ended);
    for (uint32_t k = 0; k < count; k++) {
        if (ended[k] % 2 == SPLITWISE_PROMPT)
            prompt_end(r, ended[k] / 2);
        else
            request_end(r, ended[k] / 2);
    }
    splitwise_machine_run_start(&host->machine, r->now_s);
    host_sync(r, i);
    if (r->setup->split && splitwise_machine_idle(&host->machine))
        event_apply(r, &(struct sched_event){
                           .kind = SCHED_MACHINE_IDLE, .now_us = now_us(r), .machine = i});
}

static void event_happens(struct run *r, uint32_t id)
{
    uint32_t hosts = r->setup->host_count;
    event_heap_pop(&r->events);
    r->totals.events++;
    if (id < hosts || r->requests[id - hosts].sending)
        r->vain = 0;
    if (id < hosts)
        host_event(r, id);
    else if (r->requests[id - hosts].sending)
        transfer_end(r, id - hosts);
    else
        transfer_try(r, id - hosts);
}

/* ---- the parts together ---- */

/* Returns true if nothing runs or is sent, and every waiting transfer has tried since the last
 * change: no memory will ever be freed. */
static bool is_stuck(const struct run *r)
{
    return r->events.count == r->retrying && r->vain >= r->retrying;
}

static enum status run_all(struct run *r)
{
    struct sim_arrival next;
    bool end;
    enum status status = sim_trace_next(r->trace, &next, &end, r->error);
    for (;;) {
        uint32_t id;
        double at_s;
        bool due = event_heap_first(&r->events, &id, &at_s);
        if (status != ST_OK || (end && (!due || is_stuck(r))))
            return status;
        if (!end && (!due || next.at_s <= at_s)) {
            r->now_s = next.at_s;
            status = request_arrive(r, &next);
            if (status == ST_OK)
                status = sim_trace_next(r->trace, &next, &end, r->error);
        } else {
            r->now_s = at_s;
            event_happens(r, id);
        }
        status = status == ST_OK ? r->status : status;
        if (status == ST_OK && r->setup->stop != NULL && *r->setup->stop)
            status = ST_CANCELLED;
    }
}

static enum status run_open(struct run *r)
{
    const struct splitwise_setup *setup = r->setup;
    event_heap_init(&r->events);
    r->hosts = calloc(setup->host_count, sizeof(r->hosts[0]));
    r->tasks = calloc(slots_most(r), sizeof(r->tasks[0]));
    r->requests = calloc(slots_most(r), sizeof(r->requests[0]));
    r->free_slots = calloc(slots_most(r), sizeof(r->free_slots[0]));
    if (r->hosts == NULL || r->tasks == NULL || r->requests == NULL || r->free_slots == NULL ||
        event_heap_reserve(&r->events, setup->host_count) != ST_OK || scheduler_open(r) != ST_OK)
        return error_set(r->error, ST_NO_MEMORY, "out of memory for %u machines",
                         setup->host_count);
    for (uint32_t i = 0; i < setup->host_count; i++) {
        splitwise_machine_init(&r->hosts[i].machine, i, &setup->machine, r->tasks,
                               setup->hosts[i].curve, (uint32_t)memory_tokens(setup, i, false));
        r->hosts[i].due_s = -1;
    }
    machines_announce(r);
    return ST_OK;
}

static void run_close(struct run *r)
{
    for (uint32_t i = 0; r->hosts != NULL && i < r->setup->host_count; i++)
        splitwise_machine_done(&r->hosts[i].machine);
    event_heap_done(&r->events);
    sched_cluster_close(r->sc);
    free(r->hosts);
    free(r->tasks);
    free(r->requests);
    free(r->free_slots);
}

enum status splitwise_run(const struct splitwise_setup *setup, struct sim_trace *trace,
                          splitwise_done_call done, void *self, struct splitwise_totals *out,
                          struct error *error)
{
    struct run *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    r->setup = setup;
    r->trace = trace;
    r->done = done;
    r->self = self;
    r->error = error;
    enum status status = run_open(r);
    if (status == ST_OK)
        status = run_all(r);
    for (uint32_t i = 0; r->hosts != NULL && i < setup->host_count; i++)
        r->totals.displaced += r->hosts[i].machine.displaced;
    if (setup->usage != NULL)
        sim_usage_end(setup->usage, r->now_s);
    r->totals.unended_requests = r->open;
    *out = r->totals;
    run_close(r);
    free(r);
    return status;
}
