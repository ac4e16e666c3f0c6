/* tokenizer_internal: the structs and functions that the files of the tokenizer share:
 *    tokenizer.c             look-ups; encoding a whole text
 *    tokenizer_open.c        opening
 *    tokenizer_vocab.c       texts with an index; merges; the byte alphabet
 *    tokenizer_split.c       pre-tokenizers: text into words
 *    tokenizer_bpe.c         one word into tokens (byte-level BPE)
 *    tokenizer_spm.c         one word into tokens (SentencePiece with scores)
 *    tokenizer_characters.c  one word into tokens (SentencePiece with merges)
 *    tokenizer_unigram.c     one word into tokens (SentencePiece's unigram model)
 *    tokenizer_normalize.c   steps that change a text first
 *    tokenizer_charsmap.c    SentencePiece's compiled replacements
 *    tokenizer_regex.c       regular expressions of tokenizer.json
 *    tokenizer_special.c     finding special tokens in a text
 * Other files use tokenizer.h; tests include this header to count steps. The functions that open
 * and add run on the thread of tokenizer_open. After that a tokenizer does not change, except
 * tokenizer.words, so any thread may call the other functions. Only one thread uses a struct split
 * or a struct bpe_workspace. These files do not parse a model's files (model/file/vocabulary.h
 * does). */
#ifndef MODEL_TEXT_TOKENIZER_INTERNAL_H
#define MODEL_TEXT_TOKENIZER_INTERNAL_H

#include "model/file/vocabulary.h"
#include "model/text/tokenizer.h"

#include <assert.h>

/* ---- texts: strings numbered from 0, with an index from text to number ---- */

/* Longest text that is stored in its slot, so that finding it reads one cache line. */
#define TEXT_SLOT_BYTES 11

struct text_slot {
    uint32_t id; /* Id + 1; 0 = the slot is empty. */
    union {
        struct {
            /* Bytes of a short text; 255 = a longer text, whose hash and size are in words[1] and
             * words[2]. */
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
/* Adds a text: texts_begin returns the room for it, the caller writes the text there and passes its
 * size to texts_end. */
char *texts_begin(struct texts *t);
void texts_end(struct texts *t, size_t bytes);
/* Most steps of a look-up. The tables of texts and merges are at most half full, so even with a
 * million entries a look-up takes fewer than a hundred steps, unless the texts were chosen to make
 * it slow. */
#define TABLE_STEPS_MAX 1024

/* Adds text `id` to the index, unless the index has an equal text. Returns false if its look-up
 * would take more than TABLE_STEPS_MAX steps. */
bool texts_index(struct texts *t, uint32_t id);
/* Prefetches the slot that texts_index or texts_find will read for this text. */
void texts_prefetch(const struct texts *t, const char *text, size_t bytes);
/* Returns the id of the text; TOKENIZER_NO_TOKEN = none. */
uint32_t texts_find(const struct texts *t, const char *text, size_t bytes);

static inline const char *texts_at(const struct texts *t, uint32_t id, size_t *bytes_out)
{
    *bytes_out = t->starts[id + 1] - t->starts[id];
    return t->bytes + t->starts[id];
}

/* ---- merges ---- */

#define MERGE_NONE     UINT32_MAX /* No rank. */
#define MERGE_ID_BITS  20         /* Bits of a token id in a slot. */
#define MERGE_ID_MAX   ((1u << MERGE_ID_BITS) - 2)
#define MERGE_RANK_MAX ((1u << 24) - 2)
#define MERGE_PAIR     ((1ull << 2 * MERGE_ID_BITS) - 1) /* Bits of the two ids in a slot. */
#define MERGE_EMPTY    UINT64_MAX                        /* An empty slot. */

/* The merges, as a hash table from a pair of tokens to the merge's rank: its place in the list of
 * merges. Most pairs have no merge. A small filter recognises most pairs without a merge, without
 * reading a slot. */
struct merges {
    uint64_t *slots;  /* rank << 40 | left << 20 | right; open addressing, at most half full. */
    uint64_t *filter; /* One bit per pair's hash; a clear bit means that the pair has no merge. */
    uint32_t *ids;    /* The merged token, by rank. */
    size_t mask;
    size_t filter_mask; /* Number of bits in the filter - 1. */
    uint32_t count;
};

/* Opens an empty table for `capacity` merges. Returns false if there is no memory. */
bool merges_open(struct merges *m, uint32_t capacity);
void merges_close(struct merges *m);
/* Adds a merge with the next rank. If the pair has a merge already, the earlier one stays. Returns
 * false if its look-up would take more than TABLE_STEPS_MAX steps. Requires ids up to MERGE_ID_MAX
 * and ranks up to MERGE_RANK_MAX. */
bool merges_add(struct merges *m, uint32_t left, uint32_t right, uint32_t id);
/* Adds a merge with a rank that other merges may have, too. Requires rank <= the table's
 * capacity. */
bool merges_add_ranked(struct merges *m, uint32_t left, uint32_t right, uint32_t id, uint32_t rank);

static inline uint64_t merges_hash(uint64_t pair)
{
    return pair * 0x9e3779b97f4a7c15u;
}

/* Returns the rank of merging left and right, or MERGE_NONE. */
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

/* Decodes `text` from the byte alphabet to `out`, which has room for `bytes` bytes. Characters that
 * are not in the alphabet are copied. Returns the number of bytes written. */
size_t alphabet_decode(const char *text, size_t bytes, char *out);

/* ---- pre-tokenizers: splitting a text into words ---- */

struct splitter;

/* Opens the pre-tokenizer with this name. Returns ST_UNSUPPORTED if no pre-tokenizer has the name,
 * ST_NO_MEMORY. */
enum status splitter_open(const char *name, size_t name_bytes, struct splitter **out,
                          struct error *error);
/* Opens a pre-tokenizer of 1 to SPLIT_PASSES_MAX regular expressions of tokenizer.json. Returns an
 * error of regex_translate, ST_UNSUPPORTED if PCRE2 refuses an expression, ST_NO_MEMORY. */
enum status splitter_open_expressions(const struct mapped_text *expressions, uint32_t count,
                                      struct splitter **out, struct error *error);
void splitter_close(struct splitter *s);
/* Returns the default of tokenizer.words_first for models with this pre-tokenizer. */
bool splitter_words_first(const struct splitter *s);
/* Returns the default of tokenizer.add_bos for models with this pre-tokenizer. */
bool splitter_adds_bos(const struct splitter *s);

#define SPLIT_PASSES_MAX 6 /* Expressions of one pre-tokenizer. */

/* Bytes [start, end) of a text. */
struct split_range {
    size_t start;
    size_t end;
};

/* The state of splitting one text. */
struct split {
    const struct splitter *splitter;
    void *match; /* PCRE2's match data. */
    const char *text;
    size_t bytes;
    size_t next_word;                           /* Where the next word begins. */
    struct split_range found[SPLIT_PASSES_MAX]; /* The latest match of each expression. */
    /* The part that contains next_word, for each expression: its latest match, or the text between
     * two matches. */
    struct split_range parts[SPLIT_PASSES_MAX];
};

/* Begins to split a text. The caller ends it with split_end. The only error is ST_NO_MEMORY. */
enum status split_begin(struct split *w, const struct splitter *s, const char *text, size_t bytes);
/* Stores where the next word begins and ends. Words follow each other without gaps. Returns
 * ST_NOT_FOUND at the end of the text, ST_TOO_LARGE if the matcher needs too many steps or matches
 * an empty text. */
enum status split_next(struct split *w, size_t *start_out, size_t *end_out);
void split_end(struct split *w);

/* Inside of a set [...] of PCRE2: the white space of Unicode, without U+180E. */
#define REGEX_BLANK                                                                                \
    "\\t\\x{0b}\\x{0c} "                                                                           \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define REGEX_SPACE     REGEX_BLANK "\\r\\n"
#define REGEX_BYTES_MAX 4096

/* Translates an expression of tokenizer.json (tokenizer_regex.c) into PCRE2's language,
 * NUL-terminated. Returns ST_UNSUPPORTED if a part of it is malformed or might mean something else
 * to PCRE2, ST_TOO_LARGE if `out` is too small. */
enum status regex_translate(struct mapped_text expression, char out[REGEX_BYTES_MAX],
                            struct error *error);

/* ---- normalising ---- */

/* A compiled table of replacements, which points into its text. */
struct charsmap {
    const char *units; /* [unit_count], 4 bytes each. */
    uint32_t unit_count;
    const char *texts;
    size_t text_bytes;
};

/* Returns false if the sizes in the table are wrong. charsmap_find checks each index. */
bool charsmap_open(struct charsmap *map, struct mapped_text blob);
/* Finds the replacement of the longest entry that the text begins with; without one, *out is the
 * text's first character. Returns the bytes that are replaced, at least 1. Requires bytes > 0. */
size_t charsmap_find(const struct charsmap *map, const char *text, size_t bytes,
                     struct mapped_text *out);

struct normalizer {
    struct vocabulary_step steps[VOCABULARY_STEPS_MAX]; /* Their texts are copies. */
    uint32_t step_count;
    struct charsmap charsmap;
    size_t shrink; /* A text becomes at most this many times shorter; 0 = no limit. */
};

/* Copies the steps of `v`. The errors are ST_NO_MEMORY and, if a table of replacements is
 * malformed, ST_INVALID. The caller calls normalizer_close after an error, too. */
enum status normalizer_open(struct normalizer *n, const struct vocabulary *v, struct error *error);
void normalizer_close(struct normalizer *n);
/* Applies the steps to *text. *owned_out: the memory of the new *text, which the caller frees; NULL
 * = the new *text is a part of the old one. The errors are ST_NO_MEMORY and ST_TOO_LARGE. */
enum status normalizer_apply(const struct normalizer *n, struct mapped_text *text,
                             char **owned_out);

/* Returns the bytes of the white space character that the text begins with, or ends with; 0 = it is
 * another character. */
size_t character_blank(const char *text, size_t bytes);
size_t character_blank_before(const char *text, size_t bytes);

/* ---- special tokens ---- */

/* A node of the trie of special tokens: one byte after the bytes of the nodes above. */
struct special_node {
    uint32_t child;   /* First child; 0 = none. */
    uint32_t sibling; /* Next child of the same parent; 0 = none. */
    uint32_t id;      /* The token that ends at this node, or TOKENIZER_NO_TOKEN. */
    uint8_t byte;
    /* A user-defined token, which is found even without parse_special. */
    bool user_defined;
    uint8_t find_flags; /* OR of enum vocabulary_find: where the token may stand. */
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
/* The parts of a text in which only user-defined tokens are recognised, not special tokens.
 * specials_next removes the parts that it has passed. */
struct plain_ranges {
    const struct tokenizer_range *next;
    size_t count;
};

/* Finds the next special token at or after `at`: the leftmost token, and of several tokens at this
 * place the longest, with the white space that belongs to the token. Returns false, with *start_out
 * = bytes, if there is none. `at` must not decrease between calls with the same *plain. */
bool specials_next(const struct specials *s, const char *text, size_t bytes, size_t at,
                   struct plain_ranges *plain, size_t *start_out, size_t *end_out,
                   uint32_t *id_out);

/* ---- merging ---- */

/* Memory for words that are too long for the stack; the unigram model uses it for every word. All
 * zeros = nothing is allocated. */
struct bpe_workspace {
    void *memory;
    /* Entries for which `memory` has room; each encoder has its own type of them. */
    size_t capacity;
    void *heap;
    size_t heap_capacity; /* Entries for which `heap` has room. */
    uint64_t steps;       /* Look-ups and queue operations so far, for tests. */
    /* Unigram model: the sum of scores of the part's words so far; 0 with blank_begins_word. */
    double sum;
};

void bpe_workspace_done(struct bpe_workspace *space);

struct bpe {
    struct merges merges;
    uint32_t byte_ids[256]; /* The token of each byte, or TOKENIZER_NO_TOKEN. */
};

/* Encodes one word by merging its bytes. ids_out has room for `bytes` ids. Bytes without a token
 * are left out. The only error is ST_NO_MEMORY. */
enum status bpe_encode(const struct bpe *bpe, const char *word, size_t bytes,
                       struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out);
/* Merges ids[0..count) in place, and stores the number of ids that are left. The only error is
 * ST_NO_MEMORY. */
enum status bpe_merge(const struct bpe *bpe, uint32_t *ids, size_t count,
                      struct bpe_workspace *space, size_t *count_out);

/* ---- SentencePiece ---- */

struct tokenizer;

/* Decodes a token's spelling, where U+2581 is a blank, to `out`, which has room for `bytes` bytes.
 * Returns the number of bytes written. */
size_t spm_decode(const char *text, size_t bytes, char *out);
/* Returns the byte of a byte token's spelling ("<0x0A>"); -1 = it is no byte token. */
int spm_byte(const char *text, size_t bytes);
/* Returns true if a token has a blank after another character. Words cannot be encoded one by one
 * if the vocabulary has such a token. */
bool spm_word_crosses(const char *piece, size_t bytes);
/* Returns the end of the word that begins at `at`. */
size_t spm_word_end(const struct tokenizer *t, const char *text, size_t bytes, size_t at);
/* Encodes one word with scores. ids_out has room for `bytes` ids. The only error is
 * ST_NO_MEMORY. */
enum status spm_encode(const struct tokenizer *t, const char *word, size_t bytes,
                       struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out);
/* Encodes one word with merges. ids_out has room for `bytes` ids. The only error is
 * ST_NO_MEMORY. */
enum status characters_encode(const struct tokenizer *t, const char *word, size_t bytes,
                              struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out);

/* Prepares what unigram_encode reads. Requires t->pieces, flags and long_scores. */
void unigram_open(struct tokenizer *t);
/* Encodes one word. ids_out has room for `bytes` ids. The only error is ST_NO_MEMORY. */
enum status unigram_encode(const struct tokenizer *t, const char *word, size_t bytes,
                           struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out);

struct tokenizer {
    enum vocabulary_kind kind;
    struct normalizer normalizer;
    struct texts spellings; /* Texts of the tokens as the file spells them, by id. */
    /* Bytes that the tokens stand for, by id. Only normal tokens are in the index. */
    struct texts pieces;
    uint8_t *flags;         /* FLAG_ bits, by id. */
    _Atomic uint8_t *words; /* WORD_ values, by id. Any thread that encodes may change a value. */
    /* byte_ids are set for every kind; there are merges only with VOCABULARY_BYTES and
     * VOCABULARY_CHARACTERS. */
    struct bpe bpe;
    struct specials specials;
    struct splitter *splitter;
    size_t word_bytes_max;  /* Bytes of the longest normal token. */
    size_t token_bytes_max; /* Most bytes of a text that one token stands for. */
    bool in_token[256];     /* Encoding never leaves out the byte, wherever it is in a text. */
    uint32_t bos;
    uint32_t eos;
    bool add_bos;
    bool add_eos;
    bool words_first; /* A word that is a token is not merged from its bytes. */
    float *scores;    /* Only with VOCABULARY_SCORES: scores by id; NULL = another kind. */
    /* The four fields below are set only with VOCABULARY_UNIGRAM. */
    double *long_scores; /* Scores by id. */
    bool short_sums;     /* Sums of scores have 32 bits. */
    /* By first byte of tokens: bit i = a token has i + 1 bytes; bit 63 = 64 or more bytes. */
    uint64_t lengths[256];
    double unknown_score; /* Score of a character without a token. */
    uint32_t unknown;     /* The token for a byte without a token. */
    bool unknown_fused;
    bool user_blanks; /* User-defined tokens spell a blank as U+2581. */
    bool spm_crosses; /* spm_word_crosses() is true for some token. */
    bool blank_begins_word;
    enum vocabulary_prefix prefix;
    uint32_t end_tokens[16]; /* Tokens that end an answer. */
    uint32_t end_count;
};

#define FLAG_SPECIAL 1u /* Control or unknown token; skip_special leaves it out. */
#define FLAG_END     2u /* The token ends an answer. */
/* A special or user-defined token, which is found in texts as it is spelled, or a byte token of a
 * SentencePiece vocabulary. The index of `pieces` leaves the token out. */
#define FLAG_VERBATIM 4u

/* Whether encoding a token's bytes as a word gives this token (WORD_WHOLE) or others (WORD_MERGED).
 * The value is computed when such a word first occurs; every thread computes the same value. */
enum { WORD_UNKNOWN, WORD_WHOLE, WORD_MERGED };

#endif
