/* Goal: waiting requests are served by priority, then by the weights of their keys, then in the
 * order of their arrival, and no request is starved. Method: random additions, takes, drops, ends
 * of answers and time compared with queue_model; then the properties of queue.h, each with its own
 * case: shares by weight, one request beside five hundred, an idle key, first come first served
 * without keys, ageing. */
#include "common/limits.h"
#include "common/random.h"
#include "tests/check.h"
#include "tests/scheduler/queue_model.h"

#include <string.h>

#define RUNS   200
#define EVENTS 1500
#define MANY   2000

static uint64_t seed;
static uint64_t draws;
static struct sched_accounts *fair;
static struct sched_queue queue;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static void open(uint32_t slots)
{
    CHECK(sched_accounts_open(slots, &fair) == ST_OK);
    sched_queue_init(&queue);
}

/* ---- against the model ---- */

static void compare(const struct queue_model *model)
{
    uint32_t count = 0;
    uint32_t want = queue_model_next(model, NULL);
    for (uint32_t slot = queue.first; slot != SCHED_QUEUE_NONE; count++) {
        CHECK(slot == want);
        uint32_t next = sched_queue_next(fair, slot);
        want = queue_model_next(model, &model->slots[slot]);
        CHECK(next == SCHED_QUEUE_NONE || sched_queue_before(fair, slot, next));
        slot = next;
    }
    CHECK(want == SCHED_QUEUE_NONE && count == queue.count);
}

static void add(struct queue_model *model, uint32_t slot, int64_t now_us, bool plain)
{
    struct sched_ticket ticket = {.cost = draw(4) == 0 ? draw(5000) : draw(100)};
    if (!plain)
        ticket = (struct sched_ticket){.key = draw(5),
                                       .weight = draw(6),
                                       .priority = (int32_t)draw(4) - 2,
                                       .cost = ticket.cost,
                                       .resumed = draw(8) == 0};
    sched_queue_add(fair, &queue, slot, &ticket, now_us);
    queue_model_add(model, slot, &ticket, now_us);
}

static void leave(struct queue_model *model, uint32_t slot, bool turn)
{
    if (turn)
        sched_queue_take(fair, &queue, slot);
    else
        sched_queue_drop(fair, &queue, slot);
    queue_model_leave(model, slot, turn);
}

static void answer_ends(struct queue_model *model)
{
    uint64_t key = draw(5);
    int32_t priority = (int32_t)draw(4) - 2;
    uint32_t weight = draw(6);
    uint32_t most = draw(1000);
    uint32_t charged = queue_model_answer(model, key, priority, most);
    uint32_t generated = draw(most + 10);
    CHECK(sched_accounts_answer_expected(fair, key, priority, most) == charged && charged <= most);
    sched_accounts_answer_ended(fair, key, weight, priority, charged, generated);
    queue_model_answered(model, key, weight, priority, charged, generated);
}

/* plain: no request has a key or a priority, so the order is first come, first served. */
static void run(bool plain)
{
    static struct queue_model model;
    int64_t now_us = 0;
    int64_t ageing_us = draw(3) == 0 ? 0 : 1 + draw(5000);
    memset(&model, 0, sizeof(model));
    open(QUEUE_MODEL_SLOTS);
    for (int i = 0; i < EVENTS; i++) {
        uint32_t slot = draw(QUEUE_MODEL_SLOTS);
        now_us += draw(200);
        sched_queue_age(fair, &queue, ageing_us, now_us);
        queue_model_age(&model, ageing_us, now_us);
        compare(&model);
        if (!model.slots[slot].waits && draw(3) > 0)
            add(&model, slot, now_us, plain);
        else if (model.slots[slot].waits && draw(3) == 0)
            /* Out of turn, as if earlier requests could not be served. */
            leave(&model, slot, draw(2) == 0);
        else if (queue.count > 0 && draw(2) == 0)
            leave(&model, queue.first, true);
        else
            answer_ends(&model);
        compare(&model);
        if (!plain)
            continue;
        for (uint32_t at = queue.first; at != SCHED_QUEUE_NONE;) {
            uint32_t next = sched_queue_next(fair, at);
            CHECK(next == SCHED_QUEUE_NONE || model.slots[at].serial < model.slots[next].serial);
            at = next;
        }
    }
    sched_accounts_close(fair);
}

/* ---- what is expected of it ---- */

struct user {
    uint64_t key;
    uint32_t weight;
    int32_t priority;
    uint32_t cost_max;
    uint64_t served; /* Tokens served. */
    uint64_t turns;
};

static uint32_t owner[MANY];
static uint64_t cost_of[MANY];

static void ask(struct user *users, uint32_t user, uint32_t slot, int64_t now_us)
{
    struct user *u = &users[user];
    owner[slot] = user;
    cost_of[slot] = 1 + draw(u->cost_max);
    sched_queue_add(
        fair, &queue, slot,
        &(struct sched_ticket){
            .key = u->key, .weight = u->weight, .priority = u->priority, .cost = cost_of[slot]},
        now_us);
}

static uint32_t serve(struct user *users)
{
    uint32_t slot = queue.first;
    CHECK(slot != SCHED_QUEUE_NONE);
    sched_queue_take(fair, &queue, slot);
    users[owner[slot]].served += cost_of[slot];
    users[owner[slot]].turns++;
    return slot;
}

/* All users have waiting requests all the time, one user a hundred and one three, of different
 * sizes. Tokens are shared by weight; users differ by at most two requests. */
static void test_shares(void)
{
    struct user users[] = {{.key = 1, .weight = 1, .cost_max = 300},
                           {.key = 2, .weight = 4, .cost_max = 40},
                           {.key = 3, .weight = 2, .cost_max = 1000}};
    const uint32_t requests[] = {100, 30, 3};
    uint32_t slot = 0;
    open(MANY);
    for (uint32_t u = 0; u < 3; u++)
        for (uint32_t i = 0; i < requests[u]; i++)
            ask(users, u, slot++, 0);
    for (int turn = 0; turn < 50000; turn++) {
        slot = serve(users);
        ask(users, owner[slot], slot, 0);
        double shares[3];
        for (int u = 0; u < 3; u++)
            shares[u] = (double)users[u].served / users[u].weight;
        for (int u = 0; u < 3; u++) /* One request of each user, in tokens of weight 1. */
            CHECKF(shares[u] - shares[0] < 2 * (300 + 1000 / 2) &&
                       shares[0] - shares[u] < 2 * (300 + 1000 / 2),
                   "turn %d: %g, %g, %g", turn, shares[0], shares[1], shares[2]);
    }
    sched_accounts_close(fair);
}

/* One user has one request beside five hundred of another user; a third user was idle. */
static void test_newcomer(void)
{
    struct user users[] = {{.key = 1, .weight = 1, .cost_max = 100},
                           {.key = 2, .weight = 1, .cost_max = 100}};
    open(MANY);
    for (uint32_t slot = 0; slot < 500; slot++)
        ask(users, 0, slot, 0);
    for (int i = 0; i < 100; i++)
        serve(users);
    ask(users, 1, 500, 0);
    for (int i = 0; i < 2 && users[1].turns == 0; i++)
        serve(users);
    CHECK(users[1].turns == 1);
    for (uint32_t slot = 501; slot < 801; slot++) /* A user gathers no credit while idle. */
        ask(users, 1, slot, 0);
    uint64_t before[2] = {users[0].served, users[1].served};
    for (int i = 0; i < 200; i++)
        serve(users);
    int64_t apart = (int64_t)(users[0].served - before[0]) - (int64_t)(users[1].served - before[1]);
    CHECKF(apart < 300 && apart > -300, "%lld tokens apart", (long long)apart);
    sched_accounts_close(fair);
}

/* Urgent requests arrive faster than they can be served. The others are served all the same, each
 * after its ageing, and their users by weight. */
static void test_ageing(void)
{
    struct user users[] = {{.key = 1, .weight = 1, .priority = -5, .cost_max = 10},
                           {.key = 2, .weight = 1, .priority = 0, .cost_max = 10},
                           {.key = 3, .weight = 1, .priority = 9, .cost_max = 10}};
    static int64_t asked_us[MANY];
    const int64_t ageing_us = 1000;
    uint32_t free_slot = 60;
    open(MANY);
    for (uint32_t slot = 0; slot < 60; slot++)
        ask(users, slot % 3, slot, 0);
    memset(asked_us, 0, sizeof(asked_us));
    for (int64_t now_us = 0; now_us < 100000; now_us += 10) {
        sched_queue_age(fair, &queue, ageing_us, now_us);
        uint32_t slot = serve(users);
        /* The request rises by two classes, then waits for the requests of its new class: 60 at
         * most. */
        CHECKF(now_us - asked_us[slot] <= 2 * ageing_us + 60 * 3 * 10, "%lld us",
               (long long)(now_us - asked_us[slot]));
        ask(users, owner[slot], slot, now_us);
        asked_us[slot] = now_us;
        if (now_us == 0) { /* Without ageing only the first class is served. */
            CHECK(owner[slot] == 0);
            ask(users, 0, free_slot, now_us);
            asked_us[free_slot++] = now_us;
        }
    }
    CHECK(users[0].turns > users[1].turns && users[1].turns > 100 && users[2].turns > 100);
    sched_accounts_close(fair);
}

/* There are more keys than the queue remembers. A forgotten key only loses its place. */
static void test_many_keys(void)
{
    open(MANY);
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t slot = 0; slot < MANY; slot++)
            sched_queue_add(fair, &queue, slot,
                            &(struct sched_ticket){.key = random_at(round, slot), .cost = 10}, 0);
        while (queue.count > 0)
            sched_queue_take(fair, &queue, queue.first);
    }
    sched_accounts_close(fair);
}

int main(void)
{
    seed = test_seed();
    for (int i = 0; i < RUNS; i++)
        run(i % 4 == 0);
    test_shares();
    test_newcomer();
    test_ageing();
    test_many_keys();
    return 0;
}
