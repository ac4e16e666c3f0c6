/* tokenizer: byte-level BPE from a model's vocabulary and merges, with the pre-tokenizers smollm,
 * gpt-2 (also "default"), llama-bpe, qwen2 and tekken, whose regular expressions PCRE2 runs; and
 * SentencePiece vocabularies with scores (of GGUF) or merges (of tokenizer.json). Special tokens
 * in the text are recognised when asked. Read-only after opening: any thread may encode.
 * Detokenising is incremental and never splits a UTF-8 character. */
#ifndef MODEL_TOKENIZER_H
#define MODEL_TOKENIZER_H

#include "common/status.h"
#include "model/model_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

#define TOKENIZER_NO_TOKEN UINT32_MAX

/* Copies what it needs: the file may be closed afterwards. */
enum status tokenizer_open(struct model_file *file, struct tokenizer **out, struct error *error);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

uint32_t tokenizer_vocab(const struct tokenizer *t);
uint32_t tokenizer_bos(const struct tokenizer *t); /* TOKENIZER_NO_TOKEN if none */
uint32_t tokenizer_eos(const struct tokenizer *t);
/* True for every token that ends generation (eos, eot, <|im_end|>, <|eot_id|>, <|endoftext|> …). */
bool tokenizer_is_end(const struct tokenizer *t, uint32_t id);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
/* All end tokens, for a machine that has no tokenizer. Returns the count (≤ 16). */
uint32_t tokenizer_ends(const struct tokenizer *t, uint32_t ends_out[16]);

struct tokenizer_encode_options {
    bool parse_special; /* recognise special tokens in the text */
    bool add_bos;       /* put BOS first if the file says that the model wants it */
};

/* Encodes valid UTF-8 text[0..bytes). ids_out grows by realloc: *ids_out and *capacity start as
 * NULL, 0 or a former result; free(*ids_out) after. ST_INVALID on invalid UTF-8 (error names the
 * byte offset). Time is near linear in bytes, also for a text without a space. */
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                             const struct tokenizer_encode_options *options, uint32_t **ids_out,
                             size_t *capacity, size_t *count_out, struct error *error);

/* The bytes of one token (special tokens: their text). NULL for an id out of range. Owned by t. */
const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *bytes_out);
/* The id of an exact vocabulary text such as "<|im_end|>", or TOKENIZER_NO_TOKEN. */
uint32_t tokenizer_find(const struct tokenizer *t, const char *text);

/* Incremental detokenising: bytes of an unfinished UTF-8 character wait in the state for the next
 * token; bytes that can never become a character come out as U+FFFD. */
struct detokenizer {
    uint8_t pending[4];
    uint8_t pending_bytes;
};

#define DETOKENIZER_OUT_BYTES(piece_bytes) (((piece_bytes) + 4) * 3)

/* Feeds one token; appends only whole characters to out (capacity ≥ DETOKENIZER_OUT_BYTES(piece)).
 * skip_special drops special tokens. Returns the bytes written. */
size_t detokenizer_feed(struct detokenizer *d, const struct tokenizer *t, uint32_t id,
                        bool skip_special, char *out);
/* At the end of a text: an unfinished character comes out as U+FFFD. */
size_t detokenizer_finish(struct detokenizer *d, char out[3]);

#endif
