/* quantization: folders whose weights are E4M3 with scales beside them: what config.json's
 * quantization_config says of them, and the scales of one matrix. Two kinds of folders have it:
 * those of compressed-tensors, and "fp8" (Transformers' fine-grained FP8, DeepSeek's and Qwen's).
 * How activations were meant to be quantised is not followed: that is the device's. Internal to
 * model/. */
#ifndef MODEL_QUANTIZATION_H
#define MODEL_QUANTIZATION_H

#include "common/status.h"
#include "model/folder.h"

/* What one scale is for. */
enum quantization_scales {
    QUANTIZATION_NONE,
    QUANTIZATION_TENSOR,
    QUANTIZATION_ROW,
    QUANTIZATION_BLOCK, /* 128 × 128 */
};

struct quantization {
    enum quantization_scales scales;
    const char *suffix; /* of a scale's name, where the weight's has "weight" */
};

/* ST_UNSUPPORTED and ST_INVALID name file, key or tensor, and the value. */
enum status quantization_read(const struct folder *f, struct quantization *out,
                              struct error *error);
/* The name of what `name` scales, as "a.weight" for "a.weight_scale"; false: it is no scale. */
bool quantization_scaled(struct mapped_text name, char *out, size_t capacity);
/* The scales of weight t [rows × cols] as fp32; *values_out is to be freed. Of a tensor of another
 * type than E4M3 there are none. ST_INVALID: a scale is missing, of another shape, or no number to
 * scale with; or the weights have a NaN. */
enum status quantization_scales_read(const struct quantization *q, const struct folder *f,
                                     const struct mapped_tensor *t, struct compute_scales *out,
                                     float **values_out, struct error *error);

#endif
