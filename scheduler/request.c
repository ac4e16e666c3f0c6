/* request: the table of legal transitions. */
#include "scheduler/request.h"

#include <assert.h>

const char *request_state_name(enum request_state state)
{
    static const char *const names[REQUEST_STATE_COUNT] = {
        "queued",   "reserved", "prefilling", "transferring", "decoding",
        "resuming", "done",     "failed",     "cancelled",
    };
    assert(state < REQUEST_STATE_COUNT);
    return names[state];
}

#define TO(state) (1u << REQUEST_##state)
#define TO_STOP   (TO(FAILED) | TO(CANCELLED)) /* Possible at any time. */

/* RESUMING does not go back to QUEUED: that would overwrite the stamp of the request's arrival. */
static const uint32_t legal[REQUEST_STATE_COUNT] = {
    [REQUEST_QUEUED] = TO(RESERVED) | TO(PREFILLING) | TO(RESUMING) | TO_STOP,
    [REQUEST_RESERVED] = TO(PREFILLING) | TO(TRANSFERRING) | TO(DECODING) | TO(RESUMING) | TO_STOP,
    [REQUEST_PREFILLING] = TO(TRANSFERRING) | TO(DECODING) | TO(RESUMING) | TO(DONE) | TO_STOP,
    [REQUEST_TRANSFERRING] = TO(DECODING) | TO(RESUMING) | TO(DONE) | TO_STOP,
    [REQUEST_DECODING] = TO(RESUMING) | TO(DONE) | TO_STOP,
    [REQUEST_RESUMING] = TO(RESERVED) | TO(PREFILLING) | TO_STOP,
};

bool request_state_legal(enum request_state from, enum request_state to)
{
    assert(from < REQUEST_STATE_COUNT && to < REQUEST_STATE_COUNT);
    return (legal[from] & (1u << to)) != 0;
}

void request_life_init(struct request_life *life, int64_t now_us)
{
    life->state = REQUEST_QUEUED;
    for (int state = 0; state < REQUEST_STATE_COUNT; state++)
        life->entered_us[state] = -1;
    life->entered_us[REQUEST_QUEUED] = now_us;
}

void request_life_state_set(struct request_life *life, enum request_state to, int64_t now_us)
{
    assert(request_state_legal(life->state, to));
    life->state = to;
    life->entered_us[to] = now_us;
}
