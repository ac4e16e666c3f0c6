/* sim_run, the cluster: opens the scheduler as a gateway does (scheduler/options.h), and lets
 * machines fail and return. */
#include "tools/simulate/sim_run_state.h"

#include "common/prefix_hash.h"
#include "events/event_text.h"
#include "scheduler/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATES_PERIOD_S 1.0

/* ---- the event log ---- */

static void log_flush(struct run *r)
{
    text_add(&r->text, "\n", 1);
    if (r->text.broken ||
        fwrite(r->text.data, 1, r->text.bytes, r->options.events) != r->text.bytes)
        r->status = error_set(r->error, ST_IO, "the event log cannot be written");
    text_clear(&r->text);
}

static void log_begin(struct run *r)
{
    if (r->options.events == NULL)
        return;
    event_text_begin(&r->text, true, &r->sched_options);
    log_flush(r);
    for (uint32_t i = 0; i < r->options.machines->count; i++) {
        event_text_machine(&r->text, i, r->options.machines->machines[i].name);
        log_flush(r);
    }
}

static void log_event(struct run *r, const struct sched_event *event,
                      const struct sched_actions *actions)
{
    if (r->options.events == NULL)
        return;
    event_text_event(&r->text, EVENT_VERSION_FIRST, run_now_us(r), event, actions);
    log_flush(r);
}

void run_outcome_log(struct run *r, uint32_t slot, bool computed)
{
    struct event_decision *decision = &r->requests[slot].decision;
    if (r->options.events != NULL && decision->choice != EVENT_CHOICE_NONE) {
        event_text_outcome(&r->text, EVENT_VERSION_FIRST, run_now_us(r), slot, decision, computed);
        log_flush(r);
    }
    *decision = (struct event_decision){.choice = EVENT_CHOICE_NONE};
}

/* ---- actions of the scheduler ---- */

static void moved(struct run *r, const struct sched_action *action)
{
    struct run_machine *host = &r->hosts[action->machine];
    r->totals->moves++;
    host->pool = action->pool;
    host->home = action->home;
    if (host->machine == NULL)
        return;
    sim_machine_mixed_set(host->machine, action->pool == POOL_MIXED);
    run_begin_later(r, action->machine);
}

/* Does the scheduler's actions. Lost requests arrive again only after all actions are done, because
 * the scheduler must not be called in between. */
static void actions_do(struct run *r, struct sched_actions *actions)
{
    uint32_t first_lost = r->lost_count;
    for (;;) {
        for (uint32_t i = 0; i < actions->count; i++) {
            const struct sched_action *action = &actions->items[i];
            switch (action->kind) {
            case SCHED_ROUTE:
                run_request_route(r, action);
                break;
            case SCHED_REFUSE:
            case SCHED_EXPIRED:
                run_request_not_served(r, action);
                break;
            case SCHED_LOST:
                r->lost[r->lost_count++] = action->request;
                break;
            case SCHED_MOVED:
                moved(r, action);
                break;
            }
        }
        if (!actions->more)
            break;
        sched_cluster_more_actions(r->scheduler, run_now_us(r), actions);
        log_event(r, NULL, actions);
    }
    uint32_t last_lost = r->lost_count;
    for (uint32_t i = first_lost; i < last_lost; i++)
        run_request_lost(r, r->lost[i]);
    r->lost_count = first_lost;
}

void run_event_apply(struct run *r, struct sched_event *event)
{
    struct sched_actions actions;
    event->now_us = run_now_us(r);
    sched_cluster_event(r->scheduler, event, &actions);
    log_event(r, event, &actions);
    actions_do(r, &actions);
    int64_t due_us = sched_cluster_due_us(r->scheduler);
    if (due_us < INT64_MAX)
        event_heap_put(&r->events, event_tick(r), fmax(r->now_s, ((double)due_us + 0.5) / 1e6));
    else
        event_heap_remove(&r->events, event_tick(r));
}

void run_tick(struct run *r)
{
    run_event_apply(r, &(struct sched_event){.kind = SCHED_TICK});
}

void run_rates_report(struct run *r)
{
    for (uint32_t i = 0; i < r->options.machines->count; i++) {
        const struct sim_machine *machine = r->hosts[i].machine;
        if (machine == NULL)
            continue;
        struct sched_event event = sched_rates_event(r->options.config, sim_machine_rates(machine));
        event.machine = i;
        run_event_apply(r, &event);
    }
    event_heap_put(&r->events, event_rates(r), r->now_s + RATES_PERIOD_S);
}

/* ---- use over time ---- */

void run_usage_machine(struct run *r, uint32_t i)
{
    struct sim_usage *usage = r->options.usage;
    struct sim_machine_use use = {.batch = 0};
    if (usage == NULL)
        return;
    if (r->hosts[i].machine != NULL)
        sim_machine_use(r->hosts[i].machine, &use);
    if (r->options.cores > 0 && r->cores.machines[i].state == SIM_CORES_WAITS)
        use.prompt = use.decode = 0; /* The batch waits for the machine's turn. */
    sim_usage_set(usage, i, SIM_USAGE_PROMPT, use.prompt, r->now_s);
    sim_usage_set(usage, i, SIM_USAGE_DECODE, use.decode, r->now_s);
    sim_usage_set(usage, i, SIM_USAGE_KV, use.kv, r->now_s);
    sim_usage_set(usage, i, SIM_USAGE_BATCH, use.batch, r->now_s);
}

void run_usage_requests(struct run *r)
{
    if (r->options.usage == NULL)
        return;
    sim_usage_set_cluster(r->options.usage, SIM_USAGE_OPEN, r->open, r->now_s);
    sim_usage_set_cluster(r->options.usage, SIM_USAGE_QUEUED, r->queued, r->now_s);
}

/* ---- failures and repairs ---- */

static void failure_draw(struct run *r, uint32_t i)
{
    struct run_machine *host = &r->hosts[i];
    if (r->options.failure_s <= 0)
        return;
    double u =
        (double)(random_at(r->options.seed ^ 0x6661696c, (uint64_t)i << 32 | host->failures) >>
                 11) *
        0x1p-53;
    event_heap_put(&r->events, event_of_failure(r, i), r->now_s - r->options.failure_s * log1p(-u));
}

/* Returns 1 + the first machine on the same host; 0 = the host is not known. */
static uint32_t host_of(const struct run *r, uint32_t i)
{
    const struct sim_machines *machines = r->options.machines;
    const struct profile_device *device = machines->machines[i].cost.devices[0];
    for (uint32_t k = 0; device != NULL && k <= i; k++) {
        const struct profile_device *other = machines->machines[k].cost.devices[0];
        if (other != NULL && strcmp(other->host, device->host) == 0)
            return k + 1;
    }
    return 0;
}

static enum status machine_up(struct run *r, uint32_t i)
{
    struct run_machine *host = &r->hosts[i];
    const struct sim_machine_options options = {
        .host = &r->options.machines->machines[i],
        .config = r->options.config,
        .index = i,
        .context_tokens = r->options.machines->context_tokens,
        .calls = &run_machine_calls,
        .self = r,
        .use_recorded = r->options.usage != NULL,
        .prefixes = r->prefixes,
        .draft_right = r->options.draft_right,
        .seed = r->options.seed,
        .prefix_step = run_prefix_step(r),
    };
    enum status status = sim_machine_open(&options, &host->machine);
    if (status != ST_OK)
        return r->status = error_set(r->error, status, "machine %s: %s", options.host->name,
                                     status == ST_NO_MEMORY
                                         ? "out of memory"
                                         : "too many paths through its replicas, or a wrong batch");
    host->pool = host->home;
    sim_machine_mixed_set(host->machine, host->home == POOL_MIXED);
    host->out_free_s = host->in_free_s = r->now_s;
    bool takes_turns = r->cores_shared && r->options.config->scheduler.turn_ms != 0;
    run_event_apply(
        r, &(struct sched_event){.kind = SCHED_MACHINE_UP,
                                 .machine = i,
                                 .pool = host->home,
                                 .kv_tokens = sim_machine_kv_tokens(host->machine),
                                 .kv = sim_machine_kv(host->machine),
                                 .mixed_kv_tokens = sim_machine_mixed_kv_tokens(host->machine),
                                 .cores = takes_turns ? 1 : 0,
                                 .core_count = takes_turns ? r->cores.cores : 0,
                                 .threads = takes_turns ? r->cores.machines[i].threads : 0});
    run_event_apply(
        r, &(struct sched_event){.kind = SCHED_MACHINE_HOST, .machine = i, .host = host_of(r, i)});
    run_tiers_up(r, i);
    failure_draw(r, i);
    return ST_OK;
}

/* As server/gateway/peers.c: only machines that may compute prompts write to machines that may
 * decode. */
static void link_up(struct run *r, uint32_t from, uint32_t to)
{
    bool adaptive = r->options.config->scheduler.adaptive_pools;
    if (adaptive || (r->hosts[from].home != POOL_TOKEN && r->hosts[to].home != POOL_PROMPT))
        run_event_apply(r,
                        &(struct sched_event){.kind = SCHED_LINK_UP, .machine = from, .peer = to});
}

static void links_up(struct run *r, uint32_t i)
{
    for (uint32_t k = 0; k < r->options.machines->count; k++) {
        if (k == i || r->hosts[k].machine == NULL)
            continue;
        link_up(r, i, k);
        link_up(r, k, i);
    }
}

static void machine_down(struct run *r, uint32_t i)
{
    struct run_machine *host = &r->hosts[i];
    sim_machine_close(host->machine);
    host->machine = NULL;
    host->failures++;
    run_flights_forget(r, i);
    run_prefixes_forget(r, i);
    run_usage_machine(r, i);
    event_heap_put(&r->events, event_of_failure(r, i), r->now_s + r->options.repair_s);
    run_event_apply(r, &(struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = i});
}

void run_failure(struct run *r, uint32_t i)
{
    if (r->hosts[i].machine != NULL)
        machine_down(r, i);
    else if (machine_up(r, i) == ST_OK)
        links_up(r, i);
}

static void kill_due(struct run *r)
{
    if (r->next_kill < r->options.kill_count)
        event_heap_put(&r->events, event_kill(r), r->options.kills[r->next_kill].at_s);
}

void run_kill(struct run *r)
{
    uint32_t machine = r->options.kills[r->next_kill++].machine;
    kill_due(r);
    if (r->hosts[machine].machine != NULL)
        machine_down(r, machine);
}

enum status run_cluster_open(struct run *r)
{
    const struct sim_machines *machines = r->options.machines;
    const uint32_t block_tokens = r->options.config->kv.block_tokens;
    /* The scheduler needs no hashes under other policies. A simulated cluster has one gateway,
     * which leads. */
    const struct sched_cluster_facts facts = {
        .machine_count = machines->count,
        .prefix_step_tokens = sched_policy_is_prefix(r->options.config)
                                  ? block_tokens * prefix_step_blocks(block_tokens)
                                  : 0,
        .prefix_cache = r->options.config->kv.prefix_cache,
        .may_repurpose = true};
    r->sched_options = sched_cluster_options_make(r->options.config, &facts);
    /* Simulated machines report their rates each second, which is too rarely for this bound. */
    r->sched_options.machine_tokens_unmeasured = 0;
    if (sched_cluster_open(&r->sched_options, &r->scheduler) != ST_OK)
        return error_set(r->error, ST_NO_MEMORY, "out of memory for the scheduler");
    if (run_tiers_open(r) != ST_OK)
        return error_set(r->error, ST_NO_MEMORY, "out of memory for the tiers");
    log_begin(r);
    for (uint32_t i = 0; i < machines->count && r->status == ST_OK; i++) {
        r->hosts[i].home = machines->machines[i].home;
        if (r->options.usage != NULL)
            memcpy(r->options.usage->names[i], machines->machines[i].name, LIMIT_NAME_BYTES);
        if (machine_up(r, i) == ST_OK)
            links_up(r, i);
    }
    kill_due(r);
    if (r->sched_options.repurpose_window_us > 0 || r->sched_options.ttft_us_max > 0 ||
        r->sched_options.prefix_saves)
        event_heap_put(&r->events, event_rates(r), RATES_PERIOD_S);
    return r->status;
}

void run_cluster_close(struct run *r)
{
    for (uint32_t i = 0; i < r->options.machines->count; i++)
        sim_machine_close(r->hosts[i].machine);
    for (uint32_t slot = 0; slot < r->slots_used; slot++)
        run_contents_close(&r->requests[slot]);
    free(r->changes);
    run_tiers_close(r);
    sched_cluster_close(r->scheduler);
    text_done(&r->text);
}
