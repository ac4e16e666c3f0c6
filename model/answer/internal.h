/* internal: what the files of model/answer/ share: the parser's struct and functions, and the
 * interface to the families. A family is the code for one value of enum answer_tools. It finds
 * calls in an answer's text, and writes the texts around a call's arguments for a constraint. The
 * functions of the parser run on the thread that owns the parser (answer_parser.h); functions that
 * write constraints run on any thread. This part calls no tools. */
#ifndef MODEL_ANSWER_INTERNAL_H
#define MODEL_ANSWER_INTERNAL_H

#include "common/text.h"
#include "model/answer/answer_calls.h"
#include "model/answer/answer_parser.h"
#include "model/answer/json_scan.h"

/* Most blanks (scan_is_blank) that are held back until the text after them shows whether a marker
 * or a call follows. */
#define BLANKS_MAX 64
/* Most bytes from a marker to the object of a call, in mistral and deepseek; most bytes of the
 * header of a message in harmony. */
#define HEAD_BYTES 512

/* Result of a step of the parser. */
enum parser_step {
    STEP_AGAIN, /* The state has changed: the caller makes the next step. */
    STEP_WAIT,  /* The next step needs more text. */
};

/* A place in the text of calls. */
enum call_place {
    CALL_BEFORE_FIRST, /* Before the first call. */
    CALL_BETWEEN,      /* Between two calls. */
    CALL_AFTER_LAST,   /* After the last call. */
    CALL_HEAD,         /* Before the arguments of a call. */
    CALL_TAIL,         /* After the arguments of a call. */
};

struct answer_family {
    const enum answer_marker *markers; /* All markers of the family, then ANSWER_MARKER_NONE. */
    /* Makes one step: reads parser_text, which is not empty, and reports parts. Only the family
     * changes p->family_state, which is 0 before the first step. */
    enum parser_step (*step)(struct answer_parser *p);
    /* The marker before calls in a constraint. ANSWER_MARKER_NONE = an answer with calls begins
     * with "{" or "[". Not used for harmony. */
    enum answer_marker trigger;
    /* Appends the expressions for the text at `place` to a constraint of the kind "format:"
     * (model/grammar/grammar.h). `step` can read this text. tool_name is NULL except for CALL_HEAD
     * and CALL_TAIL. several_calls: the answer may have more than one call. `write` NULL = the
     * family has no calls. */
    void (*write)(struct text *out, const struct answer_format *format, enum call_place place,
                  const char *tool_name, bool several_calls);
};

extern const struct answer_family answer_family_none;
extern const struct answer_family answer_family_hermes;
extern const struct answer_family answer_family_llama3;
extern const struct answer_family answer_family_mistral;
extern const struct answer_family answer_family_deepseek;
extern const struct answer_family answer_family_harmony;
extern const struct answer_family answer_family_json;

/* Appends a marker as an expression of a constraint. */
void answer_marker_write(struct text *out, const struct answer_format *format,
                         enum answer_marker marker);
/* Returns the family of a format. */
const struct answer_family *answer_family_of(const struct answer_format *format);

/* ---- reading one call (call_scan.c) ---- */

/* The meaning of a member of a call's JSON object. */
enum call_field { FIELD_OTHER, FIELD_NAME, FIELD_ARGUMENTS };

/* The state of reading a call's object. All offsets count from parser_text. */
struct call_scan {
    struct json_scan json;
    size_t scanned;               /* Bytes read, including the text before the object. */
    bool arguments_only;          /* The object is the arguments; the name came before it. */
    bool listed_names_only;       /* The name must be in options.tool_names. */
    bool call_reported;           /* ANSWER_PART_CALL has been reported. */
    bool has_name;                /* `name` is set. */
    bool has_arguments;           /* `arguments` is set. */
    bool arguments_done;          /* `arguments_end` is set. */
    enum call_field field;        /* Meaning of the latest member of the object itself (depth 1). */
    size_t value_offset;          /* Where the latest member's value begins. */
    size_t arguments_offset;      /* Where the arguments begin. */
    size_t arguments_end;         /* Where the arguments end. */
    uint32_t key_bytes;           /* Bytes in `key`. */
    char key[16];                 /* Name of the latest member at depth 1, truncated. */
    char name[ANSWER_NAME_BYTES]; /* The tool's name. */
};

struct answer_parser {
    struct answer_options options;
    const struct answer_family *family;
    /* Where in the answer the parser is. */
    enum {
        SECTION_BEGIN,     /* Before the reasoning. */
        SECTION_OPENED,    /* Directly after the opening marker of the reasoning. */
        SECTION_REASONING, /* In the reasoning. */
        SECTION_CLOSED,    /* Directly after the closing marker of the reasoning. */
        SECTION_FAMILY     /* After the reasoning: the family reads the text. */
    } section;
    struct text held;     /* The latest text that was fed; earlier text was removed. */
    size_t used;          /* First bytes of `held` that were reported or dropped. */
    bool ended;           /* answer_parser_finish was called. */
    bool in_reasoning;    /* The text that was read ends inside the reasoning. */
    int family_state;     /* State of the family. */
    size_t family_offset; /* State of the family: an offset from parser_text. */
    bool calls_in_list;   /* State of the family: the calls are in a JSON list. */
    uint32_t calls;       /* Calls that were reported. */
    struct call_scan call;
};

/* Returns the text that was fed and is neither reported nor dropped yet. */
static inline const char *parser_text(const struct answer_parser *p)
{
    return p->held.data + p->used;
}

/* Returns the number of bytes of parser_text. */
static inline size_t parser_text_bytes(const struct answer_parser *p)
{
    return p->held.bytes - p->used;
}

/* Reports the next `bytes` bytes as a part. */
void parser_report(struct answer_parser *p, enum answer_part part, size_t bytes);
/* Drops the next `bytes` bytes without reporting them. */
void parser_drop(struct answer_parser *p, size_t bytes);
/* Drops blanks. Returns false if no text is left. */
bool parser_blanks_drop(struct answer_parser *p);
/* Returns the offset of the first byte from offset `at` on that is not a blank. */
size_t parser_blanks_skip(const struct answer_parser *p, size_t at);

/* Result of a comparison. MATCH_PART = the text from the offset on is a beginning of the wanted
 * text, and the answer has not ended. */
enum match { MATCH_NO, MATCH_YES, MATCH_PART };
/* Returns whether `text` begins at offset `at`. */
enum match parser_match(const struct answer_parser *p, size_t at, const char *text);
/* Returns whether the text of the marker begins at offset `at`. */
enum match parser_match_marker(const struct answer_parser *p, size_t at, enum answer_marker marker);

/* Reports the text before the first of `markers` (a list that ends with ANSWER_MARKER_NONE), except
 * up to BLANKS_MAX blanks directly before the marker. Returns the marker, and stores in *at the
 * marker's offset in the parser_text after the report. ANSWER_MARKER_NONE = the text has no marker:
 * until the answer has ended, blanks and the beginning of a marker at the end of the text are not
 * reported. */
enum answer_marker parser_report_until(struct answer_parser *p, enum answer_part part,
                                       const enum answer_marker *markers, size_t *at);

/* Begins to read a call whose object is at offset `at`, perhaps after blanks. The object is the
 * arguments of the tool `name`; name NULL = the object has the name and the arguments.
 * listed_names_only: the call must have a name of options.tool_names. If the call is reported, the
 * text before `at` is dropped. Otherwise the text becomes content. */
void parser_call_begin(struct answer_parser *p, size_t at, const char *name, size_t name_bytes,
                       bool listed_names_only);

enum call_step {
    CALL_WAIT, /* More text is needed. */
    /* The call is complete. parser_text is after its object, or begins with a wrong byte that
     * follows the arguments. */
    CALL_DONE,
    /* The text is no call, or its arguments are wrong. parser_text is the text that was not
     * read. */
    CALL_WRONG,
};
/* Reads the call's text up to the end of parser_text, and reports name and arguments. */
enum call_step parser_call_step(struct answer_parser *p);

#endif
