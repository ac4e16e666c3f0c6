/* admin_screen: writes what `cleave top` shows of one gateway, such as its state, problems,
 * latencies and machines, as plain lines. top.c makes every call, on the main thread. top.c sends
 * the requests to the gateways and cuts the lines to the terminal's width. This part keeps no
 * state. */
#ifndef TOOLS_ADMIN_SCREEN_H
#define TOOLS_ADMIN_SCREEN_H

#include "tools/admin/page.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SCREEN_PHASES 5 /* From the queue to the first decode step; screen.c lists them. */

/* Figures of one page of /metrics, counted since the gateway's start. Times are in seconds. */
struct screen_sample {
    bool known;    /* false = there is no sample yet. */
    int64_t at_us; /* When the page was read, by clock_system. */
    double prompt_tokens;
    double answer_tokens;
    double ended;       /* Answers that ended, for any reason. */
    double refused;     /* Refused requests. */
    double resumed;     /* Resumptions. */
    double preemptions; /* Preemptions on all machines. */
    struct page_histogram ttft;
    struct page_histogram between_tokens;
    struct page_histogram phases[SCREEN_PHASES];
};

/* Reads a page of /metrics into *out, and sets `known`. */
void screen_sample_read(const char *page, int64_t at_us, struct screen_sample *out);

/* Writes the lines of a gateway. state: its answer to GET /admin/state. gateway_name:
 * admin_client_name. before: the previous sample, since which rates and latencies are counted; if
 * before->known is false, they are counted since the gateway's start. Refusals, resumptions and
 * preemptions are always counted since the gateway's start. */
void screen_write(const json_t *state, const char *gateway_name, const struct screen_sample *now,
                  const struct screen_sample *before, FILE *out);

#endif
