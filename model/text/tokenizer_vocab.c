/* tokenizer_vocab: the tables of the vocabulary. They are built once and read by all threads. Open
 * addressing at half load keeps a look-up at one or two cache misses. */
#include "model/text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

static size_t table_size(size_t count)
{
    size_t slots = 16;
    while (slots < count * 2)
        slots *= 2;
    return slots;
}

/* ---- texts ---- */

bool texts_open(struct texts *t, uint32_t capacity, size_t bytes_max)
{
    size_t slots = table_size(capacity);
    t->bytes = malloc(bytes_max + 1);
    t->starts = malloc(((size_t)capacity + 1) * sizeof(*t->starts));
    t->slots = calloc(slots, sizeof(*t->slots));
    t->mask = slots - 1;
    t->count = 0;
    if (t->bytes == NULL || t->starts == NULL || t->slots == NULL)
        return false;
    t->starts[0] = 0;
    return true;
}

void texts_close(struct texts *t)
{
    free(t->bytes);
    free(t->starts);
    free(t->slots);
}

char *texts_begin(struct texts *t)
{
    return t->bytes + t->starts[t->count];
}

void texts_end(struct texts *t, size_t bytes)
{
    t->starts[t->count + 1] = t->starts[t->count] + bytes;
    t->count++;
}

static uint64_t text_hash(const char *text, size_t bytes)
{
    uint64_t hash = bytes * 0x9e3779b97f4a7c15u;
    uint64_t word;
    for (; bytes >= 8; text += 8, bytes -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
        hash ^= hash >> 32;
    }
    word = 0;
    for (size_t i = 0; i < bytes; i++)
        word |= (uint64_t)(uint8_t)text[i] << 8 * i;
    hash = (hash ^ word) * 0x94d049bb133111ebu;
    return hash ^ hash >> 29;
}

/* Returns the slot's contents for this text, without the id. */
static struct text_slot slot_of(const char *text, size_t bytes, uint64_t hash)
{
    struct text_slot slot = {.id = 0};
    if (bytes <= TEXT_SLOT_BYTES) {
        slot.bytes = (uint8_t)bytes;
        for (size_t i = 0; i < bytes; i++)
            slot.text[i] = text[i];
        return slot;
    }
    slot.words[1] = (uint32_t)(hash >> 32);
    slot.words[2] = (uint32_t)bytes;
    slot.bytes = 255;
    return slot;
}

/* Returns the slot that has the text, or the empty slot where it would be; NULL = neither is within
 * TABLE_STEPS_MAX steps, so the text is not in the table. `want` is the text's slot_of. */
static struct text_slot *text_slot(const struct texts *t, const char *text, size_t bytes,
                                   uint64_t hash, const struct text_slot *want)
{
    size_t last = (hash + TABLE_STEPS_MAX - 1) & t->mask;
    for (size_t at = hash & t->mask;; at = (at + 1) & t->mask) {
        struct text_slot *slot = &t->slots[at];
        if (slot->id == 0)
            return slot;
        if (slot->words[0] == want->words[0] && slot->words[1] == want->words[1] &&
            slot->words[2] == want->words[2]) {
            size_t found_bytes;
            if (want->bytes != 255)
                return slot;
            const char *found = texts_at(t, slot->id - 1, &found_bytes);
            if (found_bytes == bytes && memcmp(found, text, bytes) == 0)
                return slot;
        }
        if (at == last)
            return NULL;
    }
}

void texts_prefetch(const struct texts *t, const char *text, size_t bytes)
{
    __builtin_prefetch(&t->slots[text_hash(text, bytes) & t->mask]);
}

bool texts_index(struct texts *t, uint32_t id)
{
    size_t bytes;
    const char *text = texts_at(t, id, &bytes);
    uint64_t hash = text_hash(text, bytes);
    struct text_slot want = slot_of(text, bytes, hash);
    struct text_slot *slot = text_slot(t, text, bytes, hash, &want);
    if (slot == NULL)
        return false;
    if (slot->id != 0)
        return true;
    *slot = want;
    slot->id = id + 1;
    return true;
}

uint32_t texts_find(const struct texts *t, const char *text, size_t bytes)
{
    uint64_t hash = text_hash(text, bytes);
    struct text_slot want = slot_of(text, bytes, hash);
    const struct text_slot *slot = text_slot(t, text, bytes, hash, &want);
    return slot == NULL || slot->id == 0 ? TOKENIZER_NO_TOKEN : slot->id - 1;
}

/* ---- merges ---- */

bool merges_open(struct merges *m, uint32_t capacity)
{
    size_t slots = table_size(capacity);
    size_t bits = 64;
    /* At most an eighth of the pairs without a merge pass the filter. */
    while (bits < (size_t)capacity * 8)
        bits *= 2;
    m->slots = malloc(slots * sizeof(*m->slots));
    m->filter = calloc(bits / 64, sizeof(*m->filter));
    m->ids = malloc(((size_t)capacity + 1) * sizeof(*m->ids));
    m->mask = slots - 1;
    m->filter_mask = bits - 1;
    m->count = 0;
    if (m->slots == NULL || m->filter == NULL || m->ids == NULL)
        return false;
    memset(m->slots, 0xff, slots * sizeof(*m->slots));
    return true;
}

void merges_close(struct merges *m)
{
    free(m->slots);
    free(m->filter);
    free(m->ids);
}

bool merges_add(struct merges *m, uint32_t left, uint32_t right, uint32_t id)
{
    return merges_add_ranked(m, left, right, id, m->count++);
}

bool merges_add_ranked(struct merges *m, uint32_t left, uint32_t right, uint32_t id, uint32_t rank)
{
    uint64_t pair = (uint64_t)left << MERGE_ID_BITS | right;
    uint64_t hash = merges_hash(pair);
    size_t at = hash >> 24 & m->mask;
    size_t bit = hash >> 32 & m->filter_mask;
    assert(left <= MERGE_ID_MAX && right <= MERGE_ID_MAX && rank <= MERGE_RANK_MAX);
    m->ids[rank] = id;
    m->filter[bit / 64] |= 1ull << bit % 64;
    uint32_t steps = 0;
    for (; m->slots[at] != MERGE_EMPTY && steps < TABLE_STEPS_MAX; at = (at + 1) & m->mask) {
        if ((m->slots[at] & MERGE_PAIR) == pair)
            return true;
        steps++;
    }
    if (steps == TABLE_STEPS_MAX)
        return false;
    m->slots[at] = (uint64_t)rank << 2 * MERGE_ID_BITS | pair;
    return true;
}

/* ---- the byte alphabet ---- */

/* GPT-2 writes a byte that is a printable Latin-1 character as itself, and the n-th other byte as
 * U+0100 + n. Returns the byte, or -1. */
static int alphabet_byte(uint32_t character)
{
    bool printable = (character >= 0x21 && character <= 0x7e) ||
                     (character >= 0xa1 && character <= 0xac) ||
                     (character >= 0xae && character <= 0xff);
    if (printable)
        return (int)character;
    uint32_t other = character - 0x100;
    if (character < 0x100 || other > 67)
        return -1;
    if (other <= 32)
        return (int)other;                                /* 0x00 … 0x20 */
    return other == 67 ? 0xad : (int)(other - 33 + 0x7f); /* 0x7f … 0xa0, then 0xad */
}

size_t alphabet_decode(const char *text, size_t bytes, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < bytes;) {
        uint8_t first = (uint8_t)text[i];
        int byte = -1;
        size_t length = 1;
        if (first < 0x80) {
            byte = alphabet_byte(first);
        } else if ((first & 0xe0) == 0xc0 && i + 1 < bytes &&
                   ((uint8_t)text[i + 1] & 0xc0) == 0x80) {
            byte = alphabet_byte((uint32_t)(first & 0x1f) << 6 | ((uint8_t)text[i + 1] & 0x3f));
            length = byte >= 0 ? 2 : 1;
        }
        out[written++] = byte >= 0 ? (char)byte : text[i];
        i += length;
    }
    return written;
}
