/* tokenizer: converts text to tokens and tokens to text. It supports two kinds of vocabularies: (a)
 * byte-level BPE, with the pre-tokenizers of tokenizer_split.c or the regular expressions of a
 * tokenizer.json; (b) SentencePiece, with scores, with merges or with the unigram model. The
 * gateway opens a tokenizer for each model. It encodes on its text threads, and decodes on its
 * event loop thread and its text threads. The thread of a machine's grammar_cache
 * (model/grammar/answers.h) opens a tokenizer to get the bytes of the tokens. After tokenizer_open,
 * any thread may call the functions of a tokenizer. This part does not render chat templates
 * (chat.h). */
#ifndef MODEL_TEXT_TOKENIZER_H
#define MODEL_TEXT_TOKENIZER_H

#include "common/status.h"
#include "model/file/model_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

#define TOKENIZER_NO_TOKEN UINT32_MAX /* No such token. */

/* Opens the tokenizer of a model. *out does not use `file` after the call. On failure *error has
 * the reason. */
enum status tokenizer_open(struct model_file *file, struct tokenizer **out, struct error *error);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

uint32_t tokenizer_token_count(const struct tokenizer *t); /* Returns the number of tokens. */
/* Return the id of BOS or EOS; TOKENIZER_NO_TOKEN = none. */
uint32_t tokenizer_bos(const struct tokenizer *t);
uint32_t tokenizer_eos(const struct tokenizer *t);
/* Returns true for control tokens and the unknown token. */
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
/* Stores the ids of the tokens that end an answer (eos, eot, <|im_end|>, <|eot_id|>, <|endoftext|>
 * …), at most 16. Returns their number. The gateway sends them to machines with each request,
 * unless the request has ignore_eos. */
uint32_t tokenizer_end_tokens(const struct tokenizer *t, uint32_t ends_out[16]);

/* A part of a text. */
struct tokenizer_range {
    size_t begin;
    size_t end; /* Offset of the first byte after the range. */
};

struct tokenizer_encode_options {
    bool parse_special; /* Recognise special tokens that are spelled out in the text. */
    bool add_bos;       /* Put BOS first, if the model's prompts begin with BOS. */
    bool add_eos;       /* Put EOS last, if the model's files say that texts end with EOS. */
    /* Ranges of the text in which no special token is recognised, although parse_special is true.
     * No special token crosses an end of a range. In ascending order, without overlaps. NULL =
     * none. */
    const struct tokenizer_range *plain_ranges;
    size_t plain_count;
};

/* Encodes text[0..bytes) and stores the tokens in *ids_out and their number in *count_out. *ids_out
 * grows by realloc: the caller starts with *ids_out NULL and *capacity 0, may pass both to further
 * calls, and frees *ids_out, also after an error. Returns ST_INVALID, with the byte's offset, if
 * the text is not UTF-8; ST_TOO_LARGE, ST_NO_MEMORY. The time is nearly linear in `bytes`, also
 * without spaces. */
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                             const struct tokenizer_encode_options *options, uint32_t **ids_out,
                             size_t *capacity, size_t *count_out, struct error *error);

/* Returns a lower bound of the number of the text's tokens; 0 = not known. It is the number of the
 * text's bytes that can be part of a token, divided by the bytes of the longest token and by the
 * factor by which normalisation can shorten a text. The caller can refuse a text that is much too
 * long without encoding the text. */
size_t tokenizer_tokens_min(const struct tokenizer *t, const char *text, size_t bytes);

/* Returns the bytes that a token stands for, or the text of a special token. NULL = the id is out
 * of range. t owns the bytes. */
const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *bytes_out);
/* Returns the id of the token that the model's file spells exactly as `text`, such as "<|im_end|>";
 * TOKENIZER_NO_TOKEN = none. */
uint32_t tokenizer_find(const struct tokenizer *t, const char *text);

/* The state of converting the tokens of one answer to text. All zeros = the answer begins. One
 * thread at a time may use it. */
struct detokenizer {
    uint8_t pending[4]; /* Bytes of an unfinished UTF-8 character. */
    uint8_t pending_bytes;
};

/* Room that detokenizer_feed needs for a token of piece_bytes bytes. */
#define DETOKENIZER_OUT_BYTES(piece_bytes) (((piece_bytes) + 4) * 3)

/* Adds one token and writes the characters that are complete to `out`. Bytes that cannot become a
 * character are written as U+FFFD. skip_special = special tokens write nothing. Returns the number
 * of bytes written. */
size_t detokenizer_feed(struct detokenizer *d, const struct tokenizer *t, uint32_t id,
                        bool skip_special, char *out);
/* Ends the text: writes U+FFFD for an unfinished character. Returns the number of bytes written. */
size_t detokenizer_finish(struct detokenizer *d, char out[3]);

#endif
