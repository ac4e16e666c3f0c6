/* cluster_model_choice: see cluster_model_choice.h. */
#include "tests/scheduler/cluster_model_choice.h"

#include <string.h>

#define NONE SCHED_NO_MACHINE

uint64_t model_rank(const struct model *m, uint32_t i, enum by by)
{
    const struct sched_others *others = &m->machines[i].others;
    if (by == MEMORY)
        return model_memory(m, i) + others->kv_tokens;
    return model_pending(m, i) + model_decodes(m, i) + others->prompt_tokens + others->decodes;
}

static bool before_by_tokens(const struct model *m, uint32_t a, uint32_t b, enum by by)
{
    if (model_rank(m, a, by) != model_rank(m, b, by))
        return model_rank(m, a, by) < model_rank(m, b, by);
    if (m->machines[a].order != m->machines[b].order)
        return m->machines[a].order < m->machines[b].order;
    return a < b;
}

/* The machine's rate; 0 = not known. */
static uint64_t known_rate(const struct model_machine *machine, enum by by)
{
    return by == PENDING ? machine->prompt_rate : machine->output_rate;
}

/* Returns whether machines are compared by time; *mean_out: the rate of machines without one. */
static bool by_time(const struct model *m, enum by by, uint64_t *mean_out)
{
    uint64_t sum = 0, known = 0, least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < MODEL_MACHINES; i++) {
        uint64_t rate = known_rate(&m->machines[i], by);
        if (!m->machines[i].up || rate == 0)
            continue;
        sum += rate;
        known++;
        if (rate < least)
            least = rate;
        if (rate > most)
            most = rate;
    }
    *mean_out = known > 0 ? sum / known : 1000000;
    return m->options.compare_time && known >= 2 && most * 100 > least * 125;
}

/* The load of the machine with the request: microseconds, or tokens without it. */
static uint64_t load(const struct model_search *l, uint32_t i, enum by by)
{
    uint64_t mean, rate = known_rate(&l->m->machines[i], by);
    if (!by_time(l->m, by, &mean))
        return model_rank(l->m, i, by);
    uint64_t more = l->r->prompt_tokens;
    if (by == MEMORY)
        more = model_kv_tokens(&l->m->machines[i], more + l->r->answer_memory, false);
    return (model_rank(l->m, i, by) + more) * 1000000 / (rate > 0 ? rate : mean);
}

bool model_before(const struct model_search *l, uint32_t a, uint32_t b, enum by by)
{
    uint64_t load_a = load(l, a, by), load_b = load(l, b, by);
    return load_a != load_b ? load_a < load_b : before_by_tokens(l->m, a, b, by);
}

static uint64_t total(const struct model_search *l)
{
    return (uint64_t)l->r->prompt_tokens + l->r->output_tokens;
}

bool model_takes(const struct model_search *l, uint32_t i, enum by by, uint64_t tokens)
{
    const struct model_machine *machine = &l->m->machines[i];
    const struct sched_cluster_options *options = &l->m->options;
    if (!model_is_open(l->m, i) || machine->kv_tokens < tokens)
        return false;
    if (l->assume_idle)
        return true;
    uint64_t load = model_rank(l->m, i, by);
    if (options->machine_kv_multiple > 0 &&
        load >= model_capacity(machine) * options->machine_kv_multiple)
        return false;
    if (by == PENDING && options->machine_us_max > 0 && machine->prompt_rate > 0 &&
        load > (uint64_t)options->machine_us_max * machine->prompt_rate / 1000000)
        return false;
    return options->machine_tokens_max == 0 || load < options->machine_tokens_max;
}

/* The machine keeps memory for both kinds of work: for this scheduler or for another one. */
static bool shares(const struct model_search *l, uint32_t i, bool alone)
{
    const struct model_machine *machine = &l->m->machines[i];
    return alone || machine->pool == POOL_MIXED || machine->others.mixed;
}

static bool reaches(const struct model_search *l, uint32_t p, uint32_t t, bool alone)
{
    const struct model_machine *prompt = &l->m->machines[p];
    const struct model_machine *token = &l->m->machines[t];
    if (p == t)
        return alone || prompt->pool == POOL_MIXED;
    if (shares(l, p, alone) && l->r->prompt_tokens > prompt->mixed_kv_tokens)
        return false;
    if (shares(l, t, alone) && total(l) > token->mixed_kv_tokens)
        return false;
    return prompt->link[t];
}

/* A lent machine that does not get this phase's work from rules 1 and 2. */
static bool lent_away(const struct model_search *l, uint32_t i, enum pool phase)
{
    const struct model_machine *machine = &l->m->machines[i];
    return l->sole_prompt_machine && machine->pool == POOL_MIXED && machine->home != POOL_MIXED &&
           machine->home != phase;
}

/* Returns the best token machine of the pool that `prompt` reaches (NONE = from any machine).
 * with_lent: machines that the prompt pool has lent count, too, even with
 * a sole prompt machine. */
static uint32_t token_in(const struct model_search *l, enum pool pool, uint32_t prompt, bool alone,
                         bool with_lent)
{
    uint32_t best = NONE;
    for (uint32_t t = 0; t < MODEL_MACHINES; t++)
        if (l->m->machines[t].pool == pool && (with_lent || !lent_away(l, t, POOL_TOKEN)) &&
            model_takes(l, t, MEMORY, total(l)) &&
            !(alone && !l->assume_idle && model_has_large(l->m, t)) &&
            (prompt == NONE || reaches(l, prompt, t, alone)) &&
            (best == NONE || model_before(l, t, best, MEMORY)))
            best = t;
    return best;
}

/* A prompt without an answer takes no more memory of a mixed machine than other requests leave. */
static bool prompt_alone(const struct model_search *l, uint32_t p)
{
    const struct model_machine *machine = &l->m->machines[p];
    return !shares(l, p, false) || l->r->prompt_tokens <= machine->mixed_kv_tokens;
}

static bool prompt_good(const struct model_search *l, uint32_t p)
{
    if (!model_takes(l, p, PENDING, l->r->prompt_tokens))
        return false;
    if (l->r->output_tokens == 0)
        return prompt_alone(l, p);
    bool any_token = token_in(l, POOL_TOKEN, NONE, false, true) != NONE ||
                     token_in(l, POOL_MIXED, NONE, false, true) != NONE;
    if (!any_token)
        return l->flexible && model_takes(l, p, MEMORY, total(l));
    return token_in(l, POOL_TOKEN, p, false, true) != NONE ||
           token_in(l, POOL_MIXED, p, false, true) != NONE;
}

static uint32_t prompt_in(const struct model_search *l, enum pool pool)
{
    uint32_t best = NONE;
    for (uint32_t p = 0; p < MODEL_MACHINES; p++)
        if (l->m->machines[p].pool == pool && prompt_good(l, p) && !lent_away(l, p, POOL_PROMPT) &&
            (best == NONE || model_before(l, p, best, PENDING)))
            best = p;
    return best;
}

/* The time of what is pending on the machine and `more` tokens. */
static int64_t work_us(const struct model_search *l, uint32_t i, uint32_t more)
{
    uint64_t rate = l->m->machines[i].prompt_rate;
    uint64_t tokens = model_rank(l->m, i, PENDING) + more;
    return rate == 0 ? 0 : (int64_t)(tokens * 1000000 / rate);
}

static int64_t computed_us(const struct model_search *l, uint32_t i)
{
    return work_us(l, i, l->r->prompt_tokens);
}

static bool has_prompts(const struct model_search *l, uint32_t p)
{
    const struct model_machine *machine = &l->m->machines[p];
    return l->m->options.busy_is_reported
               ? machine->busy
               : model_pending(l->m, p) > 0 || machine->others.prompts > 0;
}

static bool prompt_over(const struct model_search *l, uint32_t p)
{
    const struct sched_cluster_options *options = &l->m->options;
    uint64_t tokens = options->prompt_queue_threshold_tokens;
    uint64_t unmeasured = options->prompt_queue_threshold_unmeasured;
    uint64_t queued = model_rank(l->m, p, PENDING) + l->r->prompt_tokens;
    int64_t us = options->prompt_queue_threshold_us;
    return l->thresholds && has_prompts(l, p) &&
           ((tokens > 0 && queued > tokens) || (us > 0 && work_us(l, p, 0) > us) ||
            (unmeasured > 0 && l->m->machines[p].prompt_rate == 0 && queued > unmeasured));
}

/* The machine keeps memory for its answers, and for prompts that are decoded elsewhere if it is
 * mixed (or moves, `alone`). The first request on the machine may use all memory. A request of
 * which the machine does both phases may use the memory that is kept for such prompts. */
static bool memory_over(const struct model_search *l, uint32_t t, bool both, bool alone)
{
    const struct sched_cluster_options *options = &l->m->options;
    const struct model_machine *machine = &l->m->machines[t];
    uint64_t answers = (uint64_t)model_decodes(l->m, t) + machine->others.decodes;
    uint64_t scheduled = model_rank(l->m, t, MEMORY);
    uint64_t percent = model_capacity(machine) * options->growth_reserve_percent / 100;
    uint64_t each = answers * options->growth_reserve_tokens;
    uint64_t needed =
        scheduled + model_kv_tokens(machine, l->r->prompt_tokens + l->r->answer_memory, both);
    if (each > 0)
        needed += percent > each ? percent : each;
    if (shares(l, t, alone) && !both && machine->mixed_kv_tokens < machine->kv_tokens)
        needed += model_kv_tokens(machine, machine->mixed_kv_tokens, true);
    return l->thresholds && options->token_memory_threshold && scheduled > 0 &&
           needed > model_capacity(machine);
}

bool model_token_over(const struct model_search *l, uint32_t t, bool both)
{
    return memory_over(l, t, both, false);
}

/* `a` unless b is strictly better. */
static uint32_t less_of(const struct model_search *l, uint32_t a, uint32_t b, enum by by)
{
    if (a == NONE || b == NONE)
        return a == NONE ? b : a;
    return load(l, b, by) < load(l, a, by) ? b : a;
}

/* Returns `own`, or the best machine that the prompt pool has lent if `own` has prompts and more
 * work. */
static uint32_t own_or_lent(const struct model_search *l, uint32_t own)
{
    uint32_t lent = NONE;
    if (own == NONE || l->m->options.homing != SCHED_HOMING_DONE || !has_prompts(l, own))
        return own;
    for (uint32_t p = 0; p < MODEL_MACHINES; p++)
        if (l->m->machines[p].pool == POOL_MIXED && l->m->machines[p].home == POOL_PROMPT &&
            prompt_good(l, p) && (lent == NONE || model_before(l, p, lent, PENDING)))
            lent = p;
    return less_of(l, own, lent, PENDING);
}

static uint32_t rule_1(const struct model_search *l)
{
    uint32_t own = own_or_lent(l, prompt_in(l, POOL_PROMPT));
    uint32_t mixed = prompt_in(l, POOL_MIXED);
    if (own != NONE && !prompt_over(l, own))
        return own;
    if (mixed != NONE && !prompt_over(l, mixed))
        return mixed;
    return l->flexible && l->thresholds && !l->above ? NONE : less_of(l, own, mixed, PENDING);
}

/* If `prompt` would miss the deadline, returns the machine that computes the prompt first. */
static uint32_t in_time(const struct model_search *l, uint32_t prompt)
{
    int64_t most = l->m->options.ttft_us_max;
    if (most == 0 || prompt == NONE || computed_us(l, prompt) <= most)
        return prompt;
    for (uint32_t i = 0; i < MODEL_MACHINES; i++)
        if (model_serves(l->m->machines[i].pool, POOL_PROMPT) && prompt_good(l, i) &&
            computed_us(l, i) < computed_us(l, prompt))
            prompt = i;
    return prompt;
}

static uint32_t rule_2(const struct model_search *l, uint32_t prompt)
{
    uint32_t own = token_in(l, POOL_TOKEN, prompt, false, true);
    uint32_t mixed = token_in(l, POOL_MIXED, prompt, false, false);
    if (mixed != NONE && prompt != NONE && l->m->machines[prompt].pool == POOL_MIXED &&
        !lent_away(l, prompt, POOL_TOKEN) && model_takes(l, prompt, MEMORY, total(l)) &&
        model_rank(l->m, prompt, MEMORY) <
            model_rank(l->m, mixed, MEMORY) + l->m->options.stay_tokens)
        mixed = prompt;
    if (own != NONE && !model_token_over(l, own, own == prompt))
        return own;
    if (mixed != NONE && !model_token_over(l, mixed, mixed == prompt))
        return mixed;
    bool lends = l->flexible && l->thresholds && !l->sole_prompt_machine;
    return lends ? NONE : less_of(l, own, mixed, MEMORY);
}

/* The machine computes prompts by its pool, or cores of the machine compute none. */
static bool brings_cores(const struct model *m, uint32_t p)
{
    uint32_t threads = 0;
    for (uint32_t i = 0; i < MODEL_MACHINES; i++)
        if (i != p && model_is_open(m, i) && m->machines[i].cores == m->machines[p].cores &&
            model_serves(m->machines[i].pool, POOL_PROMPT))
            threads += m->machines[i].threads;
    return model_serves(m->machines[p].pool, POOL_PROMPT) || m->machines[p].cores == 0 ||
           threads < m->machines[p].core_count;
}

static uint32_t rule_3_prompt(const struct model_search *l, uint32_t token)
{
    uint32_t best = NONE;
    for (uint32_t p = 0; p < MODEL_MACHINES; p++)
        if (l->m->machines[p].pool == POOL_TOKEN && (!l->need_cores || brings_cores(l->m, p)) &&
            (l->assume_idle || !model_has_large(l->m, p)) &&
            model_takes(l, p, PENDING, l->r->prompt_tokens) &&
            (l->m->options.lends_as_splitwise || !memory_over(l, p, false, true)) &&
            (l->r->output_tokens > 0 || l->r->prompt_tokens <= l->m->machines[p].mixed_kv_tokens) &&
            (token == NONE || reaches(l, p, token, true)) &&
            (best == NONE || model_before(l, p, best, PENDING)))
            best = p;
    return best;
}

bool model_takes_both(const struct model_search *l, uint32_t i)
{
    return model_takes(l, i, PENDING, total(l)) && model_takes(l, i, MEMORY, total(l)) &&
           (l->r->output_tokens > 0 || prompt_alone(l, i));
}

/* lent: the machine that rule 3 has moved for good, which makes it the last mixed machine; NONE =
 * none. */
static uint32_t rule_4(const struct model_search *l, uint32_t lent)
{
    static const enum pool order[] = {POOL_PROMPT, POOL_MIXED, POOL_TOKEN};
    uint32_t best = NONE;
    for (int k = 0; k < 3; k++) {
        uint32_t in_pool = NONE;
        for (uint32_t i = 0; i < MODEL_MACHINES; i++)
            if (i != lent && l->m->machines[i].pool == order[k] && model_takes_both(l, i) &&
                !(l->sole_prompt_machine && l->r->output_tokens > 0 &&
                  model_token_over(l, i, true)) &&
                (!l->need_cores || brings_cores(l->m, i)) &&
                (in_pool == NONE || model_before(l, i, in_pool, PENDING)))
                in_pool = i;
        best = less_of(l, best, in_pool, PENDING);
        if (order[k] == POOL_MIXED && lent != NONE && model_takes_both(l, lent))
            best = less_of(l, best, lent, PENDING);
    }
    return best;
}

/* Rules 1 and 2. Returns false if a machine is missing. */
static bool pools(const struct model_search *l, struct model_route *c)
{
    *c = (struct model_route){.prompt_machine = NONE, .token_machine = NONE, .lent_machine = NONE};
    c->prompt_machine = in_time(l, rule_1(l));
    if (l->r->output_tokens > 0)
        c->token_machine = rule_2(l, c->prompt_machine);
    return c->prompt_machine != NONE && (l->r->output_tokens == 0 || c->token_machine != NONE);
}

bool model_pools_can_serve(const struct model_search *l)
{
    struct model_search idle = {
        .m = l->m, .r = l->r, .assume_idle = true, .sole_prompt_machine = l->sole_prompt_machine};
    struct model_route route;
    return pools(&idle, &route);
}

static bool need_cores(const struct model_search *l)
{
    bool all = true;
    for (uint32_t i = 0; i < MODEL_MACHINES; i++)
        all &= !model_is_open(l->m, i) || brings_cores(l->m, i);
    return !all && model_pools_can_serve(l);
}

static bool all_rules(const struct model_search *l, struct model_route *c)
{
    bool decodes = l->r->output_tokens > 0;
    uint32_t lent = NONE;
    *c = (struct model_route){.prompt_machine = NONE, .token_machine = NONE, .lent_machine = NONE};
    if (!l->m->options.unsplit) {
        pools(l, c);
        if (l->flexible && c->prompt_machine == NONE) {
            c->prompt_machine = rule_3_prompt(l, c->token_machine);
            c->prompt_moves = c->prompt_machine != NONE;
        }
        if (l->flexible && decodes && c->token_machine == NONE) {
            c->token_machine = token_in(l, POOL_PROMPT, c->prompt_machine, true, true);
            c->token_moves = c->token_machine != NONE;
        }
        if (c->prompt_machine != NONE && (!decodes || c->token_machine != NONE)) {
            if (!l->assume_idle && !c->prompt_moves && !c->token_moves)
                model_choose_together(l, c);
            return c->prompt_machine != NONE;
        }
        if (l->m->options.lends_as_splitwise)
            lent = c->prompt_moves ? c->prompt_machine : c->token_moves ? c->token_machine : NONE;
    }
    if (!l->m->options.unsplit && !l->flexible)
        return false;
    *c = (struct model_route){
        .prompt_machine = rule_4(l, lent), .token_machine = NONE, .lent_machine = lent};
    if (decodes)
        c->token_machine = c->prompt_machine;
    else if (!l->assume_idle && !l->m->options.unsplit && lent == NONE && c->prompt_machine != NONE)
        model_choose_together(l, c);
    return c->prompt_machine != NONE;
}

bool model_choose(const struct model_search *l, struct model_route *c)
{
    struct model_search search = *l;
    if (l->m->options.unsplit || pools(l, c) || !l->flexible || c->prompt_machine != NONE)
        return all_rules(l, c);
    search.need_cores = need_cores(l);
    search.above = search.need_cores && rule_3_prompt(&search, c->token_machine) == NONE;
    return all_rules(&search, c);
}

static bool ever_possible(const struct model *m, const struct model_request *r)
{
    uint64_t tokens = (uint64_t)r->prompt_tokens + r->output_tokens;
    bool any = m->options.adaptive || m->options.unsplit || model_covers(m);
    bool alone_fits = r->output_tokens > 0;
    bool alone_known = false;
    bool known[2] = {false, false};
    bool fits[2] = {false, false};
    for (int i = 0; i < MODEL_MACHINES; i++) {
        const struct model_machine *machine = &m->machines[i];
        if (machine->was_up && (any || model_serves(machine->pool, POOL_PROMPT))) {
            alone_known = true;
            alone_fits |=
                r->prompt_tokens <=
                (machine->home == POOL_MIXED ? machine->mixed_kv_tokens : machine->kv_tokens);
        }
        for (int phase = 0; phase < 2; phase++) {
            if (!machine->was_up || !(any || model_serves(machine->pool, (enum pool)phase)))
                continue;
            known[phase] = true;
            fits[phase] |=
                machine->kv_tokens >= (phase == 0 && !any ? (uint64_t)r->prompt_tokens : tokens);
        }
    }
    if (alone_known && !alone_fits)
        return false;
    return (!known[0] || fits[0]) && (r->output_tokens == 0 || !known[1] || fits[1]);
}

/* Like ever_possible, but a request of one token whose prompt fits into no machine's share is
 * changed into a request that decodes, if that is possible. */
bool model_ever_possible(const struct model *m, struct model_request *r)
{
    if (ever_possible(m, r) || r->output_tokens > 0)
        return ever_possible(m, r);
    r->output_tokens = r->answer_memory = 1;
    if (!ever_possible(m, r))
        r->output_tokens = r->answer_memory = 0;
    return r->output_tokens > 0;
}
