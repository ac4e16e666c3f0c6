/* parse: expressions. */
#include "model/template/tree.h"

#include <string.h>

bool token_is(const struct token *t, const char *text)
{
    return (t->kind == TOKEN_OPERATOR || t->kind == TOKEN_NAME) && value_is_text(t->value, text);
}

bool token_skip(struct parser *p, const char *text)
{
    if (!token_is(p->next_token, text))
        return false;
    p->next_token++;
    return true;
}

void parse_fail(struct parser *p, const char *wanted)
{
    const struct token *t = p->next_token;
    p->run->line = t->line;
    if (t->kind == TOKEN_NUMBER)
        run_fail(p->run, ST_INVALID, "want %s instead of a number", wanted);
    run_fail(p->run, ST_INVALID, "want %s instead of '%.*s'", wanted,
             (int)(t->value.size < 40 ? t->value.size : 40), t->value.text);
}

void token_expect(struct parser *p, const char *text)
{
    if (!token_skip(p, text))
        parse_fail(p, text);
}

struct node *node_new(struct parser *p, enum node_kind kind)
{
    struct node *n = run_alloc(p->run, sizeof(*n));
    *n = (struct node){.kind = (uint8_t)kind, .line = p->next_token->line};
    return n;
}

static struct node *binary_new(struct parser *p, enum node_kind kind, int op, struct node *a,
                               struct node *b)
{
    struct node *n = node_new(p, kind);
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    return n;
}

static struct node *const_new(struct parser *p, struct value v)
{
    struct node *n = node_new(p, N_CONST);
    n->value = v;
    return n;
}

static struct value name_read(struct parser *p)
{
    if (p->next_token->kind != TOKEN_NAME)
        parse_fail(p, "a name");
    return p->next_token++->value;
}

/* ---- arguments, postfix, filters, tests ---- */

static struct node *parse_argument(struct parser *p)
{
    bool spread_map = token_skip(p, "**");
    if (spread_map || token_skip(p, "*")) {
        struct node *n = node_new(p, spread_map ? N_SPREAD_MAP : N_SPREAD);
        n->a = parse_expression(p, true);
        return n;
    }
    if (p->next_token->kind == TOKEN_NAME && token_is(p->next_token + 1, "=")) {
        struct node *n = node_new(p, N_KEYWORD);
        n->value = name_read(p);
        p->next_token++;
        n->a = parse_expression(p, true);
        return n;
    }
    return parse_expression(p, true);
}

/* Reads "(…)". */
static struct node *parse_arguments(struct parser *p)
{
    struct node *first = NULL, **last = &first;
    token_expect(p, "(");
    while (!token_is(p->next_token, ")")) {
        if (first != NULL) {
            token_expect(p, ",");
            if (token_is(p->next_token, ")"))
                break;
        }
        *last = parse_argument(p);
        last = &(*last)->next;
    }
    token_expect(p, ")");
    return first;
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *n = node_new(p, N_CALL);
    n->a = callee;
    n->b = parse_arguments(p);
    return n;
}

static struct node *parse_subscript(struct parser *p, struct node *of)
{
    struct node *parts[3] = {NULL, NULL, NULL};
    struct node *n = node_new(p, N_ITEM);
    int part = 0;
    n->a = of;
    while (!token_is(p->next_token, "]")) {
        if (token_skip(p, ":")) {
            if (++part == 3)
                parse_fail(p, "]");
            continue;
        }
        if (parts[part] != NULL)
            parse_fail(p, "] or :");
        parts[part] = part == 0 ? parse_tuple(p, true, NULL) : parse_expression(p, true);
    }
    token_expect(p, "]");
    n->b = parts[0];
    if (part == 0 && n->b == NULL)
        parse_fail(p, "an expression in []");
    if (part > 0) {
        n->kind = N_SLICE;
        n->c = parts[1];
        n->body = parts[2];
    }
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    for (;;) {
        if (token_skip(p, ".")) {
            struct node *attribute = node_new(p, N_ATTRIBUTE);
            attribute->a = n;
            if (p->next_token->kind == TOKEN_NUMBER && p->next_token->value.kind == INT) {
                attribute->kind = N_ITEM;
                attribute->b = const_new(p, p->next_token++->value);
            } else {
                attribute->value = name_read(p);
            }
            n = attribute;
        } else if (token_skip(p, "[")) {
            n = parse_subscript(p, n);
        } else if (token_is(p->next_token, "(")) {
            n = parse_call(p, n);
        } else {
            return n;
        }
    }
}

static struct value dotted_name(struct parser *p)
{
    struct value name = name_read(p);
    while (token_skip(p, ".")) {
        name = string_join(p->run, name, value_text("."));
        name = string_join(p->run, name, name_read(p));
    }
    return name;
}

static struct node *parse_test(struct parser *p, struct node *of)
{
    bool negated = token_skip(p, "not");
    struct node *n = node_new(p, N_TEST);
    const struct token *t;
    n->a = of;
    n->value = dotted_name(p);
    n->name = test_number(n->value);
    t = p->next_token;
    if (token_is(t, "(")) {
        n->b = parse_arguments(p);
    } else if ((t->kind == TOKEN_NAME && !token_is(t, "else") && !token_is(t, "or") &&
                !token_is(t, "and") && !token_is(t, "if") && !token_is(t, "is")) ||
               t->kind == TOKEN_STRING || t->kind == TOKEN_NUMBER || token_is(t, "[") ||
               token_is(t, "{")) {
        n->b = parse_postfix(p, parse_primary(p));
    }
    return negated ? binary_new(p, N_NOT, 0, n, NULL) : n;
}

struct node *parse_filters(struct parser *p, struct node *n, bool leading_name)
{
    while (leading_name || token_is(p->next_token, "|") || token_is(p->next_token, "is") ||
           token_is(p->next_token, "(")) {
        if (leading_name || token_skip(p, "|")) {
            struct node *filter = node_new(p, N_FILTER);
            filter->a = n;
            filter->value = dotted_name(p);
            filter->name = filter_number(filter->value);
            filter->b = token_is(p->next_token, "(") ? parse_arguments(p) : NULL;
            n = filter;
            leading_name = false;
        } else if (token_skip(p, "is")) {
            n = parse_test(p, n);
        } else {
            n = parse_call(p, n);
        }
    }
    return n;
}

/* ---- primary ---- */

static struct node *parse_name(struct parser *p)
{
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < 6; i++)
        if (token_skip(p, words[i]))
            return const_new(p, i < 4 ? value_bool(i < 2) : value_of(NONE));
    struct node *n = node_new(p, N_NAME);
    n->value = name_read(p);
    n->name = name_number(p->run, p->template, n->value);
    p->rest_used |= n->name == NAME_CALLER    ? REST_CALLER
                    : n->name == NAME_VARARGS ? REST_VARARGS
                    : n->name == NAME_KWARGS  ? REST_KWARGS
                                              : 0;
    return n;
}

/* Reads the items of "[…]" or "{…}", after the bracket. */
static struct node *parse_items(struct parser *p, enum node_kind kind, const char *end)
{
    struct node *n = node_new(p, kind), **last = &n->a;
    while (!token_is(p->next_token, end)) {
        if (n->a != NULL) {
            token_expect(p, ",");
            if (token_is(p->next_token, end))
                break;
        }
        *last = parse_expression(p, true);
        last = &(*last)->next;
        if (kind == N_MAP) {
            token_expect(p, ":");
            *last = parse_expression(p, true);
            last = &(*last)->next;
        }
    }
    token_expect(p, end);
    return n;
}

struct node *parse_primary(struct parser *p)
{
    struct node *n;
    if (p->next_token->kind == TOKEN_NAME)
        return parse_name(p);
    if (p->next_token->kind == TOKEN_NUMBER)
        return const_new(p, p->next_token++->value);
    if (p->next_token->kind == TOKEN_STRING) {
        struct value v = p->next_token++->value;
        while (p->next_token->kind == TOKEN_STRING)
            v = string_join(p->run, v, p->next_token++->value);
        v.buffer = NULL;
        return const_new(p, v);
    }
    if (token_skip(p, "(")) {
        if (token_skip(p, ")"))
            return node_new(p, N_TUPLE);
        n = parse_tuple(p, true, NULL);
        token_expect(p, ")");
        return n;
    }
    if (token_skip(p, "["))
        return parse_items(p, N_LIST, "]");
    if (token_skip(p, "{"))
        return parse_items(p, N_MAP, "}");
    parse_fail(p, "an expression");
}

/* ---- operators, from the tightest to the loosest ---- */

static struct node *parse_unary(struct parser *p, bool with_filters)
{
    struct node *n;
    run_enter(p->run);
    bool negate = token_is(p->next_token, "-"), plus = token_is(p->next_token, "+");
    if (negate || plus) {
        p->next_token++;
        n = binary_new(p, negate ? N_NEGATE : N_PLUS, 0, parse_unary(p, false), NULL);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (with_filters)
        n = parse_filters(p, n, false);
    run_leave(p->run);
    return n;
}

static struct node *parse_power(struct parser *p)
{
    struct node *n = parse_unary(p, true);
    while (token_skip(p, "**"))
        n = binary_new(p, N_BINARY, OP_POW, n, parse_unary(p, true));
    return n;
}

static struct node *parse_product(struct parser *p)
{
    static const char *const texts[] = {"*", "/", "//", "%"};
    struct node *n = parse_power(p);
    for (size_t i = 0; i < 4; i++)
        if (token_skip(p, texts[i])) {
            n = binary_new(p, N_BINARY, OP_MUL + (int)i, n, parse_power(p));
            i = (size_t)-1;
        }
    return n;
}

static struct node *parse_concat(struct parser *p)
{
    struct node *n = parse_product(p);
    if (!token_is(p->next_token, "~"))
        return n;
    struct node *all = binary_new(p, N_CONCAT, 0, n, NULL);
    while (token_skip(p, "~"))
        n = n->next = parse_product(p);
    return all;
}

static struct node *parse_sum(struct parser *p)
{
    struct node *n = parse_concat(p);
    for (;;) {
        bool add = token_is(p->next_token, "+");
        if (!add && !token_is(p->next_token, "-"))
            return n;
        p->next_token++;
        n = binary_new(p, N_BINARY, add ? OP_ADD : OP_SUB, n, parse_concat(p));
    }
}

static struct node *parse_compare(struct parser *p)
{
    static const char *const texts[] = {"==", "!=", "<", "<=", ">", ">=", "in"};
    struct node *n = parse_sum(p), *all = NULL, **last = NULL;
    for (size_t i = 0; i <= 7; i++) {
        bool found = i < 7 ? token_skip(p, texts[i])
                           : token_is(p->next_token, "not") && token_is(p->next_token + 1, "in");
        if (!found)
            continue;
        p->next_token += i == 7 ? 2 : 0;
        if (all == NULL) {
            all = binary_new(p, N_COMPARE, 0, n, NULL);
            last = &all->b;
        }
        *last = binary_new(p, N_COMPARE_PART, OP_EQ + (int)i, parse_sum(p), NULL);
        last = &(*last)->next;
        i = (size_t)-1;
    }
    return all != NULL ? all : n;
}

static struct node *parse_not(struct parser *p)
{
    if (!token_is(p->next_token, "not"))
        return parse_compare(p);
    p->next_token++;
    run_enter(p->run);
    struct node *n = binary_new(p, N_NOT, 0, parse_not(p), NULL);
    run_leave(p->run);
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p);
    while (token_skip(p, "and"))
        n = binary_new(p, N_AND, 0, n, parse_not(p));
    return n;
}

static struct node *parse_or(struct parser *p)
{
    struct node *n = parse_and(p);
    while (token_skip(p, "or"))
        n = binary_new(p, N_OR, 0, n, parse_and(p));
    return n;
}

struct node *parse_expression(struct parser *p, bool with_choice)
{
    run_enter(p->run);
    struct node *n = parse_or(p);
    while (with_choice && token_skip(p, "if")) {
        struct node *condition = parse_or(p);
        n = binary_new(p, N_CHOICE, 0, condition, n);
        if (token_skip(p, "else"))
            n->c = parse_expression(p, true);
    }
    run_leave(p->run);
    return n;
}

static bool ends_tuple(struct parser *p, const char *end)
{
    static const char *const ends[] = {"}}", "%}", ")", "]", "=", ":"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (token_is(p->next_token, ends[i]))
            return true;
    return end != NULL && token_is(p->next_token, end);
}

struct node *parse_tuple(struct parser *p, bool with_choice, const char *end)
{
    struct node *first = parse_expression(p, with_choice), *last = first;
    if (!token_is(p->next_token, ","))
        return first;
    struct node *n = binary_new(p, N_TUPLE, 0, first, NULL);
    while (token_skip(p, ",") && !ends_tuple(p, end))
        last = last->next = parse_expression(p, with_choice);
    return n;
}
