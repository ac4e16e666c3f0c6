/* adapter: one low-rank adapter (LoRA) in the form of the library PEFT: a folder with
 * adapter_config.json and adapter_model.safetensors. It owns the mappings of both files and finds
 * the two matrices of each product. model_file.c opens adapters, on the thread that uses the
 * model_file; model/forward/adapters.c reads them. It does not know the model's shapes. */
#ifndef MODEL_FILE_ADAPTER_H
#define MODEL_FILE_ADAPTER_H

#include "common/digest.h"
#include "common/status.h"
#include "model/file/mapped.h"

/* The products of a layer that an adapter can change. */
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

/* Opens the adapter's folder. On failure *error has the reason. The caller closes *out with
 * adapter_close. */
enum status adapter_open(const char *path, struct adapter **out, struct error *error);
/* Opens an adapter whose two files are in memory (fuzzing, tests). Requires that the files stay
 * unchanged until adapter_close. */
enum status adapter_open_memory(struct mapped_text config, struct mapped_text weights,
                                struct adapter **out, struct error *error);
void adapter_close(struct adapter *a); /* NULL is fine. */

/* Returns matrix A ([rank × columns of the product]) or, with `up`, B ([rows × rank]) of a product;
 * NULL = the adapter does not change the product. `a` owns the tensor. */
const struct mapped_tensor *adapter_tensor(const struct adapter *a, uint32_t layer,
                                           enum adapter_matrix matrix, bool up);
/* Returns the factor of a product B · A · x whose matrices have this rank. */
float adapter_scale(const struct adapter *a, uint32_t rank);
/* Returns one more than the index of the last layer that the adapter changes; 0 = it changes no
 * layer. */
uint32_t adapter_layer_end(const struct adapter *a);
/* Appends the content of the adapter's files to a digest. */
void adapter_digest_add(const struct adapter *a, struct digest *digest);

#endif
