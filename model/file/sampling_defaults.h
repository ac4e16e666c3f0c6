/* sampling_defaults: reads the values of sampling fields that a model's authors recommend for
 * requests that do not have these fields. They are in generation_config.json of a folder, or in the
 * keys general.sampling.* of a GGUF file. It has no state. The gateway calls it when it opens a
 * model, on the thread that uses the model_file. It does not apply the values to requests: the
 * gateway does, if the config's key server/sampling_defaults says so. */
#ifndef MODEL_FILE_SAMPLING_DEFAULTS_H
#define MODEL_FILE_SAMPLING_DEFAULTS_H

#include "model/file/model_file.h"

/* The recommended values; below 0 = the model's files do not have the value. */
struct sampling_defaults {
    float temperature;        /* 0 to 2. */
    float top_p;              /* Above 0, at most 1. */
    float top_k;              /* A whole number; 0 = no limit of the number of tokens. */
    float min_p;              /* 0 to 1. */
    float repetition_penalty; /* Above 0, at most LIMIT_REPETITION_PENALTY. */
};

/* Reads the values. Returns ST_INVALID if a value is out of range or of a wrong type, or if the
 * file of a folder is malformed; ST_NO_MEMORY. *out is written only on success. The field
 * do_sample is ignored. */
enum status sampling_defaults_read(const struct model_file *file, struct sampling_defaults *out,
                                   struct error *error);

#endif
