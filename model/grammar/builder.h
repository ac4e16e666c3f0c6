/* builder: an automaton over bytes while it is built. A struct builder owns the automaton's nodes
 * and rules. The files of model/grammar/ call the functions, on the thread that compiles the
 * constraint. A fragment is a part of the automaton with one start and one end. A rule is a
 * fragment that fragments can call.
 *
 * The builder keeps the first error in `status` and `error`. After an error the functions may still
 * be called, but their results are meaningless. The builder does not check that a rule ends, or
 * that a rule takes a byte before it calls itself (automaton.h does). */
#ifndef MODEL_GRAMMAR_BUILDER_H
#define MODEL_GRAMMAR_BUILDER_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A builder with BUILDER_NODES_MAX nodes, or BUILDER_RULES_MAX rules, fails with ST_TOO_LARGE when
 * one more is added. */
#define NODE_NONE         UINT32_MAX /* No node. */
#define BUILDER_NODES_MAX 400000u
#define BUILDER_RULES_MAX 20000u
#define COUNT_UNLIMITED   UINT32_MAX /* A repetition without an upper bound. */

/* What a node does with a text; `low` to `most` are fields of struct node. */
enum node_kind {
    NODE_RANGE, /* Takes one byte from `low` to `high`, then continues at `next`. */
    NODE_FORK,  /* Continues at `next` or at `target`; NODE_NONE = no such branch. */
    NODE_CALL,  /* Calls rule `target`, then continues at `next`. */
    /* Begins a counted repetition of `least` to `most` rounds, at `next`. `target` is the NODE_LOOP
     * that ends each round. */
    NODE_COUNT,
    /* Ends a round: continues with one more round, at `next`, or after the repetition, at
     * `target`. */
    NODE_LOOP,
    NODE_END, /* Ends a rule. */
};

struct node {
    uint8_t kind;      /* enum node_kind. */
    uint8_t low, high; /* First and last byte of a NODE_RANGE. */
    /* NODE_CALL: the calling rule ends after the call, so the call needs no frame on the stack. Set
     * by automaton_finish. */
    bool tail_call;
    /* Smallest number of nested calls with which the end of the rule can be reached from this node;
     * UINT16_MAX = the end cannot be reached with at most AUTOMATON_DEPTH_MAX calls. Set
     * by automaton_finish. */
    uint16_t calls_min;
    uint16_t padding; /* Unused. */
    /* Numbers of nodes. `target` of a NODE_CALL is the number of a rule, until automaton_finish
     * replaces it by the rule's first node. */
    uint32_t next, target;
    uint32_t least, most; /* Rounds of a NODE_COUNT; most COUNT_UNLIMITED = no upper bound. */
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
    uint32_t dfa_work;  /* States that the functions of dfa.h have visited (DFA_WORK_MAX). */
    enum status status; /* The first error; ST_OK = none. */
    struct error error; /* Text of the first error. */
};

/* A part of the automaton. A fragment may be passed to one function only, because its nodes are
 * then part of the result. */
struct fragment {
    uint32_t start; /* First node. */
    uint32_t end;   /* Last node: a NODE_FORK without branches, which is linked to what follows. */
    bool counted;   /* The fragment has a NODE_COUNT, outside the rules that it calls. */
};

void builder_done(struct builder *b); /* Frees nodes and rules. */
/* Records an error, unless an error is recorded already. */
void builder_fail(struct builder *b, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a node and returns its number; NODE_NONE after an error. */
uint32_t builder_node(struct builder *b, struct node node);
/* Adds a rule and returns its number; 0 after an error. Fragments can call the rule before it has a
 * body. */
uint32_t builder_rule_add(struct builder *b);
/* Sets the rule's body. */
void builder_rule_define(struct builder *b, uint32_t rule, struct fragment body);

/* The functions fragment_… return a fragment for the texts that the comment names. */
struct fragment fragment_empty(struct builder *b); /* The empty text. */
struct fragment fragment_never(struct builder *b); /* No text. */
/* The text of these `count` bytes. */
struct fragment fragment_bytes(struct builder *b, const char *bytes, size_t count);
struct fragment fragment_text(struct builder *b, const char *text); /* The text `text`. */
struct fragment fragment_call(struct builder *b, uint32_t rule);    /* The texts of the rule. */
/* A text of `first` followed by a text of `second`. */
struct fragment fragment_join(struct builder *b, struct fragment first, struct fragment second);
/* A text of `first`, or a text of `second`. */
struct fragment fragment_either(struct builder *b, struct fragment first, struct fragment second);
/* A text of `body`, or the empty text. */
struct fragment fragment_optional(struct builder *b, struct fragment body);
/* `least` to `most` texts of `body`, one after the other; most COUNT_UNLIMITED = no upper bound. */
struct fragment fragment_repeat(struct builder *b, struct fragment body, uint32_t least,
                                uint32_t most);
/* A text for fragment_literals. */
struct literal {
    const char *bytes;
    size_t count;
};
/* One of the literals; count 0 = no text. The function changes the array `literals`. Fails the
 * builder with ST_TOO_LARGE if two different literals have equal first 1025 bytes. */
struct fragment fragment_literals(struct builder *b, struct literal *literals, size_t count);

/* ---- sets of characters ---- */

#define CHARSET_RANGES_MAX 512
#define CHARACTER_MAX      0x10FFFF /* Greatest code point. */

/* A set of characters, as ranges of code points in any order; the ranges may overlap. */
struct charset {
    uint32_t count; /* Number of ranges. */
    struct {
        uint32_t low, high; /* First and last code point. */
    } ranges[CHARSET_RANGES_MAX];
};

/* Adds the code points from `low` to `high`. Returns false, and adds nothing, if the set already
 * has CHARSET_RANGES_MAX ranges that cannot be joined. */
bool charset_add(struct charset *set, uint32_t low, uint32_t high);
/* Replaces the set by its complement. Returns false, and keeps the set's characters, if the
 * complement needs more than CHARSET_RANGES_MAX ranges. */
bool charset_invert(struct charset *set);

/* How a character is written. */
enum spelling {
    SPELLING_RAW,  /* As UTF-8. */
    SPELLING_JSON, /* As in a JSON string, escaped only if JSON demands an escape. */
};
/* One character of the set. Surrogates in the set are ignored. The function may sort and join the
 * ranges of the set. */
struct fragment fragment_characters(struct builder *b, struct charset *set, enum spelling spelling);
/* Any character of a JSON string, in every spelling that JSON allows. Surrogates (\uD800 to \uDFFF)
 * are allowed only as a pair. */
struct fragment fragment_json_character(struct builder *b);
/* The text of these `count` bytes in SPELLING_JSON, without quotation marks. */
struct fragment fragment_json_text(struct builder *b, const char *bytes, size_t count);
/* Writes the text of these `count` bytes in SPELLING_JSON to `out`, without quotation marks. `out`
 * must have room for 6 × count bytes. Returns the number of bytes written. */
size_t json_spell(const char *bytes, size_t count, char *out);

#endif
