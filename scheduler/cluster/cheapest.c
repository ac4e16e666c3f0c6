/* cluster_cheapest: the pair of machines on which a request takes the least time, considering the
 * KV of its prompt that machines hold. The rules of cluster.h have chosen a pair. The other
 * candidates use a machine that holds a prefix of the prompt:
 *
 *   prompt machine + token machine   the prefix that the first holds is not computed; the prefix
 *                                    that the second holds is not moved
 *   one machine for both phases      a token machine, which computes what it does not hold
 *   token machine + token machine    the first one has no memory for the answer; it computes what
 *                                    it does not hold, and pushes. It moves to the mixed pool for
 *                                    that (rule 3), unless it drains
 *   prompt machine + token machine   a resumed request: a third machine, or the token machine,
 *                                    sends the prompt machine the KV that it has kept; the prompt
 *                                    machine computes the rest
 *
 * The estimated cost of a pair is the sum of:
 * - the time until the prompt is computed: the prompt machine's queue, or the pulled KV if it
 *   arrives later, or the KV that the machine loads from its tiers (stored.c); and then the tokens
 *   left to compute, at the machine's rate;
 * - the time of these tokens once more for each answer that is decoded there, because those answers
 *   wait for them;
 * - the time until the KV has arrived at the token machine, as far as it does not travel while the
 *   prompt is computed;
 * - for pulled KV, the mean error of the estimate of its transfer: a pull must be better by more
 *   than what the estimate is usually wrong.
 *
 * A transfer takes the time of links.c, after the transfers that were begun before from the same
 * machine and to the same machine. An unknown compute rate counts as the mean of the known ones.
 *
 * The machine that computed the prompt of a request whose token machine has died holds the prompt,
 * too (held_tokens of SCHED_ARRIVED).
 *
 * The limits apply as they do without prefixes. A candidate is rejected if its pending tokens or
 * scheduled memory exceed those of the pair by the rules by more than prefix_slack_tokens.
 * Otherwise all conversations with the same beginning would go to one machine. */
#include "scheduler/cluster/prefix.h"
#include "scheduler/cluster/seek.h"

#include <stddef.h>

#define HOLDERS_MAX 16

struct holder {
    uint32_t machine;
    /* Length of the prompt's prefix that the machine holds in memory; 0 = a tier of the machine
     * has stored some of the prompt. */
    uint32_t tokens;
};

struct choice {
    const struct seek *seek;
    const struct route *base; /* The pair that the rules have chosen. */
    uint32_t holder_tokens;   /* Prefix length of the holders that are being looked up. */
    uint32_t holder_count;
    struct holder holders[HOLDERS_MAX];
};

/* ---- machines that hold a prefix ---- */

static const struct holder *holder_find(const struct choice *c, uint32_t machine)
{
    for (uint32_t i = 0; i < c->holder_count; i++)
        if (c->holders[i].machine == machine)
            return &c->holders[i];
    return NULL;
}

static uint32_t tokens_held(const struct choice *c, uint32_t machine)
{
    const struct holder *holder = holder_find(c, machine);
    return holder != NULL ? holder->tokens : 0;
}

/* Prefixes are looked up from the longest to the shortest, so a machine that is already in the list
 * holds a longer one. */
static bool holder_add(void *self, uint32_t machine)
{
    struct choice *c = self;
    if (c->holder_count < HOLDERS_MAX && holder_find(c, machine) == NULL)
        c->holders[c->holder_count++] =
            (struct holder){.machine = machine, .tokens = c->holder_tokens};
    return true;
}

/* True if the request is being handed over by this machine, which drains. The machine still holds
 * all KV of the request. */
static bool hands_over(const struct seek *s, uint32_t machine)
{
    const struct cluster_machine *m = &s->sc->machines[machine];
    return s->request->holder_plus_1 == machine + 1 && m->up && m->draining;
}

static bool prefixes_known(const struct seek *s)
{
    return s->sc->prefixes != NULL && s->sc->options.prefix_saves && s->request->prefix_count > 0;
}

static void holders_find(struct choice *c)
{
    const struct sched_cluster *sc = c->seek->sc;
    const struct cluster_request *request = c->seek->request;
    /* The last token of a prompt is always computed: the first token of the answer is sampled from
     * it. */
    uint32_t most = request->prompt_tokens - 1;
    if (request->holder_plus_1 > 0) {
        uint32_t tokens = request->held_tokens < most ? request->held_tokens : most;
        c->holder_tokens = hands_over(c->seek, request->holder_plus_1 - 1) ? most : tokens;
        if (c->holder_tokens > 0)
            holder_add(c, request->holder_plus_1 - 1);
    }
    if (!prefixes_known(c->seek))
        return;
    const uint64_t *hashes = sc->prefixes_of + (size_t)(request - sc->requests) * SCHED_PREFIX_MAX;
    for (uint32_t count = request->prefix_count; count > 0; count--) {
        uint64_t tokens = (uint64_t)count * sc->options.prefix_step_tokens;
        c->holder_tokens = tokens < most ? (uint32_t)tokens : most;
        if (c->holder_tokens > 0)
            cluster_prefixes_holders(sc->prefixes, hashes[count - 1], holder_add, c);
    }
    /* Machines that hold nothing in memory, but may load something. */
    c->holder_tokens = 0;
    for (uint32_t count = request->prefix_count; count > 0; count--)
        cluster_stored_holders(sc, hashes[count - 1], holder_add, c);
}

/* ---- the cost of a pair ---- */

struct estimate {
    uint64_t work_tokens;     /* Tokens that are computed, and tokens whose KV travels. */
    uint64_t pull_us;         /* Until the pulled KV has arrived; 0 = none is pulled. */
    struct cluster_load load; /* What the prompt machine loads from its tiers. */
    uint64_t computed_us;     /* Until the prompt is computed. */
    uint64_t cost_us;
};

static uint64_t queue_us(const struct choice *c, uint32_t machine)
{
    /* The other requests on a machine that hands over leave, too. */
    return hands_over(c->seek, machine) ? 0
                                        : cluster_work_us(c->seek->sc, machine, MEASURE_PENDING, 0);
}

/* source: the machine that first sends the prompt machine what it holds; SCHED_NO_MACHINE =
 * none. */
static struct estimate pair_estimate(const struct choice *c, uint32_t prompt, uint32_t token,
                                     uint32_t source)
{
    const struct sched_cluster *sc = c->seek->sc;
    const struct cluster_machine *machine = &sc->machines[prompt];
    const uint32_t tokens = c->seek->request->prompt_tokens;
    const bool pulls = source != SCHED_NO_MACHINE;
    struct estimate out = {.computed_us = queue_us(c, prompt)};
    if (!pulls && prefixes_known(c->seek))
        out.load = cluster_load_estimate(sc, c->seek->request, prompt, tokens_held(c, prompt));
    const uint64_t left = tokens - tokens_held(c, pulls ? source : prompt) - out.load.tokens;
    const uint64_t compute_us = left * US_PER_S / cluster_rate(sc, prompt, MEASURE_PENDING);
    const uint64_t answers =
        hands_over(c->seek, prompt) ? 0 : (uint64_t)machine->decodes + machine->others.decodes;
    out.work_tokens = left + out.load.tokens;
    out.computed_us = max_u64(out.computed_us, out.load.us);
    if (pulls) {
        const uint64_t more = tokens_held(c, source) - tokens_held(c, prompt);
        out.work_tokens += more;
        out.pull_us = cluster_transfer_wait_us(sc, source, prompt) +
                      cluster_transfer_us(sc, source, prompt, more);
        out.cost_us = cluster_transfer_error_us(sc, source, prompt, more);
        out.computed_us = max_u64(out.computed_us, out.pull_us);
    }
    out.computed_us += compute_us;
    out.cost_us += out.computed_us + answers * compute_us;
    if (token != SCHED_NO_MACHINE && token != prompt) {
        out.work_tokens += tokens - tokens_held(c, token);
        out.cost_us += cluster_exposed_us(sc, prompt, token, tokens - tokens_held(c, token),
                                          out.computed_us, compute_us);
    }
    return out;
}

/* ---- which machines may take the request ---- */

static bool within_slack(const struct choice *c, enum measure measure, uint32_t machine,
                         uint32_t instead)
{
    const struct cluster_rank *ranks = c->seek->sc->ranks[measure];
    return ranks[machine].tokens <=
           ranks[instead].tokens + c->seek->sc->options.prefix_slack_tokens;
}

static bool may_compute(const struct choice *c, uint32_t machine)
{
    const struct seek *s = c->seek;
    const struct cluster_machine *m = &s->sc->machines[machine];
    if (machine == c->base->prompt_machine)
        return true;
    if (!seek_has_room(s, machine, MEASURE_PENDING, s->request->prompt_tokens))
        return false;
    if (hands_over(s, machine))
        return true;
    if (!machine_set_has(&s->sc->routable, machine) ||
        !within_slack(c, MEASURE_PENDING, machine, c->base->prompt_machine))
        return false;
    if (pool_serves_phase(m->pool, POOL_PROMPT))
        return !seek_prompt_over_threshold(s, machine);
    return s->flexible && !seek_keeps_pool(s, machine) && s->request->output_tokens > 0 &&
           s->request->prompt_tokens <= m->mixed_kv_tokens;
}

static bool may_decode(const struct choice *c, uint32_t prompt, uint32_t machine)
{
    struct seek s = *c->seek;
    s.prompt_machine = prompt;
    if (machine == c->base->token_machine && prompt == c->base->prompt_machine)
        return true;
    if (!machine_set_has(&s.sc->routable, machine) || !seek_token_fits(&s, machine))
        return false;
    if (machine == c->base->token_machine && c->base->token_moves)
        return request_tokens(s.request) <= s.sc->machines[machine].mixed_kv_tokens;
    if (machine == c->base->token_machine)
        return true;
    return pool_serves_phase(s.sc->machines[machine].pool, POOL_TOKEN) &&
           !seek_token_over_threshold(&s, machine, machine == prompt) &&
           within_slack(c, MEASURE_MEMORY, machine, c->base->token_machine);
}

/* A machine that does both phases of a request may use all its memory for it. */
static bool may_do_both(const struct choice *c, uint32_t machine)
{
    const struct seek *s = c->seek;
    return machine_set_has(&s->sc->routable, machine) &&
           pool_serves_phase(s->sc->machines[machine].pool, POOL_TOKEN) &&
           seek_both_fit(s, machine) && !seek_token_over_threshold(s, machine, true) &&
           within_slack(c, MEASURE_MEMORY, machine, c->base->token_machine);
}

static bool may_pair(const struct choice *c, uint32_t prompt, uint32_t token)
{
    if (token == SCHED_NO_MACHINE)
        return may_compute(c, prompt);
    if (prompt == token)
        return may_do_both(c, prompt);
    /* If machines move to the mixed pool for this route, the rules have checked this pair only. */
    if ((c->base->prompt_moves || c->base->token_moves) && !hands_over(c->seek, prompt))
        return false;
    return may_compute(c, prompt) && may_decode(c, prompt, token);
}

/* ---- the choice ---- */

static uint32_t us_of(uint64_t us)
{
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

/* The best route so far, and the decision that it is part of. */
struct best {
    uint64_t cost_us;
    uint64_t work_tokens;
    struct route route;
    struct sched_decision decision;
};

/* Takes the route if it is the best one so far: it costs less, or the same with less work. */
static void best_take(struct best *best, const struct estimate *estimate, const struct route *route)
{
    struct sched_decision *decision = &best->decision;
    uint32_t *least_us = route->pull_source_plus_1 > 0 ? &decision->move_us
                         : estimate->load.tokens > 0   ? &decision->load_us
                         : route->prefix_tokens > 0    ? &decision->keep_us
                                                       : &decision->compute_us;
    /* 0 means that there is no such route. */
    const uint32_t cost_us = us_of(estimate->cost_us > 0 ? estimate->cost_us : 1);
    if (*least_us == 0 || cost_us < *least_us)
        *least_us = cost_us;
    if (estimate->cost_us > best->cost_us ||
        (estimate->cost_us == best->cost_us && estimate->work_tokens >= best->work_tokens))
        return;
    best->cost_us = estimate->cost_us;
    best->work_tokens = estimate->work_tokens;
    best->route = *route;
    best->route.load_tokens = estimate->load.tokens;
    decision->pull_us = us_of(estimate->pull_us);
    decision->loaded_us = us_of(estimate->load.us);
    decision->computed_us = us_of(estimate->computed_us);
}

static void pair_try(const struct choice *c, uint32_t prompt, uint32_t token, struct best *best)
{
    const struct cluster_machine *machine = &c->seek->sc->machines[prompt];
    if (!may_pair(c, prompt, token))
        return;
    const struct estimate estimate = pair_estimate(c, prompt, token, SCHED_NO_MACHINE);
    const struct route route = {
        .prompt_machine = prompt,
        .token_machine = token,
        .prefix_tokens = tokens_held(c, prompt),
        .prompt_moves = prompt != token && !pool_serves_phase(machine->pool, POOL_PROMPT) &&
                        !hands_over(c->seek, prompt),
        .token_moves = token == c->base->token_machine && c->base->token_moves,
    };
    best_take(best, &estimate, &route);
}

/* Only for requests that have lost their machines: others find what they need where it is, or it is
 * not worth a copy of its own. */
static void pull_try(const struct choice *c, uint32_t token, struct best *best)
{
    const struct seek *s = c->seek;
    const uint32_t prompt = c->base->prompt_machine, source = s->request->holder_plus_1 - 1;
    if (!s->request->resumed || s->request->holder_plus_1 == 0 || source == prompt ||
        hands_over(s, source) || !s->sc->machines[source].up ||
        !machine_set_has(&s->sc->machines[source].links, prompt) || c->base->prompt_moves ||
        c->base->token_moves || tokens_held(c, source) <= tokens_held(c, prompt) ||
        !may_pair(c, prompt, token))
        return;
    const struct estimate estimate = pair_estimate(c, prompt, token, source);
    const struct route route = {.prompt_machine = prompt,
                                .token_machine = token,
                                .prefix_tokens = tokens_held(c, source),
                                .pull_source_plus_1 = source + 1};
    best_take(best, &estimate, &route);
}

/* Tries the pairs with the machine `holder`. */
static void holder_try(const struct choice *c, uint32_t holder, struct best *best)
{
    pair_try(c, holder, c->base->token_machine, best);
    if (c->base->token_machine == SCHED_NO_MACHINE)
        return;
    pair_try(c, holder, holder, best);
    pair_try(c, c->base->prompt_machine, holder, best);
    for (uint32_t i = 0; i < c->holder_count; i++)
        if (c->holders[i].machine != holder)
            pair_try(c, holder, c->holders[i].machine, best);
}

void cluster_cheapest(const struct seek *s, struct route *out)
{
    if (s->request->holder_plus_1 == 0 && !prefixes_known(s))
        return;
    const struct route base = *out;
    struct choice c = {.seek = s, .base = &base};
    struct best best = {.cost_us = UINT64_MAX};
    holders_find(&c);
    out->prefix_tokens = tokens_held(&c, base.prompt_machine);
    const struct estimate estimate =
        pair_estimate(&c, base.prompt_machine, base.token_machine, SCHED_NO_MACHINE);
    if (c.holder_count == 0 && estimate.load.tokens == 0)
        return;
    best_take(&best, &estimate, out);
    for (uint32_t i = 0; i < c.holder_count; i++)
        holder_try(&c, c.holders[i].machine, &best);
    pull_try(&c, base.token_machine, &best);
    if (s->request->holder_plus_1 > 0 && base.token_machine != SCHED_NO_MACHINE)
        pull_try(&c, s->request->holder_plus_1 - 1, &best);
    *out = best.route;
    out->decision = best.decision;
    if (out->token_machine != SCHED_NO_MACHINE)
        out->token_held = tokens_held(&c, out->token_machine);
}
