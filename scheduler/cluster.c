/* sched_cluster, events and queues: every request is in one place: waiting (in the order of
 * arrival), routed, or lost and not told yet. An event changes the state; then `pump` says what
 * follows from it: lost requests are told, waiting ones routed. So an action never depends on which
 * event made it possible. */
#include "scheduler/cluster.h"

#include "scheduler/cluster_state.h"

#include <assert.h>
#include <stdlib.h>

#define RETRY_MS_MIN     1000
#define RETRY_MS_MAX     60000
#define RETRY_MS_UNKNOWN 5000 /* nothing has ended yet, so there is no rate */

const char *sched_pool_name(enum sched_pool pool)
{
    static const char *const names[SCHED_POOL_COUNT] = {"prompt", "token", "mixed"};
    assert(pool < SCHED_POOL_COUNT);
    return names[pool];
}

static void queue_append(struct sched_cluster *sc, struct request_queue *queue, uint32_t id)
{
    sc->requests[id].next = REQUEST_NONE;
    sc->requests[id].previous = queue->last;
    if (queue->last == REQUEST_NONE)
        queue->first = id;
    else
        sc->requests[queue->last].next = id;
    queue->last = id;
    queue->count++;
}

static void queue_remove(struct sched_cluster *sc, struct request_queue *queue, uint32_t id)
{
    const struct cluster_request *request = &sc->requests[id];
    if (request->previous == REQUEST_NONE)
        queue->first = request->next;
    else
        sc->requests[request->previous].next = request->next;
    if (request->next == REQUEST_NONE)
        queue->last = request->previous;
    else
        sc->requests[request->next].previous = request->previous;
    queue->count--;
}

enum status sched_cluster_open(const struct sched_cluster_options *options,
                               struct sched_cluster **out)
{
    if (options->request_count == 0 || options->request_count > LIMIT_CLUSTER_REQUESTS)
        return ST_INVALID;
    struct sched_cluster *sc =
        calloc(1, sizeof(*sc) + options->request_count * sizeof(sc->requests[0]));
    if (sc == NULL)
        return ST_NO_MEMORY;
    sc->options = *options;
    sc->waiting = (struct request_queue){.first = REQUEST_NONE, .last = REQUEST_NONE};
    sc->lost = sc->waiting;
    sched_route_sizes(sc);
    *out = sc;
    return ST_OK;
}

void sched_cluster_close(struct sched_cluster *sc)
{
    free(sc);
}

static struct cluster_request *request_at(struct sched_cluster *sc, uint32_t id)
{
    assert(id < sc->options.request_count);
    return &sc->requests[id];
}

static struct cluster_machine *machine_at(struct sched_cluster *sc, uint32_t id)
{
    assert(id < LIMIT_MACHINES);
    return &sc->machines[id];
}

static uint64_t request_tokens(const struct cluster_request *request)
{
    return (uint64_t)request->prompt_tokens + request->output_tokens;
}

static void prompt_load_drop(struct sched_cluster *sc, struct cluster_request *request)
{
    if (request->prefilled)
        return;
    struct cluster_machine *machine = &sc->machines[request->prompt_machine];
    machine->prompt_tokens_pending -= request->prompt_tokens;
    machine->prompts--;
    request->prefilled = true;
}

static void token_load_drop(struct sched_cluster *sc, const struct cluster_request *request)
{
    if (request->token_machine == SCHED_NO_MACHINE)
        return;
    struct cluster_machine *machine = &sc->machines[request->token_machine];
    machine->token_tokens_pending -= request_tokens(request);
    machine->decodes--;
}

static struct sched_action *action_add(struct sched_actions *out, enum sched_action_kind kind,
                                       uint32_t id)
{
    assert(out->count < SCHED_ACTIONS_MAX);
    struct sched_action *action = &out->items[out->count++];
    *action = (struct sched_action){
        .kind = kind, .request = id, .machine = SCHED_NO_MACHINE, .peer = SCHED_NO_MACHINE};
    return action;
}

static void waiting_refuse(struct sched_cluster *sc, uint32_t id, uint32_t retry_after_ms,
                           struct sched_actions *out)
{
    queue_remove(sc, &sc->waiting, id);
    sc->requests[id].place = PLACE_NONE;
    action_add(out, SCHED_REFUSE, id)->retry_after_ms = retry_after_ms;
}

static void waiting_route(struct sched_cluster *sc, uint32_t id, uint32_t prompt, uint32_t token,
                          struct sched_actions *out)
{
    struct cluster_request *request = &sc->requests[id];
    queue_remove(sc, &sc->waiting, id);
    request->place = PLACE_ROUTED;
    request->prefilled = false;
    request->prompt_machine = prompt;
    request->token_machine = token;
    sc->machines[prompt].prompt_tokens_pending += request->prompt_tokens;
    sc->machines[prompt].prompts++;
    if (token != SCHED_NO_MACHINE) {
        sc->machines[token].token_tokens_pending += request_tokens(request);
        sc->machines[token].decodes++;
    }
    struct sched_action *action = action_add(out, SCHED_ROUTE, id);
    action->machine = prompt;
    action->peer = token;
}

/* Does it ask for no less than `other`, of both phases? Then it is stranded where `other` is. */
static bool asks_more(const struct cluster_request *request, const struct cluster_request *other)
{
    return request->prompt_tokens >= other->prompt_tokens &&
           (other->output_tokens == 0 ||
            (request->output_tokens > 0 && request_tokens(request) >= request_tokens(other)));
}

/* Says what follows from the state now, up to `most` actions in *out. A request for which capacity
 * is short holds back those behind it; one that no machine which is up could ever take does not. */
static void pump(struct sched_cluster *sc, struct sched_actions *out, uint32_t most)
{
    out->more = false;
    while (sc->lost.first != REQUEST_NONE) {
        if (out->count == most) {
            out->more = true;
            return;
        }
        uint32_t id = sc->lost.first;
        queue_remove(sc, &sc->lost, id);
        sc->requests[id].place = PLACE_NONE;
        action_add(out, SCHED_LOST, id);
    }
    const struct cluster_request *stranded = NULL; /* spares the search when many are */
    for (uint32_t id = sc->waiting.first; id != REQUEST_NONE;) {
        const struct cluster_request *request = &sc->requests[id];
        uint32_t next = request->next;
        uint32_t prompt;
        uint32_t token;
        bool possible = sched_route_possible(sc, request);
        enum route_result result = ROUTE_STRANDED;
        if (possible && (stranded == NULL || !asks_more(request, stranded)))
            result = sched_route_find(sc, request, &prompt, &token);
        if (result == ROUTE_BUSY)
            return;
        if (possible && result == ROUTE_STRANDED &&
            (stranded == NULL || asks_more(stranded, request)))
            stranded = request;
        if (!possible || result == ROUTE_FOUND) {
            if (out->count == most) {
                out->more = true;
                return;
            }
            if (possible)
                waiting_route(sc, id, prompt, token, out);
            else
                waiting_refuse(sc, id, 0, out);
        }
        id = next;
    }
}

/* When the queue of now would be through, at the rate at which requests ended lately. The time
 * since the last end counts as well: a cluster that stands still gives longer and longer estimates.
 */
static uint32_t retry_after_ms(const struct sched_cluster *sc, int64_t now_us)
{
    uint64_t kept = sc->ends < ENDS_KEPT ? sc->ends : ENDS_KEPT;
    if (kept == 0)
        return RETRY_MS_UNKNOWN;
    int64_t span_us = now_us - sc->ends_us[(sc->ends - kept) % ENDS_KEPT];
    if (span_us < 0)
        span_us = 0;
    uint64_t wait_ms = (uint64_t)span_us / 1000 * sc->waiting.count / kept;
    if (wait_ms < RETRY_MS_MIN)
        return RETRY_MS_MIN;
    return wait_ms > RETRY_MS_MAX ? RETRY_MS_MAX : (uint32_t)wait_ms;
}

static void on_arrived(struct sched_cluster *sc, const struct sched_event *event,
                       struct sched_actions *out)
{
    struct cluster_request *request = request_at(sc, event->request);
    assert(request->place == PLACE_NONE);
    request->place = PLACE_WAITING;
    request->prompt_tokens = event->prompt_tokens;
    request->output_tokens = event->output_tokens;
    queue_append(sc, &sc->waiting, event->request);
    pump(sc, out, SCHED_ACTIONS_MAX - 1); /* one place is left for the refusal */
    if (request->place == PLACE_WAITING && sc->waiting.count > sc->options.queue_requests_max)
        waiting_refuse(sc, event->request, retry_after_ms(sc, event->now_us), out);
}

static void on_ended(struct sched_cluster *sc, const struct sched_event *event)
{
    struct cluster_request *request = request_at(sc, event->request);
    switch ((enum place)request->place) {
    case PLACE_NONE:
        return; /* told as refused or lost just now: both sides may speak at the same time */
    case PLACE_WAITING:
        queue_remove(sc, &sc->waiting, event->request);
        break;
    case PLACE_LOST:
        queue_remove(sc, &sc->lost, event->request);
        break;
    case PLACE_ROUTED:
        prompt_load_drop(sc, request);
        token_load_drop(sc, request);
        sc->ends_us[sc->ends++ % ENDS_KEPT] = event->now_us;
        break;
    }
    request->place = PLACE_NONE;
}

static void on_machine_up(struct sched_cluster *sc, const struct sched_event *event)
{
    struct cluster_machine *machine = machine_at(sc, event->machine);
    assert(event->pool < SCHED_POOL_COUNT);
    machine->pool = event->pool;
    machine->kv_tokens = event->kv_tokens;
    sc->up |= 1ull << event->machine;
    sc->known |= 1ull << event->machine;
    sched_route_sizes(sc);
}

static void on_machine_home(struct sched_cluster *sc, const struct sched_event *event)
{
    assert(event->pool < SCHED_POOL_COUNT);
    machine_at(sc, event->machine)->pool = event->pool;
    sched_route_sizes(sc);
}

static void on_machine_down(struct sched_cluster *sc, uint32_t id)
{
    struct cluster_machine *machine = machine_at(sc, id);
    sc->up &= ~(1ull << id);
    machine->links = 0;
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++)
        sc->machines[i].links &= ~(1ull << id);
    if (machine->prompts == 0 && machine->decodes == 0)
        return;
    for (uint32_t i = 0; i < sc->options.request_count; i++) {
        struct cluster_request *request = &sc->requests[i];
        if (request->place != PLACE_ROUTED)
            continue;
        if (request->token_machine != id && (request->prefilled || request->prompt_machine != id))
            continue;
        prompt_load_drop(sc, request);
        token_load_drop(sc, request);
        request->place = PLACE_LOST;
        queue_append(sc, &sc->lost, i);
    }
}

void sched_cluster_event(struct sched_cluster *sc, const struct sched_event *event,
                         struct sched_actions *out)
{
    out->count = 0;
    switch (event->kind) {
    case SCHED_ARRIVED:
        on_arrived(sc, event, out);
        return;
    case SCHED_PREFILLED:
        if (request_at(sc, event->request)->place == PLACE_ROUTED)
            prompt_load_drop(sc, &sc->requests[event->request]);
        break;
    case SCHED_ENDED:
        on_ended(sc, event);
        break;
    case SCHED_MACHINE_UP:
        on_machine_up(sc, event);
        break;
    case SCHED_MACHINE_DOWN:
        on_machine_down(sc, event->machine);
        break;
    case SCHED_LINK_UP:
        assert(event->peer < LIMIT_MACHINES);
        machine_at(sc, event->machine)->links |= 1ull << event->peer;
        break;
    case SCHED_LINK_DOWN:
        assert(event->peer < LIMIT_MACHINES);
        machine_at(sc, event->machine)->links &= ~(1ull << event->peer);
        break;
    case SCHED_MACHINE_DRAIN:
        assert(event->machine < LIMIT_MACHINES);
        sc->draining |= 1ull << event->machine;
        break;
    case SCHED_MACHINE_UNDRAIN:
        assert(event->machine < LIMIT_MACHINES);
        sc->draining &= ~(1ull << event->machine);
        break;
    case SCHED_MACHINE_HOME:
        on_machine_home(sc, event);
        break;
    }
    pump(sc, out, SCHED_ACTIONS_MAX);
}

enum status sched_cluster_configure(struct sched_cluster *sc,
                                    const struct sched_cluster_options *options, int64_t now_us,
                                    struct sched_actions *out)
{
    if (options->request_count != sc->options.request_count)
        return ST_INVALID;
    sc->options = *options;
    sched_cluster_more(sc, now_us, out);
    return ST_OK;
}

void sched_cluster_more(struct sched_cluster *sc, int64_t now_us, struct sched_actions *out)
{
    (void)now_us; /* what is left to say does not depend on the time */
    out->count = 0;
    pump(sc, out, SCHED_ACTIONS_MAX);
}

void sched_cluster_view(const struct sched_cluster *sc, uint32_t machine,
                        struct sched_machine_view *out)
{
    assert(machine < LIMIT_MACHINES);
    const struct cluster_machine *from = &sc->machines[machine];
    *out = (struct sched_machine_view){
        .up = (sc->up >> machine & 1) != 0,
        .draining = (sc->draining >> machine & 1) != 0,
        .pool = from->pool,
        .prompt_tokens_pending = from->prompt_tokens_pending,
        .token_tokens_pending = from->token_tokens_pending,
        .prompts = from->prompts,
        .decodes = from->decodes,
    };
}

uint32_t sched_cluster_waiting(const struct sched_cluster *sc)
{
    return sc->waiting.count;
}
