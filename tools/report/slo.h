/* slo: the nine limits of the Splitwise paper (table VI): how many times slower requests are than
 * on an idle DGX-A100, at P50, P90 and P99 of TTFT, TBT and E2E. Formulas: README of the reference
 * results. One owner. */
#ifndef TOOLS_REPORT_SLO_H
#define TOOLS_REPORT_SLO_H

#include "tools/report/cost_table.h"
#include "tools/report/quantiles.h"

#include <stdbool.h>

enum slo_measure { SLO_TTFT, SLO_TBT, SLO_E2E, SLO_MEASURES };

#define SLO_QUANTILES 3 /* P50, P90 and P99. */

/* All 0 at first, except the reference. */
struct slo {
    /* The model's curve on a DGX-A100; NULL = nothing is counted. */
    const struct cost_curve *reference;
    struct quantiles slower[SLO_MEASURES];
};

struct slo_result {
    double slower[SLO_MEASURES][SLO_QUANTILES];
    bool met; /* All nine slowdowns are below their limits. */
};

extern const double slo_limits[SLO_MEASURES][SLO_QUANTILES];

void slo_add(struct slo *slo, uint32_t prompt_tokens, uint32_t output_tokens, double ttft_s,
             double tbt_s, double e2e_s);
void slo_result(const struct slo *slo, struct slo_result *out);

#endif
