/* quantization_internal: the functions with which quantization.c (8-bit floats) and
 * quantization_packed.c (integers) read the object quantization_config of config.json. They have no
 * state, and run on the thread that uses the struct model_file. They read no tensors. Other files
 * use quantization.h. */
#ifndef MODEL_FILE_QUANTIZATION_INTERNAL_H
#define MODEL_FILE_QUANTIZATION_INTERNAL_H

#include "model/file/json_read.h"
#include "model/file/quantization.h"

struct quantization_reader {
    const json_t *config; /* The object quantization_config. */
    struct error *error;  /* Receives the errors of all functions. */
};

/* Sets the error "key config.json/quantization_config/KEY is VALUE, supported SUPPORTED", and
 * returns ST_UNSUPPORTED. value: NULL = the key is missing. */
enum status quantization_refuse(const struct quantization_reader *r, const char *key,
                                const json_t *value, const char *supported);

/* Returns true for a missing key, null, false, and an empty object or array. */
bool quantization_is_empty(const json_t *value);

/* Returns true if `value` is a JSON string with this text. */
static inline bool quantization_is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* Read the settings of the method "gptq", of the method "awq", and of one group of the method
 * "compressed-tensors" whose weights are integers. They return ST_UNSUPPORTED if a value is not
 * supported; the error's text names the key. group: name of the group in config_groups. weights:
 * the object `weights` of the group. packed: true = 4 or 8 bits, packed in words
 * (PACKED_COMPRESSED); false = integers of 8 bits (PACKED_INT8). */
enum status quantization_read_gptq(const struct quantization_reader *r,
                                   struct packed_settings *out);
enum status quantization_read_awq(const struct quantization_reader *r, struct packed_settings *out);
enum status quantization_read_integers(const struct quantization_reader *r, const char *group,
                                       const json_t *weights, bool packed,
                                       struct packed_settings *out);

#endif
