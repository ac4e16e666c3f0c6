/* tree: a compiled template (struct template), and what its lexer (lex.c) and its parser (parse.c
 * for expressions, statements.c for statements) share. The template owns the nodes of the tree,
 * which are in its arena. The lexer and the parser run on the thread that calls template_compile,
 * and end the compilation with run_fail on an error. A finished tree does not change, and any
 * thread may execute it (eval.h). This part does not execute templates. */
#ifndef MODEL_TEMPLATE_TREE_H
#define MODEL_TEMPLATE_TREE_H

#include "model/template/value.h"

enum token_kind { TOKEN_END, TOKEN_DATA, TOKEN_NAME, TOKEN_STRING, TOKEN_NUMBER, TOKEN_OPERATOR };

struct token {
    enum token_kind kind;
    uint32_t line; /* Line in the template, from 1. */
    /* The number of a TOKEN_NUMBER; otherwise a text. "{{", "}}", "{%" and "%}" are operators. */
    struct value value;
};

struct tokens {
    struct token *items;
    size_t count;
    size_t capacity;
};

/* Kinds of nodes, with the fields of struct node that they use. */
enum node_kind {
    /* Statements. `next` is the next statement of the same body. */
    N_DATA,        /* value */
    N_PRINT,       /* a */
    N_FOR,         /* a = target, b = items, c = filter, body, else_body; name 1 = recursive */
    N_IF,          /* a = condition, body, else_body */
    N_SET,         /* a = target, b = value */
    N_SET_BODY,    /* a = target, b = filters around N_BODY_TEXT, body */
    N_MACRO,       /* name, value = its text, a = parameters (N_PARAMETER), body, op = REST_… */
    N_CALL_BODY,   /* value = "caller", a = parameters, b = N_CALL, body, op = REST_… */
    N_FILTER_BODY, /* b = filters around N_BODY_TEXT, body */
    N_WITH,        /* a = pairs (N_KEYWORD), body */
    N_BODY,        /* body, which runs in a scope of its own */
    N_BREAK,
    N_CONTINUE,
    /* Expressions. `next` is the next item or argument of the same list. */
    N_CONST,        /* value */
    N_NAME,         /* name, value = its text */
    N_LIST,         /* a = items */
    N_TUPLE,        /* a = items */
    N_MAP,          /* a = first key; keys and values alternate, linked by next */
    N_ATTRIBUTE,    /* a = object, value = name */
    N_ITEM,         /* a = object, b = key */
    N_SLICE,        /* a = object, b = first, c = end, body = step */
    N_CALL,         /* a = callee, b = arguments */
    N_FILTER,       /* a = value, value = name, b = arguments, name = number of the filter */
    N_TEST,         /* a = value, value = name, b = arguments, name = number of the test */
    N_KEYWORD,      /* value = keyword (in N_WITH: body = target), a = value */
    N_SPREAD,       /* a: *a as an argument */
    N_SPREAD_MAP,   /* a: **a as an argument */
    N_PARAMETER,    /* name, value = its text, a = default */
    N_NOT,          /* a */
    N_NEGATE,       /* a */
    N_PLUS,         /* a */
    N_AND,          /* a, b */
    N_OR,           /* a, b */
    N_CHOICE,       /* a = condition, b = then, c = else or NULL */
    N_COMPARE,      /* a, then b = chain of N_COMPARE_PART */
    N_COMPARE_PART, /* op, a */
    N_BINARY,       /* op, a, b */
    N_CONCAT,       /* a = operands */
    N_BODY_TEXT,    /* The text of a filter or set block's body. */
};

enum operation {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOOR,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

/* A statement or expression. enum node_kind says which fields a kind uses. */
struct node {
    uint8_t kind;  /* enum node_kind. */
    uint8_t op;    /* enum operation, or REST_ bits. */
    uint32_t line; /* Line in the template, for errors. */
    uint32_t name; /* Number of a name (name_number), a filter or a test; N_FOR: 1 = recursive. */
    struct node *a, *b, *c;
    struct node *body, *else_body;
    struct node *next;
    struct value value;
};

/* Numbers of the names that the execution itself sets, in every template. */
enum own_name { NAME_LOOP, NAME_CALLER, NAME_VARARGS, NAME_KWARGS };

/* Bits of node.op of N_MACRO and N_CALL_BODY: names that the body uses. As in jinja2, a macro
 * accepts arguments without a parameter only if its body uses the name that receives them. */
#define REST_CALLER  1
#define REST_VARARGS 2
#define REST_KWARGS  4

struct template
{
    struct arena arena;  /* Memory of the nodes, names and texts. */
    struct node *body;   /* First statement; NULL = an empty template. */
    struct value *names; /* [name_count]: the names of variables, by number. */
    uint32_t name_count;
    uint32_t name_capacity;
};

/* Splits the text into tokens; the last is TOKEN_END. */
void template_lex(struct run *r, const char *text, size_t bytes, struct tokens *out);
/* Returns the number of a variable's name in the template. A new name gets the next number. */
uint32_t name_number(struct run *r, struct template *t, struct value name);

/* The state of the parser. */
struct parser {
    struct run *run;
    struct template *template;
    const struct token *next_token; /* The next token to read. */
    uint8_t rest_used;              /* REST_ bits of the macro that is being read. */
};

/* Returns true if the token is the operator or the name `text`. */
bool token_is(const struct token *t, const char *text);
/* If token_is is true for the next token, skips the token and returns true. */
bool token_skip(struct parser *p, const char *text);
/* Skips the next token. Ends the compilation with an error if token_is is false for the token. */
void token_expect(struct parser *p, const char *text);
/* Returns a new node with the line of the next token. */
struct node *node_new(struct parser *p, enum node_kind kind);
/* Ends the compilation with the error that `wanted` was expected instead of the next token. */
_Noreturn void parse_fail(struct parser *p, const char *wanted);

/* The functions parse_… read from the next token on, and return the node of what they have read. */

/* Reads an expression. with_choice: the expression may be "a if b else c". */
struct node *parse_expression(struct parser *p, bool with_choice);
/* Reads expressions separated by commas. Returns an N_TUPLE, or the expression itself if there is
 * no comma. `end`: a name, such as "recursive", that may follow the last comma; NULL = none. */
struct node *parse_tuple(struct parser *p, bool with_choice, const char *end);
/* Reads a name, a constant, a list, a dict, or an expression in brackets. */
struct node *parse_primary(struct parser *p);
/* Reads filters "| name(arguments)", tests "is name" and calls "(arguments)" that follow the
 * expression `of`. leading_name: the first filter has no "|" before its name. */
struct node *parse_filters(struct parser *p, struct node *of, bool leading_name);

uint32_t filter_number(struct value name); /* Returns a filter's number; UINT32_MAX = none. */
uint32_t test_number(struct value name);   /* Returns a test's number; UINT32_MAX = none. */

#endif
