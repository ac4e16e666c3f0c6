/* trace_window: see the header. */
#include "tools/trace/window.h"

static uint32_t scaled(uint32_t tokens, double scale)
{
    double result = tokens * scale;
    if (result > UINT32_MAX / 4)
        return UINT32_MAX / 4;
    return result < 1 ? 1 : (uint32_t)result;
}

void trace_fit_lengths(double length_scale, uint32_t max_context, enum trace_fit fit,
                       uint32_t *prompt_tokens, uint32_t *output_tokens)
{
    uint32_t prompt = scaled(*prompt_tokens, length_scale);
    uint32_t output = scaled(*output_tokens, length_scale);
    if (max_context > 0 && max_context < 2)
        max_context = 2;
    if (max_context > 0 && prompt + output > max_context) {
        if (fit == TRACE_FIT_SCALE)
            output = scaled(output, (double)max_context / (prompt + output));
        else if (output > max_context / 2)
            output = max_context / 2;
        if (prompt > max_context - output || fit == TRACE_FIT_SCALE)
            prompt = max_context - output;
    }
    *prompt_tokens = prompt;
    *output_tokens = output;
}

static uint32_t block_scaled(uint32_t block_tokens, double length_scale)
{
    double block = block_tokens * length_scale;
    return block < 1 ? 1 : block > UINT32_MAX / 4 ? UINT32_MAX / 4 : (uint32_t)block;
}

enum status trace_window_next(struct trace_window *window, struct trace *trace,
                              struct trace_row *row_out, struct error *error)
{
    struct trace_row row;
    double at_s;
    if (window->requests > 0 && window->returned_count == window->requests)
        return ST_NOT_FOUND;
    do {
        enum status status = trace_next(trace, &row, error);
        if (status != ST_OK)
            return status;
        at_s = row.at_s - window->start_s;
    } while (at_s < 0);
    if (window->duration_s > 0 && at_s >= window->duration_s)
        return ST_NOT_FOUND;
    row.at_s = at_s / window->speed;
    trace_fit_lengths(window->length_scale, window->max_context, window->fit, &row.prompt_tokens,
                      &row.output_tokens);
    row.block_tokens = block_scaled(row.block_tokens, window->length_scale);
    window->returned_count++;
    *row_out = row;
    return ST_OK;
}
