/* vocabulary_read: the readers of vocabularies, one for each file format. model_file.c calls the
 * readers of GGUF files and of folders; the files vocabulary_*.c call the other functions. All run
 * on the thread that uses the model_file; no state. They check what they read, but build no
 * look-ups (tokenizer_open does). */
#ifndef MODEL_FILE_VOCABULARY_READ_H
#define MODEL_FILE_VOCABULARY_READ_H

#include "model/file/folder.h"
#include "model/file/gguf.h"
#include "model/file/vocabulary.h"

/* Reads the keys tokenizer.ggml.* of a GGUF file. On failure *error has the reason. On success the
 * caller frees *out with vocabulary_done. */
enum status vocabulary_read_gguf(const struct gguf *g, struct vocabulary *out, struct error *error);

/* Reads tokenizer.json and the tokenizer's other files. The vocabulary gets one token for each row
 * of `embedding`. Rows without a token in tokenizer.json become unused tokens. On failure *error
 * has the reason. On success the caller frees *out with vocabulary_done. */
enum status vocabulary_read_json(const struct folder *f, const struct mapped_tensor *embedding,
                                 struct vocabulary *out, struct error *error);

/* The functions below that have a parameter v fill parts of *v. They require v->count, the rows of
 * the embedding, and return the errors of vocabulary_read_json. Also after an error, the caller
 * frees *v with vocabulary_done. */

/* ---- the tokenizers of folders without tokenizer.json ---- */

/* Reads tokenizer.model, whose content is `file`. */
enum status vocabulary_read_sentencepiece(struct mapped_text file, struct vocabulary *v,
                                          struct error *error);
/* Reads tekken.json, the document `root`. */
enum status vocabulary_read_tekken(const struct json_t *root, struct vocabulary *v,
                                   struct error *error);

/* ---- the parts of vocabulary_read_json; `root` is tokenizer.json ---- */

/* Reads normalizer, pre_tokenizer and post_processor into kind, steps, splitter, expressions,
 * prefix, blank_begins_word, unknown_fused, add_bos and bos. */
enum status vocabulary_json_words(const struct json_t *root, struct vocabulary *v,
                                  struct error *error);
/* Reads model and added_tokens into `tokens`, `types`, `find_flags`, `long_scores`, `unknown` and
 * `words_first`. Requires v->kind. */
enum status vocabulary_json_tokens(const struct json_t *root, struct vocabulary *v,
                                   struct error *error);
/* Reads model.merges into `merges`. Requires v->kind. */
enum status vocabulary_json_merges(const struct json_t *root, struct vocabulary *v,
                                   struct error *error);
/* Returns the OR of enum vocabulary_find of an added token. */
uint8_t vocabulary_json_find_flags(const struct json_t *added);
/* Returns the pre-tokenizer that is equal to a regular expression; text NULL = none. */
struct mapped_text vocabulary_splitter_find(const char *expression);
/* Returns the id of the token with this text in tokenizer.json; VOCABULARY_NO_TOKEN = none. */
uint32_t vocabulary_json_find(const struct json_t *root, const char *text);

#endif
