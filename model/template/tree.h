/* tree: a compiled template, and what its lexer and parser share. The tree lies in the arena of
 * the template. Names of variables are numbered, so that scopes compare numbers. */
#ifndef MODEL_TEMPLATE_TREE_H
#define MODEL_TEMPLATE_TREE_H

#include "model/template/value.h"

enum token_kind { TOKEN_END, TOKEN_DATA, TOKEN_NAME, TOKEN_STRING, TOKEN_NUMBER, TOKEN_OPERATOR };

/* An operator's text is also that of "{{", "}}", "{%" and "%}". */
struct token {
    enum token_kind kind;
    uint32_t line;
    struct value value; /* Text of data, a name, a string or an operator; or a number. */
};

struct tokens {
    struct token *items;
    size_t count;
    size_t capacity;
};

enum node_kind {
    /* statements; `next` chains them */
    N_DATA,        /* value */
    N_PRINT,       /* a */
    N_FOR,         /* a = target, b = items, c = filter, body, other; name 1 = recursive */
    N_IF,          /* a = condition, body, other */
    N_SET,         /* a = target, b = value */
    N_SET_BODY,    /* a = target, b = filters around N_BODY_TEXT, body */
    N_MACRO,       /* name, a = parameters (N_PARAMETER), body, op = REST_… */
    N_CALL_BODY,   /* a = parameters, b = N_CALL, body, op = REST_… */
    N_FILTER_BODY, /* b = filters around N_BODY_TEXT, body */
    N_WITH,        /* a = pairs (N_KEYWORD), body */
    N_BODY,        /* body in a scope of its own */
    N_BREAK,
    N_CONTINUE,
    /* expressions; `next` chains items and arguments */
    N_CONST,        /* value */
    N_NAME,         /* name */
    N_LIST,         /* a = items */
    N_TUPLE,        /* a = items */
    N_MAP,          /* a = key, its next = value, … */
    N_ATTRIBUTE,    /* a, value = name */
    N_ITEM,         /* a, b */
    N_SLICE,        /* a, b = first, c = end, body = step */
    N_CALL,         /* a = callee, b = arguments */
    N_FILTER,       /* a = value, value = name, b = arguments, name = number of the filter */
    N_TEST,         /* a = value, value = name, b = arguments, name = number of the test */
    N_KEYWORD,      /* value = keyword (N_WITH: body = target), a */
    N_SPREAD,       /* a: *a as an argument */
    N_SPREAD_MAP,   /* a: **a as an argument */
    N_PARAMETER,    /* name, a = default */
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

struct node {
    uint8_t kind;
    uint8_t op;
    uint32_t line;
    uint32_t name;
    struct node *a, *b, *c;
    struct node *body, *other;
    struct node *next;
    struct value value;
};

/* Numbers of the names that the evaluator itself sets. */
enum own_name { NAME_LOOP, NAME_CALLER, NAME_VARARGS, NAME_KWARGS };

/* The names that a macro's body uses, which decide what arguments the macro takes. */
#define REST_CALLER  1
#define REST_VARARGS 2
#define REST_KWARGS  4

struct template
{
    struct arena arena;
    struct node *body;
    struct value *names;
    uint32_t name_count;
    uint32_t name_capacity;
};

/* Splits the text into tokens; the last is TOKEN_END. */
void template_lex(struct run *r, const char *text, size_t bytes, struct tokens *out);
/* The number of a name, which it gets at first use. */
uint32_t name_number(struct run *r, struct template *t, struct value name);

/* The parser's place. */
struct parser {
    struct run *run;
    struct template *template;
    const struct token *at;
    uint8_t rest_used; /* REST_… of the macro that is read. */
};

bool token_is(const struct token *t, const char *text); /* An operator or a name. */
bool token_skip(struct parser *p, const char *text);
void token_expect(struct parser *p, const char *text);
struct node *node_new(struct parser *p, enum node_kind kind);
_Noreturn void parse_fail(struct parser *p, const char *wanted);
/* parse_tuple's `end`: a name that ends the tuple; NULL = none. */
struct node *parse_expression(struct parser *p, bool with_choice);
struct node *parse_tuple(struct parser *p, bool with_choice, const char *end);
struct node *parse_primary(struct parser *p);
struct node *parse_filters(struct parser *p, struct node *of, bool leading_name);

/* Numbers of filters, tests, as in their tables; UINT32_MAX = unknown. */
uint32_t filter_number(struct value name);
uint32_t test_number(struct value name);

#endif
