/* quantization_packed: reads from config.json how weights of integers are packed (packed.h). */
#include "model/file/quantization_internal.h"

#include <stdio.h>

#define GROUP_MAX 65536 /* More columns do not share a scale in practice. */

/* Reads the number of columns that share a scale; -1 and a missing key: all columns of a row. */
static enum status read_group(const struct quantization_reader *r, const char *key,
                              const json_t *value, uint32_t *out)
{
    const json_int_t group = json_integer_value(value);
    if (value == NULL || json_is_null(value) || (json_is_integer(value) && group == -1)) {
        *out = 0;
        return ST_OK;
    }
    if (!json_is_integer(value) || group < 32 || group > GROUP_MAX || group % 32 != 0)
        return quantization_refuse(r, key, value, "are -1 and multiples of 32");
    *out = (uint32_t)group;
    return ST_OK;
}

enum status quantization_read_gptq(const struct quantization_reader *r, struct packed_settings *out)
{
    const json_t *bits = json_object_get(r->config, "bits");
    const json_t *symmetric = json_object_get(r->config, "sym");
    const json_t *format = json_object_get(r->config, "checkpoint_format");
    const json_t *dynamic = json_object_get(r->config, "dynamic");
    struct packed_settings p = {.format = PACKED_GPTQ,
                                .weight_bits = (uint32_t)json_integer_value(bits)};
    if (!json_is_integer(bits) || (json_integer_value(bits) != 4 && json_integer_value(bits) != 8))
        return quantization_refuse(r, "bits", bits, "are 4 and 8");
    p.is_asymmetric = json_is_false(symmetric);
    if (p.is_asymmetric && p.weight_bits == 8)
        return quantization_refuse(r, "sym", symmetric, "is true with 8 bits");
    if (!quantization_is_empty(format) && !quantization_is_text(format, "gptq") &&
        !quantization_is_text(format, "gptq_v2"))
        return quantization_refuse(r, "checkpoint_format", format, "are \"gptq\" and \"gptq_v2\"");
    if (!quantization_is_empty(dynamic))
        return quantization_refuse(r, "dynamic", dynamic, "is null");
    p.zero_points_less_one = !quantization_is_text(format, "gptq_v2");
    enum status status =
        read_group(r, "group_size", json_object_get(r->config, "group_size"), &p.group_columns);
    if (status == ST_OK)
        *out = p;
    return status;
}

enum status quantization_read_awq(const struct quantization_reader *r, struct packed_settings *out)
{
    const json_t *bits = json_object_get(r->config, "bits");
    const json_t *version = json_object_get(r->config, "version");
    const json_t *zeros = json_object_get(r->config, "zero_point");
    struct packed_settings p = {.format = PACKED_AWQ, .weight_bits = 4, .is_asymmetric = true};
    if (json_integer_value(bits) != 4)
        return quantization_refuse(r, "bits", bits, "is 4");
    if (!quantization_is_empty(version) && !quantization_is_text(version, "gemm") &&
        !quantization_is_text(version, "GEMM"))
        return quantization_refuse(r, "version", version, "is \"gemm\"");
    if (zeros != NULL && !json_is_true(zeros))
        return quantization_refuse(r, "zero_point", zeros, "is true");
    enum status status =
        read_group(r, "group_size", json_object_get(r->config, "group_size"), &p.group_columns);
    if (status == ST_OK)
        *out = p;
    return status;
}

enum status quantization_read_integers(const struct quantization_reader *r, const char *group,
                                       const json_t *weights, bool packed,
                                       struct packed_settings *out)
{
    const json_t *bits = json_object_get(weights, "num_bits");
    const json_t *strategy = json_object_get(weights, "strategy");
    const json_int_t count = json_integer_value(bits);
    struct packed_settings p = {.format = packed ? PACKED_COMPRESSED : PACKED_INT8,
                                .weight_bits = (uint32_t)count};
    char key[160];
    snprintf(key, sizeof(key), "config_groups/%.60s/weights", group);
    p.is_asymmetric = json_is_false(json_object_get(weights, "symmetric"));
    if (!quantization_is_text(json_object_get(weights, "type"), "int") ||
        (count != 8 && (count != 4 || !packed)) || (p.is_asymmetric && count == 8) ||
        !quantization_is_empty(json_object_get(weights, "dynamic")))
        return quantization_refuse(r, key, weights,
                                   packed
                                       ? "are integers of 4 bits, and symmetric integers of 8 bits"
                                       : "are symmetric integers of 8 bits");
    snprintf(key, sizeof(key), "config_groups/%.60s/weights/strategy", group);
    if (!quantization_is_text(strategy, "channel") && !quantization_is_text(strategy, "group"))
        return quantization_refuse(r, key, strategy, "are \"group\" and \"channel\"");
    snprintf(key, sizeof(key), "config_groups/%.60s/weights/group_size", group);
    if (quantization_is_text(strategy, "group")) {
        enum status status =
            read_group(r, key, json_object_get(weights, "group_size"), &p.group_columns);
        if (status != ST_OK)
            return status;
    }
    *out = p;
    return ST_OK;
}
