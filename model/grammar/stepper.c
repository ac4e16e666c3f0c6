/* stepper: see the header. */
#include "model/grammar/stepper.h"

#include <stdlib.h>
#include <string.h>

#define WORK_MAX   (4 * STEPPER_PLACES_MAX)
#define SEEN_SLOTS (2 * WORK_MAX)

static uint32_t mix(uint32_t hash, uint32_t value)
{
    hash = (hash ^ value) * 0x9E3779B1u;
    return hash ^ hash >> 15;
}

static uint32_t place_hash(const struct place *p)
{
    return mix(mix(mix(mix(1, p->node), p->least), p->most), p->stack);
}

static bool place_equal(const struct place *a, const struct place *b)
{
    return a->node == b->node && a->least == b->least && a->most == b->most && a->stack == b->stack;
}

static int place_order(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct place));
}

/* ---- memory ---- */

size_t stepper_bytes(const struct stepper *m)
{
    size_t row = m->automaton->class_count * sizeof(uint32_t);
    return m->place_capacity * sizeof(struct place) +
           m->state_capacity * (sizeof(struct stepper_state) + row) +
           m->frame_capacity * sizeof(struct frame) +
           (m->state_slots + m->frame_slots) * sizeof(uint32_t) + WORK_MAX * sizeof(struct place) +
           2 * SEEN_SLOTS * sizeof(uint32_t);
}

static uint32_t fail(struct stepper *m, uint32_t how)
{
    if (m->failed == 0)
        m->failed = how;
    return m->failed;
}

/* Raises the capacity of an array, whose elements have `bytes` bytes, for `count` more elements.
 * Allocates nothing. Returns false if the limit does not allow the memory. */
static bool capacity_raise(struct stepper *m, uint32_t *capacity, uint32_t used, uint32_t count,
                           size_t bytes)
{
    uint32_t more = *capacity < 64 ? 64 : *capacity * 2;
    while (more < used + count)
        more *= 2;
    if (stepper_bytes(m) + (more - *capacity) * bytes > m->bytes_max)
        return fail(m, STEPPER_FULL), false;
    *capacity = more;
    return true;
}

static bool resize(struct stepper *m, void **array, size_t bytes)
{
    void *resized = realloc(*array, bytes);
    if (resized == NULL)
        return fail(m, STEPPER_NO_MEMORY), false;
    *array = resized;
    return true;
}

/* Grows an array for `count` more elements. */
static bool reserve(struct stepper *m, void **array, uint32_t *capacity, uint32_t used,
                    uint32_t count, size_t bytes)
{
    uint32_t more = *capacity;
    if (used + count <= more)
        return true;
    if (!capacity_raise(m, &more, used, count, bytes) || !resize(m, array, more * bytes))
        return false;
    *capacity = more;
    return true;
}

static bool states_reserve(struct stepper *m)
{
    size_t row = m->automaton->class_count * sizeof(uint32_t);
    uint32_t more = m->state_capacity;
    void *states = m->states, *rows = m->successors;
    if (m->state_count < more)
        return true;
    if (!capacity_raise(m, &more, m->state_count, 1, row + sizeof(struct stepper_state)))
        return false;
    bool good =
        resize(m, &rows, more * row) && resize(m, &states, more * sizeof(struct stepper_state));
    m->successors = rows;
    m->states = states;
    m->state_capacity = good ? more : m->state_capacity;
    return good;
}

/* Doubles a hash table. hash_of gives the hash of an element. */
static bool table_grow(struct stepper *m, uint32_t **table, uint32_t *slots, uint32_t count,
                       uint32_t (*hash_of)(const struct stepper *m, uint32_t i))
{
    if (*table != NULL && count * 2 < *slots)
        return true;
    uint32_t more = *slots == 0 ? 256 : *slots * 2;
    uint32_t *grown = calloc(more, sizeof(uint32_t));
    if (grown == NULL)
        return fail(m, STEPPER_NO_MEMORY), false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = hash_of(m, i) & (more - 1);
        while (grown[slot] != 0)
            slot = (slot + 1) & (more - 1);
        grown[slot] = i + 1;
    }
    free(*table);
    *table = grown;
    *slots = more;
    return true;
}

static uint32_t state_hash(const struct stepper *m, uint32_t i)
{
    return m->states[i].hash;
}

static uint32_t frame_hash(const struct stepper *m, uint32_t i)
{
    const struct frame *f = &m->frames[i];
    return mix(mix(mix(mix(2, f->node), f->least), f->most), f->caller_stack);
}

/* ---- stacks ---- */

static uint32_t push(struct stepper *m, uint32_t node, uint32_t least, uint32_t most,
                     uint32_t below)
{
    void *frames = m->frames;
    if (!reserve(m, &frames, &m->frame_capacity, m->frame_count, 1, sizeof(struct frame)))
        return STACK_OPEN;
    m->frames = frames;
    if (!table_grow(m, &m->frame_table, &m->frame_slots, m->frame_count, frame_hash))
        return STACK_OPEN;
    m->frames[m->frame_count] =
        (struct frame){node, least, most, below, m->frames[below].depth + 1};
    uint32_t slot = frame_hash(m, m->frame_count) & (m->frame_slots - 1);
    for (; m->frame_table[slot] != 0; slot = (slot + 1) & (m->frame_slots - 1)) {
        uint32_t at = m->frame_table[slot] - 1;
        const struct frame *f = &m->frames[at];
        if (at > STACK_EMPTY && f->node == node && f->least == least && f->most == most &&
            f->caller_stack == below)
            return at;
    }
    m->frame_table[slot] = m->frame_count + 1;
    return m->frame_count++;
}

/* ---- places ---- */

static void add(struct stepper *m, uint32_t node, uint32_t least, uint32_t most, uint32_t stack)
{
    if (node == NODE_NONE || m->failed != 0 ||
        m->frames[stack].depth + m->automaton->nodes[node].calls_min > AUTOMATON_DEPTH_MAX)
        return;
    const struct place place = {node, least, most, stack};
    uint32_t slot = place_hash(&place) & (SEEN_SLOTS - 1);
    for (; m->seen_round[slot] == m->round; slot = (slot + 1) & (SEEN_SLOTS - 1))
        if (place_equal(&m->new_places[m->seen[slot]], &place))
            return;
    if (m->new_place_count == WORK_MAX) {
        fail(m, STEPPER_AMBIGUOUS);
        return;
    }
    m->seen_round[slot] = m->round;
    m->seen[slot] = m->new_place_count;
    m->new_places[m->new_place_count++] = place;
}

/* Units of work (stepper.h), from measured times: of a computed state, of each place on the way to
 * the state, and of each place of the state, because the places are sorted. */
#define STATE_WORK  32
#define PLACE_WORK  8
#define SORTED_WORK 32

static void begin(struct stepper *m)
{
    m->new_place_count = 0;
    m->failed = 0;
    if (++m->round == 0) {
        memset(m->seen_round, 0, SEEN_SLOTS * sizeof(uint32_t));
        m->round = 1;
    }
}

/* Adds the places after a node that takes no byte. Returns false if the place stays. */
static bool follow(struct stepper *m, const struct place place)
{
    const struct node *node = &m->automaton->nodes[place.node];
    switch (node->kind) {
    case NODE_FORK:
        add(m, node->next, place.least, place.most, place.stack);
        add(m, node->target, place.least, place.most, place.stack);
        return true;
    case NODE_CALL:
        if (node->tail_call)
            add(m, node->target, 0, 0, place.stack);
        else if (node->target != NODE_NONE && node->next != NODE_NONE) {
            uint32_t stack = push(m, node->next, place.least, place.most, place.stack);
            add(m, node->target, 0, 0, stack);
        }
        return true;
    case NODE_COUNT:
        add(m, node->next, node->least, node->most, place.stack);
        return true;
    case NODE_LOOP: {
        uint32_t least = place.least > 0 ? place.least - 1 : 0;
        uint32_t most = place.most == COUNT_UNLIMITED ? COUNT_UNLIMITED : place.most - 1;
        if (least == 0)
            add(m, node->target, 0, 0, place.stack);
        if (most > 0)
            add(m, node->next, least, most, place.stack);
        return true;
    }
    case NODE_END:
        if (place.stack <= STACK_EMPTY)
            return false;
        const struct frame frame = m->frames[place.stack];
        add(m, frame.node, frame.least, frame.most, frame.caller_stack);
        return true;
    default:
        return false;
    }
}

static uint32_t state_add(struct stepper *m, uint32_t hash, uint32_t count)
{
    void *places = m->places;
    if (!reserve(m, &places, &m->place_capacity, m->place_count, count, sizeof(struct place)))
        return m->failed;
    m->places = places;
    if (!states_reserve(m) ||
        !table_grow(m, &m->state_table, &m->state_slots, m->state_count, state_hash))
        return m->failed;
    uint32_t slot = hash & (m->state_slots - 1);
    while (m->state_table[slot] != 0)
        slot = (slot + 1) & (m->state_slots - 1);
    m->state_table[slot] = m->state_count + 1;
    struct stepper_state *state = &m->states[m->state_count];
    *state = (struct stepper_state){m->place_count, count, hash, UINT32_MAX, false, false};
    for (uint32_t i = 0; i < count; i++) {
        bool end = m->automaton->nodes[m->new_places[i].node].kind == NODE_END;
        state->accepts |= end && m->new_places[i].stack == STACK_EMPTY;
        state->returns |= end && m->new_places[i].stack == STACK_OPEN;
    }
    if (count > 0)
        memcpy(m->places + m->place_count, m->new_places, count * sizeof(struct place));
    m->place_count += count;
    memset(m->successors + (size_t)m->state_count * m->automaton->class_count, 0xFF,
           m->automaton->class_count * sizeof(uint32_t));
    return m->state_count++;
}

/* The number of the state of work[0..count). */
static uint32_t state_find(struct stepper *m, uint32_t count)
{
    uint32_t hash = 3;
    if (count > STEPPER_PLACES_MAX)
        return fail(m, STEPPER_AMBIGUOUS);
    m->work += (uint64_t)SORTED_WORK * count;
    if (count > 1)
        qsort(m->new_places, count, sizeof(struct place), place_order);
    for (uint32_t i = 0; i < count; i++)
        hash = mix(hash, place_hash(&m->new_places[i]));
    for (uint32_t slot = hash & (m->state_slots - 1); m->state_slots > 0;
         slot = (slot + 1) & (m->state_slots - 1)) {
        uint32_t at = m->state_table[slot];
        if (at == 0)
            break;
        const struct stepper_state *state = &m->states[at - 1];
        if (state->hash == hash && state->count == count &&
            (count == 0 ||
             memcmp(m->places + state->first, m->new_places, count * sizeof(struct place)) == 0))
            return at - 1;
    }
    return state_add(m, hash, count);
}

/* Completes `work` with what follows without a byte, and returns its state. */
static uint32_t close_state(struct stepper *m)
{
    uint32_t kept = 0;
    if (m->work >= m->work_max)
        return fail(m, STEPPER_COSTLY);
    for (uint32_t i = 0; i < m->new_place_count && m->failed == 0; i++)
        (void)follow(m, m->new_places[i]);
    m->work += STATE_WORK + (uint64_t)PLACE_WORK * m->new_place_count;
    if (m->failed != 0)
        return m->failed;
    for (uint32_t i = 0; i < m->new_place_count; i++) {
        uint8_t kind = m->automaton->nodes[m->new_places[i].node].kind;
        if (kind == NODE_RANGE || (kind == NODE_END && m->new_places[i].stack <= STACK_EMPTY))
            m->new_places[kept++] = m->new_places[i];
    }
    return state_find(m, kept);
}

bool stepper_open(struct stepper *m, const struct automaton *a, size_t bytes_max)
{
    *m = (struct stepper){.automaton = a, .bytes_max = bytes_max, .work_max = UINT64_MAX};
    m->new_places = malloc(WORK_MAX * sizeof(struct place));
    m->seen = malloc(SEEN_SLOTS * sizeof(uint32_t));
    m->seen_round = calloc(SEEN_SLOTS, sizeof(uint32_t));
    void *frames = NULL;
    if (m->new_places == NULL || m->seen == NULL || m->seen_round == NULL ||
        !reserve(m, &frames, &m->frame_capacity, 0, 2, sizeof(struct frame))) {
        stepper_done(m);
        return false;
    }
    m->frames = frames;
    m->frames[STACK_OPEN] = (struct frame){0};
    m->frames[STACK_EMPTY] = (struct frame){0};
    m->frame_count = 2;
    begin(m);
    if (state_find(m, 0) != STEPPER_DEAD) {
        stepper_done(m);
        return false;
    }
    return true;
}

void stepper_done(struct stepper *m)
{
    free(m->places);
    free(m->states);
    free(m->successors);
    free(m->frames);
    free(m->state_table);
    free(m->frame_table);
    free(m->new_places);
    free(m->seen);
    free(m->seen_round);
    *m = (struct stepper){0};
}

uint32_t stepper_start(struct stepper *m)
{
    begin(m);
    add(m, m->automaton->start, 0, 0, STACK_EMPTY);
    return close_state(m);
}

uint32_t stepper_step_compute(struct stepper *m, uint32_t state, uint8_t byte)
{
    begin(m);
    m->work += m->states[state].count;
    for (uint32_t i = 0; i < m->states[state].count; i++) {
        const struct place place = m->places[m->states[state].first + i];
        const struct node *node = &m->automaton->nodes[place.node];
        if (node->kind == NODE_RANGE && byte >= node->low && byte <= node->high)
            add(m, node->next, place.least, place.most, place.stack);
    }
    uint32_t next = close_state(m);
    if (!STEPPER_FAILED(next)) {
        const struct automaton *a = m->automaton;
        m->successors[(size_t)state * a->class_count + a->class_of[byte]] = next;
    }
    return next;
}

uint32_t stepper_return(struct stepper *m, uint32_t stack)
{
    begin(m);
    const struct frame frame = m->frames[stack];
    if (stack <= STACK_EMPTY)
        return STEPPER_DEAD;
    add(m, frame.node, frame.least, frame.most, frame.caller_stack);
    return close_state(m);
}

uint32_t stepper_state_of(struct stepper *m, const struct place *places, uint32_t count)
{
    begin(m);
    for (uint32_t i = 0; i < count; i++)
        add(m, places[i].node, places[i].least, places[i].most, places[i].stack);
    return m->failed != 0 ? m->failed : state_find(m, m->new_place_count);
}

/* ---- compaction ---- */

/* Numbers of frames in the new stepper; a frame's `below` has a lower number than the frame. */
static bool frames_copy(const struct stepper *from, struct stepper *to, uint32_t **states,
                        uint32_t count, uint32_t *moved)
{
    memset(moved, 0, from->frame_count * sizeof(*moved));
    for (uint32_t i = 0; i < count; i++) {
        const struct stepper_state *state = &from->states[*states[i]];
        for (uint32_t k = 0; k < state->count; k++)
            moved[from->places[state->first + k].stack] = 1;
    }
    for (uint32_t i = from->frame_count; i-- > 2;)
        if (moved[i] != 0)
            moved[from->frames[i].caller_stack] = 1;
    moved[STACK_OPEN] = STACK_OPEN;
    moved[STACK_EMPTY] = STACK_EMPTY;
    for (uint32_t i = 2; i < from->frame_count; i++) {
        const struct frame *f = &from->frames[i];
        if (moved[i] != 0)
            moved[i] = push(to, f->node, f->least, f->most, moved[f->caller_stack]);
    }
    return to->failed == 0;
}

bool stepper_compact(struct stepper *m, uint32_t **states, uint32_t count)
{
    struct stepper fresh;
    uint32_t *moved = malloc(m->frame_count * sizeof(*moved));
    uint32_t *numbers = malloc(((size_t)count + 1) * sizeof(*numbers));
    bool good = moved != NULL && numbers != NULL;
    if (!good || !stepper_open(&fresh, m->automaton, m->bytes_max)) {
        free(moved);
        free(numbers);
        return false;
    }
    fresh.work = m->work + (uint64_t)PLACE_WORK * m->frame_count;
    fresh.work_max = m->work_max;
    begin(&fresh);
    good = frames_copy(m, &fresh, states, count, moved);
    for (uint32_t i = 0; i < count && good; i++) {
        const struct stepper_state *state = &m->states[*states[i]];
        memcpy(fresh.new_places, m->places + state->first, state->count * sizeof(struct place));
        for (uint32_t k = 0; k < state->count; k++)
            fresh.new_places[k].stack = moved[fresh.new_places[k].stack];
        begin(&fresh);
        numbers[i] = state_find(&fresh, state->count);
        good = !STEPPER_FAILED(numbers[i]);
        if (good && numbers[i] < fresh.state_count)
            fresh.states[numbers[i]].caller_number = state->caller_number;
    }
    for (uint32_t i = 0; i < count && good; i++)
        *states[i] = numbers[i];
    struct stepper gone = good ? *m : fresh;
    if (good)
        *m = fresh;
    stepper_done(&gone);
    free(moved);
    free(numbers);
    return good;
}
