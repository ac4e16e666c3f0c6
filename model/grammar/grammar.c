/* grammar: opens constraints and follows answers. mask.c has the masks. */
#include "common/json.h"
#include "model/grammar/internal.h"
#include "model/grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define STEPPER_BYTES_MAX (16u << 20)
/* Units of work that each addition to an answer adds. A machine that takes an answer over adds all
 * its tokens at once. */
#define ADD_WORK         (1u << 15)
#define FORCED_BYTES_MAX 64 /* Bytes that grammar_run_forced reads ahead. */
#define SHAPE_FRAMES     2  /* Innermost open calls that a shape depends on. */
#define SHAPE_BYTES_MAX  32 /* Bytes that may follow where the text is not free. */

enum status grammar_stepper_error(uint32_t state, struct error *error)
{
    if (state == STEPPER_NO_MEMORY)
        return error_set(error, ST_NO_MEMORY, "the constraint: out of memory");
    if (state == STEPPER_COSTLY)
        return error_set(error, ST_TOO_LARGE,
                         "the constraint takes too much time for each token: make it simpler");
    if (state == STEPPER_AMBIGUOUS)
        return error_set(error, ST_TOO_LARGE,
                         "the constraint is too ambiguous: a text can be read in more than %d ways",
                         STEPPER_PLACES_MAX);
    return error_set(error, ST_TOO_LARGE, "the constraint needs more than %u bytes of states",
                     STEPPER_BYTES_MAX);
}

/* ---- kinds ---- */

uint32_t grammar_rule_of(struct builder *b, struct fragment body)
{
    uint32_t rule = builder_rule_add(b);
    builder_rule_define(b, rule, body);
    return rule;
}

static json_t *json_parse(struct builder *b, const char *text, size_t bytes)
{
    json_error_t why;
    json_t *value;
    enum status status =
        json_text_load(text, bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &value, &why);
    if (status == ST_NO_MEMORY)
        builder_fail(b, ST_NO_MEMORY, "out of memory");
    else if (status != ST_OK)
        builder_fail(b, ST_INVALID, "not JSON: %s, line %d, column %d", why.text, why.line,
                     why.column);
    return value;
}

static uint32_t open_schema(struct builder *b, const char *text, size_t bytes)
{
    json_t *schema = json_parse(b, text, bytes);
    uint32_t rule = schema != NULL ? schema_parse(b, schema, "#") : 0;
    json_decref(schema);
    return rule;
}

static uint32_t open_object(struct builder *b, const char *text, size_t bytes)
{
    (void)text;
    if (bytes != 0)
        builder_fail(b, ST_INVALID, "json_object has no content");
    json_t *schema = json_pack("{s:s}", "type", "object");
    if (schema == NULL)
        builder_fail(b, ST_NO_MEMORY, "out of memory");
    uint32_t rule = schema != NULL ? schema_parse(b, schema, "#") : 0;
    json_decref(schema);
    return rule;
}

static uint32_t open_regex(struct builder *b, const char *text, size_t bytes)
{
    return grammar_rule_of(b, regex_parse(b, text, bytes, SPELLING_RAW, false, "regex"));
}

static uint32_t open_choice(struct builder *b, const char *text, size_t bytes)
{
    json_t *list = json_parse(b, text, bytes), *value;
    size_t i, count = json_array_size(list);
    struct literal *literals = calloc(count + 1, sizeof(*literals));
    uint32_t rule = 0;
    if (literals == NULL)
        builder_fail(b, ST_NO_MEMORY, "out of memory");
    else if (list != NULL) {
        if (count == 0)
            builder_fail(b, ST_INVALID, "choice: want a list of texts that is not empty");
        json_array_foreach(list, i, value)
        {
            if (!json_is_string(value))
                builder_fail(b, ST_INVALID, "choice[%zu]: want a text", i);
            literals[i] = (struct literal){json_string_value(value), json_string_length(value)};
        }
        if (b->status == ST_OK)
            rule = grammar_rule_of(b, fragment_literals(b, literals, count));
    }
    free(literals);
    json_decref(list);
    return rule;
}

static uint32_t open_format(struct builder *b, const char *text, size_t bytes)
{
    json_t *expression = json_parse(b, text, bytes);
    uint32_t rule = expression != NULL ? format_parse(b, expression) : 0;
    json_decref(expression);
    return rule;
}

static const struct {
    const char *name;
    uint32_t (*parse)(struct builder *b, const char *text, size_t bytes);
} kinds[] = {
    {"json_schema:", open_schema}, {"json_object:", open_object}, {"regex:", open_regex},
    {"choice:", open_choice},      {"grammar:", gbnf_parse},      {"format:", open_format},
};

uint32_t grammar_parse(struct builder *b, const char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t name = strlen(kinds[i].name);
        if (bytes >= name && memcmp(text, kinds[i].name, name) == 0)
            return kinds[i].parse(b, text + name, bytes - name);
    }
    builder_fail(b, ST_INVALID, "the constraint has no known kind");
    return 0;
}

/* ---- opening ---- */

static enum status automaton_open(const char *text, size_t bytes, struct automaton *out,
                                  struct error *error)
{
    struct builder b = {0};
    if (bytes > GRAMMAR_TEXT_BYTES_MAX)
        return error_set(error, ST_TOO_LARGE, "the constraint has %zu bytes: at most %u are taken",
                         bytes, GRAMMAR_TEXT_BYTES_MAX);
    uint32_t rule = grammar_parse(&b, text, bytes);
    enum status status = automaton_finish(&b, rule, out, error);
    builder_done(&b);
    return status;
}

enum status grammar_open(const char *text, size_t bytes,
                         const struct grammar_vocabulary *vocabulary, struct grammar **out,
                         struct error *error)
{
    struct grammar *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return error_set(error, ST_NO_MEMORY, "the constraint: out of memory");
    enum status status = automaton_open(text, bytes, &g->automaton, error);
    if (status != ST_OK) {
        free(g);
        return status;
    }
    g->vocabulary = vocabulary;
    g->work_saved = GRAMMAR_WORK_SAVED_MAX;
    g->mask_work_max = GRAMMAR_WORK_MASK_MAX;
    bool good = stepper_open(&g->stepper, &g->automaton, STEPPER_BYTES_MAX);
    g->places = malloc(2 * STEPPER_PLACES_MAX * sizeof(struct place));
    good = good && g->places != NULL;
    if (vocabulary != NULL) {
        g->bits = malloc(GRAMMAR_MASK_WORDS(vocabulary->count) * sizeof(uint32_t) + 1);
        good = good && g->bits != NULL;
    }
    if (!good) {
        grammar_close(g);
        return error_set(error, ST_NO_MEMORY, "the constraint: out of memory");
    }
    *out = g;
    return ST_OK;
}

void grammar_close(struct grammar *g)
{
    if (g == NULL)
        return;
    if (g->entry_count > 0)
        mask_entries_drop(g);
    free(g->entries);
    free(g->bits);
    free(g->branches);
    free(g->places);
    stepper_done(&g->stepper);
    automaton_done(&g->automaton);
    free(g);
}

size_t grammar_bytes(const struct grammar *g)
{
    size_t bytes = sizeof(*g) + g->automaton.node_count * sizeof(struct node) +
                   stepper_bytes(&g->stepper) + g->entry_bytes +
                   2 * STEPPER_PLACES_MAX * sizeof(struct place);
    if (g->vocabulary != NULL)
        bytes += (GRAMMAR_MASK_WORDS(g->vocabulary->count) + g->branch_capacity) * sizeof(uint32_t);
    return bytes;
}

void grammar_mask_work_bound(struct grammar *g, uint64_t work_max)
{
    g->mask_work_max = work_max;
}

uint64_t grammar_work(const struct grammar *g)
{
    return g->stepper.work;
}

void grammar_work_begin(struct grammar *g, uint64_t income, uint64_t most)
{
    g->work_saved += income;
    if (g->work_saved > GRAMMAR_WORK_SAVED_MAX)
        g->work_saved = GRAMMAR_WORK_SAVED_MAX;
    g->work_begun = g->stepper.work;
    g->stepper.work_max = g->stepper.work + (g->work_saved < most ? g->work_saved : most);
}

void grammar_work_end(struct grammar *g)
{
    const uint64_t used = g->stepper.work - g->work_begun;
    g->work_saved -= used < g->work_saved ? used : g->work_saved;
}

bool grammar_compact(struct grammar *g, uint32_t *extra, bool drop_masks)
{
    uint32_t count = extra != NULL;
    if (drop_masks)
        mask_entries_drop(g);
    for (const struct grammar_run *run = g->runs; run != NULL; run = run->next)
        count++;
    uint32_t **states = malloc(((size_t)count + g->entry_count + 1) * sizeof(*states));
    if (states == NULL)
        return false;
    uint32_t used = 0;
    if (extra != NULL)
        states[used++] = extra;
    for (struct grammar_run *run = g->runs; run != NULL; run = run->next)
        states[used++] = &run->state;
    for (uint32_t i = 0; i < g->entry_count; i++)
        states[used++] = &g->entries[i].state;
    bool good = stepper_compact(&g->stepper, states, used);
    free(states);
    return good;
}

bool grammar_shrink(struct grammar *g)
{
    return grammar_compact(g, NULL, true);
}

/* ---- runs ---- */

enum status grammar_run_open(struct grammar *g, struct grammar_run **out, struct error *error)
{
    struct grammar_run *run = calloc(1, sizeof(*run));
    if (run == NULL)
        return error_set(error, ST_NO_MEMORY, "the constraint: out of memory");
    run->grammar = g;
    grammar_work_begin(g, ADD_WORK, GRAMMAR_WORK_MASK_MAX);
    run->state = stepper_start(&g->stepper);
    for (int attempt = 0; attempt < 2 && run->state == STEPPER_FULL; attempt++) {
        run->state =
            grammar_compact(g, NULL, attempt > 0) ? stepper_start(&g->stepper) : STEPPER_NO_MEMORY;
    }
    grammar_work_end(g);
    if (STEPPER_FAILED(run->state)) {
        enum status status = grammar_stepper_error(run->state, error);
        free(run);
        return status;
    }
    run->next = g->runs;
    if (g->runs != NULL)
        g->runs->previous = run;
    g->runs = run;
    *out = run;
    return ST_OK;
}

void grammar_run_close(struct grammar_run *run)
{
    if (run == NULL)
        return;
    if (run->next != NULL)
        run->next->previous = run->previous;
    if (run->previous != NULL)
        run->previous->next = run->next;
    else
        run->grammar->runs = run->next;
    free(run);
}

/* Returns the state after *state and `byte`. If memory is short, frees states that are not in use;
 * *state may get another number. */
static uint32_t step(struct grammar *g, uint32_t *state, uint8_t byte)
{
    uint32_t next = stepper_step(&g->stepper, *state, byte);
    for (int attempt = 0; attempt < 2 && next == STEPPER_FULL; attempt++)
        next = grammar_compact(g, state, attempt > 0) ? stepper_step(&g->stepper, *state, byte)
                                                      : STEPPER_NO_MEMORY;
    return next;
}

enum status grammar_run_bytes(struct grammar_run *run, const char *bytes, size_t count,
                              struct error *error)
{
    uint32_t state = run->state, next = state;
    size_t i = 0;
    grammar_work_begin(run->grammar, ADD_WORK, GRAMMAR_WORK_MASK_MAX);
    while (i < count) {
        next = step(run->grammar, &state, (uint8_t)bytes[i]);
        if (STEPPER_FAILED(next) || next == STEPPER_DEAD)
            break;
        state = next;
        i++;
    }
    grammar_work_end(run->grammar);
    if (i < count && next != STEPPER_DEAD)
        return grammar_stepper_error(next, error);
    if (i < count)
        return error_set(error, ST_INVALID, "the constraint does not allow byte %zu (0x%02x)", i,
                         (unsigned)(uint8_t)bytes[i]);
    run->state = state;
    return ST_OK;
}

enum status grammar_run_token(struct grammar_run *run, uint32_t id, struct error *error)
{
    const struct grammar_vocabulary *v = run->grammar->vocabulary;
    if (v == NULL || id >= v->count || v->starts[id] == v->starts[id + 1])
        return error_set(error, ST_INVALID, "the constraint does not allow token %u", id);
    return grammar_run_bytes(run, v->bytes + v->starts[id], v->starts[id + 1] - v->starts[id],
                             error);
}

void grammar_run_copy(struct grammar_run *run, const struct grammar_run *from)
{
    run->state = from->state;
}

/* Counts the bytes that may follow *state, up to `most`. *byte_out is the last of them. Returns a
 * failure of the stepper; 0 = none. A text that can be read in too many ways counts as a byte. */
static uint32_t next_bytes(struct grammar *g, uint32_t *state, uint32_t most, uint32_t *count_out,
                           uint8_t *byte_out)
{
    *count_out = 0;
    for (uint32_t byte = 0; byte < 256 && *count_out < most; byte++) {
        const uint32_t next = step(g, state, (uint8_t)byte);
        if (STEPPER_FAILED(next) && next != STEPPER_AMBIGUOUS)
            return next;
        if (next == STEPPER_DEAD)
            continue;
        ++*count_out;
        *byte_out = (uint8_t)byte;
    }
    return 0;
}

/* Stores the bytes that must come next. Returns a failure of the stepper; 0 = none. */
static uint32_t forced_text(struct grammar *g, uint32_t state, char text[FORCED_BYTES_MAX],
                            uint32_t *bytes_out)
{
    uint32_t failed = 0, count = 1;
    uint8_t byte = 0;
    *bytes_out = 0;
    while (*bytes_out < FORCED_BYTES_MAX && !g->stepper.states[state].accepts) {
        failed = next_bytes(g, &state, 2, &count, &byte);
        const uint32_t next = failed != 0 || count != 1 ? STEPPER_DEAD : step(g, &state, byte);
        if (next == STEPPER_DEAD || next == STEPPER_AMBIGUOUS)
            return failed;
        if (STEPPER_FAILED(next))
            return next;
        text[(*bytes_out)++] = (char)byte;
        state = next;
    }
    return 0;
}

enum status grammar_run_forced(struct grammar_run *run, enum grammar_forced *forced_out,
                               uint32_t *token_out, struct error *error)
{
    const struct grammar_vocabulary *v = run->grammar->vocabulary;
    char text[FORCED_BYTES_MAX];
    uint32_t bytes, token, after, used = 0;
    grammar_work_begin(run->grammar, 0, run->grammar->mask_work_max);
    const uint32_t failed = forced_text(run->grammar, run->state, text, &bytes);
    grammar_work_end(run->grammar);
    if (failed != 0)
        return grammar_stepper_error(failed, error);
    *forced_out = GRAMMAR_FORCED_NONE;
    if (bytes > 1)
        used = vocabulary_longest(v, text, bytes - 1, &token);
    if (used > 0 && vocabulary_longest(v, text + used, bytes - used, &after) > 0)
        *forced_out = GRAMMAR_FORCED_TOKEN;
    else if (vocabulary_longest(v, text, bytes, &token) > 0)
        *forced_out = GRAMMAR_FORCED_TEXT;
    if (*forced_out != GRAMMAR_FORCED_NONE)
        *token_out = token;
    return ST_OK;
}

/* Returns the hash of `hash` and `value`. */
static uint32_t mix(uint32_t hash, uint32_t value)
{
    hash = (hash ^ value) * 0x9e3779b1u;
    return hash ^ hash >> 15;
}

uint32_t grammar_run_shape(struct grammar_run *run)
{
    const struct stepper *m = &run->grammar->stepper;
    uint32_t at = run->state, sum = 0, bytes;
    uint8_t byte;
    grammar_work_begin(run->grammar, 0, run->grammar->mask_work_max);
    const uint32_t failed = next_bytes(run->grammar, &at, SHAPE_BYTES_MAX + 1, &bytes, &byte);
    grammar_work_end(run->grammar);
    if (failed != 0 || bytes > SHAPE_BYTES_MAX)
        return 0;
    const struct stepper_state *state = &m->states[run->state];
    for (uint32_t i = 0; i < state->count; i++) { /* In any order. */
        const struct place *place = &m->places[state->first + i];
        uint32_t hash = mix(1, place->node), stack = place->stack;
        for (uint32_t depth = 0; depth < SHAPE_FRAMES && stack > STACK_EMPTY; depth++) {
            hash = mix(hash, m->frames[stack].node);
            stack = m->frames[stack].caller_stack;
        }
        sum += hash;
    }
    return sum != 0 ? sum : 1;
}

bool grammar_run_may_end(const struct grammar_run *run)
{
    return run->grammar->stepper.states[run->state].accepts;
}
