/* request: the states of a request's life, the legal transitions between them, and the time stamps
 * from which every reported latency is taken. The gateway keeps a `struct request_life` for each
 * request. A machine's request tables have states of their own (prompt_pool/prompt_state.h,
 * token_pool/token_state.h). server/gateway/requests.c makes every change, on the gateway's loop
 * thread; other parts only read. Pure: no clock. It sends no messages and decides nothing. */
#ifndef SCHEDULER_REQUEST_H
#define SCHEDULER_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

enum request_state {
    REQUEST_QUEUED,       /* Known; nothing is reserved. */
    REQUEST_RESERVED,     /* Blocks are reserved on the machine that will generate the answer. */
    REQUEST_PREFILLING,   /* Its prompt is in a batch, or between two chunks. */
    REQUEST_TRANSFERRING, /* The first token is generated; KV is still on its way. */
    REQUEST_DECODING,
    REQUEST_RESUMING, /* It lost its machine or its memory and will be prefilled again. */
    REQUEST_DONE,
    REQUEST_FAILED,
    REQUEST_CANCELLED,
    REQUEST_STATE_COUNT
};

const char *request_state_name(enum request_state state); /* For example "queued". */
bool request_state_legal(enum request_state from, enum request_state to);
static inline bool request_state_ended(enum request_state state)
{
    return state >= REQUEST_DONE;
}

struct request_life {
    enum request_state state;
    int64_t at_us[REQUEST_STATE_COUNT]; /* Time at which each state was last entered; -1 = never. */
};

void request_life_init(struct request_life *life, int64_t now_us); /* Enters REQUEST_QUEUED. */

/* Changes the state and stamps the time. Asserts that the transition is legal. No other function
 * changes a state. */
void request_life_change(struct request_life *life, enum request_state to, int64_t now_us);

#endif
