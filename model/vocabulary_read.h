/* vocabulary_read: the readers of vocabularies, one a format. Internal to model/. */
#ifndef MODEL_VOCABULARY_READ_H
#define MODEL_VOCABULARY_READ_H

#include "model/gguf.h"
#include "model/vocabulary.h"

/* Of tokenizer.ggml.*; *out is zeroed by the caller and needs vocabulary_done on success only. */
enum status vocabulary_read_gguf(const struct gguf *g, struct vocabulary *out, struct error *error);

#endif
