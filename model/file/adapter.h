/* adapter: one low-rank adapter (LoRA) in the form of the library PEFT: a folder with
 * adapter_config.json and adapter_model.safetensors. The adapter changes a product W · x of the
 * model to W · x + scale · B · A · x. The number of rows of A is the rank.
 *
 * A struct adapter owns the mappings of both files and the table of the matrices A and B. A struct
 * model_file opens and closes its adapters, and model/forward/ reads the matrices, on the thread
 * that uses the struct model_file. This part computes no products, and does not know the shapes of
 * the model's matrices. */
#ifndef MODEL_FILE_ADAPTER_H
#define MODEL_FILE_ADAPTER_H

#include "common/digest.h"
#include "common/status.h"
#include "model/file/mapped.h"

/* The matrices W of a layer whose products an adapter can change. */
enum adapter_matrix {
    ADAPTER_Q,
    ADAPTER_K,
    ADAPTER_V,
    ADAPTER_OUTPUT, /* Attention's output matrix. */
    ADAPTER_GATE,
    ADAPTER_UP,
    ADAPTER_DOWN,
    ADAPTER_MATRIX_COUNT
};

struct adapter;

/* Opens the adapter in the folder at `path` and checks the names and types of its tensors. The
 * caller closes *out with adapter_close. Returns ST_NOT_FOUND if a file is missing, ST_IO if a file
 * cannot be read or is empty, ST_INVALID if a file is malformed or one of A and B is missing,
 * ST_UNSUPPORTED if a setting or tensor is not supported, or ST_NO_MEMORY. */
enum status adapter_open(const char *path, struct adapter **out, struct error *error);
/* Opens an adapter whose two files are in memory (fuzzing, tests). The caller owns the memory,
 * which must stay unchanged until adapter_close. Returns the errors of adapter_open. */
enum status adapter_open_memory(struct mapped_text config, struct mapped_text weights,
                                struct adapter **out, struct error *error);
void adapter_close(struct adapter *a); /* NULL is fine. */

/* Returns matrix A (is_b = false; [rank × columns of W]) or matrix B (is_b = true; [rows of W ×
 * rank]) for the matrix W of a layer. NULL = the adapter does not change this product. `a` owns the
 * tensor, which has two dimensions, and elements of type F32, F16 or BF16. The caller must compare
 * the shape with the shape of W. */
const struct mapped_tensor *adapter_tensor(const struct adapter *a, uint32_t layer,
                                           enum adapter_matrix matrix, bool is_b);
/* Returns the scale for matrices of this rank: lora_alpha divided by the rank, or by the root of
 * the rank if the adapter's config sets use_rslora. */
float adapter_scale(const struct adapter *a, uint32_t rank);
/* Returns the index of the last layer that the adapter changes, plus 1; 0 = the adapter changes no
 * layer. */
uint32_t adapter_layer_end(const struct adapter *a);
/* Adds the whole content of both files to *digest. */
void adapter_digest_add(const struct adapter *a, struct digest *digest);

#endif
