/* packed: converts weights that a folder stores as packed integers, with scales in other tensors:
 * GPTQ, AWQ, compressed-tensors' pack-quantized and int-quantized, and gpt-oss' MXFP4. Other files
 * of model/file/ call the functions, on the thread that uses the struct model_file. This part has
 * no state, and does not read config.json (quantization.h).
 *
 * For each packed matrix, packed_tensors_add adds a tensor to the folder, under the name that the
 * matrix has in a folder without packed weights. The added tensor has no data (data = NULL), and
 * one of the types of GGUF files: Q4_0, Q5_0, Q8_0 or MXFP4. packed_read converts rows to this
 * type, which holds the integers exactly. In Q4_0, Q5_0 and Q8_0, scales are rounded to F16. */
#ifndef MODEL_FILE_PACKED_H
#define MODEL_FILE_PACKED_H

#include "common/status.h"
#include "model/file/folder.h"

/* Formats, with the tensors of the matrix NAME. */
enum packed_format {
    PACKED_NONE, /* Weights are not packed. */
    PACKED_GPTQ, /* NAME.qweight, .qzeros, .scales, .g_idx */
    PACKED_AWQ,  /* NAME.qweight, .qzeros, .scales */
    /* NAME.weight_packed, .weight_scale, .weight_zero_point, .weight_shape, .weight_g_idx */
    PACKED_COMPRESSED,
    PACKED_INT8,  /* NAME.weight of 8-bit integers, .weight_scale, .weight_g_idx */
    PACKED_MXFP4, /* NAME_blocks, NAME_scales: the matrices of all experts in one tensor */
};

/* How the weights of a folder are packed. */
struct packed_settings {
    enum packed_format format;
    uint32_t weight_bits;      /* Bits of a weight: 4 or 8. */
    uint32_t group_columns;    /* Columns of a row that share a scale; 0 = all columns. */
    bool is_asymmetric;        /* Zero points differ; false = every zero point is 8 or 128. */
    bool zero_points_less_one; /* GPTQ only: the stored zero points are 1 too small. */
};

/* Checks the tensors of all packed matrices of the folder, and adds one tensor for each matrix.
 * Does nothing with PACKED_NONE. Returns ST_INVALID if a tensor is missing or has a wrong shape or
 * type; ST_UNSUPPORTED if a tensor's form is not supported, or if scales, in formats other than
 * PACKED_MXFP4, have a wrong type; or ST_NO_MEMORY. The error's text names the tensor. */
enum status packed_tensors_add(const struct packed_settings *settings, struct folder *folder,
                               struct error *error);

/* Converts rows [first_row, first_row + row_count) of a tensor that packed_tensors_add has added.
 * In a tensor with the matrices of all experts, row r of expert e has the number e × rows + r. The
 * caller frees *out, which has the rows in the tensor's type. Returns ST_INVALID if a scale is NaN
 * or too large for F16, or if is_asymmetric is false and a zero point is not 8 or 128;
 * ST_NO_MEMORY; or an error of packed_tensors_add. */
enum status packed_read(const struct packed_settings *settings, const struct folder *folder,
                        const struct mapped_tensor *tensor, uint32_t first_row, uint32_t row_count,
                        void **out, struct error *error);

/* If `name` has an ending of the tensors of packed matrices, such as .qweight, writes the name of
 * the added tensor ("a.qweight" gives "a.weight") to out[0..capacity), and returns true. Returns
 * false for the endings .weight and .weight_scale, for other names, or if the result does not
 * fit. */
bool packed_weights_name(struct mapped_text name, char *out, size_t capacity);

#endif
