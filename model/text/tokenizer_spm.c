/* tokenizer_spm: encoding with SentencePiece vocabularies with scores (Kudo and Richardson 2018,
 * its BPE mode), as in files with tokenizer.ggml.model = llama. A text is divided into characters.
 * Of all neighbours that together are a token, the pair with the highest score is joined (the
 * leftmost among equals), until no pair is left. A character that is no token becomes its bytes.
 *
 * No token of these vocabularies has a blank after another character, so nothing is ever joined
 * across such a position, and a text can be encoded word by word, each word with the blanks before
 * it. spm_word_crosses checks this; if it does not hold, the whole text is one word. */
#include "model/text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#define NONE  UINT32_MAX
#define SHORT 64 /* Bytes of a word that is encoded on the stack. */

struct symbol {
    uint32_t at;    /* Offset in the word. */
    uint32_t bytes; /* 0 = joined to the symbol before. */
    uint32_t previous;
    uint32_t next;
};

/* Two neighbours that may be joined. */
struct pair {
    float score;
    uint32_t left;
    uint32_t bytes; /* Bytes of both when the pair was found. */
    uint32_t id;
};

struct merge {
    const struct tokenizer *t;
    const char *word;
    struct symbol *symbols;
    struct pair *heap; /* The best pair is first. */
    uint32_t pairs;
    struct bpe_workspace *space;
};

bool spm_word_crosses(const char *piece, size_t bytes)
{
    for (size_t i = 1; i < bytes; i++)
        if (piece[i] == ' ' && piece[i - 1] != ' ')
            return true;
    return false;
}

size_t spm_word_end(const struct tokenizer *t, const char *text, size_t bytes, size_t at)
{
    if (t->blank_begins_word) {
        at += text[at] == ' ';
        while (at < bytes && text[at] != ' ')
            at++;
        return at;
    }
    if (t->spm_crosses)
        return bytes;
    while (at < bytes && text[at] == ' ')
        at++;
    while (at < bytes && text[at] != ' ')
        at++;
    return at;
}

static bool before(const struct pair *a, const struct pair *b)
{
    return a->score != b->score ? a->score > b->score : a->left < b->left;
}

static void heap_push(struct merge *m, struct pair pair)
{
    uint32_t at = m->pairs++;
    m->space->steps++;
    for (; at > 0 && before(&pair, &m->heap[(at - 1) / 2]); at = (at - 1) / 2)
        m->heap[at] = m->heap[(at - 1) / 2];
    m->heap[at] = pair;
}

static struct pair heap_pop(struct merge *m)
{
    struct pair first = m->heap[0], last = m->heap[--m->pairs];
    uint32_t at = 0;
    for (uint32_t child = 1; child < m->pairs; child = 2 * at + 1) {
        if (child + 1 < m->pairs && before(&m->heap[child + 1], &m->heap[child]))
            child++;
        if (!before(&m->heap[child], &last))
            break;
        m->heap[at] = m->heap[child];
        at = child;
        m->space->steps++;
    }
    m->heap[at] = last;
    return first;
}

static void pair_try(struct merge *m, uint32_t left)
{
    if (left == NONE || m->symbols[left].next == NONE)
        return;
    const struct symbol *a = &m->symbols[left], *b = &m->symbols[a->next];
    size_t bytes = (size_t)a->bytes + b->bytes;
    if (bytes > m->t->word_bytes_max)
        return;
    uint32_t id = texts_find(&m->t->pieces, m->word + a->at, bytes);
    if (id == TOKENIZER_NO_TOKEN)
        return;
    heap_push(m, (struct pair){m->t->scores[id], left, (uint32_t)bytes, id});
}

static void join(struct merge *m, const struct pair *pair)
{
    struct symbol *left = &m->symbols[pair->left];
    if (left->bytes == 0 || left->next == NONE)
        return;
    struct symbol *right = &m->symbols[left->next];
    if (left->bytes + right->bytes != pair->bytes)
        return; /* One of the two has grown since. */
    left->bytes = pair->bytes;
    left->next = right->next;
    right->bytes = 0;
    if (left->next != NONE)
        m->symbols[left->next].previous = pair->left;
    pair_try(m, left->previous);
    pair_try(m, pair->left);
}

/* Creates one symbol per character of valid UTF-8. */
static uint32_t symbols_open(struct merge *m, size_t bytes)
{
    uint32_t count = 0;
    for (size_t at = 0; at < bytes;) {
        size_t end = at + 1;
        while (end < bytes && ((uint8_t)m->word[end] & 0xc0) == 0x80)
            end++;
        m->symbols[count] = (struct symbol){.at = (uint32_t)at,
                                            .bytes = (uint32_t)(end - at),
                                            .previous = count == 0 ? NONE : count - 1,
                                            .next = end < bytes ? count + 1 : NONE};
        count++;
        at = end;
    }
    return count;
}

static size_t symbol_put(const struct merge *m, const struct symbol *s, const uint32_t *before,
                         uint32_t *ids_out)
{
    const struct tokenizer *t = m->t;
    uint32_t id = texts_find(&t->pieces, m->word + s->at, s->bytes);
    size_t count = 0;
    if (id != TOKENIZER_NO_TOKEN) {
        ids_out[0] = id;
        return 1;
    }
    for (uint32_t i = 0; i < s->bytes; i++) {
        id = t->bpe.byte_ids[(uint8_t)m->word[s->at + i]];
        if (id == TOKENIZER_NO_TOKEN && t->unknown_fused) { /* One for all bytes. */
            ids_out[0] = t->unknown;
            return t->unknown != TOKENIZER_NO_TOKEN && (before == NULL || *before != t->unknown);
        }
        if (id == TOKENIZER_NO_TOKEN)
            id = t->unknown;
        if (id != TOKENIZER_NO_TOKEN)
            ids_out[count++] = id;
    }
    return count;
}

enum status spm_encode(const struct tokenizer *t, const char *word, size_t bytes,
                       struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out)
{
    struct symbol symbols[SHORT];
    /* One pair for each two characters, and two more for each joining. */
    struct pair heap[3 * SHORT];
    struct merge m = {.t = t, .word = word, .symbols = symbols, .heap = heap, .space = space};
    if (bytes > SHORT) {
        if (space->capacity < bytes) {
            bpe_workspace_done(space);
            space->memory = malloc(bytes * sizeof(struct symbol));
            space->heap = malloc(bytes * 3 * sizeof(struct pair));
            if (space->memory == NULL || space->heap == NULL)
                return ST_NO_MEMORY;
            space->capacity = space->heap_capacity = bytes;
        }
        m.symbols = space->memory;
        m.heap = space->heap;
    }
    uint32_t symbol_count = symbols_open(&m, bytes);
    for (uint32_t i = 0; i < symbol_count; i++)
        pair_try(&m, i);
    while (m.pairs > 0) {
        struct pair best = heap_pop(&m);
        join(&m, &best);
    }
    size_t count = 0;
    for (uint32_t i = symbol_count > 0 ? 0 : NONE; i != NONE; i = m.symbols[i].next)
        count +=
            symbol_put(&m, &m.symbols[i], count > 0 ? &ids_out[count - 1] : NULL, ids_out + count);
    *count_out = count;
    return ST_OK;
}

/* Blanks are spelled as U+2581. Returns the size. */
size_t spm_decode(const char *text, size_t bytes, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < bytes;) {
        if (i + 3 <= bytes && memcmp(text + i, "\xe2\x96\x81", 3) == 0) {
            out[written++] = ' ';
            i += 3;
        } else {
            out[written++] = text[i++];
        }
    }
    return written;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int spm_byte(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}
