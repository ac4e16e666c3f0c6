/* folder_writer: writes the model of a GGUF file as a Hugging Face folder: config.json,
 * tokenizer.json and safetensors, the reverse of what converters do. Weights are copied unchanged
 * or as E4M3, so the GGUF's tensors must be F32, F16 or BF16; gguf_retype makes such a file. Other
 * files abort the test. Tests and the programs write_folder and encode_folder call it on their main
 * thread. The functions have no state. */
#ifndef TESTS_MODEL_FILE_FOLDER_WRITER_H
#define TESTS_MODEL_FILE_FOLDER_WRITER_H

#include "model/file/gguf.h"
#include "model/file/model_file.h"

struct folder_writer {
    /* Key model_type of config.json; NULL = that of the GGUF's architecture. */
    const char *model_type;
    const char *rope_scaling; /* Key rope_scaling of config.json, as JSON; NULL = from the GGUF. */
    /* Number of safetensors files, with an index; 0 = one file without an index. */
    uint32_t shards;
    bool no_rope_factors; /* Leave out the GGUF's rope factors; rope_scaling gives them. */
    bool merge_pairs;     /* Write merges as ["a", "b"] instead of "a b". */
    /* Write the layers' matrices as E4M3 or packed integers, as in quantised folders. */
    enum folder_f8 {
        FOLDER_F8_NONE,
        FOLDER_F8_TENSOR, /* compressed-tensors: a scale per matrix, also for activations. */
        FOLDER_F8_ROW,    /* compressed-tensors: a scale per row, in BF16. */
        FOLDER_F8_BLOCK,  /* Fine-grained: a scale for each 128 × 128 block. */
        FOLDER_GPTQ,      /* 4 bits with zero points, in groups of 32 columns. */
        FOLDER_AWQ,       /* As FOLDER_GPTQ. */
    } f8;
    bool f8_undone; /* Write these matrices multiplied with their scales, as F32. */
};

/* Writes to the existing folder `path`. `file` is a GGUF. */
void folder_write(const struct model_file *file, const struct folder_writer *options,
                  const char *path);

/* Removes the files of folder_write, and the folder. */
void folder_remove(const char *path);

/* Returns the same GGUF with all tensors as F32 or BF16 (rounded to nearest), allocated with
 * malloc. */
uint8_t *gguf_retype(const struct gguf *g, enum compute_type type, size_t *bytes_out);

#endif
