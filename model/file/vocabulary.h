/* vocabulary: the tokens of a model and the settings of its tokenizer and chat template, for every
 * file format. vocabulary_gguf.c and vocabulary_json.c fill it; tokenizer_open and
 * chat_template_open read it, on the thread that uses the model_file. Its texts point into the
 * model's files, which must stay open. It does not change once it is filled. It has no look-ups and
 * does not tokenize (tokenizer.h does). */
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

/* Special tokens divide a text into parts. Whether the tokenizer puts a blank before a part: */
enum vocabulary_prefix {
    VOCABULARY_PREFIX_NONE,         /* Never. */
    VOCABULARY_PREFIX_ALWAYS,       /* Before each part. */
    VOCABULARY_PREFIX_UNLESS_BLANK, /* Before each part that does not begin with a blank. */
    /* Only before the first part, and only if it does not begin with a blank. */
    VOCABULARY_PREFIX_FIRST,
};

/* A setting of a file; UNSAID = the file does not have it. */
enum vocabulary_said { VOCABULARY_UNSAID, VOCABULARY_NO, VOCABULARY_YES };

#define VOCABULARY_NO_TOKEN   UINT32_MAX       /* No such token. */
#define VOCABULARY_ENDS_MAX   8                /* Tokens in `ends`. */
#define VOCABULARY_TOKENS_MAX ((1u << 20) - 1) /* Tokens of a vocabulary. */

struct json_t;

struct vocabulary {
    enum vocabulary_kind kind;
    uint32_t count;                   /* Number of tokens. */
    const struct mapped_text *tokens; /* [count] tokens as the file spells them. */
    /* [count] enum vocabulary_type; NULL = all tokens are normal. */
    const int32_t *types;
    const float *scores; /* [count] scores; only with VOCABULARY_SCORES. */
    /* Pairs "left right"; the first pair has the highest priority. */
    const struct mapped_text *merges;
    size_t merge_count;
    struct mapped_text splitter; /* Name of the pre-tokenizer; only with VOCABULARY_BYTES. */
    /* Whether a word that is a token is not merged from its bytes. UNSAID: the pre-tokenizer's
     * default. */
    enum vocabulary_said words_first;
    /* Whether a prompt begins with BOS. UNSAID: the pre-tokenizer's default; yes for SentencePiece.
     */
    enum vocabulary_said add_bos;
    /* Whether a text ends with EOS, which only embeddings heed. UNSAID: no. */
    enum vocabulary_said add_eos;
    enum vocabulary_prefix prefix; /* Not used with VOCABULARY_BYTES. */
    /* Every single blank begins a new word, because no token has two blanks. */
    bool blank_begins_word;
    uint32_t bos, eos, unknown; /* VOCABULARY_NO_TOKEN = none. */
    /* Other tokens that end an answer, according to the files. */
    uint32_t ends[VOCABULARY_ENDS_MAX];
    uint32_t end_count;
    struct mapped_text template; /* Chat template; text NULL = none. */
    /* Chat template for requests with tools; text NULL = `template`. */
    struct mapped_text template_tools;
    struct mapped_text architecture; /* Name of the model's architecture in its files. */
    void *owned[4];                  /* Allocations that vocabulary_done frees. */
    /* JSON documents that texts point into; vocabulary_done releases them. */
    struct json_t *documents[3];
};

/* Frees what the vocabulary owns, and sets *v to 0. A zeroed struct is fine. */
void vocabulary_done(struct vocabulary *v);

#endif
