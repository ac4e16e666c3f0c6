/* plan_profile: tries a mix with times from a profile (profile/profile.h). The mix is simulated
 * with the gateway's scheduler and the machines' own schedulers (sim_run.h) and with the config's
 * defaults. The SLO compares with an idle machine of the first kind of hardware. Every call works
 * on its own memory, so any thread may call. */
#ifndef TOOLS_PLAN_PROFILE_H
#define TOOLS_PLAN_PROFILE_H

#include "config/config.h"
#include "tools/plan/try.h"

/* Sets *out to the config of the simulated machines: the defaults, with the policy "jsq". */
void plan_profile_config(struct config *out);

/* Finds the profile's device of a kind of hardware. ST_INVALID: the hardware's times are in a
 * table. ST_NOT_FOUND: the profile has no such device. */
enum status plan_profile_device(const struct profile *profile, const struct hardware *hardware,
                                const struct profile_device **out, struct error *error);

/* Makes the curve of an idle machine: the time of a prompt alone over its tokens, and of a decode
 * step of one sequence over its context. */
void plan_profile_curve(const struct profile *profile, const struct profile_device *device,
                        struct cost_curve *out);

/* Simulates the whole trace. usage: NULL = not wanted. Refused and failed requests are counted as
 * totals->unended. */
enum status plan_profile_run(const struct plan_inputs *inputs, const struct plan_mix *mix,
                             double rate_per_s, struct slo *slo,
                             struct quantiles seconds_out[SLO_MEASURES], struct sim_usage *usage,
                             struct splitwise_totals *totals, struct error *error);

#endif
