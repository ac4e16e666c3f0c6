/* tokenizer_internal: the structs and functions that the files tokenizer*.c share. tokenizer.h is
 * the interface for other parts. A struct tokenizer owns all tables. The functions that open, add
 * and index run on the thread that calls tokenizer_open. After that, only tokenizer.words changes,
 * so any thread may call the other functions. A struct split and a struct bpe_workspace belong to
 * one thread. These files do not parse a model's files (model/file/vocabulary.h). */
#ifndef MODEL_TEXT_TOKENIZER_INTERNAL_H
#define MODEL_TEXT_TOKENIZER_INTERNAL_H

#include "model/file/vocabulary.h"
#include "model/text/tokenizer.h"

#include <assert.h>

/* ---- texts: strings numbered from 0, with an index from text to number ---- */

/* Most bytes of a text that is stored in its slot of the index. */
#define TEXT_SLOT_BYTES 11

/* A slot of the index from text to number. */
struct text_slot {
    uint32_t id; /* Number of the text + 1; 0 = the slot is empty. */
    union {
        struct {
            /* Bytes of a short text; 255 = a longer text: words[1] has the upper half of its hash,
             * words[2] its size. */
            uint8_t bytes;
            char text[TEXT_SLOT_BYTES];
        };
        uint32_t words[3];
    };
};
static_assert(sizeof(struct text_slot) == 16, "four slots are a cache line");

struct texts {
    char *bytes;    /* All texts, one after the other. */
    size_t *starts; /* [count + 1]; where each text begins in `bytes`. */
    uint32_t count;
    struct text_slot *slots; /* Open addressing, at most half full. */
    size_t mask;             /* Number of slots - 1. */
};

/* Opens an empty list for at most `capacity` texts of bytes_max bytes together. Returns false if
 * there is no memory. */
bool texts_open(struct texts *t, uint32_t capacity, size_t bytes_max);
void texts_close(struct texts *t);
/* Begins to add a text: returns where the caller writes it. */
char *texts_begin(struct texts *t);
/* Ends the text, of which the caller has written `bytes` bytes. The text gets the next number. */
void texts_end(struct texts *t, size_t bytes);
/* Most slots that a look-up of a text or a merge reads. A vocabulary that needs more is refused. */
#define TABLE_STEPS_MAX 1024

/* Adds text `id` to the index, unless the index has an equal text. Returns false if a look-up of
 * the text would read more than TABLE_STEPS_MAX slots. */
bool texts_index(struct texts *t, uint32_t id);
/* Starts to load the text's slot of the index into the CPU's cache. */
void texts_prefetch(const struct texts *t, const char *text, size_t bytes);
/* Returns the number of the text; TOKENIZER_NO_TOKEN = the index does not have the text. */
uint32_t texts_find(const struct texts *t, const char *text, size_t bytes);

/* Returns the text with the number `id`. */
static inline const char *texts_at(const struct texts *t, uint32_t id, size_t *bytes_out)
{
    *bytes_out = t->starts[id + 1] - t->starts[id];
    return t->bytes + t->starts[id];
}

/* ---- merges ---- */

#define MERGE_NONE     UINT32_MAX                        /* No rank. */
#define MERGE_ID_BITS  20                                /* Bits of a token id in a slot. */
#define MERGE_ID_MAX   ((1u << MERGE_ID_BITS) - 2)       /* Greatest token id in a merge. */
#define MERGE_RANK_MAX ((1u << 24) - 2)                  /* Greatest rank. */
#define MERGE_PAIR     ((1ull << 2 * MERGE_ID_BITS) - 1) /* Bits of the two ids in a slot. */
#define MERGE_EMPTY    UINT64_MAX                        /* An empty slot. */

/* The merges of a vocabulary: a hash table from a pair of tokens to the rank of their merge. A
 * merge replaces the two tokens by one; the merge with the lowest rank comes first. */
struct merges {
    uint64_t *slots;    /* rank << 40 | left << 20 | right; open addressing, at most half full. */
    uint64_t *filter;   /* Bits by the pair's hash; 0 = the pair has no merge. */
    uint32_t *ids;      /* The merged token, by rank. */
    size_t mask;        /* Number of slots - 1. */
    size_t filter_mask; /* Number of bits in the filter - 1. */
    uint32_t count;     /* Next rank of merges_add. */
};

/* Opens an empty table for `capacity` merges. Returns false if there is no memory. */
bool merges_open(struct merges *m, uint32_t capacity);
void merges_close(struct merges *m);
/* Adds the merge of the tokens `left` and `right` into the token `id`, with the next rank. If the
 * pair already has a merge, that merge stays. Returns false if a look-up of the pair would read
 * more than TABLE_STEPS_MAX slots. Requires that left and right are at most MERGE_ID_MAX, and the
 * rank is at most MERGE_RANK_MAX and the capacity of the table. */
bool merges_add(struct merges *m, uint32_t left, uint32_t right, uint32_t id);
/* Adds a merge as merges_add does, with the rank `rank`. All merges with this rank must have the
 * token `id`. */
bool merges_add_ranked(struct merges *m, uint32_t left, uint32_t right, uint32_t id, uint32_t rank);

/* Returns the hash of a pair: left << MERGE_ID_BITS | right. */
static inline uint64_t merges_hash(uint64_t pair)
{
    return pair * 0x9e3779b97f4a7c15u;
}

/* Returns the rank of the merge of left and right; MERGE_NONE = the pair has no merge. */
static inline uint32_t merges_rank(const struct merges *m, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << MERGE_ID_BITS | right;
    uint64_t hash = merges_hash(pair);
    size_t bit = hash >> 32 & m->filter_mask;
    if ((m->filter[bit / 64] >> bit % 64 & 1) == 0)
        return MERGE_NONE;
    for (size_t at = hash >> 24 & m->mask; m->slots[at] != MERGE_EMPTY; at = (at + 1) & m->mask)
        if ((m->slots[at] & MERGE_PAIR) == pair)
            return (uint32_t)(m->slots[at] >> 2 * MERGE_ID_BITS);
    return MERGE_NONE;
}

/* ---- the byte alphabet of GPT-2, which writes every byte as a printable character ---- */

/* Decodes `text` from the byte alphabet to `out`, which must have room for `bytes` bytes.
 * Characters that are not in the alphabet are copied. Returns the number of bytes written. */
size_t alphabet_decode(const char *text, size_t bytes, char *out);

/* ---- pre-tokenizers: splitting a text into words ---- */

struct splitter; /* A pre-tokenizer. */

/* Opens the pre-tokenizer with this name, as in the key tokenizer.ggml.pre of a GGUF file. Returns
 * ST_UNSUPPORTED if no pre-tokenizer has the name, ST_NO_MEMORY. */
enum status splitter_open(const char *name, size_t name_bytes, struct splitter **out,
                          struct error *error);
/* Opens a pre-tokenizer of 1 to SPLIT_PASSES_MAX regular expressions of tokenizer.json. Returns an
 * error of regex_translate, ST_UNSUPPORTED if PCRE2 refuses an expression, ST_NO_MEMORY. */
enum status splitter_open_expressions(const struct mapped_text *expressions, uint32_t count,
                                      struct splitter **out, struct error *error);
void splitter_close(struct splitter *s); /* NULL is fine. */
/* Returns the default of tokenizer.whole_words_first with this pre-tokenizer. */
bool splitter_whole_words_first(const struct splitter *s);
/* Returns the default of tokenizer.add_bos with this pre-tokenizer. */
bool splitter_adds_bos(const struct splitter *s);

#define SPLIT_PASSES_MAX 6 /* Most expressions of one pre-tokenizer. */

/* Bytes [start, end) of a text. */
struct split_range {
    size_t start;
    size_t end;
};

/* The state of splitting one text. */
struct split {
    const struct splitter *splitter;
    void *match;      /* PCRE2's match data. */
    const char *text; /* The whole text. */
    size_t bytes;
    size_t next_word;                           /* Offset of the next word. */
    struct split_range found[SPLIT_PASSES_MAX]; /* The latest match of each expression. */
    /* For each expression, the part of the text that contains next_word: a match of the expression,
     * or the text between two matches. */
    struct split_range parts[SPLIT_PASSES_MAX];
};

/* Begins to split a text. Call split_end afterwards. The only error is ST_NO_MEMORY. */
enum status split_begin(struct split *w, const struct splitter *s, const char *text, size_t bytes);
/* Stores the offsets of the next word's begin and end. Words follow each other without gaps.
 * Returns ST_NOT_FOUND at the end of the text, ST_TOO_LARGE if PCRE2 needs too many steps or finds
 * no word. */
enum status split_next(struct split *w, size_t *start_out, size_t *end_out);
void split_end(struct split *w);

/* Unicode's white space except line feed and carriage return, as the inside of a set [...] of
 * PCRE2. REGEX_SPACE adds line feed and carriage return. */
#define REGEX_BLANK                                                                                \
    "\\t\\x{0b}\\x{0c} "                                                                           \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define REGEX_SPACE     REGEX_BLANK "\\r\\n"
#define REGEX_BYTES_MAX 4096 /* Bytes of a translated expression, with its NUL. */

/* Translates an expression of tokenizer.json into PCRE2's language, NUL-terminated. Returns
 * ST_UNSUPPORTED if a part is malformed or might mean something else to PCRE2, ST_TOO_LARGE if
 * `out` is too small. */
enum status regex_translate(struct mapped_text expression, char out[REGEX_BYTES_MAX],
                            struct error *error);

/* ---- normalising ---- */

/* SentencePiece's compiled table of replacements (precompiled_charsmap). The pointers point into
 * the text that charsmap_open was given. */
struct charsmap {
    const char *units; /* [unit_count] units of the trie, 4 bytes each. */
    uint32_t unit_count;
    const char *texts; /* The replacements, each with a NUL at its end. */
    size_t text_bytes;
};

/* Opens the table `blob`, which must stay in memory. Returns false if the table is malformed. */
bool charsmap_open(struct charsmap *map, struct mapped_text blob);
/* Stores the replacement of the longest entry that is a beginning of the text; without such an
 * entry, the first character. Returns the number of bytes that are replaced, at least 1. Requires
 * bytes > 0. */
size_t charsmap_find(const struct charsmap *map, const char *text, size_t bytes,
                     struct mapped_text *out);

/* The steps that change a text before it is divided into words. */
struct normalizer {
    struct vocabulary_step steps[VOCABULARY_STEPS_MAX]; /* The normalizer owns their texts. */
    uint32_t step_count;
    struct charsmap charsmap; /* The table of a step STEP_CHARSMAP. */
    size_t shrink;            /* A text becomes at most `shrink` times shorter; 0 = no limit. */
};

/* Copies the steps of `v` to *n, which must be all zeros. Returns ST_NO_MEMORY, or ST_INVALID if a
 * table of replacements is malformed. The caller calls normalizer_close also after an error. */
enum status normalizer_open(struct normalizer *n, const struct vocabulary *v, struct error *error);
void normalizer_close(struct normalizer *n);
/* Applies the steps to *text. *owned_out is memory that the caller frees when it no longer needs
 * the new *text; NULL = nothing to free. Returns ST_NO_MEMORY or ST_TOO_LARGE on failure; then
 * there is nothing to free, and *text must not be used. */
enum status normalizer_apply(const struct normalizer *n, struct mapped_text *text,
                             char **owned_out);

/* Returns the length of the white space character at the beginning of the text; 0 = none. */
size_t character_blank(const char *text, size_t bytes);
/* Returns the length of the white space character at the end of the text; 0 = none. */
size_t character_blank_before(const char *text, size_t bytes);

/* ---- special tokens ---- */

/* A node of the trie of special tokens. The bytes on the way from the root to the node begin the
 * text of a token. */
struct special_node {
    uint32_t child;     /* First child; 0 = none. */
    uint32_t sibling;   /* Next child of the same parent; 0 = none. */
    uint32_t id;        /* The token that ends at this node; TOKENIZER_NO_TOKEN = none. */
    uint8_t byte;       /* The last byte on the way. */
    bool user_defined;  /* The token is user-defined, so plain ranges do not hide it. */
    uint8_t find_flags; /* OR of enum vocabulary_find. */
};

struct specials {
    struct special_node *nodes; /* A trie; node 0 is the root. */
    uint32_t count;
    uint32_t capacity;
    bool first[256]; /* Bytes that a special token begins with. */
};

/* Adds a special token, unless a token with the same text was added. Returns false if there is no
 * memory. */
bool specials_add(struct specials *s, const char *text, size_t bytes, uint32_t id,
                  bool user_defined, uint8_t find_flags);
void specials_close(struct specials *s);
/* The ranges of a text that no special token may overlap; user-defined tokens may. specials_next
 * removes the ranges that it has passed. */
struct plain_ranges {
    const struct tokenizer_range *next;
    size_t count;
};

/* Finds the next special or user-defined token at or after `at`: the leftmost token, and of several
 * tokens at one place the longest. Stores where the token, with the white space that belongs to it,
 * begins and ends. Returns false if there is no token; then *start_out = bytes, and the other
 * outputs are not set. `at` must not decrease between calls with one *plain. */
bool specials_next(const struct specials *s, const char *text, size_t bytes, size_t at,
                   struct plain_ranges *plain, size_t *start_out, size_t *end_out,
                   uint32_t *id_out);

/* ---- merging ---- */

/* Memory that the encoders of words (bpe_, spm_, characters_, unigram_) use and keep for the next
 * word. One workspace serves one tokenizer. All zeros = nothing is allocated. */
struct bpe_workspace {
    void *memory;         /* NULL = none. */
    size_t capacity;      /* Room in `memory`, in entries of the encoder's own type. */
    void *heap;           /* NULL = none. */
    size_t heap_capacity; /* Room in `heap`, in entries of the encoder's own type. */
    uint64_t steps;       /* Look-ups and queue operations, for tests. */
    /* Unigram model: sum of the scores of the earlier words; 0 with blank_begins_word. The caller
     * sets 0 before the first word of a part of a text. */
    double sum;
};

void bpe_workspace_done(struct bpe_workspace *space); /* Frees the memory. */

struct bpe {
    struct merges merges;
    uint32_t byte_ids[256]; /* The token of each byte; TOKENIZER_NO_TOKEN = none. */
};

/* Encodes one word by merging its bytes. ids_out must have room for `bytes` ids. Bytes without a
 * token are left out. The only error is ST_NO_MEMORY. */
enum status bpe_encode(const struct bpe *bpe, const char *word, size_t bytes,
                       struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out);
/* Merges ids[0..count) in place, and stores the number of ids that are left. The only error is
 * ST_NO_MEMORY. */
enum status bpe_merge(const struct bpe *bpe, uint32_t *ids, size_t count,
                      struct bpe_workspace *space, size_t *count_out);

/* ---- SentencePiece ---- */

struct tokenizer;

/* Decodes a token's spelling, where U+2581 is a blank, to `out`, which must have room for `bytes`
 * bytes. Returns the number of bytes written. */
size_t spm_decode(const char *text, size_t bytes, char *out);
/* Returns the byte of a byte token's spelling ("<0x0A>"); -1 = it is no byte token. */
int spm_byte(const char *text, size_t bytes);
/* Returns true if the token has a blank after a character that is no blank. Such a token can begin
 * in one word and end in the next. */
bool spm_word_crosses(const char *piece, size_t bytes);
/* Returns the end of the word that begins at `at`, which must be below `bytes`. */
size_t spm_word_end(const struct tokenizer *t, const char *text, size_t bytes, size_t at);

/* The three functions …_encode below require that ids_out has room for `bytes` ids. Their only
 * error is ST_NO_MEMORY. */

/* Encodes one word with a vocabulary with scores. */
enum status spm_encode(const struct tokenizer *t, const char *word, size_t bytes,
                       struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out);
/* Encodes one word with a SentencePiece vocabulary with merges. */
enum status characters_encode(const struct tokenizer *t, const char *word, size_t bytes,
                              struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out);

/* Sets t->lengths and t->unknown_score. Requires that pieces, flags, long_scores and short_sums are
 * set. */
void unigram_open(struct tokenizer *t);
/* Encodes one word with the unigram model. */
enum status unigram_encode(const struct tokenizer *t, const char *word, size_t bytes,
                           struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out);

struct tokenizer {
    enum vocabulary_kind kind;
    struct normalizer normalizer;
    struct texts spellings; /* Texts of the tokens as the file spells them, by id. */
    /* Bytes that the tokens stand for, by id. Tokens with FLAG_VERBATIM are not in the index. */
    struct texts pieces;
    uint8_t *flags;         /* FLAG_ bits, by id. */
    _Atomic uint8_t *words; /* WORD_ values, by id. Any thread that encodes may change a value. */
    struct bpe bpe;         /* `merges` is empty with VOCABULARY_SCORES and VOCABULARY_UNIGRAM. */
    struct specials specials;
    struct splitter *splitter; /* NULL = a kind other than VOCABULARY_BYTES. */
    size_t word_bytes_max;     /* Bytes of the longest token without FLAG_VERBATIM. */
    size_t token_bytes_max;    /* Most bytes of a text that one token stands for. */
    bool in_token[256];        /* By byte: encoding never leaves out the byte. */
    uint32_t bos;              /* TOKENIZER_NO_TOKEN = none. */
    uint32_t eos;              /* TOKENIZER_NO_TOKEN = none. */
    bool add_bos;              /* Texts begin with BOS. */
    bool add_eos;              /* Texts end with EOS. */
    bool whole_words_first;    /* A word that is a token is not merged from its bytes. */
    float *scores;             /* Scores by id; NULL = a kind other than VOCABULARY_SCORES. */
    /* long_scores to unknown_score are set only with VOCABULARY_UNIGRAM. */
    double *long_scores; /* Scores by id. */
    bool short_sums;     /* Sums of scores have 32 bits. */
    /* By first byte of tokens: bit i = a token has i + 1 bytes; bit 63 = 64 or more bytes. */
    uint64_t lengths[256];
    double unknown_score; /* Score of a character without a token. */
    /* SentencePiece: the token for bytes without a token; TOKENIZER_NO_TOKEN = none. */
    uint32_t unknown;
    bool unknown_fused;     /* Neighbouring unknown characters give one unknown token together. */
    bool user_blanks;       /* User-defined tokens spell a blank as U+2581. */
    bool spm_crosses;       /* spm_word_crosses is true for a token without FLAG_VERBATIM. */
    bool blank_begins_word; /* SentencePiece: a word ends before each blank. */
    enum vocabulary_prefix prefix; /* SentencePiece: which parts of a text get a blank before. */
    uint32_t end_tokens[16];       /* Tokens that end an answer. */
    uint32_t end_count;
};

#define FLAG_SPECIAL 1u /* A control token or the unknown token (tokenizer_is_special). */
#define FLAG_END     2u /* The token ends an answer. */
/* A special or user-defined token, or a byte token of a SentencePiece vocabulary. The index of
 * `pieces` leaves the token out. */
#define FLAG_VERBATIM 4u

/* Whether encoding a token's bytes as a word gives this token (WORD_WHOLE) or others (WORD_MERGED).
 * WORD_UNKNOWN = not computed yet. */
enum { WORD_UNKNOWN, WORD_WHOLE, WORD_MERGED };

#endif
