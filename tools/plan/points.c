/* plan_points: see the header. */
#include "tools/plan/points.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDING 1e-9 /* Relative tolerance, because budgets are sums of prices. */

const char *plan_measure_name(enum plan_measure measure)
{
    static const char *const names[] = {
        [PLAN_COST] = "cost",
        [PLAN_POWER] = "power",
        [PLAN_MACHINES] = "machines",
        [PLAN_RATE] = "rate",
    };
    return names[measure];
}

static double kind_amount(const struct plan_inputs *inputs, uint32_t kind,
                          enum plan_measure measure)
{
    const struct hardware *hardware = &inputs->kinds[kind].hardware;
    return measure == PLAN_COST    ? hardware->cost_per_hour
           : measure == PLAN_POWER ? hardware->power
                                   : 1;
}

double plan_mix_amount(const struct plan_inputs *inputs, const struct plan_mix *mix,
                       enum plan_measure measure)
{
    return mix->prompt_count * kind_amount(inputs, mix->prompt_kind, measure) +
           mix->token_count * kind_amount(inputs, mix->token_kind, measure);
}

static uint32_t machines_in(double amount, double each, uint32_t most)
{
    double count = amount * (1 + ROUNDING) / each;
    return !(count >= 1) ? 0 : count >= most ? most : (uint32_t)count;
}

/* ---- the meaning of a value ---- */

static uint32_t needed(const struct plan_point *point, uint32_t value)
{
    return point->value_max + 1 - value;
}

void plan_point_mix_at(const struct plan_search *search, const struct plan_cell *cell,
                       const struct plan_point *point, uint32_t value, struct plan_mix *mix_out,
                       double *rate_out)
{
    *mix_out = (struct plan_mix){.prompt_kind = cell->prompt_kind,
                                 .token_kind = cell->token_kind,
                                 .prompt_count = point->prompts,
                                 .token_count = point->tokens,
                                 .prompt_layer_split = cell->prompt_layer_split};
    *rate_out = cell->fixed == PLAN_RATE ? cell->amount : value * search->step_per_s;
    if (cell->fixed != PLAN_RATE)
        return;
    if (cell->split)
        mix_out->token_count = needed(point, value);
    else
        mix_out->prompt_count = needed(point, value);
}

void plan_point_solved(const struct plan_cell *cell, struct plan_point *point, uint32_t value)
{
    point->boundary = value;
    point->state = PLAN_SOLVED;
    if (cell->fixed == PLAN_RATE && cell->split)
        point->tokens = value > 0 ? needed(point, value) : 0;
}

/* ---- the splits ---- */

static enum status cell_check(const struct plan_inputs *inputs, const struct plan_cell *cell,
                              struct error *error)
{
    enum plan_measure measure = cell->fixed == PLAN_RATE ? cell->minimize : cell->fixed;
    const uint32_t kinds[] = {cell->prompt_kind, cell->token_kind};
    for (int i = 0; i < 2; i++)
        if (kind_amount(inputs, kinds[i], measure) <= 0)
            return error_set(error, ST_INVALID, "hardware %s: %s is missing",
                             inputs->kinds[kinds[i]].hardware.name, plan_measure_name(measure));
    return ST_OK;
}

/* Returns the token machines that can stand beside `prompts` prompt machines; 0 = none fits. */
static uint32_t tokens_beside(const struct plan_search *search, const struct plan_cell *cell,
                              uint32_t prompts)
{
    uint32_t most = search->machines_max;
    if (prompts >= most)
        return 0;
    if (cell->fixed == PLAN_RATE)
        return most - prompts;
    double left = cell->amount * (1 + ROUNDING) -
                  prompts * kind_amount(search->inputs, cell->prompt_kind, cell->fixed);
    return machines_in(left, kind_amount(search->inputs, cell->token_kind, cell->fixed),
                       most - prompts);
}

enum status plan_points_make(const struct plan_search *search, struct plan_cell *cell,
                             struct error *error)
{
    enum status status = cell_check(search->inputs, cell, error);
    if (status != ST_OK)
        return status;
    double each = kind_amount(search->inputs, cell->prompt_kind, cell->fixed);
    uint32_t all = cell->fixed == PLAN_RATE ? search->machines_max
                                            : machines_in(cell->amount, each, search->machines_max);
    uint32_t steps = (uint32_t)floor(search->rate_max / search->step_per_s * (1 + ROUNDING));
    cell->points = calloc((size_t)all + 1, sizeof(cell->points[0]));
    if (cell->points == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    double least = fmin(each, kind_amount(search->inputs, cell->token_kind, cell->fixed));
    cell->machines_cut = cell->fixed != PLAN_RATE &&
                         cell->amount * (1 + ROUNDING) / least >= search->machines_max + 1.0;
    cell->point_count = 0;
    for (uint32_t prompts = cell->split ? 1 : all; prompts <= all && all > 0; prompts++) {
        uint32_t tokens = cell->split ? tokens_beside(search, cell, prompts) : 0;
        if (cell->split && tokens == 0)
            break;
        uint32_t most = cell->fixed != PLAN_RATE ? steps : cell->split ? tokens : all;
        cell->points[cell->point_count++] =
            (struct plan_point){.prompts = prompts, .tokens = tokens, .value_max = most};
    }
    return ST_OK;
}

/* ---- comparing splits ---- */

static double point_amount(const struct plan_inputs *inputs, const struct plan_cell *cell,
                           const struct plan_point *point, uint32_t value)
{
    const struct plan_mix mix = {.prompt_kind = cell->prompt_kind,
                                 .token_kind = cell->token_kind,
                                 .prompt_count =
                                     cell->split ? point->prompts : needed(point, value),
                                 .token_count = cell->split ? needed(point, value) : 0};
    return plan_mix_amount(inputs, &mix, cell->minimize);
}

static bool serves(const struct plan_point *point)
{
    return point->state == PLAN_SOLVED && point->boundary > 0;
}

/* < 0: a is better. */
static double compare(const struct plan_inputs *inputs, const struct plan_cell *cell,
                      const struct plan_point *a, const struct plan_point *b)
{
    if (cell->fixed != PLAN_RATE)
        return (double)b->boundary - (double)a->boundary;
    double difference =
        point_amount(inputs, cell, a, a->boundary) - point_amount(inputs, cell, b, b->boundary);
    return fabs(difference) < ROUNDING ? 0 : difference;
}

const struct plan_point *plan_cell_best(const struct plan_inputs *inputs,
                                        const struct plan_cell *cell)
{
    const struct plan_point *best = NULL;
    for (uint32_t i = 0; i < cell->point_count; i++)
        if (serves(&cell->points[i]) &&
            (best == NULL || compare(inputs, cell, &cell->points[i], best) < 0))
            best = &cell->points[i];
    return best;
}

bool plan_point_equals(const struct plan_inputs *inputs, const struct plan_cell *cell,
                       const struct plan_point *point, const struct plan_point *best)
{
    return serves(point) && compare(inputs, cell, point, best) == 0;
}

uint32_t plan_point_value_wanted(const struct plan_inputs *inputs, const struct plan_cell *cell,
                                 const struct plan_point *point, const struct plan_point *best)
{
    if (cell->fixed != PLAN_RATE)
        return best->boundary;
    double limit = point_amount(inputs, cell, best, best->boundary) + ROUNDING;
    if (point_amount(inputs, cell, point, point->value_max) > limit)
        return point->value_max + 1;
    uint32_t low = 1;
    uint32_t high = point->value_max;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (point_amount(inputs, cell, point, middle) <= limit)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
