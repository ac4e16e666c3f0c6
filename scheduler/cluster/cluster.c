/* sched_cluster, events. An event changes the state; cluster_actions_append then derives the
 * actions from the state alone, so an action never depends on which event made it possible. */
#include "scheduler/cluster/cluster.h"

#include "scheduler/cluster/prefix.h"
#include "scheduler/cluster/state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static bool options_good(const struct sched_cluster_options *options)
{
    return options->request_count > 0 && options->request_count <= SCHED_REQUESTS_MAX &&
           options->machine_count > 0 && options->machine_count <= SCHED_MACHINES_MAX &&
           (options->prefix_count == 0 || options->prefix_step_tokens > 0) &&
           (!options->one_machine_routes ||
            (options->one_machine_targets.ttft_us > 0 && options->one_machine_targets.tbt_us > 0));
}

/* Allocates the tables of *sc. On failure the caller's sched_cluster_close frees what was
 * allocated. */
static enum status tables_open(struct sched_cluster *sc)
{
    const struct sched_cluster_options *options = &sc->options;
    uint32_t nodes = cluster_tree_nodes(options->machine_count);
    uint16_t *all_nodes = calloc((size_t)nodes * MEASURE_COUNT * POOL_COUNT, sizeof(*all_nodes));
    sc->trees[0][0].nodes = all_nodes;
    sc->machines = calloc(options->machine_count, sizeof(sc->machines[0]));
    sc->requests = calloc(options->request_count, sizeof(sc->requests[0]));
    sc->link_speeds =
        calloc((size_t)options->machine_count * options->machine_count, sizeof(sc->link_speeds[0]));
    for (int measure = 0; measure < MEASURE_COUNT; measure++)
        sc->ranks[measure] = calloc(options->machine_count, sizeof(sc->ranks[0][0]));
    if (sched_accounts_open(options->request_count, &sc->accounts) != ST_OK)
        return ST_NO_MEMORY;
    if (all_nodes == NULL || sc->machines == NULL || sc->requests == NULL ||
        sc->link_speeds == NULL || sc->ranks[MEASURE_PENDING] == NULL ||
        sc->ranks[MEASURE_MEMORY] == NULL)
        return ST_NO_MEMORY;
    for (int i = 0; i < MEASURE_COUNT * POOL_COUNT; i++)
        cluster_tree_init(&sc->trees[i / POOL_COUNT][i % POOL_COUNT], options->machine_count,
                          all_nodes + (size_t)i * nodes);
    if (options->prefix_count == 0)
        return ST_OK;
    sc->prefixes_of = calloc((size_t)options->request_count * SCHED_PREFIX_MAX, sizeof(uint64_t));
    if (sc->prefixes_of == NULL ||
        cluster_prefixes_open(options->prefix_count, &sc->prefixes) != ST_OK)
        return ST_NO_MEMORY;
    return cluster_stored_open(sc);
}

enum status sched_cluster_open(const struct sched_cluster_options *options,
                               struct sched_cluster **out)
{
    if (!options_good(options))
        return ST_INVALID;
    struct sched_cluster *sc = calloc(1, sizeof(*sc));
    if (sc == NULL)
        return ST_NO_MEMORY;
    sc->options = *options;
    sched_queue_init(&sc->waiting);
    sc->lost = sc->limited = (struct request_list){.first = REQUEST_NONE, .last = REQUEST_NONE};
    sc->stranded_due_us = INT64_MAX;
    sc->first_up_us = sc->demand_until_us = sc->repurposed_us = -1;
    sc->repurpose_to = POOL_COUNT;
    enum status status = tables_open(sc);
    if (status != ST_OK) {
        sched_cluster_close(sc);
        return status;
    }
    for (uint32_t i = 0; i < options->machine_count; i++)
        sc->machines[i].move_reported = true;
    cluster_pool_sizes(sc);
    cluster_speeds_refresh(sc);
    *out = sc;
    return ST_OK;
}

void sched_cluster_close(struct sched_cluster *sc)
{
    if (sc == NULL)
        return;
    free(sc->trees[0][0].nodes);
    for (int measure = 0; measure < MEASURE_COUNT; measure++)
        free(sc->ranks[measure]);
    free(sc->machines);
    free(sc->link_speeds);
    free(sc->requests);
    free(sc->prefixes_of);
    sched_accounts_close(sc->accounts);
    cluster_prefixes_close(sc->prefixes);
    cluster_stored_close(sc);
    free(sc);
}

static struct cluster_machine *machine_at(struct sched_cluster *sc, uint32_t id)
{
    assert(id < sc->options.machine_count);
    return &sc->machines[id];
}

/* ---- events ---- */

/* Updates whether a pair of machines can serve, and returns lent machines home where possible.
 * only_more: the change can only have made more pairs possible. */
static void topology_changed(struct sched_cluster *sc, bool only_more)
{
    if (only_more && sc->pair_can_serve && sc->lent_count == 0)
        return;
    cluster_pool_pair(sc);
    if (sc->lent_count > 0)
        cluster_pools_return_lent(sc);
}

/* Returns kv, or a model without windows if its numbers cannot be those of a machine: they may come
 * from the file of an event log. */
static struct sched_kv kv_checked(const struct sched_kv *kv, uint64_t kv_tokens)
{
    struct sched_kv checked = *kv;
    const uint32_t count = layer_groups_count(&kv->groups);
    if (kv->block_tokens == 0 || count > LAYER_GROUPS_MAX || kv->groups.windowed >> count != 0)
        checked.groups = (struct layer_groups){0};
    if (checked.groups.windowed == 0 || checked.capacity_tokens == 0)
        checked.capacity_tokens = kv_tokens;
    return checked;
}

static void on_machine_up(struct sched_cluster *sc, const struct sched_event *event)
{
    struct cluster_machine *machine = machine_at(sc, event->machine);
    assert(event->pool < POOL_COUNT);
    if (!machine->was_up) /* Its first pool is no change of pool. */
        machine->pool = event->pool;
    machine->was_up = true;
    machine->kv_tokens = event->kv_tokens;
    machine->cores = event->cores;
    machine->core_count = event->core_count > 0 ? event->core_count : 1;
    machine->threads = event->threads > 0 ? event->threads : machine->core_count;
    sc->cores_shared |= event->cores > 0;
    machine->mixed_kv_tokens =
        event->mixed_kv_tokens > 0 ? event->mixed_kv_tokens : event->kv_tokens;
    machine->kv = kv_checked(&event->kv, event->kv_tokens);
    machine->busy = false;
    machine->recent_prompts = (struct recent_prompts){0};
    cluster_load_others(sc, event->machine, &(struct sched_others){0});
    cluster_pool_home(sc, event->machine, event->pool);
    if (!machine->move_reported &&
        machine->pool == event->pool) { /* The caller already knows this pool. */
        machine->move_reported = true;
        sc->unreported_moves--;
    }
    if (machine->move_reported) {
        machine->reported_pool = machine->pool;
        machine->reported_home = machine->home;
    }
    machine->up = true;
    cluster_pool_refresh(sc, event->machine);
    cluster_pool_sizes(sc);
    cluster_speeds_refresh(sc);
    if (sc->first_up_us < 0)
        sc->first_up_us = event->now_us;
}

static void on_machine_down(struct sched_cluster *sc, uint32_t id)
{
    struct cluster_machine *machine = machine_at(sc, id);
    machine->up = false;
    machine->sends_until_us = machine->receives_until_us = 0;
    cluster_pool_refresh(sc, id);
    cluster_speeds_refresh(sc);
    cluster_load_others(sc, id, &(struct sched_others){0});
    machine->links = (struct machine_set){{0}};
    for (uint32_t i = 0; i < sc->options.machine_count; i++)
        machine_set_put(&sc->machines[i].links, id, false);
    if (sc->prefixes != NULL)
        cluster_prefixes_forget(sc->prefixes, id);
    cluster_tiers_down(sc, id);
    cluster_requests_lose(sc, id);
}

static void on_prefixes(struct sched_cluster *sc, const struct sched_event *event)
{
    machine_at(sc, event->machine);
    if (sc->prefixes != NULL && event->kind == SCHED_EVICTED && event->prefix.count == 0)
        cluster_prefixes_forget(sc->prefixes, event->machine);
    if (event->kind == SCHED_CACHED)
        cluster_stored_add(sc, event->machine, event->prefix.hashes, event->prefix.count);
    for (uint32_t i = 0; i < event->prefix.count && sc->prefixes != NULL; i++) {
        if (event->kind == SCHED_CACHED)
            cluster_prefixes_add(sc->prefixes, event->prefix.hashes[i], event->machine);
        else
            cluster_prefixes_remove(sc->prefixes, event->prefix.hashes[i], event->machine);
    }
}

static void on_machine_event(struct sched_cluster *sc, const struct sched_event *event)
{
    struct cluster_machine *machine = machine_at(sc, event->machine);
    switch (event->kind) {
    case SCHED_MACHINE_UP:
        on_machine_up(sc, event);
        break;
    case SCHED_MACHINE_DOWN:
        on_machine_down(sc, event->machine);
        break;
    case SCHED_MACHINE_DRAIN:
    case SCHED_MACHINE_UNDRAIN:
        machine->draining = event->kind == SCHED_MACHINE_DRAIN;
        cluster_pool_refresh(sc, event->machine);
        break;
    case SCHED_MACHINE_HOME:
        assert(event->pool < POOL_COUNT);
        cluster_pool_home(sc, event->machine, event->pool);
        break;
    default:
        assert(event->peer < sc->options.machine_count && event->peer != event->machine);
        machine_set_put(&machine->links, event->peer, event->kind == SCHED_LINK_UP);
        break;
    }
    topology_changed(sc, event->kind == SCHED_LINK_UP);
}

static void on_machine_word(struct sched_cluster *sc, const struct sched_event *event)
{
    struct cluster_machine *machine = machine_at(sc, event->machine);
    if (event->kind == SCHED_MACHINE_RATES) {
        machine->prompt_tokens_per_s = event->prompt_tokens_per_s;
        machine->output_tokens_per_s = event->output_tokens_per_s;
        machine->step = event->step;
        cluster_speeds_refresh(sc);
    } else if (event->kind == SCHED_MACHINE_TIERS) {
        cluster_tiers_set(sc, event->machine, event->tiers);
    } else if (event->kind == SCHED_MACHINE_QUEUE) {
        machine->busy = event->busy;
    } else if (event->kind == SCHED_LINK_SPEED) {
        assert(event->peer < sc->options.machine_count && event->peer != event->machine);
        cluster_link_measured(sc, event->machine, event->peer, &event->link);
    } else if (event->kind == SCHED_MACHINE_HOST) {
        cluster_host_set(sc, event->machine, event->host);
    } else if (event->kind == SCHED_MACHINE_LOAD) {
        cluster_load_others(sc, event->machine, &event->others);
        cluster_prompts_add(sc, event->machine, event->others.arrived_prompt_tokens);
        cluster_demand_others(sc, &event->others);
    } else if (machine->pool != machine->home) {
        cluster_pool_move(sc, event->machine, machine->home);
        cluster_pool_pair(sc);
    }
}

static void time_passes(struct sched_cluster *sc, int64_t now_us)
{
    cluster_admission_time(sc, now_us);
    sc->now_us = now_us;
    if (now_us >= sc->demand_until_us)
        cluster_demand_tick(sc);
}

void sched_cluster_event(struct sched_cluster *sc, const struct sched_event *event,
                         struct sched_actions *out)
{
    out->count = 0;
    time_passes(sc, event->now_us);
    switch (event->kind) {
    case SCHED_ARRIVED:
        cluster_request_arrived(sc, event, out);
        return;
    case SCHED_COMPUTED:
    case SCHED_PREFILLED:
    case SCHED_ENDED:
        cluster_request_event(sc, event);
        break;
    case SCHED_OVERDUE:
        cluster_request_overdue(sc, event, out);
        break;
    case SCHED_MACHINE_UP:
    case SCHED_MACHINE_DOWN:
    case SCHED_LINK_UP:
    case SCHED_LINK_DOWN:
    case SCHED_MACHINE_DRAIN:
    case SCHED_MACHINE_UNDRAIN:
    case SCHED_MACHINE_HOME:
        on_machine_event(sc, event);
        break;
    case SCHED_LINK_SPEED:
    case SCHED_MACHINE_HOST:
    case SCHED_MACHINE_RATES:
    case SCHED_MACHINE_TIERS:
    case SCHED_MACHINE_QUEUE:
    case SCHED_MACHINE_IDLE:
    case SCHED_MACHINE_LOAD:
        on_machine_word(sc, event);
        break;
    case SCHED_CACHED:
    case SCHED_EVICTED:
        on_prefixes(sc, event);
        break;
    case SCHED_TICK:
        break;
    }
    cluster_actions_append(sc, out, SCHED_ACTIONS_MAX);
}

enum status sched_cluster_configure(struct sched_cluster *sc,
                                    const struct sched_cluster_options *options, int64_t now_us,
                                    struct sched_actions *out)
{
    if (!options_good(options) || options->request_count != sc->options.request_count ||
        options->machine_count != sc->options.machine_count ||
        options->prefix_count != sc->options.prefix_count)
        return ST_INVALID;
    if (options->repurpose_window_us != sc->options.repurpose_window_us)
        sc->demand_until_us = -1; /* Starts the measurement again. */
    sc->options = *options;
    cluster_speeds_refresh(sc);
    sched_cluster_more_actions(sc, now_us, out);
    return ST_OK;
}

void sched_cluster_more_actions(struct sched_cluster *sc, int64_t now_us, struct sched_actions *out)
{
    out->count = 0;
    time_passes(sc, now_us);
    cluster_actions_append(sc, out, SCHED_ACTIONS_MAX);
}

/* ---- queries ---- */

int64_t sched_cluster_due_us(const struct sched_cluster *sc)
{
    int64_t due_us = cluster_admission_due_us(sc);
    if (sc->stranded_due_us < due_us)
        due_us = sc->stranded_due_us;
    if (sc->demand_until_us >= 0 && sc->demand_until_us < due_us)
        due_us = sc->demand_until_us;
    if (!sc->pair_could_serve && sc->first_up_us >= 0) {
        int64_t cover_us = sc->first_up_us + sc->options.cover_after_us;
        if (cover_us > sc->now_us && cover_us < due_us)
            due_us = cover_us;
    }
    return due_us;
}

bool sched_cluster_paired(const struct sched_cluster *sc)
{
    return sc->pair_can_serve;
}

bool sched_cluster_lacks_phase(const struct sched_cluster *sc)
{
    bool prompt = false;
    bool token = false;
    bool anybody = false;
    for (uint32_t i = 0; i < sc->options.machine_count; i++) {
        if (!machine_set_has(&sc->routable, i))
            continue;
        anybody = true;
        prompt |= pool_serves_phase(sc->machines[i].home, POOL_PROMPT);
        token |= pool_serves_phase(sc->machines[i].home, POOL_TOKEN);
    }
    return anybody && !(prompt && token);
}

void sched_cluster_view(const struct sched_cluster *sc, uint32_t machine,
                        struct sched_machine_view *out)
{
    assert(machine < sc->options.machine_count);
    const struct cluster_machine *from = &sc->machines[machine];
    *out = (struct sched_machine_view){
        .up = from->up,
        .draining = from->draining,
        .home = from->home,
        .pool = from->pool,
        .prompt_tokens_pending = from->prompt_tokens_pending,
        .kv_tokens_scheduled = from->memory_tokens,
        .others_prompt_tokens = from->others.prompt_tokens,
        .others_kv_tokens = from->others.kv_tokens,
        .prompts = from->prompts,
        .decodes = from->decodes,
    };
}

uint32_t sched_cluster_waiting(const struct sched_cluster *sc)
{
    return sc->waiting.count;
}
