/* plan_splits: which layers the devices of a plan's machines run, of those kinds that have several:
 * for prompt machines and for token machines apart, for a typical request: half are longer. */
#ifndef SIMULATOR_PLAN_SPLITS_H
#define SIMULATOR_PLAN_SPLITS_H

#include "simulator/plan_try.h"

/* Reads its devices and the link between them. Errors name file, place, value. */
enum status plan_splits_devices(const struct plan_inputs *inputs, struct plan_kind *kind,
                                struct error *error);
/* Of all kinds; wants the limits, the SLO's curve and the requests. */
enum status plan_splits_find(struct plan_inputs *inputs, struct error *error);
void plan_splits_done(struct plan_inputs *inputs);

#endif
