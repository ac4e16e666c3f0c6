/* quantization: see quantization.h. A key that describes how the numbers were made, and that is not
 * known to be harmless, is refused: such a model would be computed wrongly without an error. */
#include "model/file/quantization_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define CONFIG "config.json"
#define ROOT   "quantization_config"
#define BLOCK  128

/* ---- config.json ---- */

enum status quantization_refuse(const struct quantization_reader *r, const char *key,
                                const json_t *value, const char *supported)
{
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    enum status status =
        error_set(r->error, ST_UNSUPPORTED, "key " CONFIG "/" ROOT "/%s is %.100s, supported %s",
                  key, text != NULL ? text : "missing", supported);
    free(text);
    return status;
}

bool quantization_is_empty(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

/* Whether the value is [128, 128]. */
static bool is_block(const json_t *value)
{
    return json_array_size(value) == 2 && json_integer_value(json_array_get(value, 0)) == BLOCK &&
           json_integer_value(json_array_get(value, 1)) == BLOCK;
}

static enum status read_fine_grained(const struct quantization_reader *r, struct quantization *out)
{
    const json_t *format = json_object_get(r->config, "fmt");
    const json_t *block = json_object_get(r->config, "weight_block_size");
    if (!quantization_is_empty(format) && !quantization_is_text(format, "e4m3"))
        return quantization_refuse(r, "fmt", format, "is \"e4m3\"");
    if (!quantization_is_empty(block) && !is_block(block))
        return quantization_refuse(r, "weight_block_size", block, "are [128, 128] and null");
    out->scales = quantization_is_empty(block) ? QUANTIZATION_TENSOR : QUANTIZATION_BLOCK;
    out->suffix = quantization_is_empty(block) ? "weight_scale" : "weight_scale_inv";
    return ST_OK;
}

/* Reads the weights' description of one group. */
static enum status read_weights(const struct quantization_reader *r, const char *group,
                                const json_t *weights, enum quantization_scales *out)
{
    static const char *const strategies[] = {[QUANTIZATION_TENSOR] = "tensor",
                                             [QUANTIZATION_ROW] = "channel",
                                             [QUANTIZATION_BLOCK] = "block"};
    char key[160];
    snprintf(key, sizeof(key), "config_groups/%.60s/weights", group);
    const json_t *symmetric = json_object_get(weights, "symmetric");
    if (!json_is_object(weights) ||
        !quantization_is_text(json_object_get(weights, "type"), "float") ||
        json_integer_value(json_object_get(weights, "num_bits")) != 8 ||
        !quantization_is_empty(json_object_get(weights, "dynamic")) || json_is_false(symmetric))
        return quantization_refuse(r, key, weights, "are symmetric floats of 8 bits");
    snprintf(key, sizeof(key), "config_groups/%.60s/weights/strategy", group);
    const json_t *strategy = json_object_get(weights, "strategy");
    const json_t *block = json_object_get(weights, "block_structure");
    for (int i = QUANTIZATION_TENSOR; i <= QUANTIZATION_BLOCK; i++)
        if (quantization_is_text(strategy, strategies[i])) {
            *out = (enum quantization_scales)i;
            if (i != QUANTIZATION_BLOCK || is_block(block))
                return ST_OK;
            snprintf(key, sizeof(key), "config_groups/%.60s/weights/block_structure", group);
            return quantization_refuse(r, key, block, "is [128, 128]");
        }
    return quantization_refuse(r, key, strategy, "are \"tensor\", \"channel\" and \"block\"");
}

/* Whether a description of sparse or transformed weights says that there are none. */
static bool is_dense(const json_t *value)
{
    return quantization_is_empty(value) ||
           quantization_is_text(json_object_get(value, "format"), "dense");
}

/* Reads one group of weights of integers, which must be like the groups before it. */
static enum status read_integers(const struct quantization_reader *r, const char *name,
                                 const json_t *group, bool packed, struct quantization *out)
{
    const struct packed_settings before = out->packed;
    enum status status = quantization_read_integers(r, name, json_object_get(group, "weights"),
                                                    packed, &out->packed);
    if (status != ST_OK || before.format == PACKED_NONE ||
        (before.weight_bits == out->packed.weight_bits &&
         before.group_columns == out->packed.group_columns &&
         before.is_asymmetric == out->packed.is_asymmetric))
        return status;
    return quantization_refuse(r, "config_groups", json_object_get(r->config, "config_groups"),
                               "is one form of weights for all groups");
}

static enum status read_compressed(const struct quantization_reader *r, struct quantization *out)
{
    static const char *const unknown[] = {"sparsity_config", "transform_config"};
    const json_t *format = json_object_get(r->config, "format");
    json_t *groups = json_object_get(r->config, "config_groups"), *group;
    const char *name;
    const bool packed = quantization_is_text(format, "pack-quantized");
    out->has_kv_scheme = !quantization_is_empty(json_object_get(r->config, "kv_cache_scheme"));
    if (out->has_kv_scheme && quantization_is_empty(groups))
        return ST_OK; /* The weights are not quantised. */
    const bool integers = packed || quantization_is_text(format, "int-quantized");
    if (!quantization_is_empty(format) && !integers &&
        !quantization_is_text(format, "float-quantized") &&
        !quantization_is_text(format, "naive-quantized"))
        return quantization_refuse(r, "format", format,
                                   "are \"float-quantized\", \"naive-quantized\", "
                                   "\"pack-quantized\" and \"int-quantized\"");
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        if (!is_dense(json_object_get(r->config, unknown[i])))
            return quantization_refuse(r, unknown[i], json_object_get(r->config, unknown[i]),
                                       "is null");
    if (!json_is_object(groups) || json_object_size(groups) == 0)
        return quantization_refuse(r, "config_groups", groups, "is an object of groups");
    json_object_foreach(groups, name, group)
    {
        enum quantization_scales scales = QUANTIZATION_NONE;
        if (integers) {
            enum status status = read_integers(r, name, group, packed, out);
            if (status != ST_OK)
                return status;
            continue;
        }
        enum status status = read_weights(r, name, json_object_get(group, "weights"), &scales);
        if (status != ST_OK)
            return status;
        if (out->scales != QUANTIZATION_NONE && out->scales != scales)
            return quantization_refuse(r, "config_groups", groups,
                                       "is one strategy for all weights");
        out->scales = scales;
    }
    out->suffix = "weight_scale";
    return ST_OK;
}

static enum status read_config(const struct folder *f, struct quantization *out,
                               struct error *error)
{
    const struct quantization_reader r = {json_object_get(folder_config(f), ROOT), error};
    const json_t *method = json_object_get(r.config, "quant_method");
    if (r.config == NULL || json_is_null(r.config))
        return ST_OK;
    if (quantization_is_text(method, "fp8"))
        return read_fine_grained(&r, out);
    if (quantization_is_text(method, "compressed-tensors"))
        return read_compressed(&r, out);
    if (quantization_is_text(method, "gptq"))
        return quantization_read_gptq(&r, &out->packed);
    if (quantization_is_text(method, "awq"))
        return quantization_read_awq(&r, &out->packed);
    if (quantization_is_text(method, "mxfp4")) {
        out->packed =
            (struct packed_settings){.format = PACKED_MXFP4, .weight_bits = 4, .group_columns = 32};
        return ST_OK;
    }
    return quantization_refuse(&r, "quant_method", method,
                               "are \"fp8\", \"compressed-tensors\", \"gptq\", \"awq\" and "
                               "\"mxfp4\"; or weights of F32, F16 and BF16, or a "
                               "GGUF file");
}

/* ---- tensors ---- */

/* A tensor of scales, and the tensor of weights that it belongs to. */
struct scale_name {
    const char *ending, *weight;
};

static const struct scale_name weight_scales[] = {
    {".weight_scale", ".weight"}, {".weight_scale_inv", ".weight"}, {".input_scale", ".weight"}};
/* Scales of a quantised KV-cache: not used, because cleave's KV has scales of its own. */
static const struct scale_name cache_scales[] = {{".self_attn.q_scale", ".self_attn.q_proj.weight"},
                                                 {".self_attn.k_scale", ".self_attn.k_proj.weight"},
                                                 {".self_attn.v_scale", ".self_attn.v_proj.weight"},
                                                 {".output_scale", ".weight"}};
#define WEIGHT_SCALES (sizeof(weight_scales) / sizeof(weight_scales[0]))
#define CACHE_SCALES  (sizeof(cache_scales) / sizeof(cache_scales[0]))

static bool scale_find(const struct scale_name *all, size_t count, struct mapped_text name,
                       char *out, size_t capacity)
{
    for (size_t i = 0; i < count; i++) {
        size_t end = strlen(all[i].ending);
        if (name.bytes <= end || memcmp(name.text + name.bytes - end, all[i].ending, end) != 0)
            continue;
        int used =
            snprintf(out, capacity, "%.*s%s", (int)(name.bytes - end), name.text, all[i].weight);
        return used > 0 && (size_t)used < capacity;
    }
    return false;
}

bool quantization_weights_name(struct mapped_text name, char *out, size_t capacity)
{
    return scale_find(weight_scales, WEIGHT_SCALES, name, out, capacity) ||
           scale_find(cache_scales, CACHE_SCALES, name, out, capacity) ||
           packed_weights_name(name, out, capacity);
}

/* Checks that integers are parts of packed weights, or their values. */
static enum status check_integers(const struct folder *f, const struct mapped_tensor *t,
                                  struct error *error)
{
    char name[256];
    const bool belongs = packed_weights_name(t->name, name, sizeof(name));
    if (t->integer == MAPPED_NO_INTEGER ||
        folder_tensor_find(f, belongs ? name : t->name.text) != NULL)
        return ST_OK;
    return error_set(error, ST_INVALID,
                     "tensor %.100s has integers, and belongs to no packed weights that " CONFIG
                     "/" ROOT " describes",
                     t->name.text);
}

/* Checks that every scale has its weights, and that E4M3 weights have a description of their
 * scales. Notes scales of a KV-cache: their weights may be of any type. */
static enum status check_tensors(struct quantization *q, const struct folder *f,
                                 struct error *error)
{
    for (size_t i = 0; i < folder_tensor_count(f); i++) {
        const struct mapped_tensor *t = folder_tensor_at(f, i);
        char name[256];
        enum status status = check_integers(f, t, error);
        if (status != ST_OK)
            return status;
        if (t->type == COMPUTE_F8_E4M3 && q->scales == QUANTIZATION_NONE)
            return error_set(error, ST_INVALID,
                             "tensor %.100s is of type F8_E4M3, but " CONFIG "/" ROOT " is missing",
                             t->name.text);
        if (!quantization_weights_name(t->name, name, sizeof(name)))
            continue;
        const struct mapped_tensor *of = folder_tensor_find(f, name);
        if (of != NULL && scale_find(cache_scales, CACHE_SCALES, t->name, name, sizeof(name))) {
            q->has_kv_scheme = true;
            continue;
        }
        if (q->scales == QUANTIZATION_NONE && of != NULL && q->packed.format != PACKED_NONE)
            continue;
        if (of == NULL || of->type != COMPUTE_F8_E4M3)
            return error_set(error, ST_INVALID,
                             "tensor %.100s scales %.100s, which is %s: want F8_E4M3", t->name.text,
                             name, of == NULL ? "missing" : compute_type_name(of->type));
    }
    return ST_OK;
}

enum status quantization_read(struct folder *f, struct quantization *out, struct error *error)
{
    struct quantization q = {.scales = QUANTIZATION_NONE};
    enum status status = read_config(f, &q, error);
    if (status == ST_OK)
        status = packed_tensors_add(&q.packed, f, error);
    if (status == ST_OK)
        status = check_tensors(&q, f, error);
    if (status == ST_OK)
        *out = q;
    return status;
}

/* ---- scales ---- */

/* Shapes: [1], or no dimensions, for a whole tensor; [rows] or [rows × 1]; one value for each
 * block. */
static enum status check_shape(const struct quantization *q, const struct mapped_tensor *weight,
                               const struct mapped_tensor *t, const char *name, uint32_t *stride,
                               struct error *error)
{
    const uint64_t rows = weight->dims[1], cols = weight->dims[0];
    uint64_t down = 1, right = 1;
    if (q->scales == QUANTIZATION_ROW)
        down = rows;
    if (q->scales == QUANTIZATION_BLOCK) {
        down = (rows + BLOCK - 1) / BLOCK;
        right = (cols + BLOCK - 1) / BLOCK;
    }
    *stride = (uint32_t)right;
    bool flat = t->dim_count == 1 && right == 1 && t->dims[0] == down;
    bool fits = t->dim_count == 2 && t->dims[0] == right && t->dims[1] == down;
    if (flat || fits)
        return ST_OK;
    return error_set(error, ST_INVALID,
                     "tensor %.100s has shape %" PRIu64 " x %" PRIu64 ", want %" PRIu64
                     " x %" PRIu64 " for weights of %" PRIu64 " x %" PRIu64,
                     name, t->dim_count > 1 ? t->dims[1] : 1, t->dims[0], down, right, rows, cols);
}

static enum status read_values(const struct mapped_tensor *t, const char *name, size_t count,
                               float **out, struct error *error)
{
    if (t->type != COMPUTE_F32 && t->type != COMPUTE_F16 && t->type != COMPUTE_BF16)
        return error_set(error, ST_UNSUPPORTED, "tensor %.100s has type %s, want F32, F16 or BF16",
                         name, compute_type_name(t->type));
    float *values = malloc(count * sizeof(*values));
    void *aligned = malloc(t->bytes);
    if (values == NULL || aligned == NULL) {
        free(values);
        free(aligned);
        return error_set(error, ST_NO_MEMORY, "tensor %.100s: no memory for %zu scales", name,
                         count);
    }
    memcpy(aligned, t->data, t->bytes); /* A file may not align its data. */
    compute_dequantize(t->type, aligned, count, values);
    free(aligned);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]) || values[i] < 0) {
            enum status status = error_set(error, ST_INVALID,
                                           "tensor %.100s: element %zu is %g: want a number from 0",
                                           name, i, (double)values[i]);
            free(values);
            return status;
        }
    *out = values;
    return ST_OK;
}

/* Returns the index of the first NaN (0x7f or 0xff); `bytes` = none. */
static size_t nan_find(const uint8_t *data, size_t bytes)
{
    const uint64_t low = 0x7f7f7f7f7f7f7f7fu, one = 0x0101010101010101u;
    for (size_t begin = 0; begin < bytes; begin += 4096) {
        const size_t end = bytes - begin < 4096 ? bytes : begin + 4096;
        uint64_t found = 0, eight;
        size_t i = begin;
        for (; i + 8 <= end; i += 8) {
            memcpy(&eight, data + i, sizeof(eight));
            found |= (eight & low) + one; /* The highest bit is set only for 0x7f. */
        }
        for (; i < end; i++)
            found |= (data[i] & 0x7fu) + 1u;
        for (i = begin; (found & ~low) != 0 && i < end; i++)
            if ((data[i] & 0x7f) == 0x7f)
                return i;
    }
    return bytes;
}

enum status quantization_scales_read(const struct quantization *q, const struct folder *f,
                                     const struct mapped_tensor *t, struct compute_scales *out,
                                     float **values_out, struct error *error)
{
    const struct mapped_tensor *scale;
    char name[256];
    uint32_t stride;
    *values_out = NULL;
    if (t->type != COMPUTE_F8_E4M3)
        return ST_OK;
    const size_t cut = t->name.bytes - strlen("weight");
    if (t->dim_count != 2 || t->name.bytes < strlen(".weight") || t->name.bytes > 200 ||
        memcmp(t->name.text + cut, "weight", strlen("weight")) != 0)
        return error_set(error, ST_UNSUPPORTED,
                         "tensor %.100s of type F8_E4M3 is no matrix of weights", t->name.text);
    snprintf(name, sizeof(name), "%.*s%s", (int)cut, t->name.text, q->suffix);
    if ((scale = folder_tensor_find(f, name)) == NULL)
        return error_set(error, ST_INVALID, "tensor %.100s is missing, which scales %.100s", name,
                         t->name.text);
    enum status status = check_shape(q, t, scale, name, &stride, error);
    if (status != ST_OK)
        return status;
    size_t bad = nan_find(t->data, t->bytes);
    if (bad != t->bytes)
        return error_set(error, ST_INVALID, "tensor %.100s: element %zu is NaN", t->name.text, bad);
    status = read_values(scale, name, scale->dims[0] * (scale->dim_count > 1 ? scale->dims[1] : 1),
                         values_out, error);
    if (status != ST_OK)
        return status;
    *out = (struct compute_scales){.values = *values_out,
                                   .rows = q->scales == QUANTIZATION_TENSOR ? UINT32_MAX
                                           : q->scales == QUANTIZATION_ROW  ? 1
                                                                            : BLOCK,
                                   .cols = q->scales == QUANTIZATION_BLOCK ? BLOCK : UINT32_MAX,
                                   .stride = stride};
    return ST_OK;
}
