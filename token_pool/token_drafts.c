/* token_drafts: see the header. */
#include "token_pool/token_drafts.h"

#include "token_pool/token_state.h"

#include <assert.h>

/* A request that the draft model is behind by more tokens catches up in parts. */
#define BEHIND_TOKENS 32
/* Most final vectors that a request keeps: while a machine computes prompts, its draft layer does
 * not catch up. */
#define FINALS_MAX (2 * BEHIND_TOKENS + 1 + LIMIT_DRAFT_TOKENS)

static const struct sched_draft model_draft = {.count = 1, .classes = {SCHED_DRAFT_MODEL}};

/* What one job is made of. */
struct making {
    struct token_pool *pool;
    struct token_draft_job *job;
    uint32_t catch_up_left;
};

enum status token_drafts_open(struct token_pool *pool)
{
    const struct token_draft_model *model = &pool->options.draft_model;
    if (model->block_count == 0)
        return ST_OK;
    return draft_seats_open(
        &(struct draft_seats_options){.seat_count = pool->options.memory.slot_count,
                                      .block_count = model->block_count,
                                      .block_tokens = model->block_tokens},
        &pool->draft_seats);
}

void token_request_seat_take(struct token_pool *pool, struct token_request *request)
{
    const struct token_draft_model *model = &pool->options.draft_model;
    const uint32_t before = model->final_floats > 0 ? 0 : request->prompt_tokens;
    const uint32_t tokens = before + request->output_limit, most = model->context_tokens;
    if (pool->draft_seats == NULL || !draft_index_is_open(&request->draft_index) ||
        draft_seats_blocks_free(pool->draft_seats) == 0)
        return;
    request->draft_seat = draft_seats_take(pool->draft_seats, tokens < most ? tokens : most,
                                           token_slot_of(pool, request));
    if (model->final_floats > 0 && request->draft_seat != DRAFT_SEAT_NONE)
        draft_finals_open(&request->draft_finals, model->final_floats, FINALS_MAX);
    /* As often right as those of earlier answers. */
    request->draft_trust = pool->draft_trust;
    request->draft_trust.lost_steps = 0;
}

void token_request_seat_leave(struct token_pool *pool, struct token_request *request)
{
    if (request->draft_seat != DRAFT_SEAT_NONE)
        draft_seats_free(pool->draft_seats, request->draft_seat);
    request->draft_seat = DRAFT_SEAT_NONE;
    draft_finals_close(&request->draft_finals);
}

/* Only the tokens before `position` are computed. */
static void seat_cut(struct token_pool *pool, struct token_request *request, uint32_t position)
{
    const uint32_t first = request->draft_first;
    draft_seats_cut(pool->draft_seats, request->draft_seat,
                    position > first ? position - first : 0);
}

void token_request_finals_add(struct token_pool *pool, struct token_request *request,
                              uint32_t position, const float *finals, uint32_t count)
{
    if (request->draft_finals.vectors == NULL)
        return;
    if (!draft_finals_add(&request->draft_finals, position, finals, count))
        request->draft_first = position;
    /* Drafted tokens were computed from the draft layer's own final vectors. */
    seat_cut(pool, request, position);
}

void token_request_drafted_drop(struct token_pool *pool, struct token_request *request)
{
    request->draft_decided = false;
    request->draft_wanted_count = request->draft_generated_count = 0;
    /* KV of the accepted drafted tokens is kept. The latest token was drawn by the step. */
    if (request->draft_seat != DRAFT_SEAT_NONE)
        seat_cut(pool, request, request->prompt_tokens + request->generated - 1);
}

/* Returns the tokens of the context, with those that the draft model has generated. */
static uint32_t tokens_of(const struct token_request *request)
{
    return request->prompt_tokens + request->generated + request->draft_generated_count;
}

/* Returns how many tokens of the request the draft model can compute next. */
static uint32_t behind_of(const struct token_pool *pool, const struct token_request *request)
{
    if (pool->options.draft_model.final_floats > 0)
        return request->draft_finals.count;
    return tokens_of(request) - draft_seats_computed(pool->draft_seats, request->draft_seat);
}

/* Returns the most tokens that a draft of the model may have. */
static uint32_t most_of(const struct token_pool *pool, const struct token_request *request)
{
    const struct token_draft_model *model = &pool->options.draft_model;
    const uint32_t answers = pool->state_counts[TOKEN_DECODING], known = tokens_of(request);
    uint32_t most = token_request_draft_most(pool, request);
    /* A batch has this many rows for the drafts of each answer. */
    const uint32_t rows = model->step_rows / answers;
    const uint32_t room = model->context_tokens > known ? model->context_tokens - known : 0;
    most = rows > most ? most : rows > 0 ? rows - 1 : 0;
    return most < room ? most : room;
}

/* Decides once for each step how many tokens the draft model generates for the request. */
static void drafts_decide(struct token_pool *pool, struct token_request *request)
{
    struct sched_draft other = request->draft;
    if (request->draft_decided)
        return;
    other.count = request->draft_count;
    request->draft_decided = true;
    request->draft_wanted_count = sched_drafts_model_length(
        pool->options.drafts, &request->draft_trust, pool->state_counts[TOKEN_DECODING],
        most_of(pool, request), &other);
    if (request->draft_wanted_count == 0)
        sched_draft_trust_skip(&request->draft_trust, &model_draft);
}

/* Adds the request's next `rows` tokens to the job. Gives its seat up if there is no memory for
 * their KV, or if one of them is not in the draft model's vocabulary. */
static void item_add(struct making *making, struct token_request *request, uint32_t rows,
                     bool samples)
{
    struct token_pool *pool = making->pool;
    struct token_draft_job *job = making->job;
    struct token_draft_item *item = &job->items[job->item_count];
    const uint32_t computed = draft_seats_computed(pool->draft_seats, request->draft_seat);
    const uint32_t first = request->draft_first + computed;
    *item = (struct token_draft_item){
        .slot = token_slot_of(pool, request),
        .owner = request->owner,
        .tokens = request->tokens + first,
        .finals = request->draft_finals.vectors,
        .position = first,
        .kv_position = computed,
        .row_count = rows,
        .sampling = samples ? &request->sampling : NULL,
        .answer_index = request->generated + request->draft_generated_count,
        .answer = request->answer,
        .drafted = token_request_drafts(request),
        .drafted_count = request->draft_generated_count,
    };
    if (samples)
        item->context = token_request_context(request, request->draft_generated_count);
    bool known = true;
    for (uint32_t i = 0; i < rows; i++)
        known = known && item->tokens[i] < pool->options.draft_model.vocab;
    if (!known || !draft_seats_begin(pool->draft_seats, request->draft_seat, computed + rows,
                                     &item->blocks)) {
        token_request_seat_leave(pool, request);
        return;
    }
    job->item_count++;
    job->row_count += rows;
    job->catch_up_rows += samples ? 0 : rows;
}

/* Adds the step with which the draft model generates the request's next drafted token. */
static void step_add(struct making *making, struct token_request *request)
{
    const struct token_pool *pool = making->pool;
    const struct token_draft_model *model = &pool->options.draft_model;
    const uint32_t rows = behind_of(pool, request);
    if (request->draft_generated_count < request->draft_wanted_count && rows > 0 &&
        rows <= BEHIND_TOKENS && making->job->item_count < model->step_rows &&
        making->job->row_count + rows <= model->rows_max)
        item_add(making, request, rows, true);
}

/* Adds a part of the tokens with which the draft model has to catch up. */
static void catch_up_add(struct making *making, struct token_request *request)
{
    const struct token_pool *pool = making->pool;
    const struct token_draft_model *model = &pool->options.draft_model;
    const uint32_t computed = draft_seats_computed(pool->draft_seats, request->draft_seat);
    const uint32_t behind = behind_of(pool, request), room = model->context_tokens - computed;
    const bool decodes = request->state == TOKEN_DECODING;
    /* Final vectors are kept for a few tokens only, so their tokens are computed in any case. */
    const bool needed = request->draft_wanted_count > 0 || model->final_floats > 0;
    if (decodes && (!needed || behind <= BEHIND_TOKENS))
        return;
    /* The latest token of an answer is left to the step that draws the token after it. */
    uint32_t rows = behind - (decodes ? 1 : 0);
    rows = rows < room ? rows : room;
    rows = rows < making->catch_up_left ? rows : making->catch_up_left;
    if (rows == 0 || making->job->item_count == model->step_rows ||
        making->job->row_count + rows > model->rows_max)
        return;
    making->catch_up_left -= rows;
    item_add(making, request, rows, false);
}

static void add_each(struct making *making, enum token_request_state state,
                     void (*add)(struct making *making, struct token_request *request))
{
    uint32_t slot;
    const struct draft_seats *seats = making->pool->draft_seats;
    for (draft_seat seat = draft_seats_next(seats, 1, &slot); seat != DRAFT_SEAT_NONE;
         seat = draft_seats_next(seats, seat + 1, &slot)) {
        struct token_request *request = token_request_of(making->pool, slot);
        if (request->state == state)
            add(making, request);
    }
}

static void decide_add(struct making *making, struct token_request *request)
{
    drafts_decide(making->pool, request);
    step_add(making, request);
}

/* Returns true if the draft model should compute the tokens of requests that await their KV. */
static bool prepares(struct token_pool *pool)
{
    const uint32_t decoding = pool->state_counts[TOKEN_DECODING];
    if (pool->state_counts[TOKEN_RESERVED] == 0 || pool->options.draft_model.final_floats > 0)
        return false;
    if (sched_drafts_model_length(pool->options.drafts, &pool->draft_trust,
                                  decoding > 0 ? decoding : 1, pool->options.memory.draft_tokens,
                                  NULL) > 0)
        return true;
    sched_draft_trust_skip(&pool->draft_trust, &model_draft);
    return false;
}

bool token_pool_drafts_next(struct token_pool *pool, uint32_t catch_up_rows_max,
                            struct token_draft_job *out)
{
    struct making making = {.pool = pool, .job = out, .catch_up_left = catch_up_rows_max};
    out->item_count = out->row_count = out->catch_up_rows = 0;
    add_each(&making, TOKEN_DECODING, decide_add);
    add_each(&making, TOKEN_DECODING, catch_up_add);
    if (prepares(pool))
        add_each(&making, TOKEN_RESERVED, catch_up_add);
    return out->item_count > 0;
}

/* The draft model has generated the request's next token, from this final vector. A token that the
 * answer cannot have ends the draft. */
static void drafted_add(struct token_pool *pool, struct token_request *request, uint32_t id,
                        const float *final)
{
    const uint32_t made = request->draft_generated_count;
    uint32_t *drafted = &token_request_drafts(request)[made];
    const uint32_t other = *drafted; /* Perhaps of another draft, which then stays. */
    *drafted = id;
    if (id >= pool->options.vocab || !token_request_draft_allowed(request, made + 1)) {
        *drafted = other;
        request->draft_wanted_count = made;
        return;
    }
    draft_finals_add(&request->draft_finals, tokens_of(request), final, 1);
    request->draft_generated_count = request->draft_count = request->draft.count = made + 1;
    request->draft.classes[made] = SCHED_DRAFT_MODEL;
    sched_machine_draft_set(pool->options.sched, token_slot_of(pool, request), made + 1);
}

void token_pool_drafts_done(struct token_pool *pool, const struct token_draft_job *job,
                            const uint32_t *ids, const float *finals)
{
    const size_t floats = pool->options.draft_model.final_floats;
    draft_seats_job_done(pool->draft_seats);
    for (uint32_t i = 0; i < job->item_count; i++) {
        const struct token_draft_item *item = &job->items[i];
        if (!sched_slots_used(pool->slots, item->slot))
            continue;
        struct token_request *request = token_request_of(pool, item->slot);
        if (request->owner != item->owner)
            continue;
        if (request->draft_finals.vectors != NULL)
            draft_finals_drop(&request->draft_finals, item->row_count);
        if (item->sampling != NULL && request->state == TOKEN_DECODING)
            drafted_add(pool, request, ids[i], floats > 0 ? finals + i * floats : NULL);
    }
}
