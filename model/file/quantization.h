/* quantization: reads how the weights of a folder are quantised: as 8-bit floats (E4M3) with scales
 * in separate tensors, or as packed weights (packed.h). The supported methods are
 * "compressed-tensors", "fp8" (Transformers' fine-grained FP8), "gptq", "awq" and "mxfp4".
 * model_file.c calls the functions, on the thread that uses the struct model_file. This part has no
 * state, and ignores the files' settings for quantised activations. Of the settings for quantised
 * KV, it only stores whether there are any (has_kv_scheme). */
#ifndef MODEL_FILE_QUANTIZATION_H
#define MODEL_FILE_QUANTIZATION_H

#include "common/status.h"
#include "model/file/folder.h"
#include "model/file/packed.h"

/* Which elements of a weight matrix of 8-bit floats share one scale. */
enum quantization_scales {
    QUANTIZATION_NONE,   /* The folder has no weights of 8-bit floats. */
    QUANTIZATION_TENSOR, /* All elements of the matrix. */
    QUANTIZATION_ROW,    /* All elements of a row. */
    QUANTIZATION_BLOCK,  /* All elements of a 128 × 128 block. */
};

/* How the weights of a folder are quantised. All zeros = the weights are not quantised. */
struct quantization {
    enum quantization_scales scales;
    /* With 8-bit floats: the scales of the tensor "a.weight" are in the tensor "a." + suffix;
     * "weight_scale" or "weight_scale_inv". */
    const char *suffix;
    struct packed_settings packed; /* How weights are packed; PACKED_NONE = not packed. */
    bool has_kv_scheme;            /* Result of model_file_has_kv_scheme. */
};

/* Reads the key quantization_config of config.json, calls packed_tensors_add, and checks that all
 * tensors of scales and of integers belong to weights, and that weights of 8-bit floats have scales
 * of a known kind. Without the key, the weights are not quantised. Returns ST_UNSUPPORTED,
 * ST_INVALID or ST_NO_MEMORY. *out is written only on success. */
enum status quantization_read(struct folder *f, struct quantization *out, struct error *error);
/* If `name` is the name of a tensor beside quantised weights, such as their scales
 * ("a.weight_scale"), writes the name of the weights' tensor ("a.weight") to out[0..capacity) and
 * returns true. Returns false for other names, or if the result does not fit. */
bool quantization_weights_name(struct mapped_text name, char *out, size_t capacity);
/* Reads the scales of the weight matrix `t` as floats of 32 bits, if `t` has 8-bit floats. On
 * success the caller frees *values_out after the last use of *out. If `t` has another type,
 * *values_out is NULL and *out is unchanged. Returns ST_INVALID if the scales are missing, have a
 * wrong shape, are negative or not finite, or if a weight is NaN; ST_UNSUPPORTED if `t` is not a
 * matrix whose name ends with "weight", or the scales are not F32, F16 or BF16; or ST_NO_MEMORY. */
enum status quantization_scales_read(const struct quantization *q, const struct folder *f,
                                     const struct mapped_tensor *t, struct compute_scales *out,
                                     float **values_out, struct error *error);

#endif
