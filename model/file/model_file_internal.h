/* model_file_internal: the struct that model_file.c and keys.c share. No other file includes it.
 * One thread at a time uses the struct (model_file.h). */
#ifndef MODEL_FILE_MODEL_FILE_INTERNAL_H
#define MODEL_FILE_MODEL_FILE_INTERNAL_H

#include "model/file/folder.h"
#include "model/file/model_file.h"
#include "model/file/quantization.h"
#include "model/file/vocabulary.h"

/* Either `gguf` or `folder` is set, the other is NULL. */
struct model_file {
    struct gguf *gguf;
    struct folder *folder;
    enum role_names names;
    struct quantization quantization; /* How weights are quantised. Used only for a folder. */
    /* The output projection is the embedding, even if the folder has a tensor for the projection.
     */
    bool tied;
    struct vocabulary vocabulary;
    bool vocabulary_read;
};

#endif
