/* dfa: see the header. */
#include "model/grammar/dfa.h"

#include "model/grammar/stepper.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define STEPPER_BYTES (32u << 20)

struct dfa {
    uint32_t count, capacity;
    uint16_t (*next)[256];
    bool *accepts;
};

static struct dfa *none(struct builder *errors, enum status status)
{
    builder_fail(errors, status,
                 status == ST_NO_MEMORY
                     ? "out of memory"
                     : "a pattern, or patterns together, need more than %u states",
                 DFA_STATES_MAX);
    return NULL;
}

void dfa_close(struct dfa *d)
{
    if (d == NULL)
        return;
    free(d->next);
    free(d->accepts);
    free(d);
}

static bool state_add(struct dfa *d, bool accepts)
{
    if (d->count == d->capacity) {
        uint32_t more = d->capacity == 0 ? 16 : d->capacity * 2;
        void *next = realloc(d->next, more * sizeof(*d->next));
        if (next == NULL)
            return false;
        d->next = next;
        void *flags = realloc(d->accepts, more * sizeof(bool));
        if (flags == NULL)
            return false;
        d->accepts = flags;
        d->capacity = more;
    }
    memset(d->next[d->count], 0, sizeof(*d->next));
    d->accepts[d->count++] = accepts;
    return true;
}

/* Records the failure of a stepper. */
static struct dfa *stepper_failed(struct builder *errors, uint32_t state)
{
    return none(errors, state == STEPPER_NO_MEMORY ? ST_NO_MEMORY : ST_TOO_LARGE);
}

/* Counts a visited state. places: the places of all states after it, which take most of the time.
 * Returns false if DFA_WORK_MAX is exceeded. */
static bool work(struct builder *errors, uint64_t places)
{
    errors->dfa_work += 1 + (uint32_t)(places / 256);
    if (errors->dfa_work > DFA_WORK_MAX)
        builder_fail(errors, ST_TOO_LARGE, "the patterns together need more than %u states",
                     DFA_WORK_MAX);
    return errors->status == ST_OK;
}

/* A dfa with the states 0 and 1. */
static struct dfa *begin(struct builder *errors, bool accepts)
{
    struct dfa *d = calloc(1, sizeof(*d));
    if (d == NULL || !state_add(d, false) || !state_add(d, accepts)) {
        dfa_close(d);
        return none(errors, ST_NO_MEMORY);
    }
    return d;
}

/* ---- from an automaton ---- */

/* Visits the stepper's states, whose numbers are those of the dfa. */
static struct dfa *explore(struct builder *errors, struct stepper *m)
{
    const struct automaton *a = m->automaton;
    uint32_t start = stepper_start(m);
    if (STEPPER_FAILED(start))
        return stepper_failed(errors, start);
    struct dfa *d = begin(errors, start == 1 && m->states[start].accepts);
    for (uint32_t at = 1; d != NULL && start == 1 && at < m->state_count; at++) {
        uint64_t places = 0;
        for (uint32_t class = 0; class < a->class_count; class ++) {
            uint32_t next = stepper_step(m, at, a->class_byte[class]);
            if (STEPPER_FAILED(next) || m->state_count > DFA_STATES_MAX) {
                dfa_close(d);
                return stepper_failed(errors, next);
            }
            places += m->new_place_count;
            if (next == d->count && !state_add(d, m->states[next].accepts)) {
                dfa_close(d);
                return none(errors, ST_NO_MEMORY);
            }
            for (uint32_t byte = a->class_byte[class]; byte < 256 && a->class_of[byte] == class;
                 byte++)
                d->next[at][byte] = (uint16_t)next;
        }
        if (!work(errors, places)) {
            dfa_close(d);
            return NULL;
        }
    }
    return d;
}

struct dfa *dfa_open(struct builder *errors, struct builder *part, struct fragment body)
{
    struct automaton a = {0};
    struct stepper m;
    struct error error = {0};
    struct dfa *d = NULL;
    uint32_t rule = builder_rule_add(part);
    builder_rule_define(part, rule, body);
    bool wrong = part->status != ST_OK;
    enum status status = automaton_finish(part, rule, &a, &error);
    if (status == ST_INVALID && !wrong)
        d = begin(errors, false); /* No text matches. */
    else if (status != ST_OK)
        builder_fail(errors, status, "%s", error.text);
    else if (!stepper_open(&m, &a, STEPPER_BYTES))
        none(errors, ST_NO_MEMORY);
    else {
        d = explore(errors, &m);
        stepper_done(&m);
    }
    automaton_done(&a);
    builder_done(part);
    return d;
}

/* ---- products ---- */

struct product {
    struct dfa *out;
    uint32_t *pairs; /* [DFA_STATES_MAX] key of each state. */
    uint32_t *table; /* [4 × DFA_STATES_MAX] states by key. */
};

static bool product_open(struct product *p, struct builder *errors)
{
    p->out = begin(errors, false);
    p->pairs = malloc(DFA_STATES_MAX * sizeof(uint32_t));
    p->table = calloc(4 * DFA_STATES_MAX, sizeof(uint32_t));
    if (p->pairs == NULL || p->table == NULL)
        none(errors, ST_NO_MEMORY);
    return p->out != NULL && p->pairs != NULL && p->table != NULL;
}

static uint32_t *product_slot(struct product *p, uint32_t key)
{
    uint32_t slot = key * 0x9E3779B1u >> 17;
    static_assert(4 * DFA_STATES_MAX == 1u << 15, "15 bits of the hash");
    while (p->table[slot] != 0 && p->pairs[p->table[slot]] != key)
        slot = (slot + 1) % (4 * DFA_STATES_MAX);
    return &p->table[slot];
}

/* The state of a key; 0 after an error. */
static uint32_t product_state(struct product *p, struct builder *errors, uint32_t key, bool accepts)
{
    uint32_t *slot = product_slot(p, key);
    if (*slot != 0)
        return *slot;
    if (p->out->count == DFA_STATES_MAX || !state_add(p->out, accepts)) {
        none(errors, p->out->count == DFA_STATES_MAX ? ST_TOO_LARGE : ST_NO_MEMORY);
        return 0;
    }
    p->pairs[p->out->count - 1] = key;
    *slot = p->out->count - 1;
    return *slot;
}

static struct dfa *product_end(struct product *p, const struct builder *errors)
{
    free(p->pairs);
    free(p->table);
    if (errors->status == ST_OK)
        return p->out;
    dfa_close(p->out);
    return NULL;
}

static struct dfa *combine(struct builder *errors, struct dfa *a, struct dfa *b, bool without)
{
    struct product p = {0};
    if (a != NULL && b != NULL && product_open(&p, errors)) {
        p.out->accepts[1] = a->accepts[1] && b->accepts[1] != without;
        p.pairs[1] = 1u << 16 | 1;
        *product_slot(&p, p.pairs[1]) = 1;
        for (uint32_t at = 1; at < p.out->count && work(errors, 0); at++)
            for (uint32_t byte = 0; byte < 256; byte++) {
                uint32_t left = a->next[p.pairs[at] >> 16][byte];
                uint32_t right = b->next[p.pairs[at] & 0xFFFF][byte];
                if (left == 0 || (right == 0 && !without))
                    continue;
                uint32_t next = product_state(&p, errors, left << 16 | right,
                                              a->accepts[left] && b->accepts[right] != without);
                p.out->next[at][byte] = (uint16_t)next;
            }
    }
    dfa_close(a);
    dfa_close(b);
    return product_end(&p, errors);
}

struct dfa *dfa_and(struct builder *errors, struct dfa *a, struct dfa *b)
{
    return combine(errors, a, b, false);
}

struct dfa *dfa_without(struct builder *errors, struct dfa *a, struct dfa *b)
{
    return combine(errors, a, b, true);
}

/* Where a byte of a JSON string is in its character: 0 = between two; 1 to 3 = bytes that follow; 4
 * = after a backslash; 5 to 8 = hexadecimal digits that follow, and 4. */
static uint32_t inside(uint32_t before, uint8_t byte)
{
    if (before >= 1 && before <= 3)
        return before - 1;
    if (before == 4)
        return byte == 'u' ? 8 : 0;
    if (before >= 5)
        return before == 5 ? 0 : before - 1;
    if (byte == '\\')
        return 4;
    return byte < 0xC0 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
}

struct dfa *dfa_with_length(struct builder *errors, struct dfa *a, uint32_t least, uint32_t most)
{
    /* A key: state of `a` (13 bits), where in the character (4 bits), characters so far. */
    uint32_t full = most == COUNT_UNLIMITED ? least : most;
    struct product p = {0};
    if (full >= 1u << 14)
        none(errors, ST_TOO_LARGE);
    if (errors->status == ST_OK && a != NULL && product_open(&p, errors)) {
        p.out->accepts[1] = a->accepts[1] && least == 0;
        p.pairs[1] = 1u << 18;
        *product_slot(&p, p.pairs[1]) = 1;
        for (uint32_t at = 1; at < p.out->count && work(errors, 0); at++)
            for (uint32_t byte = 0; byte < 256; byte++) {
                uint32_t count = p.pairs[at] & 0x3FFF, in = p.pairs[at] >> 14 & 15;
                uint32_t next = a->next[p.pairs[at] >> 18][byte];
                if (next == 0 || (in == 0 && count == most))
                    continue;
                if (in == 0 && count < full)
                    count++;
                in = inside(in, (uint8_t)byte);
                bool accepts = in == 0 && a->accepts[next] && count >= least;
                p.out->next[at][byte] =
                    (uint16_t)product_state(&p, errors, next << 18 | in << 14 | count, accepts);
            }
    }
    dfa_close(a);
    return product_end(&p, errors);
}

struct dfa *dfa_copy(struct builder *errors, const struct dfa *d)
{
    if (d == NULL)
        return NULL;
    struct dfa *copy = begin(errors, false);
    while (copy != NULL && copy->count < d->count)
        if (!state_add(copy, false)) {
            dfa_close(copy);
            return none(errors, ST_NO_MEMORY);
        }
    if (copy != NULL) {
        memcpy(copy->next, d->next, d->count * sizeof(*d->next));
        memcpy(copy->accepts, d->accepts, d->count * sizeof(bool));
    }
    return copy;
}

/* ---- use ---- */

bool dfa_is_empty(const struct dfa *d)
{
    for (uint32_t i = 1; d != NULL && i < d->count; i++)
        if (d->accepts[i])
            return false;
    return true;
}

bool dfa_matches(const struct dfa *d, const char *bytes, size_t count)
{
    uint32_t at = d != NULL;
    for (size_t i = 0; i < count; i++)
        at = d != NULL ? d->next[at][(uint8_t)bytes[i]] : 0;
    return d != NULL && d->accepts[at];
}

struct fragment dfa_fragment(struct builder *b, const struct dfa *d)
{
    struct fragment result = fragment_never(b);
    if (d == NULL || b->status != ST_OK)
        return result;
    uint32_t first = b->node_count;
    for (uint32_t i = 1; i < d->count; i++) /* Node first + i - 1 is state i. */
        builder_node(b, (struct node){.kind = NODE_FORK,
                                      .next = NODE_NONE,
                                      .target = d->accepts[i] ? result.end : NODE_NONE});
    for (uint32_t i = 1; i < d->count && b->status == ST_OK; i++) {
        uint32_t chain = NODE_NONE;
        for (uint32_t byte = 0; byte < 256;) {
            uint32_t next = d->next[i][byte], low = byte;
            while (byte < 256 && d->next[i][byte] == next)
                byte++;
            if (next == 0)
                continue;
            uint32_t node = builder_node(b, (struct node){.kind = NODE_RANGE,
                                                          .low = (uint8_t)low,
                                                          .high = (uint8_t)(byte - 1),
                                                          .next = first + next - 1,
                                                          .target = NODE_NONE});
            chain = chain == NODE_NONE
                        ? node
                        : builder_node(
                              b, (struct node){.kind = NODE_FORK, .next = node, .target = chain});
        }
        if (b->status == ST_OK)
            b->nodes[first + i - 1].next = chain;
    }
    if (b->status == ST_OK)
        result.start = first;
    return result;
}
