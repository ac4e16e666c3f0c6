/* source: a weight matrix as its file stores it: element types, scales, slices, and dequantisation
 * in plain C. model/file/ describes the matrices of a file by struct compute_source, model/forward/
 * cuts slices for ranks, and the backends repack the slices. types.c has the functions. No state;
 * any thread. This part owns no data, reads no files, and does not know the layouts of the
 * backends. */
#ifndef COMPUTE_SOURCE_H
#define COMPUTE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Element types of a weight matrix, as files store them. compute_type_block_elements and
 * compute_type_block_bytes give the shape of a block. */
enum compute_type {
    COMPUTE_F32,
    COMPUTE_F16,
    COMPUTE_BF16,
    COMPUTE_Q8_0,
    COMPUTE_Q4_0,
    COMPUTE_Q4_1,
    COMPUTE_Q5_0,
    COMPUTE_Q5_1,
    COMPUTE_Q4_K,
    COMPUTE_Q5_K,
    COMPUTE_Q6_K,
    COMPUTE_Q2_K,
    COMPUTE_Q3_K,
    COMPUTE_IQ4_NL,
    COMPUTE_IQ4_XS,
    COMPUTE_MXFP4,
    COMPUTE_TQ1_0,
    COMPUTE_TQ2_0,
    COMPUTE_IQ3_S,
    COMPUTE_IQ3_XXS,
    COMPUTE_IQ2_S,
    COMPUTE_IQ2_XS,
    COMPUTE_IQ2_XXS,
    COMPUTE_IQ1_S,
    COMPUTE_IQ1_M,
    COMPUTE_GGUF_COUNT, /* Number of the types above, which GGUF files use. */
    /* 8-bit floats of Hugging Face folders, scaled by struct compute_scales. */
    COMPUTE_F8_E4M3 = COMPUTE_GGUF_COUNT,
    COMPUTE_TYPE_COUNT
};

/* Returns the name of the type: GGUF's name, such as "Q4_1", or "F8_E4M3". */
const char *compute_type_name(enum compute_type type);
/* Returns the number of elements in a block: 1, 32 or 256. */
uint32_t compute_type_block_elements(enum compute_type type);
/* Returns the bytes of a block. */
size_t compute_type_block_bytes(enum compute_type type);
/* Dequantises `count` elements (whole blocks) to fp32. Requires that `source` is aligned to 2
 * bytes. Elements of F8_E4M3 are not multiplied by scales (struct compute_scales). */
void compute_dequantize(enum compute_type type, const void *source, size_t count, float *out);

/* Scales of an F8_E4M3 matrix. All elements in a block of `rows` × `cols` elements are multiplied
 * by one scale. */
struct compute_scales {
    const float *values; /* One per block; NULL = no scales. */
    uint32_t rows, cols; /* Rows and columns of a block; UINT32_MAX = all. */
    uint32_t stride;     /* Number of values from one row of blocks to the next. */
    /* Position of the matrix's first element in the first block; not 0 if a slice begins inside a
     * block. */
    uint32_t first_row, first_col;
};

/* Returns the scale of the element at (row, col). Requires s->values. */
static inline float compute_scale_at(const struct compute_scales *s, uint32_t row, uint32_t col)
{
    size_t down = ((size_t)s->first_row + row) / s->rows;
    size_t right = ((size_t)s->first_col + col) / s->cols;
    return s->values[down * s->stride + right];
}

/* A matrix, or a slice of one, as its file stores it. */
struct compute_source {
    enum compute_type type;
    uint32_t rows, cols;
    const void *data;             /* Elements of the first row. */
    size_t row_bytes;             /* Bytes from one row to the next; 0 = the rows are contiguous. */
    struct compute_scales scales; /* Used only with F8_E4M3. */
};

/* Returns the bytes from one row to the next, also if row_bytes is 0. */
size_t compute_source_row_bytes(const struct compute_source *source);
/* Writes row `row`, dequantised and scaled, to out[0..cols). */
void compute_source_row(const struct compute_source *source, uint32_t row, float *out);
/* Describes rows [row, row + rows) × columns [col, col + cols) of `source` without copying data or
 * scales. Requires that `source` has these rows and columns. Returns false if col or cols is not a
 * multiple of the type's block. */
bool compute_source_slice(const struct compute_source *source, uint32_t row, uint32_t rows,
                          uint32_t col, uint32_t cols, struct compute_source *out);

#endif
