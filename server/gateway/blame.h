/* gateway_blame: which requests are to blame for machines that are lost. It keeps the counts of one
 * request (struct request_blame) and decides when a request may no longer be tried; it knows no
 * machines and changes no states: requests.c does, and makes every call, on the gateway's loop
 * thread.
 *
 * A local machine that *crashes* (child_crashed, host/child.h) leaves the ids of the requests in its
 * running batches (host/batch_record.h). Each of them becomes a *suspect*. Only one suspect is on
 * machines at a time, beside requests that are no suspects, so that the next crash shows who is to
 * blame; the others wait. A suspect that gets BLAME_CLEAR_TOKENS tokens further is none any more.
 * After scheduler/crashes_max crashes without this a request fails.
 *
 * A local machine that was killed from outside, by an operator or a test, counts against no request.
 * Where the cause is not known (a machine of another host, a link, an error that a machine reports),
 * each loss has a weight, and a request fails when the sum, without a token in between, is
 * BLAME_MAX; losses of machines and links must also have lasted for BLAME_US_MIN. */
#ifndef SERVER_GATEWAY_BLAME_H
#define SERVER_GATEWAY_BLAME_H

#include <stdbool.h>
#include <stdint.h>

#define BLAME_CLEAR_TOKENS 16
#define BLAME_MAX          64
#define BLAME_US_MIN       60000000 /* A machine's restart takes up to 5 s. */

enum blame_cause {
    BLAME_NONE,   /* The request cannot be the cause. */
    BLAME_LINK,   /* A link broke, or a machine fell silent: the request hardly caused it. */
    BLAME_DEATH,  /* A machine of another host ended; the request may have caused it. */
    BLAME_FAILED, /* A machine reported an error for this request. */
};

/* The counts of a request; all zeros at first. */
struct request_blame {
    uint32_t losses;       /* Consecutive losses since a token was delivered. */
    uint32_t weight;       /* Sum of their weights. */
    int64_t first_us;      /* Time of the first of them. */
    uint32_t crashes;      /* Crashes of machines since the request was cleared; > 0 = suspect. */
    uint32_t crash_tokens; /* Tokens that the client had at the latest crash. */
};

/* Records a loss. progress: a token was delivered since the previous loss. Returns true if the
 * request must not be tried again. */
bool blame_lost(struct request_blame *blame, enum blame_cause cause, bool progress, int64_t now_us);

/* Records that a machine crashed while it computed the request, of which the client has `delivered`
 * tokens. crashes_max: 0 = no limit. Returns true if the request must not be tried again. */
bool blame_crashed(struct request_blame *blame, uint32_t delivered, uint32_t crashes_max);
/* Clears a suspect that has got far enough. Returns true if it was cleared. */
bool blame_clear(struct request_blame *blame, uint32_t delivered);

static inline bool blame_is_suspect(const struct request_blame *blame)
{
    return blame->crashes > 0;
}

#endif
