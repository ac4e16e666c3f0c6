/* Goal: no accepted request waits longer than queue_us_max, whatever the routing policy and
 * whatever the requests wait for; all others are refused with a time after which a client that
 * comes back is accepted, in most cases. Method: one simulated machine in virtual time, and clients
 * that come all at once or for a minute, and come back when they were told to. The machine's speed
 * is not known to the scheduler before its first report. */
#include "common/random.h"
#include "scheduler/cluster/cluster.h"
#include "tests/check.h"

#include <string.h>

#define CLIENTS   2000
#define SECOND    1000000ll
#define REPORT_US 100000ll /* As STATS of a machine. */

enum place { AWAY, WAITING, ROUTED, COMPUTING, ANSWERING, SERVED, GONE };

struct client {
    enum place place;
    int64_t at_us; /* AWAY: when it comes. COMPUTING, ANSWERING: when that ends. */
    int64_t came_us;
    uint32_t refusals;
    uint32_t order; /* ROUTED: place in the machine's queue. */
    bool counted;   /* Its first return was counted. */
};

/* What happens in a scene. Times in microseconds. */
struct scene {
    const char *name;
    uint32_t clients;
    int64_t spread_us; /* Clients come evenly in this time. */
    int64_t prompt_us; /* Time of a prompt of PROMPT tokens; prompts are computed one by one. */
    int64_t answer_us; /* Time of an answer of PROMPT tokens, which runs beside others. */
    uint64_t kv_tokens;
    struct sched_cluster_options options;
    int32_t priorities; /* Number of different priorities. */
    bool leave;         /* Refused clients do not come back. */
};

#define PROMPT 100

static struct client clients[CLIENTS];
static struct sched_cluster *sc;
static struct sched_actions actions;
static int64_t now_us;
static uint32_t routed; /* Clients that were routed so far. */
static uint32_t first_returns, first_returns_accepted, refused, overdue;
static const struct scene *scene;

static void refuse(struct client *c, const struct sched_action *action)
{
    CHECK(action->refusal == SCHED_REFUSED_WAIT || action->refusal == SCHED_REFUSED_LATE);
    CHECK(action->retry_after_ms > 0);
    /* No client is left waiting for longer than the limit before it is refused. */
    CHECKF(now_us - c->came_us <= scene->options.queue_us_max, "refused after %lld us",
           (long long)(now_us - c->came_us));
    overdue += now_us - c->came_us == scene->options.queue_us_max;
    refused++;
    first_returns += c->refusals == 1;
    c->refusals++;
    c->place = scene->leave ? GONE : AWAY;
    c->at_us = now_us + (action->retry_after_ms + 999) / 1000 * SECOND; /* Whole seconds. */
}

static void actions_do(void)
{
    for (;;) {
        for (uint32_t i = 0; i < actions.count; i++) {
            const struct sched_action *action = &actions.items[i];
            if (action->kind == SCHED_MOVED)
                continue;
            struct client *c = &clients[action->request];
            CHECK(c->place == WAITING);
            CHECK(action->kind == SCHED_ROUTE || action->kind == SCHED_REFUSE);
            if (action->kind == SCHED_REFUSE) {
                refuse(c, action);
                continue;
            }
            c->place = ROUTED;
            c->order = routed++;
        }
        if (!actions.more)
            return;
        sched_cluster_more_actions(sc, now_us, &actions);
    }
}

static void tell(struct sched_event event)
{
    event.now_us = now_us;
    sched_cluster_event(sc, &event, &actions);
    actions_do();
}

static void come(uint32_t i)
{
    clients[i].place = WAITING;
    clients[i].came_us = now_us;
    tell((struct sched_event){.kind = SCHED_ARRIVED,
                              .request = i,
                              .prompt_tokens = PROMPT,
                              .output_tokens = scene->answer_us > 0 ? PROMPT : 0,
                              .priority = (int32_t)i % scene->priorities,
                              .key_index = i % 5,
                              .identity = 1 + i,
                              .weight = 1});
}

/* Starts the next prompt, if none is computed. */
static void machine_turn(void)
{
    struct client *next = NULL;
    for (uint32_t i = 0; i < scene->clients; i++) {
        if (clients[i].place == COMPUTING)
            return;
        if (clients[i].place == ROUTED && (next == NULL || clients[i].order < next->order))
            next = &clients[i];
    }
    if (next == NULL)
        return;
    /* The tolerance: what the machine has at hand, and the prompt that it computes. Before the
     * first report, it has a number of tokens at hand instead. */
    int64_t most_us =
        scene->options.queue_us_max + scene->options.machine_us_max + 2 * scene->prompt_us;
    CHECKF(now_us - next->came_us <= most_us, "%s: waited %lld us", scene->name,
           (long long)(now_us - next->came_us));
    next->place = COMPUTING;
    next->at_us = now_us + scene->prompt_us;
    if (next->refusals == 1) {
        first_returns++;
        first_returns_accepted++;
    }
}

static void client_turn(uint32_t i)
{
    struct client *c = &clients[i];
    if (c->place == AWAY) {
        come(i);
    } else if (c->place == COMPUTING) {
        c->place = scene->answer_us > 0 ? ANSWERING : SERVED;
        c->at_us = now_us + scene->answer_us;
        tell((struct sched_event){.kind = SCHED_COMPUTED, .request = i});
        tell((struct sched_event){.kind = SCHED_PREFILLED, .request = i});
        if (c->place == SERVED)
            tell((struct sched_event){.kind = SCHED_ENDED, .request = i});
    } else {
        c->place = SERVED;
        tell((struct sched_event){.kind = SCHED_ENDED, .request = i, .output_tokens = PROMPT});
    }
}

/* Returns the time of the next event of a client; INT64_MAX = none. */
static int64_t next_us(uint32_t *client_out)
{
    int64_t at_us = INT64_MAX;
    for (uint32_t i = 0; i < scene->clients; i++) {
        const struct client *c = &clients[i];
        if ((c->place == AWAY || c->place == COMPUTING || c->place == ANSWERING) &&
            c->at_us < at_us) {
            at_us = c->at_us;
            *client_out = i;
        }
    }
    return at_us;
}

/* Returns the number of clients that were served. */
static uint32_t scene_play(const struct scene *played)
{
    int64_t report_us = 0;
    uint32_t client = 0;
    scene = played;
    memset(clients, 0, sizeof(clients));
    now_us = 0;
    routed = first_returns = first_returns_accepted = refused = overdue = 0;
    CHECK(sched_cluster_open(&scene->options, &sc) == ST_OK);
    tell((struct sched_event){
        .kind = SCHED_MACHINE_UP, .pool = POOL_MIXED, .kv_tokens = scene->kv_tokens});
    for (uint32_t i = 0; i < scene->clients; i++)
        clients[i].at_us = 1 + scene->spread_us * i / scene->clients;
    for (;;) {
        int64_t due_us = sched_cluster_due_us(sc);
        int64_t at_us = next_us(&client);
        if (at_us == INT64_MAX && sched_cluster_waiting(sc) == 0)
            break;
        if (due_us <= at_us && due_us <= report_us) {
            now_us = due_us;
            tell((struct sched_event){.kind = SCHED_TICK});
        } else if (report_us < at_us) {
            now_us = report_us;
            report_us += REPORT_US;
            tell((struct sched_event){
                .kind = SCHED_MACHINE_RATES,
                .prompt_tokens_per_s =
                    now_us <= scene->prompt_us ? 0 : (uint32_t)(PROMPT * SECOND / scene->prompt_us),
            });
        } else {
            now_us = at_us;
            client_turn(client);
        }
        machine_turn();
    }
    uint32_t served = 0;
    for (uint32_t i = 0; i < scene->clients; i++)
        served += clients[i].place == SERVED;
    CHECK(scene->leave || served == scene->clients);
    printf("%s: %u clients, %u refusals, %u of them after queue_us_max; of %u first returns, %u "
           "accepted; %u served after %.1f s\n",
           scene->name, scene->clients, refused, overdue, first_returns, first_returns_accepted,
           served, (double)now_us / 1e6);
    sched_cluster_close(sc);
    return served;
}

static const struct sched_cluster_options base = {
    .request_count = CLIENTS,
    .machine_count = 1,
    .queue_requests_max = CLIENTS,
    .queue_us_max = 2 * SECOND,
    .machine_us_max = SECOND / 2,
    .machine_tokens_unmeasured = 4 * PROMPT,
    .machine_kv_multiple = 1,
};

int main(void)
{
    struct scene s = {"prompts, all at once", 200, 0, SECOND / 10, 0, 1000000, base, 3, false};
    scene_play(&s);
    CHECK(first_returns_accepted * 10 >= first_returns * 9);
    s.name = "policy deadline";
    s.options.ttft_us_max = 10 * SECOND;
    scene_play(&s);
    CHECK(first_returns_accepted * 10 >= first_returns * 9);

    /* Ten answers are in memory, each for a second. */
    s = (struct scene){
        "KV memory, all at once", 200, 0, SECOND / 100, SECOND, 20 * PROMPT, base, 3, false};
    scene_play(&s);
    CHECK(first_returns_accepted * 3 >= first_returns * 2);

    /* 1.5 times as many clients as are served: places are kept for those that return. */
    s = (struct scene){"for a minute", 900, 60 * SECOND, SECOND / 10, 0, 1000000, base, 1, false};
    scene_play(&s);
    CHECK(first_returns > 600 && first_returns_accepted * 10 >= first_returns * 9);
    /* Newcomers of more urgent priorities go first, whatever was promised. */
    s.name = "for a minute, three priorities";
    s.priorities = 3;
    scene_play(&s);
    CHECK(first_returns > 100);
    /* The kept places of clients that do not come do not leave the machine idle: it computes one
     * prompt each 100 ms, and the queue of 2 s after the minute. */
    s.name = "for a minute, nobody returns";
    s.priorities = 1;
    s.leave = true;
    CHECK(scene_play(&s) >= 600);
    return 0;
}
