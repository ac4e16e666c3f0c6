/* cluster_model_together: the part of the model (cluster_model_choice.h) that decides whether one
 * machine does both phases: the formulas of scheduler/cluster/together.c. */
#include "scheduler/pace.h"
#include "tests/scheduler/cluster_model_choice.h"

#include <math.h>

#define NONE SCHED_NO_MACHINE

struct figures {
    double ttft;
    double running; /* TBT of the answers that run; 0 = there are none. */
    double fresh;   /* TBT of an answer whose prompt is the last one. */
};

static double above(double part)
{
    return part > 1 ? part - 1 : 0;
}

static double prompt_rate(const struct model *m, uint32_t i)
{
    uint64_t sum = 0, known = 0;
    for (int k = 0; k < MODEL_MACHINES; k++) {
        if (!m->machines[k].up || m->machines[k].prompt_rate == 0)
            continue;
        sum += m->machines[k].prompt_rate;
        known++;
    }
    if (m->machines[i].prompt_rate > 0)
        return m->machines[i].prompt_rate;
    return known > 0 ? (double)(sum / known) : 1e6;
}

static bool has_step(const struct model_machine *machine)
{
    return machine->step.fixed_ns + (uint64_t)machine->step.row_ns > 0;
}

/* Returns the time of a batch of `decodes` answers; 0 = no machine has measured one. */
static uint64_t step_ns(const struct model *m, uint32_t i, uint64_t decodes)
{
    uint64_t fixed = 0, row = 0, known = 0;
    for (int k = 0; k < MODEL_MACHINES; k++) {
        if (!m->machines[k].up || !has_step(&m->machines[k]))
            continue;
        fixed += m->machines[k].step.fixed_ns;
        row += m->machines[k].step.row_ns;
        known++;
    }
    if (has_step(&m->machines[i]))
        return m->machines[i].step.fixed_ns + m->machines[i].step.row_ns * decodes;
    return known == 0 ? 0 : fixed / known + row / known * decodes;
}

static bool any_step(const struct model *m)
{
    for (uint32_t k = 0; k < MODEL_MACHINES; k++)
        if (m->machines[k].up && has_step(&m->machines[k]))
            return true;
    return false;
}

static double answer_length(const struct model_search *l)
{
    double length = l->r->resumed ? l->r->answer_memory : l->r->answer_charged;
    return length < 1 ? 1 : length;
}

bool model_sole_prompt_machine(const struct model *m)
{
    int prompt_homes = 0, token_homes = 0, measured = 0;
    for (uint32_t i = 0; i < MODEL_MACHINES; i++) {
        const struct model_machine *machine = &m->machines[i];
        if (machine->was_up && machine->shared_cores)
            return false;
        if (!model_is_open(m, i))
            continue;
        token_homes += machine->home == POOL_TOKEN;
        prompt_homes += machine->home != POOL_TOKEN;
        measured += machine->home != POOL_TOKEN && machine->prompt_rate > 0;
    }
    return m->options.one_machine_routes && prompt_homes == 1 && measured == 1 && token_homes > 0 &&
           any_step(m);
}

static uint64_t running(const struct model_search *l, uint32_t i)
{
    return (uint64_t)model_decodes(l->m, i) + l->m->machines[i].others.decodes;
}

/* The machine with one more prompt or one more answer, or both. */
static struct figures figures(const struct model_search *l, uint32_t i, bool prompt, bool answer)
{
    const struct model *m = l->m;
    uint64_t tokens = model_pending(m, i) + m->machines[i].others.prompt_tokens;
    uint64_t decodes = running(l, i) + (answer ? 1 : 0);
    tokens += prompt ? l->r->prompt_tokens : 0;
    double prompts_us = (double)tokens * 1e6 / prompt_rate(m, i);
    double step_us = decodes == 0 ? 0 : (double)step_ns(m, i, decodes) / 1e3;
    double tbt_us = (double)m->options.one_machine_targets.tbt_us;
    double share_us =
        (double)sched_pace_share_us(&m->options.one_machine_targets, prompts_us, step_us);
    struct figures f = {.fresh = step_us / tbt_us};
    /* TTFT counts 1.3 times. */
    f.ttft = 1.3 * prompts_us * (share_us + step_us) / share_us /
             (double)m->options.one_machine_targets.ttft_us;
    /* Between two steps come whole chunks of 16 prompt tokens, and up to half of one more. */
    double token_us = 1e6 / prompt_rate(m, i);
    double chunks = floor(share_us / token_us / 16 + 0.5);
    chunks = fmin(fmax(chunks, 1), 256);
    double wait_us = fmin(prompts_us / answer_length(l), (16 * chunks + 8) * token_us);
    if (running(l, i) > 0)
        f.running = f.fresh + wait_us / tbt_us;
    return f;
}

/* What the answers that run on the machine lose in all, if it becomes as in `f`. */
static double loss(const struct model_search *l, uint32_t i, struct figures f)
{
    double more = above(f.running) - above(figures(l, i, false, false).running);
    return more > 0 ? (double)running(l, i) * more : 0;
}

/* Returns the time from the end of computing until the KV has arrived. */
static int64_t exposed_us(const struct model_search *l, uint32_t prompt, uint32_t token)
{
    int64_t rate = (int64_t)prompt_rate(l->m, prompt), tokens = l->r->prompt_tokens;
    int64_t compute_us = tokens * 1000000 / rate;
    int64_t begin_us = (int64_t)model_rank(l->m, prompt, PENDING) * 1000000 / rate;
    int64_t end_us = begin_us + compute_us;
    int64_t wait_us = model_link_wait_us(l->m, prompt, token);
    int64_t sent_us = (wait_us > begin_us ? wait_us : begin_us) + 1000 + tokens;
    return sent_us > end_us + 1000 ? sent_us - end_us : 1000;
}

static double cost(const struct model_search *l, uint32_t prompt, uint32_t token)
{
    struct figures at = figures(l, prompt, true, prompt == token);
    double tbt = prompt == token ? at.fresh : 0;
    double late = above(at.ttft) + loss(l, prompt, at);
    double most = at.ttft > at.running ? at.ttft : at.running;
    if (token != prompt && token != NONE) {
        int64_t push_us = exposed_us(l, prompt, token);
        struct figures on = figures(l, token, false, true);
        /* The wait for the KV, in the mean gap of an answer that is shorter than most. */
        double gaps = 0.37 * answer_length(l) > 1 ? 0.37 * answer_length(l) : 1;
        tbt = (on.fresh > on.running ? on.fresh : on.running) +
              (double)push_us / gaps / (double)l->m->options.one_machine_targets.tbt_us;
        late += loss(l, token, on);
    }
    late += above(tbt);
    if (late > 0)
        return 1 + late;
    if (most < tbt)
        most = tbt;
    /* The first answer of a machine slows the prompts that come while it runs: as many as came
     * lately. */
    if (prompt == token && running(l, token) == 0)
        most += 0.6 * model_prompts_part(l->m, token, prompt_rate(l->m, token)) *
                ((double)step_ns(l->m, token, 1) / 1e3 * answer_length(l)) /
                (double)l->m->options.one_machine_targets.ttft_us;
    return most;
}

static bool both(const struct model_search *l, uint32_t i)
{
    return i != NONE && model_takes_both(l, i) &&
           !(l->r->output_tokens > 0 && model_token_over(l, i, true));
}

void model_choose_together(const struct model_search *l, struct model_route *c)
{
    const struct model *m = l->m;
    const struct model_route split = *c;
    bool decodes = split.token_machine != NONE;
    if (!m->options.one_machine_routes || split.prompt_machine == split.token_machine ||
        !model_is_open(m, split.prompt_machine))
        return;
    uint32_t cores = m->machines[split.prompt_machine].cores;
    if (decodes && cores > 0 && cores == m->machines[split.token_machine].cores) {
        bool others = false;
        for (uint32_t i = 0; i < MODEL_MACHINES; i++)
            others |= model_is_open(m, i) && m->machines[i].cores != cores;
        if (model_takes_both(l, split.token_machine))
            c->prompt_machine = split.token_machine;
        else if (!others)
            c->prompt_machine = c->token_machine = NONE; /* The request waits. */
        return;
    }
    if (m->machines[split.prompt_machine].prompt_rate == 0 || !any_step(m))
        return;
    uint32_t candidates[2 + POOL_COUNT] = {split.token_machine, split.prompt_machine};
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        uint32_t best = NONE;
        for (uint32_t i = 0; i < MODEL_MACHINES; i++)
            if (m->machines[i].pool == (enum pool)pool && model_takes_both(l, i) &&
                (best == NONE || model_before(l, i, best, PENDING)))
                best = i;
        candidates[2 + pool] = best;
    }
    /* One machine must be cheaper by a quarter of the part that one decode step takes of the
     * target. */
    double step_us =
        (double)step_ns(m, decodes ? split.token_machine : split.prompt_machine, 1) / 1e3;
    double part = 1 - 0.25 * step_us / (double)m->options.one_machine_targets.tbt_us;
    double least = (part < 0.5 ? 0.5 : part) * cost(l, split.prompt_machine, split.token_machine);
    for (int k = 0; k < 2 + POOL_COUNT; k++) {
        uint32_t i = candidates[k];
        if (!both(l, i) || cost(l, i, decodes ? i : NONE) >= least)
            continue;
        least = cost(l, i, decodes ? i : NONE);
        c->prompt_machine = i;
        c->token_machine = decodes ? i : NONE;
    }
}
