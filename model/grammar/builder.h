/* builder: the parts of an automaton while it is built. The parsers of this folder (regex, gbnf,
 * schema) call it. An automaton is a set of nodes. A fragment is a part of it with one start and one
 * end. A rule is a fragment that others call, also recursively. Errors stay: after the first one,
 * every function does nothing harmful, and `status` with `error` has the reason. One thread at a
 * time. It does not check that a rule makes sense (automaton.h does). */
#ifndef MODEL_GRAMMAR_BUILDER_H
#define MODEL_GRAMMAR_BUILDER_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_NONE         UINT32_MAX
#define BUILDER_NODES_MAX 400000u
#define BUILDER_RULES_MAX 20000u
#define COUNT_UNLIMITED   UINT32_MAX

enum node_kind {
    NODE_RANGE, /* Takes one byte from `low` to `high`, then `next`. */
    NODE_FORK,  /* Takes nothing: `next`, or `other` unless it is NODE_NONE. */
    NODE_CALL,  /* Rule `other`, then `next`. */
    NODE_COUNT, /* Begins a counted repetition: `least` to `most` times; `other` is its LOOP. */
    NODE_LOOP,  /* One repetition is over: `next` = another one, `other` = behind the last one. */
    NODE_END,   /* End of a rule. */
};

struct node {
    uint8_t kind;
    uint8_t low, high;
    bool tail;       /* CALL: nothing follows in the rule, so the callee returns for the caller. */
    uint16_t height; /* Set by automaton_finish: calls that are needed, at least, to the end. */
    uint16_t unused;
    uint32_t next, other;
    uint32_t least, most;
};

struct rule {
    uint32_t start; /* NODE_NONE = not defined yet. */
};

struct builder {
    struct node *nodes;
    uint32_t node_count, node_capacity;
    struct rule *rules;
    uint32_t rule_count, rule_capacity;
    uint32_t dfa_work;  /* States of small automata that were visited so far (dfa.h). */
    enum status status; /* The first error. */
    struct error error;
};

/* `end` is a FORK without branches yet. */
struct fragment {
    uint32_t start, end;
    bool counted; /* It has a counted repetition. */
};

void builder_done(struct builder *b);
/* Records an error unless there is one already. */
void builder_fail(struct builder *b, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

uint32_t builder_node(struct builder *b, struct node node); /* Returns its number. */
uint32_t builder_rule_add(struct builder *b);               /* A rule that is defined later. */
void builder_rule_define(struct builder *b, uint32_t rule, struct fragment body);

/* Each fragment may be used once. */
struct fragment fragment_empty(struct builder *b);
struct fragment fragment_never(struct builder *b); /* Matches nothing. */
struct fragment fragment_bytes(struct builder *b, const char *bytes, size_t count);
struct fragment fragment_text(struct builder *b, const char *text);
struct fragment fragment_call(struct builder *b, uint32_t rule);
struct fragment fragment_join(struct builder *b, struct fragment first, struct fragment second);
struct fragment fragment_either(struct builder *b, struct fragment one, struct fragment other);
struct fragment fragment_optional(struct builder *b, struct fragment body);
/* most may be COUNT_UNLIMITED. */
struct fragment fragment_repeat(struct builder *b, struct fragment body, uint32_t least,
                                uint32_t most);
/* One of the texts. Sorts them. Common beginnings share nodes. */
struct literal {
    const char *bytes;
    size_t count;
};
struct fragment fragment_literals(struct builder *b, struct literal *literals, size_t count);

/* ---- sets of characters ---- */

#define CHARSET_RANGES_MAX 512
#define CHARACTER_MAX      0x10FFFF

/* Ranges of code points; in order and apart from each other after charset_invert and
 * fragment_characters. */
struct charset {
    uint32_t count;
    struct {
        uint32_t low, high;
    } ranges[CHARSET_RANGES_MAX];
};

/* Returns false if the set is full. */
bool charset_add(struct charset *set, uint32_t low, uint32_t high);
bool charset_invert(struct charset *set); /* Normalizes too. */

enum spelling {
    SPELLING_RAW,  /* As UTF-8. */
    SPELLING_JSON, /* As in a JSON string, escaped only where JSON demands it. */
};
/* One character of the set, which it normalizes. */
struct fragment fragment_characters(struct builder *b, struct charset *set, enum spelling spelling);
/* Any character of a JSON string, with all escapes of JSON. No half surrogates. */
struct fragment fragment_json_character(struct builder *b);
/* A text as JSON string without its quotes, spelled as SPELLING_JSON does. */
struct fragment fragment_json_text(struct builder *b, const char *bytes, size_t count);
/* Appends that spelling to `out`, which has room for 6 × count bytes. Returns its bytes. */
size_t json_spell(const char *bytes, size_t count, char *out);

#endif
