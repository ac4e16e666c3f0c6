/* vocabulary_read: the readers of vocabularies, one a format. Internal to model/. */
#ifndef MODEL_VOCABULARY_READ_H
#define MODEL_VOCABULARY_READ_H

#include "model/folder.h"
#include "model/gguf.h"
#include "model/vocabulary.h"

/* Of tokenizer.ggml.*; *out needs vocabulary_done on success only. */
enum status vocabulary_read_gguf(const struct gguf *g, struct vocabulary *out, struct error *error);

/* Of tokenizer.json and what lies beside it. `embedding` is the tensor: the model has as many
 * tokens as it has rows, those that nothing names are unused. Parts of tokenizer.json that are not
 * known are an error that names them. */
enum status vocabulary_read_json(const struct folder *f, const struct mapped_tensor *embedding,
                                 struct vocabulary *out, struct error *error);

/* ---- the parts of the latter; `root` is tokenizer.json ---- */

/* normalizer, pre_tokenizer and post_processor: kind, splitter, prefix, blank_begins_word, and what
 * they say of BOS. */
enum status vocabulary_json_words(const struct json_t *root, struct vocabulary *v,
                                  struct error *error);
/* model.vocab and added_tokens: tokens and types, of v->count; the unknown token. */
enum status vocabulary_json_tokens(const struct json_t *root, struct vocabulary *v,
                                   struct error *error);
/* model.merges. */
enum status vocabulary_json_merges(const struct json_t *root, struct vocabulary *v,
                                   struct error *error);
/* The id of a token by its text, or VOCABULARY_NO_TOKEN. */
uint32_t vocabulary_json_find(const struct json_t *root, const char *text);

#endif
