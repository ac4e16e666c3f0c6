/* slo: the paper's nine-fold objective (Splitwise, table VI): how much slower requests are than on
 * a DGX-A100 that has nothing else to do, at P50, P90 and P99 of the time to the first token, of
 * the time between tokens, and of all of it. Formulas: README of the reference results. One owner.
 */
#ifndef SIMULATOR_SLO_H
#define SIMULATOR_SLO_H

#include "simulator/cost_table.h"
#include "simulator/quantiles.h"

#include <stdbool.h>

enum slo_measure { SLO_TTFT, SLO_TBT, SLO_E2E, SLO_MEASURES };

#define SLO_QUANTILES 3 /* P50, P90, P99 */

struct slo {                            /* all 0, but for the reference */
    const struct cost_curve *reference; /* of the model on a DGX-A100; NULL: nothing is counted */
    struct quantiles slower[SLO_MEASURES];
};

struct slo_result {
    double slower[SLO_MEASURES][SLO_QUANTILES];
    bool met; /* all nine, strictly */
};

extern const double slo_limits[SLO_MEASURES][SLO_QUANTILES];

void slo_add(struct slo *slo, uint32_t prompt_tokens, uint32_t output_tokens, double ttft_s,
             double tbt_s, double e2e_s);
void slo_result(const struct slo *slo, struct slo_result *out);

#endif
