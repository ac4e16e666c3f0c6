/* plan_splits: finds the layer splits of those kinds of machines that have several devices, one
 * split for prompt machines and one for token machines. The goal is a typical request, with the
 * median lengths. */
#ifndef TOOLS_PLAN_SPLITS_H
#define TOOLS_PLAN_SPLITS_H

#include "tools/plan/try.h"

/* Reads the devices of a kind and the link between them. Errors name file, position and value. */
enum status plan_splits_devices(const struct plan_inputs *inputs, struct plan_kind *kind,
                                struct error *error);
/* Finds the splits of all kinds. Requires the limits, the SLO's curve and the requests. */
enum status plan_splits_find(struct plan_inputs *inputs, struct error *error);
void plan_splits_done(struct plan_inputs *inputs);

#endif
