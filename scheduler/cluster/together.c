/* cluster_together: whether one machine does both phases of a request, instead of two.
 *
 * Two machines that share the cores of a computer do no more work per second than one, and one
 * machine reads the weights once for a batch of prompts and answers. So there one machine does
 * both. If it has too many prompts, and no machine has other cores, the request waits: if the other
 * machine computed the prompt, its turns would come between the steps of the running answers,
 * beside the share of the machine's own prompts.
 *
 * Between machines with cores of their own, the expected times decide. A machine with P seconds of
 * open prompts and a decode step of s seconds delivers the last first token after P, and with
 * answers beside them after
 *
 *     P (t + s) / t,
 *
 * where t is the prompts' share between two steps (scheduler/pace.h). An answer of L tokens that
 * runs already waits for these prompts once, and never longer than a share at a time. So its mean
 * gap between tokens is
 *
 *     s + min(P / L, t).
 *
 * Both are taken as parts of their targets TTFT and TBT. TTFT counts more (TTFT_WEIGHT), because
 * further prompts come before the queue is empty, while the share bounds the gaps.
 *
 * On a split route, the prompt machine computes the prompt, which gives the first token. The token
 * machine computes the rest. The second token waits for the KV. This wait raises the mean gap of
 * short answers most (SHORT_PART). On any other route, one machine does all this. If it decodes
 * nothing yet, this has a cost of its own (first_answer_cost).
 *
 * The cost of a route is the largest of these parts. If one is above 1, the cost is 1 plus the sum
 * of what exceeds 1, for the request and for each answer that the request slows down. The cheapest
 * route is taken. The split one counts with a part of its cost (split_favour).
 *
 * So phases are split while the prompt machine has no queue; a queue that hurts more than a prompt
 * beside answers goes to machines that decode; and where tokens are late, answers stay where their
 * prompt was computed. `bench/bench_surface.py` measures what this is worth. */
#include "common/limits.h"
#include "scheduler/cluster/seek.h"
#include "scheduler/pace.h"

/* FAVOUR_SLOPE and FAVOUR_LEAST: see split_favour. FIRST_PART: see first_answer_cost. These and
 * TTFT_WEIGHT were found with the 264 simulated cells of bench_surface.py and
 * bench_surface_served.py. */
#define TTFT_WEIGHT  1.3
#define FAVOUR_SLOPE 0.25
#define FAVOUR_LEAST 0.5
#define FIRST_PART   0.6

/* 19 of 20 answers are longer than this part of the expected length, if lengths are log-normal with
 * sigma 0.6. The wait for the KV is divided by such a short length, not by the expected one. So one
 * answer in 20, not half of them, may miss the target of TBT for this wait. */
#define SHORT_PART 0.37

#define NS_PER_US 1e3

/* A machine's times as parts of their targets. */
struct times {
    double ttft;    /* Of the last of its open prompts, times TTFT_WEIGHT. */
    double answers; /* TBT of the answers that wait for these prompts; 0 = there are none. */
    double answer;  /* TBT of an answer that waits for no prompt. */
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Returns the expected length of the request's answer. */
static double answer_tokens(const struct cluster_request *request)
{
    uint32_t tokens = request->resumed ? request->answer_memory : request->answer_charged;
    return tokens > 0 ? tokens : 1;
}

static uint64_t decodes_of(const struct seek *s, uint32_t i)
{
    const struct cluster_machine *machine = &s->sc->machines[i];
    return (uint64_t)machine->decodes + machine->others.decodes;
}

/* Returns the longest time that prompts of the machine compute between two steps. A share has whole
 * chunks, and may be longer by half a chunk than it should. */
static double pause_us(const struct sched_cluster *sc, uint32_t i, int64_t share_us)
{
    double token_us = US_PER_S / (double)cluster_rate(sc, i, MEASURE_PENDING);
    uint32_t tokens = sched_pace_share_tokens(share_us, token_us, LIMIT_BATCH_TOKENS);
    return (tokens + 0.5 * LIMIT_CHUNK_TOKENS_MIN) * token_us;
}

/* The machine with prompt_tokens and `decodes` (0 or 1) added to its work. */
static struct times times_with(const struct seek *s, uint32_t i, uint32_t prompt_tokens,
                               uint32_t decodes)
{
    const struct sched_cluster *sc = s->sc;
    const struct cluster_machine *machine = &sc->machines[i];
    uint64_t tokens =
        machine->prompt_tokens_pending + machine->others.prompt_tokens + prompt_tokens;
    uint64_t all = decodes_of(s, i) + decodes;
    const struct sched_pace_targets *targets = &sc->options.one_machine_targets;
    double tbt_us = (double)targets->tbt_us;
    double prompts_us = (double)tokens * US_PER_S / (double)cluster_rate(sc, i, MEASURE_PENDING);
    double step_us = all > 0 ? (double)cluster_step_ns(sc, i, all) / NS_PER_US : 0;
    int64_t share = sched_pace_share_us(targets, prompts_us, step_us);
    double share_us = (double)share;
    struct times out = {.answer = step_us / tbt_us};
    out.ttft =
        TTFT_WEIGHT * prompts_us * (share_us + step_us) / share_us / (double)targets->ttft_us;
    double wait_us = smaller(prompts_us / answer_tokens(s->request), pause_us(sc, i, share));
    if (decodes_of(s, i) > 0)
        out.answers = out.answer + wait_us / tbt_us;
    return out;
}

static double excess(double part)
{
    return part > 1 ? part - 1 : 0;
}

/* Returns how much more the answers of the machine exceed their target, in all, than without the
 * request. */
static double answers_excess(const struct seek *s, uint32_t i, struct times with)
{
    double without = excess(times_with(s, i, 0, 0).answers);
    return (double)decodes_of(s, i) * larger(excess(with.answers) - without, 0);
}

/* Returns the microseconds that the answer's second token waits for the KV. */
static uint64_t push_exposed_us(const struct seek *s, uint32_t prompt, uint32_t token)
{
    const struct sched_cluster *sc = s->sc;
    const uint64_t tokens = s->request->prompt_tokens;
    const uint64_t compute_us = tokens * US_PER_S / cluster_rate(sc, prompt, MEASURE_PENDING);
    const uint64_t computed_us = cluster_work_us(sc, prompt, MEASURE_PENDING, 0) + compute_us;
    return cluster_exposed_us(sc, prompt, token, tokens, computed_us, compute_us);
}

/* Returns the part of the split route's cost that one machine's cost must be below. Answers that
 * are spread over prompt machines for a small gain make all later prompts there wait, the more the
 * larger a decode step is beside the target of TBT. */
static double split_favour(const struct seek *s, const struct route *split)
{
    const struct sched_cluster *sc = s->sc;
    uint32_t decodes =
        split->token_machine != SCHED_NO_MACHINE ? split->token_machine : split->prompt_machine;
    double step_us = (double)cluster_step_ns(sc, decodes, 1) / NS_PER_US;
    double favour = 1 - FAVOUR_SLOPE * step_us / (double)sc->options.one_machine_targets.tbt_us;
    return larger(favour, FAVOUR_LEAST);
}

/* A machine that decodes nothing computes its prompts without steps between them. The first answer
 * there slows all prompts that come while it runs. How many will come is estimated from the recent
 * ones. Returns this cost: a part of the time of the answer's steps, divided by the TTFT target. */
static double first_answer_cost(const struct seek *s, uint32_t i)
{
    const struct sched_cluster *sc = s->sc;
    if (decodes_of(s, i) > 0)
        return 0;
    double steps_us = (double)cluster_step_ns(sc, i, 1) / NS_PER_US * answer_tokens(s->request);
    return FIRST_PART * cluster_prompts_part(sc, i) * steps_us /
           (double)sc->options.one_machine_targets.ttft_us;
}

/* token = SCHED_NO_MACHINE: only the prompt is computed. */
static double cost(const struct seek *s, uint32_t prompt, uint32_t token)
{
    const struct sched_cluster *sc = s->sc;
    uint32_t tokens = s->request->prompt_tokens;
    struct times at = times_with(s, prompt, tokens, prompt == token ? 1 : 0);
    double tbt = prompt == token ? at.answer : 0;
    double worst = larger(at.ttft, at.answers);
    double late = excess(at.ttft) + answers_excess(s, prompt, at);
    if (prompt != token && token != SCHED_NO_MACHINE) {
        struct times on = times_with(s, token, 0, 1);
        double push_us = (double)push_exposed_us(s, prompt, token);
        double gaps = larger(SHORT_PART * answer_tokens(s->request), 1);
        tbt = larger(on.answer, on.answers) +
              push_us / gaps / (double)sc->options.one_machine_targets.tbt_us;
        late += answers_excess(s, token, on);
    }
    worst = larger(worst, tbt);
    if (prompt == token)
        worst += first_answer_cost(s, token);
    late += excess(tbt);
    return late > 0 ? 1 + late : worst;
}

static void machine_try(const struct seek *s, uint32_t i, double *least, struct route *out)
{
    bool decodes = s->request->output_tokens > 0;
    uint32_t token = decodes ? i : SCHED_NO_MACHINE;
    if (i == SCHED_NO_MACHINE || !seek_both_fit(s, i) ||
        (decodes && seek_token_over_threshold(s, i, true)))
        return;
    double its = cost(s, i, token);
    if (its >= *least)
        return;
    *least = its;
    *out = (struct route){.prompt_machine = i, .token_machine = token};
}

static bool all_share_cores(const struct sched_cluster *sc, uint32_t machine)
{
    for (uint32_t i = 0; i < sc->options.machine_count; i++)
        if (machine_set_has(&sc->routable, i) && !cluster_same_cores(sc, i, machine))
            return false;
    return true;
}

static bool measured(const struct sched_cluster *sc, uint32_t prompt)
{
    return sc->machines[prompt].prompt_tokens_per_s > 0 && cluster_step_ns(sc, prompt, 1) > 0;
}

void cluster_together(const struct seek *s, struct route *out)
{
    const struct sched_cluster *sc = s->sc;
    const struct route base = *out;
    /* A prompt machine that drains, that holds a prefix or whose tiers have stored one, has KV of
     * the request. */
    if (!sc->options.one_machine_routes || base.token_machine == base.prompt_machine ||
        base.prompt_moves || base.token_moves || base.lent_plus_1 > 0 || base.prefix_tokens > 0 ||
        base.load_tokens > 0 || !machine_set_has(&sc->routable, base.prompt_machine))
        return;
    if (base.token_machine != SCHED_NO_MACHINE &&
        cluster_same_cores(sc, base.prompt_machine, base.token_machine)) {
        if (seek_both_fit(s, base.token_machine))
            *out = (struct route){.prompt_machine = base.token_machine,
                                  .token_machine = base.token_machine};
        else if (all_share_cores(sc, base.token_machine))
            *out = (struct route){.prompt_machine = SCHED_NO_MACHINE,
                                  .token_machine = SCHED_NO_MACHINE};
        return;
    }
    if (!measured(sc, base.prompt_machine))
        return;
    double least = split_favour(s, &base) * cost(s, base.prompt_machine, base.token_machine);
    if (base.token_machine != SCHED_NO_MACHINE)
        machine_try(s, base.token_machine, &least, out);
    machine_try(s, base.prompt_machine, &least, out);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        machine_try(s, seek_least_loaded(s, MEASURE_PENDING, (enum pool)pool, seek_both_fit),
                    &least, out);
}
