/* adapter_writer: random low-rank adapters in the form of PEFT (model/file/adapter.h), for tests
 * and fuzz seeds: the two files in memory, or an adapter of an open model. The test's main thread
 * calls it; the functions have no state, and the same struct gives the same bytes. It makes no
 * wrong files: tests change the bytes. Aborts if there is no memory or a file cannot be written. */
#ifndef TESTS_MODEL_FILE_ADAPTER_WRITER_H
#define TESTS_MODEL_FILE_ADAPTER_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_file;

struct adapter_writer {
    uint32_t layers, hidden, ffn;
    uint32_t q, kv; /* Rows of q, and of k and v. */
    uint32_t rank;
    float alpha;
    bool only_q_v;   /* The adapter changes only q and v; false = all seven products. */
    bool root_scale; /* Key use_rslora. */
    bool bf16;       /* Elements are BF16, rounded toward zero; false = F32. */
    bool odd;        /* The elements begin at an odd offset of the file. */
    uint64_t seed;
};

/* Returns adapter_config.json, or adapter_model.safetensors, allocated with malloc. */
char *adapter_writer_config(const struct adapter_writer *w, size_t *bytes_out);
uint8_t *adapter_writer_weights(const struct adapter_writer *w, size_t *bytes_out);

/* Adds the adapter to a model, under the name `name`. The files are in a folder of their own, which
 * is removed before the function returns. */
void adapter_writer_add(const struct adapter_writer *w, struct model_file *file, const char *name);

#endif
