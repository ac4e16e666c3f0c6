/* sampling_defaults: reads the values that a model's authors recommend for sampling. The values are
 * in generation_config.json of a folder, or in the keys general.sampling.* of a GGUF file. The
 * gateway calls sampling_defaults_read when it opens a model, on the thread that uses the struct
 * model_file. This part has no state, and does not apply the values to requests. */
#ifndef MODEL_FILE_SAMPLING_DEFAULTS_H
#define MODEL_FILE_SAMPLING_DEFAULTS_H

#include "model/file/model_file.h"

/* The recommended values; -1 = the model's files do not have the value. */
struct sampling_defaults {
    float temperature;        /* 0 to 2. */
    float top_p;              /* Above 0, at most 1. */
    float top_k;              /* A whole number of tokens up to 2^24; 0 = unlimited. */
    float min_p;              /* 0 to 1. */
    float repetition_penalty; /* Above 0, at most LIMIT_REPETITION_PENALTY. */
};

/* Reads the values; ignores the field do_sample. Returns ST_INVALID if a value is out of range or
 * has a wrong type, or if generation_config.json is malformed; or ST_NO_MEMORY. *out is written
 * only on success. */
enum status sampling_defaults_read(const struct model_file *file, struct sampling_defaults *out,
                                   struct error *error);

#endif
