/* adapter: one low-rank adapter (LoRA) in the form of the library PEFT: a folder with
 * adapter_config.json and adapter_model.safetensors. A struct adapter owns the mappings of both
 * files and finds the two matrices with which the adapter changes a product. model_file.c and
 * model/forward/adapters.c call it, on the thread that uses the model_file. It does not know the
 * model's shapes. */
#ifndef MODEL_FILE_ADAPTER_H
#define MODEL_FILE_ADAPTER_H

#include "common/digest.h"
#include "common/status.h"
#include "model/file/mapped.h"

/* The products of a layer (a matrix of the model times a vector) that an adapter can change. */
enum adapter_matrix {
    ADAPTER_Q,
    ADAPTER_K,
    ADAPTER_V,
    ADAPTER_OUTPUT,
    ADAPTER_GATE,
    ADAPTER_UP,
    ADAPTER_DOWN,
    ADAPTER_MATRIX_COUNT
};

struct adapter;

/* Opens the adapter in the folder at `path`. The caller closes *out with adapter_close. Returns
 * ST_NOT_FOUND if a file is missing, ST_IO, ST_INVALID, ST_UNSUPPORTED if the adapter has a setting
 * or tensor that is not supported, or ST_NO_MEMORY. */
enum status adapter_open(const char *path, struct adapter **out, struct error *error);
/* Opens an adapter whose two files are in memory (fuzzing, tests). Requires that the files stay
 * unchanged until adapter_close. */
enum status adapter_open_memory(struct mapped_text config, struct mapped_text weights,
                                struct adapter **out, struct error *error);
void adapter_close(struct adapter *a); /* NULL is fine. */

/* Returns one of the two matrices of a product: up = false, A ([rank × columns of the model's
 * matrix]); up = true, B ([rows of the model's matrix × rank]). The files may have other shapes:
 * the function checks only that A and B have two dimensions of F32, F16 or BF16. NULL = the adapter
 * does not change the product. `a` owns the tensor. */
const struct mapped_tensor *adapter_tensor(const struct adapter *a, uint32_t layer,
                                           enum adapter_matrix matrix, bool up);
/* Returns the factor by which B · A · x is multiplied if the matrices have this rank. */
float adapter_scale(const struct adapter *a, uint32_t rank);
/* Returns one more than the index of the last layer that the adapter changes; 0 = it changes no
 * layer. */
uint32_t adapter_layer_end(const struct adapter *a);
/* Appends the content of the adapter's files to a digest. */
void adapter_digest_add(const struct adapter *a, struct digest *digest);

#endif
