/* profile: times between the measured points. Cells of a grid are interpolated bilinearly. Outside
 * the grid, the slopes of the outermost cells continue, but a slope is never smaller than the
 * slopes before it along the other axis; so no time ever falls. */
#include "profile/profile.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXPERTS_GROW_MIN 1.0 /* Experts. */

/* Returns the segment of an ascending axis that contains x, or the nearest one, and the position of
 * x in the segment (0 to 1 inside). An axis of one point has segment 0 and position 0. */
static uint32_t segment_of(const double *axis, uint32_t count, double x, double *place)
{
    uint32_t i = 0;
    *place = 0;
    if (count == 1)
        return 0;
    while (i + 2 < count && x >= axis[i + 1])
        i++;
    *place = (x - axis[i]) / (axis[i + 1] - axis[i]);
    return i;
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double mix(double a, double b, double place)
{
    return a + (b - a) * place;
}

/* Time within the measured points. */
static double inside(const struct profile_grid *g, double rows, double context)
{
    double row_place, context_place;
    uint32_t r = segment_of(g->rows, g->row_count, rows, &row_place);
    uint32_t c = segment_of(g->contexts, g->context_count, context, &context_place);
    uint32_t r2 = r + (g->row_count > 1), c2 = c + (g->context_count > 1);
    return mix(mix(g->us[r][c], g->us[r][c2], context_place),
               mix(g->us[r2][c], g->us[r2][c2], context_place), row_place);
}

/* Time per row beyond the last one, at context index c: at least the slopes at lower contexts. */
static double row_slope_at(const struct profile_grid *g, uint32_t c)
{
    const uint32_t last = g->row_count - 1;
    double slope = 0;
    for (uint32_t i = 0; g->row_count > 1 && i <= c; i++)
        slope = fmax(slope,
                     (g->us[last][i] - g->us[last - 1][i]) / (g->rows[last] - g->rows[last - 1]));
    return slope;
}

static double row_slope(const struct profile_grid *g, double context)
{
    double place;
    uint32_t c = segment_of(g->contexts, g->context_count, context, &place);
    return mix(row_slope_at(g, c), row_slope_at(g, c + (g->context_count > 1)), place);
}

/* Time per token of context beyond the last one, at row index r: at least the slopes at fewer
 * rows. */
static double context_slope_at(const struct profile_grid *g, uint32_t r)
{
    const uint32_t last = g->context_count - 1;
    double slope = 0;
    for (uint32_t i = 0; g->context_count > 1 && i <= r; i++)
        slope = fmax(slope, (g->us[i][last] - g->us[i][last - 1]) /
                                (g->contexts[last] - g->contexts[last - 1]));
    return slope;
}

static double context_slope(const struct profile_grid *g, double rows)
{
    double place;
    uint32_t r = segment_of(g->rows, g->row_count, rows, &place);
    return mix(context_slope_at(g, r), context_slope_at(g, r + (g->row_count > 1)), place);
}

/* Extra time per row and token of context, beyond both last points. */
static double both_slope(const struct profile_grid *g)
{
    const uint32_t r = g->row_count - 1, c = g->context_count - 1;
    if (r == 0 || c == 0)
        return 0;
    double before = g->us[r][c - 1] - g->us[r - 1][c - 1], after = g->us[r][c] - g->us[r - 1][c];
    return fmax(0, (after - before) /
                       ((g->rows[r] - g->rows[r - 1]) * (g->contexts[c] - g->contexts[c - 1])));
}

double profile_grid_us(const struct profile_grid *g, double rows, double context)
{
    rows = fmax(rows, g->rows[0]);
    if (context < g->contexts[0]) {
        if (g->context_count == 1)
            return profile_grid_us(g, rows, g->contexts[0]);
        double at = profile_grid_us(g, rows, g->contexts[0]);
        double next = profile_grid_us(g, rows, g->contexts[1]);
        double slope = (next - at) / (g->contexts[1] - g->contexts[0]);
        return fmax(0, at - slope * (g->contexts[0] - context));
    }
    double row_end = g->rows[g->row_count - 1];
    double context_end = g->contexts[g->context_count - 1];
    double row_in = clamp(rows, g->rows[0], row_end);
    double context_in = clamp(context, g->contexts[0], context_end);
    double row_beyond = rows - row_in, context_beyond = context - context_in;
    return inside(g, row_in, context_in) + row_beyond * row_slope(g, context_in) +
           context_beyond * context_slope(g, row_in) + row_beyond * context_beyond * both_slope(g);
}

double profile_curve_us(const struct profile_curve *curve, double rows)
{
    double place;
    uint32_t i = segment_of(curve->rows, curve->row_count, fmax(rows, curve->rows[0]), &place);
    return mix(curve->us[i], curve->us[i + (curve->row_count > 1)], place);
}

static const struct profile_layer *layer_of(const struct profile_device *d, uint32_t layer)
{
    return &d->layers[d->layer_count == 1 ? 0 : layer];
}

double profile_prompt_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                         uint32_t last, double tokens, double context)
{
    assert(first <= last && last <= p->model.layer_count);
    double sum = 0;
    uint32_t end = last;
    context = fmax(context, -tokens / 2);
    if (last == p->model.layer_count && first < last) {
        sum = profile_grid_us(&d->last_layer_prompt, tokens, context);
        end = last - 1;
    }
    if (d->layer_count == 1)
        return sum + (end - first) * profile_grid_us(&d->layers[0].prompt, tokens, context);
    for (uint32_t i = first; i < end; i++)
        sum += profile_grid_us(&layer_of(d, i)->prompt, tokens, context);
    return sum;
}

double profile_experts_expected(const struct profile *p, double rows)
{
    const struct profile_experts *e = &p->model.experts;
    return e->count * (1 - pow(1 - (double)e->used / e->count, rows));
}

/* Returns the rows at which to read a grid of decode steps. With experts, the time between two
 * measured points grows like the number of chosen experts, i.e. more with the first rows. */
static double rows_placed(const struct profile *p, const struct profile_grid *g, double rows)
{
    double place;
    if (p->model.experts.count == 0 || rows <= g->rows[0] || rows >= g->rows[g->row_count - 1])
        return rows;
    const uint32_t i = segment_of(g->rows, g->row_count, rows, &place);
    const double before = profile_experts_expected(p, g->rows[i]);
    const double all = profile_experts_expected(p, g->rows[i + 1]) - before;
    /* Where all experts are chosen, nothing is left to grow. */
    if (all < EXPERTS_GROW_MIN)
        return rows;
    return mix(g->rows[i], g->rows[i + 1], (profile_experts_expected(p, rows) - before) / all);
}

static double token_grid_us(const struct profile *p, const struct profile_grid *g, double rows,
                            double context)
{
    return profile_grid_us(g, rows_placed(p, g, rows), context);
}

double profile_token_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                        uint32_t last, double batch, double context)
{
    assert(first <= last && last <= p->model.layer_count);
    double sum = 0;
    if (d->layer_count == 1)
        return (last - first) * token_grid_us(p, &d->layers[0].token, batch, context);
    for (uint32_t i = first; i < last; i++)
        sum += token_grid_us(p, &layer_of(d, i)->token, batch, context);
    return sum;
}

double profile_batch_context(const uint32_t *tokens, const uint32_t *contexts, uint32_t count)
{
    /* Positions that attention reads, which include half of the triangle of the prompt itself. */
    double sum = 0, looked_at = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += tokens[i];
        looked_at += tokens[i] * (contexts[i] + tokens[i] / 2.0);
    }
    return sum > 0 ? looked_at / sum - sum / 2 : 0;
}

double profile_stage_prompt_us(const struct profile *p, const struct profile_device *d,
                               uint32_t first, uint32_t last, double tokens, double context,
                               double sampled)
{
    double us = d->batch_us + profile_prompt_us(p, d, first, last, tokens, context);
    if (first == 0)
        us += profile_curve_us(&d->embedding, tokens);
    if (last == p->model.layer_count && sampled > 0)
        us += profile_curve_us(&d->vocabulary, sampled);
    return us;
}

double profile_stage_token_us(const struct profile *p, const struct profile_device *d,
                              uint32_t first, uint32_t last, double batch, double context)
{
    double us = d->batch_us + profile_token_us(p, d, first, last, batch, context);
    if (first == 0)
        us += profile_curve_us(&d->embedding, batch);
    if (last == p->model.layer_count)
        us += profile_curve_us(&d->vocabulary, batch);
    return us;
}

/* Positions that attention reads for the prompts are spread over all rows. */
double profile_stage_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                        uint32_t last, const struct profile_work *work)
{
    const double prompts = work->prompt_tokens, decodes = work->decodes, rows = prompts + decodes;
    if (decodes == 0)
        return prompts > 0 ? profile_stage_prompt_us(p, d, first, last, prompts,
                                                     work->prompt_context, work->prompts_ending)
                           : 0;
    if (prompts == 0)
        return profile_stage_token_us(p, d, first, last, decodes, work->decode_context);
    const double context = prompts / rows * (work->prompt_context + prompts / 2) - rows / 2;
    return profile_stage_prompt_us(p, d, first, last, rows, context,
                                   work->prompts_ending + decodes) +
           profile_token_us(p, d, first, last, decodes, work->decode_context) -
           profile_token_us(p, d, first, last, decodes, 0);
}

uint64_t profile_kv_block_token_bytes(const struct profile *p)
{
    return p->model.kv_bytes_per_token *
           layer_groups_layer_rows(&p->model.groups, 0, p->model.layer_count);
}

uint32_t profile_windowed_layers(const struct profile *p)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->model.layer_count; i++)
        count +=
            layer_groups_windowed(&p->model.groups, layer_groups_group_of(&p->model.groups, i));
    return count;
}

uint64_t profile_tied_bytes(const struct profile *p)
{
    uint64_t embedding = p->model.embedding_bytes, vocabulary = p->model.vocabulary_bytes;
    if (!p->model.tied)
        return 0;
    return embedding < vocabulary ? embedding : vocabulary;
}

uint64_t profile_stage_weight_bytes(const struct profile *p, uint32_t first, uint32_t last)
{
    assert(first <= last && last <= p->model.layer_count);
    bool with_first = first == 0, with_last = last == p->model.layer_count;
    uint64_t bytes = with_first ? p->model.embedding_bytes : 0;
    if (with_last)
        bytes += p->model.vocabulary_bytes;
    if (with_first && with_last)
        bytes -= profile_tied_bytes(p);
    for (uint32_t i = first; i < last; i++)
        bytes += p->model.layer_weight_bytes[i];
    return bytes;
}

/* Beyond the measured rows, the chosen experts grow as much as with uniform routing. */
double profile_experts_chosen(const struct profile *p, double rows)
{
    const struct profile_experts *e = &p->model.experts;
    if (e->row_count == 0)
        return profile_experts_expected(p, rows);
    const double within = clamp(rows, e->rows[0], e->rows[e->row_count - 1]);
    const double more =
        rows > within ? profile_experts_expected(p, rows) - profile_experts_expected(p, within) : 0;
    double place;
    uint32_t i = segment_of(e->rows, e->row_count, within, &place);
    return fmin(e->count, mix(e->chosen[i], e->chosen[i + (e->row_count > 1)], place) + more);
}

double profile_layer_read_bytes(const struct profile *p, uint32_t layer, double rows)
{
    const struct profile_experts *e = &p->model.experts;
    const double all = (double)p->model.layer_weight_bytes[layer];
    const double experts = (double)e->bytes * e->count;
    /* The first layers of some models have no experts. */
    if (e->count == 0 || all < experts)
        return all;
    return all - experts + (double)e->bytes * profile_experts_chosen(p, rows);
}

double profile_link_us(const struct profile_link *link, double bytes)
{
    return link->latency_us + bytes / link->bandwidth_bytes_per_s * 1e6;
}

const struct profile_device *profile_device_find_on(const struct profile *p, const char *kind,
                                                    uint32_t threads, uint32_t ranks,
                                                    const char *host)
{
    const struct profile_device *found = NULL;
    for (uint32_t i = 0; i < p->device_count; i++) {
        const struct profile_device *d = &p->devices[i];
        if (strcmp(d->kind, kind) == 0 && d->threads == threads && d->ranks == ranks &&
            (host[0] == 0 || strcmp(d->host, host) == 0) &&
            (found == NULL || d->busy_devices < found->busy_devices))
            found = d;
    }
    return found;
}

const struct profile_device *profile_device_find_default(const struct profile *p, const char *kind,
                                                         uint32_t threads, uint32_t ranks,
                                                         const char *host)
{
    const struct profile_device *device = profile_device_find_on(p, kind, threads, ranks, host);
    if (device == NULL)
        device = profile_device_find_on(p, kind, 0, ranks, host);
    if (device != NULL || threads > 0)
        return device;
    for (uint32_t i = 0; i < p->device_count; i++) {
        const struct profile_device *d = &p->devices[i];
        if (strcmp(d->kind, kind) == 0 && d->threads > threads && d->ranks == ranks &&
            (host[0] == 0 || strcmp(d->host, host) == 0))
            threads = d->threads;
    }
    return profile_device_find_on(p, kind, threads, ranks, host);
}

const struct profile_device *profile_device_find_ranks(const struct profile *p,
                                                       const struct profile_device *device,
                                                       uint32_t ranks)
{
    return profile_device_find_on(p, device->kind, device->threads * ranks, ranks, device->host);
}

const struct profile_device *profile_device_find_busy(const struct profile *p,
                                                      const struct profile_device *device)
{
    const struct profile_device *found = NULL;
    for (uint32_t i = 0; i < p->device_count; i++) {
        const struct profile_device *d = &p->devices[i];
        if (d->busy_devices > 0 && strcmp(d->kind, device->kind) == 0 &&
            d->threads == device->threads && d->ranks == device->ranks &&
            strcmp(d->host, device->host) == 0 &&
            (found == NULL || d->busy_devices < found->busy_devices))
            found = d;
    }
    return found;
}

const struct profile_link *profile_link_find(const struct profile *p, const char *from,
                                             const char *to, const char *transport)
{
    const struct profile_link *best = NULL;
    for (uint32_t i = 0; i < p->link_count; i++) {
        const struct profile_link *l = &p->links[i];
        bool ends = (strcmp(l->from, from) == 0 && strcmp(l->to, to) == 0) ||
                    (strcmp(l->from, to) == 0 && strcmp(l->to, from) == 0);
        if (!ends || (transport != NULL && strcmp(l->transport, transport) != 0))
            continue;
        if (best == NULL || l->bandwidth_bytes_per_s > best->bandwidth_bytes_per_s)
            best = l;
    }
    return best;
}

void profile_close(struct profile *p)
{
    if (p == NULL)
        return;
    for (uint32_t i = 0; i < p->device_count; i++)
        free(p->devices[i].layers);
    free(p);
}
