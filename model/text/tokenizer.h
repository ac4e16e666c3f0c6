/* tokenizer: converts text to tokens and back. It supports byte-level BPE with the pre-tokenizers
 * smollm, gpt-2 (also called "default"), llama-bpe, qwen2 and tekken, whose regular expressions
 * PCRE2 runs; and SentencePiece vocabularies with scores (GGUF) or with merges (tokenizer.json).
 * After tokenizer_open, any thread may call any function of the same tokenizer. It does not render
 * chat templates (chat.h). */
#ifndef MODEL_TEXT_TOKENIZER_H
#define MODEL_TEXT_TOKENIZER_H

#include "common/status.h"
#include "model/file/model_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

#define TOKENIZER_NO_TOKEN UINT32_MAX

/* Copies what it needs: `file` may be closed afterwards. */
enum status tokenizer_open(struct model_file *file, struct tokenizer **out, struct error *error);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

uint32_t tokenizer_vocab(const struct tokenizer *t);
uint32_t tokenizer_bos(const struct tokenizer *t); /* TOKENIZER_NO_TOKEN if none */
uint32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
/* Writes the ids of all tokens that end an answer (eos, eot, <|im_end|>, <|eot_id|>, <|endoftext|>
 * …), for a process that has no tokenizer. Returns their number (at most 16). */
uint32_t tokenizer_ends(const struct tokenizer *t, uint32_t ends_out[16]);

struct tokenizer_range {
    size_t begin;
    size_t end; /* Offset of the first byte behind the range. */
};

struct tokenizer_encode_options {
    bool parse_special; /* Recognise special tokens that are spelled out in the text. */
    bool add_bos;       /* Put BOS first, if the model's file says that the model wants it. */
    /* Parts of the text in which, and across whose ends, no special token is recognised although
     * parse_special is true. In ascending order, without overlaps. NULL = none. */
    const struct tokenizer_range *plain;
    size_t plain_count;
};

/* Encodes text[0..bytes), which must be valid UTF-8, to count_out tokens. Grows *ids_out by
 * realloc: start with *ids_out NULL and *capacity 0, or pass those of an earlier call. The caller
 * frees *ids_out. ST_INVALID: invalid UTF-8; the error names the byte offset. The time is nearly
 * linear in `bytes`, also for a text without spaces. */
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                             const struct tokenizer_encode_options *options, uint32_t **ids_out,
                             size_t *capacity, size_t *count_out, struct error *error);

/* The bytes of one token; for a special token, its text. NULL = the id is out of range. Owned by t.
 */
const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *bytes_out);
/* The id of the token whose vocabulary text is exactly `text`, such as "<|im_end|>";
 * TOKENIZER_NO_TOKEN = none. */
uint32_t tokenizer_find(const struct tokenizer *t, const char *text);

/* State of turning one answer's tokens into text. Bytes of an unfinished UTF-8 character wait in
 * `pending` for the next token. Bytes that can never become a character are written as U+FFFD. */
struct detokenizer {
    uint8_t pending[4];
    uint8_t pending_bytes;
};

#define DETOKENIZER_OUT_BYTES(piece_bytes) (((piece_bytes) + 4) * 3)

/* Adds one token and writes only whole characters to out. Requires room for
 * DETOKENIZER_OUT_BYTES(bytes of the token's piece) bytes. skip_special leaves out special tokens.
 * Returns the bytes written. */
size_t detokenizer_feed(struct detokenizer *d, const struct tokenizer *t, uint32_t id,
                        bool skip_special, char *out);
/* Ends a text: writes U+FFFD for an unfinished character. Returns the bytes written. */
size_t detokenizer_finish(struct detokenizer *d, char out[3]);

#endif
