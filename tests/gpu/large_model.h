/* large_model: models of real shapes with random weights, for bench_model, which opens them on its
 * main thread. All matrices of a model are the same random numbers: a small piece of memory that is
 * mapped many times, so a model of 141 GB needs a few megabytes of the host's memory. The numbers
 * keep activations finite; the answers mean nothing. */
#ifndef TESTS_GPU_LARGE_MODEL_H
#define TESTS_GPU_LARGE_MODEL_H

#include "model/file/model_file.h"

struct large_shape {
    const char *name;
    uint32_t layers, hidden, ffn, heads, kv_heads, vocab, context;
};

/* Returns a shape by its name: "8b" (Llama 3 8B), "70b" (Llama 3 70B), "1b" (Llama 3.2 1B) or
 * "tiny"; NULL = unknown name. */
const struct large_shape *large_shape_find(const char *name);
/* Returns the number of weights that a decode step reads: of every matrix except the embedding. */
uint64_t large_shape_weights(const struct large_shape *shape);

/* Opens a GGUF with this shape whose matrices are of `type` (a float type). Ends the program if
 * that is impossible. The result cannot be written to a file: large_model_write does that. */
struct model_file *large_model_open(const struct large_shape *shape, enum compute_type type);

/* Writes such a model to a file, with a vocabulary of bytes that a gateway can read. */
void large_model_write(const struct large_shape *shape, enum compute_type type, const char *path);

#endif
