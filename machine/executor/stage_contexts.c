/* stage_contexts: see the header. */
#include "machine/executor/stage_contexts.h"

#include "common/token_rules.h"

#include <stdlib.h>
#include <string.h>

struct stage_contexts {
    struct context {
        uint32_t *words;
        uint32_t count;
        uint32_t capacity;
    } tables[LIMIT_MACHINE_REQUESTS];
};

static void context_free(struct context *context)
{
    free(context->words);
    *context = (struct context){0};
}

/* Answers grow word by word, so the memory doubles. */
static enum status context_grow(struct context *context, uint32_t count, struct error *error)
{
    if (count <= context->capacity)
        return ST_OK;
    uint32_t capacity = context->capacity < 256 ? 256 : context->capacity;
    while (capacity < count)
        capacity *= 2;
    uint32_t *words = realloc(context->words, capacity * sizeof(*words));
    if (words == NULL)
        return error_set(error, ST_NO_MEMORY, "CONTEXT: no memory for %u words", capacity);
    context->words = words;
    context->capacity = capacity;
    return ST_OK;
}

enum status stage_contexts_add(struct stage_contexts **contexts,
                               const struct stage_context *message, struct error *error)
{
    if (*contexts == NULL)
        *contexts = calloc(1, sizeof(**contexts));
    if (*contexts == NULL)
        return error_set(error, ST_NO_MEMORY, "CONTEXT: out of memory");
    struct context *context = &(*contexts)->tables[message->table];
    if (message->known_words == 0)
        context_free(context);
    if (message->known_words > context->count)
        return error_set(error, ST_INVALID, "CONTEXT: %u known words of table %u: %u are here",
                         message->known_words, message->table, context->count);
    enum status status = context_grow(context, message->known_words + message->new_words, error);
    if (status != ST_OK)
        return status;
    if (message->new_words > 0)
        memcpy(context->words + message->known_words, message->words,
               message->new_words * sizeof(uint32_t));
    context->count = message->known_words + message->new_words;
    return ST_OK;
}

enum status stage_contexts_words(struct stage_contexts *contexts, const struct stage_sample *sample,
                                 struct sample_context *out, struct error *error)
{
    struct context *context = contexts != NULL ? &contexts->tables[sample->table] : NULL;
    struct token_rules rules;
    *out = (struct sample_context){0};
    if (sample->word_count == 0) {
        if (context != NULL)
            context_free(context);
        return ST_OK;
    }
    if (context == NULL || sample->word_count > context->count)
        return error_set(error, ST_INVALID, "JOB: %u words of table %u: %u are here",
                         sample->word_count, sample->table, context != NULL ? context->count : 0);
    uint32_t tokens = sample->word_count - sample->rule_count;
    if (sample->rule_count > sample->word_count || sample->prompt_count > tokens)
        return error_set(error, ST_INVALID, "JOB: %u words of rules and %u of the prompt, of %u",
                         sample->rule_count, sample->prompt_count, sample->word_count);
    *out = (struct sample_context){.rules = context->words,
                                   .rule_count = sample->rule_count,
                                   .tokens = context->words + sample->rule_count,
                                   .token_count = tokens,
                                   .prompt_count = sample->prompt_count};
    return token_rules_check(out->rules, out->rule_count, &rules, error);
}

void stage_contexts_close(struct stage_contexts *contexts)
{
    for (uint32_t i = 0; i < LIMIT_MACHINE_REQUESTS && contexts != NULL; i++)
        free(contexts->tables[i].words);
    free(contexts);
}
