/* slo: the nine limits of the Splitwise paper (table VI) for the slowdowns of TTFT, TBT and E2E,
 * each at P50, P90 and P99. A slowdown is a time of a request divided by the time on an idle
 * machine:
 *
 *   TTFT / prompt time      TBT / step time
 *   E2E / (prompt time + step time * (tokens of the answer - 1))
 *
 * The prompt time is cost_curve_prompts_s of the prompt's tokens, with the curve of the idle
 * machine. The step time is cost_curve_decodes_s of the prompt's tokens, with this curve. The
 * paper's idle machine is a DGX-A100. `cleave simulate` and `plan` use this part, each struct on
 * one thread at a time. `cleave replay` uses only slo_limits. Limits in milliseconds are not here
 * (tools/replay/report.h). */
#ifndef TOOLS_REPORT_SLO_H
#define TOOLS_REPORT_SLO_H

#include "tools/report/cost_table.h"
#include "tools/report/quantiles.h"

#include <stdbool.h>

enum slo_measure { SLO_TTFT, SLO_TBT, SLO_E2E, SLO_MEASURES };

#define SLO_QUANTILES 3 /* P50, P90 and P99. */

/* The slowdowns of the requests that were added. At first all fields except `reference` are 0. */
struct slo {
    /* Curve of the idle machine; belongs to the caller. NULL = slo_request_add does nothing. */
    const struct cost_curve *reference;
    struct quantiles slowdowns[SLO_MEASURES];
};

struct slo_result {
    double slowdowns[SLO_MEASURES][SLO_QUANTILES]; /* Slowdowns at the three quantiles. */
    bool met; /* There are requests, and all nine slowdowns are below slo_limits. */
};

/* The limits of the paper, as factors, at P50, P90 and P99. */
extern const double slo_limits[SLO_MEASURES][SLO_QUANTILES];

/* Adds a request that is done; does nothing without a reference. output_tokens: ≥ 1. tbt_s: mean
 * time between the request's tokens; 0 = the answer has one token. */
void slo_request_add(struct slo *slo, uint32_t prompt_tokens, uint32_t output_tokens, double ttft_s,
                     double tbt_s, double e2e_s);
/* Returns true if each slowdown of a request that is done is below its limit. The parameters are
 * those of slo_request_add. Requires slo->reference. */
bool slo_request_is_below(const struct slo *slo, uint32_t prompt_tokens, uint32_t output_tokens,
                          double ttft_s, double tbt_s, double e2e_s,
                          const double limits[SLO_MEASURES]);
/* Computes the slowdowns of all added requests at P50, P90 and P99, and compares them with
 * slo_limits. */
void slo_result(const struct slo *slo, struct slo_result *out);

#endif
