/* vocabulary: the tokens of a model and the settings of its tokenizer and chat template, for every
 * file format. The readers of vocabulary_read.h fill a struct vocabulary; model/text/ and
 * draft_file_open read it, on the thread that uses the model_file. Its texts point into the model's
 * files, which must stay open. It does not change once it is filled. It has no look-ups and does
 * not tokenize (model/text/tokenizer.h does). */
#ifndef MODEL_FILE_VOCABULARY_H
#define MODEL_FILE_VOCABULARY_H

#include "common/status.h"
#include "model/file/mapped.h"

enum vocabulary_kind {
    /* Byte-level BPE: words are merged from bytes, which are spelled in GPT-2's alphabet. */
    VOCABULARY_BYTES,
    /* SentencePiece with scores: a text begins as characters. The two neighbouring pieces whose
     * joint token has the highest score are merged first. */
    VOCABULARY_SCORES,
    VOCABULARY_CHARACTERS, /* SentencePiece with a list of merges instead of scores. */
    /* SentencePiece's unigram model: of all ways to divide a text into tokens, the one with the
     * highest sum of scores. */
    VOCABULARY_UNIGRAM,
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

/* Before which parts of a text the tokenizer puts a blank. Special tokens divide a text into
 * parts. */
enum vocabulary_prefix {
    VOCABULARY_PREFIX_NONE,         /* Never. */
    VOCABULARY_PREFIX_ALWAYS,       /* Before each part. */
    VOCABULARY_PREFIX_UNLESS_BLANK, /* Before each part that does not begin with a blank. */
    /* Only before the first part, and only if it does not begin with a blank. */
    VOCABULARY_PREFIX_FIRST,
    VOCABULARY_PREFIX_BEGIN, /* Only before the first part. */
};

/* A step that changes a text before it is divided into words. */
enum vocabulary_step_kind {
    STEP_NFC, /* This and the next three: Unicode's normal forms. */
    STEP_NFD,
    STEP_NFKC,
    STEP_NFKD,
    STEP_LOWERCASE,
    STEP_STRIP_LEFT,  /* Removes white space at the beginning. */
    STEP_STRIP_RIGHT, /* Removes white space at the end. */
    STEP_PREPEND,     /* Puts `to` first, if the text is not empty. */
    STEP_REPLACE,     /* Replaces every `from` by `to`. */
    STEP_CHARSMAP,    /* SentencePiece's compiled table of replacements, which is `from`. */
    STEP_COLLAPSE,    /* Removes blanks at both ends, and all but one of each run of blanks. */
};

/* A step; its kind says which of the texts it uses. */
struct vocabulary_step {
    enum vocabulary_step_kind kind;
    struct mapped_text from, to;
};

#define VOCABULARY_STEPS_MAX       8 /* Most steps of a vocabulary. */
#define VOCABULARY_EXPRESSIONS_MAX 6 /* Most regular expressions of a vocabulary. */

/* How a special or user-defined token is found in a text: bits of find_flags. */
enum vocabulary_find {
    FIND_SINGLE_WORD = 1, /* Not beside a letter, a digit or "_". */
    FIND_LSTRIP = 2,      /* White space before the token belongs to it. */
    FIND_RSTRIP = 4,      /* White space after the token belongs to it. */
};

/* A setting of a file. UNSET = the file does not have the setting. */
enum vocabulary_setting { VOCABULARY_UNSET, VOCABULARY_NO, VOCABULARY_YES };

#define VOCABULARY_NO_TOKEN       UINT32_MAX       /* No such token. */
#define VOCABULARY_END_TOKENS_MAX 8                /* Most tokens in `end_tokens`. */
#define VOCABULARY_TOKENS_MAX     ((1u << 20) - 1) /* Most tokens of a vocabulary. */

struct json_t;

struct vocabulary {
    enum vocabulary_kind kind;
    uint32_t count;                   /* Number of tokens. */
    const struct mapped_text *tokens; /* [count] tokens as the file spells them. */
    /* [count] enum vocabulary_type; NULL = all tokens are normal. */
    const int32_t *types;
    const uint8_t *find_flags; /* [count] OR of enum vocabulary_find; NULL = 0 for all tokens. */
    /* [count] scores; only with VOCABULARY_SCORES, and with VOCABULARY_UNIGRAM if long_scores is
     * NULL. */
    const float *scores;
    /* Used only with VOCABULARY_UNIGRAM. [count] the scores of a tokenizer.json, which are added
     * with 64 bits; NULL = `scores` are added with 32 bits, as SentencePiece does. */
    const double *long_scores;
    /* Pairs "left right"; the first pair has the highest priority. */
    const struct mapped_text *merges;
    size_t merge_count;
    /* true = there are no pairs: two tokens merge if their joint text is a token, and the merge
     * into the token with the lowest id comes first (as in tiktoken). */
    bool merges_by_id;
    struct vocabulary_step steps[VOCABULARY_STEPS_MAX];
    uint32_t step_count;
    /* Only with VOCABULARY_BYTES: name of the pre-tokenizer, or regular expressions. The first
     * expression divides a text into its matches and the texts between them; each further
     * expression divides these parts again. */
    struct mapped_text splitter;
    struct mapped_text expressions[VOCABULARY_EXPRESSIONS_MAX];
    uint32_t expression_count;
    /* YES: a word that is itself a token becomes this token. NO: the word's bytes are merged.
     * UNSET: the pre-tokenizer's default, and NO without a pre-tokenizer. */
    enum vocabulary_setting words_first;
    /* Whether a text begins with BOS. UNSET: the pre-tokenizer's default, and YES without a
     * pre-tokenizer. */
    enum vocabulary_setting add_bos;
    /* Whether a text ends with EOS. UNSET: NO. */
    enum vocabulary_setting add_eos;
    enum vocabulary_prefix prefix; /* Not used with VOCABULARY_BYTES. */
    bool blank_begins_word;        /* Each blank begins a new word, also after another blank. */
    bool user_blanks;              /* User-defined tokens spell a blank as U+2581. */
    bool unknown_fused; /* Unknown characters that follow each other become one unknown token. */
    uint32_t bos, eos, unknown; /* VOCABULARY_NO_TOKEN = none. */
    /* Tokens that, besides `eos`, end an answer according to the files. The list may have `eos`,
     * too. */
    uint32_t end_tokens[VOCABULARY_END_TOKENS_MAX];
    uint32_t end_count;
    struct mapped_text template; /* Chat template; text NULL = none. */
    /* Chat template for requests with tools; text NULL = `template`. */
    struct mapped_text template_tools;
    struct mapped_text architecture; /* Name of the model's architecture in its files. */
    void *owned[7];                  /* Allocations that vocabulary_done frees. */
    /* JSON documents that texts point into; vocabulary_done releases them. */
    struct json_t *documents[4];
};

/* Frees what the vocabulary owns, and sets *v to zeros. A struct of zeros is fine. */
void vocabulary_done(struct vocabulary *v);

#endif
