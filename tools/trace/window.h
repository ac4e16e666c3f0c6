/* trace_window: a part of a trace (the window), with changed speed and lengths. `cleave replay` and
 * `cleave trace` call the functions on the main thread. The caller owns the window and the trace.
 * This part reads no clock and sends nothing. */
#ifndef TOOLS_TRACE_WINDOW_H
#define TOOLS_TRACE_WINDOW_H

#include "tools/trace/trace.h"

enum trace_fit {
    TRACE_FIT_SCALE, /* Shrinks both lengths by one factor, which keeps the shape of the request. */
    /* Cuts the answer to at most half of max_context, and the prompt to the rest. */
    TRACE_FIT_CLIP,
};

struct trace_window {
    double start_s;          /* Time of the trace at which the window begins. */
    double duration_s;       /* Length of the window, in the trace's time; 0 = to the end. */
    double speed;            /* > 0; 2 = twice as fast as the trace. */
    double length_scale;     /* Factor on both lengths. */
    uint64_t requests;       /* Most requests; 0 = all. */
    uint32_t max_context;    /* Most tokens of prompt and answer together; 0 = no limit. */
    enum trace_fit fit;      /* How a request with more than max_context tokens is changed. */
    uint64_t returned_count; /* Requests that trace_window_next has returned; 0 at first. */
};

/* Scales both lengths by length_scale, then fits their sum to max_context (0 = no limit; 1 counts
 * as 2). Each length stays at least 1. */
void trace_fit_lengths(double length_scale, uint32_t max_context, enum trace_fit fit,
                       uint32_t *prompt_tokens, uint32_t *output_tokens);

/* Returns the next row of the window. at_s is counted from the window's begin, at the window's
 * speed. Lengths are changed by trace_fit_lengths. block_tokens is scaled by length_scale, and
 * stays at least 1. ST_NOT_FOUND: the window is over. Other errors are those of trace_next. */
enum status trace_window_next(struct trace_window *window, struct trace *trace,
                              struct trace_row *row_out, struct error *error);

#endif
