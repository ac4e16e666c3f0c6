/* plan_profile: plans for hardware whose times are in a profile (common/profile.h): a mix is
 * simulated with the gateway's policy and the machines' own (sim_run.h), all options the config's
 * defaults; the SLO compares with an idle machine of the first kind of hardware. */
#ifndef SIMULATOR_PLAN_PROFILE_H
#define SIMULATOR_PLAN_PROFILE_H

#include "common/config.h"
#include "simulator/plan_try.h"

/* What a plan's machines run with; its config says no more than their pools. */
void plan_profile_config(struct config *out);

/* The profile's device of a kind. ST_NOT_FOUND, ST_INVALID: it has none, or the hardware file does
 * not name one. */
enum status plan_profile_device(const struct profile *profile, const struct hardware *hardware,
                                const struct profile_device **out, struct error *error);

/* A prompt alone, by its tokens; a step of one sequence, by its context. */
void plan_profile_curve(const struct profile *profile, const struct profile_device *device,
                        struct cost_curve *out);

/* The whole run; usage NULL: not wanted. A request that was refused or failed counts as unended. */
enum status plan_profile_run(const struct plan_inputs *inputs, const struct plan_mix *mix,
                             double rate_per_s, struct slo *slo,
                             struct quantiles seconds_out[SLO_MEASURES], struct sim_usage *usage,
                             struct splitwise_totals *totals, struct error *error);

#endif
