/* statements: reads the statements {% … %}, and compiles a template. */
#include "model/template/tree.h"

#include <stdlib.h>
#include <string.h>

static struct node *parse_body(struct parser *p, const char *const *ends);

uint32_t name_number(struct run *r, struct template *t, struct value name)
{
    for (uint32_t i = 0; i < t->name_count; i++)
        if (t->names[i].size == name.size && memcmp(t->names[i].text, name.text, name.size) == 0)
            return run_step(r, i / 4), i;
    run_step(r, t->name_count / 4);
    if (t->name_count == t->name_capacity) {
        uint32_t capacity = t->name_capacity * 2 + 32;
        struct value *names = run_alloc(r, capacity * sizeof(*names));
        if (t->name_count > 0)
            memcpy(names, t->names, t->name_count * sizeof(*names));
        t->names = names;
        t->name_capacity = capacity;
    }
    t->names[t->name_count] = name;
    return t->name_count++;
}

static struct node *parse_target_item(struct parser *p, bool dotted)
{
    struct node *n = parse_primary(p);
    if (dotted && n->kind == N_NAME && token_skip(p, ".")) {
        struct node *attribute = node_new(p, N_ATTRIBUTE);
        attribute->a = n;
        attribute->value = p->next_token->value;
        if (p->next_token++->kind != TOKEN_NAME)
            parse_fail(p, "a name");
        return attribute;
    }
    if (n->kind != N_NAME && n->kind != N_TUPLE)
        parse_fail(p, "a name to assign to");
    for (struct node *item = n->kind == N_TUPLE ? n->a : NULL; item != NULL; item = item->next)
        if (item->kind != N_NAME)
            parse_fail(p, "names to assign to");
    return n;
}

/* Reads "a", "a, b", "(a, b)" or, if dotted, "a.b". */
static struct node *parse_target(struct parser *p, bool dotted)
{
    struct node *first = parse_target_item(p, dotted), *last = first;
    if (!token_is(p->next_token, ","))
        return first;
    struct node *n = node_new(p, N_TUPLE);
    n->a = first;
    while (token_skip(p, ",") && !token_is(p->next_token, "in") && !token_is(p->next_token, "="))
        last = last->next = parse_target_item(p, dotted);
    return n;
}

static struct node *parse_block(struct parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct node *body = parse_body(p, ends);
    token_expect(p, end);
    return body;
}

static struct node *parse_for(struct parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct node *n = node_new(p, N_FOR);
    if (token_is(p->next_token, "loop"))
        parse_fail(p, "another name");
    n->a = parse_target(p, false);
    token_expect(p, "in");
    n->b = parse_tuple(p, false, "recursive");
    if (token_skip(p, "if"))
        n->c = parse_expression(p, true);
    n->name = token_skip(p, "recursive");
    token_expect(p, "%}");
    n->body = parse_body(p, ends);
    if (token_skip(p, "else")) {
        token_expect(p, "%}");
        n->else_body = parse_block(p, "endfor");
    } else {
        token_expect(p, "endfor");
    }
    return n;
}

static struct node *parse_if(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *first = node_new(p, N_IF), *n = first;
    for (;;) {
        n->a = parse_tuple(p, false, NULL);
        token_expect(p, "%}");
        n->body = parse_body(p, ends);
        if (!token_skip(p, "elif"))
            break;
        n = n->else_body = node_new(p, N_IF);
    }
    if (token_skip(p, "else")) {
        token_expect(p, "%}");
        n->else_body = parse_block(p, "endif");
    } else {
        token_expect(p, "endif");
    }
    return first;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = node_new(p, N_SET);
    n->a = parse_target(p, true);
    if (token_skip(p, "=")) {
        n->b = parse_tuple(p, true, NULL);
        return n;
    }
    n->kind = N_SET_BODY;
    n->b = parse_filters(p, node_new(p, N_BODY_TEXT), false);
    token_expect(p, "%}");
    n->body = parse_block(p, "endset");
    return n;
}

/* Reads "(a, b=1)". */
static struct node *parse_parameters(struct parser *p)
{
    struct node *first = NULL, **last = &first;
    token_expect(p, "(");
    while (!token_is(p->next_token, ")")) {
        if (first != NULL)
            token_expect(p, ",");
        struct node *n = node_new(p, N_PARAMETER);
        n->value = p->next_token->value;
        if (p->next_token->kind != TOKEN_NAME)
            parse_fail(p, "a name");
        p->next_token++;
        n->name = name_number(p->run, p->template, n->value);
        n->a = token_skip(p, "=") ? parse_expression(p, true) : NULL;
        *last = n;
        last = &n->next;
    }
    token_expect(p, ")");
    return first;
}

/* Reads the body of a macro or call block. */
static void parse_macro_body(struct parser *p, struct node *n, const char *end)
{
    uint8_t outer = p->rest_used;
    p->rest_used = 0;
    n->body = parse_block(p, end);
    n->op = p->rest_used;
    p->rest_used |= outer;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = node_new(p, N_MACRO);
    n->value = p->next_token->value;
    if (p->next_token->kind != TOKEN_NAME)
        parse_fail(p, "a name");
    p->next_token++;
    n->name = name_number(p->run, p->template, n->value);
    n->a = parse_parameters(p);
    token_expect(p, "%}");
    parse_macro_body(p, n, "endmacro");
    return n;
}

static struct node *parse_call_block(struct parser *p)
{
    struct node *n = node_new(p, N_CALL_BODY);
    n->value = value_text("caller");
    n->a = token_is(p->next_token, "(") ? parse_parameters(p) : NULL;
    n->b = parse_expression(p, true);
    if (n->b->kind != N_CALL)
        parse_fail(p, "a call");
    token_expect(p, "%}");
    parse_macro_body(p, n, "endcall");
    return n;
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = node_new(p, N_WITH), **last = &n->a;
    while (!token_is(p->next_token, "%}")) {
        if (n->a != NULL)
            token_expect(p, ",");
        *last = node_new(p, N_KEYWORD);
        (*last)->body = parse_target(p, false);
        token_expect(p, "=");
        (*last)->a = parse_expression(p, true);
        last = &(*last)->next;
    }
    token_expect(p, "%}");
    n->body = parse_block(p, "endwith");
    return n;
}

static struct node *parse_scope(struct parser *p, const char *end, bool named)
{
    struct node *n = node_new(p, N_BODY);
    while (named && p->next_token->kind == TOKEN_NAME)
        p->next_token++;
    token_expect(p, "%}");
    n->body = parse_block(p, end);
    if (named && p->next_token->kind == TOKEN_NAME)
        p->next_token++;
    return n;
}

static struct node *parse_statement(struct parser *p)
{
    struct node *n;
    if (token_skip(p, "for"))
        return parse_for(p);
    if (token_skip(p, "if"))
        return parse_if(p);
    if (token_skip(p, "set"))
        return parse_set(p);
    if (token_skip(p, "macro"))
        return parse_macro(p);
    if (token_skip(p, "call"))
        return parse_call_block(p);
    if (token_skip(p, "with"))
        return parse_with(p);
    if (token_skip(p, "generation"))
        return parse_scope(p, "endgeneration", false);
    if (token_skip(p, "block"))
        return parse_scope(p, "endblock", true);
    if (token_skip(p, "filter")) {
        n = node_new(p, N_FILTER_BODY);
        n->b = parse_filters(p, node_new(p, N_BODY_TEXT), true);
        token_expect(p, "%}");
        n->body = parse_block(p, "endfilter");
        return n;
    }
    if (token_skip(p, "print")) {
        n = node_new(p, N_PRINT);
        n->a = parse_tuple(p, true, NULL);
        return n;
    }
    if (token_skip(p, "break"))
        return node_new(p, N_BREAK);
    if (token_skip(p, "continue"))
        return node_new(p, N_CONTINUE);
    parse_fail(p, "a statement");
}

/* Reads up to a tag that is in `ends`, and stops at its name; NULL: up to the end. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    struct node *first = NULL, **last = &first;
    run_enter(p->run);
    while (p->next_token->kind != TOKEN_END) {
        if (p->next_token->kind == TOKEN_DATA) {
            *last = node_new(p, N_DATA);
            (*last)->value = p->next_token++->value;
        } else if (token_skip(p, "{{")) {
            *last = node_new(p, N_PRINT);
            (*last)->a = parse_tuple(p, true, NULL);
            token_expect(p, "}}");
        } else {
            token_expect(p, "{%");
            for (size_t i = 0; ends != NULL && ends[i] != NULL; i++)
                if (token_is(p->next_token, ends[i])) {
                    run_leave(p->run);
                    return first;
                }
            *last = parse_statement(p);
            token_expect(p, "%}");
        }
        last = &(*last)->next;
    }
    if (ends != NULL)
        parse_fail(p, ends[0]);
    run_leave(p->run);
    return first;
}

static struct node *template_parse(struct run *r, struct template *t, const struct tokens *tokens)
{
    struct parser p = {.run = r, .template = t, .next_token = tokens->items};
    return parse_body(&p, NULL);
}

/* In the order of enum own_name. */
static const char *const own_names[] = {"loop", "caller", "varargs", "kwargs"};

static enum status compile(struct run *r, struct template *t, const char *text, size_t bytes)
{
    jmp_buf failed;
    struct tokens tokens = {0};
    r->fail_jump = &failed;
    if (setjmp(failed) != 0)
        return r->status;
    for (uint32_t i = 0; i < sizeof(own_names) / sizeof(own_names[0]); i++)
        name_number(r, t, value_text(own_names[i]));
    template_lex(r, text, bytes, &tokens);
    t->body = template_parse(r, t, &tokens);
    return ST_OK;
}

enum status template_compile(const char *text, size_t bytes, struct template **out,
                             struct error *error)
{
    if (bytes > (size_t)4 << 20)
        return error_set(error, ST_TOO_LARGE, "chat template: %zu bytes: want up to 4 MiB", bytes);
    struct template *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the chat template");
    struct run r = {.error = error, .line = 1, .steps_left = 100000000, .depth_left = 200};
    r.arena.limit =
        ((size_t)1 << 20) + (bytes < (size_t)512 << 10 ? bytes : (size_t)512 << 10) * 512;
    enum status status = compile(&r, t, text, bytes);
    t->arena = r.arena;
    if (status != ST_OK) {
        template_close(t);
        return status;
    }
    *out = t;
    return ST_OK;
}

void template_close(struct template *t)
{
    if (t == NULL)
        return;
    arena_done(&t->arena);
    free(t);
}
