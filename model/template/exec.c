/* exec: statements, scopes and rendering. */
#include "model/template/eval.h"

#include <stdlib.h>
#include <string.h>

const struct template_limits template_limits_default = {
    .steps = 20000000,
    .depth = 400,
    .memory_bytes = (size_t)256 << 20,
    .output_bytes = (size_t)32 << 20,
};

/* ---- scopes ---- */

struct scope *scope_new(struct run *r, struct scope *parent)
{
    struct scope *s = run_alloc(r, sizeof(*s));
    *s = (struct scope){.parent = parent};
    return s;
}

void scope_set(struct run *r, uint32_t name, struct value v)
{
    struct scope *s = r->scope;
    run_step(r, s->count / 16);
    for (uint32_t i = 0; i < s->count; i++)
        if (s->variables[i].name == name) {
            s->variables[i].value = v;
            return;
        }
    if (s->count == s->capacity) {
        uint32_t capacity = s->capacity * 2 + 4;
        struct variable *variables = run_alloc(r, capacity * sizeof(*variables));
        if (s->count > 0)
            memcpy(variables, s->variables, s->count * sizeof(*variables));
        s->variables = variables;
        s->capacity = capacity;
    }
    s->variables[s->count++] = (struct variable){name, v};
}

/* Assigns to a name or to several. */
static void scope_assign(struct run *r, const struct node *target, struct value v)
{
    if (target->kind == N_NAME) {
        scope_set(r, target->name, v);
        return;
    }
    if (target->kind == N_ATTRIBUTE) {
        struct value of = eval_expression(r, target->a);
        if (of.kind != NAMESPACE)
            run_fail(r, ST_INVALID, "cannot assign attribute on non-namespace object");
        map_set(r, of.map, target->value, v);
        return;
    }
    size_t i = 0;
    struct list items = value_items(r, v);
    for (const struct node *n = target->a; n != NULL; n = n->next, i++)
        if (i < items.count)
            scope_assign(r, n, items.items[i]);
    if (i != items.count)
        run_fail(r, ST_INVALID, "%zu values to unpack into %zu names", items.count, i);
}

/* ---- statements ---- */

static enum flow exec_body(struct run *r, const struct node *first);

struct value exec_text(struct run *r, const struct node *body)
{
    struct buffer *outer = r->out;
    r->out = buffer_new(r);
    exec_body(r, body);
    struct value v = buffer_value(r->out);
    r->out = outer;
    return v;
}

/* Runs the body in a scope of its own and applies the filters of `filters` to its text. */
static struct value filtered_text(struct run *r, const struct node *filters,
                                  const struct node *body)
{
    struct buffer *outer = r->out;
    struct scope *scope = r->scope;
    r->out = buffer_new(r);
    r->scope = scope_new(r, scope);
    exec_body(r, body);
    r->scope = scope;
    struct value v = eval_expression(r, filters); /* N_BODY_TEXT reads r->out. */
    r->out = outer;
    return v;
}

static struct value filter_items(struct run *r, const struct node *n, struct value from)
{
    struct list items = value_items(r, from), *kept;
    struct value v = list_new(r, PLAIN, 0, &kept);
    struct scope *scope = r->scope;
    r->scope = scope_new(r, scope);
    for (size_t i = 0; i < items.count; i++) {
        scope_assign(r, n->a, items.items[i]);
        if (value_true(eval_expression(r, n->c)))
            list_add(r, kept, items.items[i]);
    }
    r->scope = scope;
    return v;
}

enum flow exec_loop(struct run *r, const struct node *n, struct value from, uint32_t depth)
{
    struct scope *outer = r->scope;
    struct loop *l = run_alloc(r, sizeof(*l));
    if (n->c != NULL)
        from = filter_items(r, n, from);
    *l = (struct loop){.items = value_items(r, from), .depth = depth, .node = n, .scope = outer};
    r->scope = scope_new(r, outer);
    for (; l->index < l->items.count; l->index++) {
        run_step(r, 1);
        r->scope->count = 0;
        scope_set(r, NAME_LOOP, (struct value){.kind = LOOP, .loop = l});
        scope_assign(r, n->a, l->items.items[l->index]);
        if (exec_body(r, n->body) == FLOW_BREAK)
            break;
    }
    r->scope = outer;
    if (l->items.count == 0 && n->else_body != NULL) {
        r->scope = scope_new(r, outer);
        enum flow flow = exec_body(r, n->else_body);
        r->scope = outer;
        return flow;
    }
    return FLOW_NEXT;
}

static enum flow exec_if(struct run *r, const struct node *n)
{
    for (;;) {
        if (value_true(eval_expression(r, n->a)))
            return exec_body(r, n->body);
        if (n->else_body == NULL)
            return FLOW_NEXT;
        if (n->else_body->kind != N_IF || n->else_body->next != NULL)
            return exec_body(r, n->else_body);
        n = n->else_body;
    }
}

static void exec_call_body(struct run *r, const struct node *n)
{
    struct arguments a;
    struct macro *caller = run_alloc(r, sizeof(*caller));
    *caller = (struct macro){n, r->scope};
    struct value callee = eval_expression(r, n->b->a);
    read_arguments(r, n->b->b, &a);
    struct map *named = map_new(r).map;
    for (uint32_t i = 0; a.named != NULL && i < a.named->count; i++)
        map_set(r, named, a.named->entries[i].key, a.named->entries[i].value);
    map_set(r, named, value_text("caller"), (struct value){.kind = MACRO, .macro = caller});
    a.named = named;
    buffer_add_str(r, r->out, value_call(r, callee, &a));
}

static enum flow exec_scope(struct run *r, const struct node *n)
{
    struct scope *outer = r->scope, *inner = scope_new(r, outer);
    for (const struct node *pair = n->a; pair != NULL; pair = pair->next) {
        struct value v = eval_expression(r, pair->a);
        r->scope = inner;
        scope_assign(r, pair->body, v);
        r->scope = outer;
    }
    r->scope = inner;
    enum flow flow = exec_body(r, n->body);
    r->scope = outer;
    return flow;
}

static void exec_macro(struct run *r, const struct node *n)
{
    struct macro *m = run_alloc(r, sizeof(*m));
    *m = (struct macro){n, r->scope};
    scope_set(r, n->name, (struct value){.kind = MACRO, .macro = m});
}

static enum flow exec_node(struct run *r, const struct node *n)
{
    r->line = n->line;
    switch (n->kind) {
    case N_DATA:
        buffer_add(r, r->out, n->value.text, n->value.size, false);
        return FLOW_NEXT;
    case N_PRINT:
        buffer_add_str(r, r->out, eval_expression(r, n->a));
        return FLOW_NEXT;
    case N_FOR:
        return exec_loop(r, n, eval_expression(r, n->b), 0);
    case N_IF:
        return exec_if(r, n);
    case N_SET:
        scope_assign(r, n->a, eval_expression(r, n->b));
        return FLOW_NEXT;
    case N_SET_BODY:
        scope_assign(r, n->a, filtered_text(r, n->b, n->body));
        return FLOW_NEXT;
    case N_MACRO:
        exec_macro(r, n);
        return FLOW_NEXT;
    case N_CALL_BODY:
        exec_call_body(r, n);
        return FLOW_NEXT;
    case N_FILTER_BODY:
        buffer_add_str(r, r->out, filtered_text(r, n->b, n->body));
        return FLOW_NEXT;
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    default:
        return exec_scope(r, n);
    }
}

static enum flow exec_body(struct run *r, const struct node *first)
{
    enum flow flow = FLOW_NEXT;
    run_enter(r);
    for (; first != NULL && flow == FLOW_NEXT; first = first->next) {
        run_step(r, 1);
        flow = exec_node(r, first);
    }
    run_leave(r);
    return flow;
}

/* ---- rendering ---- */

/* Sets the variables and global functions that the template names. */
static void set_variables(struct run *r, const json_t *inputs, const json_t *settings)
{
    const struct template *t = r->template;
    r->scope = scope_new(r, NULL);
    for (uint32_t i = 0; i < t->name_count; i++) {
        struct value name = t->names[i];
        bool input = true;
        char key[128];
        if (name.size >= sizeof(key)) /* No variable has such a name. */
            continue;
        memcpy(key, name.text, name.size);
        key[name.size] = 0;
        const json_t *v = json_object_get(inputs, key);
        if (v == NULL) {
            v = json_object_get(settings, key);
            input = false;
        }
        int function = function_number(name);
        if (v != NULL)
            scope_set(r, i, value_from_json(r, v, input));
        else if (function >= 0)
            scope_set(r, i, (struct value){.kind = FUNCTION, .integer = function});
    }
    r->scope = scope_new(r, r->scope);
}

static enum status output_copy(const struct buffer *b, struct template_output *out,
                               struct error *error)
{
    size_t count = 0;
    for (size_t i = 0; i < b->used; i++)
        count += b->marks[i] != 0 && (i == 0 || b->marks[i - 1] == 0);
    struct template_output made = {.bytes = b->used};
    made.text = malloc(b->used + 1);
    made.inputs = malloc((count + 1) * sizeof(*made.inputs));
    if (made.text == NULL || made.inputs == NULL) {
        template_output_done(&made);
        return error_set(error, ST_NO_MEMORY, "no memory for a chat prompt of %zu bytes", b->used);
    }
    if (b->used > 0)
        memcpy(made.text, b->text, b->used);
    made.text[b->used] = 0;
    for (size_t i = 0; i < b->used; i++) {
        if (b->marks[i] == 0)
            continue;
        if (i == 0 || b->marks[i - 1] == 0)
            made.inputs[made.input_count++].begin = i;
        made.inputs[made.input_count - 1].end = i + 1;
    }
    *out = made;
    return ST_OK;
}

static enum status render(struct run *r, const json_t *inputs, const json_t *settings,
                          struct template_output *out)
{
    jmp_buf failed;
    r->fail_jump = &failed;
    if (setjmp(failed) != 0)
        return r->status;
    r->out = buffer_new(r);
    set_variables(r, inputs, settings);
    exec_body(r, r->template->body);
    return output_copy(r->out, out, r->error);
}

enum status template_render(const struct template *t, const json_t *inputs, const json_t *settings,
                            time_t now, const struct template_limits *limits,
                            struct template_output *out, struct error *error)
{
    struct run r = {.error = error,
                    .line = 1,
                    .steps_left = limits->steps,
                    .depth_left = limits->depth,
                    .output_limit = limits->output_bytes,
                    .now = now,
                    .template = t};
    r.arena.limit = limits->memory_bytes;
    enum status status = render(&r, inputs, settings, out);
    arena_done(&r.arena);
    return status;
}

void template_output_done(struct template_output *out)
{
    free(out->text);
    free(out->inputs);
    *out = (struct template_output){0};
}
