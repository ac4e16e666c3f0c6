/* model_file_internal: what model_file.c and keys.c share. Nobody else includes it. */
#ifndef MODEL_MODEL_FILE_INTERNAL_H
#define MODEL_MODEL_FILE_INTERNAL_H

#include "model/folder.h"
#include "model/model_file.h"
#include "model/quantization.h"
#include "model/vocabulary.h"

/* One of gguf and folder. */
struct model_file {
    struct gguf *gguf;
    struct folder *folder;
    enum role_names names;
    struct quantization quantization; /* of a folder */
    bool tied; /* the vocabulary's projection is the embedding, even if there is a tensor for it */
    struct vocabulary vocabulary;
    bool vocabulary_read;
};

#endif
