/* trace_window: which part of a trace is used, how fast, and with which lengths: what a replay
 * sends and what a simulation of that replay must be given. Owns nothing but a count. */
#ifndef SIMULATOR_TRACE_WINDOW_H
#define SIMULATOR_TRACE_WINDOW_H

#include "simulator/trace.h"

enum trace_fit {
    TRACE_FIT_SCALE, /* both lengths shrink by one factor: the shape of the request stays */
    TRACE_FIT_CLIP,  /* the answer keeps up to half of the context, the prompt gets the rest */
};

struct trace_window {
    double start_s;
    double duration_s; /* of the trace; 0: to the end */
    double speed;      /* 2: twice as fast as the trace; > 0 */
    double length_scale;
    uint64_t requests;    /* at most; 0: all */
    uint32_t max_context; /* of prompt and answer; 0: no limit */
    enum trace_fit fit;
    uint64_t given; /* 0 at first */
};

/* Scales both lengths, then makes their sum at most `max_context` (0: no limit). At least 1 each.
 */
void trace_fit_lengths(double length_scale, uint32_t max_context, enum trace_fit fit,
                       uint32_t *prompt_tokens, uint32_t *output_tokens);

/* The next row of the window: at_s is seconds after its beginning, at its speed, and lengths are
 * fitted; blocks are the trace's. ST_NOT_FOUND when it is over; otherwise as trace_next. */
enum status trace_window_next(struct trace_window *window, struct trace *trace,
                              struct trace_row *row_out, struct error *error);

/* How many tokens a block of the row stands for now: as much less as lengths are, so that what
 * requests share stays the same part of them. */
uint32_t trace_window_block_tokens(const struct trace_window *window);

#endif
