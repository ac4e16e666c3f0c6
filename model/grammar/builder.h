/* builder: an automaton while it is built. The files of model/grammar/ call it, on the thread that
 * compiles the constraint. An automaton is a set of nodes. A fragment is a part of an automaton
 * with one start and one end. A rule is a fragment that other fragments can call, also recursively.
 *
 * A struct builder owns its nodes and rules; one thread at a time may use it. It keeps the first
 * error in `status` and `error`. After an error the functions may still be called, but their
 * results are meaningless. It does not check that a rule ends, or whether it begins with itself
 * (automaton.h does). */
#ifndef MODEL_GRAMMAR_BUILDER_H
#define MODEL_GRAMMAR_BUILDER_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_NONE         UINT32_MAX /* No node. */
#define BUILDER_NODES_MAX 400000u
#define BUILDER_RULES_MAX 20000u
#define COUNT_UNLIMITED   UINT32_MAX /* A repetition without an upper bound. */

/* What a node does with a text. Each comment names the fields of struct node that the kind uses. */
enum node_kind {
    NODE_RANGE, /* Takes one byte from `low` to `high`, then continues at `next`. */
    NODE_FORK,  /* Takes no byte; continues at `next` or at `target`; NODE_NONE = no such branch. */
    NODE_CALL,  /* Calls rule `target`, then continues at `next`. */
    /* Begins a repetition of `least` to `most` times at `next`; `target` = the LOOP node that ends
     * it. */
    NODE_COUNT,
    NODE_LOOP, /* Ends one repetition: continues at `next` (one more) or at `target` (the end). */
    NODE_END,  /* Ends a rule. */
};

struct node {
    uint8_t kind; /* enum node_kind. */
    uint8_t low, high;
    bool tail_call; /* CALL: the rule ends after the call, so the call needs no stack frame. */
    /* Smallest number of nested calls that is needed to reach the rule's end. Set by
     * automaton_finish. */
    uint16_t calls_min;
    uint16_t padding;
    /* Numbers of nodes. Before automaton_finish, `target` of a CALL is the number of a rule. */
    uint32_t next, target;
    uint32_t least, most;
};

struct rule {
    uint32_t start; /* First node; NODE_NONE = not defined yet. */
};

/* All zeros = an empty builder. */
struct builder {
    struct node *nodes;
    uint32_t node_count, node_capacity;
    struct rule *rules;
    uint32_t rule_count, rule_capacity;
    uint32_t dfa_work;  /* States visited so far in building small automata; dfa.h limits it. */
    enum status status; /* The first error; ST_OK = none. */
    struct error error; /* Text of the first error. */
};

/* A part of the automaton. Passing a fragment to a function uses it up: its nodes are then part of
 * the result. */
struct fragment {
    uint32_t start;
    uint32_t end; /* A FORK without branches, which the next fragment is linked to. */
    bool counted; /* The fragment has a counted repetition. */
};

void builder_done(struct builder *b); /* Frees nodes and rules. */
/* Records an error, unless an error is recorded already. */
void builder_fail(struct builder *b, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a node and returns its number. */
uint32_t builder_node(struct builder *b, struct node node);
/* Adds a rule and returns its number. builder_rule_define sets the rule's body; fragments can call
 * the rule before that. */
uint32_t builder_rule_add(struct builder *b);
void builder_rule_define(struct builder *b, uint32_t rule, struct fragment body);

/* Each function returns a fragment for the texts that its comment names. */
struct fragment fragment_empty(struct builder *b); /* The empty text. */
struct fragment fragment_never(struct builder *b); /* No text. */
struct fragment fragment_bytes(struct builder *b, const char *bytes, size_t count);
struct fragment fragment_text(struct builder *b, const char *text);
struct fragment fragment_call(struct builder *b, uint32_t rule); /* The texts of the rule. */
/* A text of `first` followed by a text of `second`. */
struct fragment fragment_join(struct builder *b, struct fragment first, struct fragment second);
struct fragment fragment_either(struct builder *b, struct fragment first, struct fragment second);
struct fragment fragment_optional(struct builder *b, struct fragment body);
/* `least` to `most` texts of `body`; COUNT_UNLIMITED = no upper bound. */
struct fragment fragment_repeat(struct builder *b, struct fragment body, uint32_t least,
                                uint32_t most);
/* A text for fragment_literals. */
struct literal {
    const char *bytes;
    size_t count;
};
/* One of the literals. Common beginnings share nodes. Sorts the array and drops duplicates, so the
 * array must not be used afterwards. Fails the builder with ST_TOO_LARGE if two different literals
 * have the same first 1025 bytes. */
struct fragment fragment_literals(struct builder *b, struct literal *literals, size_t count);

/* ---- sets of characters ---- */

#define CHARSET_RANGES_MAX 512
#define CHARACTER_MAX      0x10FFFF /* Greatest code point. */

/* Ranges of code points, in any order; they may overlap. charset_invert and fragment_characters
 * normalise the set: its ranges are then in ascending order, with gaps between them. */
struct charset {
    uint32_t count;
    struct {
        uint32_t low, high;
    } ranges[CHARSET_RANGES_MAX];
};

/* Adds a range. Returns false, without adding it, if the set would need more than
 * CHARSET_RANGES_MAX ranges; a full set is normalised first to make room. */
bool charset_add(struct charset *set, uint32_t low, uint32_t high);
/* Replaces the set by its complement. Returns false, and keeps the characters, if the complement
 * needs more than CHARSET_RANGES_MAX ranges. */
bool charset_invert(struct charset *set);

/* How a character is written. */
enum spelling {
    SPELLING_RAW,  /* As UTF-8. */
    SPELLING_JSON, /* As in a JSON string, escaped only where JSON demands it. */
};
/* One character of the set, which the function normalises. */
struct fragment fragment_characters(struct builder *b, struct charset *set, enum spelling spelling);
/* Any character of a JSON string, in all spellings of JSON; surrogates only in pairs. */
struct fragment fragment_json_character(struct builder *b);
/* The inside of a JSON string: the given text in SPELLING_JSON. */
struct fragment fragment_json_text(struct builder *b, const char *bytes, size_t count);
/* Writes the given text in SPELLING_JSON to `out`, which has room for 6 × count bytes. Returns the
 * number of bytes written. */
size_t json_spell(const char *bytes, size_t count, char *out);

#endif
