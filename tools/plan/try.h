/* plan_try: simulates one mix of machines at one rate, and says whether the SLO is met and what the
 * latencies are. With times from a table, the functions simulate like the Splitwise paper's
 * simulator (splitwise.h); with times from a profile, like a gateway and its machines (profile.h).
 * `cleave plan` calls the functions, on the main thread and on the threads of a search. The
 * functions have no state: several threads may call them at the same time. search.h chooses the
 * mixes and rates, and memo.h remembers the results. */
#ifndef TOOLS_PLAN_TRY_H
#define TOOLS_PLAN_TRY_H

#include "profile/profile.h"
#include "tools/plan/requests.h"
#include "tools/report/slo.h"
#include "tools/simulate/machine_split.h"
#include "tools/simulate/sim_tier.h"
#include "tools/simulate/splitwise/models.h"
#include "tools/simulate/splitwise/splitwise.h"

#define PLAN_KINDS_MAX 16

/* A kind of machine. */
struct plan_kind {
    char path[LIMIT_PATH_BYTES]; /* Path of the hardware file. */
    struct hardware hardware;
    /* Times of an idle machine. With several devices: times of the first device alone. */
    struct cost_curve curve;
    struct partition_cluster cluster; /* Devices and links; only for several devices. */
    /* Layer split of prompt machines. NULL = one device, or the times come from a table. */
    struct machine_split *prompt_split;
    /* Layer split of token machines. NULL = as for prompt_split. */
    struct machine_split *token_split;
};

struct plan_inputs {
    uint32_t kind_count;
    struct plan_kind kinds[PLAN_KINDS_MAX];
    const char *model_name; /* Name of `model`, or of the profile's model. */
    /* Model of the table; NULL = the times come from `profile`. */
    const struct splitwise_model *model;
    struct profile *profile; /* NULL = the times come from a table. */
    /* Only with a profile: cores that all machines share; 0 = each machine has its own. */
    uint32_t cores;
    struct sim_tier_kind tiers[TIER_KIND_COUNT]; /* Only with a profile: tiers of the machines. */
    /* Only with a profile: probability that a drafted token is right if all drafted tokens before
     * it are right; 0 = no drafts. */
    double draft_right;
    uint32_t draft_tokens; /* Only with a profile: scheduler/speculative_tokens; 0 = no drafts. */
    /* Times of the idle machine by which slowdowns are defined (slo.h). With a table: of a
     * DGX-A100. With a profile: kinds[0].curve. */
    struct cost_curve slo_curve;
    /* Each slowdown must be below its limit; the default limits are slo_limits. */
    double limits[SLO_MEASURES][SLO_QUANTILES];
    struct plan_requests requests;
};

/* Numbers and kinds of the prompt machines and of the token machines. */
struct plan_mix {
    uint32_t prompt_kind;  /* Kind of the prompt machines: index in plan_inputs.kinds. */
    uint32_t token_kind;   /* Kind of the token machines: index in plan_inputs.kinds. */
    uint32_t prompt_count; /* Machines for prompts; baseline: all machines. */
    /* Machines for tokens; 0 = the baseline, where all machines do both phases. */
    uint32_t token_count;
    /* Baseline only: 1 = the prompt machines' layer split, 0 = the token machines' layer split. */
    uint32_t prompt_layer_split;
};

/* Returns a layer split of the mix. tokens: true = of the token machines (requires mix->token_count
 * > 0); false = of the other machines. NULL = these machines have one device, or the times come
 * from a table. */
static inline const struct machine_split *plan_mix_split(const struct plan_inputs *inputs,
                                                         const struct plan_mix *mix, bool tokens)
{
    const struct plan_kind *kind = &inputs->kinds[tokens ? mix->token_kind : mix->prompt_kind];
    bool prompts = mix->token_count > 0 ? !tokens : mix->prompt_layer_split;
    return prompts ? kind->prompt_split : kind->token_split;
}

/* The simulations of plan_failures_run. */
enum {
    PLAN_GOODPUT_NO_FAILURES, /* No machine fails. */
    PLAN_GOODPUT_FAILURES,    /* Machines fail. */
    PLAN_GOODPUT_CHECKPOINTS, /* Machines fail; answers have checkpoints (kv/checkpoint "idle"). */
    PLAN_GOODPUTS
};

/* What a mix serves if its machines fail. A request is good if it is done and each of its three
 * slowdowns is below the SLO's limit at P99. The counts are sums over all runs (failures.h). */
struct plan_goodput {
    bool known;                 /* false: not simulated. */
    uint64_t good;              /* Good requests. */
    double good_per_s;          /* `good` / seconds in which requests arrive. */
    uint64_t failures;          /* Failures of machines. */
    uint64_t affected;          /* Requests that lost a machine. */
    uint64_t recomputed_tokens; /* Tokens computed again after restarts and preemptions. */
    uint64_t copied_bytes;      /* KV bytes that checkpoints copied. */
    /* P50 of the pauses in seconds. A pause is the longest time between two consecutive tokens of
     * an affected request that is done and has more than one token. */
    double pause_s_p50;
    double pause_s_p99; /* P99 of the pauses in seconds. */
};

/* What a simulation of a mix found. */
struct plan_outcome {
    bool met;              /* The SLO is met. */
    struct slo_result slo; /* Slowdowns of the requests that are done; slo.met equals `met`. */
    double worst_ratio;    /* The largest of the nine ratios slowdown / limit. */
    double ms[SLO_MEASURES][SLO_QUANTILES]; /* P50, P90 and P99 of TTFT, TBT and E2E. */
    struct splitwise_totals totals;         /* With a profile: see plan_profile_run. */
};

/* Stores whether the mix meets the SLO: at least one request is done, no request is refused, fails
 * or stays open, and each of the nine slowdowns is below its limit. May stop the simulation when
 * the SLO is certainly missed. Returns ST_NO_MEMORY or the errors of the simulation. */
enum status plan_try_meets(const struct plan_inputs *inputs, const struct plan_mix *mix,
                           double rate_per_s, bool *met_out, struct error *error);
/* Simulates all requests. out->met and the errors are those of plan_try_meets. */
enum status plan_try(const struct plan_inputs *inputs, const struct plan_mix *mix,
                     double rate_per_s, struct plan_outcome *out, struct error *error);
/* Does what plan_try does. times_out: receives TTFT, TBT and E2E in seconds; NULL = not wanted. */
enum status plan_try_times(const struct plan_inputs *inputs, const struct plan_mix *mix,
                           double rate_per_s, struct plan_outcome *out,
                           struct quantiles times_out[SLO_MEASURES], struct error *error);
/* Simulates all requests, and records how the machines are used over time. Requires that *usage is
 * open for all machines of the mix. Errors are those of plan_try. */
enum status plan_try_usage(const struct plan_inputs *inputs, const struct plan_mix *mix,
                           double rate_per_s, struct sim_usage *usage, struct error *error);

#endif
