/* refusals: logs connections that were refused, without flooding the log. A refused peer tries
 * again every few seconds, perhaps for days. So this part remembers the latest REFUSALS_KEPT
 * different lines that it wrote, and does not write a line again within ten minutes. It compares
 * lines without the digits after colons (port numbers, and parts of IPv6 addresses). If its memory
 * is full, a new line takes the place of the line that was written longest ago. Each machine
 * (machine/peers.c) and each stage process (stage_peers.c) has one struct, and calls refusals_log
 * on its event loop thread. This part refuses no peers itself. */
#ifndef MACHINE_EXECUTOR_REFUSALS_H
#define MACHINE_EXECUTOR_REFUSALS_H

#include <stdint.h>

#define REFUSALS_KEPT 8

/* The latest lines. All zeros = nothing was logged yet. */
struct refusals {
    struct {
        char text[256];    /* The line without the digits after colons; empty = unused. */
        int64_t logged_us; /* Time at which the line was last logged; 0 = unused. */
    } lines[REFUSALS_KEPT];
};

/* Logs a refusal, unless an equal line was logged in the last ten minutes. `text` is the text of
 * the transport's peer_down: address or name of the peer, and the reason. Requires now_us > 0. */
void refusals_log(struct refusals *refusals, const char *text, int64_t now_us);

#endif
