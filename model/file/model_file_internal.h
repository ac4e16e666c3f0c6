/* model_file_internal: defines struct model_file. Only files of model/file/ and tests include this
 * header; model_file.h is the interface for other parts. One thread at a time uses a struct
 * model_file. The caller of model_file_open owns it. */
#ifndef MODEL_FILE_MODEL_FILE_INTERNAL_H
#define MODEL_FILE_MODEL_FILE_INTERNAL_H

#include "common/limits.h"
#include "model/file/folder.h"
#include "model/file/model_file.h"
#include "model/file/quantization.h"
#include "model/file/vocabulary.h"

/* The struct owns the objects that its fields point to. */
struct model_file {
    struct gguf *gguf;                /* NULL = the model is a folder. */
    struct folder *folder;            /* NULL = the model is a GGUF file. */
    enum role_names naming;           /* How the files name tensors. */
    struct quantization quantization; /* How a folder's weights are quantised. */
    /* A folder's embedding matrix is also its vocabulary matrix. Always false for a GGUF file. */
    bool tied;
    struct vocabulary vocabulary;
    bool vocabulary_read; /* `vocabulary` has been read (model_file_vocabulary). */
    struct {
        char name[ADAPTER_NAME_BYTES];
        struct adapter *adapter;
    } adapters[LIMIT_ADAPTERS]; /* The first adapter_count entries are in use. */
    uint32_t adapter_count;
    /* Digest of the model with its adapters; all zeros = not computed yet, or no adapters. */
    struct digest digest;
};

#endif
