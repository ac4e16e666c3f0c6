/* slo: see the header. */
#include "tools/report/slo.h"

#include <stddef.h>

const double slo_limits[SLO_MEASURES][SLO_QUANTILES] = {
    [SLO_TTFT] = {2, 3, 6},
    [SLO_TBT] = {1.25, 1.5, 5},
    [SLO_E2E] = {1.25, 1.5, 5},
};

static void slowdowns_of(const struct slo *slo, uint32_t prompt_tokens, uint32_t output_tokens,
                         double ttft_s, double tbt_s, double e2e_s, double out[SLO_MEASURES])
{
    double prompt_s = cost_curve_prompts_s(slo->reference, prompt_tokens);
    double token_s = cost_curve_decodes_s(slo->reference, prompt_tokens);
    out[SLO_TTFT] = ttft_s / prompt_s;
    out[SLO_TBT] = tbt_s / token_s;
    out[SLO_E2E] = e2e_s / (prompt_s + token_s * (output_tokens - 1));
}

void slo_request_add(struct slo *slo, uint32_t prompt_tokens, uint32_t output_tokens, double ttft_s,
                     double tbt_s, double e2e_s)
{
    double slowdowns[SLO_MEASURES];
    if (slo->reference == NULL)
        return;
    slowdowns_of(slo, prompt_tokens, output_tokens, ttft_s, tbt_s, e2e_s, slowdowns);
    for (int measure = 0; measure < SLO_MEASURES; measure++)
        quantiles_add(&slo->slowdowns[measure], slowdowns[measure]);
}

bool slo_request_is_below(const struct slo *slo, uint32_t prompt_tokens, uint32_t output_tokens,
                          double ttft_s, double tbt_s, double e2e_s,
                          const double limits[SLO_MEASURES])
{
    double slowdowns[SLO_MEASURES];
    bool below = true;
    slowdowns_of(slo, prompt_tokens, output_tokens, ttft_s, tbt_s, e2e_s, slowdowns);
    for (int measure = 0; measure < SLO_MEASURES; measure++)
        below &= slowdowns[measure] < limits[measure];
    return below;
}

void slo_result(const struct slo *slo, struct slo_result *out)
{
    static const double quantiles[SLO_QUANTILES] = {0.5, 0.9, 0.99};
    out->met = slo->slowdowns[SLO_TTFT].count > 0;
    for (int measure = 0; measure < SLO_MEASURES; measure++)
        for (int i = 0; i < SLO_QUANTILES; i++) {
            double slowdown = quantiles_at(&slo->slowdowns[measure], quantiles[i]);
            out->slowdowns[measure][i] = slowdown;
            out->met &= slowdown < slo_limits[measure][i];
        }
}
