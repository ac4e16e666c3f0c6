/* vocabulary: what a tokenizer and a chat template are made of, whatever the files: filled by
 * vocabulary_gguf.c and vocabulary_json.c. Texts lie in the files. */
#ifndef MODEL_VOCABULARY_H
#define MODEL_VOCABULARY_H

#include "common/status.h"
#include "model/mapped.h"

enum vocabulary_kind {
    VOCABULARY_BYTES,      /* words, merged from bytes that are spelled in GPT-2's alphabet */
    VOCABULARY_SCORES,     /* SentencePiece: characters, those joined first that score highest */
    VOCABULARY_CHARACTERS, /* the same vocabularies with merges in the place of scores */
};

/* Types of tokens, as GGUF numbers them. */
enum vocabulary_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
};

/* A blank that is not in a text, put before what lies between special tokens. */
enum vocabulary_prefix {
    VOCABULARY_PREFIX_NONE,
    VOCABULARY_PREFIX_ALWAYS,
    VOCABULARY_PREFIX_UNLESS_BLANK, /* where it begins with one */
    VOCABULARY_PREFIX_FIRST,        /* the same, at the beginning of the text only */
};

enum vocabulary_said { VOCABULARY_UNSAID, VOCABULARY_NO, VOCABULARY_YES };

#define VOCABULARY_NO_TOKEN   UINT32_MAX
#define VOCABULARY_ENDS_MAX   8
#define VOCABULARY_TOKENS_MAX ((1u << 20) - 1) /* far above any vocabulary */

struct json_t;

struct vocabulary {
    enum vocabulary_kind kind;
    uint32_t count;
    const struct mapped_text *tokens; /* [count] as they are spelled */
    const int32_t *types;             /* [count]; NULL: all are normal */
    const float *scores;              /* [count], VOCABULARY_SCORES only */
    const struct mapped_text *merges; /* "left right", the first to be made first */
    size_t merge_count;
    struct mapped_text splitter;        /* name of the pre-tokenizer, VOCABULARY_BYTES only */
    enum vocabulary_said words_first;   /* a word that is a token is never merged; unsaid: as usual
                                           with this pre-tokenizer */
    enum vocabulary_said add_bos;       /* likewise */
    enum vocabulary_prefix prefix;      /* not VOCABULARY_BYTES */
    bool blank_begins_word;             /* each blank: no token has two */
    uint32_t bos, eos, unknown;         /* VOCABULARY_NO_TOKEN: none */
    uint32_t ends[VOCABULARY_ENDS_MAX]; /* tokens that the files say end an answer, beside eos */
    uint32_t end_count;
    struct mapped_text template; /* of chats; text NULL: none */
    struct mapped_text architecture;
    void *owned[4];              /* malloc'ed */
    struct json_t *documents[3]; /* that texts lie in */
};

void vocabulary_done(struct vocabulary *v); /* may be zeroed or done */

#endif
