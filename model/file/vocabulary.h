/* vocabulary: the tokens of a model and the settings of its tokenizer and chat template, in one
 * form for all file formats. The struct model_file owns the struct vocabulary; the texts are valid
 * until model_file_close. A struct vocabulary does not change after it has been read
 * (vocabulary_read.h), so any thread may read it. model/text/ opens tokenizers and chat templates
 * from a struct vocabulary. This part finds no tokens by their text and does not tokenize. */
#ifndef MODEL_FILE_VOCABULARY_H
#define MODEL_FILE_VOCABULARY_H

#include "common/status.h"
#include "model/file/mapped.h"

/* How a tokenizer makes tokens of a text. */
enum vocabulary_kind {
    /* Byte-level BPE: each word begins as bytes, and a list of merges says which neighbours are
     * merged. Tokens are spelled in GPT-2's alphabet, which has a character for each byte. */
    VOCABULARY_BYTES,
    /* SentencePiece's BPE: a text begins as characters. The two neighbours whose joint token has
     * the highest score are merged first. */
    VOCABULARY_SCORES,
    VOCABULARY_CHARACTERS, /* SentencePiece's BPE with a list of merges instead of scores. */
    /* SentencePiece's unigram model: of all ways to divide a text into tokens, the tokenizer takes
     * the way with the highest sum of scores. */
    VOCABULARY_UNIGRAM,
};

/* Types of tokens, with the numbers that GGUF files have for them. */
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
    VOCABULARY_PREFIX_NONE,         /* Before no part. */
    VOCABULARY_PREFIX_ALWAYS,       /* Before each part. */
    VOCABULARY_PREFIX_UNLESS_BLANK, /* Before each part that does not begin with a blank. */
    /* Before a part at the beginning of the text, unless this part begins with a blank. */
    VOCABULARY_PREFIX_FIRST,
    VOCABULARY_PREFIX_BEGIN, /* Before a part at the beginning of the text. */
};

/* A step that changes a text before it is divided into words. */
enum vocabulary_step_kind {
    STEP_NFC, /* STEP_NFC to STEP_NFKD make Unicode's normal forms. */
    STEP_NFD,
    STEP_NFKC,
    STEP_NFKD,
    STEP_LOWERCASE,
    STEP_STRIP_LEFT,  /* Removes white space at the beginning. */
    STEP_STRIP_RIGHT, /* Removes white space at the end. */
    STEP_PREPEND,     /* Puts `to` before the text, if the text is not empty. */
    STEP_REPLACE,     /* Replaces every `from` by `to`. */
    STEP_CHARSMAP,    /* Applies SentencePiece's compiled table of replacements, `from`. */
    STEP_COLLAPSE,    /* Removes blanks at both ends, and makes each run of blanks one blank. */
};

/* A step. enum vocabulary_step_kind says whether the step uses `from` and `to`. */
struct vocabulary_step {
    enum vocabulary_step_kind kind;
    struct mapped_text from, to;
};

#define VOCABULARY_STEPS_MAX       8 /* Most steps of a vocabulary. */
#define VOCABULARY_EXPRESSIONS_MAX 6 /* Most regular expressions of a vocabulary. */

/* Bits of vocabulary.find_flags: how a special or user-defined token is found in a text. */
enum vocabulary_find {
    FIND_SINGLE_WORD = 1, /* The token is not found beside a letter, a digit or "_". */
    FIND_LSTRIP = 2,      /* White space before the token belongs to it. */
    FIND_RSTRIP = 4,      /* White space after the token belongs to it. */
};

/* A setting of a file. VOCABULARY_UNSET = the file does not have the setting. */
enum vocabulary_setting { VOCABULARY_UNSET, VOCABULARY_NO, VOCABULARY_YES };

#define VOCABULARY_NO_TOKEN       UINT32_MAX       /* Id of no token. */
#define VOCABULARY_END_TOKENS_MAX 8                /* Most tokens in `end_tokens`. */
#define VOCABULARY_TOKENS_MAX     ((1u << 20) - 1) /* Most tokens of a vocabulary. */

struct json_t;

struct vocabulary {
    enum vocabulary_kind kind;
    uint32_t count;                   /* Number of tokens. */
    const struct mapped_text *tokens; /* [count] texts of the tokens, as this kind spells them. */
    /* [count] enum vocabulary_type of each token; NULL = all tokens are normal. */
    const int32_t *types;
    /* [count] OR of enum vocabulary_find of each token; NULL = 0 for all tokens. */
    const uint8_t *find_flags;
    /* [count] score of each token. Used with VOCABULARY_SCORES, and with VOCABULARY_UNIGRAM if
     * long_scores is NULL. */
    const float *scores;
    /* [count] score of each token, added with 64 bits. NULL = `scores` are added with 32 bits, as
     * SentencePiece does. Used only with VOCABULARY_UNIGRAM. */
    const double *long_scores;
    /* [merge_count] pairs "left right". The first pair has the highest priority. */
    const struct mapped_text *merges;
    size_t merge_count;
    /* true: `merges` is not used. Two neighbours merge if their joint text is a token, the token
     * with the lowest id first (as in tiktoken). */
    bool merges_by_id;
    struct vocabulary_step steps[VOCABULARY_STEPS_MAX]; /* [step_count], applied in this order. */
    uint32_t step_count;
    /* With VOCABULARY_BYTES, if expression_count is 0: name of the pre-tokenizer (splitter_open in
     * model/text/) that divides a text into words. */
    struct mapped_text splitter;
    /* [expression_count] regular expressions that divide a text into words. The first expression
     * divides the text into its matches and the texts between them; each later expression divides
     * these parts again. */
    struct mapped_text expressions[VOCABULARY_EXPRESSIONS_MAX];
    uint32_t expression_count;
    /* VOCABULARY_YES: a word that is a token becomes this token. VOCABULARY_NO: the word's bytes
     * are merged. VOCABULARY_UNSET: with VOCABULARY_BYTES, the default of `splitter`; otherwise
     * NO. */
    enum vocabulary_setting whole_words_first;
    /* Whether a text begins with BOS. VOCABULARY_UNSET: with VOCABULARY_BYTES, the default of
     * `splitter`; otherwise YES. */
    enum vocabulary_setting add_bos;
    /* Whether a text ends with EOS. VOCABULARY_UNSET: NO. */
    enum vocabulary_setting add_eos;
    enum vocabulary_prefix prefix; /* Not used with VOCABULARY_BYTES. */
    bool blank_begins_word;        /* Each blank begins a new word, also after another blank. */
    bool user_blanks;              /* User-defined tokens spell a blank as U+2581. */
    bool unknown_fused; /* Unknown characters that follow each other become one unknown token. */
    uint32_t bos, eos, unknown; /* Token ids; VOCABULARY_NO_TOKEN = none. */
    /* [end_count] ids of tokens that end an answer, besides `eos`. The list may have `eos`, too. */
    uint32_t end_tokens[VOCABULARY_END_TOKENS_MAX];
    uint32_t end_count;
    struct mapped_text template; /* Chat template; text NULL = none. */
    /* Chat template for requests with tools; text NULL = `template`. */
    struct mapped_text template_tools;
    struct mapped_text architecture; /* Name of the model's architecture in its files. */
    void *owned[7];                  /* Memory that vocabulary_done frees. */
    /* JSON documents with texts of the vocabulary. vocabulary_done releases them. */
    struct json_t *documents[4];
};

/* Frees v->owned and v->documents, and sets *v to zeros. A struct of zeros is fine. */
void vocabulary_done(struct vocabulary *v);

#endif
