/* quantization: reads how the weights of a folder are quantised: 8-bit floats (E4M3) with scales in
 * separate tensors, or packed integers (packed.h). It has no state. model_file.c calls it, on the
 * thread that uses the model_file. It ignores what the files say about quantising activations and
 * KV, because the compute device and the config decide that. It supports the methods
 * "compressed-tensors", "fp8" (Transformers' fine-grained FP8), "gptq", "awq" and "mxfp4". */
#ifndef MODEL_FILE_QUANTIZATION_H
#define MODEL_FILE_QUANTIZATION_H

#include "common/status.h"
#include "model/file/folder.h"
#include "model/file/packed.h"

/* Which elements of a weight matrix share one scale. */
enum quantization_scales {
    QUANTIZATION_NONE,   /* No weights are 8-bit floats. (Packed weights: packed.h.) */
    QUANTIZATION_TENSOR, /* All elements of the matrix. */
    QUANTIZATION_ROW,    /* All elements of a row. */
    QUANTIZATION_BLOCK,  /* All elements of a 128 × 128 block. */
};

struct quantization {
    enum quantization_scales scales;
    /* What the name of a tensor of scales has in place of the ending "weight"; NULL with
     * QUANTIZATION_NONE. */
    const char *suffix;
    struct packed_settings packed; /* How weights are packed, if they are integers. */
    /* The files ask for quantised KV, or have scales for quantised KV. cleave uses neither. */
    bool has_kv_cache;
};

/* Reads the key quantization_config of config.json, and adds the tensors of packed weights to the
 * folder. Without the key, out->scales is QUANTIZATION_NONE, and out->packed.format PACKED_NONE.
 * Returns ST_UNSUPPORTED, ST_INVALID or ST_NO_MEMORY, and names the key or the tensor in the
 * error's text. *out is written only on success. */
enum status quantization_read(struct folder *f, struct quantization *out, struct error *error);
/* If `name` is the name of a tensor of scales ("a.weight_scale") or of another part of quantised
 * weights, writes the name of the weights' tensor ("a.weight") to out[0..capacity) and returns
 * true. Returns false for other names, or if the name does not fit. */
bool quantization_weights_name(struct mapped_text name, char *out, size_t capacity);
/* Reads the scales of the weight matrix `t` as floats of 32 bits. On success the caller frees
 * *values_out after the last use of *out. If `t` is not E4M3, *values_out is NULL and *out is
 * unchanged. Returns ST_INVALID if the scales are missing, have a wrong shape, are negative or not
 * finite, or if a weight is NaN; ST_UNSUPPORTED if a type or name does not fit; ST_NO_MEMORY. */
enum status quantization_scales_read(const struct quantization *q, const struct folder *f,
                                     const struct mapped_tensor *t, struct compute_scales *out,
                                     float **values_out, struct error *error);

#endif
