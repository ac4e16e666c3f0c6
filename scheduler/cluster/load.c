/* sched_cluster, the load of each machine, and its pool. Loads change when a request is routed and
 * as its parts finish; the trees follow each change.
 *
 * *Foreign work* of a lent machine is work of the phase that is not its home pool's: decodes if its
 * home is the prompt pool, prompts if its home is the token pool. A machine whose home pool has
 * changed finishes its former work as foreign work, in the mixed pool. */
#include "scheduler/cluster/state.h"

#include <assert.h>
#include <stddef.h>

static bool in_trees(const struct sched_cluster *sc, uint32_t machine)
{
    return machine_set_has(&sc->routable, machine);
}

static void rank_changed(struct sched_cluster *sc, uint32_t i, enum measure measure,
                         uint64_t tokens)
{
    struct cluster_rank *rank = &sc->ranks[measure][i];
    if (rank->tokens == tokens)
        return;
    rank->tokens = tokens;
    if (in_trees(sc, i))
        cluster_tree_update(&sc->trees[measure][sc->machines[i].pool], sc->ranks[measure], i, true);
}

/* A running decode counts like one prompt token, because it takes one row of each batch. */
static void ranks_update(struct sched_cluster *sc, uint32_t i)
{
    const struct cluster_machine *machine = &sc->machines[i];
    const struct sched_others *others = &machine->others;
    rank_changed(sc, i, MEASURE_PENDING,
                 machine->prompt_tokens_pending + machine->decodes + others->prompt_tokens +
                     others->decodes);
    rank_changed(sc, i, MEASURE_MEMORY, machine->memory_tokens + others->kv_tokens);
}

/* ---- loads ---- */

/* Sets the KV memory that the request takes on its machines: on the prompt machine that of the
 * prompt, with room for the first token. A machine that does both phases has it only once. */
static void memory_set(const struct sched_cluster *sc, struct cluster_request *request)
{
    const bool alone = request->prompt_machine == request->token_machine;
    request->prompt_memory = alone ? 0
                                   : machine_kv_tokens(&sc->machines[request->prompt_machine],
                                                       (uint64_t)request->prompt_tokens + 1, true);
    request->token_memory =
        request->token_machine == SCHED_NO_MACHINE
            ? 0
            : request_scheduled_tokens(request, &sc->machines[request->token_machine], alone);
}

/* Counts requests that are too large for a mixed machine's share of memory. Two mixed machines with
 * such requests could wait for each other for ever. */
static void count_large(struct sched_cluster *sc, struct cluster_request *request)
{
    struct cluster_machine *prompt = &sc->machines[request->prompt_machine];
    struct cluster_machine *token = NULL;
    bool alone = request->prompt_machine == request->token_machine;
    bool decodes = request->token_machine != SCHED_NO_MACHINE;
    if (decodes)
        token = &sc->machines[request->token_machine];
    request->too_large_if_mixed[0] = !alone && request->prompt_tokens > prompt->mixed_kv_tokens;
    request->too_large_if_mixed[1] =
        !alone && decodes && request_tokens(request) > token->mixed_kv_tokens;
    prompt->large_requests += request->too_large_if_mixed[0] ? 1 : 0;
    if (request->too_large_if_mixed[1])
        token->large_requests++;
}

static void drop_large(struct sched_cluster *sc, const struct cluster_request *request)
{
    sc->machines[request->prompt_machine].large_requests -= request->too_large_if_mixed[0] ? 1 : 0;
    if (request->too_large_if_mixed[1])
        sc->machines[request->token_machine].large_requests--;
}

void cluster_load_route(struct sched_cluster *sc, struct cluster_request *request)
{
    struct cluster_machine *prompt = &sc->machines[request->prompt_machine];
    memory_set(sc, request);
    prompt->prompts++;
    prompt->prompts_pending++;
    prompt->prompt_tokens_pending += request->prompt_tokens - request->saved_tokens;
    cluster_prompts_add(sc, request->prompt_machine,
                        request->prompt_tokens - request->saved_tokens);
    prompt->memory_tokens += request->prompt_memory;
    request->computed = request->prefilled = false;
    count_large(sc, request);
    if (request->token_machine != SCHED_NO_MACHINE) {
        struct cluster_machine *token = &sc->machines[request->token_machine];
        token->decodes++;
        token->memory_tokens += request->token_memory;
        ranks_update(sc, request->token_machine);
    }
    ranks_update(sc, request->prompt_machine);
}

static void drop_pending(struct sched_cluster *sc, struct cluster_request *request)
{
    struct cluster_machine *prompt = &sc->machines[request->prompt_machine];
    if (request->computed)
        return;
    request->computed = true;
    prompt->prompts_pending--;
    prompt->prompt_tokens_pending -= request->prompt_tokens - request->saved_tokens;
}

static void drop_prompt(struct sched_cluster *sc, struct cluster_request *request)
{
    struct cluster_machine *prompt = &sc->machines[request->prompt_machine];
    drop_pending(sc, request);
    if (request->prefilled)
        return;
    request->prefilled = true;
    drop_large(sc, request);
    prompt->prompts--;
    prompt->memory_tokens -= request->prompt_memory;
}

static void pool_settle(struct sched_cluster *sc, uint32_t i);

void cluster_load_computed(struct sched_cluster *sc, struct cluster_request *request)
{
    if (!request->computed)
        cluster_admission_computed(sc, request);
    drop_pending(sc, request);
    ranks_update(sc, request->prompt_machine);
}

void cluster_load_prefilled(struct sched_cluster *sc, struct cluster_request *request)
{
    if (!request->computed)
        cluster_admission_computed(sc, request);
    drop_prompt(sc, request);
    ranks_update(sc, request->prompt_machine);
    pool_settle(sc, request->prompt_machine);
}

void cluster_load_end(struct sched_cluster *sc, struct cluster_request *request)
{
    drop_prompt(sc, request);
    if (request->token_machine != SCHED_NO_MACHINE) {
        struct cluster_machine *token = &sc->machines[request->token_machine];
        token->decodes--;
        token->memory_tokens -= request->token_memory;
        ranks_update(sc, request->token_machine);
    }
    ranks_update(sc, request->prompt_machine);
    pool_settle(sc, request->prompt_machine);
    if (request->token_machine != SCHED_NO_MACHINE)
        pool_settle(sc, request->token_machine);
}

/* If another scheduler has made the machine mixed, requests that are too large for a mixed machine
 * must leave it, whichever pool it is in here: see count_large. */
void cluster_load_others(struct sched_cluster *sc, uint32_t i, const struct sched_others *others)
{
    struct cluster_machine *machine = &sc->machines[i];
    machine->others = *others;
    ranks_update(sc, i);
    if (others->mixed && machine->large_requests > 0)
        cluster_requests_lose_large(sc, i);
}

/* ---- pools ---- */

static void trees_put(struct sched_cluster *sc, uint32_t i, bool in)
{
    for (int measure = 0; measure < MEASURE_COUNT; measure++)
        cluster_tree_update(&sc->trees[measure][sc->machines[i].pool], sc->ranks[measure], i, in);
}

static bool is_away(const struct cluster_machine *machine)
{
    return machine->pool != machine->home;
}

void cluster_pool_refresh(struct sched_cluster *sc, uint32_t i)
{
    const struct cluster_machine *machine = &sc->machines[i];
    bool open = machine->up && !machine->draining;
    if (open == in_trees(sc, i))
        return;
    machine_set_put(&sc->routable, i, open);
    trees_put(sc, i, open);
    if (is_away(machine))
        sc->lent_count += open ? 1 : UINT32_MAX;
}

static void move_report_later(struct sched_cluster *sc, struct cluster_machine *machine)
{
    sc->unreported_moves += machine->move_reported ? 1 : 0;
    machine->move_reported = false;
}

static void pools_set(struct sched_cluster *sc, uint32_t i, enum pool pool, enum pool home)
{
    struct cluster_machine *machine = &sc->machines[i];
    bool open = in_trees(sc, i);
    if (machine->pool == pool && machine->home == home)
        return;
    if (open) {
        trees_put(sc, i, false);
        sc->lent_count -= is_away(machine) ? 1 : 0;
    }
    if (machine->pool != pool) {
        sc->move_count++;
        for (int measure = 0; measure < MEASURE_COUNT; measure++)
            sc->ranks[measure][i].order = sc->move_count;
    }
    machine->pool = pool;
    machine->home = home;
    if (open) {
        trees_put(sc, i, true);
        sc->lent_count += is_away(machine) ? 1 : 0;
    }
    sc->pair_can_serve |= open && pool == POOL_MIXED;
    sc->pair_could_serve |= sc->pair_can_serve;
    move_report_later(sc, machine);
    cluster_pool_sizes(sc);
}

void cluster_pool_move(struct sched_cluster *sc, uint32_t i, enum pool pool)
{
    pools_set(sc, i, pool, sc->machines[i].home);
}

static bool has_foreign_work(const struct cluster_machine *machine)
{
    switch (machine->home) {
    case POOL_PROMPT:
        return machine->decodes > 0;
    case POOL_TOKEN:
        return machine->prompts > 0;
    default:
        return false;
    }
}

void cluster_pool_home(struct sched_cluster *sc, uint32_t i, enum pool home)
{
    struct cluster_machine *machine = &sc->machines[i];
    struct cluster_machine there = *machine;
    there.home = home;
    pools_set(sc, i, has_foreign_work(&there) ? POOL_MIXED : home, home);
    if (machine->pool == POOL_MIXED && machine->large_requests > 0)
        cluster_requests_lose_large(sc, i);
}

/* True if a prompt machine and a token machine could serve together if `machine` were in `pool`
 * (SCHED_NO_MACHINE = all machines stay where they are). */
static bool paired_with(const struct sched_cluster *sc, uint32_t machine, enum pool pool)
{
    struct machine_set tokens = {{0}};
    uint32_t count = sc->options.machine_count;
    for (uint32_t i = 0; i < count; i++) {
        enum pool its = i == machine ? pool : sc->machines[i].pool;
        if (!in_trees(sc, i))
            continue;
        if (its == POOL_MIXED)
            return true;
        machine_set_put(&tokens, i, its == POOL_TOKEN);
    }
    for (uint32_t i = 0; i < count; i++) {
        enum pool its = i == machine ? pool : sc->machines[i].pool;
        if (!in_trees(sc, i) || its != POOL_PROMPT)
            continue;
        for (uint32_t word = 0; word < set_words(sc); word++)
            if ((sc->machines[i].links.words[word] & tokens.words[word]) != 0)
                return true;
    }
    return false;
}

static bool may_go_home(const struct sched_cluster *sc, uint32_t i)
{
    const struct cluster_machine *machine = &sc->machines[i];
    switch (sc->options.homing) {
    case SCHED_HOMING_DONE:
        if (has_foreign_work(machine))
            return false;
        break;
    case SCHED_HOMING_IDLE:
        if (machine->prompts > 0 || machine->decodes > 0)
            return false;
        break;
    case SCHED_HOMING_REPORTED:
        return false; /* SCHED_MACHINE_IDLE returns it */
    }
    /* If no other machine can do the other phase, the next request would move it back at once. */
    return !in_trees(sc, i) || paired_with(sc, i, machine->home);
}

/* Returns the machine to its home pool if the option `homing` allows it now. */
static void pool_settle(struct sched_cluster *sc, uint32_t i)
{
    if (is_away(&sc->machines[i]) && may_go_home(sc, i))
        cluster_pool_move(sc, i, sc->machines[i].home);
}

void cluster_pools_return_lent(struct sched_cluster *sc)
{
    for (uint32_t i = 0; i < sc->options.machine_count && sc->lent_count > 0; i++)
        if (in_trees(sc, i))
            pool_settle(sc, i);
}

/* ---- sizes and pairs ---- */

void cluster_pool_sizes(struct sched_cluster *sc)
{
    bool prompt_known = false;
    bool token_known = false;
    uint64_t prompt_most = 0;
    uint64_t token_most = 0;
    uint64_t alone[2] = {0};
    sc->capacity_most = 0;
    for (uint32_t i = 0; i < sc->options.machine_count; i++) {
        const struct cluster_machine *machine = &sc->machines[i];
        if (!machine->was_up)
            continue;
        if (machine->kv.capacity_tokens > sc->capacity_most)
            sc->capacity_most = machine->kv.capacity_tokens;
        uint64_t most = machine->home == POOL_MIXED ? machine->mixed_kv_tokens : machine->kv_tokens;
        alone[1] = most > alone[1] ? most : alone[1];
        if (pool_serves_phase(machine->pool, POOL_PROMPT)) {
            alone[0] = most > alone[0] ? most : alone[0];
            prompt_known = true;
            prompt_most = machine->kv_tokens > prompt_most ? machine->kv_tokens : prompt_most;
        }
        if (pool_serves_phase(machine->pool, POOL_TOKEN)) {
            token_known = true;
            token_most = machine->kv_tokens > token_most ? machine->kv_tokens : token_most;
        }
    }
    sc->prompt_tokens_most = prompt_known ? prompt_most : UINT64_MAX;
    sc->token_tokens_most = token_known ? token_most : UINT64_MAX;
    sc->tokens_most = prompt_most > token_most ? prompt_most : token_most;
    sc->prompt_only_tokens_most[0] = prompt_known ? alone[0] : UINT64_MAX;
    sc->prompt_only_tokens_most[1] = alone[1];
    if (!prompt_known && !token_known)
        sc->tokens_most = sc->prompt_only_tokens_most[1] = UINT64_MAX;
}

void cluster_pool_pair(struct sched_cluster *sc)
{
    sc->pair_can_serve = paired_with(sc, SCHED_NO_MACHINE, POOL_MIXED);
    sc->pair_could_serve |= sc->pair_can_serve;
}
