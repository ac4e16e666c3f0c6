/* refusals: logs connections that were refused, without flooding the log. A refused peer tries
 * again every few seconds, perhaps for days. So a line is not written if one of the latest
 * REFUSALS_KEPT different lines is the same except for port numbers, and was written less than ten
 * minutes ago. Each machine (machine/peers.c) and each stage process (stage_peers.c) has one
 * struct, and calls refusals_log on its event loop thread. This part refuses no peers itself. */
#ifndef MACHINE_EXECUTOR_REFUSALS_H
#define MACHINE_EXECUTOR_REFUSALS_H

#include <stdint.h>

#define REFUSALS_KEPT 8

/* The latest lines. All zeros = nothing was logged yet. */
struct refusals {
    struct {
        char text[256];    /* The line without port numbers; empty = unused. */
        int64_t logged_us; /* Time at which the line was logged. */
    } lines[REFUSALS_KEPT];
    uint32_t oldest; /* Index of the oldest line, which is replaced next. */
};

/* Logs a refusal. `text` is the text of the transport's peer_down: address or name of the peer, and
 * the reason. */
void refusals_log(struct refusals *refusals, const char *text, int64_t now_us);

#endif
