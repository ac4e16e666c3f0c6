#include "tests/scheduler/cluster_model_choice.h"

#include "tests/check.h"

#include <string.h>

#define NONE SCHED_NO_MACHINE

/* ---- sums ---- */

uint64_t model_pending(const struct model *m, uint32_t machine)
{
    uint64_t tokens = 0;
    for (int i = 0; i < MODEL_REQUESTS; i++) {
        const struct model_request *r = &m->requests[i];
        if (r->state == MODEL_ROUTED && r->prompt_machine == machine && !r->computed)
            tokens += r->prompt_tokens;
    }
    return tokens;
}

/* Counts the block slots of each group: all, or those that a group with a window keeps. */
uint64_t model_kv_tokens(const struct model_machine *machine, uint64_t tokens, bool has_prompt)
{
    const struct sched_kv *kv = &machine->kv;
    uint64_t slots = 0;
    if (kv->groups.windowed == 0)
        return tokens;
    for (uint32_t g = 0; g < kv->groups.count; g++) {
        uint64_t spans = (tokens + kv->block_tokens - 1) / kv->block_tokens;
        if ((kv->groups.windowed >> g & 1) != 0 && spans > kv->kept_spans[has_prompt])
            spans = kv->kept_spans[has_prompt];
        slots += spans * kv->block_tokens;
    }
    return (slots + kv->groups.count - 1) / kv->groups.count;
}

uint64_t model_capacity(const struct model_machine *machine)
{
    return machine->kv.groups.windowed != 0 ? machine->kv.capacity_tokens : machine->kv_tokens;
}

uint64_t model_memory(const struct model *m, uint32_t machine)
{
    uint64_t tokens = 0;
    for (int i = 0; i < MODEL_REQUESTS; i++) {
        const struct model_request *r = &m->requests[i];
        if (r->state != MODEL_ROUTED)
            continue;
        const struct model_machine *at = &m->machines[machine];
        if (r->token_machine == machine)
            tokens += model_kv_tokens(at, r->prompt_tokens + r->answer_memory,
                                      r->prompt_machine == machine);
        else if (r->prompt_machine == machine && !r->prefilled)
            tokens += model_kv_tokens(at, r->prompt_tokens + 1, true);
    }
    return tokens;
}

/* Older prompts, and the time in which they came, count less: after 16 TTFT targets half. */
static void prompts_age(const struct model *m, struct model_machine *machine)
{
    double targets_us = 16.0 * (double)m->options.one_machine_targets.ttft_us;
    if (machine->recent_tokens > 0) {
        double passed_us = (double)(m->now_us - machine->recent_at_us);
        machine->recent_tokens *= targets_us / (targets_us + passed_us);
        machine->recent_us =
            machine->recent_us * (targets_us / (targets_us + passed_us)) + passed_us;
    }
    machine->recent_at_us = m->now_us;
}

static void prompts_add(struct model *m, uint32_t machine, uint64_t tokens)
{
    if (!m->options.one_machine_routes)
        return;
    prompts_age(m, &m->machines[machine]);
    m->machines[machine].recent_tokens += (double)tokens;
}

double model_prompts_part(const struct model *m, uint32_t machine, double rate)
{
    struct model_machine now = m->machines[machine];
    double target_us = (double)m->options.one_machine_targets.ttft_us;
    prompts_age(m, &now);
    double took_us = now.recent_us > target_us ? now.recent_us : target_us;
    double part = now.recent_tokens * 1e6 / rate / took_us;
    return part > 1 ? 1 : part;
}

uint32_t model_prompts(const struct model *m, uint32_t machine)
{
    uint32_t count = 0;
    for (int i = 0; i < MODEL_REQUESTS; i++)
        count += m->requests[i].state == MODEL_ROUTED && m->requests[i].prompt_machine == machine &&
                 !m->requests[i].prefilled;
    return count;
}

uint32_t model_decodes(const struct model *m, uint32_t machine)
{
    uint32_t count = 0;
    for (int i = 0; i < MODEL_REQUESTS; i++)
        count += m->requests[i].state == MODEL_ROUTED && m->requests[i].token_machine == machine;
    return count;
}

uint32_t model_waiting(const struct model *m)
{
    uint32_t count = 0;
    for (int i = 0; i < MODEL_REQUESTS; i++)
        count += m->requests[i].state == MODEL_WAITING;
    return count;
}

/* ---- machines ---- */

bool model_is_open(const struct model *m, uint32_t i)
{
    return m->machines[i].up && !m->machines[i].draining;
}

bool model_serves(enum pool pool, enum pool phase)
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
            if (model_is_open(m, p) && model_is_open(m, t) && model_serves(p_pool, POOL_PROMPT) &&
                model_serves(t_pool, POOL_TOKEN) && linked)
                return true;
        }
    }
    return false;
}

bool model_covers(const struct model *m)
{
    bool started = m->paired ||
                   (m->first_up_us >= 0 && m->now_us >= m->first_up_us + m->options.cover_after_us);
    return started && !pair_with(m, NONE, POOL_MIXED);
}

bool model_ready(const struct model *m)
{
    bool anybody = false;
    for (uint32_t i = 0; i < MODEL_MACHINES; i++)
        anybody |= model_is_open(m, i);
    return pair_with(m, NONE, POOL_MIXED) || (anybody && (m->options.unsplit || model_covers(m)));
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
    if (machine->pool == machine->home || m->options.homing == SCHED_HOMING_REPORTED)
        return;
    if (m->options.homing == SCHED_HOMING_DONE ? foreign_work(m, i) : !idle)
        return;
    if (model_is_open(m, i) && !pair_with(m, i, machine->home))
        return;
    move(m, i, machine->home);
}

static struct sched_action *act(struct model *m, enum sched_action_kind kind, uint32_t request)
{
    CHECK(m->action_count < MODEL_ACTIONS);
    struct sched_action *action = &m->actions[m->action_count++];
    *action = (struct sched_action){
        .kind = kind, .request = request, .machine = NONE, .token_machine = NONE};
    return action;
}

/* Returns whether the request's prompt still moves between two machines and machine i could not
 * hold its part of the request if it were mixed. */
static bool large_for(const struct model_request *r, uint32_t i)
{
    if (r->state != MODEL_ROUTED || r->prefilled || r->prompt_machine == r->token_machine)
        return false;
    return (r->prompt_machine == i && r->too_large_if_mixed[0]) ||
           (r->token_machine == i && r->too_large_if_mixed[1]);
}

bool model_has_large(const struct model *m, uint32_t i)
{
    for (int id = 0; id < MODEL_REQUESTS; id++)
        if (large_for(&m->requests[id], i))
            return true;
    return false;
}

static void lose(struct model *m, uint32_t id)
{
    struct model_request *r = &m->requests[id];
    r->state = MODEL_GONE;
    act(m, SCHED_LOST, id);
    go_home(m, r->prompt_machine);
    if (r->token_machine != NONE)
        go_home(m, r->token_machine);
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
    if (m->reported[i].pool == machine->pool && m->reported[i].home == machine->home)
        return;
    m->reported[i].pool = machine->pool;
    m->reported[i].home = machine->home;
    struct sched_action *action = act(m, SCHED_MOVED, UINT32_MAX);
    action->machine = i;
    action->pool = machine->pool;
    action->home = machine->home;
}

/* ---- what follows ---- */

int64_t model_link_wait_us(const struct model *m, uint32_t from, uint32_t to)
{
    int64_t sends_us = m->machines[from].sends_until_us - m->now_us;
    int64_t receives_us = m->machines[to].receives_until_us - m->now_us;
    int64_t longest_us = sends_us > receives_us ? sends_us : receives_us;
    return longest_us > 0 ? longest_us : 0;
}

/* The request leaves the queue: it is routed (turn), or refused. */
static void waits_end(struct model *m, struct model_request *r, bool turn)
{
    r->state = turn ? MODEL_ROUTED : MODEL_GONE;
    queue_model_leave(&m->queue, (uint32_t)(r - m->requests), turn);
}

/* The test measures no link, so each transfer takes 1 ms and 1 us for each token. */
static void push_begin(struct model *m, const struct model_request *r)
{
    if (r->token_machine == NONE || r->token_machine == r->prompt_machine)
        return;
    int64_t from_us = m->now_us + model_link_wait_us(m, r->prompt_machine, r->token_machine);
    m->machines[r->prompt_machine].sends_until_us = from_us + 1000 + r->prompt_tokens;
    m->machines[r->token_machine].receives_until_us = from_us + 1000 + r->prompt_tokens;
}

static void route(struct model *m, struct model_request *r, const struct model_route *c)
{
    waits_end(m, r, true);
    r->computed = r->prefilled = false;
    r->prompt_machine = c->prompt_machine;
    r->token_machine = c->token_machine;
    push_begin(m, r);
    prompts_add(m, r->prompt_machine, r->prompt_tokens);
    r->too_large_if_mixed[0] = r->prompt_tokens > m->machines[r->prompt_machine].mixed_kv_tokens;
    r->too_large_if_mixed[1] =
        r->token_machine != NONE &&
        r->prompt_tokens + r->output_tokens > m->machines[r->token_machine].mixed_kv_tokens;
    if (c->prompt_moves)
        move(m, c->prompt_machine, POOL_MIXED);
    if (c->token_moves)
        move(m, c->token_machine, POOL_MIXED);
    if (c->lent_machine != NONE) {
        move(m, c->lent_machine, POOL_MIXED);
        tell(m, c->lent_machine);
    }
    m->paired |= pair_with(m, NONE, POOL_MIXED);
    tell(m, c->prompt_machine);
    if (c->token_machine != NONE)
        tell(m, c->token_machine);
    struct sched_action *action = act(m, SCHED_ROUTE, (uint32_t)(r - m->requests));
    action->machine = c->prompt_machine;
    action->token_machine = c->token_machine;
}

/* With a sole prompt machine, lent machines count again if only they can take the request. */
static bool choose(struct model_search *l, struct model_route *c)
{
    if (model_choose(l, c))
        return true;
    if (!l->sole_prompt_machine || model_pools_can_serve(l))
        return false;
    l->sole_prompt_machine = false;
    return model_choose(l, c);
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
        struct queue_model_slot copy = m->queue.slots[id];
        struct model_search l = {.m = m, .r = r, .thresholds = true};
        struct model_route c;
        l.flexible = (m->options.adaptive && m->paired) || model_covers(m);
        l.sole_prompt_machine = model_sole_prompt_machine(m);
        if (!model_ever_possible(m, r)) {
            waits_end(m, r, false);
            act(m, SCHED_REFUSE, id)->refusal = SCHED_REFUSED_LARGE;
        } else if (choose(&l, &c)) {
            route(m, r, &c);
        } else {
            l.assume_idle = true;
            l.thresholds = false;
            if (model_choose(&l, &c))
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
        any &= !model_is_open(m, i) || !model_serves(m->machines[i].pool, POOL_PROMPT);
    uint64_t rates = 0;
    uint64_t waiting = 0;
    int64_t best = INT64_MAX;
    for (uint32_t i = 0; i < MODEL_MACHINES; i++) {
        const struct model_machine *machine = &m->machines[i];
        if (!model_is_open(m, i) || !(any || model_serves(machine->pool, POOL_PROMPT)))
            continue;
        uint64_t tokens = r->prompt_tokens, rate = machine->prompt_rate;
        for (uint32_t k = 0; k < MODEL_MACHINES; k++) {
            bool shares = machine->cores > 0 && m->machines[k].cores == machine->cores;
            tokens += !alone && (k == i || shares) ? model_rank(m, k, PENDING) : 0;
            rate = rate == 0 && shares ? m->machines[k].prompt_rate : rate;
        }
        if (rate == 0)
            return 0;
        int64_t us = (int64_t)(tokens * 1000000 / rate);
        best = us < best ? us : best;
        rates += rate;
    }
    for (uint32_t i = queue_model_next(&m->queue, NULL); &m->requests[i] != r;
         i = queue_model_next(&m->queue, &m->queue.slots[i]))
        waiting += m->requests[i].prompt_tokens;
    if (rates == 0)
        return 0;
    return best + (alone ? 0 : (int64_t)(waiting * 1000000 / rates));
}

static void on_arrived(struct model *m, const struct sched_event *event)
{
    struct model_request *r = &m->requests[event->request];
    int64_t most = m->options.ttft_us_max;
    *r = (struct model_request){.state = MODEL_WAITING,
                                .resumed = event->resumed,
                                .key = event->key_index,
                                .weight = event->weight,
                                .priority = event->priority,
                                .prompt_tokens = event->prompt_tokens,
                                .output_tokens = event->output_tokens,
                                .stranded_us = -1};
    uint32_t answer = queue_model_answer(&m->queue, r->key, r->priority, r->output_tokens);
    r->answer_charged = r->resumed ? 0 : answer;
    r->answer_memory = r->output_tokens; /* At least 64 answer tokens are counted. */
    if (m->options.schedule_mean_answer && answer < r->output_tokens && r->output_tokens > 64)
        r->answer_memory = answer > 64 ? answer : 64;
    queue_model_add(&m->queue, event->request,
                    &(struct sched_ticket){.key = r->key,
                                           .weight = r->weight,
                                           .priority = r->priority,
                                           .cost = r->prompt_tokens + r->answer_charged,
                                           .resumed = r->resumed},
                    m->now_us);
    int64_t at = earliest_us(m, r, false);
    if (model_ever_possible(m, r) && most > 0 && !r->resumed && at > most) {
        bool never = earliest_us(m, r, true) > most;
        waits_end(m, r, false);
        struct sched_action *action = act(m, SCHED_REFUSE, event->request);
        action->refusal = never ? SCHED_REFUSED_TOO_LONG : SCHED_REFUSED_LATE;
        action->retry_after_ms = never ? 0 : (uint32_t)((at - most) / 1000 + 1);
        return;
    }
    follow(m);
    if (r->state != MODEL_WAITING || r->resumed ||
        model_waiting(m) <= m->options.queue_requests_max)
        return;
    uint32_t last = event->request; /* The new request is not resumed. */
    for (uint32_t i = queue_model_next(&m->queue, NULL); i != SCHED_QUEUE_NONE;
         i = queue_model_next(&m->queue, &m->queue.slots[i]))
        last = m->requests[i].resumed ? last : i;
    waits_end(m, &m->requests[last], false);
    struct sched_action *action = act(m, SCHED_REFUSE, last);
    action->refusal = SCHED_REFUSED_FULL;
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
        if (r->state != MODEL_ROUTED ||
            (r->token_machine != i && (r->prefilled || r->prompt_machine != i)))
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
        if (!machine->was_up)
            machine->pool = event->pool;
        machine->was_up = true;
        machine->busy = false;
        machine->recent_tokens = machine->recent_us = 0;
        machine->others = (struct sched_others){0};
        machine->kv_tokens = event->kv_tokens;
        machine->kv = event->kv;
        machine->cores = event->cores;
        machine->shared_cores |= event->cores > 0;
        machine->core_count = event->core_count == 0 ? 1 : event->core_count;
        machine->threads = event->threads == 0 ? machine->core_count : event->threads;
        machine->mixed_kv_tokens =
            event->mixed_kv_tokens > 0 ? event->mixed_kv_tokens : event->kv_tokens;
        set_home(m, i, event->pool);
        if (machine->pool == event->pool) {
            m->reported[i].pool = machine->pool;
            m->reported[i].home = machine->home;
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
        if (model_is_open(m, k))
            go_home(m, k);
}

static void on_request(struct model *m, const struct sched_event *event)
{
    struct model_request *r = &m->requests[event->request];
    bool routed = r->state == MODEL_ROUTED;
    bool overdue = event->kind == SCHED_OVERDUE;
    bool ended = event->kind == SCHED_ENDED || (overdue && routed);
    if (ended && r->state == MODEL_WAITING)
        waits_end(m, r, false);
    else if (ended)
        r->state = MODEL_GONE;
    if (!routed)
        return;
    if (overdue)
        act(m, SCHED_REFUSE, event->request)->refusal = SCHED_REFUSED_WAIT;
    if (ended && r->output_tokens > 0 && r->token_machine != NONE)
        queue_model_answered(&m->queue, r->key, r->weight, r->priority, r->answer_charged,
                             event->output_tokens);
    r->computed = true;
    if (event->kind == SCHED_COMPUTED)
        return;
    r->prefilled = true;
    go_home(m, r->prompt_machine);
    if (ended && r->token_machine != NONE)
        go_home(m, r->token_machine);
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
    case SCHED_OVERDUE:
        on_request(m, event);
        break;
    case SCHED_MACHINE_RATES:
        machine->prompt_rate = event->prompt_tokens_per_s;
        machine->output_rate = event->output_tokens_per_s;
        machine->step = event->step;
        break;
    case SCHED_MACHINE_QUEUE:
        machine->busy = event->busy;
        break;
    case SCHED_MACHINE_LOAD:
        machine->others = event->others;
        prompts_add(m, event->machine, event->others.arrived_prompt_tokens);
        if (machine->others.mixed)
            lose_large(m, event->machine);
        break;
    case SCHED_MACHINE_IDLE:
        move(m, event->machine, machine->home);
        break;
    case SCHED_MACHINE_TIERS:
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
