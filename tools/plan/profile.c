/* plan_profile: see the header. */
#include "tools/plan/profile.h"

#include "tools/simulate/sim_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_S 100e-6 /* The same as in `cleave simulate`. */
/* Gives 73 points up to the longest context, close enough to interpolate linearly. */
#define CURVE_STEP 1.21

struct workplace { /* Memory of one run, too large for a stack. */
    struct config config;
    struct sim_machines hosts;
    struct sim_report report;
    struct sim_run_totals totals;
};

void plan_profile_config(struct config *out)
{
    config_default(out);
    snprintf(out->scheduler.policy, sizeof(out->scheduler.policy), "jsq");
}

enum status plan_profile_device(const struct profile *profile, const struct hardware *hardware,
                                const struct profile_device **out, struct error *error)
{
    if (hardware->table_hardware[0] != 0)
        return error_set(error, ST_INVALID,
                         "hardware %s: its times are in a table: want --table instead of --profile",
                         hardware->name);
    *out = sim_machines_device(profile, hardware, error);
    if (*out != NULL)
        return ST_OK;
    error_prefix(error, "hardware %s", hardware->name);
    return ST_NOT_FOUND;
}

void plan_profile_curve(const struct profile *profile, const struct profile_device *device,
                        struct cost_curve *out)
{
    uint32_t layers = profile->model.layer_count;
    *out = (struct cost_curve){.count = 0};
    for (double tokens = 1; tokens <= LIMIT_CONTEXT_TOKENS; tokens *= CURVE_STEP) {
        uint32_t i = out->count++;
        assert(i < COST_TABLE_POINTS);
        out->tokens[i] = tokens;
        out->prompt_s[i] = profile_stage_prompt_us(profile, device, 0, layers, tokens, 0, 1) / 1e6;
        out->token_s[i] = profile_stage_token_us(profile, device, 0, layers, 1, tokens) / 1e6;
    }
}

static enum status machines_add(struct workplace *w, const struct plan_inputs *inputs,
                                const struct plan_mix *mix, bool tokens, struct error *error)
{
    uint32_t count = tokens ? mix->token_count : mix->prompt_count;
    const struct plan_kind *kind = &inputs->kinds[tokens ? mix->token_kind : mix->prompt_kind];
    enum pool pool = tokens ? POOL_TOKEN : mix->token_count > 0 ? POOL_PROMPT : POOL_MIXED;
    if (count == 0)
        return ST_OK;
    enum status status =
        sim_machines_add_kind(&w->hosts, count, pool, &kind->hardware,
                              plan_mix_split(inputs, mix, tokens), &w->config, error);
    if (status != ST_OK)
        error_prefix(error, "%s", kind->path);
    return status;
}

static enum status run(struct workplace *w, const struct plan_inputs *inputs,
                       const struct plan_mix *mix, double rate_per_s,
                       const struct plan_failure_options *failures, struct sim_usage *usage,
                       struct error *error)
{
    struct sim_trace trace;
    struct sim_run_options options = {.machines = &w->hosts,
                                      .config = &w->config,
                                      .message_s = MESSAGE_S,
                                      .cores = inputs->cores,
                                      .failure_s = failures->mtbf_s,
                                      .repair_s = failures->repair_s,
                                      .seed = failures->seed,
                                      .draft_right = inputs->draft_right,
                                      .usage = usage};
    memcpy(options.tiers, inputs->tiers, sizeof(options.tiers));
    plan_profile_config(&w->config);
    w->config.scheduler.speculative_tokens = inputs->draft_tokens;
    snprintf(w->config.kv.checkpoint, sizeof(w->config.kv.checkpoint), "%s", failures->checkpoint);
    w->hosts.profile = inputs->profile;
    enum status status = machines_add(w, inputs, mix, false, error);
    if (status == ST_OK)
        status = machines_add(w, inputs, mix, true, error);
    if (status != ST_OK)
        return status;
    w->hosts.context_tokens = sim_machines_context_tokens(&w->hosts, &w->config);
    plan_requests_at(&inputs->requests, rate_per_s, &trace);
    return sim_run(&options, &trace, &w->report, &w->totals, error);
}

enum status plan_profile_run(const struct plan_inputs *inputs, const struct plan_mix *mix,
                             double rate_per_s, struct slo *slo,
                             struct quantiles seconds_out[SLO_MEASURES], struct sim_usage *usage,
                             struct splitwise_totals *totals, struct error *error)
{
    const struct plan_failure_options none = {.checkpoint = "off", .seed = 1};
    struct workplace *w = calloc(1, sizeof(*w));
    *totals = (struct splitwise_totals){.requests = 0};
    if (w == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status = sim_report_open(&w->report, NULL, true, error);
    w->report.slo.reference = &inputs->slo_curve;
    if (status == ST_OK)
        status = run(w, inputs, mix, rate_per_s, &none, usage, error);
    *slo = w->report.slo;
    seconds_out[SLO_TTFT] = w->report.ttft;
    seconds_out[SLO_TBT] = w->report.tbt;
    seconds_out[SLO_E2E] = w->report.e2e;
    totals->requests = w->report.outcomes[SIM_DONE];
    totals->unended_requests =
        (uint32_t)(w->report.outcomes[SIM_REFUSED] + w->report.outcomes[SIM_FAILED]);
    totals->last_s = w->totals.last_s;
    free(w); /* The profile belongs to the inputs, so the hosts are not closed. */
    return status;
}

enum status plan_profile_goodput(const struct plan_inputs *inputs, const struct plan_mix *mix,
                                 double rate_per_s, const struct plan_failure_options *failures,
                                 struct plan_goodput *out, struct quantiles *pauses,
                                 struct error *error)
{
    struct workplace *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status = sim_report_open(&w->report, NULL, false, error);
    w->report.slo.reference = &inputs->slo_curve;
    for (int measure = 0; measure < SLO_MEASURES; measure++)
        w->report.good_below[measure] = inputs->limits[measure][SLO_QUANTILES - 1];
    if (status == ST_OK)
        status = run(w, inputs, mix, rate_per_s, failures, NULL, error);
    out->good += w->report.good;
    for (uint32_t i = 0; i < w->hosts.count; i++)
        out->failures += w->totals.machines[i].failures;
    out->affected += w->report.affected;
    out->recomputed_tokens += w->report.recomputed_tokens;
    out->copied_bytes += w->totals.copied_bytes;
    quantiles_merge(pauses, &w->report.pause);
    free(w);
    return status;
}
