/* vocabulary: the raw material of a tokenizer and a chat template, independent of the file format.
 * vocabulary_gguf.c and vocabulary_json.c fill it; tokenizer_open and chat_template_open read it.
 * Its texts point into the model's files, which must stay open. It is read-only once filled;
 * the thread that opens the model's text side uses it. It does not tokenize. */
#ifndef MODEL_FILE_VOCABULARY_H
#define MODEL_FILE_VOCABULARY_H

#include "common/status.h"
#include "model/file/mapped.h"

enum vocabulary_kind {
    /* Byte-level BPE: words are merged from bytes, which are spelled in GPT-2's alphabet. */
    VOCABULARY_BYTES,
    /* SentencePiece with scores: neighbouring pieces whose joint token has the highest score merge
     * first, starting from characters. */
    VOCABULARY_SCORES,
    VOCABULARY_CHARACTERS, /* SentencePiece with a list of merges instead of scores. */
};

/* Types of tokens, numbered as in GGUF. */
enum vocabulary_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
};

/* Whether a blank that is not in the text is put before each part of a text between special tokens.
 */
enum vocabulary_prefix {
    VOCABULARY_PREFIX_NONE,
    VOCABULARY_PREFIX_ALWAYS,
    VOCABULARY_PREFIX_UNLESS_BLANK, /* Unless the part begins with a blank. */
    /* Only at the beginning of the text, and unless the text begins with a blank. */
    VOCABULARY_PREFIX_FIRST,
};

/* A setting that a file may leave open (UNSAID). */
enum vocabulary_said { VOCABULARY_UNSAID, VOCABULARY_NO, VOCABULARY_YES };

#define VOCABULARY_NO_TOKEN   UINT32_MAX
#define VOCABULARY_ENDS_MAX   8
#define VOCABULARY_TOKENS_MAX ((1u << 20) - 1) /* More tokens than any known vocabulary has. */

struct json_t;

struct vocabulary {
    enum vocabulary_kind kind;
    uint32_t count;
    const struct mapped_text *tokens; /* [count] tokens as the file spells them. */
    /* [count] enum vocabulary_type; NULL = all tokens are normal. */
    const int32_t *types;
    const float *scores; /* [count] scores; only with VOCABULARY_SCORES. */
    /* Pairs "left right"; the first pair has the highest priority. */
    const struct mapped_text *merges;
    size_t merge_count;
    struct mapped_text splitter; /* Name of the pre-tokenizer; only with VOCABULARY_BYTES. */
    /* Whether a word that is a token is never merged. UNSAID: as is usual for the pre-tokenizer. */
    enum vocabulary_said words_first;
    /* Whether the model wants BOS first. UNSAID: as is usual for the pre-tokenizer; yes for
     * SentencePiece. */
    enum vocabulary_said add_bos;
    enum vocabulary_prefix prefix; /* Not used with VOCABULARY_BYTES. */
    /* Every single blank begins a new word, because no token has two blanks. */
    bool blank_begins_word;
    uint32_t bos, eos, unknown; /* VOCABULARY_NO_TOKEN = none. */
    /* Tokens besides eos that end an answer, as the files list them. */
    uint32_t ends[VOCABULARY_ENDS_MAX];
    uint32_t end_count;
    struct mapped_text template; /* Chat template; text NULL = none. */
    struct mapped_text architecture;
    void *owned[4]; /* Allocations that vocabulary_done frees. */
    /* JSON documents that texts point into; vocabulary_done releases them. */
    struct json_t *documents[3];
};

void vocabulary_done(struct vocabulary *v); /* A zeroed struct is fine. */

#endif
