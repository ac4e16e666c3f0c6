#include "tests/scheduler/cluster_model.h"

#include "tests/check.h"

#include <string.h>

#define NONE SCHED_NO_MACHINE

/* ---- sums ---- */

uint64_t model_pending(const struct model *m, uint32_t machine)
{
    uint64_t tokens = 0;
    for (int i = 0; i < MODEL_REQUESTS; i++) {
        const struct model_request *r = &m->requests[i];
        if (r->place == MODEL_ROUTED && r->prompt == machine && !r->computed)
            tokens += r->prompt_tokens;
    }
    return tokens;
}

uint64_t model_memory(const struct model *m, uint32_t machine)
{
    uint64_t tokens = 0;
    for (int i = 0; i < MODEL_REQUESTS; i++) {
        const struct model_request *r = &m->requests[i];
        if (r->place != MODEL_ROUTED)
            continue;
        if (r->token == machine)
            tokens += r->prompt_tokens + r->answer_memory;
        else if (r->prompt == machine && !r->moved)
            tokens += r->prompt_tokens + 1;
    }
    return tokens;
}

uint32_t model_prompts(const struct model *m, uint32_t machine)
{
    uint32_t count = 0;
    for (int i = 0; i < MODEL_REQUESTS; i++)
        count += m->requests[i].place == MODEL_ROUTED && m->requests[i].prompt == machine &&
                 !m->requests[i].moved;
    return count;
}

uint32_t model_decodes(const struct model *m, uint32_t machine)
{
    uint32_t count = 0;
    for (int i = 0; i < MODEL_REQUESTS; i++)
        count += m->requests[i].place == MODEL_ROUTED && m->requests[i].token == machine;
    return count;
}

uint32_t model_waiting(const struct model *m)
{
    uint32_t count = 0;
    for (int i = 0; i < MODEL_REQUESTS; i++)
        count += m->requests[i].place == MODEL_WAITING;
    return count;
}

/* ---- machines ---- */

static bool is_open(const struct model *m, uint32_t i)
{
    return m->machines[i].up && !m->machines[i].draining;
}

static bool serves(enum pool pool, enum pool phase)
{
    return pool == phase || pool == POOL_MIXED;
}

/* Returns whether a prompt and a token machine are linked, with machine `other` counted in
 * `pool`. */
static bool pair_with(const struct model *m, uint32_t other, enum pool pool)
{
    for (uint32_t p = 0; p < MODEL_MACHINES; p++) {
        for (uint32_t t = 0; t < MODEL_MACHINES; t++) {
            enum pool p_pool = p == other ? pool : m->machines[p].pool;
            enum pool t_pool = t == other ? pool : m->machines[t].pool;
            bool linked = p == t || m->machines[p].link[t];
            if (is_open(m, p) && is_open(m, t) && serves(p_pool, POOL_PROMPT) &&
                serves(t_pool, POOL_TOKEN) && linked)
                return true;
        }
    }
    return false;
}

static bool covers(const struct model *m)
{
    bool started = m->paired ||
                   (m->first_up_us >= 0 && m->now_us >= m->first_up_us + m->options.cover_after_us);
    return started && !pair_with(m, NONE, POOL_MIXED);
}

bool model_ready(const struct model *m)
{
    bool anybody = false;
    for (uint32_t i = 0; i < MODEL_MACHINES; i++)
        anybody |= is_open(m, i);
    return pair_with(m, NONE, POOL_MIXED) || (anybody && (m->options.unsplit || covers(m)));
}

static void move(struct model *m, uint32_t i, enum pool pool)
{
    if (m->machines[i].pool == pool)
        return;
    m->machines[i].pool = pool;
    m->machines[i].order = ++m->moves;
}

static bool foreign_work(const struct model *m, uint32_t i)
{
    if (m->machines[i].home == POOL_PROMPT)
        return model_decodes(m, i) > 0;
    return m->machines[i].home == POOL_TOKEN && model_prompts(m, i) > 0;
}

static void go_home(struct model *m, uint32_t i)
{
    struct model_machine *machine = &m->machines[i];
    bool idle = model_prompts(m, i) == 0 && model_decodes(m, i) == 0;
    if (machine->pool == machine->home || m->options.homing == SCHED_HOMING_TOLD)
        return;
    if (m->options.homing == SCHED_HOMING_DONE ? foreign_work(m, i) : !idle)
        return;
    if (is_open(m, i) && !pair_with(m, i, machine->home))
        return;
    move(m, i, machine->home);
}

static struct sched_action *act(struct model *m, enum sched_action_kind kind, uint32_t request)
{
    CHECK(m->action_count < MODEL_ACTIONS);
    struct sched_action *action = &m->actions[m->action_count++];
    *action =
        (struct sched_action){.kind = kind, .request = request, .machine = NONE, .peer = NONE};
    return action;
}

/* Returns whether the request's prompt still moves between two machines and machine i could not
 * hold its part of the request if it were mixed. */
static bool large_for(const struct model_request *r, uint32_t i)
{
    if (r->place != MODEL_ROUTED || r->moved || r->prompt == r->token)
        return false;
    return (r->prompt == i && r->large[0]) || (r->token == i && r->large[1]);
}

static bool has_large(const struct model *m, uint32_t i)
{
    for (int id = 0; id < MODEL_REQUESTS; id++)
        if (large_for(&m->requests[id], i))
            return true;
    return false;
}

static void lose(struct model *m, uint32_t id)
{
    struct model_request *r = &m->requests[id];
    r->place = MODEL_GONE;
    act(m, SCHED_LOST, id);
    go_home(m, r->prompt);
    if (r->token != NONE)
        go_home(m, r->token);
}

static void lose_large(struct model *m, uint32_t i)
{
    for (uint32_t id = 0; id < MODEL_REQUESTS; id++)
        if (large_for(&m->requests[id], i))
            lose(m, id);
}

static void set_home(struct model *m, uint32_t i, enum pool home)
{
    m->machines[i].home = home;
    move(m, i, foreign_work(m, i) ? POOL_MIXED : home);
    if (m->machines[i].pool == POOL_MIXED)
        lose_large(m, i);
}

static void tell(struct model *m, uint32_t i)
{
    const struct model_machine *machine = &m->machines[i];
    if (m->told[i].pool == machine->pool && m->told[i].home == machine->home)
        return;
    m->told[i].pool = machine->pool;
    m->told[i].home = machine->home;
    struct sched_action *action = act(m, SCHED_MOVED, UINT32_MAX);
    action->machine = i;
    action->pool = machine->pool;
    action->home = machine->home;
}

/* ---- the choice ---- */

enum by { PENDING, MEMORY };

static uint64_t rank(const struct model *m, uint32_t i, enum by by)
{
    const struct sched_others *others = &m->machines[i].others;
    if (by == MEMORY)
        return model_memory(m, i) + others->kv_tokens;
    return model_pending(m, i) + model_decodes(m, i) + others->prompt_tokens + others->decodes;
}

static bool before_by_tokens(const struct model *m, uint32_t a, uint32_t b, enum by by)
{
    if (rank(m, a, by) != rank(m, b, by))
        return rank(m, a, by) < rank(m, b, by);
    if (m->machines[a].order != m->machines[b].order)
        return m->machines[a].order < m->machines[b].order;
    return a < b;
}

struct look {
    const struct model *m;
    const struct model_request *r;
    bool idle;
    bool flexible;
    bool thresholds;
};

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
    return m->options.equal_time && known >= 2 && most * 100 > least * 125;
}

/* The load of the machine with the request: microseconds, or tokens without it. */
static uint64_t load(const struct look *l, uint32_t i, enum by by)
{
    uint64_t mean, rate = known_rate(&l->m->machines[i], by);
    if (!by_time(l->m, by, &mean))
        return rank(l->m, i, by);
    uint64_t more = l->r->prompt_tokens + (by == MEMORY ? l->r->answer_memory : 0);
    return (rank(l->m, i, by) + more) * 1000000 / (rate > 0 ? rate : mean);
}

static bool before(const struct look *l, uint32_t a, uint32_t b, enum by by)
{
    uint64_t load_a = load(l, a, by), load_b = load(l, b, by);
    return load_a != load_b ? load_a < load_b : before_by_tokens(l->m, a, b, by);
}

static uint64_t total(const struct look *l)
{
    return (uint64_t)l->r->prompt_tokens + l->r->output_tokens;
}

/* The machine is large enough, and its load is below the limits. */
static bool takes(const struct look *l, uint32_t i, enum by by, uint64_t tokens)
{
    const struct model_machine *machine = &l->m->machines[i];
    const struct sched_cluster_options *options = &l->m->options;
    if (!is_open(l->m, i) || machine->kv_tokens < tokens)
        return false;
    if (l->idle)
        return true;
    uint64_t load = rank(l->m, i, by);
    if (options->machine_kv_multiple > 0 &&
        load >= machine->kv_tokens * options->machine_kv_multiple)
        return false;
    return options->machine_tokens_max == 0 || load < options->machine_tokens_max;
}

/* The machine keeps memory for both kinds of work: for this scheduler or for another one. */
static bool shares(const struct look *l, uint32_t i, bool alone)
{
    const struct model_machine *machine = &l->m->machines[i];
    return alone || machine->pool == POOL_MIXED || machine->others.mixed;
}

static bool reaches(const struct look *l, uint32_t p, uint32_t t, bool alone)
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

/* Returns the best token machine of the pool that `prompt` reaches (NONE = from any machine). */
static uint32_t token_in(const struct look *l, enum pool pool, uint32_t prompt, bool alone)
{
    uint32_t best = NONE;
    for (uint32_t t = 0; t < MODEL_MACHINES; t++)
        if (l->m->machines[t].pool == pool && takes(l, t, MEMORY, total(l)) &&
            !(alone && !l->idle && has_large(l->m, t)) &&
            (prompt == NONE || reaches(l, prompt, t, alone)) &&
            (best == NONE || before(l, t, best, MEMORY)))
            best = t;
    return best;
}

/* A prompt without an answer takes no more memory of a mixed machine than other requests leave. */
static bool prompt_alone(const struct look *l, uint32_t p)
{
    const struct model_machine *machine = &l->m->machines[p];
    return !shares(l, p, false) || l->r->prompt_tokens <= machine->mixed_kv_tokens;
}

static bool prompt_good(const struct look *l, uint32_t p)
{
    if (!takes(l, p, PENDING, l->r->prompt_tokens))
        return false;
    if (l->r->output_tokens == 0)
        return prompt_alone(l, p);
    bool any_token = token_in(l, POOL_TOKEN, NONE, false) != NONE ||
                     token_in(l, POOL_MIXED, NONE, false) != NONE;
    if (!any_token)
        return l->flexible && takes(l, p, MEMORY, total(l));
    return token_in(l, POOL_TOKEN, p, false) != NONE || token_in(l, POOL_MIXED, p, false) != NONE;
}

static uint32_t prompt_in(const struct look *l, enum pool pool)
{
    uint32_t best = NONE;
    for (uint32_t p = 0; p < MODEL_MACHINES; p++)
        if (l->m->machines[p].pool == pool && prompt_good(l, p) &&
            (best == NONE || before(l, p, best, PENDING)))
            best = p;
    return best;
}

static int64_t computed_us(const struct look *l, uint32_t i)
{
    uint64_t rate = l->m->machines[i].prompt_rate;
    uint64_t tokens = rank(l->m, i, PENDING) + l->r->prompt_tokens;
    return rate == 0 ? 0 : (int64_t)(tokens * 1000000 / rate);
}

static bool prompt_over(const struct look *l, uint32_t p)
{
    const struct sched_cluster_options *options = &l->m->options;
    uint64_t tokens = options->prompt_queue_threshold_tokens;
    int64_t us = options->prompt_queue_threshold_us;
    bool busy = l->m->options.queues_told
                    ? l->m->machines[p].busy
                    : model_pending(l->m, p) > 0 || l->m->machines[p].others.prompts > 0;
    return l->thresholds && busy &&
           ((tokens > 0 && rank(l->m, p, PENDING) + l->r->prompt_tokens > tokens) ||
            (us > 0 && computed_us(l, p) > us));
}

static bool token_over(const struct look *l, uint32_t t)
{
    return l->thresholds && l->m->options.token_memory_threshold &&
           rank(l->m, t, MEMORY) + l->r->prompt_tokens + l->r->answer_memory >
               l->m->machines[t].kv_tokens;
}

/* `a` unless b is strictly better. */
static uint32_t less_of(const struct look *l, uint32_t a, uint32_t b, enum by by)
{
    if (a == NONE || b == NONE)
        return a == NONE ? b : a;
    return load(l, b, by) < load(l, a, by) ? b : a;
}

static uint32_t rule_1(const struct look *l)
{
    uint32_t own = prompt_in(l, POOL_PROMPT);
    uint32_t mixed = prompt_in(l, POOL_MIXED);
    if (own != NONE && !prompt_over(l, own))
        return own;
    if (mixed != NONE && !prompt_over(l, mixed))
        return mixed;
    return l->flexible && l->thresholds ? NONE : less_of(l, own, mixed, PENDING);
}

/* If `prompt` would miss the deadline, returns the machine that computes the prompt first. */
static uint32_t in_time(const struct look *l, uint32_t prompt)
{
    int64_t most = l->m->options.ttft_us_max;
    if (most == 0 || prompt == NONE || computed_us(l, prompt) <= most)
        return prompt;
    for (uint32_t i = 0; i < MODEL_MACHINES; i++)
        if (serves(l->m->machines[i].pool, POOL_PROMPT) && prompt_good(l, i) &&
            computed_us(l, i) < computed_us(l, prompt))
            prompt = i;
    return prompt;
}

static uint32_t rule_2(const struct look *l, uint32_t prompt)
{
    uint32_t own = token_in(l, POOL_TOKEN, prompt, false);
    uint32_t mixed = token_in(l, POOL_MIXED, prompt, false);
    if (mixed != NONE && prompt != NONE && l->m->machines[prompt].pool == POOL_MIXED &&
        takes(l, prompt, MEMORY, total(l)) &&
        rank(l->m, prompt, MEMORY) < rank(l->m, mixed, MEMORY) + l->m->options.stay_tokens)
        mixed = prompt;
    if (own != NONE && !token_over(l, own))
        return own;
    if (mixed != NONE && !token_over(l, mixed))
        return mixed;
    return l->flexible && l->thresholds ? NONE : less_of(l, own, mixed, MEMORY);
}

static uint32_t rule_3_prompt(const struct look *l, uint32_t token)
{
    uint32_t best = NONE;
    for (uint32_t p = 0; p < MODEL_MACHINES; p++)
        if (l->m->machines[p].pool == POOL_TOKEN && (l->idle || !has_large(l->m, p)) &&
            takes(l, p, PENDING, l->r->prompt_tokens) &&
            (l->r->output_tokens > 0 || l->r->prompt_tokens <= l->m->machines[p].mixed_kv_tokens) &&
            (token == NONE || reaches(l, p, token, true)) &&
            (best == NONE || before(l, p, best, PENDING)))
            best = p;
    return best;
}

static bool takes_both(const struct look *l, uint32_t i)
{
    return takes(l, i, PENDING, total(l)) && takes(l, i, MEMORY, total(l)) &&
           (l->r->output_tokens > 0 || prompt_alone(l, i));
}

/* Whether the token machine computes the prompt too, because the two share cores. */
static bool one_does_both(const struct look *l, uint32_t prompt, uint32_t token)
{
    uint32_t cores = l->m->machines[token].cores;
    return l->m->options.together && cores > 0 && cores == l->m->machines[prompt].cores &&
           takes(l, token, PENDING, total(l)) && takes(l, token, MEMORY, total(l));
}

/* lent: the machine that rule 3 has moved for good, which makes it the last mixed machine; NONE =
 * none. */
static uint32_t rule_4(const struct look *l, uint32_t lent)
{
    static const enum pool order[] = {POOL_PROMPT, POOL_MIXED, POOL_TOKEN};
    uint32_t best = NONE;
    for (int k = 0; k < 3; k++) {
        uint32_t in_pool = NONE;
        for (uint32_t i = 0; i < MODEL_MACHINES; i++)
            if (i != lent && l->m->machines[i].pool == order[k] && takes_both(l, i) &&
                (in_pool == NONE || before(l, i, in_pool, PENDING)))
                in_pool = i;
        best = less_of(l, best, in_pool, PENDING);
        if (order[k] == POOL_MIXED && lent != NONE && takes_both(l, lent))
            best = less_of(l, best, lent, PENDING);
    }
    return best;
}

struct chosen {
    uint32_t prompt;
    uint32_t token;
    bool prompt_moves;
    bool token_moves;
    uint32_t lent; /* This machine moves though it is not chosen; NONE = none. */
};

static bool choose(const struct look *l, struct chosen *c)
{
    bool decodes = l->r->output_tokens > 0;
    uint32_t lent = NONE;
    *c = (struct chosen){.prompt = NONE, .token = NONE, .lent = NONE};
    if (!l->m->options.unsplit) {
        c->prompt = in_time(l, rule_1(l));
        if (decodes)
            c->token = rule_2(l, c->prompt);
        if (l->flexible && c->prompt == NONE) {
            c->prompt = rule_3_prompt(l, c->token);
            c->prompt_moves = c->prompt != NONE;
        }
        if (l->flexible && decodes && c->token == NONE) {
            c->token = token_in(l, POOL_PROMPT, c->prompt, true);
            c->token_moves = c->token != NONE;
        }
        if (c->prompt != NONE && (!decodes || c->token != NONE)) {
            if (!l->idle && decodes && !c->prompt_moves && !c->token_moves &&
                one_does_both(l, c->prompt, c->token))
                c->prompt = c->token;
            return true;
        }
        if (l->m->options.lent_stay)
            lent = c->prompt_moves ? c->prompt : c->token_moves ? c->token : NONE;
    }
    if (!l->m->options.unsplit && !l->flexible)
        return false;
    *c = (struct chosen){.prompt = rule_4(l, lent), .token = NONE, .lent = lent};
    if (decodes)
        c->token = c->prompt;
    return c->prompt != NONE;
}

static bool ever_possible(const struct model *m, const struct model_request *r)
{
    uint64_t tokens = (uint64_t)r->prompt_tokens + r->output_tokens;
    bool any = m->options.adaptive || m->options.unsplit || covers(m);
    bool alone_fits = r->output_tokens > 0;
    bool alone_known = false;
    bool known[2] = {false, false};
    bool fits[2] = {false, false};
    for (int i = 0; i < MODEL_MACHINES; i++) {
        const struct model_machine *machine = &m->machines[i];
        if (machine->known && (any || serves(machine->pool, POOL_PROMPT))) {
            alone_known = true;
            alone_fits |=
                r->prompt_tokens <=
                (machine->home == POOL_MIXED ? machine->mixed_kv_tokens : machine->kv_tokens);
        }
        for (int phase = 0; phase < 2; phase++) {
            if (!machine->known || !(any || serves(machine->pool, (enum pool)phase)))
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
static bool ever_possible_changed(const struct model *m, struct model_request *r)
{
    if (ever_possible(m, r) || r->output_tokens > 0)
        return ever_possible(m, r);
    r->output_tokens = r->answer_memory = 1;
    if (!ever_possible(m, r))
        r->output_tokens = r->answer_memory = 0;
    return r->output_tokens > 0;
}

/* ---- what follows ---- */

/* The request leaves the queue: it is routed (turn), or refused. */
static void waits_end(struct model *m, struct model_request *r, bool turn)
{
    r->place = turn ? MODEL_ROUTED : MODEL_GONE;
    queue_model_leave(&m->queue, (uint32_t)(r - m->requests), turn);
}

static void route(struct model *m, struct model_request *r, const struct chosen *c)
{
    waits_end(m, r, true);
    r->computed = r->moved = false;
    r->prompt = c->prompt;
    r->token = c->token;
    r->large[0] = r->prompt_tokens > m->machines[r->prompt].mixed_kv_tokens;
    r->large[1] = r->token != NONE &&
                  r->prompt_tokens + r->output_tokens > m->machines[r->token].mixed_kv_tokens;
    if (c->prompt_moves)
        move(m, c->prompt, POOL_MIXED);
    if (c->token_moves)
        move(m, c->token, POOL_MIXED);
    if (c->lent != NONE) {
        move(m, c->lent, POOL_MIXED);
        tell(m, c->lent);
    }
    m->paired |= pair_with(m, NONE, POOL_MIXED);
    tell(m, c->prompt);
    if (c->token != NONE)
        tell(m, c->token);
    struct sched_action *action = act(m, SCHED_ROUTE, (uint32_t)(r - m->requests));
    action->machine = c->prompt;
    action->peer = c->token;
}

static void follow(struct model *m)
{
    for (uint32_t i = 0; i < MODEL_MACHINES; i++)
        tell(m, i);
    for (uint32_t i = 0; i < m->action_count; i++) { /* SCHED_LOST follows SCHED_MOVED. */
        struct sched_action action = m->actions[i];
        if (action.kind != SCHED_MOVED)
            continue;
        uint32_t to = i;
        for (; to > 0 && m->actions[to - 1].kind == SCHED_LOST; to--)
            m->actions[to] = m->actions[to - 1];
        m->actions[to] = action;
    }
    queue_model_age(&m->queue, m->options.ageing_us, m->now_us);
    for (uint32_t id = queue_model_next(&m->queue, NULL); id != SCHED_QUEUE_NONE;) {
        struct model_request *r = &m->requests[id];
        /* The loop goes on from here if the request leaves the queue. */
        struct queue_model_place copy = m->queue.places[id];
        struct look l = {.m = m, .r = r, .thresholds = true};
        struct chosen c;
        l.flexible = (m->options.adaptive && m->paired) || covers(m);
        if (!ever_possible_changed(m, r)) {
            waits_end(m, r, false);
            act(m, SCHED_REFUSE, id)->why = SCHED_REFUSED_LARGE;
        } else if (choose(&l, &c)) {
            route(m, r, &c);
        } else {
            l.idle = true;
            l.thresholds = false;
            if (choose(&l, &c))
                return; /* The machines are busy, so later requests wait as well. */
            if (r->stranded_us < 0)
                r->stranded_us = m->now_us;
            if (m->options.wait_us_max > 0 &&
                m->now_us >= r->stranded_us + m->options.wait_us_max) {
                waits_end(m, r, false);
                act(m, SCHED_EXPIRED, id);
            }
        }
        id = queue_model_next(&m->queue, &copy);
    }
}

/* Returns the least time in which the request's prompt can be computed: after the prompts on a
 * machine and those that wait, or (alone) without them. 0 = unknown. */
static int64_t earliest_us(const struct model *m, const struct model_request *r, bool alone)
{
    bool any = true; /* No machine serves prompts. */
    for (uint32_t i = 0; i < MODEL_MACHINES; i++)
        any &= !is_open(m, i) || !serves(m->machines[i].pool, POOL_PROMPT);
    uint64_t rates = 0;
    uint64_t waiting = 0;
    int64_t best = INT64_MAX;
    for (uint32_t i = 0; i < MODEL_MACHINES; i++) {
        const struct model_machine *machine = &m->machines[i];
        if (!is_open(m, i) || !(any || serves(machine->pool, POOL_PROMPT)))
            continue;
        if (machine->prompt_rate == 0)
            return 0;
        uint64_t tokens = r->prompt_tokens + (alone ? 0 : rank(m, i, PENDING));
        int64_t us = (int64_t)(tokens * 1000000 / machine->prompt_rate);
        best = us < best ? us : best;
        rates += machine->prompt_rate;
    }
    for (uint32_t i = queue_model_next(&m->queue, NULL); &m->requests[i] != r;
         i = queue_model_next(&m->queue, &m->queue.places[i]))
        waiting += m->requests[i].prompt_tokens;
    if (rates == 0)
        return 0;
    return best + (alone ? 0 : (int64_t)(waiting * 1000000 / rates));
}

static void on_arrived(struct model *m, const struct sched_event *event)
{
    struct model_request *r = &m->requests[event->request];
    int64_t most = m->options.ttft_us_max;
    *r = (struct model_request){.place = MODEL_WAITING,
                                .resumed = event->resumed,
                                .key = event->key,
                                .weight = event->weight,
                                .priority = event->priority,
                                .prompt_tokens = event->prompt_tokens,
                                .output_tokens = event->output_tokens,
                                .stranded_us = -1};
    uint32_t answer = queue_model_answer(&m->queue, r->key, r->priority, r->output_tokens);
    r->answer_charged = r->resumed ? 0 : answer;
    r->answer_memory = r->output_tokens; /* At least 64 answer tokens are counted. */
    if (m->options.answers_grow && answer < r->output_tokens && r->output_tokens > 64)
        r->answer_memory = answer > 64 ? answer : 64;
    queue_model_add(&m->queue, event->request,
                    &(struct sched_ticket){.key = r->key,
                                           .weight = r->weight,
                                           .priority = r->priority,
                                           .cost = r->prompt_tokens + r->answer_charged,
                                           .resumed = r->resumed},
                    m->now_us);
    int64_t at = earliest_us(m, r, false);
    if (ever_possible_changed(m, r) && most > 0 && !r->resumed && at > most) {
        bool never = earliest_us(m, r, true) > most;
        waits_end(m, r, false);
        struct sched_action *action = act(m, SCHED_REFUSE, event->request);
        action->why = never ? SCHED_REFUSED_TOO_LONG : SCHED_REFUSED_LATE;
        action->retry_after_ms = never ? 0 : (uint32_t)((at - most) / 1000 + 1);
        return;
    }
    follow(m);
    if (r->place != MODEL_WAITING || r->resumed ||
        model_waiting(m) <= m->options.queue_requests_max)
        return;
    uint32_t last = event->request; /* The new request is not resumed. */
    for (uint32_t i = queue_model_next(&m->queue, NULL); i != SCHED_QUEUE_NONE;
         i = queue_model_next(&m->queue, &m->queue.places[i]))
        last = m->requests[i].resumed ? last : i;
    waits_end(m, &m->requests[last], false);
    struct sched_action *action = act(m, SCHED_REFUSE, last);
    action->why = SCHED_REFUSED_FULL;
    action->retry_after_ms = 1; /* test_cluster.c checks the range of the real time. */
}

static void on_down(struct model *m, uint32_t i)
{
    m->machines[i].up = false;
    m->machines[i].others = (struct sched_others){0};
    for (int k = 0; k < MODEL_MACHINES; k++)
        m->machines[i].link[k] = m->machines[k].link[i] = false;
    for (uint32_t id = 0; id < MODEL_REQUESTS; id++) {
        struct model_request *r = &m->requests[id];
        if (r->place != MODEL_ROUTED || (r->token != i && (r->moved || r->prompt != i)))
            continue;
        lose(m, id);
    }
}

static void on_machine(struct model *m, const struct sched_event *event)
{
    uint32_t i = event->machine;
    struct model_machine *machine = &m->machines[i];
    switch (event->kind) {
    case SCHED_MACHINE_UP:
        machine->known = true;
        machine->busy = false;
        machine->others = (struct sched_others){0};
        machine->kv_tokens = event->kv_tokens;
        machine->cores = event->cores;
        machine->mixed_kv_tokens =
            event->mixed_kv_tokens > 0 ? event->mixed_kv_tokens : event->kv_tokens;
        set_home(m, i, event->pool);
        if (machine->pool == event->pool) {
            m->told[i].pool = machine->pool;
            m->told[i].home = machine->home;
        }
        machine->up = true;
        if (m->first_up_us < 0)
            m->first_up_us = m->now_us;
        break;
    case SCHED_MACHINE_DOWN:
        on_down(m, i);
        break;
    case SCHED_MACHINE_DRAIN:
    case SCHED_MACHINE_UNDRAIN:
        machine->draining = event->kind == SCHED_MACHINE_DRAIN;
        break;
    case SCHED_MACHINE_HOME:
        set_home(m, i, event->pool);
        break;
    default:
        machine->link[event->peer] = event->kind == SCHED_LINK_UP;
        break;
    }
    m->paired |= pair_with(m, NONE, POOL_MIXED);
    for (uint32_t k = 0; k < MODEL_MACHINES; k++)
        if (is_open(m, k))
            go_home(m, k);
}

static void on_request(struct model *m, const struct sched_event *event)
{
    struct model_request *r = &m->requests[event->request];
    bool routed = r->place == MODEL_ROUTED;
    if (event->kind == SCHED_ENDED && r->place == MODEL_WAITING)
        waits_end(m, r, false);
    else if (event->kind == SCHED_ENDED)
        r->place = MODEL_GONE;
    if (!routed)
        return;
    if (event->kind == SCHED_ENDED && r->output_tokens > 0 && r->token != NONE)
        queue_model_answered(&m->queue, r->key, r->weight, r->priority, r->answer_charged,
                             event->output_tokens);
    r->computed = true;
    if (event->kind == SCHED_COMPUTED)
        return;
    r->moved = true;
    go_home(m, r->prompt);
    if (event->kind == SCHED_ENDED && r->token != NONE)
        go_home(m, r->token);
}

void model_open(struct model *m, const struct sched_cluster_options *options)
{
    memset(m, 0, sizeof(*m));
    m->options = *options;
    m->first_up_us = -1;
}

void model_configure(struct model *m, const struct sched_cluster_options *options, int64_t now_us)
{
    m->action_count = 0;
    m->options = *options;
    m->now_us = now_us;
    follow(m);
}

void model_event(struct model *m, const struct sched_event *event)
{
    struct model_machine *machine = &m->machines[event->machine];
    m->action_count = 0;
    m->now_us = event->now_us;
    switch (event->kind) {
    case SCHED_ARRIVED:
        on_arrived(m, event);
        return;
    case SCHED_COMPUTED:
    case SCHED_PREFILLED:
    case SCHED_ENDED:
        on_request(m, event);
        break;
    case SCHED_MACHINE_RATES:
        machine->prompt_rate = event->prompt_tokens_per_s;
        machine->output_rate = event->output_tokens_per_s;
        break;
    case SCHED_MACHINE_QUEUE:
        machine->busy = event->busy;
        break;
    case SCHED_MACHINE_LOAD:
        machine->others = event->others;
        if (machine->others.mixed)
            lose_large(m, event->machine);
        break;
    case SCHED_MACHINE_IDLE:
        move(m, event->machine, machine->home);
        break;
    case SCHED_CACHED:
    case SCHED_EVICTED:
    case SCHED_TICK:
        break;
    default:
        on_machine(m, event);
        break;
    }
    follow(m);
}
