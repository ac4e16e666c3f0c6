/* internal: what the files of this folder share: the parser, and the interface of a family (one
 * file each). Only these files include it. */
#ifndef MODEL_ANSWER_INTERNAL_H
#define MODEL_ANSWER_INTERNAL_H

#include "common/text.h"
#include "model/answer/answer_calls.h"
#include "model/answer/answer_parser.h"
#include "model/answer/json_scan.h"

#define BLANKS_MAX 64  /* Blanks that are held until it is known whether a marker follows. */
#define HEAD_BYTES 512 /* What may stand between a marker and the arguments of a call. */

enum step {
    STEP_AGAIN, /* Something has changed: call it again. */
    STEP_WAIT,  /* It needs more text. */
};

/* Part of a call; the family writes it as an expression of a constraint (model/grammar/grammar.h,
 * "format:") that the family's parser reads. */
enum call_place {
    CALL_BEFORE,  /* Before the first call. */
    CALL_BETWEEN, /* Between two calls. */
    CALL_BEHIND,  /* Behind the last call. */
    CALL_HEAD,    /* Before the arguments of a call. */
    CALL_TAIL,    /* Behind the arguments of a call. */
};

struct answer_family {
    const enum answer_marker *markers; /* Ends with ANSWER_MARKER_NONE. */
    /* Reads text from parser_at. p->state belongs to the family; 0 = the content begins. */
    enum step (*step)(struct answer_parser *p);
    /* The marker that calls begin with; ANSWER_MARKER_NONE = calls are the whole answer, and begin
     * with "{" or "[". */
    enum answer_marker trigger;
    void (*write)(struct text *out, const struct answer_format *format, enum call_place place,
                  const char *name, bool several);
};

extern const struct answer_family answer_family_none;
extern const struct answer_family answer_family_hermes;
extern const struct answer_family answer_family_llama3;
extern const struct answer_family answer_family_mistral;
extern const struct answer_family answer_family_deepseek;
extern const struct answer_family answer_family_harmony;
extern const struct answer_family answer_family_json;

/* Appends a marker as an expression. */
void answer_marker_write(struct text *out, const struct answer_format *format,
                         enum answer_marker marker);
const struct answer_family *answer_family_of(const struct answer_format *format);

/* ---- a call that is read ---- */

enum call_field { FIELD_OTHER, FIELD_NAME, FIELD_ARGUMENTS };

/* Offsets count from parser_at. */
struct call_scan {
    struct json_scan json;
    size_t scanned; /* Bytes that were read, with the marker before the object. */
    bool bare;      /* The object is the arguments. */
    bool known;     /* Only names of the request's tools count. */
    bool announced; /* The name was given. */
    bool has_name, has_arguments, arguments_done;
    enum call_field field; /* Of the value at depth 1. */
    size_t value;          /* Where the value begins. */
    size_t arguments, arguments_end;
    uint32_t key_bytes;
    char key[16];
    char name[ANSWER_NAME_BYTES];
};

struct answer_parser {
    struct answer_options options;
    const struct answer_family *family;
    enum { STAGE_BEGIN, STAGE_OPENED, STAGE_REASONING, STAGE_CLOSED, STAGE_FAMILY } stage;
    struct text held; /* Text that was fed. */
    size_t used;      /* Bytes of `held` that were given or dropped. */
    bool ended;
    bool in_reasoning;
    int state;   /* The family's. */
    size_t mark; /* For the family: an offset from parser_at. */
    bool list;   /* For the family: the calls are in a list. */
    uint32_t calls;
    struct call_scan call;
};

static inline const char *parser_at(const struct answer_parser *p)
{
    return p->held.data + p->used;
}

static inline size_t parser_left(const struct answer_parser *p)
{
    return p->held.bytes - p->used;
}

void parser_give(struct answer_parser *p, enum answer_part part, size_t bytes);
void parser_drop(struct answer_parser *p, size_t bytes);
/* Drops blanks. Returns false if no text is left. */
bool parser_blanks_drop(struct answer_parser *p);
/* Returns the offset behind the blanks from `at` on. */
size_t parser_blanks(const struct answer_parser *p, size_t at);

enum match { MATCH_NO, MATCH_YES, MATCH_PART /* The text ends before it is known. */ };
enum match parser_match(const struct answer_parser *p, size_t at, const char *text);
enum match parser_match_marker(const struct answer_parser *p, size_t at, enum answer_marker marker);

/* Gives text up to the first of the markers (list that ends with ANSWER_MARKER_NONE). Returns the
 * marker, with its offset in *at, behind blanks that were not given; or ANSWER_MARKER_NONE: all
 * text is given that cannot be one of them. */
enum answer_marker parser_give_until(struct answer_parser *p, enum answer_part part,
                                     const enum answer_marker *markers, size_t *at);

/* Begins a call whose object begins at offset `at` or behind blanks there. name NULL = the object
 * has the name, else it is the arguments. known: see struct call_scan. What stands before `at` is
 * dropped when the name is known, or is content. */
void parser_call_begin(struct answer_parser *p, size_t at, const char *name, size_t name_bytes,
                       bool known);

enum call_step {
    CALL_WAIT,
    CALL_DONE,  /* parser_at is behind the object. */
    CALL_WRONG, /* It is no call, or its arguments are wrong: parser_at is at the wrong byte. */
};
enum call_step parser_call_step(struct answer_parser *p);

#endif
