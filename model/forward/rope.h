/* rope: opens a model's tables of the rotary embedding: the frequencies from the base, and their
 * divisors from tensors, from lists in config.json, or by formula. model.c calls it in model_open,
 * on one thread. model_hyper_read has checked the hyper-parameters. This part rotates nothing
 * (compute_ops.rope_store does). */
#ifndef MODEL_FORWARD_ROPE_H
#define MODEL_FORWARD_ROPE_H

#include "model/forward/weights_load.h"

/* Opens l->m->rope and, if layers have a base of their own, l->m->local_rope. Returns the errors of
 * load_vector, key_f32_list and compute_ops.rope_open. */
enum status rope_load(const struct loader *l);

#endif
