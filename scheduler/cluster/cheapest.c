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
 * The estimated time of a pair is the sum of:
 * - the prompt machine's pending tokens and the tokens left to compute, at the rate of that
 *   machine;
 * - the tokens left to compute once more for each answer that is decoded there, because those
 *   answers wait for them;
 * - the tokens to push, at the rate at which the machine pushed lately;
 * - the tokens that the prompt machine gets first, at the rate of their sender, as far as this takes
 *   longer than the prompt machine's pending tokens.
 *
 * An unknown compute rate counts as the mean of the known ones; an unknown push rate as that of a
 * fast link.
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

#define US_PER_S    1000000
#define HOLDERS_MAX 16

/* A request is sent to another machine than the one that has its KV only if that takes less than
 * this part of the time: the estimates of both are rough, and a copy uses the links of others. */
#define PULL_FAVOUR_PERCENT 50

struct holder {
    uint32_t machine;
    uint32_t tokens; /* Length of the prompt's prefix that the machine holds. */
};

struct choice {
    const struct seek *seek;
    const struct route *base; /* The pair that the rules have chosen. */
    uint32_t holder_tokens;   /* Prefix length of the holders that are being looked up. */
    uint32_t holder_count;
    struct holder holders[HOLDERS_MAX];
};

/* ---- machines that hold a prefix ---- */

static uint32_t tokens_held(const struct choice *c, uint32_t machine)
{
    for (uint32_t i = 0; i < c->holder_count; i++)
        if (c->holders[i].machine == machine)
            return c->holders[i].tokens;
    return 0;
}

/* Prefixes are looked up from the longest to the shortest, so a machine that is already in the list
 * holds a longer one. */
static bool holder_add(void *self, uint32_t machine)
{
    struct choice *c = self;
    if (c->holder_count < HOLDERS_MAX && tokens_held(c, machine) == 0)
        c->holders[c->holder_count++] =
            (struct holder){.machine = machine, .tokens = c->holder_tokens};
    return true;
}

/* True if the request is being handed over by this machine, which drains. The machine still holds
 * all KV of the request. */
static bool hands_over(const struct seek *s, uint32_t machine)
{
    const struct cluster_machine *m = &s->sc->machines[machine];
    return s->request->held == machine + 1 && m->up && m->draining;
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
    if (request->held > 0) {
        uint32_t tokens = request->held_tokens < most ? request->held_tokens : most;
        c->holder_tokens = hands_over(c->seek, request->held - 1) ? most : tokens;
        if (c->holder_tokens > 0)
            holder_add(c, request->held - 1);
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
}

/* ---- time of a pair ---- */

static uint64_t pair_us(const struct choice *c, uint32_t prompt, uint32_t token)
{
    const struct sched_cluster *sc = c->seek->sc;
    const struct cluster_machine *machine = &sc->machines[prompt];
    uint32_t tokens = c->seek->request->prompt_tokens;
    uint64_t rate = cluster_rate(sc, prompt, MEASURE_PENDING);
    uint64_t left = tokens - tokens_held(c, prompt);
    uint64_t answers = (uint64_t)machine->decodes + machine->others.decodes;
    uint64_t computed = sc->ranks[MEASURE_PENDING][prompt].tokens + left * (1 + answers);
    if (hands_over(c->seek, prompt)) /* The other requests on this machine leave, too. */
        computed = left;
    uint64_t us = computed * US_PER_S / rate;
    if (token != SCHED_NO_MACHINE && token != prompt)
        us += cluster_push_us(sc, prompt, tokens - tokens_held(c, token));
    return us;
}

/* The time of the pair if the machine `source` first sends the prompt machine what it holds. */
static uint64_t pulled_us(const struct choice *c, uint32_t prompt, uint32_t token, uint32_t source)
{
    const struct sched_cluster *sc = c->seek->sc;
    const uint32_t held = tokens_held(c, prompt), more = tokens_held(c, source) - held;
    const uint64_t answers =
        (uint64_t)sc->machines[prompt].decodes + sc->machines[prompt].others.decodes;
    const uint64_t rate = cluster_rate(sc, prompt, MEASURE_PENDING);
    const uint64_t pending_us = sc->ranks[MEASURE_PENDING][prompt].tokens * US_PER_S / rate;
    const uint64_t pull_us = cluster_push_us(sc, source, more);
    return pair_us(c, prompt, token) - more * (1 + answers) * US_PER_S / rate +
           (pull_us > pending_us ? pull_us - pending_us : 0);
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
    if (!set_has(&s->sc->routable, machine) ||
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
    if (!set_has(&s.sc->routable, machine) || !seek_token_fits(&s, machine))
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
    return set_has(&s->sc->routable, machine) &&
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

static void pair_try(const struct choice *c, uint32_t prompt, uint32_t token, uint64_t *best_us,
                     struct route *best)
{
    const struct cluster_machine *machine = &c->seek->sc->machines[prompt];
    uint64_t us = pair_us(c, prompt, token);
    if (us >= *best_us || !may_pair(c, prompt, token))
        return;
    *best_us = us;
    *best = (struct route){
        .prompt_machine = prompt,
        .token_machine = token,
        .prefix_tokens = tokens_held(c, prompt),
        .prompt_moves = prompt != token && !pool_serves_phase(machine->pool, POOL_PROMPT) &&
                        !hands_over(c->seek, prompt),
        .token_moves = token == c->base->token_machine && c->base->token_moves,
    };
}

/* Only for requests that have lost their machines: others find what they need where it is, or it is
 * not worth a copy of its own. */
static void pull_try(const struct choice *c, uint32_t token, uint64_t *best_us, struct route *best)
{
    const struct seek *s = c->seek;
    const uint32_t prompt = c->base->prompt_machine, source = s->request->held - 1;
    /* Beside a copy of an answer, at most two blocks are left to compute. */
    if (!s->request->resumed || s->request->held_copy || s->request->held == 0 ||
        source == prompt || hands_over(s, source) || !s->sc->machines[source].up ||
        !set_has(&s->sc->machines[source].links, prompt) || c->base->prompt_moves ||
        c->base->token_moves || tokens_held(c, source) <= tokens_held(c, prompt))
        return;
    uint64_t us = pulled_us(c, prompt, token, source);
    if (us * 100 >= *best_us * PULL_FAVOUR_PERCENT || !may_pair(c, prompt, token))
        return;
    *best_us = us;
    *best = (struct route){.prompt_machine = prompt,
                           .token_machine = token,
                           .prefix_tokens = tokens_held(c, source),
                           .pull = source + 1};
}

void cluster_cheapest(const struct seek *s, struct route *out)
{
    if (s->request->held == 0 && !prefixes_known(s))
        return;
    const struct route base = *out;
    struct choice c = {.seek = s, .base = &base};
    holders_find(&c);
    if (c.holder_count == 0)
        return;
    out->prefix_tokens = tokens_held(&c, base.prompt_machine);
    uint64_t best_us = pair_us(&c, base.prompt_machine, base.token_machine);
    for (uint32_t i = 0; i < c.holder_count; i++) {
        uint32_t holder = c.holders[i].machine;
        pair_try(&c, holder, base.token_machine, &best_us, out);
        if (base.token_machine == SCHED_NO_MACHINE)
            continue;
        pair_try(&c, holder, holder, &best_us, out);
        pair_try(&c, base.prompt_machine, holder, &best_us, out);
        for (uint32_t j = 0; j < c.holder_count; j++)
            if (j != i)
                pair_try(&c, holder, c.holders[j].machine, &best_us, out);
    }
    pull_try(&c, base.token_machine, &best_us, out);
    if (s->request->held > 0 && base.token_machine != SCHED_NO_MACHINE)
        pull_try(&c, s->request->held - 1, &best_us, out);
}
