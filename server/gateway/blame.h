/* gateway_blame: counts the losses of a request (struct request_blame) and decides when the request
 * must not be tried again, because it is the likely cause of the losses. server/gateway/ calls it
 * on the gateway's event loop thread. This part knows no machines, and changes no states of
 * requests (requests.c does).
 *
 * When a local machine *crashes* (child_crashed, host/child.h, or the kernel killed it for lack of
 * memory), the requests in its running batches become *suspects*. Only one suspect runs on machines
 * at a time, beside requests that are not suspects. So the next crash shows which request is to
 * blame. A suspect is cleared when its client has got BLAME_CLEAR_TOKENS tokens since the crash. A
 * request fails after scheduler/crashes_max crashes without being cleared.
 *
 * Other losses have a weight (enum blame_cause), because they may have another cause than the
 * request. A request fails when the sum of the weights of its losses in a row is at least
 * BLAME_MAX, and the first of these losses is at least BLAME_US_MIN ago. A loss before which
 * the client has got a new token begins a new row. The time does not matter if the latest loss is
 * BLAME_FAILED. */
#ifndef SERVER_GATEWAY_BLAME_H
#define SERVER_GATEWAY_BLAME_H

#include <stdbool.h>
#include <stdint.h>

#define BLAME_CLEAR_TOKENS 16
#define BLAME_MAX          64       /* Sum of the weights. */
#define BLAME_US_MIN       60000000 /* Much longer than the restart of a machine. */

enum blame_cause {
    BLAME_NONE, /* Weight 0: the request cannot be the cause. */
    BLAME_LINK, /* Weight 1: a link broke, or a machine fell silent. */
    /* Weight 8: the connection to a machine that is not local ended while the machine may have
     * computed the request. */
    BLAME_DEATH,
    /* Weight 8: a machine reported an error for this request, or the gateway could not use the
     * request's tokens: a token was missing, or memory ran out. */
    BLAME_FAILED,
};

/* The counts of a request; all zeros at first. */
struct request_blame {
    uint32_t loss_count;   /* Number of losses in a row. */
    uint32_t weight_sum;   /* Sum of the weights of the `loss_count` losses. */
    int64_t first_loss_us; /* Time of the first of the `loss_count` losses. */
    uint32_t loss_tokens;  /* Tokens that the client had at the latest loss. */
    uint32_t crashes;      /* Crashes since the request was cleared; > 0 = suspect. */
    uint32_t crash_tokens; /* Tokens that the client had at the latest crash. */
};

/* Records a loss. delivered: tokens that the client has; if these are more than at the latest loss,
 * the loss begins a new row. Returns true if the request must not be tried again. */
bool blame_loss_add(struct request_blame *blame, enum blame_cause cause, uint32_t delivered,
                    int64_t now_us);

/* Records that a machine crashed while it computed the request. delivered: tokens that the client
 * has. crashes_max: scheduler/crashes_max; 0 = no limit. Returns true if the request must not be
 * tried again. */
bool blame_crash_add(struct request_blame *blame, uint32_t delivered, uint32_t crashes_max);
/* Clears a suspect if its client has got BLAME_CLEAR_TOKENS tokens since the latest crash.
 * delivered: tokens that the client has. Returns true if a suspect was cleared. */
bool blame_clear(struct request_blame *blame, uint32_t delivered);

static inline bool blame_is_suspect(const struct request_blame *blame)
{
    return blame->crashes > 0;
}

#endif
