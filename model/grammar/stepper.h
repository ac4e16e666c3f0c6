/* stepper: follows an automaton byte by byte. A state is the set of all places in which the
 * automaton can be after the same bytes, each place with its stack of open calls. States and stacks
 * are numbered; equal ones have equal numbers, and a state's successors are found once. One thread
 * at a time. The memory is bounded: when a function returns STEPPER_FULL, the caller keeps the
 * states that it still needs with stepper_compact and tries again. */
#ifndef MODEL_GRAMMAR_STEPPER_H
#define MODEL_GRAMMAR_STEPPER_H

#include "model/grammar/automaton.h"

#define STEPPER_DEAD          0u               /* The state without places. */
#define STEPPER_FULL          UINT32_MAX       /* The memory is full. */
#define STEPPER_AMBIGUOUS     (UINT32_MAX - 1) /* A state with more places than STEPPER_PLACES_MAX. */
#define STEPPER_NO_MEMORY     (UINT32_MAX - 2)
#define STEPPER_FAILED(state) ((state) >= STEPPER_NO_MEMORY)
#define STEPPER_PLACES_MAX    4096

#define STACK_OPEN  0u /* What is below is not known; a place that returns into it stays there. */
#define STACK_EMPTY 1u /* The end of the root rule is the end of the text. */

struct place {
    uint32_t node;
    uint32_t least, most; /* Repetitions that are still needed and allowed. */
    uint32_t stack;
};

struct frame { /* An open call: where to go on. */
    uint32_t node;
    uint32_t least, most;
    uint32_t below;
    uint32_t depth;
};

struct stepper_state {
    uint32_t first, count; /* Its places. */
    uint32_t hash;
    uint32_t note; /* For the caller: UINT32_MAX in a new state. */
    bool accepts;  /* The text may end here. */
    bool returns;  /* A place has returned into STACK_OPEN. */
};

struct stepper {
    const struct automaton *automaton;
    size_t bytes_max;
    struct place *places;
    uint32_t place_count, place_capacity;
    struct stepper_state *states;
    uint32_t *rows; /* [states × classes] successors; UINT32_MAX = not yet known. */
    uint32_t state_count, state_capacity;
    struct frame *frames;
    uint32_t frame_count, frame_capacity;
    uint32_t *state_table, *frame_table; /* Hash tables of numbers + 1. */
    uint32_t state_slots, frame_slots;
    /* Work of one step. */
    struct place *work;
    uint32_t work_count;
    uint32_t *seen; /* Hash table of `work`, valid where seen_round is `round`. */
    uint32_t *seen_round;
    uint32_t round;
    uint32_t failed; /* STEPPER_FULL or others; 0 = no. */
};

bool stepper_open(struct stepper *m, const struct automaton *a, size_t bytes_max);
void stepper_done(struct stepper *m);
size_t stepper_bytes(const struct stepper *m);

/* The functions that return a state return STEPPER_DEAD where no place is left, or a number for
 * which STEPPER_FAILED is true. */
uint32_t stepper_start(struct stepper *m);
uint32_t stepper_step_slow(struct stepper *m, uint32_t state, uint8_t byte);
/* The state after the call on top of `stack` has returned. */
uint32_t stepper_return(struct stepper *m, uint32_t stack);
/* The state of these places, which must take bytes (stepper_state.first of another state). */
uint32_t stepper_state_of(struct stepper *m, const struct place *places, uint32_t count);

static inline uint32_t stepper_step(struct stepper *m, uint32_t state, uint8_t byte)
{
    const struct automaton *a = m->automaton;
    uint32_t next = m->rows[(size_t)state * a->class_count + a->class_of[byte]];
    return next != UINT32_MAX ? next : stepper_step_slow(m, state, byte);
}

/* Forgets all states except states[0..count), and writes their new numbers. Returns false without
 * memory; then nothing has changed. */
bool stepper_compact(struct stepper *m, uint32_t **states, uint32_t count);

#endif
