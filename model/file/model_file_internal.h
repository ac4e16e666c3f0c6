/* model_file_internal: struct model_file. model_file.c fills it, and keys.c, pooling.c and
 * sampling_defaults.c read it, on the thread that uses the model_file. Other files use
 * model_file.h. */
#ifndef MODEL_FILE_MODEL_FILE_INTERNAL_H
#define MODEL_FILE_MODEL_FILE_INTERNAL_H

#include "common/limits.h"
#include "model/file/folder.h"
#include "model/file/model_file.h"
#include "model/file/quantization.h"
#include "model/file/vocabulary.h"

/* Either `gguf` or `folder` is set, the other is NULL. */
struct model_file {
    struct gguf *gguf;
    struct folder *folder;
    enum role_names naming;           /* How the file names its tensors. */
    struct quantization quantization; /* How weights are quantised. Used only for a folder. */
    /* The embedding matrix is also the vocabulary matrix. Set only for a folder. */
    bool tied;
    struct vocabulary vocabulary;
    bool vocabulary_read; /* `vocabulary` is set (model_file_vocabulary). */
    struct {
        char name[ADAPTER_NAME_BYTES];
        struct adapter *adapter;
    } adapters[LIMIT_ADAPTERS];
    uint32_t adapter_count;
    /* Digest of the model with its adapters; all zeros = not computed yet, or no adapters. */
    struct digest digest;
};

#endif
