/* headroom: see the header. Between two events of a machine (a prompt or an answer comes or ends)
 * its prompts and its answers progress at constant rates. So a replay goes from event to event. */
#include "scheduler/headroom.h"

#include <math.h>
#include <string.h>

#define ANSWERS_MIN 20
#define ROUNDS      2 /* Each replay has the answers twice; the second time is counted. */
#define LEAST       0.01
#define EXACT       1.02 /* The search ends when high / low is less. */
#define NEVER       1e300

static double step_us(const struct headroom *h, uint32_t machine, uint32_t answers)
{
    const struct sched_step_time *step = &h->steps[machine];
    double most = h->options.sequences_max;
    double rows = answers < most ? answers : most;
    /* More answers than fit a batch alternate. */
    return (step->fixed_ns + step->row_ns * rows) / 1e3 * fmax(1, answers / most);
}

/* Time that a prompt needs on the machine while other prompts fill its batches. */
static double prompt_us(const struct headroom *h, uint32_t machine, uint32_t tokens)
{
    uint32_t rows = tokens < h->options.fill_tokens ? h->options.fill_tokens : tokens;
    if (rows > h->options.batch_tokens)
        rows = h->options.batch_tokens;
    return tokens * 1e6 /
           sched_rates_prompt_tokens_per_s(&h->machines[machine].rates, rows > 0 ? rows : 1);
}

/* ---- one machine ---- */

static struct headroom_request *at(struct headroom *h, uint32_t link)
{
    return &h->requests[link - 1];
}

static void machine_advance(struct headroom *h, uint32_t machine, double to_us)
{
    struct headroom_state *m = &h->states[machine];
    double passed_us = to_us - m->now_us;
    m->now_us = to_us;
    if (m->prompts != 0) {
        at(h, m->prompts)->work_us -= passed_us * m->prompt_rate;
        m->work_us -= passed_us * m->prompt_rate;
    }
    m->token_clock += passed_us * m->token_rate;
}

/* Sets the rates, and the time of the next event. */
static void machine_plan(struct headroom *h, uint32_t machine)
{
    struct headroom_state *m = &h->states[machine];
    double step = m->answers != 0 ? step_us(h, machine, m->answer_count) : 0;
    double share = 0;
    if (m->prompts != 0)
        share = step > 0
                    ? (double)sched_pace_share_us(&h->options.targets, fmax(m->work_us, 0), step)
                    : 1;
    m->prompt_rate = share > 0 ? share / (share + step) : 0;
    m->token_rate = step > 0 ? 1 / (share + step) : 0;
    double prompt_end = NEVER, answer_end = NEVER;
    if (m->prompts != 0)
        prompt_end = m->now_us + fmax(at(h, m->prompts)->work_us, 0) / m->prompt_rate;
    if (m->answers != 0)
        answer_end =
            m->now_us + fmax(at(h, m->answers)->last_token - m->token_clock, 0) / m->token_rate;
    m->next_us = fmin(prompt_end, answer_end);
}

static void list_append(struct headroom *h, uint32_t *first, uint32_t *last, uint32_t link)
{
    at(h, link)->next = 0;
    if (*first == 0)
        *first = link;
    else
        at(h, *last)->next = link;
    *last = link;
}

static void prompt_add(struct headroom *h, uint32_t machine, uint32_t link, double now_us)
{
    struct headroom_state *m = &h->states[machine];
    struct headroom_request *r = at(h, link);
    machine_advance(h, machine, now_us);
    if (!h->tokens_only || h->machines[machine].computes_answers)
        r->work_us =
            prompt_us(h, machine, h->answers[(link - 1) % h->answer_count].computed_tokens);
    m->work_us += r->work_us;
    list_append(h, &m->prompts, &m->prompts_last, link);
    machine_plan(h, machine);
}

static uint64_t kv_of(const struct headroom *h, uint32_t link)
{
    const struct headroom_answer *answer = &h->answers[(link - 1) % h->answer_count];
    return (uint64_t)answer->prompt_tokens + answer->answer_tokens;
}

/* Lets waiting answers begin, as far as the KV memory allows. An answer may always be alone. */
static void answers_begin(struct headroom *h, uint32_t machine)
{
    struct headroom_state *m = &h->states[machine];
    while (m->waiting != 0 && (m->answer_count == 0 || m->kv_used_tokens + kv_of(h, m->waiting) <=
                                                           h->machines[machine].kv_tokens)) {
        uint32_t link = m->waiting, *before = &m->answers;
        struct headroom_request *r = at(h, link);
        m->waiting = r->next;
        r->last_token = m->token_clock + h->answers[(link - 1) % h->answer_count].answer_tokens - 1;
        while (*before != 0 && at(h, *before)->last_token <= r->last_token)
            before = &at(h, *before)->next;
        r->next = *before;
        *before = link;
        m->kv_used_tokens += kv_of(h, link);
        m->answer_count++;
        r->began_us = m->now_us;
    }
}

static void answer_add(struct headroom *h, uint32_t machine, uint32_t link, double now_us)
{
    struct headroom_state *m = &h->states[machine];
    machine_advance(h, machine, now_us);
    at(h, link)->first_token_us = now_us;
    list_append(h, &m->waiting, &m->waiting_last, link);
    answers_begin(h, machine);
    machine_plan(h, machine);
}

/* ---- the cluster ---- */

static bool is_counted(const struct headroom *h, uint32_t link)
{
    return link > (ROUNDS - 1) * h->answer_count;
}

static void misses_add(struct headroom *h, uint32_t link, bool prompt, bool token)
{
    if (!is_counted(h, link))
        return;
    h->counted++;
    h->missed[HEADROOM_PROMPTS] += prompt;
    h->missed[HEADROOM_TOKENS] += token;
    h->missed[HEADROOM_ALL] += prompt || token;
}

/* Returns the machine with the least work for prompts; UINT32_MAX = none. mixed: of those that
 * compute both phases, otherwise of the others. */
static uint32_t prompt_machine_of(const struct headroom *h, bool mixed)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < h->machine_count; i++)
        if (h->machines[i].computes_prompts && h->machines[i].computes_answers == mixed &&
            (best == UINT32_MAX || h->states[i].work_us < h->states[best].work_us))
            best = i;
    return best;
}

/* Rule 1 (cluster.h): mixed machines help when a prompt would wait for half of the limit. */
static uint32_t prompt_machine(const struct headroom *h)
{
    uint32_t own = prompt_machine_of(h, false), mixed = prompt_machine_of(h, true);
    double most_us = (double)h->options.targets.ttft_us / 2;
    if (own == UINT32_MAX || mixed == UINT32_MAX)
        return own == UINT32_MAX ? mixed : own;
    return h->states[own].work_us > most_us && h->states[mixed].work_us < h->states[own].work_us
               ? mixed
               : own;
}

static uint32_t token_machine_of(const struct headroom *h, bool mixed)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < h->machine_count; i++)
        if (h->machines[i].computes_answers && h->machines[i].computes_prompts == mixed &&
            (best == UINT32_MAX || h->states[i].kv_used_tokens < h->states[best].kv_used_tokens))
            best = i;
    return best;
}

/* Rule 2: mixed machines help when the memory of the token machines is used up. A mixed machine
 * keeps the answers of its prompts. */
static uint32_t token_machine(const struct headroom *h, uint32_t prompt, uint64_t kv_tokens)
{
    uint32_t own = token_machine_of(h, false), mixed = token_machine_of(h, true);
    if (own == UINT32_MAX || mixed == UINT32_MAX)
        return own != UINT32_MAX ? own : h->machines[prompt].computes_answers ? prompt : mixed;
    return h->states[own].kv_used_tokens + kv_tokens > h->machines[own].kv_tokens ? mixed : own;
}

/* Returns true if an answer whose first token is reported at first_us misses the TTFT. */
static bool prompt_missed(const struct headroom *h, const struct headroom_request *r,
                          double first_us)
{
    return first_us - r->at_us > (double)h->options.targets.ttft_us;
}

static void prompt_end(struct headroom *h, uint32_t machine, double now_us)
{
    struct headroom_state *m = &h->states[machine];
    uint32_t link = m->prompts;
    struct headroom_request *r = at(h, link);
    m->work_us = fmax(m->work_us - r->work_us, 0);
    m->prompts = r->next;
    machine_plan(h, machine);
    if (h->answers[(link - 1) % h->answer_count].answer_tokens < 2)
        misses_add(h, link, prompt_missed(h, r, now_us), false);
    else
        answer_add(h, token_machine(h, machine, kv_of(h, link)), link, now_us);
}

static void answer_end(struct headroom *h, uint32_t machine, double now_us)
{
    struct headroom_state *m = &h->states[machine];
    uint32_t link = m->answers;
    struct headroom_request *r = at(h, link);
    double gaps = (double)h->answers[(link - 1) % h->answer_count].answer_tokens - 1;
    bool prompt = prompt_missed(h, r, r->first_token_us);
    bool waited = !prompt && prompt_missed(h, r, r->began_us);
    misses_add(h, link, prompt,
               waited || (now_us - r->began_us) / gaps > (double)h->options.targets.tbt_us);
    m->answers = r->next;
    m->answer_count--;
    m->kv_used_tokens -= kv_of(h, link);
    answers_begin(h, machine);
    machine_plan(h, machine);
}

static void machine_event(struct headroom *h, uint32_t machine)
{
    struct headroom_state *m = &h->states[machine];
    double now_us = m->next_us;
    machine_advance(h, machine, now_us);
    double prompt_left = m->prompts != 0 ? at(h, m->prompts)->work_us / m->prompt_rate : NEVER;
    double answer_left =
        m->answers != 0 ? (at(h, m->answers)->last_token - m->token_clock) / m->token_rate : NEVER;
    if (prompt_left <= answer_left)
        prompt_end(h, machine, now_us);
    else
        answer_end(h, machine, now_us);
}

/* Replays the answers with the times between arrivals divided by `factor`. */
static void replay(struct headroom *h, double factor)
{
    uint32_t count = ROUNDS * h->answer_count, arrived = 0;
    memset(h->states, 0, sizeof(h->states));
    memset(h->missed, 0, sizeof(h->missed));
    h->counted = 0;
    for (uint32_t i = 0; i < h->machine_count; i++)
        h->states[i].next_us = NEVER;
    while (h->counted < h->answer_count) {
        uint32_t next = 0;
        for (uint32_t i = 1; i < h->machine_count; i++)
            if (h->states[i].next_us < h->states[next].next_us)
                next = i;
        double arrival_us = NEVER;
        if (arrived < count)
            arrival_us = ((double)(h->answers[arrived % h->answer_count].arrived_us -
                                   h->answers[0].arrived_us) +
                          h->span_us * (arrived / h->answer_count)) /
                         factor;
        if (arrival_us > h->states[next].next_us) {
            machine_event(h, next);
            continue;
        }
        h->requests[arrived] = (struct headroom_request){.at_us = arrival_us};
        prompt_add(h, prompt_machine(h), ++arrived, arrival_us);
    }
}

/* ---- the search ---- */

/* Gives machines without measured times the mean of the others. */
static bool times_complete(struct headroom *h)
{
    struct sched_rates sum = {.prompts = {.weight = 0}};
    for (uint32_t i = 0; i < h->machine_count; i++) {
        const double *from[2] = {&h->machines[i].rates.prompts.weight,
                                 &h->machines[i].rates.decodes.weight};
        double *to[2] = {&sum.prompts.weight, &sum.decodes.weight};
        for (int line = 0; line < 2; line++)
            for (size_t field = 0; field < sizeof(struct rates_line) / sizeof(double); field++)
                to[line][field] += from[line][field];
    }
    if (sum.prompts.weight <= 0 || sum.decodes.weight <= 0)
        return false;
    bool prompts = false, own = false, own_unknown = false, mixed = false, mixed_unknown = false;
    for (uint32_t i = 0; i < h->machine_count; i++) {
        struct headroom_machine *machine = &h->machines[i];
        if (machine->rates.prompts.weight <= 0)
            machine->rates.prompts = sum.prompts;
        if (machine->rates.decodes.weight <= 0)
            machine->rates.decodes = sum.decodes;
        h->steps[i] = sched_rates_step(&machine->rates);
        bool unknown = h->steps[i].fixed_ns == 0; /* The line through steps of one size. */
        prompts |= machine->computes_prompts;
        own |= machine->computes_answers && !machine->computes_prompts;
        own_unknown |= machine->computes_answers && !machine->computes_prompts && unknown;
        mixed |= machine->computes_answers && machine->computes_prompts;
        mixed_unknown |= machine->computes_answers && machine->computes_prompts && unknown;
    }
    h->result.at_least = own ? own_unknown : mixed_unknown;
    return prompts && (own || mixed);
}

bool headroom_begin(struct headroom *h)
{
    if (h->answer_count < ANSWERS_MIN || !times_complete(h))
        return false;
    h->span_us = (double)(h->until_us - h->answers[0].arrived_us);
    for (int part = 0; part < HEADROOM_PARTS; part++) {
        h->low[part] = LEAST;
        h->high[part] = HEADROOM_MOST * EXACT;
    }
    return h->span_us > 0;
}

bool headroom_step(struct headroom *h)
{
    int widest = 0;
    for (int part = 1; part < HEADROOM_PARTS; part++)
        if (h->high[part] / h->low[part] > h->high[widest] / h->low[widest])
            widest = part;
    double factor = sqrt(h->low[widest] * h->high[widest]);
    /* Prompt machines at their limit would keep answers from the token machines. */
    h->tokens_only = widest == HEADROOM_TOKENS;
    replay(h, factor * (h->options.gateways > 0 ? h->options.gateways : 1));
    bool done = true;
    for (int part = 0; part < HEADROOM_PARTS; part++) {
        bool told = h->tokens_only == (part == HEADROOM_TOKENS);
        bool good = told && h->missed[part] <= HEADROOM_MISSES * h->answer_count;
        bool bad = told && !good;
        if (good && factor > h->low[part] && factor < h->high[part])
            h->low[part] = factor;
        if (bad && factor < h->high[part] && factor > h->low[part])
            h->high[part] = factor;
        done &= h->high[part] < h->low[part] * EXACT;
        double known = h->low[part] > LEAST ? h->low[part] : 0;
        h->result.factor[part] = known < HEADROOM_MOST ? known : HEADROOM_MOST;
    }
    return done;
}
