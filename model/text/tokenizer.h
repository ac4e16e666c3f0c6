/* tokenizer: converts text to tokens and tokens to text. A struct tokenizer owns the tables for the
 * vocabulary of one model. There are four kinds: byte-level BPE, SentencePiece's BPE with scores,
 * SentencePiece's BPE with merges, and SentencePiece's unigram model (enum vocabulary_kind). The
 * gateway opens a tokenizer to encode prompts and to decode answers. A machine opens a tokenizer to
 * get the bytes of the tokens, for constrained answers. After tokenizer_open, any thread may call
 * the functions of a tokenizer. This part does not render chat templates (chat.h). */
#ifndef MODEL_TEXT_TOKENIZER_H
#define MODEL_TEXT_TOKENIZER_H

#include "common/status.h"
#include "model/file/model_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

#define TOKENIZER_NO_TOKEN UINT32_MAX /* No such token. */

/* Opens the tokenizer of a model. *out does not use `file` after the call. Returns the errors of
 * model_file_vocabulary; ST_UNSUPPORTED or ST_INVALID if the vocabulary cannot be used;
 * ST_TOO_LARGE; ST_NO_MEMORY. */
enum status tokenizer_open(struct model_file *file, struct tokenizer **out, struct error *error);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

uint32_t tokenizer_token_count(const struct tokenizer *t); /* Returns the number of tokens. */
/* Returns the id of BOS, the token at the beginning of a text; TOKENIZER_NO_TOKEN = none. */
uint32_t tokenizer_bos(const struct tokenizer *t);
/* Returns the id of EOS, the token at the end of a text; TOKENIZER_NO_TOKEN = none. */
uint32_t tokenizer_eos(const struct tokenizer *t);
/* Returns true for control tokens and the unknown token. */
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
/* Stores the ids of the tokens that end an answer, such as EOS and <|im_end|>. Returns the
 * number of these tokens, at most 16. */
uint32_t tokenizer_end_tokens(const struct tokenizer *t, uint32_t ends_out[16]);

/* A part of a text. */
struct tokenizer_range {
    size_t begin;
    size_t end; /* Offset of the first byte after the range. */
};

struct tokenizer_encode_options {
    /* Recognise special tokens by their spelling in the text. User-defined tokens are always
     * recognised. */
    bool parse_special;
    bool add_bos; /* Put BOS first, if the model's texts begin with BOS. */
    bool add_eos; /* Put EOS last, if the model's files say that texts end with EOS. */
    /* [plain_count] ranges of the text in which special tokens are ordinary text: with
     * parse_special, a special token that overlaps a range is not recognised. In ascending order,
     * without overlaps. NULL = none. */
    const struct tokenizer_range *plain_ranges;
    size_t plain_count;
};

/* Encodes text[0..bytes) and stores the tokens in *ids_out and their number in *count_out. *ids_out
 * has room for *capacity ids and grows by realloc: the caller starts with NULL and 0, may pass the
 * two values to further calls, and frees *ids_out, also after an error. Returns ST_INVALID if the
 * text is not UTF-8, with the byte's offset in the error's text; ST_TOO_LARGE if the text is too
 * long or too costly to divide into words; ST_NO_MEMORY. */
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                             const struct tokenizer_encode_options *options, uint32_t **ids_out,
                             size_t *capacity, size_t *count_out, struct error *error);

/* Returns a lower bound of the number of tokens of the text, without encoding it; 0 = no bound is
 * known. */
size_t tokenizer_tokens_min(const struct tokenizer *t, const char *text, size_t bytes);

/* Returns the bytes that a token stands for, or the spelling of a special token. NULL = no token
 * has this id; *bytes_out is then not set. t owns the bytes. */
const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *bytes_out);
/* Returns the id of the token that the model's file spells exactly as `text`, such as "<|im_end|>";
 * TOKENIZER_NO_TOKEN = none. */
uint32_t tokenizer_find(const struct tokenizer *t, const char *text);

/* The state of converting the tokens of one text, such as an answer, to characters. All zeros = the
 * text begins. One thread at a time may use a detokenizer. */
struct detokenizer {
    uint8_t pending[4];    /* Bytes of an unfinished UTF-8 character. */
    uint8_t pending_bytes; /* Number of these bytes. */
};

/* Bytes of `out` that detokenizer_feed needs for a token of piece_bytes bytes (tokenizer_piece). */
#define DETOKENIZER_OUT_BYTES(piece_bytes) (((piece_bytes) + 4) * 3)

/* Adds the token `id`, and writes the characters that are then complete to `out`. Bytes that cannot
 * become a character are written as U+FFFD. skip_special: special tokens (tokenizer_is_special)
 * write nothing. Returns the number of bytes written; 0 also if no token has this id. */
size_t detokenizer_feed(struct detokenizer *d, const struct tokenizer *t, uint32_t id,
                        bool skip_special, char *out);
/* Ends the text: writes U+FFFD to `out` if a character is unfinished. Returns the number of bytes
 * written. */
size_t detokenizer_finish(struct detokenizer *d, char out[3]);

#endif
