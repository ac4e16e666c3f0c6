/* vocabulary: see the header. */
#include "model/grammar/vocabulary.h"

#include "model/grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (1u << 30)

struct entry {
    const char *bytes;
    uint32_t count;
    uint32_t id;
};

static int entry_order(const void *a, const void *b)
{
    const struct entry *one = a, *other = b;
    uint32_t common = one->count < other->count ? one->count : other->count;
    int order = memcmp(one->bytes, other->bytes, common);
    if (order != 0)
        return order;
    if (one->count != other->count)
        return one->count < other->count ? -1 : 1;
    return one->id < other->id ? -1 : 1;
}

/* Stores the bytes of a token, unless `out` is NULL. Returns their number; 0 = no constraint may
 * produce it. */
static size_t token_bytes(uint32_t id, grammar_piece_of *piece_of, const void *self, char *out)
{
    size_t bytes = 0;
    bool control = false;
    const char *piece = piece_of(self, id, &bytes, &control);
    if (piece == NULL || bytes == 0 || bytes + (control ? 2 : 0) > GRAMMAR_TOKEN_BYTES ||
        memchr(piece, TOKEN_BEGIN, bytes) != NULL || memchr(piece, TOKEN_END, bytes) != NULL)
        return 0;
    if (out != NULL) {
        memcpy(out + control, piece, bytes);
        if (control) {
            out[0] = TOKEN_BEGIN;
            out[bytes + 1] = TOKEN_END;
        }
    }
    return bytes + (control ? 2 : 0);
}

static bool bytes_copy(struct grammar_vocabulary *v, grammar_piece_of *piece_of, const void *self)
{
    size_t total = 0;
    v->starts = malloc(((size_t)v->count + 1) * sizeof(*v->starts));
    if (v->starts == NULL)
        return false;
    for (uint32_t id = 0; id < v->count; id++) {
        v->starts[id] = (uint32_t)total;
        total += token_bytes(id, piece_of, self, NULL);
        if (total > BYTES_MAX)
            return false;
    }
    v->starts[v->count] = (uint32_t)total;
    v->bytes = malloc(total + 1);
    if (v->bytes == NULL)
        return false;
    for (uint32_t id = 0; id < v->count; id++)
        (void)token_bytes(id, piece_of, self, v->bytes + v->starts[id]);
    return true;
}

/* Adds the nodes for one token. path[d] is the node at depth d on the way to the previous token,
 * which agrees with this one in `common` bytes. */
static void token_add(struct grammar_vocabulary *v, const struct entry *e, uint32_t common,
                      uint32_t last_depth, uint32_t *path, uint32_t index)
{
    for (uint32_t depth = common + 1; depth <= last_depth; depth++)
        v->nodes[path[depth]].end = v->node_count;
    for (uint32_t depth = common; depth < e->count; depth++) {
        path[depth + 1] = v->node_count;
        v->nodes[v->node_count++] = (struct vocabulary_node){
            .first = index, .byte = (uint8_t)e->bytes[depth], .depth = (uint8_t)(depth + 1)};
    }
}

static bool tree_build(struct grammar_vocabulary *v, const struct entry *entries, uint32_t count)
{
    uint32_t path[GRAMMAR_TOKEN_BYTES + 1] = {0};
    size_t nodes = 2 + (size_t)v->starts[v->count];
    v->nodes = malloc(nodes * sizeof(*v->nodes));
    v->ids = malloc(((size_t)count + 1) * sizeof(*v->ids));
    if (v->nodes == NULL || v->ids == NULL)
        return false;
    v->nodes[0] = (struct vocabulary_node){0};
    v->node_count = 1;
    uint32_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct entry *e = &entries[i];
        uint32_t common = 0;
        while (i > 0 && common < e->count && common < last &&
               e->bytes[common] == entries[i - 1].bytes[common])
            common++;
        token_add(v, e, common, last, path, i);
        v->ids[i] = e->id;
        last = e->count;
        if (last > v->longest)
            v->longest = last;
    }
    for (uint32_t depth = 0; depth <= last; depth++)
        v->nodes[path[depth]].end = v->node_count;
    v->nodes[v->node_count] = (struct vocabulary_node){.first = count};
    struct vocabulary_node *fit =
        realloc(v->nodes, ((size_t)v->node_count + 1) * sizeof(*v->nodes));
    if (fit != NULL)
        v->nodes = fit;
    return true;
}

enum status grammar_vocabulary_open(uint32_t count, grammar_piece_of *piece_of, const void *self,
                                    struct grammar_vocabulary **out, struct error *error)
{
    struct grammar_vocabulary *v = calloc(1, sizeof(*v));
    struct entry *entries = calloc((size_t)count + 1, sizeof(*entries));
    bool good = v != NULL && entries != NULL;
    uint32_t used = 0;
    if (good) {
        v->count = count;
        good = bytes_copy(v, piece_of, self);
    }
    for (uint32_t id = 0; good && id < count; id++)
        if (v->starts[id + 1] > v->starts[id])
            entries[used++] =
                (struct entry){v->bytes + v->starts[id], v->starts[id + 1] - v->starts[id], id};
    if (good) {
        qsort(entries, used, sizeof(*entries), entry_order);
        good = tree_build(v, entries, used);
    }
    free(entries);
    if (!good) {
        grammar_vocabulary_close(v);
        return error_set(error, ST_NO_MEMORY, "the tree of %u tokens: out of memory", count);
    }
    *out = v;
    return ST_OK;
}

uint32_t vocabulary_longest(const struct grammar_vocabulary *v, const char *bytes, uint32_t count,
                            uint32_t *id_out)
{
    const struct vocabulary_node *nodes = v->nodes;
    uint32_t node = 0, longest = 0;
    for (uint32_t depth = 0; depth < count; depth++) {
        uint32_t child = node + 1;
        while (child < nodes[node].end && nodes[child].byte != (uint8_t)bytes[depth])
            child = nodes[child].end;
        if (child >= nodes[node].end)
            break;
        node = child;
        if (nodes[node].first < nodes[node + 1].first) {
            *id_out = v->ids[nodes[node].first];
            longest = depth + 1;
        }
    }
    return longest;
}

void grammar_vocabulary_close(struct grammar_vocabulary *v)
{
    if (v == NULL)
        return;
    free(v->nodes);
    free(v->ids);
    free(v->starts);
    free(v->bytes);
    free(v);
}

uint32_t grammar_vocabulary_count(const struct grammar_vocabulary *v)
{
    return v->count;
}
