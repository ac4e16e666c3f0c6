/* rope: opens a model's tables of the rotary embedding, with the parameters in struct model_hyper.
 * Some models also divide the frequencies by numbers from a tensor, from config.json, or from a
 * formula (enum model_rope_kind). model_open calls rope_load, on its thread. struct model owns the
 * tables. This part rotates nothing (compute_ops.rope_store). */
#ifndef MODEL_FORWARD_ROPE_H
#define MODEL_FORWARD_ROPE_H

#include "model/forward/weights_load.h"

/* Opens l->m->rope and, if model_hyper.local_freq_base is not 0, l->m->local_rope. Returns
 * ST_INVALID if a tensor has a divisor that is not a finite number above 0; or an error of
 * load_vector_to_host, key_f32_list or compute_ops.rope_open. */
enum status rope_load(const struct loader *l);

#endif
