/* plan_try: see the header. A run ends early when the number of requests above a limit (by more
 * than one bucket of the quantiles) is so large that the quantile must exceed the limit,
 * independent of the other requests. So the early result is always equal to the result of the whole
 * run. */
#include "tools/plan/try.h"

#include "tools/plan/profile.h"

#include <stdlib.h>
#include <string.h>

#define BUCKET 1.003 /* A bucket is a factor of 1.002 wide. */

static const double quantiles[SLO_QUANTILES] = {0.5, 0.9, 0.99};

struct attempt {
    const struct plan_inputs *inputs;
    struct slo slo;
    struct quantiles seconds[SLO_MEASURES];
    /* Most requests that may exceed a limit before the run stops. */
    double late_most[SLO_QUANTILES];
    double late[SLO_MEASURES][SLO_QUANTILES];
    struct sim_usage *usage; /* NULL = not wanted. */
    bool stop;
    bool brief;
};

static void count_late(struct attempt *a, const struct splitwise_result *result)
{
    const struct cost_curve *curve = a->slo.reference;
    double prompt_s = cost_curve_prompts_s(curve, result->arrival->prompt_tokens);
    double token_s = cost_curve_decodes_s(curve, result->arrival->prompt_tokens);
    const double slower[SLO_MEASURES] = {
        [SLO_TTFT] = result->ttft_s / prompt_s,
        [SLO_TBT] = result->tbt_s / token_s,
        [SLO_E2E] = result->e2e_s / (prompt_s + token_s * (result->arrival->output_tokens - 1)),
    };
    for (int measure = 0; measure < SLO_MEASURES; measure++)
        for (int i = 0; i < SLO_QUANTILES; i++)
            if (slower[measure] > a->inputs->limits[measure][i] * BUCKET &&
                ++a->late[measure][i] > a->late_most[i])
                a->stop = true;
}

static void request_done(void *self, const struct splitwise_result *result)
{
    struct attempt *a = self;
    slo_request_add(&a->slo, result->arrival->prompt_tokens, result->arrival->output_tokens,
                    result->ttft_s, result->tbt_s, result->e2e_s);
    if (a->brief) {
        count_late(a, result);
        return;
    }
    quantiles_add(&a->seconds[SLO_TTFT], result->ttft_s);
    quantiles_add(&a->seconds[SLO_TBT], result->tbt_s);
    quantiles_add(&a->seconds[SLO_E2E], result->e2e_s);
}

/* Fills in the machines in the reference's order: token machines first if they are of another
 * kind. */
static void hosts_fill(const struct plan_inputs *inputs, const struct plan_mix *mix,
                       struct splitwise_machine_kind *hosts, struct sim_usage *usage)
{
    bool tokens_first = mix->token_count > 0 && mix->prompt_kind != mix->token_kind;
    for (uint32_t i = 0; i < mix->prompt_count + mix->token_count; i++) {
        bool prompt = tokens_first ? i >= mix->token_count : i < mix->prompt_count;
        const struct plan_kind *kind = &inputs->kinds[prompt ? mix->prompt_kind : mix->token_kind];
        hosts[i] = (struct splitwise_machine_kind){.home = mix->token_count == 0 ? POOL_MIXED
                                                           : prompt              ? POOL_PROMPT
                                                                                 : POOL_TOKEN,
                                                   .curve = &kind->curve,
                                                   .memory_bytes = kind->hardware.memory_bytes};
        if (usage != NULL)
            snprintf(usage->names[i], sizeof(usage->names[i]), "%.16s-%s-%u", kind->hardware.name,
                     pool_name(hosts[i].home), i);
    }
}

static enum status table_run(const struct plan_inputs *inputs, const struct plan_mix *mix,
                             double rate_per_s, struct attempt *a, struct splitwise_totals *totals,
                             struct error *error)
{
    struct splitwise_setup setup;
    struct sim_trace trace;
    uint32_t count = mix->prompt_count + mix->token_count;
    struct splitwise_machine_kind *hosts = calloc(count, sizeof(hosts[0]));
    if (hosts == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    hosts_fill(inputs, mix, hosts, a->usage);
    splitwise_setup_default(&setup);
    setup.usage = a->usage;
    setup.split = mix->token_count > 0;
    setup.host_count = count;
    setup.hosts = hosts;
    setup.weights_bytes = inputs->model->weights_bytes;
    setup.kv_bytes_per_token = splitwise_kv_bytes_per_token(inputs->model);
    double from = inputs->kinds[mix->prompt_kind].hardware.link_bytes_per_s;
    double to = inputs->kinds[mix->token_kind].hardware.link_bytes_per_s;
    double slower = from > 0 && (to <= 0 || from < to) ? from : to;
    if (slower > 0)
        setup.link_bytes_per_s = slower;
    setup.stop = &a->stop;
    uint64_t requests = plan_requests_count(&inputs->requests, rate_per_s);
    setup.open_max = requests < SCHED_REQUESTS_MAX ? (uint32_t)requests + 1 : 0;
    for (int i = 0; i < SLO_QUANTILES; i++)
        a->late_most[i] = (1 - quantiles[i]) * (double)requests + 1;
    plan_requests_at(&inputs->requests, rate_per_s, &trace);
    enum status status = splitwise_run(&setup, &trace, request_done, a, totals, error);
    free(hosts);
    return status == ST_CANCELLED ? ST_OK : status;
}

static enum status attempt_run(const struct plan_inputs *inputs, const struct plan_mix *mix,
                               double rate_per_s, struct attempt *a,
                               struct splitwise_totals *totals, struct error *error)
{
    a->inputs = inputs;
    a->slo.reference = &inputs->slo_curve;
    if (inputs->profile != NULL)
        return plan_profile_run(inputs, mix, rate_per_s, &a->slo, a->seconds, a->usage, totals,
                                error);
    return table_run(inputs, mix, rate_per_s, a, totals, error);
}

/* Compares with the limits. A request that never ends exceeds every limit. */
static bool verdict(const struct attempt *a, const struct splitwise_totals *totals,
                    struct slo_result *out)
{
    slo_result(&a->slo, out);
    bool met = !a->stop && totals->unended_requests == 0 && totals->requests > 0;
    for (int measure = 0; measure < SLO_MEASURES; measure++)
        for (int i = 0; i < SLO_QUANTILES; i++)
            met &= out->slowdowns[measure][i] < a->inputs->limits[measure][i];
    return met;
}

enum status plan_try_meets(const struct plan_inputs *inputs, const struct plan_mix *mix,
                           double rate_per_s, bool *met_out, struct error *error)
{
    struct splitwise_totals totals;
    struct slo_result slo;
    struct attempt *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    a->brief = true;
    enum status status = attempt_run(inputs, mix, rate_per_s, a, &totals, error);
    *met_out = status == ST_OK && verdict(a, &totals, &slo);
    free(a);
    return status;
}

enum status plan_try_times(const struct plan_inputs *inputs, const struct plan_mix *mix,
                           double rate_per_s, struct plan_outcome *out,
                           struct quantiles times_out[SLO_MEASURES], struct error *error)
{
    *out = (struct plan_outcome){.met = false};
    struct attempt *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status = attempt_run(inputs, mix, rate_per_s, a, &out->totals, error);
    out->met = status == ST_OK && verdict(a, &out->totals, &out->slo);
    out->slo.met = out->met;
    for (int measure = 0; measure < SLO_MEASURES; measure++)
        for (int i = 0; i < SLO_QUANTILES; i++) {
            double share = out->slo.slowdowns[measure][i] / inputs->limits[measure][i];
            out->worst_ratio = share > out->worst_ratio ? share : out->worst_ratio;
            out->ms[measure][i] = 1e3 * quantiles_at(&a->seconds[measure], quantiles[i]);
        }
    if (times_out != NULL)
        memcpy(times_out, a->seconds, sizeof(a->seconds));
    free(a);
    return status;
}

enum status plan_try_usage(const struct plan_inputs *inputs, const struct plan_mix *mix,
                           double rate_per_s, struct sim_usage *usage, struct error *error)
{
    struct splitwise_totals totals;
    struct attempt *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    a->usage = usage;
    enum status status = attempt_run(inputs, mix, rate_per_s, a, &totals, error);
    free(a);
    return status;
}

enum status plan_try(const struct plan_inputs *inputs, const struct plan_mix *mix,
                     double rate_per_s, struct plan_outcome *out, struct error *error)
{
    return plan_try_times(inputs, mix, rate_per_s, out, NULL, error);
}
