/* tokenizer_special: finds special tokens in a text, the leftmost first and of those the longest,
 * by walking a trie from each byte that a special token can begin with. The time is proportional to
 * the text, for any number of special tokens. */
#include "model/text/tokenizer_internal.h"

#include <stdlib.h>

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

bool specials_add(struct specials *s, const char *text, size_t bytes, uint32_t id, bool always)
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
        s->nodes[node].always = always;
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

bool specials_next(const struct specials *s, const char *text, size_t bytes, size_t at,
                   struct plain_ranges *plain, size_t *start_out, size_t *end_out, uint32_t *id_out)
{
    for (; at < bytes; at++) {
        if (!s->first[(uint8_t)text[at]])
            continue;
        bool found = false;
        size_t limit = control_limit(plain, at);
        uint32_t node = 0;
        for (size_t i = at; i < bytes; i++) {
            node = child_of(s, node, (uint8_t)text[i]);
            if (node == 0)
                break;
            if (s->nodes[node].id == TOKENIZER_NO_TOKEN || (i >= limit && !s->nodes[node].always))
                continue;
            *start_out = at;
            *end_out = i + 1;
            *id_out = s->nodes[node].id;
            found = true;
        }
        if (found)
            return true;
    }
    *start_out = bytes;
    return false;
}
