/* model_file_internal: struct model_file, for model_file.c, which owns it, and for keys.c,
 * pooling.c and sampling_defaults.c, which read it. One thread at a time uses the struct
 * (model_file.h). Other files use model_file.h. */
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
    bool vocabulary_read; /* `vocabulary` is set. */
    struct {
        char name[ADAPTER_NAME_BYTES];
        struct adapter *adapter;
    } adapters[LIMIT_ADAPTERS];
    uint32_t adapter_count;
    /* Digest of the model with its adapters. digest_is_none = not computed yet; always so without
     * adapters. */
    struct digest digest;
};

#endif
