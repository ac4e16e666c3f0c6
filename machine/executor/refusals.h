/* refusals: logs peers that were refused. A peer tries again every few seconds, for days, so a line
 * that differs only in the peer's port from a line of the last ten minutes is left out. A machine
 * and a stage process have one each; their event loop threads call it. */
#ifndef MACHINE_EXECUTOR_REFUSALS_H
#define MACHINE_EXECUTOR_REFUSALS_H

#include <stdint.h>

#define REFUSALS_KEPT 8

struct refusals { /* All zero: nothing was logged yet. */
    struct {
        char text[256]; /* Without port numbers; empty = unused. */
        int64_t logged_us;
    } last[REFUSALS_KEPT];
    uint32_t next; /* The oldest one, which is replaced next. */
};

/* `text` is that of the transport's peer_down: address or name of the peer, and the reason. */
void refusals_log(struct refusals *refusals, const char *text, int64_t now_us);

#endif
