/* Goal: only the legal transitions between the states of a request (scheduler/request.h) are
 * possible. Method: walks through the states that gateway and machines see, with their time stamps;
 * every pair of states is checked for illegal transitions. */
#include "scheduler/request.h"
#include "tests/check.h"

#include <string.h>

static void walk(const enum request_state *states, int count)
{
    struct request_life life;
    request_life_init(&life, 100);
    CHECK(life.state == REQUEST_QUEUED && life.entered_us[REQUEST_QUEUED] == 100);
    for (int i = 0; i < count; i++) {
        CHECKF(request_state_legal(life.state, states[i]), "%s to %s",
               request_state_name(life.state), request_state_name(states[i]));
        request_life_state_set(&life, states[i], 101 + i);
        CHECK(life.state == states[i] && life.entered_us[states[i]] == 101 + i);
    }
    CHECK(request_state_ended(life.state));
    /* The time of arrival is kept, also for a resumed request. */
    CHECK(life.entered_us[REQUEST_QUEUED] == 100);
}

#define WALK(...)                                                                                  \
    walk((const enum request_state[]){__VA_ARGS__},                                                \
         (int)(sizeof((const enum request_state[]){__VA_ARGS__}) / sizeof(enum request_state)))

int main(void)
{
    WALK(REQUEST_RESERVED, REQUEST_PREFILLING, REQUEST_TRANSFERRING, REQUEST_DECODING,
         REQUEST_DONE);
    WALK(REQUEST_PREFILLING, REQUEST_TRANSFERRING, REQUEST_DONE); /* prompt machine */
    WALK(REQUEST_RESERVED, REQUEST_TRANSFERRING, REQUEST_DECODING,
         REQUEST_DONE);                                                         /* token machine */
    WALK(REQUEST_RESERVED, REQUEST_PREFILLING, REQUEST_DECODING, REQUEST_DONE); /* mixed machine */
    WALK(REQUEST_PREFILLING, REQUEST_DONE);                                     /* scoring only */
    WALK(REQUEST_RESERVED, REQUEST_PREFILLING, REQUEST_TRANSFERRING, REQUEST_DECODING,
         REQUEST_RESUMING, REQUEST_RESERVED, REQUEST_PREFILLING, REQUEST_TRANSFERRING,
         REQUEST_DECODING, REQUEST_CANCELLED);

    for (int from = 0; from < REQUEST_STATE_COUNT; from++) {
        enum request_state state = (enum request_state)from;
        bool ended = from == REQUEST_DONE || from == REQUEST_FAILED || from == REQUEST_CANCELLED;
        CHECK(request_state_ended(state) == ended);
        CHECK(strlen(request_state_name(state)) > 0);
        CHECK(!request_state_legal(state, REQUEST_QUEUED));
        CHECK(!request_state_legal(state, state));
        CHECK(request_state_legal(state, REQUEST_FAILED) == !ended);
        CHECK(request_state_legal(state, REQUEST_CANCELLED) == !ended);
        if (ended) {
            for (int to = 0; to < REQUEST_STATE_COUNT; to++)
                CHECK(!request_state_legal(state, (enum request_state)to));
        }
    }
    CHECK(!request_state_legal(REQUEST_QUEUED, REQUEST_DECODING));
    CHECK(!request_state_legal(REQUEST_QUEUED, REQUEST_DONE));
    CHECK(!request_state_legal(REQUEST_DECODING, REQUEST_PREFILLING));
    CHECK(!request_state_legal(REQUEST_TRANSFERRING, REQUEST_PREFILLING));
    return 0;
}
