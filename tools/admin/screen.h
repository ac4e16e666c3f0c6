/* admin_screen: writes what `cleave top` shows of one gateway: state, problems, rates and latencies
 * since the previous sample, phases of requests, SLO, machines, links. top.c takes the samples and
 * calls it on the main thread. It writes plain lines, which top.c cuts to the terminal's width. It
 * asks no gateways. */
#ifndef TOOLS_ADMIN_SCREEN_H
#define TOOLS_ADMIN_SCREEN_H

#include "tools/admin/page.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SCREEN_PHASES 5

/* Figures of one page of /metrics. */
struct screen_sample {
    bool known; /* false = there is no sample yet. */
    int64_t at_us;
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

void screen_sample_read(const char *page, int64_t at_us, struct screen_sample *out);

/* Writes the lines of a gateway. before: the previous sample; if before->known is false, rates and
 * latencies are those since the gateway's start. */
void screen_write(const json_t *state, const char *name, const struct screen_sample *now,
                  const struct screen_sample *before, FILE *out);

#endif
