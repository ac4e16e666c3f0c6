/* large_model: models of real shapes with random weights, for a bench of devices: all matrices of a
 * model are the same random numbers, a small piece of memory that is mapped over and over, so a
 * model of 141 GB takes a few megabytes of the host. Numbers are of a size that keeps activations
 * finite; answers mean nothing. */
#ifndef TESTS_GPU_LARGE_MODEL_H
#define TESTS_GPU_LARGE_MODEL_H

#include "model/file/model_file.h"

struct large_shape {
    const char *name;
    uint32_t layers, hidden, ffn, heads, kv_heads, vocab, context;
};

/* "8b" (Llama 3 8B), "70b" (Llama 3 70B), "1b" (Llama 3.2 1B) or "tiny"; NULL for any other. */
const struct large_shape *large_shape_find(const char *name);
/* Weights that a token step reads: every matrix but the embedding. */
uint64_t large_shape_weights(const struct large_shape *shape);

/* A GGUF of this shape whose matrices are of `type` (a float type). Ends the program when it
 * cannot. Not to be written to a file: see large_model_write. */
struct model_file *large_model_open(const struct large_shape *shape, enum compute_type type);

/* The same as a file, with a vocabulary of bytes that a gateway can read. */
void large_model_write(const struct large_shape *shape, enum compute_type type, const char *path);

#endif
