/* plan_profile: simulates a mix of machines with times from a profile (profile/profile.h), with the
 * gateway's scheduler and the machines' own schedulers (sim_run.h). The other files of tools/plan
 * call the functions, on the main thread and on the threads of a search (search.h). The functions
 * have no state, so several threads may call them. This part does not decide whether a mix meets
 * the SLO: try.h does. */
#ifndef TOOLS_PLAN_PROFILE_H
#define TOOLS_PLAN_PROFILE_H

#include "config/config.h"
#include "tools/plan/try.h"

/* Sets *out to the config of the simulated machines: the defaults, with the policy "jsq". */
void plan_profile_config(struct config *out);

/* Finds the profile's device that a hardware file names; *out belongs to the profile. ST_INVALID:
 * the file names rows of a table instead. ST_NOT_FOUND: the profile has no such device. */
enum status plan_profile_device(const struct profile *profile, const struct hardware *hardware,
                                const struct profile_device **out, struct error *error);

/* Fills *out with the times of a machine on which one device computes all layers: the time of a
 * prompt by its tokens, and the time of a decode step of one sequence by its context. */
void plan_profile_curve(const struct profile *profile, const struct profile_device *device,
                        struct cost_curve *out);

/* Simulates all requests at the rate. slo: receives the slowdowns against inputs->slo_curve.
 * seconds_out: receives TTFT, TBT and E2E. usage: opened by the caller for all machines of the mix;
 * NULL = not wanted. totals: `requests` receives the number of requests that are done,
 * `unended_requests` the number of requests that were refused or failed, and `last_s` the field
 * last_s of struct sim_run_totals (sim_run.h). The other fields become 0. Returns the errors of the
 * simulation, or ST_NO_MEMORY. */
enum status plan_profile_run(const struct plan_inputs *inputs, const struct plan_mix *mix,
                             double rate_per_s, struct slo *slo,
                             struct quantiles seconds_out[SLO_MEASURES], struct sim_usage *usage,
                             struct splitwise_totals *totals, struct error *error);

/* How machines fail in a simulation. */
struct plan_failure_options {
    double mtbf_s;          /* Mean time until a machine fails; 0 = none fails. */
    double repair_s;        /* Seconds until a failed machine is up again. */
    const char *checkpoint; /* Value of kv/checkpoint. */
    uint64_t seed;          /* Seed of the failures. */
};

/* Simulates all requests at the rate, with failures. Adds to the counts of *out (good, failures,
 * affected, recomputed_tokens, copied_bytes). Adds to `pauses` the pause of each affected request
 * (struct plan_goodput), in seconds. Returns the errors of the simulation, or ST_NO_MEMORY. */
enum status plan_profile_goodput(const struct plan_inputs *inputs, const struct plan_mix *mix,
                                 double rate_per_s, const struct plan_failure_options *failures,
                                 struct plan_goodput *out, struct quantiles *pauses,
                                 struct error *error);

#endif
