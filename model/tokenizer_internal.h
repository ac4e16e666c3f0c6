/* tokenizer_internal: what the files of the tokenizer share:
 *   tokenizer.c        look-ups, encoding as a whole
 *   tokenizer_open.c   opening
 *   tokenizer_vocab.c  texts with an index; merges; the byte alphabet
 *   tokenizer_split.c  pre-tokenizers: text into words
 *   tokenizer_bpe.c    one word into tokens
 *   tokenizer_spm.c    one word into tokens, SentencePiece
 *   tokenizer_characters.c  the same with merges in the place of scores
 *   tokenizer_special.c  finding special tokens in a text
 *   detokenizer.c      tokens into text
 * Tests include it for bpe_encode's count of steps; nobody else does. */
#ifndef MODEL_TOKENIZER_INTERNAL_H
#define MODEL_TOKENIZER_INTERNAL_H

#include "model/tokenizer.h"
#include "model/vocabulary.h"

#include <assert.h>

/* ---- texts: strings numbered from 0, one allocation, with an index from text to number ---- */

/* A short text lies in its slot, so that finding it touches one cache line: most words are short.
 */
#define TEXT_SLOT_BYTES 11

struct text_slot {
    uint32_t id; /* + 1; 0: empty */
    union {
        struct {
            uint8_t bytes; /* of a short text; 255: a longer one */
            char text[TEXT_SLOT_BYTES];
        };
        uint32_t words[3];
    };
};
static_assert(sizeof(struct text_slot) == 16, "four slots are a cache line");

struct texts {
    char *bytes;
    size_t *starts; /* [count + 1] */
    uint32_t count;
    struct text_slot *slots; /* open addressing, half full at most */
    size_t mask;
};

bool texts_open(struct texts *t, uint32_t capacity, size_t bytes_max);
void texts_close(struct texts *t);
/* Appends room for up to `bytes`; the caller fills it and gives the true size to texts_end. */
char *texts_begin(struct texts *t);
void texts_end(struct texts *t, size_t bytes);
/* Puts text `id` into the index unless an equal one is there (the lowest id wins). */
void texts_index(struct texts *t, uint32_t id);
/* Asks for the memory that indexing or finding this text will read: opening a vocabulary is little
 * else than waiting for it. */
void texts_prefetch(const struct texts *t, const char *text, size_t bytes);
/* TOKENIZER_NO_TOKEN if none. */
uint32_t texts_find(const struct texts *t, const char *text, size_t bytes);

static inline const char *texts_at(const struct texts *t, uint32_t id, size_t *bytes_out)
{
    *bytes_out = t->starts[id + 1] - t->starts[id];
    return t->bytes + t->starts[id];
}

/* ---- merges ---- */

#define MERGE_NONE     UINT32_MAX
#define MERGE_ID_BITS  20 /* of a token in a slot */
#define MERGE_ID_MAX   ((1u << MERGE_ID_BITS) - 2)
#define MERGE_RANK_MAX ((1u << 24) - 2)
#define MERGE_PAIR     ((1ull << 2 * MERGE_ID_BITS) - 1)
#define MERGE_EMPTY    UINT64_MAX

/* Most pairs have no merge, and a small filter says so of most of them without touching a slot. */
struct merges {
    uint64_t *slots;  /* rank << 40 | left << 20 | right; open addressing, half full at most */
    uint64_t *filter; /* a bit for each pair's hash: without it there is no merge */
    uint32_t *ids;    /* of the merged token, by rank */
    size_t mask;
    size_t filter_mask; /* of bits */
    uint32_t count;
};

/* At most MERGE_RANK_MAX merges, of ids up to MERGE_ID_MAX. */
bool merges_open(struct merges *m, uint32_t capacity);
void merges_close(struct merges *m);
/* The first of two merges of one pair counts. */
void merges_add(struct merges *m, uint32_t left, uint32_t right, uint32_t id);

static inline uint64_t merges_hash(uint64_t pair)
{
    return pair * 0x9e3779b97f4a7c15u;
}

/* The rank of merging left and right, or MERGE_NONE. */
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

/* ---- the byte alphabet of GPT-2: every byte is written as a printable character ---- */

/* Bytes of `text` (the vocabulary's spelling) as they are meant, to out (capacity ≥ bytes). A
 * character that is not of the alphabet is kept. Returns the size. */
size_t alphabet_decode(const char *text, size_t bytes, char *out);

/* ---- splitting ---- */

struct splitter;

/* ST_UNSUPPORTED for an unknown name. */
enum status splitter_open(const char *name, size_t name_bytes, struct splitter **out,
                          struct error *error);
void splitter_close(struct splitter *s);
/* Llama 3: a word that is in the vocabulary is one token, whatever the merges say. */
bool splitter_words_first(const struct splitter *s);
/* Whether BOS is added when the file does not say. */
bool splitter_adds_bos(const struct splitter *s);

/* One text's walk. Words follow each other without gaps. */
struct split {
    const struct splitter *splitter;
    void *match; /* PCRE2's result block */
    const char *text;
    size_t bytes;
    size_t at;
};

enum status split_begin(struct split *w, const struct splitter *s, const char *text, size_t bytes);
/* The next word. ST_NOT_FOUND at the end of the text; ST_TOO_LARGE when the matcher gives up at
 * w->at. */
enum status split_next(struct split *w, size_t *start_out, size_t *end_out);
void split_end(struct split *w);

/* ---- special tokens ---- */

struct special_node {
    uint32_t child;   /* 0: none */
    uint32_t sibling; /* 0: none */
    uint32_t id;      /* of the token that ends here, or TOKENIZER_NO_TOKEN */
    uint8_t byte;
    bool always; /* a user-defined token, found whether or not special tokens are asked for */
};

struct specials {
    struct special_node *nodes; /* a trie; node 0 is the root */
    uint32_t count;
    uint32_t capacity;
    bool first[256]; /* bytes that a special token begins with */
};

bool specials_add(struct specials *s, const char *text, size_t bytes, uint32_t id, bool always);
void specials_close(struct specials *s);
/* The next special token at or after `at`, the longest one there. False if there is none; then
 * *start_out is bytes. */
bool specials_next(const struct specials *s, const char *text, size_t bytes, size_t at,
                   bool parse_special, size_t *start_out, size_t *end_out, uint32_t *id_out);

/* ---- merging ---- */

/* Memory for words too long for the stack; starts zeroed. `steps` counts look-ups, vectors searched
 * and queue operations. */
struct bpe_space {
    void *memory;
    size_t capacity; /* in bytes of text */
    void *heap;
    size_t heap_capacity; /* likewise */
    uint64_t steps;
};

void bpe_space_done(struct bpe_space *space);

struct bpe {
    struct merges merges;
    uint32_t byte_ids[256]; /* the token of each byte, or TOKENIZER_NO_TOKEN */
};

/* Encodes one word by merging its bytes; ids_out holds `bytes` ids. Bytes without a token are left
 * out, as in the tokenizers that such vocabularies come from. ST_NO_MEMORY only. */
enum status bpe_encode(const struct bpe *bpe, const char *word, size_t bytes,
                       struct bpe_space *space, uint32_t *ids_out, size_t *count_out);
/* The merging alone: ids[0..count) in place. */
enum status bpe_merge(const struct bpe *bpe, uint32_t *ids, size_t count, struct bpe_space *space,
                      size_t *count_out);

/* ---- SentencePiece ---- */

struct tokenizer;

/* The vocabulary's spelling of a token's text as it is meant, to out (capacity ≥ bytes). Returns
 * the size. */
size_t spm_decode(const char *text, size_t bytes, char *out);
/* The byte that a byte token's spelling ("<0x0A>") names, or -1. */
int spm_byte(const char *text, size_t bytes);
/* Whether a token has a blank after another character: then words cannot be encoded on their own.
 */
bool spm_word_crosses(const char *piece, size_t bytes);
/* Where the word that begins at `at` ends. */
size_t spm_word_end(const struct tokenizer *t, const char *text, size_t bytes, size_t at);
/* Encodes one word; ids_out holds `bytes` ids. ST_NO_MEMORY only. */
enum status spm_encode(const struct tokenizer *t, const char *word, size_t bytes,
                       struct bpe_space *space, uint32_t *ids_out, size_t *count_out);
enum status characters_encode(const struct tokenizer *t, const char *word, size_t bytes,
                              struct bpe_space *space, uint32_t *ids_out, size_t *count_out);

struct tokenizer {
    enum vocabulary_kind kind;
    struct texts spellings; /* as in the file, by id */
    struct texts pieces; /* the bytes that they mean, by id; only normal tokens are in the index */
    uint8_t *flags;      /* by id: FLAG_ */
    _Atomic uint8_t *words; /* by id: WORD_ */
    struct bpe bpe;
    struct specials specials;
    struct splitter *splitter;
    size_t word_bytes_max; /* longest normal token */
    uint32_t bos;
    uint32_t eos;
    bool add_bos;
    bool words_first; /* a word that is a token is never merged */
    /* SentencePiece: no splitter, and a score per token if there are no merges. */
    float *scores;
    uint32_t unknown; /* stands for a byte without a token */
    bool spm_crosses; /* spm_word_crosses() of some token */
    bool blank_begins_word;
    enum vocabulary_prefix prefix;
    uint32_t ends[16];
    uint32_t end_count;
};

#define FLAG_SPECIAL 1u /* control or unknown: dropped by skip_special */
#define FLAG_END     2u
#define FLAG_VERBATIM                                                                              \
    4u /* special or user-defined: found in texts as it is spelled, never in a word */

/* Whether a token's bytes as a word give this one token, so that no merging is needed. Worked out
 * when such a word is met: every thread finds the same. */
enum { WORD_UNKNOWN, WORD_WHOLE, WORD_MERGED };

#endif
