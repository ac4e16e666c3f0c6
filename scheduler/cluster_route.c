/* sched_cluster, the choice: which prompt machine and which token machine a request gets. Sets of
 * machines are 64-bit masks, so a choice is one pass over the prompt machines and one over the
 * token machines. */
#include "scheduler/cluster_state.h"

#include <assert.h>

static_assert(LIMIT_MACHINES <= 64, "sets of machines are 64-bit masks");

static bool serves(const struct cluster_machine *machine, enum sched_pool phase)
{
    return machine->pool == phase || machine->pool == SCHED_POOL_MIXED;
}

static uint64_t pending(const struct cluster_machine *machine, enum sched_pool phase)
{
    return phase == SCHED_POOL_PROMPT ? machine->prompt_tokens_pending
                                      : machine->token_tokens_pending;
}

/* Those of `machines` that serve `phase`, hold `tokens`, and have less than `bound` pending and
 * less than the multiple of their own memory; UINT64_MAX: however much they have. */
static uint64_t able(const struct sched_cluster *sc, uint64_t machines, enum sched_pool phase,
                     uint64_t tokens, uint64_t bound)
{
    uint64_t mask = 0;
    for (; machines != 0; machines &= machines - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(machines);
        const struct cluster_machine *machine = &sc->machines[i];
        uint64_t most = machine->kv_tokens * sc->options.machine_kv_multiple;
        if (bound == UINT64_MAX || sc->options.machine_kv_multiple == 0 || most > bound)
            most = bound;
        if (serves(machine, phase) && machine->kv_tokens >= tokens &&
            pending(machine, phase) < most)
            mask |= 1ull << i;
    }
    return mask;
}

/* Those that machine i can push KV to. A mixed machine has what it computed itself. */
static uint64_t reach(const struct sched_cluster *sc, uint32_t i)
{
    uint64_t self = sc->machines[i].pool == SCHED_POOL_MIXED ? 1ull << i : 0;
    return sc->machines[i].links | self;
}

/* True when the machine comes before mixed ones: it is of the phase's own pool, and its queue is
 * not over the threshold from which on a prompt may go to the mixed pool. */
static bool preferred(const struct sched_cluster *sc, uint32_t i, enum sched_pool phase)
{
    uint64_t threshold = sc->options.prompt_queue_threshold_tokens;
    return sc->machines[i].pool == phase && (phase != SCHED_POOL_PROMPT || threshold == 0 ||
                                             sc->machines[i].prompt_tokens_pending <= threshold);
}

/* The shortest queue: machines of the phase's own pool before mixed ones, then the fewest pending
 * tokens, then `self` (where the KV is already), then the lowest index. `machines` is not empty. */
static uint32_t shortest(const struct sched_cluster *sc, uint64_t machines, enum sched_pool phase,
                         uint32_t self)
{
    uint32_t best = SCHED_NO_MACHINE;
    for (; machines != 0; machines &= machines - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(machines);
        if (best == SCHED_NO_MACHINE) {
            best = i;
            continue;
        }
        bool first = preferred(sc, i, phase);
        bool best_first = preferred(sc, best, phase);
        uint64_t tokens = pending(&sc->machines[i], phase);
        uint64_t best_tokens = pending(&sc->machines[best], phase);
        bool shorter = tokens != best_tokens ? tokens < best_tokens : i == self;
        if (first != best_first ? first : shorter)
            best = i;
    }
    return best;
}

/* Those of `prompts` that reach one of `tokens` at least. */
static uint64_t with_partner(const struct sched_cluster *sc, uint64_t prompts, uint64_t tokens)
{
    uint64_t mask = 0;
    for (uint64_t left = prompts; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(left);
        if (reach(sc, i) & tokens)
            mask |= 1ull << i;
    }
    return mask;
}

/* Fills in the candidates of both phases; those of the prompt phase have a partner. */
static void candidates(const struct sched_cluster *sc, const struct cluster_request *request,
                       uint64_t bound, uint64_t *prompts_out, uint64_t *tokens_out)
{
    uint64_t total = (uint64_t)request->prompt_tokens + request->output_tokens;
    uint64_t open = sc->up & ~sc->draining;
    uint64_t prompts = able(sc, open, SCHED_POOL_PROMPT, request->prompt_tokens, bound);
    uint64_t tokens = 0;
    if (request->output_tokens > 0) {
        tokens = able(sc, open, SCHED_POOL_TOKEN, total, bound);
        prompts = with_partner(sc, prompts, tokens);
    }
    *prompts_out = prompts;
    *tokens_out = tokens;
}

enum route_result sched_route_find(const struct sched_cluster *sc,
                                   const struct cluster_request *request, uint32_t *prompt_out,
                                   uint32_t *token_out)
{
    uint64_t most = sc->options.machine_tokens_max;
    uint64_t prompts;
    uint64_t tokens;
    candidates(sc, request, most == 0 ? UINT64_MAX - 1 : most, &prompts, &tokens);
    if (prompts == 0) {
        candidates(sc, request, UINT64_MAX, &prompts, &tokens);
        return prompts == 0 ? ROUTE_STRANDED : ROUTE_BUSY;
    }
    uint32_t prompt = shortest(sc, prompts, SCHED_POOL_PROMPT, SCHED_NO_MACHINE);
    *prompt_out = prompt;
    *token_out = SCHED_NO_MACHINE;
    if (request->output_tokens > 0)
        *token_out = shortest(sc, tokens & reach(sc, prompt), SCHED_POOL_TOKEN, prompt);
    return ROUTE_FOUND;
}

void sched_route_sizes(struct sched_cluster *sc)
{
    bool prompt_known = false;
    bool token_known = false;
    uint64_t prompt_most = 0;
    uint64_t token_most = 0;
    for (uint64_t left = sc->known; left != 0; left &= left - 1) {
        const struct cluster_machine *machine = &sc->machines[__builtin_ctzll(left)];
        if (serves(machine, SCHED_POOL_PROMPT)) {
            prompt_known = true;
            prompt_most = machine->kv_tokens > prompt_most ? machine->kv_tokens : prompt_most;
        }
        if (serves(machine, SCHED_POOL_TOKEN)) {
            token_known = true;
            token_most = machine->kv_tokens > token_most ? machine->kv_tokens : token_most;
        }
    }
    sc->prompt_tokens_most = prompt_known ? prompt_most : UINT64_MAX;
    sc->token_tokens_most = token_known ? token_most : UINT64_MAX;
}

bool sched_route_possible(const struct sched_cluster *sc, const struct cluster_request *request)
{
    uint64_t total = (uint64_t)request->prompt_tokens + request->output_tokens;
    return request->prompt_tokens <= sc->prompt_tokens_most &&
           (request->output_tokens == 0 || total <= sc->token_tokens_most);
}

bool sched_cluster_ready(const struct sched_cluster *sc)
{
    uint64_t open = sc->up & ~sc->draining;
    uint64_t prompts = able(sc, open, SCHED_POOL_PROMPT, 0, UINT64_MAX);
    uint64_t tokens = able(sc, open, SCHED_POOL_TOKEN, 0, UINT64_MAX);
    return with_partner(sc, prompts, tokens) != 0;
}
