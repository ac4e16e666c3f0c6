/* plan_profile: simulates a mix of machines with times from a profile (profile/profile.h), with the
 * gateway's scheduler and the machines' own schedulers (sim_run.h) and with the config's defaults.
 * try.c calls plan_profile_run on the threads of a search (search.h), several at the same time, and
 * on the main thread for the output; each call has its own memory. On the main thread, setup.c and
 * splits.c call the other functions before the search, and failures.c calls plan_profile_goodput
 * after it. This part does not judge whether the SLO is met: try.c does. */
#ifndef TOOLS_PLAN_PROFILE_H
#define TOOLS_PLAN_PROFILE_H

#include "config/config.h"
#include "tools/plan/try.h"

/* Sets *out to the config of the simulated machines: the defaults, with the policy "jsq". Any
 * thread may call it. */
void plan_profile_config(struct config *out);

/* Finds the profile's device of a kind of hardware; *out belongs to the profile. ST_INVALID: the
 * hardware's times are in a table. ST_NOT_FOUND: the profile has no such device. */
enum status plan_profile_device(const struct profile *profile, const struct hardware *hardware,
                                const struct profile_device **out, struct error *error);

/* Fills *out with the curve of an idle machine: the time of a single prompt over its tokens, and
 * the time of a decode step of one sequence over its context. */
void plan_profile_curve(const struct profile *profile, const struct profile_device *device,
                        struct cost_curve *out);

/* Simulates the whole trace; it never stops early. slo: receives the slowdowns against
 * inputs->slo_curve. seconds_out: receives TTFT, TBT and E2E. usage: opened by the caller for all
 * machines of the mix; NULL = not wanted. Requests that are refused or that fail are counted as
 * totals->unended. */
enum status plan_profile_run(const struct plan_inputs *inputs, const struct plan_mix *mix,
                             double rate_per_s, struct slo *slo,
                             struct quantiles seconds_out[SLO_MEASURES], struct sim_usage *usage,
                             struct splitwise_totals *totals, struct error *error);

/* How machines fail in a simulation. */
struct plan_failures {
    double mtbf_s;          /* Mean time until a machine fails; 0 = none fails. */
    double repair_s;        /* Time until it is up again. */
    const char *checkpoint; /* Value of kv/checkpoint. */
    uint64_t seed;          /* Seed of the failures. */
};

/* Simulates the whole trace with failures. Adds to the counts of *out (good, failures, affected,
 * recomputed_tokens, copied_bytes), and to `pauses` the longest gap, in seconds, of each request
 * that lost a machine. */
enum status plan_profile_goodput(const struct plan_inputs *inputs, const struct plan_mix *mix,
                                 double rate_per_s, const struct plan_failures *failures,
                                 struct plan_goodput *out, struct quantiles *pauses,
                                 struct error *error);

#endif
