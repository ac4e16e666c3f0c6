/* sched_cluster, the choice: which prompt machine and which token machine a request gets, and which
 * machines move to the mixed pool for it. It applies the rules of cluster.h in their order and
 * changes nothing; queue.c carries the route out.
 *
 * There are two kinds of limits. The thresholds of rules 1 and 2 divert work to other machines; the
 * bounds (machine_kv_multiple, machine_tokens_max, machine_us_max) make it wait. */
#include "scheduler/cluster/seek.h"
#include "scheduler/memory.h"

#include <assert.h>
#include <string.h>

static uint64_t bound_of(const struct seek *s, uint32_t i, enum measure measure)
{
    const struct sched_cluster_options *options = &s->sc->options;
    const struct cluster_machine *machine = &s->sc->machines[i];
    uint64_t bound = options->machine_tokens_max == 0 ? UINT64_MAX : options->machine_tokens_max;
    if (s->assume_idle)
        return UINT64_MAX;
    uint64_t most = machine->kv.capacity_tokens * options->machine_kv_multiple;
    if (options->machine_kv_multiple > 0 && most < bound)
        bound = most;
    if (measure == MEASURE_MEMORY)
        return bound;
    if (machine->prompt_tokens_per_s == 0)
        most = options->machine_tokens_unmeasured;
    else if (options->machine_us_max > 0)
        most = (uint64_t)options->machine_us_max * machine->prompt_tokens_per_s / US_PER_S + 1;
    else
        return bound;
    return most > 0 && most < bound ? most : bound;
}

bool seek_has_room(const struct seek *s, uint32_t i, enum measure measure, uint64_t tokens)
{
    return s->sc->machines[i].kv_tokens >= tokens &&
           s->sc->ranks[measure][i].tokens < bound_of(s, i, measure);
}

/* True if the machine is in the mixed pool or about to move there. */
static bool mixed(const struct seek *s, uint32_t i)
{
    return s->counts_as_mixed || s->sc->machines[i].pool == POOL_MIXED;
}

/* True if the machine divides its memory between the phases. */
static bool shares(const struct seek *s, uint32_t i)
{
    return mixed(s, i) || s->sc->machines[i].others.mixed;
}

/* True if the machine `from` can compute the prompt and `to` can decode it. A mixed machine takes
 * one phase of a request only if that fits its share of memory (mixed_kv_tokens); a request of
 * which it does both phases may take all its memory. */
static bool reaches(const struct seek *s, uint32_t from, uint32_t to)
{
    const struct cluster_machine *prompt = &s->sc->machines[from];
    const struct cluster_machine *token = &s->sc->machines[to];
    if (from == to)
        return mixed(s, from);
    return machine_set_has(&prompt->links, to) &&
           (!shares(s, from) || s->request->prompt_tokens <= prompt->mixed_kv_tokens) &&
           (!shares(s, to) || request_tokens(s->request) <= token->mixed_kv_tokens);
}

bool seek_token_fits(const void *self, uint32_t i)
{
    const struct seek *s = self;
    return seek_has_room(s, i, MEASURE_MEMORY, request_tokens(s->request)) &&
           (s->prompt_machine == SCHED_NO_MACHINE || reaches(s, s->prompt_machine, i));
}

/* Tokens that the request adds to a machine. */
static uint64_t added_tokens(const struct seek *s, enum measure measure, uint32_t i)
{
    return measure == MEASURE_PENDING
               ? s->request->prompt_tokens
               : request_scheduled_tokens(s->request, &s->sc->machines[i], false);
}

/* Returns the time in which the machine has done its work and the request. */
static uint64_t work_us_with(const struct seek *s, enum measure measure, uint32_t i)
{
    return cluster_work_us(s->sc, i, measure, added_tokens(s, measure, i));
}

/* True if the machine is better than `best`, which may be SCHED_NO_MACHINE. */
static bool better(const struct seek *s, enum measure measure, uint32_t machine, uint32_t best)
{
    const struct cluster_rank *ranks = s->sc->ranks[measure];
    if (best == SCHED_NO_MACHINE)
        return true;
    uint64_t us = work_us_with(s, measure, machine);
    uint64_t best_us = work_us_with(s, measure, best);
    return us != best_us ? us < best_us : cluster_rank_before(ranks, machine, best);
}

/* Unequal machines: returns the one of the pool that has done its work and the request first. */
static uint32_t find_soonest(const struct seek *s, enum measure measure, enum pool pool,
                             bool (*fits)(const void *self, uint32_t machine))
{
    uint32_t best = SCHED_NO_MACHINE;
    for (uint32_t i = 0; i < s->sc->options.machine_count; i++)
        if (machine_set_has(&s->sc->routable, i) && s->sc->machines[i].pool == pool &&
            better(s, measure, i, best) && fits(s, i))
            best = i;
    return best;
}

/* True if machine `b` has strictly less work by `measure` than machine `a`. */
static bool less_work(const struct seek *s, enum measure measure, uint32_t b, uint32_t a)
{
    const struct cluster_rank *ranks = s->sc->ranks[measure];
    if (s->sc->unequal[measure])
        return work_us_with(s, measure, b) < work_us_with(s, measure, a);
    return ranks[b].tokens < ranks[a].tokens;
}

uint32_t seek_least_loaded(const struct seek *s, enum measure measure, enum pool pool,
                           bool (*fits)(const void *self, uint32_t machine))
{
    if (s->sc->unequal[measure])
        return find_soonest(s, measure, pool, fits);
    return cluster_tree_find(&s->sc->trees[measure][pool], s->sc->ranks[measure], s->tokens_below,
                             fits, s);
}

/* Returns the machine with less work by `measure`, `a` if both have as much; either may be
 * SCHED_NO_MACHINE. */
static uint32_t less_loaded(const struct seek *s, enum measure measure, uint32_t a, uint32_t b)
{
    if (a == SCHED_NO_MACHINE || b == SCHED_NO_MACHINE)
        return a == SCHED_NO_MACHINE ? b : a;
    return less_work(s, measure, b, a) ? b : a;
}

/* True if the machine holds a prompt without a token phase. */
static bool holds_prompt(const struct seek *s, uint32_t i)
{
    return !shares(s, i) || s->request->prompt_tokens <= s->sc->machines[i].mixed_kv_tokens;
}

/* True if a token machine exists for a prompt computed on `prompt`. */
static bool has_partner(const struct seek *s, uint32_t prompt)
{
    /* No token machine exists, so a machine that can do both phases may decode this request itself.
     */
    if (s->token_candidate == SCHED_NO_MACHINE)
        return s->flexible && seek_has_room(s, prompt, MEASURE_MEMORY, request_tokens(s->request));
    if (reaches(s, prompt, s->token_candidate))
        return true;
    struct seek partner = *s;
    partner.prompt_machine = prompt;
    return seek_least_loaded(&partner, MEASURE_MEMORY, POOL_TOKEN, seek_token_fits) !=
               SCHED_NO_MACHINE ||
           seek_least_loaded(&partner, MEASURE_MEMORY, POOL_MIXED, seek_token_fits) !=
               SCHED_NO_MACHINE;
}

static bool prompt_fits(const void *self, uint32_t i)
{
    const struct seek *s = self;
    if (!seek_has_room(s, i, MEASURE_PENDING, s->request->prompt_tokens))
        return false;
    return s->request->output_tokens > 0 ? has_partner(s, i) : holds_prompt(s, i);
}

bool seek_both_fit(const void *self, uint32_t i)
{
    const struct seek *s = self;
    return seek_has_room(s, i, MEASURE_PENDING, request_tokens(s->request)) &&
           s->sc->ranks[MEASURE_MEMORY][i].tokens < bound_of(s, i, MEASURE_MEMORY) &&
           (s->request->output_tokens > 0 || holds_prompt(s, i));
}

/* ---- rules 1 and 2: the phase's own pool, then the mixed pool ---- */

/* Returns the time in which the machine would have computed its pending tokens and the request's
 * prompt; 0 = its rate is not known. */
static int64_t computed_us(const struct sched_cluster *sc, const struct cluster_request *request,
                           uint32_t i)
{
    return sc->machines[i].prompt_tokens_per_s == 0
               ? 0
               : (int64_t)cluster_work_us(sc, i, MEASURE_PENDING, request->prompt_tokens);
}

static bool has_prompts(const struct seek *s, uint32_t i)
{
    const struct cluster_machine *machine = &s->sc->machines[i];
    return s->sc->options.busy_is_reported
               ? machine->busy
               : machine->prompts_pending > 0 || machine->others.prompts > 0;
}

/* threshold: 0 = none. */
static bool is_above(uint64_t value, uint64_t threshold)
{
    return threshold > 0 && value > threshold;
}

bool seek_prompt_over_threshold(const struct seek *s, uint32_t i)
{
    const struct sched_cluster_options *options = &s->sc->options;
    const struct cluster_machine *machine = &s->sc->machines[i];
    if (!s->thresholds || !has_prompts(s, i))
        return false;
    uint64_t tokens = s->sc->ranks[MEASURE_PENDING][i].tokens + s->request->prompt_tokens;
    if (is_above(tokens, options->prompt_queue_threshold_tokens))
        return true;
    if (machine->prompt_tokens_per_s == 0)
        return is_above(tokens, options->prompt_queue_threshold_unmeasured);
    return is_above(cluster_work_us(s->sc, i, MEASURE_PENDING, 0),
                    (uint64_t)options->prompt_queue_threshold_us);
}

/* Returns how much of the machine's KV memory, in tokens, its requests and this one may fill: what
 * the machine keeps for answers that grow, and in the mixed pool for prompts that are decoded
 * elsewhere, is left free (scheduler/memory.h). both = the machine does both phases of this
 * request. */
static uint64_t memory_usable(const struct seek *s, uint32_t i, bool both)
{
    const struct sched_cluster_options *options = &s->sc->options;
    const struct cluster_machine *machine = &s->sc->machines[i];
    uint64_t answers = (uint64_t)machine->decodes + machine->others.decodes;
    uint64_t capacity = machine->kv.capacity_tokens;
    uint64_t kept = sched_memory_growth_reserve(capacity, options->growth_reserve_percent,
                                                answers * options->growth_reserve_tokens);
    if (shares(s, i) && !both && machine->mixed_kv_tokens < machine->kv_tokens)
        kept += machine_kv_tokens(machine, machine->mixed_kv_tokens, true);
    return capacity > kept ? capacity - kept : 0;
}

bool seek_token_over_threshold(const struct seek *s, uint32_t i, bool both)
{
    uint64_t scheduled = s->sc->ranks[MEASURE_MEMORY][i].tokens;
    return s->thresholds && s->sc->options.token_memory_threshold && scheduled > 0 &&
           scheduled + request_scheduled_tokens(s->request, &s->sc->machines[i], both) >
               memory_usable(s, i, both);
}

static bool lent_home_fits(const void *self, uint32_t i)
{
    const struct seek *s = self;
    return s->sc->machines[i].home == POOL_PROMPT && prompt_fits(s, i);
}

/* A machine that the prompt pool has lent is one of the pool again when the other machines of the
 * pool have prompts. Otherwise it would compute no prompt until its last answer has ended, while
 * prompts wait beside it. */
static uint32_t prompt_of_home(const struct seek *s)
{
    const struct sched_cluster *sc = s->sc;
    uint32_t found = seek_least_loaded(s, MEASURE_PENDING, POOL_PROMPT, prompt_fits);
    if (found == SCHED_NO_MACHINE || sc->lent_count == 0 ||
        sc->options.homing != SCHED_HOMING_DONE || !has_prompts(s, found))
        return found;
    uint32_t lent = seek_least_loaded(s, MEASURE_PENDING, POOL_MIXED, lent_home_fits);
    return less_loaded(s, MEASURE_PENDING, found, lent);
}

/* With a sole prompt machine, a machine that the token pool has lent gets no prompts by rule 1. It
 * would otherwise stay lent as long as prompts come. */
static bool mixed_prompt_fits(const void *self, uint32_t i)
{
    const struct seek *s = self;
    return !(s->sole_prompt_machine && s->sc->machines[i].home == POOL_TOKEN) && prompt_fits(s, i);
}

static bool mixed_token_fits(const void *self, uint32_t i)
{
    const struct seek *s = self;
    return !(s->sole_prompt_machine && s->sc->machines[i].home == POOL_PROMPT) &&
           seek_token_fits(s, i);
}

static uint32_t prompt_of_pools(const struct seek *s)
{
    uint32_t own = prompt_of_home(s);
    if (own != SCHED_NO_MACHINE && !seek_prompt_over_threshold(s, own))
        return own;
    uint32_t mixed = seek_least_loaded(s, MEASURE_PENDING, POOL_MIXED, mixed_prompt_fits);
    if (mixed != SCHED_NO_MACHINE && !seek_prompt_over_threshold(s, mixed))
        return mixed;
    bool diverts = s->flexible && s->thresholds && !s->prompts_need_cores;
    return diverts ? SCHED_NO_MACHINE : less_loaded(s, MEASURE_PENDING, own, mixed);
}

/* A mixed prompt machine keeps the request, unless another mixed machine has stay_tokens less
 * scheduled. */
static uint32_t mixed_or_self(const struct seek *s, uint32_t mixed)
{
    const struct cluster_rank *ranks = s->sc->ranks[MEASURE_MEMORY];
    uint32_t self = s->prompt_machine;
    if (mixed == SCHED_NO_MACHINE || self == SCHED_NO_MACHINE ||
        s->sc->machines[self].pool != POOL_MIXED || !mixed_token_fits(s, self))
        return mixed;
    return ranks[self].tokens < ranks[mixed].tokens + s->sc->options.stay_tokens ? self : mixed;
}

static uint32_t token_of_pools(const struct seek *s)
{
    uint32_t own = seek_least_loaded(s, MEASURE_MEMORY, POOL_TOKEN, seek_token_fits);
    if (own != SCHED_NO_MACHINE && !seek_token_over_threshold(s, own, own == s->prompt_machine))
        return own;
    uint32_t mixed =
        mixed_or_self(s, seek_least_loaded(s, MEASURE_MEMORY, POOL_MIXED, mixed_token_fits));
    if (mixed != SCHED_NO_MACHINE &&
        !seek_token_over_threshold(s, mixed, mixed == s->prompt_machine))
        return mixed;
    if (s->flexible && s->thresholds && !s->sole_prompt_machine)
        return SCHED_NO_MACHINE;
    return less_loaded(s, MEASURE_MEMORY, own, mixed);
}

/* ---- machines that keep the TTFT limit ---- */

/* Returns the machine that would finish the prompt first, if `prompt`, which has the shortest
 * queue, would be late; else `prompt`. A machine whose rate is not known counts as in time, as in
 * cluster_route_late_us, so the function prefers it to any machine whose rate is known. With
 * machines of equal speed the queue decides alone, so this loop over all machines is rare. */
static uint32_t earliest_prompt(const struct seek *s, uint32_t prompt)
{
    const struct sched_cluster *sc = s->sc;
    if (sc->options.ttft_us_max == 0 || prompt == SCHED_NO_MACHINE ||
        computed_us(sc, s->request, prompt) <= sc->options.ttft_us_max)
        return prompt;
    int64_t best_us = computed_us(sc, s->request, prompt);
    for (uint32_t i = 0; i < sc->options.machine_count; i++) {
        if (!machine_set_has(&sc->routable, i) ||
            !pool_serves_phase(sc->machines[i].pool, POOL_PROMPT) ||
            computed_us(sc, s->request, i) >= best_us || !prompt_fits(s, i))
            continue;
        prompt = i;
        best_us = computed_us(sc, s->request, i);
    }
    return prompt;
}

/* ---- rules 3 and 4 ---- */

/* True if the machine holds a request that is too large for a mixed machine. */
bool seek_keeps_pool(const struct seek *s, uint32_t i)
{
    return s->sc->machines[i].large_requests > 0 && !s->assume_idle;
}

/* True if prompts are computed sooner when the machine computes some of them. */
static bool helps_prompts(const struct sched_cluster *sc, uint32_t i)
{
    return pool_serves_phase(sc->machines[i].pool, POOL_PROMPT) ||
           cluster_adds_cores(sc, i, POOL_PROMPT);
}

static bool all_help_prompts(const struct sched_cluster *sc)
{
    for (uint32_t i = 0; i < sc->options.machine_count && sc->cores_shared; i++)
        if (machine_set_has(&sc->routable, i) && !helps_prompts(sc, i))
            return false;
    return true;
}

static bool takes_prompts(const struct seek *s, uint32_t i)
{
    return !s->prompts_need_cores || helps_prompts(s->sc, i);
}

static bool lent_prompt_fits(const void *self, uint32_t i)
{
    const struct seek *s = self;
    if (!takes_prompts(s, i) || seek_keeps_pool(s, i) ||
        !seek_has_room(s, i, MEASURE_PENDING, s->request->prompt_tokens) ||
        (!s->sc->options.lends_as_splitwise && seek_token_over_threshold(s, i, false)))
        return false;
    if (s->request->output_tokens == 0)
        return holds_prompt(s, i);
    if (s->token_candidate != SCHED_NO_MACHINE)
        return reaches(s, i, s->token_candidate);
    return true; /* The token machine is searched next. */
}

static bool lent_token_fits(const void *self, uint32_t i)
{
    const struct seek *s = self;
    return !seek_keeps_pool(s, i) && seek_token_fits(s, i);
}

static void lend(const struct seek *s, struct route *out)
{
    struct seek lent = *s;
    lent.counts_as_mixed = true;
    if (out->prompt_machine == SCHED_NO_MACHINE) {
        lent.token_candidate = out->token_machine;
        lent.prompt_machine = SCHED_NO_MACHINE;
        out->prompt_machine =
            seek_least_loaded(&lent, MEASURE_PENDING, POOL_TOKEN, lent_prompt_fits);
        out->prompt_moves = out->prompt_machine != SCHED_NO_MACHINE;
    }
    if (out->token_machine == SCHED_NO_MACHINE && s->request->output_tokens > 0) {
        lent.prompt_machine = out->prompt_machine;
        out->token_machine = seek_least_loaded(&lent, MEASURE_MEMORY, POOL_PROMPT, lent_token_fits);
        out->token_moves = out->token_machine != SCHED_NO_MACHINE;
    }
}

static bool fits_beside_lent(const void *self, uint32_t i)
{
    const struct seek *s = self;
    bool waits = s->sole_prompt_machine && s->request->output_tokens > 0;
    return s->lent_plus_1 != i + 1 && takes_prompts(s, i) && seek_both_fit(s, i) &&
           !(waits && seek_token_over_threshold(s, i, true));
}

/* Rule 4. A machine that rule 3 has moved and that stays moved (lends_as_splitwise) ranks last in
 * the mixed pool. */
static void one_for_both(const struct seek *s, struct route *out)
{
    static const enum pool order[] = {POOL_PROMPT, POOL_MIXED, POOL_TOKEN};
    uint32_t best = SCHED_NO_MACHINE;
    struct seek beside = *s;
    if (s->sc->options.lends_as_splitwise)
        beside.lent_plus_1 = out->prompt_moves  ? out->prompt_machine + 1
                             : out->token_moves ? out->token_machine + 1
                                                : 0;
    for (int i = 0; i < POOL_COUNT; i++) {
        uint32_t found = seek_least_loaded(&beside, MEASURE_PENDING, order[i], fits_beside_lent);
        if (found != SCHED_NO_MACHINE &&
            (best == SCHED_NO_MACHINE || less_work(s, MEASURE_PENDING, found, best)))
            best = found;
        if (order[i] == POOL_MIXED && beside.lent_plus_1 > 0 &&
            seek_both_fit(s, beside.lent_plus_1 - 1) &&
            (best == SCHED_NO_MACHINE ||
             less_work(s, MEASURE_PENDING, beside.lent_plus_1 - 1, best)))
            best = beside.lent_plus_1 - 1;
    }
    *out = (struct route){
        .prompt_machine = best, .token_machine = best, .lent_plus_1 = beside.lent_plus_1};
    if (s->request->output_tokens == 0)
        out->token_machine = SCHED_NO_MACHINE;
}

static bool complete(const struct seek *s, const struct route *route)
{
    return route->prompt_machine != SCHED_NO_MACHINE &&
           (s->request->output_tokens == 0 || route->token_machine != SCHED_NO_MACHINE);
}

/* ---- all rules ---- */

static const struct route no_route = {.prompt_machine = SCHED_NO_MACHINE,
                                      .token_machine = SCHED_NO_MACHINE};

static void pools_route(struct seek *s, struct route *out)
{
    s->prompt_machine = s->token_candidate = SCHED_NO_MACHINE;
    if (s->request->output_tokens > 0) {
        s->token_candidate = seek_least_loaded(s, MEASURE_MEMORY, POOL_TOKEN, seek_token_fits);
        if (s->token_candidate == SCHED_NO_MACHINE)
            s->token_candidate = seek_least_loaded(s, MEASURE_MEMORY, POOL_MIXED, seek_token_fits);
    }
    out->prompt_machine = earliest_prompt(s, prompt_of_pools(s));
    if (s->request->output_tokens == 0)
        return;
    s->prompt_machine = out->prompt_machine;
    out->token_machine = token_of_pools(s);
}

/* True if rules 1 and 2 find machines for the request when these have done their work. */
static bool pools_can_serve(const struct seek *s)
{
    struct seek idle = *s;
    struct route route = no_route;
    idle.flexible = idle.thresholds = false;
    idle.assume_idle = true;
    idle.tokens_below = UINT64_MAX;
    pools_route(&idle, &route);
    return complete(&idle, &route);
}

/* Rules 3 and 4, when rules 1 and 2 have found no pair of machines below the thresholds. */
static void flexible_route(struct seek *s, struct route *out)
{
    s->prompts_need_cores =
        out->prompt_machine == SCHED_NO_MACHINE && !all_help_prompts(s->sc) && pools_can_serve(s);
    lend(s, out);
    if (out->prompt_machine == SCHED_NO_MACHINE && s->prompts_need_cores) {
        *out = no_route;
        pools_route(s, out); /* The prompt machine is now the best above its threshold. */
        lend(s, out);
    }
    if (!complete(s, out))
        one_for_both(s, out);
}

static bool route_found(struct seek *s, struct route *out)
{
    *out = no_route;
    if (s->sc->options.unsplit) {
        one_for_both(s, out);
        return complete(s, out);
    }
    pools_route(s, out);
    if (!complete(s, out) && s->flexible)
        flexible_route(s, out);
    if (complete(s, out) && !s->assume_idle) {
        cluster_cheapest(s, out);
        cluster_together(s, out);
    }
    return complete(s, out);
}

/* True when machines may do work of the other phase because no other machine can. */
static bool covers_other_phase(const struct sched_cluster *sc)
{
    bool started = sc->pair_could_serve || (sc->first_up_us >= 0 && sc->now_us - sc->first_up_us >=
                                                                        sc->options.cover_after_us);
    return started && !sc->pair_can_serve;
}

/* True if "Sole prompt machine" in cluster.h applies: exactly one machine computes prompts by its
 * home pool, its times are known, and another machine generates answers by its home pool. */
static bool sole_prompt_machine(const struct sched_cluster *sc)
{
    uint32_t prompts = 0; /* Machines whose home pool computes prompts. */
    bool measured = false, token = false;
    if (!sc->options.one_machine_routes || sc->cores_shared ||
        (sc->mean_step.fixed_ns == 0 && sc->mean_step.row_ns == 0))
        return false;
    for (uint32_t i = 0; i < sc->options.machine_count && prompts < 2; i++) {
        const struct cluster_machine *machine = &sc->machines[i];
        if (!machine_set_has(&sc->routable, i))
            continue;
        token |= machine->home == POOL_TOKEN;
        if (machine->home == POOL_TOKEN)
            continue;
        prompts++;
        measured = machine->prompt_tokens_per_s > 0;
    }
    return prompts == 1 && measured && token;
}

/* The largest bound of any machine: machines with this many tokens take no more. */
static uint64_t bound_of_all(const struct sched_cluster *sc)
{
    const struct sched_cluster_options *options = &sc->options;
    uint64_t bound = options->machine_tokens_max == 0 ? UINT64_MAX : options->machine_tokens_max;
    if (options->machine_kv_multiple > 0 &&
        sc->capacity_most < bound / options->machine_kv_multiple)
        bound = sc->capacity_most * options->machine_kv_multiple;
    return bound;
}

enum route_result cluster_route_find(const struct sched_cluster *sc,
                                     const struct cluster_request *request, struct route *out)
{
    struct seek s = {.sc = sc,
                     .request = request,
                     .flexible =
                         (sc->options.adaptive && sc->pair_could_serve) || covers_other_phase(sc),
                     .thresholds = true,
                     .sole_prompt_machine = sole_prompt_machine(sc),
                     .tokens_below = bound_of_all(sc)};
    if (route_found(&s, out))
        return ROUTE_FOUND;
    if (s.sole_prompt_machine && !pools_can_serve(&s)) {
        s.sole_prompt_machine = false; /* Only lent machines can take the request. */
        if (route_found(&s, out))
            return ROUTE_FOUND;
    }
    s.assume_idle = true;
    s.thresholds = false;
    s.tokens_below = UINT64_MAX;
    return route_found(&s, out) ? ROUTE_BUSY : ROUTE_STRANDED;
}

bool cluster_route_possible(const struct sched_cluster *sc, const struct cluster_request *request)
{
    uint64_t total = request_tokens(request);
    bool any = sc->options.adaptive || sc->options.unsplit || covers_other_phase(sc);
    if (request->output_tokens == 0 && request->prompt_tokens > sc->prompt_only_tokens_most[any])
        return false;
    if (any)
        return total <= sc->tokens_most;
    return request->prompt_tokens <= sc->prompt_tokens_most &&
           (request->output_tokens == 0 || total <= sc->token_tokens_most);
}

bool sched_cluster_ready(const struct sched_cluster *sc)
{
    static const struct machine_set none;
    if (sc->pair_can_serve)
        return true;
    bool anybody = memcmp(&sc->routable, &none, sizeof(none)) != 0;
    return anybody && (sc->options.unsplit || covers_other_phase(sc));
}

/* ---- deadlines ---- */

int64_t cluster_route_late_us(const struct sched_cluster *sc, const struct cluster_request *request,
                              uint64_t tokens_before, bool *never_out)
{
    bool any = cluster_tree_empty(&sc->trees[MEASURE_PENDING][POOL_PROMPT]) &&
               cluster_tree_empty(&sc->trees[MEASURE_PENDING][POOL_MIXED]);
    uint64_t rates = 0;
    int64_t best_us = INT64_MAX;
    int64_t idle_us = INT64_MAX;
    for (uint32_t i = 0; i < sc->options.machine_count; i++) {
        if (!machine_set_has(&sc->routable, i) ||
            (!any && !pool_serves_phase(sc->machines[i].pool, POOL_PROMPT)))
            continue;
        uint64_t rate = cluster_cores_rate(sc, i);
        if (rate == 0)
            return 0;
        rates += rate;
        uint64_t tokens = cluster_cores_pending(sc, i) + request->prompt_tokens;
        int64_t at_us = (int64_t)(tokens * US_PER_S / rate);
        int64_t alone_us = (int64_t)((uint64_t)request->prompt_tokens * US_PER_S / rate);
        best_us = at_us < best_us ? at_us : best_us;
        idle_us = alone_us < idle_us ? alone_us : idle_us;
    }
    if (rates == 0)
        return 0;
    /* The waiting requests go first, to the machines that become free. */
    best_us += (int64_t)(tokens_before * US_PER_S / rates);
    *never_out = idle_us > sc->options.ttft_us_max;
    return best_us - sc->options.ttft_us_max;
}
