/* refusals: logs connections that were refused, and leaves out repeated lines. The struct remembers
 * the latest REFUSALS_KEPT lines. Lines that differ only in digits after colons (ports, parts of
 * IPv6 addresses) count as equal. A machine or stage process owns one struct, and calls
 * refusals_log on its event loop thread. This part refuses no peers itself. */
#ifndef MACHINE_EXECUTOR_REFUSALS_H
#define MACHINE_EXECUTOR_REFUSALS_H

#include <stdint.h>

#define REFUSALS_KEPT 8

/* The latest lines. All zeros = nothing was logged yet. */
struct refusals {
    struct {
        char text[256];    /* The line without the digits after colons, cut; empty = unused. */
        int64_t logged_us; /* Time at which the line was last logged; 0 = unused. */
    } lines[REFUSALS_KEPT];
};

/* Logs a refusal, unless a remembered line that is equal was logged in the last ten minutes. text:
 * address or name of the peer, and the reason (transport_events.peer_down). Requires now_us > 0. */
void refusals_log(struct refusals *refusals, const char *text, int64_t now_us);

#endif
