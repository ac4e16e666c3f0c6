/* tokenizer_special: finds special tokens in a text, the leftmost first and of those the longest,
 * by walking a trie from each byte that a special token can begin with. The time is proportional to
 * the text, for any number of special tokens. */
#include "model/text/tokenizer_internal.h"

#include <stdlib.h>
#include <unictype.h>
#include <unistr.h>

static bool specials_grow(struct specials *s)
{
    uint32_t capacity = s->capacity * 2 + 64;
    struct special_node *nodes = realloc(s->nodes, capacity * sizeof(*nodes));
    if (nodes == NULL)
        return false;
    s->nodes = nodes;
    s->capacity = capacity;
    if (s->count == 0)
        s->nodes[s->count++] = (struct special_node){.id = TOKENIZER_NO_TOKEN};
    return true;
}

static uint32_t child_of(const struct specials *s, uint32_t node, uint8_t byte)
{
    uint32_t child = s->nodes[node].child;
    while (child != 0 && s->nodes[child].byte != byte)
        child = s->nodes[child].sibling;
    return child;
}

bool specials_add(struct specials *s, const char *text, size_t bytes, uint32_t id,
                  bool user_defined, uint8_t find_flags)
{
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)text[i];
        if (s->count == s->capacity && !specials_grow(s))
            return false;
        uint32_t child = child_of(s, node, byte);
        if (child == 0) {
            child = s->count++;
            s->nodes[child] = (struct special_node){
                .sibling = s->nodes[node].child, .id = TOKENIZER_NO_TOKEN, .byte = byte};
            s->nodes[node].child = child;
        }
        node = child;
    }
    if (node != 0 && s->nodes[node].id == TOKENIZER_NO_TOKEN) {
        s->nodes[node].id = id;
        s->nodes[node].user_defined = user_defined;
        s->nodes[node].find_flags = find_flags;
        s->first[(uint8_t)text[0]] = true;
    }
    return true;
}

void specials_close(struct specials *s)
{
    free(s->nodes);
}

/* Returns the offset behind which no control token that begins at `at` may end. */
static size_t control_limit(struct plain_ranges *plain, size_t at)
{
    for (; plain->count > 0 && plain->next->end <= at; plain->count--)
        plain->next++;
    return plain->count > 0 ? plain->next->begin : SIZE_MAX;
}

/* Whether a letter, a digit or "_" begins (or ends) the text. */
static bool word_beside(const char *text, size_t bytes, bool before)
{
    const uint8_t *t = (const uint8_t *)text;
    ucs4_t c = 0;
    if (bytes == 0 || (before ? u8_prev(&c, t + bytes, t) == NULL : u8_mbtoucr(&c, t, bytes) <= 0))
        return false;
    return c == '_' || uc_is_property_alphabetic(c) ||
           uc_is_general_category_withtable(c, UC_CATEGORY_MASK_M | UC_CATEGORY_MASK_Nd |
                                                   UC_CATEGORY_MASK_Pc);
}

/* Whether a token may be at [start, end) of the text. */
static bool fits(uint8_t finds, const char *text, size_t bytes, size_t start, size_t end)
{
    return (finds & FIND_SINGLE_WORD) == 0 ||
           (!word_beside(text, start, true) && !word_beside(text + end, bytes - end, false));
}

/* Adds the white space on both sides that belongs to the token. */
static void widen(uint8_t finds, const char *text, size_t bytes, size_t least, size_t *start,
                  size_t *end)
{
    size_t blank;
    while ((finds & FIND_LSTRIP) != 0 && *start > least &&
           (blank = character_blank_before(text + least, *start - least)) > 0)
        *start -= blank;
    while ((finds & FIND_RSTRIP) != 0 && (blank = character_blank(text + *end, bytes - *end)) > 0)
        *end += blank;
}

bool specials_next(const struct specials *s, const char *text, size_t bytes, size_t at,
                   struct plain_ranges *plain, size_t *start_out, size_t *end_out, uint32_t *id_out)
{
    const size_t least = at;
    for (; at < bytes; at++) {
        if (!s->first[(uint8_t)text[at]])
            continue;
        bool found = false;
        uint8_t finds = 0;
        size_t limit = control_limit(plain, at);
        uint32_t node = 0;
        for (size_t i = at; i < bytes; i++) {
            node = child_of(s, node, (uint8_t)text[i]);
            if (node == 0)
                break;
            if (s->nodes[node].id == TOKENIZER_NO_TOKEN ||
                (i >= limit && !s->nodes[node].user_defined))
                continue;
            if (!fits(s->nodes[node].find_flags, text, bytes, at, i + 1))
                continue;
            *start_out = at;
            *end_out = i + 1;
            finds = s->nodes[node].find_flags;
            *id_out = s->nodes[node].id;
            found = true;
        }
        if (found) {
            widen(finds, text, bytes, least, start_out, end_out);
            return true;
        }
    }
    *start_out = bytes;
    return false;
}
