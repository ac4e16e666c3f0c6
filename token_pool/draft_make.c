/* draft_make: see the header. */
#include "token_pool/draft_make.h"

/* A draft that is being made. */
struct making {
    const struct draft_index *index;
    uint32_t *tokens;
    struct grammar_answer *answer; /* NULL = no constraint. */
    uint32_t count;                /* Known and drafted tokens. */
    uint32_t most;                 /* Tokens that may still be drafted. */
    bool has_source;
    struct draft_source source;
    uint32_t source_count; /* `count` when the source was found. */
};

static bool token_allowed(void *self, uint32_t token)
{
    return grammar_answer_allows(self, token);
}

static bool source_find(struct making *making)
{
    struct grammar_answer *answer = making->answer;
    making->source_count = making->count;
    making->has_source =
        draft_source_find(making->index, making->tokens, making->count,
                          answer != NULL ? grammar_answer_shape(answer) : 0, making->most,
                          answer != NULL ? token_allowed : NULL, answer, &making->source);
    return making->has_source;
}

static uint32_t source_token(const struct making *making)
{
    return draft_token_after(making->tokens, making->source.place, making->source_count,
                             making->count - making->source_count);
}

static enum sched_draft_class source_class(const struct making *making)
{
    const struct draft_source *source = &making->source;
    if (making->count - making->source_count < source->agreed)
        return SCHED_DRAFT_AGREED;
    if (source->has_shape && source->equal < DRAFT_MATCH_GOOD)
        return SCHED_DRAFT_SHAPE;
    return source->equal < DRAFT_MATCH_GOOD       ? SCHED_DRAFT_FEW
           : source->equal < DRAFT_MATCH_GOOD + 2 ? SCHED_DRAFT_SOME
           : source->equal < DRAFT_MATCH_GOOD + 6 ? SCHED_DRAFT_MANY
                                                  : SCHED_DRAFT_MOST;
}

/* Chooses the next token. Returns false if there is none. */
static bool token_choose(struct making *making, uint32_t *token_out,
                         enum sched_draft_class *class_out)
{
    struct grammar_answer *answer = making->answer;
    enum grammar_forced forced = GRAMMAR_FORCED_NONE;
    uint32_t forced_token = 0;
    if (answer != NULL)
        forced = grammar_answer_forced(answer, &forced_token);
    if (forced != GRAMMAR_FORCED_TOKEN) {
        if (making->has_source && answer != NULL &&
            !grammar_answer_allows(answer, source_token(making)))
            making->has_source = false;
        if (making->has_source || source_find(making)) {
            *token_out = source_token(making);
            *class_out = source_class(making);
            return true;
        }
    }
    *token_out = forced_token;
    *class_out = forced == GRAMMAR_FORCED_TOKEN ? SCHED_DRAFT_CERTAIN : SCHED_DRAFT_FORCED;
    if (making->has_source && source_token(making) != forced_token)
        making->has_source = false;
    return forced != GRAMMAR_FORCED_NONE;
}

void draft_make(const struct draft_index *index, uint32_t *tokens, struct grammar_answer *answer,
                uint32_t most, struct sched_draft *draft_out)
{
    struct making making = {
        .index = index, .tokens = tokens, .answer = answer, .count = index->count, .most = most};
    uint32_t token;
    enum sched_draft_class class;
    draft_out->count = 0;
    for (; making.most > 0 && token_choose(&making, &token, &class); making.most--) {
        if (answer != NULL && !grammar_answer_draft_add(answer, token))
            break;
        tokens[making.count++] = token;
        draft_out->classes[draft_out->count++] = (uint8_t) class;
    }
    if (answer != NULL)
        grammar_answer_draft_drop(answer);
}
