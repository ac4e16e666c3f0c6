/* model_file_internal: what model_file.c and keys.c share. Nobody else includes it. */
#ifndef MODEL_MODEL_FILE_INTERNAL_H
#define MODEL_MODEL_FILE_INTERNAL_H

#include "model/model_file.h"
#include "model/vocabulary.h"

struct model_file {
    struct gguf *gguf;
    struct vocabulary vocabulary;
    bool vocabulary_read;
};

#endif
