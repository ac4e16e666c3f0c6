/* Goal: the cluster-level scheduler routes as its policy says, forgets nobody and counts right.
 * Method: thousands of short random event sequences; next to the scheduler runs a model that keeps
 * lists in arrays and computes every sum and every choice anew from the requests. Actions, loads
 * and queue must be equal after every event. The event log of a failing sequence is printed. */
#include "common/random.h"
#include "scheduler/cluster.h"
#include "tests/check.h"

#include <string.h>

#define MACHINES  5
#define REQUESTS  24
#define EVENTS    80
#define SEQUENCES 6000

struct model_request {
    enum { GONE, WAITING, ROUTED } place;
    uint64_t arrival;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    bool prefilled;
    uint32_t prompt;
    uint32_t token;
};

struct model_machine {
    bool up;
    bool draining;
    bool known;
    enum sched_pool pool;
    uint64_t kv_tokens;
    bool link[MACHINES];
};

static struct model_request requests[REQUESTS];
static struct model_machine machines[MACHINES];
static struct sched_cluster_options options;
static uint64_t arrivals;
static char event_log[EVENTS * 192];
static size_t event_log_used;
static uint64_t seed;
static uint64_t draws;

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s", event_log);                                                               \
            CHECK(condition);                                                                      \
        }                                                                                          \
    } while (0)

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static uint64_t prompt_load(uint32_t machine, uint32_t *count_out)
{
    uint64_t tokens = 0;
    *count_out = 0;
    for (int i = 0; i < REQUESTS; i++) {
        if (requests[i].place == ROUTED && requests[i].prompt == machine &&
            !requests[i].prefilled) {
            tokens += requests[i].prompt_tokens;
            ++*count_out;
        }
    }
    return tokens;
}

static uint64_t token_load(uint32_t machine, uint32_t *count_out)
{
    uint64_t tokens = 0;
    *count_out = 0;
    for (int i = 0; i < REQUESTS; i++) {
        if (requests[i].place == ROUTED && requests[i].token == machine) {
            tokens += requests[i].prompt_tokens + requests[i].output_tokens;
            ++*count_out;
        }
    }
    return tokens;
}

static bool can(uint32_t i, enum sched_pool phase, uint64_t tokens, bool idle)
{
    uint32_t count;
    uint64_t load = phase == SCHED_POOL_PROMPT ? prompt_load(i, &count) : token_load(i, &count);
    if (!machines[i].up || machines[i].draining ||
        (machines[i].pool != phase && machines[i].pool != SCHED_POOL_MIXED))
        return false;
    if (machines[i].kv_tokens < tokens)
        return false;
    if (idle)
        return true;
    if (options.machine_kv_multiple > 0 &&
        load >= machines[i].kv_tokens * options.machine_kv_multiple)
        return false;
    return options.machine_tokens_max == 0 || load < options.machine_tokens_max;
}

static bool linked(uint32_t from, uint32_t to)
{
    return from == to ? machines[from].pool == SCHED_POOL_MIXED : machines[from].link[to];
}

/* A queue as one number to compare: own pool first (a prompt machine over the threshold does not
 * count as such), then tokens, then the machine that has the KV, then index. */
static uint64_t rank(uint32_t i, enum sched_pool phase, uint32_t self)
{
    uint32_t count;
    uint64_t load = phase == SCHED_POOL_PROMPT ? prompt_load(i, &count) : token_load(i, &count);
    uint64_t threshold = options.prompt_queue_threshold_tokens;
    bool own = machines[i].pool == phase;
    if (phase == SCHED_POOL_PROMPT && threshold > 0 && load > threshold)
        own = false;
    return (own ? 0 : 1ull << 60) + load * (MACHINES + 1) + (i == self ? 0 : i + 1);
}

/* All pairs; the least by (prompt rank, token rank). */
static bool best_pair(const struct model_request *request, bool idle, uint32_t *prompt_out,
                      uint32_t *token_out)
{
    uint64_t best_prompt = UINT64_MAX;
    uint64_t best_token = UINT64_MAX;
    uint64_t total = (uint64_t)request->prompt_tokens + request->output_tokens;
    for (uint32_t p = 0; p < MACHINES; p++) {
        if (!can(p, SCHED_POOL_PROMPT, request->prompt_tokens, idle))
            continue;
        for (uint32_t t = 0; t < MACHINES; t++) {
            bool none = request->output_tokens == 0;
            if (!none && (!can(t, SCHED_POOL_TOKEN, total, idle) || !linked(p, t)))
                continue;
            uint64_t prompt_rank = rank(p, SCHED_POOL_PROMPT, MACHINES);
            uint64_t token_rank = none ? 0 : rank(t, SCHED_POOL_TOKEN, p);
            if (prompt_rank > best_prompt ||
                (prompt_rank == best_prompt && token_rank >= best_token))
                continue;
            best_prompt = prompt_rank;
            best_token = token_rank;
            *prompt_out = p;
            *token_out = none ? SCHED_NO_MACHINE : t;
        }
    }
    return best_prompt != UINT64_MAX;
}

static bool ever_possible(const struct model_request *request)
{
    uint64_t total = (uint64_t)request->prompt_tokens + request->output_tokens;
    bool prompt_known = false;
    bool prompt_fits = false;
    bool token_known = false;
    bool token_fits = false;
    for (int i = 0; i < MACHINES; i++) {
        if (!machines[i].known)
            continue;
        if (machines[i].pool != SCHED_POOL_TOKEN) {
            prompt_known = true;
            prompt_fits |= machines[i].kv_tokens >= request->prompt_tokens;
        }
        if (machines[i].pool != SCHED_POOL_PROMPT) {
            token_known = true;
            token_fits |= machines[i].kv_tokens >= total;
        }
    }
    if (prompt_known && !prompt_fits)
        return false;
    return request->output_tokens == 0 || !token_known || token_fits;
}

static int oldest_waiting_after(int64_t arrival)
{
    int oldest = -1;
    for (int i = 0; i < REQUESTS; i++) {
        if (requests[i].place == WAITING && (int64_t)requests[i].arrival > arrival &&
            (oldest < 0 || requests[i].arrival < requests[oldest].arrival))
            oldest = i;
    }
    return oldest;
}

static uint32_t model_waiting(void)
{
    uint32_t count = 0;
    for (int i = 0; i < REQUESTS; i++)
        count += requests[i].place == WAITING;
    return count;
}

/* What must follow from the state: fills `out` in order. */
static uint32_t model_actions(struct sched_action *out)
{
    uint32_t count = 0;
    for (int id = oldest_waiting_after(-1); id >= 0;) {
        struct model_request *request = &requests[id];
        int next = oldest_waiting_after((int64_t)request->arrival);
        uint32_t prompt;
        uint32_t token;
        if (!ever_possible(request)) {
            request->place = GONE;
            out[count++] = (struct sched_action){.kind = SCHED_REFUSE, .request = (uint32_t)id};
        } else if (best_pair(request, false, &prompt, &token)) {
            request->place = ROUTED;
            request->prefilled = false;
            request->prompt = prompt;
            request->token = token;
            out[count++] = (struct sched_action){
                .kind = SCHED_ROUTE, .request = (uint32_t)id, .machine = prompt, .peer = token};
        } else if (best_pair(request, true, &prompt, &token)) {
            break; /* busy: those behind it wait as well */
        }
        id = next;
    }
    return count;
}

static uint32_t model_machine_down(uint32_t machine, struct sched_action *out)
{
    uint32_t count = 0;
    machines[machine].up = false;
    for (int i = 0; i < MACHINES; i++) {
        machines[machine].link[i] = false;
        machines[i].link[machine] = false;
    }
    for (int i = 0; i < REQUESTS; i++) {
        struct model_request *request = &requests[i];
        if (request->place != ROUTED)
            continue;
        if (request->token != machine && (request->prefilled || request->prompt != machine))
            continue;
        request->place = GONE;
        out[count++] = (struct sched_action){.kind = SCHED_LOST, .request = (uint32_t)i};
    }
    return count;
}

static bool event_draw(struct sched_event *event)
{
    uint32_t id = draw(REQUESTS);
    *event = (struct sched_event){.request = id,
                                  .machine = draw(MACHINES),
                                  .peer = draw(MACHINES),
                                  .pool = (enum sched_pool)draw(SCHED_POOL_COUNT),
                                  .kv_tokens = 100 + draw(400)};
    switch (draw(11)) {
    case 10:
        event->kind = draw(3) == 0                        ? SCHED_MACHINE_HOME
                      : machines[event->machine].draining ? SCHED_MACHINE_UNDRAIN
                                                          : SCHED_MACHINE_DRAIN;
        return event->kind != SCHED_MACHINE_HOME || machines[event->machine].known;
    case 0:
        event->kind = draw(3) == 0 ? SCHED_MACHINE_DOWN : SCHED_MACHINE_UP;
        return event->kind == SCHED_MACHINE_DOWN || !machines[event->machine].up || draw(4) == 0;
    case 1:
    case 2:
        event->kind = draw(5) == 0 ? SCHED_LINK_DOWN : SCHED_LINK_UP;
        return event->machine != event->peer;
    case 3:
    case 4:
        event->kind = SCHED_PREFILLED;
        return requests[id].place == ROUTED;
    case 5:
    case 6:
        event->kind = SCHED_ENDED;
        return requests[id].place != GONE;
    default:
        event->kind = SCHED_ARRIVED;
        event->prompt_tokens = 1 + draw(draw(6) == 0 ? 600 : 100);
        event->output_tokens = draw(3) == 0 ? 0 : 1 + draw(50);
        return requests[id].place == GONE;
    }
}

static uint32_t model_event(const struct sched_event *event, struct sched_action *out)
{
    struct model_request *request = &requests[event->request];
    uint32_t count = 0;
    switch (event->kind) {
    case SCHED_ARRIVED:
        *request = (struct model_request){.place = WAITING,
                                          .arrival = arrivals++,
                                          .prompt_tokens = event->prompt_tokens,
                                          .output_tokens = event->output_tokens};
        break;
    case SCHED_PREFILLED:
        request->prefilled = true;
        break;
    case SCHED_ENDED:
        request->place = GONE;
        break;
    case SCHED_MACHINE_UP:
        machines[event->machine].up = true;
        machines[event->machine].known = true;
        machines[event->machine].pool = event->pool;
        machines[event->machine].kv_tokens = event->kv_tokens;
        break;
    case SCHED_MACHINE_DOWN:
        count = model_machine_down(event->machine, out);
        break;
    case SCHED_LINK_UP:
    case SCHED_LINK_DOWN:
        machines[event->machine].link[event->peer] = event->kind == SCHED_LINK_UP;
        break;
    case SCHED_MACHINE_DRAIN:
    case SCHED_MACHINE_UNDRAIN:
        machines[event->machine].draining = event->kind == SCHED_MACHINE_DRAIN;
        break;
    case SCHED_MACHINE_HOME:
        machines[event->machine].pool = event->pool;
        break;
    }
    count += model_actions(out + count);
    if (event->kind == SCHED_ARRIVED && request->place == WAITING &&
        model_waiting() > options.queue_requests_max) {
        request->place = GONE;
        out[count++] = (struct sched_action){
            .kind = SCHED_REFUSE, .request = event->request, .retry_after_ms = 1};
    }
    return count;
}

static void log_event(const struct sched_event *event)
{
    static const char *const names[] = {"arrived",      "prefilled", "ended",     "machine up",
                                        "machine down", "link up",   "link down", "drain",
                                        "undrain",      "home"};
    int used =
        snprintf(event_log + event_log_used, sizeof(event_log) - event_log_used,
                 "%s request %u (%u + %u) machine %u peer %u pool %s kv %u\n", names[event->kind],
                 event->request, event->prompt_tokens, event->output_tokens, event->machine,
                 event->peer, sched_pool_name(event->pool), (uint32_t)event->kv_tokens);
    event_log_used += (size_t)used;
}

static void compare_state(const struct sched_cluster *sc)
{
    bool ready = false;
    for (uint32_t i = 0; i < MACHINES; i++) {
        struct sched_machine_view view;
        uint32_t prompts;
        uint32_t decodes;
        sched_cluster_view(sc, i, &view);
        EXPECT(view.up == machines[i].up && view.draining == machines[i].draining);
        EXPECT(!view.up || view.pool == machines[i].pool);
        EXPECT(view.prompt_tokens_pending == prompt_load(i, &prompts) && view.prompts == prompts);
        EXPECT(view.token_tokens_pending == token_load(i, &decodes) && view.decodes == decodes);
        for (uint32_t j = 0; j < MACHINES; j++)
            ready |= can(i, SCHED_POOL_PROMPT, 0, true) && can(j, SCHED_POOL_TOKEN, 0, true) &&
                     linked(i, j);
    }
    EXPECT(sched_cluster_ready(sc) == ready);
    EXPECT(sched_cluster_waiting(sc) == model_waiting());
}

static void compare_actions(const struct sched_actions *found, const struct sched_action *expected,
                            uint32_t count)
{
    EXPECT(found->count == count && !found->more);
    for (uint32_t i = 0; i < count; i++) {
        const struct sched_action *action = &found->items[i];
        EXPECT(action->kind == expected[i].kind && action->request == expected[i].request);
        if (action->kind == SCHED_ROUTE)
            EXPECT(action->machine == expected[i].machine && action->peer == expected[i].peer);
        if (action->kind == SCHED_REFUSE && expected[i].retry_after_ms > 0)
            EXPECT(action->retry_after_ms >= 1000 && action->retry_after_ms <= 60000);
        else
            EXPECT(action->retry_after_ms == 0);
    }
}

static void options_draw(void)
{
    options = (struct sched_cluster_options){
        .request_count = REQUESTS,
        .queue_requests_max = draw(8),
        .machine_kv_multiple = draw(3),
        .prompt_queue_threshold_tokens = draw(2) == 0 ? 0 : draw(200),
        .machine_tokens_max = draw(2) == 0 ? 0 : 1 + draw(300)};
    event_log_used += (size_t)snprintf(
        event_log + event_log_used, sizeof(event_log) - event_log_used,
        "queue %u machine tokens %u kv multiple %u threshold %u\n", options.queue_requests_max,
        (uint32_t)options.machine_tokens_max, options.machine_kv_multiple,
        (uint32_t)options.prompt_queue_threshold_tokens);
}

/* An operator changes his mind: what follows from the new options follows at once. */
static void configure(struct sched_cluster *sc, int64_t now_us)
{
    struct sched_actions actions;
    struct sched_action expected[2 * REQUESTS];
    options_draw();
    EXPECT(sched_cluster_configure(sc, &options, now_us, &actions) == ST_OK);
    compare_actions(&actions, expected, model_actions(expected));
    compare_state(sc);
    struct sched_cluster_options other = options;
    other.request_count++;
    EXPECT(sched_cluster_configure(sc, &other, now_us, &actions) == ST_INVALID);
}

static void sequence(void)
{
    struct sched_cluster *sc;
    memset(requests, 0, sizeof(requests));
    memset(machines, 0, sizeof(machines));
    event_log_used = 0;
    options_draw();
    CHECK(sched_cluster_open(&options, &sc) == ST_OK);
    int64_t now_us = 0;
    for (int i = 0; i < EVENTS; i++) {
        struct sched_event event;
        struct sched_actions actions;
        struct sched_action expected[2 * REQUESTS];
        if (draw(20) == 0)
            configure(sc, now_us);
        if (!event_draw(&event))
            continue;
        now_us += draw(200000);
        event.now_us = now_us;
        log_event(&event);
        sched_cluster_event(sc, &event, &actions);
        compare_actions(&actions, expected, model_event(&event, expected));
        compare_state(sc);
    }
    sched_cluster_close(sc);
}

/* More actions than fit one array: all of them come, in order, through sched_cluster_more. */
static void test_more(void)
{
    enum { COUNT = 200 };
    struct sched_cluster *sc;
    struct sched_actions actions;
    const struct sched_cluster_options many = {.request_count = COUNT, .queue_requests_max = COUNT};
    CHECK(sched_cluster_open(&many, &sc) == ST_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        sched_cluster_event(
            sc,
            &(struct sched_event){
                .kind = SCHED_ARRIVED, .request = i, .prompt_tokens = 10, .output_tokens = 1},
            &actions);
        CHECK(actions.count == 0 && !actions.more);
    }
    uint32_t told = 0;
    const struct sched_event up = {
        .kind = SCHED_MACHINE_UP, .pool = SCHED_POOL_MIXED, .kv_tokens = 1000};
    const struct sched_event down = {.kind = SCHED_MACHINE_DOWN};
    for (int round = 0; round < 2; round++) {
        told = 0;
        sched_cluster_event(sc, round == 0 ? &up : &down, &actions);
        for (;;) {
            for (uint32_t i = 0; i < actions.count; i++, told++) {
                CHECK(actions.items[i].request == told);
                CHECK(actions.items[i].kind == (round == 0 ? SCHED_ROUTE : SCHED_LOST));
            }
            if (!actions.more)
                break;
            sched_cluster_more(sc, 0, &actions);
        }
        CHECK(told == COUNT);
    }
    CHECK(sched_cluster_waiting(sc) == 0);
    sched_cluster_close(sc);
}

/* One request ends each 2 s, five wait: the estimate is about 10 s, and grows while nothing ends.
 */
static void test_retry_after(void)
{
    struct sched_cluster *sc;
    struct sched_actions actions;
    const struct sched_cluster_options small = {
        .request_count = 20, .queue_requests_max = 5, .machine_tokens_max = 1};
    CHECK(sched_cluster_open(&small, &sc) == ST_OK);
    struct sched_event event = {
        .kind = SCHED_MACHINE_UP, .pool = SCHED_POOL_MIXED, .kv_tokens = 1000};
    sched_cluster_event(sc, &event, &actions);
    event = (struct sched_event){.kind = SCHED_ARRIVED, .prompt_tokens = 10, .output_tokens = 1};
    for (uint32_t i = 0; i < 16; i++) {
        event.kind = SCHED_ARRIVED;
        event.request = i;
        sched_cluster_event(sc, &event, &actions);
        CHECK(actions.count == 1 && actions.items[0].kind == SCHED_ROUTE);
        event.kind = SCHED_ENDED;
        event.now_us += 2000000;
        sched_cluster_event(sc, &event, &actions);
    }
    event.kind = SCHED_ARRIVED;
    for (uint32_t i = 0; i < 6; i++) { /* one runs, five wait */
        event.request = i;
        sched_cluster_event(sc, &event, &actions);
    }
    event.request = 6;
    sched_cluster_event(sc, &event, &actions);
    CHECK(actions.count == 1 && actions.items[0].kind == SCHED_REFUSE);
    uint32_t estimate = actions.items[0].retry_after_ms;
    CHECKF(estimate > 8000 && estimate < 13000, "%u", estimate);
    event.now_us += 100000000;
    sched_cluster_event(sc, &event, &actions);
    CHECK(actions.count == 1 && actions.items[0].retry_after_ms > estimate);
    sched_cluster_close(sc);
}

int main(void)
{
    seed = test_seed();
    test_more();
    test_retry_after();
    for (int i = 0; i < SEQUENCES; i++)
        sequence();
    return 0;
}
