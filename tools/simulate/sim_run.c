/* sim_run, the loop: see the header. The loop takes the next arrival of the trace or the next event
 * of the heap, whichever is earlier. */
#include "tools/simulate/sim_run_state.h"

#include <assert.h>
#include <stdlib.h>

/* After the end of the trace, this many events in a row without work mean that the open requests
 * will never end. */
#define QUIET_EVENTS_MAX 20000

/* ---- cores that are shared ---- */

static bool is_shared(const struct run *r)
{
    return r->options.cores > 0;
}

/* Updates the events of all machines after a change that can move the end of a batch or turn. */
static void cores_changed(struct run *r)
{
    for (uint32_t i = 0; i < r->options.machines->count; i++) {
        double at_s;
        if (sim_cores_due(&r->cores, i, &at_s))
            event_heap_put(&r->events, i, at_s > r->now_s ? at_s : r->now_s);
        else
            event_heap_remove(&r->events, i);
        run_usage_machine(r, i);
    }
}

static void cores_open(struct run *r)
{
    uint32_t threads[SCHED_MACHINES_MAX];
    uint32_t all = 0;
    for (uint32_t i = 0; i < r->options.machines->count; i++) {
        threads[i] = r->options.machines->machines[i].threads;
        all += threads[i] > 0 ? threads[i] : 1;
    }
    r->cores_shared = is_shared(r) && all > r->options.cores;
    sim_cores_init(&r->cores, r->options.cores,
                   r->cores_shared ? r->options.config->scheduler.turn_ms : 0, threads,
                   r->options.machines->count);
}

/* ---- batches ---- */

void run_begin_later(struct run *r, uint32_t host)
{
    if (r->hosts[host].begin_pending)
        return;
    r->hosts[host].begin_pending = true;
    r->pending[r->pending_count++] = host;
}

void run_flights_forget(struct run *r, uint32_t i)
{
    event_heap_remove(&r->events, i);
    if (!is_shared(r))
        return;
    sim_cores_batch_end(&r->cores, i, r->now_s);
    cores_changed(r);
}

static void batches_begin(struct run *r, uint32_t i)
{
    struct run_machine *host = &r->hosts[i];
    struct sim_cores_work work;
    if (host->machine == NULL)
        return;
    sim_machine_grant(host->machine, r->now_s);
    double steps_s = is_shared(r) ? sim_cores_steps_s(&r->cores, i, r->now_s) : 0;
    while (sim_machine_start(host->machine, r->now_s, steps_s, &work)) {
        if (sim_machine_in_flight(host->machine) == 1)
            host->busy_since_s = r->now_s;
        host->latest_has_prompts = work.prompts;
        if (is_shared(r)) {
            sim_cores_batch_begin(&r->cores, i, r->now_s, &work);
            cores_changed(r);
        } else {
            event_heap_put(&r->events, i, sim_machine_due_s(host->machine));
        }
    }
    sim_machine_deadlock_break(host->machine);
    run_usage_machine(r, i);
}

/* Handles the end of a batch, or of the machine's turn on the cores. */
static void batch_ends(struct run *r, uint32_t i)
{
    struct run_machine *host = &r->hosts[i];
    if (is_shared(r)) {
        bool over = sim_cores_turn_end(&r->cores, i, r->now_s);
        if (over)
            sim_cores_batch_end(&r->cores, i, r->now_s);
        cores_changed(r);
        if (!over)
            return;
    }
    r->totals->machines[i].busy_s += r->now_s - host->busy_since_s;
    if (host->latest_has_prompts)
        r->totals->machines[i].prompt_busy_s += r->now_s - host->busy_since_s;
    host->busy_since_s = r->now_s;
    sim_machine_batch_end(host->machine, r->now_s);
    if (!is_shared(r) && sim_machine_in_flight(host->machine) > 0)
        event_heap_put(&r->events, i, sim_machine_due_s(host->machine));
    run_begin_later(r, i);
}

/* ---- the loop ---- */

/* Returns true if the event is the end of a batch, or a step of a request. */
static bool is_work(const struct run *r, uint32_t id)
{
    return id < r->options.machines->count ||
           (id >= event_of_slot(r, 0) && id < event_of_copy(r, 0));
}

static void event_happens(struct run *r, uint32_t id)
{
    uint32_t hosts = r->options.machines->count;
    event_heap_pop(&r->events);
    r->totals->events++;
    r->quiet_events = is_work(r, id) ? 0 : r->quiet_events + 1;
    if (id < hosts)
        batch_ends(r, id);
    else if (id < 2 * hosts)
        run_failure(r, id - hosts);
    else if (id == event_tick(r))
        run_tick(r);
    else if (id == event_rates(r))
        run_rates_report(r);
    else if (id == event_kill(r))
        run_kill(r);
    else if (id == event_copies(r))
        run_copies_check(r);
    else if (id == event_prefixes(r))
        run_prefixes_report(r);
    else if (id < event_of_copy(r, 0))
        run_request_step_end(r, id - event_of_slot(r, 0));
    else
        run_copy_step_end(r, id - event_of_copy(r, 0));
}

static void pending_begin(struct run *r)
{
    while (r->pending_count > 0) {
        uint32_t host = r->pending[--r->pending_count];
        r->hosts[host].begin_pending = false;
        batches_begin(r, host);
    }
}

static enum status run_all(struct run *r)
{
    struct sim_arrival next;
    bool end;
    enum status status = sim_trace_next(r->trace, &next, &end, r->error);
    while (status == ST_OK && (!end || r->open > 0)) {
        uint32_t id;
        double at_s;
        bool due = event_heap_first(&r->events, &id, &at_s);
        if (end && (!due || r->quiet_events > QUIET_EVENTS_MAX)) {
            run_requests_abandon(r);
            break;
        }
        if (!end && (!due || next.at_s <= at_s)) {
            r->now_s = next.at_s;
            run_request_arrive(r, &next);
            status = sim_trace_next(r->trace, &next, &end, r->error);
        } else {
            r->now_s = at_s;
            event_happens(r, id);
        }
        pending_begin(r);
        run_usage_requests(r);
        status = status == ST_OK ? r->status : status;
    }
    return status;
}

static enum status run_open(struct run *r)
{
    uint32_t events = event_of_copy(r, LIMIT_CLUSTER_REQUESTS);
    event_heap_init(&r->events);
    for (uint32_t i = 0; i < LIMIT_CLUSTER_REQUESTS; i++)
        r->free_slots[i] = LIMIT_CLUSTER_REQUESTS - 1 - i;
    r->free_count = LIMIT_CLUSTER_REQUESTS;
    if (event_heap_reserve(&r->events, events) != ST_OK)
        return error_set(r->error, ST_NO_MEMORY, "out of memory");
    cores_open(r);
    enum status status = run_cluster_open(r);
    pending_begin(r);
    return status;
}

enum status sim_run(const struct sim_run_options *options, struct sim_trace *trace,
                    struct sim_report *report, struct sim_run_totals *out, struct error *error)
{
    struct run *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    *out = (struct sim_run_totals){0};
    r->options = *options;
    r->trace = trace;
    r->report = report;
    r->error = error;
    r->totals = out;
    r->prefixes = out->prefixes = trace->has_prefixes && options->config->kv.prefix_cache;
    enum status status = run_open(r);
    if (status == ST_OK)
        status = run_all(r);
    out->last_s = r->now_s;
    if (options->usage != NULL)
        sim_usage_end(options->usage, r->now_s);
    for (uint32_t i = 0; i < options->machines->count; i++) {
        out->machines[i].failures = r->hosts[i].failures;
        out->machines[i].home = r->hosts[i].home;
    }
    run_cluster_close(r);
    event_heap_done(&r->events);
    free(r);
    return status;
}

bool sim_energy_j(const struct sim_machines *machines, const struct sim_run_totals *totals,
                  double *out_j)
{
    *out_j = 0;
    for (uint32_t i = 0; i < machines->count; i++) {
        const struct sim_cost *cost = &machines->machines[i].cost;
        const struct sim_machine_totals *t = &totals->machines[i];
        const struct profile_device *device = cost->devices[0];
        if (device == NULL || cost->stage_count > 1 || device->prompt_w <= 0 ||
            device->token_w <= 0)
            return false;
        *out_j += t->prompt_busy_s * device->prompt_w;
        *out_j += (t->busy_s - t->prompt_busy_s) * device->token_w;
    }
    return true;
}
