/* plan_try: one mix of machines at one rate: is the SLO met, and what are the latencies. With times
 * of a table it is simulated as the Splitwise paper's simulator would (splitwise.h), with those of
 * a profile as a gateway and its machines serve (plan_profile.h). The inputs are constant, so any
 * number of threads may try at a time. */
#ifndef SIMULATOR_PLAN_TRY_H
#define SIMULATOR_PLAN_TRY_H

#include "common/profile.h"
#include "simulator/machine_split.h"
#include "simulator/plan_requests.h"
#include "simulator/slo.h"
#include "simulator/splitwise.h"
#include "simulator/splitwise_models.h"

#define PLAN_KINDS_MAX 16

struct plan_kind {
    const char *path; /* of its file, the caller's */
    struct hardware hardware;
    struct cost_curve curve;            /* of several devices: of the first one alone */
    struct partition_cluster cluster;   /* of several devices */
    struct machine_split *prompt_split; /* NULL: it has one device */
    struct machine_split *token_split;
};

struct plan_inputs {
    uint32_t kind_count;
    struct plan_kind kinds[PLAN_KINDS_MAX];
    const char *model_name;
    const struct splitwise_model *model; /* of a table; NULL: the profile has the times */
    struct profile *profile;
    uint32_t cores;              /* … and its machines share so many; 0: each has its own */
    struct cost_curve slo_curve; /* of an idle DGX-A100, or machine of the first kind */
    double limits[SLO_MEASURES]
                 [SLO_QUANTILES]; /* slowdowns must be below; the paper's: slo_limits */
    struct plan_requests requests;
};

struct plan_mix {
    uint32_t prompt_kind; /* index in kinds */
    uint32_t token_kind;
    uint32_t prompts;    /* machines; of the baseline: all of them */
    uint32_t tokens;     /* 0: the baseline, machines that do both phases … */
    uint32_t as_prompts; /* … 1: with the split of prompt machines, not of those for tokens */
};

/* The split of the mix's machines for prompts (or for both phases), or for tokens. */
static inline const struct machine_split *plan_mix_split(const struct plan_inputs *inputs,
                                                         const struct plan_mix *mix, bool tokens)
{
    const struct plan_kind *kind = &inputs->kinds[tokens ? mix->token_kind : mix->prompt_kind];
    bool prompts = mix->tokens > 0 ? !tokens : mix->as_prompts;
    return prompts ? kind->prompt_split : kind->token_split;
}

struct plan_outcome {
    bool met;
    struct slo_result slo;
    double worst;                           /* of the nine, slowdown / limit; < 1: met */
    double ms[SLO_MEASURES][SLO_QUANTILES]; /* TTFT, TBT, E2E */
    struct splitwise_totals totals;
};

/* Whether the mix meets the SLO; ends as soon as it cannot any more. */
enum status plan_try_meets(const struct plan_inputs *inputs, const struct plan_mix *mix,
                           double rate_per_s, bool *met_out, struct error *error);
/* The whole run. The verdict is that of plan_try_meets. */
enum status plan_try(const struct plan_inputs *inputs, const struct plan_mix *mix,
                     double rate_per_s, struct plan_outcome *out, struct error *error);
/* And all its times in seconds, TTFT, TBT and E2E. */
enum status plan_try_times(const struct plan_inputs *inputs, const struct plan_mix *mix,
                           double rate_per_s, struct plan_outcome *out,
                           struct quantiles times_out[SLO_MEASURES], struct error *error);
/* The whole run again, for how its machines are used over time: *usage was opened for so many. */
enum status plan_try_usage(const struct plan_inputs *inputs, const struct plan_mix *mix,
                           double rate_per_s, struct sim_usage *usage, struct error *error);

#endif
