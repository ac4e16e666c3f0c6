/* Goal: the cluster-level scheduler routes as its policy says, forgets no request and counts right.
 * Method: thousands of short random event sequences with random options, compared with a model that
 * computes every sum and every choice from scratch (cluster_model.h). Actions, loads, pools and
 * queue must be equal after every event. The event log of a failing sequence is printed. */
#include "common/random.h"
#include "scheduler/cluster/cluster.h"
#include "tests/check.h"
#include "tests/scheduler/cluster_model.h"

#include <string.h>

#define EVENTS    80
#define SEQUENCES 6000

static struct model model;
static char event_log[EVENTS * 512];
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

#define LOG(...)                                                                                   \
    (event_log_used += (size_t)snprintf(event_log + event_log_used,                                \
                                        sizeof(event_log) - event_log_used, __VA_ARGS__))

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static void machine_event_draw(struct sched_event *event)
{
    static const enum sched_event_kind kinds[] = {
        SCHED_MACHINE_DRAIN, SCHED_MACHINE_UNDRAIN, SCHED_MACHINE_HOME,  SCHED_MACHINE_RATES,
        SCHED_MACHINE_QUEUE, SCHED_MACHINE_IDLE,    SCHED_MACHINE_IDLE,  SCHED_TICK,
        SCHED_MACHINE_UP,    SCHED_MACHINE_DOWN,    SCHED_MACHINE_RATES, SCHED_MACHINE_UNDRAIN,
        SCHED_MACHINE_LOAD,  SCHED_MACHINE_LOAD,    SCHED_MACHINE_LOAD};
    event->kind = kinds[draw(sizeof(kinds) / sizeof(kinds[0]))];
    event->busy = draw(2) == 0;
    event->prompt_tokens_per_s = draw(4) == 0 ? 0 : 1 + draw(2000);
    event->output_tokens_per_s = draw(4) == 0 ? 0 : 1 + draw(2000);
    event->step = (struct sched_step_time){.fixed_ns = draw(3) == 0 ? 0 : draw(30000000),
                                           .row_ns = draw(3) == 0 ? 0 : draw(10000000)};
    if (event->kind == SCHED_MACHINE_LOAD && draw(3) > 0)
        event->others = (struct sched_others){.prompt_tokens = draw(200),
                                              .kv_tokens = draw(300),
                                              .prompts = draw(2),
                                              .decodes = draw(3),
                                              .mixed = draw(3) == 0};
}

/* A machine whose model has windows: its memory is as large as its longest context needs. */
static void kv_draw(struct sched_event *event)
{
    struct sched_memory_options memory = {
        .block_tokens = 4,
        .groups = {.count = 2 + draw(4), .window_tokens = 1 + draw(40)},
        .chunk_tokens = 1 + draw(60),
    };
    memory.groups.windowed = 1 + draw((1u << memory.groups.count) - 2); /* Not all of them. */
    memory.block_count = sched_memory_blocks_of(&memory, (uint32_t)event->kv_tokens, true);
    event->kv = sched_memory_kv(&memory);
    event->kv_tokens = sched_memory_tokens_most(&memory, memory.block_count);
    event->mixed_kv_tokens = sched_memory_tokens_most(&memory, memory.block_count / 2);
}

static bool event_draw(struct sched_event *event)
{
    uint32_t id = draw(MODEL_REQUESTS);
    const struct model_request *r = &model.requests[id];
    *event = (struct sched_event){.request = id,
                                  .machine = draw(MODEL_MACHINES),
                                  .peer = draw(MODEL_MACHINES),
                                  .pool = (enum pool)draw(POOL_COUNT),
                                  .kv_tokens = 100 + draw(400)};
    event->mixed_kv_tokens = draw(2) == 0 ? 0 : event->kv_tokens / 2;
    event->cores = draw(3);
    event->core_count = draw(4);
    event->threads = draw(3);
    if (draw(3) == 0)
        kv_draw(event);
    switch (draw(12)) {
    case 0:
        event->kind = SCHED_MACHINE_UP;
        return !model.machines[event->machine].up;
    case 1:
        machine_event_draw(event);
        /* A machine that is up keeps its model. */
        if (model.machines[event->machine].up)
            event->kv = model.machines[event->machine].kv;
        return true;
    case 2:
    case 3:
        event->kind = draw(8) == 0 ? SCHED_LINK_DOWN : SCHED_LINK_UP;
        return event->machine != event->peer;
    case 4:
        event->kind = SCHED_COMPUTED;
        return r->state == MODEL_ROUTED;
    case 5:
        event->kind = SCHED_PREFILLED;
        return r->state == MODEL_ROUTED;
    case 6:
    case 7:
        event->kind = draw(8) == 0 ? SCHED_OVERDUE : SCHED_ENDED;
        event->output_tokens = event->kind == SCHED_ENDED ? draw(150) : 0;
        return r->state != MODEL_GONE;
    default:
        event->kind = SCHED_ARRIVED;
        event->prompt_tokens = 1 + draw(draw(6) == 0 ? 600 : 100);
        event->output_tokens = draw(3) == 0 ? 0 : 1 + draw(draw(3) == 0 ? 200 : 50);
        event->resumed = draw(5) == 0;
        event->key_index = draw(3);
        event->weight = draw(5);
        event->priority = draw(4) == 0 ? (int32_t)draw(5) - 2 : 0;
        return r->state == MODEL_GONE;
    }
}

static void log_event(const struct sched_event *event)
{
    static const char *const names[] = {
        "arrived",      "computed", "prefilled", "ended",      "overdue", "machine up",
        "machine down", "link up",  "link down", "link speed", "host",    "drain",
        "undrain",      "home",     "rates",     "tiers",      "queue",   "idle",
        "load",         "cached",   "evicted",   "tick"};
    _Static_assert(sizeof(names) / sizeof(names[0]) == SCHED_TICK + 1, "a name for each kind");
    LOG("%d us: %s request %u (%u + %u%s, key %u weight %u priority %d) machine %u peer %u pool %s "
        "kv %u (%u mixed) busy %d rate "
        "%u others %u + %u prompts %u decodes %u mixed %d\n",
        (int)event->now_us, names[event->kind], event->request, event->prompt_tokens,
        event->output_tokens, event->resumed ? ", resumed" : "", event->key_index, event->weight,
        event->priority, event->machine, event->peer, pool_name(event->pool),
        (uint32_t)event->kv_tokens, (uint32_t)event->mixed_kv_tokens, event->busy,
        event->prompt_tokens_per_s, (uint32_t)event->others.prompt_tokens,
        (uint32_t)event->others.kv_tokens, event->others.prompts, event->others.decodes,
        event->others.mixed);
}

static void compare_state(const struct sched_cluster *sc)
{
    for (uint32_t i = 0; i < MODEL_MACHINES; i++) {
        const struct model_machine *machine = &model.machines[i];
        struct sched_machine_view view;
        sched_cluster_view(sc, i, &view);
        EXPECT(view.up == machine->up && view.draining == machine->draining);
        EXPECT(view.pool == machine->pool && view.home == machine->home);
        EXPECT(view.prompt_tokens_pending == model_pending(&model, i));
        EXPECT(view.kv_tokens_scheduled == model_memory(&model, i));
        EXPECT(view.prompts == model_prompts(&model, i));
        EXPECT(view.decodes == model_decodes(&model, i));
    }
    EXPECT(sched_cluster_ready(sc) == model_ready(&model));
    EXPECT(sched_cluster_waiting(sc) == model_waiting(&model));
}

static void log_actions(const char *who, const struct sched_action *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        LOG("    %s: %d why %d request %d machine %d peer %d pool %d home %d\n", who, items[i].kind,
            items[i].refusal, (int)items[i].request, (int)items[i].machine,
            (int)items[i].token_machine, items[i].pool, items[i].home);
}

static void compare_actions(const struct sched_actions *found)
{
    log_actions("found", found->items, found->count);
    log_actions("model", model.actions, model.action_count);
    EXPECT(found->count == model.action_count && !found->more);
    for (uint32_t i = 0; i < found->count; i++) {
        struct sched_action action = found->items[i];
        struct sched_action expected = model.actions[i];
        if (expected.kind == SCHED_REFUSE && expected.refusal == SCHED_REFUSED_FULL) {
            EXPECT(action.retry_after_ms >= 1000 && action.retry_after_ms <= 60000);
            expected.retry_after_ms = action.retry_after_ms;
        }
        if (expected.kind == SCHED_REFUSE && expected.refusal == SCHED_REFUSED_WAIT) {
            EXPECT(action.retry_after_ms >= 1000 && action.retry_after_ms <= 600000);
            expected.retry_after_ms = action.retry_after_ms;
        }
        EXPECT(memcmp(&action, &expected, sizeof(action)) == 0);
    }
}

static struct sched_cluster_options options_draw(void)
{
    struct sched_cluster_options options = {
        .request_count = MODEL_REQUESTS,
        .machine_count = MODEL_MACHINES,
        .queue_requests_max = draw(8),
        .wait_us_max = draw(2) == 0 ? 0 : draw(3000000),
        .cover_after_us = draw(1000000),
        .machine_kv_multiple = draw(3),
        .prompt_queue_threshold_tokens = draw(2) == 0 ? 0 : draw(200),
        .token_memory_threshold = draw(2) == 0,
        .growth_reserve_percent = draw(2) == 0 ? 0 : draw(30),
        .growth_reserve_tokens = draw(2) == 0 ? 0 : draw(20),
        .schedule_mean_answer = draw(2) == 0,
        .machine_tokens_max = draw(2) == 0 ? 0 : 1 + draw(300),
        .machine_us_max = draw(2) == 0 ? 0 : 1 + draw(1000000),
        .ageing_us = draw(2) == 0 ? 0 : 1 + draw(3000000),
        .adaptive = draw(3) > 0,
        .unsplit = draw(12) == 0,
        .busy_is_reported = draw(4) == 0,
        .homing = (enum sched_homing)draw(3),
        .lends_as_splitwise = draw(3) == 0,
        .one_machine_routes = draw(2) == 0,
        .one_machine_targets.ttft_us = 1 + draw(2000000),
        .one_machine_targets.tbt_us = 1 + draw(100000),
        .compare_time = draw(2) == 0,
        .prompt_queue_threshold_us = draw(3) == 0 ? draw(1000000) : 0,
        .prompt_queue_threshold_unmeasured = draw(2) == 0 ? 0 : draw(200),
        .stay_tokens = draw(2) == 0 ? 0 : draw(100),
        .ttft_us_max = draw(5) == 0 ? draw(1000000) : 0,
    };
    LOG("queue %u wait %d cover %d kv multiple %u threshold %u memory %d machine tokens %u "
        "adaptive %d unsplit %d told %d homing %d lent %d together %d stay %u ttft %d\n",
        options.queue_requests_max, (int)options.wait_us_max, (int)options.cover_after_us,
        options.machine_kv_multiple, (uint32_t)options.prompt_queue_threshold_tokens,
        options.token_memory_threshold, (uint32_t)options.machine_tokens_max, options.adaptive,
        options.unsplit, options.busy_is_reported, options.homing, options.lends_as_splitwise,
        options.one_machine_routes, (uint32_t)options.stay_tokens, (int)options.ttft_us_max);
    return options;
}

/* The operator changes options. The actions that follow from the new options are returned at
 * once. */
static void configure(struct sched_cluster *sc, int64_t now_us)
{
    struct sched_actions actions;
    struct sched_cluster_options options = options_draw();
    struct sched_cluster_options other = options;
    other.request_count++;
    EXPECT(sched_cluster_configure(sc, &other, now_us, &actions) == ST_INVALID);
    EXPECT(sched_cluster_configure(sc, &options, now_us, &actions) == ST_OK);
    model_configure(&model, &options, now_us);
    compare_actions(&actions);
    compare_state(sc);
}

static void sequence(void)
{
    struct sched_cluster *sc;
    event_log_used = 0;
    struct sched_cluster_options options = options_draw();
    model_open(&model, &options);
    CHECK(sched_cluster_open(&options, &sc) == ST_OK);
    int64_t now_us = 0;
    for (int i = 0; i < EVENTS; i++) {
        struct sched_event event;
        struct sched_actions actions;
        if (draw(25) == 0)
            configure(sc, now_us);
        if (!event_draw(&event))
            continue;
        now_us += draw(200000);
        event.now_us = now_us;
        event_log_used = event_log_used > sizeof(event_log) / 2 ? 0 : event_log_used;
        log_event(&event);
        sched_cluster_event(sc, &event, &actions);
        model_event(&model, &event);
        compare_actions(&actions);
        compare_state(sc);
    }
    sched_cluster_close(sc);
}

/* When one array is too small for the actions, sched_cluster_more_actions returns the others, in
 * order. */
static void test_more(void)
{
    enum { COUNT = 200 };
    struct sched_cluster *sc;
    struct sched_actions actions;
    const struct sched_cluster_options many = {
        .request_count = COUNT, .machine_count = 1, .queue_requests_max = COUNT};
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
    const struct sched_event up = {.kind = SCHED_MACHINE_UP, .pool = POOL_MIXED, .kv_tokens = 1000};
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
            sched_cluster_more_actions(sc, 0, &actions);
        }
        CHECK(told == COUNT);
    }
    CHECK(sched_cluster_waiting(sc) == 0);
    sched_cluster_close(sc);
}

/* One request ends every 2 s and five wait: the estimate is about 10 s, and grows while no request
 * ends. */
static void test_retry_after(void)
{
    struct sched_cluster *sc;
    struct sched_actions actions;
    const struct sched_cluster_options small = {

        .request_count = 20, .machine_count = 1, .queue_requests_max = 5, .machine_tokens_max = 1};
    CHECK(sched_cluster_open(&small, &sc) == ST_OK);
    struct sched_event event = {.kind = SCHED_MACHINE_UP, .pool = POOL_MIXED, .kv_tokens = 1000};
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
    for (uint32_t i = 0; i < 6; i++) { /* One request runs, five wait. */
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
