/* request: the states of a request's life, the legal transitions between them, and the time stamps
 * that every reported latency is taken from. Pure. Gateway and machines each keep a `struct
 * request_life` for what they see. */
#ifndef SCHEDULER_REQUEST_H
#define SCHEDULER_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

enum request_state {
    REQUEST_QUEUED,       /* known, nothing booked */
    REQUEST_RESERVED,     /* blocks are booked where the answer will be generated */
    REQUEST_PREFILLING,   /* its prompt is in a batch, or between two chunks of it */
    REQUEST_TRANSFERRING, /* the first token is there, KV is still on its way */
    REQUEST_DECODING,
    REQUEST_RESUMING, /* lost its machine or its memory; will be prefilled again */
    REQUEST_DONE,
    REQUEST_FAILED,
    REQUEST_CANCELLED,
    REQUEST_STATE_COUNT
};

const char *request_state_name(enum request_state state); /* "queued" */
bool request_state_legal(enum request_state from, enum request_state to);
static inline bool request_state_ended(enum request_state state)
{
    return state >= REQUEST_DONE;
}

struct request_life {
    enum request_state state;
    int64_t at_us[REQUEST_STATE_COUNT]; /* when each state was entered last; -1: never */
};

void request_life_init(struct request_life *life, int64_t now_us); /* QUEUED */

/* The one function that changes a state: asserts that the transition is legal, and stamps the time.
 */
void request_life_change(struct request_life *life, enum request_state to, int64_t now_us);

#endif
