/* admin_screen: writes what `cleave top` shows of one gateway: state, problems, requests, rates and
 * latencies since the previous sample, phases of requests, SLO, machines, KV, links. top.c asks the
 * gateways and calls it on the main thread. It writes plain lines, which top.c cuts to the
 * terminal's width. It keeps no state and asks no gateways. */
#ifndef TOOLS_ADMIN_SCREEN_H
#define TOOLS_ADMIN_SCREEN_H

#include "tools/admin/page.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SCREEN_PHASES 5 /* From the queue to the first decode step; screen.c lists them. */

/* Figures of one page of /metrics. Counters and histograms are those since the gateway's start. */
struct screen_sample {
    bool known;    /* false = there is no sample yet. */
    int64_t at_us; /* When the page was read, by clock_system. */
    double prompt_tokens;
    double answer_tokens;
    double ended; /* Answers that ended, for any reason. */
    double refused;
    double resumed;
    double preemptions;
    struct page_histogram ttft;
    struct page_histogram between_tokens;
    struct page_histogram phases[SCREEN_PHASES];
};

/* Reads a page of /metrics into *out, and sets `known`. */
void screen_sample_read(const char *page, int64_t at_us, struct screen_sample *out);

/* Writes the lines of a gateway. state: its answer to GET /admin/state. name: admin_client_name.
 * before: the previous sample; if before->known is false, rates and latencies are those since the
 * gateway's start. The numbers of refused, resumed and preempted requests always are. */
void screen_write(const json_t *state, const char *name, const struct screen_sample *now,
                  const struct screen_sample *before, FILE *out);

#endif
