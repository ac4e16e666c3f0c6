/* pooling: reads from a model's files how the vectors of a text's tokens become one embedding. In a
 * GGUF file, this is the key ARCHITECTURE.pooling_type; in a folder, the file
 * 1_Pooling/config.json. The gateway calls model_pooling_read when it opens a model, on the thread
 * that uses the struct model_file. This part has no state and computes no embeddings. */
#ifndef MODEL_FILE_POOLING_H
#define MODEL_FILE_POOLING_H

#include "common/pooling.h"
#include "model/file/model_file.h"

/* Stores how the vectors become an embedding. POOLING_NONE = the files do not name a pooling, or
 * name a pooling that cleave does not have (the first token's vector, a classifier). Returns
 * ST_INVALID if the file of a folder is malformed or the key of a GGUF file has a wrong type, or
 * ST_NO_MEMORY. */
enum status model_pooling_read(const struct model_file *file, enum pooling *out,
                               struct error *error);

#endif
