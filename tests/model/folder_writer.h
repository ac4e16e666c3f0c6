/* folder_writer: writes a GGUF file's model as Hugging Face would have it, config.json,
 * tokenizer.json and safetensors: the other way round than converters go. Weights are copied as
 * they are, or as E4M3, so the file's tensors must be F32, F16 or BF16; gguf_retype makes such a
 * file. Aborts the test on anything else. */
#ifndef TESTS_MODEL_FOLDER_WRITER_H
#define TESTS_MODEL_FOLDER_WRITER_H

#include "model/gguf.h"
#include "model/model_file.h"

struct folder_writer {
    const char *model_type;   /* NULL: the one that belongs to the architecture */
    const char *rope_scaling; /* JSON; NULL: what the GGUF says */
    uint32_t shards;          /* 0: one file, without an index */
    bool no_rope_factors;     /* of the GGUF: left out, rope_scaling says the same */
    bool merge_pairs;         /* merges as ["a", "b"], not "a b" */
    /* The layers' matrices as E4M3, as quantised folders have them. */
    enum folder_f8 {
        FOLDER_F8_NONE,
        FOLDER_F8_TENSOR, /* compressed-tensors: a scale a matrix, of activations too */
        FOLDER_F8_ROW,    /* compressed-tensors: a scale a row, BF16 */
        FOLDER_F8_BLOCK,  /* fine-grained: one for each 128 × 128 */
    } f8;
    bool f8_undone; /* those matrices multiplied with their scales again, as F32 */
};

/* Writes to the folder `path`, which is there. `file` is a GGUF. */
void folder_write(const struct model_file *file, const struct folder_writer *options,
                  const char *path);

/* Removes what folder_write has written, and the folder. */
void folder_remove(const char *path);

/* The same GGUF with all tensors as F32 or BF16 (rounded to the nearest). malloc'ed. */
uint8_t *gguf_retype(const struct gguf *g, enum compute_type type, size_t *bytes_out);

#endif
