/* quantization_internal: the functions with which quantization.c and quantization_packed.c read the
 * object quantization_config of config.json. The functions have no state, run on the thread that
 * uses the struct model_file, and read no tensors. */
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

/* The three functions below return ST_UNSUPPORTED if a value is not supported. */

/* Reads the settings of the method "gptq". */
enum status quantization_read_gptq(const struct quantization_reader *r,
                                   struct packed_settings *out);
/* Reads the settings of the method "awq". */
enum status quantization_read_awq(const struct quantization_reader *r, struct packed_settings *out);
/* Reads one group of the method "compressed-tensors" whose weights are integers. group: name in
 * config_groups. weights: the group's object `weights`. packed: true = PACKED_COMPRESSED, false =
 * PACKED_INT8. */
enum status quantization_read_integers(const struct quantization_reader *r, const char *group,
                                       const json_t *weights, bool packed,
                                       struct packed_settings *out);

#endif
