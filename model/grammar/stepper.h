/* stepper: follows an automaton byte by byte. A place is a node of the automaton with the stack of
 * open calls. A state is the set of all places in which the automaton can be after the same bytes.
 * States and stacks have numbers; equal states have equal numbers, and equal stacks have equal
 * numbers.
 *
 * A struct stepper owns its states. The files of model/grammar/ use steppers; one thread at a time
 * may use a stepper. The memory of the states is limited: when a function returns STEPPER_FULL, the
 * caller can call stepper_compact, which forgets the states that the caller does not need, and try
 * again. This part knows no tokens. */
#ifndef MODEL_GRAMMAR_STEPPER_H
#define MODEL_GRAMMAR_STEPPER_H

#include "model/grammar/automaton.h"

#define STEPPER_PLACES_MAX 4096 /* Most places of a state. */

/* The state without places: the automaton does not allow the bytes. */
#define STEPPER_DEAD 0u
/* Numbers that the functions return instead of a state. */
#define STEPPER_FULL      UINT32_MAX       /* The states need more than `bytes_max`. */
#define STEPPER_AMBIGUOUS (UINT32_MAX - 1) /* A state needs too many places. */
#define STEPPER_NO_MEMORY (UINT32_MAX - 2) /* malloc has failed. */
#define STEPPER_COSTLY    (UINT32_MAX - 3) /* `work` has reached `work_max`. */
/* True for the four numbers above. */
#define STEPPER_FAILED(state) ((state) >= STEPPER_COSTLY)

/* The callers are not known: a place that reaches the end of its rule stays in the state. */
#define STACK_OPEN  0u
#define STACK_EMPTY 1u /* No call is open: the end of the rule is the end of the text. */

struct place {
    uint32_t node; /* Number of a node of the automaton. */
    /* Rounds left, including the present one, of the counted repetition that contains the node: at
     * least `least`, at most `most` (COUNT_UNLIMITED = no upper bound). 0, 0 = no repetition. */
    uint32_t least, most;
    uint32_t stack; /* STACK_OPEN, STACK_EMPTY, or the number of the innermost call's frame. */
};

/* An open call. */
struct frame {
    uint32_t node;         /* Where the automaton continues after the call. */
    uint32_t least, most;  /* The counts of the place that made the call. */
    uint32_t caller_stack; /* The stack of the place that made the call. */
    uint32_t depth;        /* Number of open calls, including this one. */
};

struct stepper_state {
    uint32_t first, count; /* The state's places are stepper.places[first .. first + count). */
    uint32_t hash;
    /* For the caller; UINT32_MAX in a new state. stepper_compact keeps it. */
    uint32_t caller_number;
    bool accepts; /* The text may end in this state. */
    /* Some place is at the end of its rule with the stack STACK_OPEN: what follows depends on the
     * unknown callers. */
    bool returns;
};

struct stepper {
    const struct automaton *automaton;
    size_t bytes_max; /* Limit of stepper_bytes. Only growing hash tables may exceed the limit. */
    struct place *places;
    uint32_t place_count, place_capacity;
    struct stepper_state *states;
    /* [state × class of bytes]: the next state; UINT32_MAX = not computed yet. */
    uint32_t *successors;
    uint32_t state_count, state_capacity;
    struct frame *frames; /* frames[0] and frames[1] stand for STACK_OPEN and STACK_EMPTY. */
    uint32_t frame_count, frame_capacity;
    uint32_t *state_table, *frame_table; /* Hash tables: number of the state or frame + 1. */
    uint32_t state_slots, frame_slots;   /* Sizes of the two tables. */
    /* Scratch memory of one step: the places of the new state. */
    struct place *new_places;
    uint32_t new_place_count;
    uint32_t *seen;       /* Hash table of new_places. */
    uint32_t *seen_round; /* An entry of `seen` is valid if its seen_round is `round`. */
    uint32_t round;       /* Number of the step. */
    uint32_t failed;      /* Failure of the step, such as STEPPER_FULL; 0 = none. */
    /* Work of the computed states, in units of about 4 ns. The caller adds its own work, and sets
     * work_max; UINT64_MAX = no bound. */
    uint64_t work, work_max;
};

/* Opens a stepper that has no state except STEPPER_DEAD, and no bound of its work. `a` must outlive
 * the stepper. Returns false if there is no memory or bytes_max is too small. */
bool stepper_open(struct stepper *m, const struct automaton *a, size_t bytes_max);
void stepper_done(struct stepper *m);          /* Frees the memory. A stepper of zeros is fine. */
size_t stepper_bytes(const struct stepper *m); /* Returns about the bytes of memory in use. */

/* The functions from stepper_start to stepper_step return a state, or a number for which
 * STEPPER_FAILED is true. */

/* Returns the state at the beginning of a text. */
uint32_t stepper_start(struct stepper *m);
/* The part of stepper_step that computes a state. */
uint32_t stepper_step_compute(struct stepper *m, uint32_t state, uint8_t byte);
/* Returns the state after the innermost call of `stack` has returned; STEPPER_DEAD for STACK_OPEN
 * and STACK_EMPTY. */
uint32_t stepper_return(struct stepper *m, uint32_t stack);
/* Returns the state that has these `count` places. Requires that each place is at a NODE_RANGE. */
uint32_t stepper_state_of(struct stepper *m, const struct place *places, uint32_t count);

/* Returns the state after `byte`; STEPPER_DEAD if the automaton does not allow the byte. */
static inline uint32_t stepper_step(struct stepper *m, uint32_t state, uint8_t byte)
{
    const struct automaton *a = m->automaton;
    uint32_t next = m->successors[(size_t)state * a->class_count + a->class_of[byte]];
    return next != UINT32_MAX ? next : stepper_step_compute(m, state, byte);
}

/* Forgets all states except STEPPER_DEAD and the states whose numbers are in *states[0..count).
 * Replaces these numbers by the new numbers of the states, which keep their caller_number. Returns
 * false, and changes nothing, if there is no memory or the kept states need more than bytes_max. */
bool stepper_compact(struct stepper *m, uint32_t **states, uint32_t count);

#endif
