/* sampling_defaults: the values of sampling fields that a model's authors recommend, for requests
 * that do not have these fields: generation_config.json of a folder, or general.sampling.* of a
 * GGUF file. server/api/served_model.c reads them when the gateway opens a model, on the thread
 * that uses the model_file; server/http/completion.c applies them if the config's key
 * server/sampling_defaults says so. No state. As in vLLM, the field do_sample is ignored. */
#ifndef MODEL_FILE_SAMPLING_DEFAULTS_H
#define MODEL_FILE_SAMPLING_DEFAULTS_H

#include "model/file/model_file.h"

/* The recommended values; below 0 = the model's files do not have the value. */
struct sampling_defaults {
    float temperature;        /* 0 to 2. */
    float top_p;              /* Above 0, at most 1. */
    float top_k;              /* A whole number; 0 = off. */
    float min_p;              /* 0 to 1. */
    float repetition_penalty; /* Above 0, at most LIMIT_REPETITION_PENALTY. */
};

/* Reads the values. Returns ST_INVALID if a value is out of range or of a wrong type, with the key,
 * or if the file of a folder is malformed. */
enum status sampling_defaults_read(const struct model_file *file, struct sampling_defaults *out,
                                   struct error *error);

#endif
