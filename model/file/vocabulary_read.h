/* vocabulary_read: the readers of vocabularies, which have no state, and run on the thread that
 * uses the struct model_file. model_file.c calls vocabulary_read_gguf and vocabulary_read_folder;
 * the other functions are parts of vocabulary_read_folder. The readers build no tables for finding
 * tokens (tokenizer_open does). */
#ifndef MODEL_FILE_VOCABULARY_READ_H
#define MODEL_FILE_VOCABULARY_READ_H

#include "model/file/folder.h"
#include "model/file/gguf.h"
#include "model/file/vocabulary.h"

/* Reads the keys tokenizer.* and general.architecture of a GGUF file. The caller frees *out with
 * vocabulary_done. Returns ST_INVALID, ST_UNSUPPORTED or ST_NO_MEMORY on failure. *out is written
 * only on success. */
enum status vocabulary_read_gguf(const struct gguf *g, struct vocabulary *out, struct error *error);

/* Reads the tokenizer's files of a folder: the first of tokenizer.json, tekken.json and
 * tokenizer.model that exists, and the files beside it. The vocabulary has one token for each row
 * of the embedding matrix `embedding`; a row without a token in the files becomes an unused token.
 * The caller frees *out with vocabulary_done. Returns ST_INVALID (also if `embedding` is NULL),
 * ST_UNSUPPORTED or ST_NO_MEMORY on failure. *out is written only on success. */
enum status vocabulary_read_folder(const struct folder *f, const struct mapped_tensor *embedding,
                                   struct vocabulary *out, struct error *error);

/* The functions below with a parameter v fill parts of *v. They require v->count, and
 * VOCABULARY_NO_TOKEN in `bos`, `eos` and `unknown`, and return the errors of
 * vocabulary_read_folder. The caller frees *v with vocabulary_done, also after an error. */

/* ---- the tokenizers of folders without tokenizer.json ---- */

/* Reads tokenizer.model, whose content is `file`. */
enum status vocabulary_read_sentencepiece(struct mapped_text file, struct vocabulary *v,
                                          struct error *error);
/* Reads tekken.json, the document `root`. */
enum status vocabulary_read_tekken(const struct json_t *root, struct vocabulary *v,
                                   struct error *error);

/* ---- the parts of vocabulary_read_folder; `root` is tokenizer.json ---- */

/* Reads normalizer, pre_tokenizer, post_processor and model.type into `kind`, `steps`, `splitter`,
 * `expressions`, `prefix`, blank_begins_word, unknown_fused, add_bos and `bos`. */
enum status vocabulary_json_words(const struct json_t *root, struct vocabulary *v,
                                  struct error *error);
/* Reads model and added_tokens into `tokens`, `types`, find_flags, long_scores, `unknown` and
 * whole_words_first. Requires v->kind. */
enum status vocabulary_json_tokens(const struct json_t *root, struct vocabulary *v,
                                   struct error *error);
/* Reads model.merges into `merges`, except with VOCABULARY_UNIGRAM. Requires v->kind. */
enum status vocabulary_json_merges(const struct json_t *root, struct vocabulary *v,
                                   struct error *error);
/* Returns the find_flags of a token, from its entry in a list of added tokens. */
uint8_t vocabulary_json_find_flags(const struct json_t *added);
/* Returns the name of the pre-tokenizer (splitter_open in model/text/) that divides texts as this
 * regular expression does; text NULL = no pre-tokenizer does. */
struct mapped_text vocabulary_splitter_find(const char *expression);
/* Returns the id of the token with this text in tokenizer.json, which is `root`;
 * VOCABULARY_NO_TOKEN = none. */
uint32_t vocabulary_json_find(const struct json_t *root, const char *text);

#endif
