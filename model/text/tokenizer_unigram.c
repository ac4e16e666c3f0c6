/* tokenizer_unigram: SentencePiece's unigram model (Kudo 2018): of all ways to divide a word into
 * tokens, the one whose scores have the largest sum (Viterbi's algorithm). A character that is no
 * token counts as unknown, with a score below all others (in tokenizer.json also below those of
 * special tokens and bytes, as in Hugging Face's library); it becomes the tokens of its bytes, or
 * the unknown token. Of two ways with equal sums, the one whose last token is longer is taken, as
 * in SentencePiece; sums begin where the text does, because rounding decides too. The time is the
 * word's length times the number of lengths that tokens have. */
#include "model/text/tokenizer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0

/* The best way to divide what ends here. */
struct way {
    double sum;
    uint32_t id;     /* The last token; TOKENIZER_NO_TOKEN = an unknown character. */
    uint32_t begins; /* Where the last token begins. */
};

static size_t character_bytes(const char *text, size_t left)
{
    size_t bytes = 1;
    while (bytes < left && ((uint8_t)text[bytes] & 0xc0) == 0x80)
        bytes++;
    return bytes;
}

void unigram_open(struct tokenizer *t)
{
    double least = INFINITY;
    for (uint32_t id = 0; id < t->pieces.count; id++) {
        size_t bytes;
        const char *piece = texts_at(&t->pieces, id, &bytes);
        const bool found = (t->flags[id] & FLAG_VERBATIM) == 0 && bytes > 0;
        if ((found || !t->short_sums) && t->long_scores[id] < least)
            least = t->long_scores[id];
        if (!found)
            continue;
        t->lengths[(uint8_t)piece[0]] |= 1ull << (bytes < 64 ? bytes - 1 : 63);
    }
    t->unknown_score = (isfinite(least) ? least : 0) - UNKNOWN_PENALTY;
    if (t->short_sums)
        t->unknown_score = (double)(float)t->unknown_score;
}

static void way_try(const struct tokenizer *t, struct way *to, double sum, uint32_t id,
                    size_t begins)
{
    sum = t->short_sums ? (double)(float)sum : sum;
    if (to->begins != UINT32_MAX && to->sum >= sum)
        return;
    *to = (struct way){.sum = sum, .id = id, .begins = (uint32_t)begins};
}

/* Tries all tokens that begin at `at`. */
static void ways_from(const struct tokenizer *t, const char *word, size_t bytes, size_t at,
                      struct way *ways, struct bpe_workspace *space)
{
    const size_t character = character_bytes(word + at, bytes - at), left = bytes - at;
    const uint64_t lengths = t->lengths[(uint8_t)word[at]];
    const size_t most = left < t->word_bytes_max ? left : t->word_bytes_max;
    bool single = false;
    for (size_t length = 1; length <= most; length++) {
        if ((lengths >> (length < 64 ? length - 1 : 63) & 1) == 0)
            continue;
        uint32_t id = texts_find(&t->pieces, word + at, length);
        space->steps++;
        if (id == TOKENIZER_NO_TOKEN)
            continue;
        way_try(t, &ways[at + length], ways[at].sum + t->long_scores[id], id, at);
        single = single || length == character;
    }
    if (!single)
        way_try(t, &ways[at + character], ways[at].sum + t->unknown_score, TOKENIZER_NO_TOKEN, at);
}

/* Writes the tokens of an unknown character, at most one per byte. */
static size_t unknown_put(const struct tokenizer *t, const char *text, size_t bytes,
                          const uint32_t *before, uint32_t *ids_out)
{
    for (size_t i = 0; i < bytes; i++) {
        ids_out[i] = t->bpe.byte_ids[(uint8_t)text[i]];
        if (ids_out[i] != TOKENIZER_NO_TOKEN)
            continue;
        bool again = before != NULL && *before == t->unknown && t->unknown_fused;
        ids_out[0] = t->unknown;
        return t->unknown != TOKENIZER_NO_TOKEN && !again ? 1 : 0;
    }
    return bytes;
}

enum status unigram_encode(const struct tokenizer *t, const char *word, size_t bytes,
                           struct bpe_workspace *space, uint32_t *ids_out, size_t *count_out)
{
    size_t count = 0, steps = 0;
    if (space->capacity < bytes + 1) {
        bpe_workspace_done(space);
        space->memory = malloc((bytes + 1) * sizeof(struct way));
        space->heap = malloc((bytes + 1) * sizeof(uint32_t));
        if (space->memory == NULL || space->heap == NULL)
            return ST_NO_MEMORY;
        space->capacity = space->heap_capacity = bytes + 1;
    }
    struct way *ways = space->memory;
    uint32_t *ends = space->heap; /* Where the tokens of the best way end, the last one first. */
    for (size_t i = 0; i <= bytes; i++)
        ways[i].begins = UINT32_MAX;
    ways[0] = (struct way){.sum = space->sum, .begins = 0};
    for (size_t at = 0; at < bytes; at += character_bytes(word + at, bytes - at))
        if (ways[at].begins != UINT32_MAX)
            ways_from(t, word, bytes, at, ways, space);
    space->sum = t->blank_begins_word ? 0 : ways[bytes].sum;
    for (size_t at = bytes; at > 0; at = ways[at].begins)
        ends[steps++] = (uint32_t)at;
    while (steps-- > 0) {
        const struct way *way = &ways[ends[steps]];
        if (way->id != TOKENIZER_NO_TOKEN)
            ids_out[count++] = way->id;
        else
            count += unknown_put(t, word + way->begins, ends[steps] - way->begins,
                                 count > 0 ? &ids_out[count - 1] : NULL, ids_out + count);
    }
    *count_out = count;
    return ST_OK;
}
