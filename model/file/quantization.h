/* quantization: folders whose weights are 8-bit floats (E4M3) with scales in separate tensors.
 * Reads config.json's quantization_config, and the scales of one matrix. Two kinds of folders are
 * supported: those of compressed-tensors, and "fp8" (Transformers' fine-grained FP8, as DeepSeek
 * and Qwen publish). What the files say about quantising activations is ignored: the compute device
 * decides that. Called while a model is opened. Internal to model/. */
#ifndef MODEL_FILE_QUANTIZATION_H
#define MODEL_FILE_QUANTIZATION_H

#include "common/status.h"
#include "model/file/folder.h"

/* Which elements of a weight matrix share one scale. */
enum quantization_scales {
    QUANTIZATION_NONE,   /* Weights have no scales. */
    QUANTIZATION_TENSOR, /* All elements of the matrix. */
    QUANTIZATION_ROW,    /* All elements of a row. */
    QUANTIZATION_BLOCK,  /* All elements of a 128 × 128 block. */
};

struct quantization {
    enum quantization_scales scales;
    const char *suffix; /* Ending of the name of a scale tensor, in place of "weight". */
};

/* Reads quantization_config. Without it, out->scales is QUANTIZATION_NONE. ST_UNSUPPORTED and
 * ST_INVALID name the file, the key or tensor, and the value. */
enum status quantization_read(const struct folder *f, struct quantization *out,
                              struct error *error);
/* If `name` is the name of a scale ("a.weight_scale"), writes the name of the tensor that it scales
 * ("a.weight") to out[0..capacity) and returns true. False: it is not the name of a scale. */
bool quantization_scaled(struct mapped_text name, char *out, size_t capacity);
/* Reads the scales of weight matrix `t` as fp32. On success the caller frees *values_out after the
 * last use of *out. For a tensor that is not E4M3, *values_out is NULL and *out is unchanged.
 * ST_INVALID: a scale is missing, has a wrong shape, or is negative or not finite; or a weight is
 * NaN. */
enum status quantization_scales_read(const struct quantization *q, const struct folder *f,
                                     const struct mapped_tensor *t, struct compute_scales *out,
                                     float **values_out, struct error *error);

#endif
