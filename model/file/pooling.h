/* model_pooling: how a model's files say that the vectors of its tokens become an embedding: the key
 * ARCHITECTURE.pooling_type of a GGUF file, or 1_Pooling/config.json of a folder (Sentence
 * Transformers). server/api/served_model.c reads it when a model is opened, on that thread. No
 * state. */
#ifndef MODEL_FILE_POOLING_H
#define MODEL_FILE_POOLING_H

#include "common/pooling.h"
#include "model/file/model_file.h"

/* *out is POOLING_NONE if the files say nothing, or name a way that cleave does not have (the first
 * token's vector, a classifier). Returns ST_INVALID, with file and key, for wrong types. */
enum status model_pooling_read(const struct model_file *file, enum pooling *out,
                               struct error *error);

#endif
