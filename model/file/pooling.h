/* pooling: reads from a model's files how the vectors of a text's tokens become one embedding. The
 * key ARCHITECTURE.pooling_type of a GGUF file says this, or the file 1_Pooling/config.json of a
 * folder. It has no state. The gateway calls it when it opens a model, on the thread that uses the
 * model_file. It computes no embeddings (forward_pool does). */
#ifndef MODEL_FILE_POOLING_H
#define MODEL_FILE_POOLING_H

#include "common/pooling.h"
#include "model/file/model_file.h"

/* Stores how the vectors become an embedding. POOLING_NONE = the files do not say, or name a way
 * that cleave does not have (the first token's vector, a classifier). Returns ST_INVALID if the
 * file of a folder is malformed, or if a key of a GGUF file has a wrong type; ST_NO_MEMORY. */
enum status model_pooling_read(const struct model_file *file, enum pooling *out,
                               struct error *error);

#endif
