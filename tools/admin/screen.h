/* admin_screen: writes what `cleave top` shows of one gateway, such as its state, problems,
 * latencies and machines, as plain lines. top.c calls the functions on the main thread. The
 * functions keep no state, send no requests, and do not cut lines to the terminal's width. */
#ifndef TOOLS_ADMIN_SCREEN_H
#define TOOLS_ADMIN_SCREEN_H

#include "tools/admin/page.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SCREEN_PHASES 5 /* Phases of a request, from the queue to the first decode step. */

/* Figures of one page of /metrics, counted since the gateway's start. Histograms are in seconds. */
struct screen_sample {
    bool known;    /* false = the other fields are not set. */
    int64_t at_us; /* When the page was read, by clock_system. */
    double prompt_tokens;
    double answer_tokens;
    double ended;       /* Answers that ended, for any reason except a refusal. */
    double refused;     /* Refused requests. */
    double resumed;     /* Resumptions of requests. */
    double preemptions; /* Preemptions on all machines. */
    struct page_histogram ttft;
    struct page_histogram tbt;                   /* Time between tokens. */
    struct page_histogram phases[SCREEN_PHASES]; /* Durations of the phases. */
};

/* Reads a page of /metrics into *out, and sets `known`. */
void screen_sample_read(const char *page, int64_t at_us, struct screen_sample *out);

/* Writes the lines of a gateway. state: the answer to GET /admin/state. gateway_name: the result of
 * admin_client_name. now: the sample of this screen. before: the gateway's sample of the previous
 * screen. Rates, latencies and phases are those since `before`, or since the gateway's start if
 * before->known is false. Refusals, resumptions and preemptions are counted since the gateway's
 * start. */
void screen_write(const json_t *state, const char *gateway_name, const struct screen_sample *now,
                  const struct screen_sample *before, FILE *out);

#endif
