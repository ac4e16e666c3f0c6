/* mask: which tokens may come next. Most of the answer depends only on the call on top of the stack
 * (inside a string, nearly every token is allowed, wherever the string is), so it is computed once
 * for each set of places on top of a call and kept. The rest, tokens that leave the call, is walked
 * for each state. */
#include "model/grammar/internal.h"
#include "model/grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define ENTRIES_BYTES_MAX (16u << 20)
#define NODE_WORK         3 /* Units of work (stepper.h) of a node of the vocabulary's tree. */
/* What is added to a mask in one unit of work. */
#define WORDS_A_UNIT  8
#define TOKENS_A_UNIT 2

static void bit_set(uint32_t *mask, uint32_t id)
{
    mask[id / 32] |= 1u << (id % 32);
}

static void tokens_set(const struct grammar_vocabulary *v, uint32_t node, uint32_t *mask)
{
    for (uint32_t i = v->nodes[node].first; i < v->nodes[node + 1].first; i++)
        bit_set(mask, v->ids[i]);
}

/* The nodes below `node`, from which the call has returned. */
static bool branches_add(struct grammar *g, uint32_t node)
{
    const struct vocabulary_node *nodes = g->vocabulary->nodes;
    for (uint32_t child = node + 1; child < nodes[node].end; child = nodes[child].end) {
        if (g->branch_count == g->branch_capacity) {
            uint32_t more = g->branch_capacity < 256 ? 256 : 2 * g->branch_capacity;
            uint32_t *grown = realloc(g->branches, more * sizeof(*grown));
            if (grown == NULL)
                return false;
            g->branches = grown;
            g->branch_capacity = more;
        }
        g->branches[g->branch_count++] = child;
    }
    return true;
}

/* Walks the branch below node `top` from `state` and sets the tokens that are alive. Collects in
 * g->branches the nodes after which a place returns into STACK_OPEN. Returns 0, or STEPPER_FULL and
 * others. */
static uint32_t walk(struct grammar *g, uint32_t top, uint32_t state, uint32_t *mask)
{
    const struct grammar_vocabulary *v = g->vocabulary;
    const struct vocabulary_node *nodes = v->nodes;
    uint32_t states[GRAMMAR_TOKEN_BYTES + 1];
    const uint32_t end = nodes[top].end;
    if (g->stepper.work >= g->stepper.work_max)
        return STEPPER_COSTLY;
    states[nodes[top].depth] = state;
    for (uint32_t i = top + 1; i < end;) {
        g->stepper.work += NODE_WORK;
        uint32_t next = stepper_step(&g->stepper, states[nodes[i].depth - 1], nodes[i].byte);
        if (next == STEPPER_DEAD) {
            i = nodes[i].end;
            continue;
        }
        if (STEPPER_FAILED(next))
            return next;
        if (nodes[i].first < nodes[i + 1].first)
            tokens_set(v, i, mask);
        const struct stepper_state *s = &g->stepper.states[next];
        if (s->returns && !branches_add(g, i))
            return STEPPER_NO_MEMORY;
        if ((s->returns || s->accepts) && s->count == 1) {
            i = nodes[i].end;
            continue;
        }
        states[nodes[i].depth] = next;
        i++;
    }
    return 0;
}

/* ---- entries ---- */

static void entry_free(struct mask_entry *entry)
{
    free(entry->tokens);
    free(entry->bits);
    free(entry->branches);
}

void mask_entries_drop(struct grammar *g)
{
    for (uint32_t i = 0; i < g->entry_count; i++) {
        g->stepper.states[g->entries[i].state].caller_number = UINT32_MAX;
        entry_free(&g->entries[i]);
    }
    g->entry_count = 0;
    g->entry_bytes = 0;
}

static void branches_sort(const struct grammar *g, struct mask_entry *entry)
{
    const struct vocabulary_node *nodes = g->vocabulary->nodes;
    uint32_t next[257] = {0};
    for (uint32_t i = 0; i < g->branch_count; i++)
        next[nodes[g->branches[i]].byte + 1]++;
    for (uint32_t byte = 0; byte < 256; byte++)
        next[byte + 1] += next[byte];
    memcpy(entry->branch_starts, next, sizeof(next));
    for (uint32_t i = 0; i < g->branch_count; i++)
        entry->branches[next[nodes[g->branches[i]].byte]++] = g->branches[i];
}

static bool entry_fill(struct grammar *g, struct mask_entry *entry)
{
    const uint32_t words = GRAMMAR_MASK_WORDS(g->vocabulary->count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < words; i++)
        count += (uint32_t)__builtin_popcount(g->bits[i]);
    entry->token_count = count;
    size_t bytes = (count < words ? count : words) * sizeof(uint32_t);
    uint32_t *room = malloc(bytes + 1);
    entry->branches = malloc(g->branch_count * sizeof(uint32_t) + 1);
    *(count < words ? &entry->tokens : &entry->bits) = room;
    if (room == NULL || entry->branches == NULL)
        return false;
    if (count >= words)
        memcpy(room, g->bits, bytes);
    for (uint32_t i = 0, used = 0; i < words && count < words; i++)
        for (uint32_t left = g->bits[i]; left != 0; left &= left - 1)
            room[used++] = i * 32 + (uint32_t)__builtin_ctz(left);
    branches_sort(g, entry);
    g->entry_bytes += bytes + g->branch_count * sizeof(uint32_t) + sizeof(*entry);
    return true;
}

/* Finds or makes the entry of a state over STACK_OPEN. Returns 0, or STEPPER_FULL and others. */
static uint32_t entry_of(struct grammar *g, uint32_t state, uint32_t *index_out)
{
    *index_out = g->stepper.states[state].caller_number;
    if (*index_out != UINT32_MAX)
        return 0;
    if (g->entry_bytes > ENTRIES_BYTES_MAX)
        mask_entries_drop(g);
    memset(g->bits, 0, GRAMMAR_MASK_WORDS(g->vocabulary->count) * sizeof(uint32_t));
    g->branch_count = 0;
    uint32_t failed = walk(g, 0, state, g->bits);
    if (failed != 0)
        return failed;
    if (g->entry_count == g->entry_capacity) {
        uint32_t more = g->entry_capacity < 16 ? 16 : g->entry_capacity * 2;
        void *grown = realloc(g->entries, more * sizeof(*g->entries));
        if (grown == NULL)
            return STEPPER_NO_MEMORY;
        g->entries = grown;
        g->entry_capacity = more;
    }
    struct mask_entry *entry = &g->entries[g->entry_count];
    *entry = (struct mask_entry){.state = state};
    if (!entry_fill(g, entry)) {
        entry_free(entry);
        return STEPPER_NO_MEMORY;
    }
    g->stepper.states[state].caller_number = g->entry_count;
    *index_out = g->entry_count++;
    return 0;
}

/* ---- masks ---- */

/* Adds the tokens that leave the call, from the state below it. */
static uint32_t branches_walk(struct grammar *g, const struct mask_entry *entry, uint32_t below,
                              uint32_t *mask)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        const uint32_t first = entry->branch_starts[byte], end = entry->branch_starts[byte + 1];
        if (first == end)
            continue;
        uint32_t state = stepper_step(&g->stepper, below, (uint8_t)byte);
        if (state == STEPPER_DEAD)
            continue;
        if (STEPPER_FAILED(state))
            return state;
        for (uint32_t i = first; i < end; i++) {
            tokens_set(g->vocabulary, entry->branches[i], mask);
            uint32_t failed = walk(g, entry->branches[i], state, mask);
            if (failed != 0)
                return failed;
        }
    }
    return 0;
}

/* Adds the tokens of the places places[0..count), which share a stack. */
static uint32_t group_add(struct grammar *g, const struct place *places, uint32_t count,
                          uint32_t *mask)
{
    /* A token has at most `longest` bytes, so it cannot use up a count above. */
    const uint32_t longest = g->vocabulary->longest;
    const uint32_t stack = places[0].stack;
    struct place *local = g->places + STEPPER_PLACES_MAX;
    for (uint32_t i = 0; i < count; i++) {
        local[i] = places[i];
        local[i].stack = STACK_OPEN;
        if (local[i].least > longest)
            local[i].least = longest + 1;
        if (local[i].most > longest)
            local[i].most = COUNT_UNLIMITED;
    }
    uint32_t index;
    uint32_t state = stepper_state_of(&g->stepper, local, count);
    if (STEPPER_FAILED(state))
        return state;
    uint32_t failed = entry_of(g, state, &index);
    if (failed != 0)
        return failed;
    const struct mask_entry *entry = &g->entries[index];
    g->stepper.work += entry->bits != NULL ? GRAMMAR_MASK_WORDS(g->vocabulary->count) / WORDS_A_UNIT
                                           : entry->token_count / TOKENS_A_UNIT;
    if (entry->bits != NULL)
        for (uint32_t i = 0; i < GRAMMAR_MASK_WORDS(g->vocabulary->count); i++)
            mask[i] |= entry->bits[i];
    else
        for (uint32_t i = 0; i < entry->token_count; i++)
            bit_set(mask, entry->tokens[i]);
    if (stack == STACK_EMPTY || entry->branch_starts[256] == 0)
        return 0;
    uint32_t below = stepper_return(&g->stepper, stack);
    return STEPPER_FAILED(below) ? below : branches_walk(g, entry, below, mask);
}

/* True if a token could reach the limit of open calls, which does not depend on the top call
 * only. */
static bool is_deep(const struct grammar *g, const struct stepper_state *state)
{
    for (uint32_t i = 0; i < state->count; i++) {
        uint32_t stack = g->stepper.places[state->first + i].stack;
        if (g->stepper.frames[stack].depth > AUTOMATON_DEPTH_MAX / 2)
            return true;
    }
    return false;
}

static uint32_t mask_fill(struct grammar *g, uint32_t at, uint32_t *mask)
{
    const struct stepper_state state = g->stepper.states[at];
    uint32_t count = 0, failed = 0;
    memset(mask, 0, GRAMMAR_MASK_WORDS(g->vocabulary->count) * sizeof(uint32_t));
    if (is_deep(g, &state))
        return walk(g, 0, at, mask);
    for (uint32_t i = 0; i < state.count; i++) {
        const struct place *place = &g->stepper.places[state.first + i];
        if (g->automaton.nodes[place->node].kind == NODE_RANGE)
            g->places[count++] = *place;
    }
    for (uint32_t from = 0; from < count && failed == 0;) {
        uint32_t till = from + 1; /* The group's places move together. */
        for (uint32_t i = till; i < count; i++)
            if (g->places[i].stack == g->places[from].stack) {
                struct place place = g->places[i];
                g->places[i] = g->places[till];
                g->places[till++] = place;
            }
        failed = group_add(g, g->places + from, till - from, mask);
        from = till;
    }
    return failed;
}

enum status grammar_run_mask(struct grammar_run *run, uint32_t *mask, struct error *error)
{
    struct grammar *g = run->grammar;
    grammar_work_begin(g, GRAMMAR_WORK_TOKEN, g->mask_work_max);
    uint32_t failed = mask_fill(g, run->state, mask);
    for (int attempt = 0; attempt < 2 && failed == STEPPER_FULL; attempt++) {
        if (!grammar_compact(g, NULL, attempt > 0))
            failed = STEPPER_NO_MEMORY;
        else
            failed = mask_fill(g, run->state, mask);
    }
    grammar_work_end(g);
    return failed == 0 ? ST_OK : grammar_stepper_error(failed, error);
}
