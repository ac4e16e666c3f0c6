/* plan_print: see the header. */
#include "tools/plan/print.h"

#include "tools/plan/points.h"

#include <string.h>

static const char *const measure_keys[SLO_MEASURES] = {"ttft", "tbt", "e2e"};
static const char *const quantile_keys[SLO_QUANTILES] = {"p50", "p90", "p99"};

/* E.g. "27 h100 + 3 a100". `out` has 96 bytes. */
static void mix_text(const struct plan_inputs *inputs, const struct plan_mix *mix, char *out)
{
    const char *prompts = inputs->kinds[mix->prompt_kind].hardware.name;
    const char *tokens = inputs->kinds[mix->token_kind].hardware.name;
    if (mix->token_count == 0)
        snprintf(out, 96, "%u %s", mix->prompt_count, prompts);
    else
        snprintf(out, 96, "%u %s + %u %s", mix->prompt_count, prompts, mix->token_count, tokens);
}

/* ---- the table ---- */

static void head_print(const struct plan_search *search, const struct plan_cell *cell, FILE *out)
{
    const struct plan_requests *requests = &search->inputs->requests;
    if (cell->fixed == PLAN_RATE)
        fprintf(out, "%s: at %g requests/s the least %s", cell->fixed_text, cell->amount,
                plan_measure_name(cell->minimize));
    else
        fprintf(out, "%s: with %s %g the most requests/s", cell->fixed_text,
                plan_measure_name(cell->fixed), cell->amount);
    fprintf(out, "; %s on %s, %g s\n", search->inputs->model_name, requests->name,
            requests->duration_s);
    fprintf(out, "%-18s %-24s %6s %8s %7s %4s  %-18s %-18s %-20s %5s\n", "cluster", "machines",
            "rate", "cost/h", "power", "n", "TTFT ms 50/90/99", "TBT ms 50/90/99", "E2E s 50/90/99",
            "SLO");
}

static void cell_print(const struct plan_search *search, const struct plan_cell *cell, FILE *out)
{
    const struct plan_inputs *inputs = search->inputs;
    const struct plan_mix *mix = &cell->best;
    char text[96];
    char times[SLO_MEASURES][48];
    if (cell->point_count == 0) {
        fprintf(out, "%-18s %s %g is less than its machines need\n", cell->name,
                plan_measure_name(cell->fixed), cell->amount);
        return;
    }
    if (!cell->found) {
        fprintf(out, "%-18s none of up to %u machines meets the SLO\n", cell->name,
                search->machines_max);
        return;
    }
    mix_text(inputs, mix, text);
    for (int measure = 0; measure < SLO_MEASURES; measure++) {
        const double *ms = cell->outcome.ms[measure];
        double unit = measure == SLO_E2E ? 1e3 : 1;
        snprintf(times[measure], sizeof(times[0]),
                 measure == SLO_E2E ? "%.2f/%.2f/%.2f" : "%.0f/%.0f/%.0f", ms[0] / unit,
                 ms[1] / unit, ms[2] / unit);
    }
    bool most = cell->fixed != PLAN_RATE &&
                cell->best_rate_per_s + search->step_per_s > search->rate_max * (1 + 1e-9);
    fprintf(out, "%-18s %-24s %s%*g %8.2f %7.1f %4u  %-18s %-18s %-20s %4.0f%%\n", cell->name, text,
            most ? ">=" : "", most ? 4 : 6, cell->best_rate_per_s,
            plan_mix_amount(inputs, mix, PLAN_COST), plan_mix_amount(inputs, mix, PLAN_POWER),
            mix->prompt_count + mix->token_count, times[SLO_TTFT], times[SLO_TBT], times[SLO_E2E],
            100 * cell->outcome.worst_ratio);
}

/* ---- layer splits ---- */

/* Returns true if a plan uses machines with this split. */
static bool is_planned(const struct plan_search *search, const struct machine_split *split)
{
    for (uint32_t c = 0; c < search->cell_count && split != NULL; c++) {
        const struct plan_cell *cell = &search->cells[c];
        for (int tokens = 0; tokens < 2; tokens++)
            if (cell->found && (!tokens || cell->best.token_count > 0) &&
                plan_mix_split(search->inputs, &cell->best, tokens) == split)
                return true;
    }
    return false;
}

static void splits_print(const struct plan_search *search, FILE *out)
{
    for (uint32_t i = 0; i < search->inputs->kind_count; i++) {
        const struct plan_kind *kind = &search->inputs->kinds[i];
        const struct machine_split *const splits[] = {kind->prompt_split, kind->token_split};
        for (int tokens = 0; tokens < 2; tokens++) {
            if (!is_planned(search, splits[tokens]))
                continue;
            fprintf(out, "\nlayers of %s for %s\n", kind->hardware.name,
                    tokens ? "tokens" : "prompts");
            partition_print(&splits[tokens]->result, out);
        }
    }
}

/* ---- failures ---- */

static void goodput_print(const struct plan_cell *cell, const char *mix, const char *failures,
                          const char *checkpoint, const struct plan_goodput *g, FILE *out)
{
    fprintf(out, "%-18s %-24s %8s %10s %8.3g %9llu %9llu %8.0f/%-8.0f %12llu %10.1f\n", cell->name,
            mix, failures, checkpoint, g->good_per_s, (unsigned long long)g->failures,
            (unsigned long long)g->affected, 1e3 * g->pause_s_p50, 1e3 * g->pause_s_p99,
            (unsigned long long)g->recomputed_tokens, (double)g->copied_bytes / 1e6);
}

/* Prints how much goodput failures cost the plans, and how much of it checkpoints save. */
static void failures_print(const struct plan_search *search, FILE *out)
{
    bool first = true;
    for (uint32_t c = 0; c < search->cell_count; c++) {
        const struct plan_cell *cell = &search->cells[c];
        char text[96];
        if (!cell->found || !cell->goodput[PLAN_GOODPUT_FAILURES].known)
            continue;
        if (first)
            fprintf(out, "\n%-18s %-24s %8s %10s %8s %9s %9s %17s %12s %10s\n", "cluster",
                    "machines", "failures", "checkpoint", "good/s", "deaths", "affected",
                    "pause ms P50/P99", "recomputed", "MB copied");
        first = false;
        mix_text(search->inputs, &cell->best, text);
        goodput_print(cell, text, "no", "off", &cell->goodput[PLAN_GOODPUT_NO_FAILURES], out);
        goodput_print(cell, text, "yes", "off", &cell->goodput[PLAN_GOODPUT_FAILURES], out);
        goodput_print(cell, text, "yes", "idle", &cell->goodput[PLAN_GOODPUT_CHECKPOINTS], out);
    }
    if (!first)
        fprintf(out, "good: requests whose three ratios are all below their limits of P99.\n");
}

void plan_print(const struct plan_search *search, FILE *out)
{
    for (uint32_t c = 0; c < search->cell_count; c++) {
        const struct plan_cell *cell = &search->cells[c];
        if (c == 0 || cell->fixed_text != search->cells[c - 1].fixed_text) {
            fprintf(out, "%s", c > 0 ? "\n" : "");
            head_print(search, cell, out);
        }
        cell_print(search, cell, out);
    }
    fprintf(out, "\nSLO: the largest of nine ratios of a time to its limit.\n");
    for (uint32_t c = 0; c < search->cell_count; c++)
        if (search->cells[c].machines_cut)
            fprintf(out, "%s, %s: has room for more machines than --machines-most %u.\n",
                    search->cells[c].fixed_text, search->cells[c].name, search->machines_max);
    failures_print(search, out);
    splits_print(search, out);
}

/* ---- JSON ---- */

static json_t *nine_json(const double values[SLO_MEASURES][SLO_QUANTILES])
{
    json_t *json = json_object();
    for (int measure = 0; measure < SLO_MEASURES; measure++) {
        json_t *one = json_object();
        for (int i = 0; i < SLO_QUANTILES; i++)
            json_object_set_new(one, quantile_keys[i], json_real(values[measure][i]));
        json_object_set_new(json, measure_keys[measure], one);
    }
    return json;
}

static json_t *mix_json(const struct plan_inputs *inputs, const struct plan_mix *mix)
{
    json_t *json = json_pack("{s:s, s:I, s:I, s:f, s:f}", "prompt_hardware",
                             inputs->kinds[mix->prompt_kind].hardware.name, "prompt_machines",
                             (json_int_t)mix->prompt_count, "machines",
                             (json_int_t)(mix->prompt_count + mix->token_count), "cost_per_hour",
                             plan_mix_amount(inputs, mix, PLAN_COST), "power",
                             plan_mix_amount(inputs, mix, PLAN_POWER));
    const struct machine_split *split = plan_mix_split(inputs, mix, false);
    if (json != NULL && split != NULL)
        json_object_set_new(json, "prompt_layers", partition_json(&split->result));
    if (json == NULL || mix->token_count == 0)
        return json;
    split = plan_mix_split(inputs, mix, true);
    if (split != NULL)
        json_object_set_new(json, "token_layers", partition_json(&split->result));
    json_object_set_new(json, "token_hardware",
                        json_string(inputs->kinds[mix->token_kind].hardware.name));
    json_object_set_new(json, "token_machines", json_integer(mix->token_count));
    return json;
}

static json_t *goodput_json(const struct plan_goodput *g)
{
    return json_pack("{s:f, s:I, s:I, s:f, s:f, s:I, s:I}", "good_per_s", g->good_per_s, "failures",
                     (json_int_t)g->failures, "affected", (json_int_t)g->affected, "pause_s_p50",
                     g->pause_s_p50, "pause_s_p99", g->pause_s_p99, "recomputed_tokens",
                     (json_int_t)g->recomputed_tokens, "copied_bytes", (json_int_t)g->copied_bytes);
}

/* Lists the boundary of each solved split: prompt machines, token machines, rate. */
static json_t *points_json(const struct plan_search *search, const struct plan_cell *cell)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < cell->point_count; i++) {
        const struct plan_point *point = &cell->points[i];
        struct plan_mix mix;
        double rate_per_s = 0;
        if (point->state != PLAN_SOLVED)
            continue;
        if (point->boundary == 0) {
            json_array_append_new(list, json_pack("[I, I, f]", (json_int_t)point->prompts,
                                                  (json_int_t)point->tokens, 0.0));
            continue;
        }
        plan_point_mix_at(search, cell, point, point->boundary, &mix, &rate_per_s);
        json_array_append_new(list, json_pack("[I, I, f]", (json_int_t)mix.prompt_count,
                                              (json_int_t)mix.token_count, rate_per_s));
    }
    return list;
}

static json_t *cell_json(const struct plan_search *search, const struct plan_cell *cell)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:f, s:b}", "cluster", cell->name, "fixed",
                             cell->fixed_text, "fixed_quantity", plan_measure_name(cell->fixed),
                             "amount", cell->amount, "split", cell->split);
    if (json == NULL)
        return NULL;
    if (cell->fixed == PLAN_RATE)
        json_object_set_new(json, "least", json_string(plan_measure_name(cell->minimize)));
    json_object_set_new(json, "splits", points_json(search, cell));
    if (!cell->found) {
        json_object_set_new(json, "plan", json_null());
        return json;
    }
    json_t *plan = mix_json(search->inputs, &cell->best);
    json_object_set_new(plan, "rate_per_s", json_real(cell->best_rate_per_s));
    json_object_set_new(plan, "requests", json_integer((json_int_t)cell->outcome.totals.requests));
    json_object_set_new(plan, "ms", nine_json(cell->outcome.ms));
    json_object_set_new(plan, "slowdown", nine_json(cell->outcome.slo.slowdowns));
    json_object_set_new(plan, "worst_of_limit", json_real(cell->outcome.worst_ratio));
    if (cell->goodput[PLAN_GOODPUT_FAILURES].known)
        json_object_set_new(plan, "goodput",
                            json_pack("{s:o, s:o, s:o}", "no_failures",
                                      goodput_json(&cell->goodput[PLAN_GOODPUT_NO_FAILURES]),
                                      "failures",
                                      goodput_json(&cell->goodput[PLAN_GOODPUT_FAILURES]),
                                      "failures_checkpoint_idle",
                                      goodput_json(&cell->goodput[PLAN_GOODPUT_CHECKPOINTS])));
    json_object_set_new(json, "plan", plan);
    return json;
}

json_t *plan_json(const struct plan_search *search)
{
    const struct plan_inputs *inputs = search->inputs;
    json_t *cells = json_array();
    for (uint32_t c = 0; c < search->cell_count; c++)
        json_array_append_new(cells, cell_json(search, &search->cells[c]));
    json_t *json = json_pack("{s:s, s:s, s:f, s:f, s:o}", "model", inputs->model_name, "requests",
                             inputs->requests.name, "duration_s", inputs->requests.duration_s,
                             "step_per_s", search->step_per_s, "plans", cells);
    if (json != NULL)
        json_object_set_new(json, "limits", nine_json(inputs->limits));
    return json;
}
