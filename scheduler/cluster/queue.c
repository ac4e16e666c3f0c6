/* sched_cluster, requests. A request is unknown, waiting (in the order of queue.h), routed, or lost
 * and not yet reported. cluster_actions_append derives the actions from the state. */
#include "scheduler/cluster/prefix.h"
#include "scheduler/cluster/state.h"

#include <assert.h>
#include <stddef.h>

#define RETRY_MS_MIN     1000
#define RETRY_MS_MAX     60000
#define RETRY_MS_UNKNOWN 5000 /* Used until the first request ends, because no rate is known. */
/* A route takes up to three actions: its own, and the moves of up to two machines before it. */
#define ACTIONS_OF_ROUTE 3
/* Fewest tokens with which an answer is scheduled: short answers must not fill a machine's request
 * table. */
#define ANSWER_MEMORY_MIN 64

/* ---- lists ---- */

void cluster_list_append(struct sched_cluster *sc, struct request_list *list, uint32_t id)
{
    sc->requests[id].previous = list->last;
    sc->requests[id].next = REQUEST_NONE;
    if (list->last == REQUEST_NONE)
        list->first = id;
    else
        sc->requests[list->last].next = id;
    list->last = id;
}

void cluster_list_remove(struct sched_cluster *sc, struct request_list *list, uint32_t id)
{
    const struct cluster_request *request = &sc->requests[id];
    if (request->previous == REQUEST_NONE)
        list->first = request->next;
    else
        sc->requests[request->previous].next = request->next;
    if (request->next == REQUEST_NONE)
        list->last = request->previous;
    else
        sc->requests[request->next].previous = request->previous;
}

/* ---- lost requests ---- */

static void lost_append(struct sched_cluster *sc, uint32_t id)
{
    sc->requests[id].place = PLACE_LOST;
    cluster_list_append(sc, &sc->lost, id);
}

static void lost_remove(struct sched_cluster *sc, uint32_t id)
{
    sc->requests[id].place = PLACE_NONE;
    cluster_list_remove(sc, &sc->lost, id);
}

/* ---- waiting requests ---- */

static uint32_t answer_memory(const struct sched_cluster *sc, uint32_t most, uint32_t expected)
{
    uint32_t tokens = expected > ANSWER_MEMORY_MIN ? expected : ANSWER_MEMORY_MIN;
    return !sc->options.schedule_mean_answer || tokens > most ? most : tokens;
}

/* Returns false if no machine can ever hold the request. A request of one token has no token
 * machine: its prompt runs in the share of memory that a mixed machine keeps for prompts. If every
 * machine's share is too small for the prompt, the request becomes one that decodes, which may use
 * the whole memory of a mixed machine. */
static bool request_possible(const struct sched_cluster *sc, struct cluster_request *request)
{
    if (cluster_route_possible(sc, request))
        return true;
    if (request->output_tokens > 0)
        return false;
    request->output_tokens = request->answer_memory = 1;
    if (cluster_route_possible(sc, request))
        return true;
    request->output_tokens = request->answer_memory = 0;
    return false;
}

static void waiting_add(struct sched_cluster *sc, uint32_t id)
{
    struct cluster_request *request = &sc->requests[id];
    uint32_t answer = sched_accounts_answer_expected(sc->accounts, request->key_index,
                                                     request->priority, request->output_tokens);
    /* The remaining answer of a resumed request is charged when it has ended. */
    request->answer_charged = request->resumed ? 0 : answer;
    request->answer_memory = answer_memory(sc, request->output_tokens, answer);
    request->place = PLACE_WAITING;
    request->stranded_us = -1;
    sc->waiting_tokens += request->prompt_tokens;
    cluster_admission_wait_begin(sc, id);
    sched_queue_add(sc->accounts, &sc->waiting, id,
                    &(struct sched_ticket){
                        .key = request->key_index,
                        .weight = request->weight,
                        .priority = request->priority,
                        .cost = (uint64_t)request->prompt_tokens + request->answer_charged,
                        .resumed = request->resumed,
                    },
                    sc->now_us);
}

/* turn: the request is routed, so its key pays for it. */
static void waiting_remove(struct sched_cluster *sc, uint32_t id, bool turn)
{
    sc->waiting_tokens -= sc->requests[id].prompt_tokens;
    cluster_admission_wait_end(sc, id);
    sc->requests[id].place = PLACE_NONE;
    if (turn)
        sched_queue_take(sc->accounts, &sc->waiting, id);
    else
        sched_queue_drop(sc->accounts, &sc->waiting, id);
}

/* ---- actions ---- */

static struct sched_action *action_add(struct sched_actions *out, enum sched_action_kind kind,
                                       uint32_t id)
{
    assert(out->count < SCHED_ACTIONS_MAX);
    struct sched_action *action = &out->items[out->count++];
    *action = (struct sched_action){.kind = kind,
                                    .request = id,
                                    .machine = SCHED_NO_MACHINE,
                                    .token_machine = SCHED_NO_MACHINE};
    return action;
}

static void move_report(struct sched_cluster *sc, uint32_t i, struct sched_actions *out)
{
    struct cluster_machine *machine = &sc->machines[i];
    if (machine->move_reported)
        return;
    machine->move_reported = true;
    sc->unreported_moves--;
    if (machine->reported_pool == machine->pool && machine->reported_home == machine->home)
        return; /* The machine moved and returned: nothing to report. */
    machine->reported_pool = machine->pool;
    machine->reported_home = machine->home;
    struct sched_action *action = action_add(out, SCHED_MOVED, REQUEST_NONE);
    action->machine = i;
    action->pool = machine->pool;
    action->home = machine->home;
}

static void refuse(uint32_t id, enum sched_refusal why, uint32_t retry_after_ms,
                   struct sched_actions *out)
{
    struct sched_action *action = action_add(out, SCHED_REFUSE, id);
    action->refusal = why;
    action->retry_after_ms = retry_after_ms;
}

static void waiting_refuse(struct sched_cluster *sc, uint32_t id, enum sched_refusal why,
                           uint32_t retry_after_ms, struct sched_actions *out)
{
    waiting_remove(sc, id, false);
    refuse(id, why, retry_after_ms, out);
}

/* Records that the prompt machine will hold all prefixes of the request. */
static void prefixes_routed(struct sched_cluster *sc, uint32_t id)
{
    const struct cluster_request *request = &sc->requests[id];
    if (sc->prefixes == NULL)
        return;
    const uint64_t *hashes = sc->prefixes_of + (size_t)id * SCHED_PREFIX_MAX;
    for (uint32_t i = 0; i < request->prefix_count; i++)
        cluster_prefixes_add(sc->prefixes, hashes[i], request->prompt_machine);
    cluster_stored_add(sc, request->prompt_machine, hashes, request->prefix_count);
}

/* Records the transfers of the request's KV. */
static void transfers_begin(struct sched_cluster *sc, const struct cluster_request *request,
                            const struct route *route)
{
    if (route->pull_source_plus_1 > 0)
        cluster_transfer_begin(sc, route->pull_source_plus_1 - 1, route->prompt_machine,
                               route->prefix_tokens);
    if (route->token_machine != SCHED_NO_MACHINE && route->token_machine != route->prompt_machine)
        cluster_transfer_begin(sc, route->prompt_machine, route->token_machine,
                               request->prompt_tokens - route->token_held);
}

static void waiting_route(struct sched_cluster *sc, uint32_t id, const struct route *route,
                          struct sched_actions *out)
{
    struct cluster_request *request = &sc->requests[id];
    waiting_remove(sc, id, true);
    request->place = PLACE_ROUTED;
    request->prompt_machine = route->prompt_machine;
    request->token_machine = route->token_machine;
    request->saved_tokens = sc->options.prefix_saves || request->holder_plus_1 > 0
                                ? route->prefix_tokens + route->load_tokens
                                : 0;
    if (route->prompt_moves)
        cluster_pool_move(sc, route->prompt_machine, POOL_MIXED);
    if (route->token_moves)
        cluster_pool_move(sc, route->token_machine, POOL_MIXED);
    if (route->lent_plus_1 > 0) {
        cluster_pool_move(sc, route->lent_plus_1 - 1, POOL_MIXED);
        move_report(sc, route->lent_plus_1 - 1, out);
    }
    cluster_load_route(sc, request);
    transfers_begin(sc, request, route);
    prefixes_routed(sc, id);
    move_report(sc, route->prompt_machine, out);
    if (route->token_machine != SCHED_NO_MACHINE)
        move_report(sc, route->token_machine, out);
    struct sched_action *action = action_add(out, SCHED_ROUTE, id);
    action->machine = route->prompt_machine;
    action->token_machine = route->token_machine;
    action->prefix_tokens = route->prefix_tokens;
    action->load_tokens = route->load_tokens;
    action->pull_source_plus_1 = route->pull_source_plus_1;
    action->decision = route->decision;
}

/* ---- the actions that follow from the state ---- */

/* True if the request needs at least as much as `other` in both phases: if `other` is stranded, so
 * is the request. (A request without a token phase may be stranded where another one is not,
 * because a mixed machine takes only smaller prompts without an answer.) */
static bool needs_as_much(const struct cluster_request *request,
                          const struct cluster_request *other)
{
    return (request->output_tokens > 0) == (other->output_tokens > 0) &&
           request->prompt_tokens >= other->prompt_tokens &&
           request_tokens(request) >= request_tokens(other);
}

/* Handles a request that no machine which is up could take. Returns true when it has waited for
 * wait_us_max. */
static bool stranded_expires(struct sched_cluster *sc, struct cluster_request *request)
{
    if (request->stranded_us < 0) {
        cluster_admission_wait_end(sc, (uint32_t)(request - sc->requests));
        request->stranded_us = sc->now_us;
    }
    if (sc->options.wait_us_max == 0)
        return false;
    int64_t due_us = request->stranded_us + sc->options.wait_us_max;
    if (sc->now_us >= due_us)
        return true;
    sc->stranded_due_us = due_us < sc->stranded_due_us ? due_us : sc->stranded_due_us;
    return false;
}

/* Reports moves and lost requests. Returns false when *out has `most` actions. */
static bool changes_report(struct sched_cluster *sc, struct sched_actions *out, uint32_t most)
{
    for (uint32_t i = 0; i < sc->options.machine_count && sc->unreported_moves > 0; i++) {
        if (out->count == most)
            return false;
        move_report(sc, i, out);
    }
    while (sc->lost.first != REQUEST_NONE) {
        if (out->count == most)
            return false;
        uint32_t id = sc->lost.first;
        lost_remove(sc, id);
        action_add(out, SCHED_LOST, id);
    }
    return true;
}

/* Refuses requests that have waited for queue_us_max, and those that probably would. Returns false
 * when *out has `most` actions. */
static bool overdue_refuse(struct sched_cluster *sc, struct sched_actions *out, uint32_t most)
{
    bool any = false;
    for (;;) {
        uint32_t id = cluster_admission_overdue(sc);
        if (id == REQUEST_NONE && any && cluster_admission_late(sc, false))
            id = sched_queue_last_new(sc->accounts, &sc->waiting);
        if (id == REQUEST_NONE)
            return true;
        if (out->count == most)
            return false;
        waiting_refuse(sc, id, SCHED_REFUSED_WAIT, cluster_admission_retry_ms(sc, id), out);
        any = true;
    }
}

/* Appends the actions that follow from the present state, up to `count_max` in all. A request that
 * waits for capacity holds back the requests behind it; a stranded request, which no machine that
 * is up could take, does not. */
void cluster_actions_append(struct sched_cluster *sc, struct sched_actions *out, uint32_t count_max)
{
    /* avoids searching for each of many stranded requests */
    const struct cluster_request *stranded = NULL;
    sc->stranded_due_us = INT64_MAX;
    out->more = !changes_report(sc, out, count_max) || !overdue_refuse(sc, out, count_max);
    if (out->more)
        return;
    sched_queue_age(sc->accounts, &sc->waiting, sc->options.ageing_us, sc->now_us);
    for (uint32_t id = sc->waiting.first; id != SCHED_QUEUE_NONE;) {
        struct cluster_request *request = &sc->requests[id];
        uint32_t next = sched_queue_next(sc->accounts, id);
        struct route route;
        if (out->count + ACTIONS_OF_ROUTE > count_max) {
            out->more = true;
            return;
        }
        enum route_result result = ROUTE_STRANDED;
        if (!request_possible(sc, request)) {
            waiting_refuse(sc, id, SCHED_REFUSED_LARGE, 0, out);
            id = next;
            continue;
        }
        if (stranded == NULL || !needs_as_much(request, stranded))
            result = cluster_route_find(sc, request, &route);
        if (result == ROUTE_BUSY)
            return;
        if (result == ROUTE_FOUND) {
            waiting_route(sc, id, &route, out);
        } else if (stranded_expires(sc, request)) {
            waiting_remove(sc, id, false);
            action_add(out, SCHED_EXPIRED, id);
        } else if (stranded == NULL || needs_as_much(stranded, request)) {
            stranded = request;
        }
        id = next;
    }
}

/* Estimated time until the present queue is served, at the rate at which requests ended lately. The
 * time since the latest end counts as well, so the estimate grows while the cluster stands still.
 */
static uint32_t retry_after_ms(const struct sched_cluster *sc)
{
    uint64_t kept = sc->ended_count < ENDS_KEPT ? sc->ended_count : ENDS_KEPT;
    if (kept == 0)
        return RETRY_MS_UNKNOWN;
    int64_t span_us = sc->now_us - sc->ends_us[(sc->ended_count - kept) % ENDS_KEPT];
    if (span_us < 0)
        span_us = 0;
    uint64_t wait_ms = (uint64_t)span_us / 1000 * sc->waiting.count / kept;
    if (wait_ms < RETRY_MS_MIN)
        return RETRY_MS_MIN;
    return wait_ms > RETRY_MS_MAX ? RETRY_MS_MAX : (uint32_t)wait_ms;
}

/* Prompt tokens of the waiting requests that are served before this one. Without keys and
 * priorities that is all of them. */
static uint64_t waiting_tokens_before(const struct sched_cluster *sc, uint32_t id)
{
    uint64_t tokens = sc->waiting_tokens;
    for (; id != SCHED_QUEUE_NONE; id = sched_queue_next(sc->accounts, id))
        tokens -= sc->requests[id].prompt_tokens;
    return tokens;
}

/* Refuses the request and returns true if its first token would be too late. */
static bool refuse_late(struct sched_cluster *sc, uint32_t id, struct sched_actions *out)
{
    bool never = false;
    if (sc->options.ttft_us_max == 0 || sc->requests[id].resumed)
        return false;
    int64_t late_us =
        cluster_route_late_us(sc, &sc->requests[id], waiting_tokens_before(sc, id), &never);
    if (late_us <= 0)
        return false;
    uint64_t late_ms = (uint64_t)late_us / 1000 + 1;
    if (never)
        waiting_refuse(sc, id, SCHED_REFUSED_TOO_LONG, 0, out);
    else
        waiting_refuse(sc, id, SCHED_REFUSED_LATE,
                       late_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)late_ms, out);
    return true;
}

/* ---- arrivals and ends ---- */

static struct cluster_request *request_at(struct sched_cluster *sc, uint32_t id)
{
    assert(id < sc->options.request_count);
    return &sc->requests[id];
}

static void prefixes_arrived(struct sched_cluster *sc, uint32_t id,
                             const struct sched_prefix *prefix)
{
    struct cluster_request *request = &sc->requests[id];
    request->prefix_count = 0;
    if (sc->prefixes == NULL)
        return;
    request->prefix_count = prefix->count < SCHED_PREFIX_MAX ? prefix->count : SCHED_PREFIX_MAX;
    for (uint32_t i = 0; i < request->prefix_count; i++)
        sc->prefixes_of[(size_t)id * SCHED_PREFIX_MAX + i] = prefix->hashes[i];
}

static int32_t priority_of(const struct sched_event *event)
{
    if (event->priority < -LIMIT_PRIORITY)
        return -LIMIT_PRIORITY;
    return event->priority > LIMIT_PRIORITY ? LIMIT_PRIORITY : event->priority;
}

void cluster_request_arrived(struct sched_cluster *sc, const struct sched_event *event,
                             struct sched_actions *out)
{
    uint32_t id = event->request;
    struct cluster_request *request = request_at(sc, id);
    assert(request->place == PLACE_NONE);
    request->resumed = event->resumed;
    request->prompt_tokens = event->prompt_tokens;
    request->output_tokens = event->output_tokens;
    request->saved_tokens = 0;
    request->key_index = event->key_index;
    request->weight = event->weight;
    request->priority = priority_of(event);
    request->holder_plus_1 = event->holder_plus_1;
    request->held_tokens = event->held_tokens;
    request->identity = event->identity;
    request->has_kept_place = cluster_promise_take(sc, event->identity);
    prefixes_arrived(sc, id, &event->prefix);
    cluster_demand_arrived(sc, request);
    waiting_add(sc, id);
    if (request_possible(sc, request) && refuse_late(sc, id, out)) {
        out->more = sc->unreported_moves > 0;
        return;
    }
    cluster_actions_append(sc, out, SCHED_ACTIONS_MAX - 1); /* Keeps room for the refusal below. */
    if (request->place != PLACE_WAITING || request->resumed)
        return;
    uint32_t last = sched_queue_last_new(sc->accounts, &sc->waiting);
    if (sc->waiting.count > sc->options.queue_requests_max)
        waiting_refuse(sc, last, SCHED_REFUSED_FULL, retry_after_ms(sc), out);
    else if (cluster_admission_late(sc, !request->has_kept_place))
        waiting_refuse(sc, last, SCHED_REFUSED_WAIT, cluster_admission_retry_ms(sc, last), out);
}

static void ended(struct sched_cluster *sc, const struct sched_event *event)
{
    struct cluster_request *request = request_at(sc, event->request);
    switch ((enum request_place)request->place) {
    case PLACE_NONE:
        return; /* The request was just refused or lost: the two messages crossed. */
    case PLACE_WAITING:
        waiting_remove(sc, event->request, false);
        break;
    case PLACE_LOST:
        lost_remove(sc, event->request);
        break;
    case PLACE_ROUTED:
        cluster_load_end(sc, request);
        sc->ends_us[sc->ended_count++ % ENDS_KEPT] = event->now_us;
        if (request->token_machine != SCHED_NO_MACHINE)
            cluster_demand_ended(sc, event->output_tokens);
        if (request->output_tokens > 0)
            sched_accounts_answer_ended(sc->accounts, request->key_index, request->weight,
                                        request->priority, request->answer_charged,
                                        event->output_tokens);
        break;
    }
    request->place = PLACE_NONE;
}

void cluster_request_event(struct sched_cluster *sc, const struct sched_event *event)
{
    struct cluster_request *request = request_at(sc, event->request);
    if (event->kind == SCHED_ENDED)
        ended(sc, event);
    else if (request->place != PLACE_ROUTED)
        return;
    else if (event->kind == SCHED_COMPUTED)
        cluster_load_computed(sc, request);
    else
        cluster_load_prefilled(sc, request);
}

bool sched_cluster_can_hand_over(const struct sched_cluster *sc, uint32_t id,
                                 uint32_t prompt_tokens, uint32_t output_tokens)
{
    const struct cluster_request *request = &sc->requests[id];
    uint32_t from = request->token_machine;
    struct route route;
    if (request->place != PLACE_ROUTED || from == SCHED_NO_MACHINE || !request->prefilled ||
        !sc->machines[from].draining || output_tokens == 0)
        return false;
    const struct cluster_request next = {.prompt_tokens = prompt_tokens,
                                         .output_tokens = output_tokens,
                                         .answer_memory = output_tokens,
                                         .holder_plus_1 = from + 1};
    if (cluster_route_find(sc, &next, &route) != ROUTE_FOUND || route.prompt_machine != from)
        return false;
    /* If it would have to wait for memory on the other machine, it stays where it is. */
    const struct cluster_machine *to = &sc->machines[route.token_machine];
    return sc->ranks[MEASURE_MEMORY][route.token_machine].tokens +
               request_scheduled_tokens(&next, to, false) <=
           to->kv.capacity_tokens;
}

/* Returns true if `a` should keep the copy rather than `b` (SCHED_NO_MACHINE = no machine). */
static bool keeps_copy_better(const struct sched_cluster *sc, const struct cluster_request *request,
                              uint32_t a, uint32_t b)
{
    if (b == SCHED_NO_MACHINE)
        return true;
    const bool a_near = cluster_same_host(sc, request->token_machine, a);
    const bool b_near = cluster_same_host(sc, request->token_machine, b);
    if (a_near != b_near)
        return b_near;
    if (a == request->prompt_machine || b == request->prompt_machine)
        return a == request->prompt_machine;
    return sc->ranks[MEASURE_MEMORY][a].tokens < sc->ranks[MEASURE_MEMORY][b].tokens;
}

uint32_t sched_cluster_copy_target(const struct sched_cluster *sc, uint32_t id)
{
    const struct cluster_request *request = &sc->requests[id];
    const uint32_t from = request->token_machine;
    uint32_t best = SCHED_NO_MACHINE;
    if (request->place != PLACE_ROUTED || from == SCHED_NO_MACHINE)
        return SCHED_NO_MACHINE;
    for (uint32_t i = 0; i < sc->options.machine_count; i++) {
        const struct cluster_machine *machine = &sc->machines[i];
        uint64_t scheduled = sc->ranks[MEASURE_MEMORY][i].tokens;
        if (i == from || !machine_set_has(&sc->routable, i) ||
            !machine_set_has(&sc->machines[from].links, i) ||
            scheduled + machine_kv_tokens(machine, request_tokens(request), false) >
                machine->kv.capacity_tokens)
            continue;
        if (keeps_copy_better(sc, request, i, best))
            best = i;
    }
    return best;
}

static void lose(struct sched_cluster *sc, uint32_t id)
{
    cluster_load_end(sc, &sc->requests[id]);
    lost_append(sc, id);
}

void cluster_requests_lose_large(struct sched_cluster *sc, uint32_t machine)
{
    for (uint32_t i = 0; i < sc->options.request_count && sc->machines[machine].large_requests > 0;
         i++) {
        const struct cluster_request *request = &sc->requests[i];
        bool large = (request->too_large_if_mixed[0] && request->prompt_machine == machine) ||
                     (request->too_large_if_mixed[1] && request->token_machine == machine);
        if (request->place == PLACE_ROUTED && !request->prefilled && large)
            lose(sc, i);
    }
}

void cluster_requests_lose(struct sched_cluster *sc, uint32_t id)
{
    const struct cluster_machine *machine = &sc->machines[id];
    for (uint32_t i = 0; i < sc->options.request_count; i++) {
        const struct cluster_request *request = &sc->requests[i];
        if (machine->prompts == 0 && machine->decodes == 0)
            return;
        if (request->place != PLACE_ROUTED ||
            (request->token_machine != id && (request->prefilled || request->prompt_machine != id)))
            continue;
        lose(sc, i);
    }
}

void cluster_request_overdue(struct sched_cluster *sc, const struct sched_event *event,
                             struct sched_actions *out)
{
    if (request_at(sc, event->request)->place != PLACE_ROUTED)
        return;
    refuse(event->request, SCHED_REFUSED_WAIT, cluster_admission_retry_ms(sc, event->request), out);
    ended(sc, event);
}
