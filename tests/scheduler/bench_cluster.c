/* bench_cluster: measures the cost of a routing decision. `bench_cluster [MACHINES [SECONDS]]`
 * (1000, 2): requests of random sizes arrive at a cluster with all links up. Each goes through its
 * four events (arrived, computed, prefilled, ended) while `open` others are open. Reports the
 * requests per second; a request is one decision and all the scheduler's work for it. Seconds are
 * this process's CPU time, so other work on the computer does not count. */
#include "common/random.h"
#include "scheduler/cluster/cluster.h"
#include "tests/check.h"

#include <string.h>

#define REQUESTS 8192

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t draws;
static uint64_t routed;
static uint64_t refused;
static uint64_t moved;
static bool has_route[REQUESTS];

static void tell(struct sched_cluster *sc, const struct sched_event *event)
{
    struct sched_actions actions;
    sched_cluster_event(sc, event, &actions);
    for (;;) {
        for (uint32_t i = 0; i < actions.count; i++) {
            const struct sched_action *action = &actions.items[i];
            routed += action->kind == SCHED_ROUTE;
            refused += action->kind == SCHED_REFUSE;
            moved += action->kind == SCHED_MOVED;
            if (action->kind == SCHED_ROUTE)
                has_route[action->request] = true;
        }
        if (!actions.more)
            return;
        sched_cluster_more_actions(sc, event->now_us, &actions);
    }
}

static struct sched_cluster *cluster_open(const struct sched_cluster_options *options,
                                          uint64_t kv_tokens)
{
    struct sched_cluster *sc;
    uint32_t count = options->machine_count;
    CHECK(sched_cluster_open(options, &sc) == ST_OK);
    for (uint32_t i = 0; i < count; i++)
        tell(sc, &(struct sched_event){.kind = SCHED_MACHINE_UP,
                                       .machine = i,
                                       .pool = i % 2 ? POOL_TOKEN : POOL_PROMPT,
                                       .kv_tokens = kv_tokens});
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < count; k++)
            if (i != k)
                tell(sc, &(struct sched_event){.kind = SCHED_LINK_UP, .machine = i, .peer = k});
    return sc;
}

static void run(const char *name, const struct sched_cluster_options *options, uint64_t kv_tokens,
                uint32_t open, double seconds)
{
    struct sched_cluster *sc = cluster_open(options, kv_tokens);
    memset(has_route, 0, sizeof(has_route));
    routed = refused = moved = 0;
    uint64_t lives = 0;
    double began = now_s();
    double taken = 0;
    while (taken < seconds) {
        for (int i = 0; i < 1000; i++, lives++) {
            uint64_t draw = random_at(7, draws++);
            struct sched_event event = {.now_us = (int64_t)lives, .kind = SCHED_ARRIVED};
            event.request = (uint32_t)(lives % open);
            if (lives >= open) { /* The slot's earlier request ends now. */
                event.kind = SCHED_ENDED;
                tell(sc, &event);
                event.kind = SCHED_ARRIVED;
            }
            has_route[event.request] = false;
            event.prompt_tokens = 1 + (uint32_t)(draw % 2000);
            event.output_tokens = 1 + (uint32_t)(draw >> 32) % 400;
            tell(sc, &event);
            event.request = (uint32_t)((lives + open - open / 4) % open);
            event.kind = SCHED_COMPUTED;
            if (lives >= open && has_route[event.request])
                tell(sc, &event);
            event.kind = SCHED_PREFILLED;
            if (lives >= open && has_route[event.request])
                tell(sc, &event);
        }
        taken = now_s() - began;
    }
    printf(
        "%-22s %5u machines %5u open: %9.0f lives/s, %8.0f routed/s, refused %.1f %%, moves %.4f "
        "per route\n",
        name, options->machine_count, open, (double)lives / taken, (double)routed / taken,
        100.0 * (double)refused / (double)lives, (double)moved / (double)(routed > 0 ? routed : 1));
    sched_cluster_close(sc);
}

int main(int argc, char **argv)
{
    uint32_t machines = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000;
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 2;
    struct sched_cluster_options options = {
        .request_count = REQUESTS,
        .machine_count = machines,
        .queue_requests_max = 1000,
        .prompt_queue_threshold_tokens = 8192,
        .machine_kv_multiple = 2,
        .machine_tokens_max = 131072,
        .stay_tokens = 1,
    };
    run("static pools", &options, 100000, REQUESTS, seconds);
    options.adaptive = options.token_memory_threshold = true;
    run("adaptive, room", &options, 100000, REQUESTS, seconds);
    run("adaptive, pressure", &options, 12000, REQUESTS, seconds);
    run("adaptive, overload", &options, 4000, REQUESTS, seconds);
    return 0;
}
