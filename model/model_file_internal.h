/* model_file_internal: the struct that model_file.c and keys.c share. No other file includes it. */
#ifndef MODEL_MODEL_FILE_INTERNAL_H
#define MODEL_MODEL_FILE_INTERNAL_H

#include "model/folder.h"
#include "model/model_file.h"
#include "model/quantization.h"
#include "model/vocabulary.h"

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
