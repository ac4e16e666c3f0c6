/* request: the states of a request as the gateway reports them to operators, the legal transitions
 * between these states, and the time at which each state was entered. The gateway keeps a struct
 * request_life for each request and makes every change on its event loop thread. Machines have
 * other states for requests (prompt_pool/prompt_state.h, token_pool/token_state.h). Pure: no clock.
 * The functions send no messages and decide nothing. */
#ifndef SCHEDULER_REQUEST_H
#define SCHEDULER_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

enum request_state {
    REQUEST_QUEUED,     /* Nothing is reserved yet. */
    REQUEST_RESERVED,   /* The token machine has reserved blocks. */
    REQUEST_PREFILLING, /* The prompt was sent to its prompt machine. */
    /* The first token of this attempt has arrived. The second token and, of a split request, the
     * prompt machine's message PREFILLED have not arrived. */
    REQUEST_TRANSFERRING,
    /* The second token of this attempt or, of a split request, PREFILLED has arrived. */
    REQUEST_DECODING,
    /* The request waits for machines for its next attempt: the earlier attempt has failed, was
     * preempted, or is handed over. */
    REQUEST_RESUMING,
    REQUEST_DONE,
    REQUEST_FAILED,
    REQUEST_CANCELLED,
    REQUEST_STATE_COUNT
};

/* Returns a lower-case name, such as "queued". */
const char *request_state_name(enum request_state state);
/* Returns true if a request may change from state `from` to state `to`. */
bool request_state_legal(enum request_state from, enum request_state to);
/* Returns true if the request is done, has failed or was cancelled. */
static inline bool request_state_ended(enum request_state state)
{
    return state >= REQUEST_DONE;
}

struct request_life {
    enum request_state state;
    /* Time at which each state was last entered; -1 = never. */
    int64_t entered_us[REQUEST_STATE_COUNT];
};

/* Sets the state to REQUEST_QUEUED, entered at now_us. */
void request_life_init(struct request_life *life, int64_t now_us);

/* Changes the state and records the time. Asserts that the transition is legal. */
void request_life_state_set(struct request_life *life, enum request_state to, int64_t now_us);

#endif
