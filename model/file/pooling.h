/* pooling: how a model's files say that the vectors of its tokens become an embedding: the
 * key ARCHITECTURE.pooling_type of a GGUF file, or 1_Pooling/config.json of a folder (Sentence
 * Transformers). server/api/served_model.c calls it when the gateway opens a model, on the thread
 * that uses the model_file; no state. It computes no embeddings (forward_pool does). */
#ifndef MODEL_FILE_POOLING_H
#define MODEL_FILE_POOLING_H

#include "common/pooling.h"
#include "model/file/model_file.h"

/* Stores how the model pools. *out is POOLING_NONE if the files do not say, or if they name a way
 * that cleave does not have (the first token's vector, a classifier). Returns ST_INVALID if the
 * file of a folder is malformed, or if the key of a GGUF file has a wrong type. */
enum status model_pooling_read(const struct model_file *file, enum pooling *out,
                               struct error *error);

#endif
