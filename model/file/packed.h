/* packed: weights that a folder stores as packed integers, with scales in other tensors: GPTQ, AWQ,
 * compressed-tensors' pack-quantized and int-quantized, and gpt-oss' MXFP4. For each packed matrix,
 * packed_tensors_add adds a tensor to the folder, under the matrix's usual name. The added tensor
 * has the GGUF type that holds its values exactly (scales may be rounded to F16), and data = NULL.
 * packed_read converts rows of an added tensor. quantization.c and model_file.c call the functions,
 * on the thread that uses the model_file; no state. They do not read config.json
 * (quantization_packed.c does). */
#ifndef MODEL_FILE_PACKED_H
#define MODEL_FILE_PACKED_H

#include "common/status.h"
#include "model/file/folder.h"

enum packed_format {
    PACKED_NONE,
    PACKED_GPTQ,       /* NAME.qweight, .qzeros, .scales, .g_idx */
    PACKED_AWQ,        /* NAME.qweight, .qzeros, .scales */
    PACKED_COMPRESSED, /* NAME.weight_packed, .weight_scale, .weight_zero_point, .weight_shape */
    PACKED_INT8,       /* NAME.weight of 8-bit integers, .weight_scale */
    PACKED_MXFP4,      /* NAME_blocks, NAME_scales, of three dimensions: stacks of experts */
};

struct packed {
    enum packed_format format;
    uint32_t bits;             /* 4 or 8. */
    uint32_t group;            /* Columns that share a scale; 0 = all columns of a row. */
    bool has_zero_points;      /* Matrices have zero points of their own. */
    bool zero_points_less_one; /* GPTQ only: the stored zero points are 1 too small. */
};

/* Checks the tensors of all packed matrices of the folder, and adds the tensors of their values to
 * the folder. Returns ST_INVALID or ST_UNSUPPORTED with the tensor, or ST_NO_MEMORY. */
enum status packed_tensors_add(const struct packed *p, struct folder *f, struct error *error);

/* Converts rows [first, first + count) of a tensor that packed_tensors_add added. In a stack the
 * rows of the experts follow each other: row r of expert e has the number e × rows + r. The caller
 * frees *out. Returns ST_NO_MEMORY, or ST_INVALID for a scale that F16 cannot hold (above 65504) or
 * that is NaN, or for a zero point that the format does not allow. */
enum status packed_read(const struct packed *p, const struct folder *f,
                        const struct mapped_tensor *t, uint32_t first, uint32_t count, void **out,
                        struct error *error);

/* If `name` has the ending of a part of packed weights (such as .qweight), writes the name of the
 * tensor with the values and returns true. The endings .weight_scale (see
 * quantization_weights_name) and .weight are not known here. Returns false for other names, or if
 * the result does not fit in `capacity`. */
bool packed_weights_name(struct mapped_text name, char *out, size_t capacity);

#endif
