/* gateway_headroom: searches by which factor the traffic of the last minutes can grow until the SLO
 * breaks (scheduler/headroom.h), for /metrics and operators. A search is a replay per iteration of
 * the event loop, so that it delays no token by more than one replay. */
#include "server/gateway/internal.h"

#include "common/cores.h"
#include "scheduler/options.h"

#define WINDOW_US 300000000 /* Traffic of this time is replayed. */
#define PAUSE_US  10000000  /* From the end of a search to the beginning of the next. */
#define STEP_US   20000     /* From a replay to the next. */

/* Machines that take turns on the same cores are added up first. */
static void machine_merge(struct headroom_machine *into, const struct headroom_machine *machine)
{
    into->computes_prompts = into->computes_answers = true;
    into->kv_tokens += machine->kv_tokens;
    if (machine->rates.prompts.weight > into->rates.prompts.weight)
        into->rates.prompts = machine->rates.prompts;
    if (machine->rates.decodes.weight > into->rates.decodes.weight)
        into->rates.decodes = machine->rates.decodes;
}

/* Machines that take turns count as the number of machines that can compute at the same time; each
 * of these computes both phases. */
static void shared_split(struct headroom *search, uint32_t shared, uint32_t threads, uint32_t count)
{
    uint32_t at_once = cores_usable() * count / threads;
    struct headroom_machine *machine = &search->machines[shared];
    if (at_once < 2)
        return;
    machine->kv_tokens /= at_once;
    for (uint32_t i = 1; i < at_once && search->machine_count < HEADROOM_MACHINES; i++)
        search->machines[search->machine_count++] = *machine;
}

static void machines_fill(struct gateway *g, struct headroom *search)
{
    uint32_t shared = UINT32_MAX; /* The machine for those that share cores. */
    uint32_t shared_count = 0, threads = 0;
    search->machine_count = 0;
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m)) {
        if (m->version != g->current || m->connection.state != CONNECTION_UP ||
            fleet_machine_draining(m))
            continue;
        const struct headroom_machine machine = {.computes_prompts = m->home != POOL_TOKEN,
                                                 .computes_answers = m->home != POOL_PROMPT,
                                                 .rates = m->rates,
                                                 .kv_tokens = m->kv_tokens};
        bool shares = gateway_machine_cores(g, m) > 0;
        shared_count += shares;
        threads += shares ? gateway_machine_threads(m) : 0;
        if (shares && shared != UINT32_MAX) {
            machine_merge(&search->machines[shared], &machine);
            continue;
        }
        if (shares)
            shared = search->machine_count;
        search->machines[search->machine_count++] = machine;
    }
    if (shared != UINT32_MAX)
        shared_split(search, shared, threads, shared_count);
}

/* Returns false if there is nothing to replay. */
static bool search_begin(struct gateway *g, int64_t now_us)
{
    struct headroom *search = &g->headroom.search;
    const struct config *config = g->options.config;
    search->options =
        (struct headroom_options){.targets = sched_pace_targets_make(config),
                                  .fill_tokens = sched_prompt_fill_tokens(config),
                                  .batch_tokens = config->scheduler.prompt_batch_tokens,
                                  .sequences_max = config->scheduler.batch_sequences_max,
                                  .gateways = g->key_limits_share.gateways};
    search->until_us = now_us;
    search->answer_count = history_answers(g->history, now_us - WINDOW_US, search->answers);
    machines_fill(g, search);
    return headroom_begin(search);
}

/* A gateway without traffic needs no timer: the messages of the next requests cause turns. */
static int64_t due_of(const struct gateway_headroom *headroom)
{
    return headroom->searching || headroom->has_result ? headroom->due_us : INT64_MAX;
}

int64_t gateway_headroom_turn(struct gateway *g, int64_t now_us)
{
    struct gateway_headroom *headroom = &g->headroom;
    if (now_us < headroom->due_us)
        return due_of(headroom);
    bool ended = false;
    if (headroom->searching) {
        ended = headroom_step(&headroom->search);
        headroom->has_result |= ended;
    } else {
        headroom->searching = search_begin(g, now_us);
        headroom->has_result &= headroom->searching;
        ended = !headroom->searching;
    }
    headroom->searching &= !ended;
    if (ended && headroom->has_result)
        headroom->result = headroom->search.result;
    if (ended)
        metrics_headroom_set(g->options.metrics,
                             headroom->has_result ? headroom->result.factor : NULL);
    headroom->due_us = gateway_now(g) + (ended ? PAUSE_US : STEP_US);
    return due_of(headroom);
}

void gateway_headroom_write(const struct gateway *g, struct text *out)
{
    const struct headroom_result *result = &g->headroom.result;
    if (!g->headroom.has_result) {
        text_string_add(out, "null");
        return;
    }
    text_format_add(out, "{\"all\":%.3g,\"prompt\":%.3g,\"token\":%.3g,\"at_least\":%s}",
                    result->factor[HEADROOM_ALL], result->factor[HEADROOM_PROMPTS],
                    result->factor[HEADROOM_TOKENS], result->at_least ? "true" : "false");
}
