/* tokenizer_internal: what the files of the tokenizer share:
 *   tokenizer.c        opening, look-ups, encoding as a whole
 *   tokenizer_vocab.c  texts with an index; merges; the byte alphabet
 *   tokenizer_split.c  pre-tokenizers: text into words
 *   tokenizer_bpe.c    one word into tokens
 *   tokenizer_special.c  finding special tokens in a text
 *   detokenizer.c      tokens into text
 * Tests include it for bpe_encode's count of steps; nobody else does. */
#ifndef MODEL_TOKENIZER_INTERNAL_H
#define MODEL_TOKENIZER_INTERNAL_H

#include "model/tokenizer.h"

/* ---- texts: strings numbered from 0, one allocation, with an index from text to number ---- */

struct text_slot {
    uint32_t tag; /* of the hash: most misses end here */
    uint32_t id;  /* + 1; 0: empty */
};

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
/* TOKENIZER_NO_TOKEN if none. */
uint32_t texts_find(const struct texts *t, const char *text, size_t bytes);

static inline const char *texts_at(const struct texts *t, uint32_t id, size_t *bytes_out)
{
    *bytes_out = t->starts[id + 1] - t->starts[id];
    return t->bytes + t->starts[id];
}

/* ---- merges ---- */

#define MERGE_NONE UINT32_MAX

struct merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank;
    uint32_t id; /* of the merged token */
};

struct merges {
    struct merge *slots;
    uint32_t *ids; /* by rank */
    size_t mask;
    uint32_t count;
};

bool merges_open(struct merges *m, uint32_t capacity);
void merges_close(struct merges *m);
/* The first of two merges of one pair counts. */
void merges_add(struct merges *m, uint32_t left, uint32_t right, uint32_t id);

/* The rank of merging left and right, or MERGE_NONE. */
static inline uint32_t merges_rank(const struct merges *m, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t at = (pair * 0x9e3779b97f4a7c15u >> 24) & m->mask;
    for (; m->slots[at].pair != pair; at = (at + 1) & m->mask)
        if (m->slots[at].pair == UINT64_MAX)
            return MERGE_NONE;
    return m->slots[at].rank;
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

/* Memory for words too long for the stack; starts zeroed. `steps` counts look-ups and queue
 * operations. */
struct bpe_space {
    void *memory;
    size_t capacity; /* in bytes of text */
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

struct tokenizer {
    struct texts spellings; /* as in the file, by id */
    struct texts pieces; /* the bytes that they mean, by id; only normal tokens are in the index */
    uint8_t *flags;      /* by id: FLAG_ */
    struct bpe bpe;
    struct specials specials;
    struct splitter *splitter;
    size_t word_bytes_max; /* longest normal token */
    uint32_t bos;
    uint32_t eos;
    bool add_bos;
    uint32_t ends[16];
    uint32_t end_count;
};

#define FLAG_SPECIAL 1u /* control or unknown: dropped by skip_special */
#define FLAG_END     2u
#define FLAG_WORD    4u /* its bytes as a word give this one token: no merging needed */

#endif
