/* plan_splits: finds two layer splits for each kind of machine that has several devices: one split
 * for prompt machines and one for token machines. Each split is for a request with the median
 * lengths. struct plan_inputs owns the splits. `cleave plan` calls the functions on the main
 * thread: plan_splits_devices and plan_splits_find before it searches for mixes (search.h),
 * plan_splits_done after that. machine_split.h computes each split. */
#ifndef TOOLS_PLAN_SPLITS_H
#define TOOLS_PLAN_SPLITS_H

#include "tools/plan/try.h"

/* Reads the devices of a kind and the links between them into kind->cluster. ST_USAGE: the machines
 * share cores (inputs->cores), which is not simulated for machines with several devices. Other
 * errors are those of partition_cluster_of_machine. */
enum status plan_splits_devices(const struct plan_inputs *inputs, struct plan_kind *kind,
                                struct error *error);
/* Finds the splits of all kinds with several devices, and stores them in inputs->kinds. Requires
 * inputs->profile, limits, slo_curve and requests. Returns ST_NO_MEMORY or the errors of
 * machine_split_find, with the hardware file's name. */
enum status plan_splits_find(struct plan_inputs *inputs, struct error *error);
/* Frees the splits. Call this function also after an error of plan_splits_find. */
void plan_splits_done(struct plan_inputs *inputs);

#endif
