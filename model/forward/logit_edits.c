/* logit_edits: one entry for each token that a rule names, found by a table indexed by id. */
#include "model/forward/logit_edits.h"

#include "common/token_rules.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct logit_editor {
    uint32_t vocab;
    uint32_t count;
    uint32_t *places; /* [vocab]: 1 + index of the id's edit; 0 = none. All 0 between two calls. */
    struct compute_edit *edits; /* [vocab] */
};

struct logit_editor *logit_editor_open(uint32_t vocab)
{
    struct logit_editor *editor = calloc(1, sizeof(*editor));
    if (editor == NULL)
        return NULL;
    editor->vocab = vocab;
    editor->places = calloc(vocab, sizeof(*editor->places));
    editor->edits = malloc(vocab * sizeof(*editor->edits));
    if (editor->places != NULL && editor->edits != NULL)
        return editor;
    logit_editor_close(editor);
    return NULL;
}

void logit_editor_close(struct logit_editor *editor)
{
    if (editor == NULL)
        return;
    free(editor->places);
    free(editor->edits);
    free(editor);
}

/* Returns the id's edit; NULL = the vocabulary does not have the id. */
static struct compute_edit *edit_of(struct logit_editor *editor, uint32_t id)
{
    if (id >= editor->vocab)
        return NULL;
    if (editor->places[id] == 0) {
        editor->edits[editor->count] = (struct compute_edit){.id = id, .divide = 1.0f};
        editor->places[id] = ++editor->count;
    }
    return &editor->edits[editor->places[id] - 1];
}

static void editor_reset(struct logit_editor *editor)
{
    for (uint32_t i = 0; i < editor->count; i++)
        editor->places[editor->edits[i].id] = 0;
    editor->count = 0;
}

static void add_biases(struct logit_editor *editor, const struct token_rules *rules)
{
    for (uint32_t i = 0; i < rules->bias_count; i++) {
        uint32_t id;
        float bias = token_rules_bias(rules, i, &id);
        struct compute_edit *edit = edit_of(editor, id);
        if (edit != NULL)
            edit->add += bias;
    }
}

/* Forbids the last token of each sequence whose other tokens are the last ones of the answer. */
static void add_forbidden(struct logit_editor *editor, const struct token_rules *rules,
                          const struct sample_context *context)
{
    uint32_t answer = context->token_count > 0 ? context->token_count - context->prompt_count : 0;
    for (uint32_t at = 0; at < rules->forbidden_words; at += 1 + rules->forbidden[at]) {
        const uint32_t *ids = &rules->forbidden[at + 1];
        uint32_t before = rules->forbidden[at] - 1;
        if (before > answer)
            continue;
        if (before > 0 && memcmp(context->tokens + context->token_count - before, ids,
                                 before * sizeof(*ids)) != 0)
            continue;
        struct compute_edit *edit = edit_of(editor, ids[before]);
        if (edit != NULL)
            edit->add = -INFINITY;
    }
}

static void add_penalties(struct logit_editor *editor, const struct sampling *sampling,
                          const struct sample_context *context)
{
    bool counts = sampling->presence_penalty != 0.0f || sampling->frequency_penalty != 0.0f;
    bool repeats = sampling_has_repetition_penalty(sampling);
    for (uint32_t i = repeats ? 0 : context->prompt_count; i < context->token_count; i++) {
        struct compute_edit *edit = edit_of(editor, context->tokens[i]);
        if (edit == NULL)
            continue;
        edit->divide = repeats ? sampling->repetition_penalty : 1.0f;
        if (counts && i >= context->prompt_count)
            edit->subtract += 1.0f; /* The number of times, until the end of this function. */
    }
    for (uint32_t i = 0; i < editor->count && counts; i++) {
        struct compute_edit *edit = &editor->edits[i];
        if (edit->subtract > 0.0f)
            edit->subtract =
                sampling->frequency_penalty * edit->subtract + sampling->presence_penalty;
    }
}

static bool is_left(const struct logit_editor *editor, uint32_t id, const uint32_t *masked,
                    uint32_t masked_count)
{
    if (id >= editor->vocab ||
        (editor->places[id] != 0 && isinf(editor->edits[editor->places[id] - 1].add)))
        return false;
    for (uint32_t i = 0; i < masked_count; i++)
        if (masked[i] == id)
            return false;
    return true;
}

/* True if a token can still be drawn. */
static bool any_left(const struct logit_editor *editor, const struct token_rules *rules,
                     const uint32_t *masked, uint32_t masked_count)
{
    if (rules->allowed_count == 0 && editor->count + masked_count < editor->vocab)
        return true;
    uint32_t count = rules->allowed_count > 0 ? rules->allowed_count : editor->vocab;
    for (uint32_t i = 0; i < count; i++)
        if (is_left(editor, rules->allowed_count > 0 ? rules->allowed[i] : i, masked, masked_count))
            return true;
    return false;
}

void logit_edits_make(struct logit_editor *editor, const struct sampling *sampling,
                      const struct sample_context *context, const uint32_t *masked,
                      uint32_t masked_count, struct logit_edits *out)
{
    struct token_rules rules;
    struct error error;
    enum status status = token_rules_check(context->rules, context->rule_count, &rules, &error);
    assert(status == ST_OK); /* The decoder of the message has checked them. */
    add_biases(editor, &rules);
    add_forbidden(editor, &rules, context);
    if (!any_left(editor, &rules, masked, masked_count)) {
        rules.allowed_count = 0;
        editor_reset(editor);
        add_biases(editor, &rules);
    }
    add_penalties(editor, sampling, context);
    *out = (struct logit_edits){.edits = editor->edits,
                                .count = editor->count,
                                .allowed = rules.allowed,
                                .allowed_count = rules.allowed_count};
    editor_reset(editor);
}

static float clean(float logit)
{
    float low = logit > -FLT_MAX ? logit : -FLT_MAX; /* False for NaN. */
    return low < FLT_MAX ? low : FLT_MAX;
}

/* compute/cuda/sample.cuh has the same function: no operation may be fused with another. */
static float edited(float logit, const struct compute_edit *edit)
{
    float sum = clean(logit) + edit->add;
    float scaled = sum > 0.0f ? sum / edit->divide : sum * edit->divide;
    return scaled - edit->subtract;
}

void logit_edits_apply(const struct logit_edits *edits, const float *logits, uint32_t vocab,
                       float *edited_out)
{
    if (edits->allowed_count == 0)
        memcpy(edited_out, logits, vocab * sizeof(*edited_out));
    for (uint32_t i = 0; i < vocab && edits->allowed_count > 0; i++)
        edited_out[i] = -INFINITY;
    for (uint32_t i = 0; i < edits->allowed_count; i++)
        if (edits->allowed[i] < vocab)
            edited_out[edits->allowed[i]] = clean(logits[edits->allowed[i]]);
    for (uint32_t i = 0; i < edits->count; i++) {
        const struct compute_edit *edit = &edits->edits[i];
        if (edits->allowed_count == 0 || edited_out[edit->id] != -INFINITY)
            edited_out[edit->id] = edited(logits[edit->id], edit);
    }
}
