/* vocabulary_read: the readers of vocabularies, one per file format. model_file.c
 * calls them on the thread that uses the file. They check what they read but build no
 * look-ups (tokenizer_open does). Internal to model/. */
#ifndef MODEL_FILE_VOCABULARY_READ_H
#define MODEL_FILE_VOCABULARY_READ_H

#include "model/file/folder.h"
#include "model/file/gguf.h"
#include "model/file/vocabulary.h"

/* Reads the keys tokenizer.ggml.* of a GGUF file. On success the caller releases *out with
 * vocabulary_done. */
enum status vocabulary_read_gguf(const struct gguf *g, struct vocabulary *out, struct error *error);

/* Reads tokenizer.json and the files beside it. The vocabulary gets one token per row of
 * `embedding`; rows that tokenizer.json does not name become unused tokens. A part of
 * tokenizer.json that is not supported is an error that names the part. On success the caller
 * releases *out with vocabulary_done. */
enum status vocabulary_read_json(const struct folder *f, const struct mapped_tensor *embedding,
                                 struct vocabulary *out, struct error *error);

/* ---- the parts of vocabulary_read_json; `root` is tokenizer.json ---- */

/* Reads normalizer, pre_tokenizer and post_processor into kind, splitter, prefix,
 * blank_begins_word, words_first and add_bos. */
enum status vocabulary_json_words(const struct json_t *root, struct vocabulary *v,
                                  struct error *error);
/* Reads model.vocab and added_tokens into `tokens`, `types` and `unknown`. Requires v->count. */
enum status vocabulary_json_tokens(const struct json_t *root, struct vocabulary *v,
                                   struct error *error);
/* Reads model.merges. */
enum status vocabulary_json_merges(const struct json_t *root, struct vocabulary *v,
                                   struct error *error);
/* The id of the token with this text, or VOCABULARY_NO_TOKEN. */
uint32_t vocabulary_json_find(const struct json_t *root, const char *text);

#endif
