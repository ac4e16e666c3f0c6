/* machine_batch: converts a batch of the scheduler to rows, block tables and sampling rules, has
 * the executor compute it, and hands the tokens to the request tables. The next batch starts before
 * the tokens of the last one are sent (machine_turn). */
#include "machine/state.h"

#include "machine/answer.h"

#include "common/log.h"
#include "host/batch_record.h"
#include "host/turns.h"
#include "scheduler/options.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static enum status batch_open(const struct machine *m, struct machine_batch *batch)
{
    uint32_t sequences = m->shape.sequences_max;
    batch->token_ids = calloc(m->shape.rows_max, sizeof(batch->token_ids[0]));
    batch->sequences = calloc(sequences, sizeof(batch->sequences[0]));
    batch->samples = calloc(sequences, sizeof(batch->samples[0]));
    batch->picks = calloc(sequences, sizeof(batch->picks[0]));
    batch->scores = calloc(sequences, sizeof(batch->scores[0]));
    batch->score_items = calloc(sequences, sizeof(batch->score_items[0]));
    batch->score_results = calloc(m->shape.rows_max, sizeof(batch->score_results[0]));
    batch->pooled = calloc(sequences, sizeof(batch->pooled[0]));
    batch->sampling = calloc(sequences, sizeof(batch->sampling[0]));
    batch->output_limits = calloc(sequences, sizeof(batch->output_limits[0]));
    batch->indices = calloc(sequences, sizeof(batch->indices[0]));
    batch->request_slots = calloc(sequences, sizeof(batch->request_slots[0]));
    batch->owners = calloc(sequences, sizeof(batch->owners[0]));
    batch->pushes = calloc(sequences, sizeof(batch->pushes[0]));
    const uint32_t floats = machine_draft_final_floats(m);
    if (floats > 0)
        batch->finals = calloc((size_t)sequences * floats, sizeof(batch->finals[0]));
    bool good = batch->token_ids != NULL && batch->sequences != NULL && batch->samples != NULL &&
                batch->picks != NULL && batch->scores != NULL && batch->score_items != NULL &&
                batch->score_results != NULL && batch->pooled != NULL && batch->sampling != NULL &&
                batch->output_limits != NULL && batch->indices != NULL &&
                batch->request_slots != NULL && batch->owners != NULL && batch->pushes != NULL &&
                (floats == 0 || batch->finals != NULL);
    return good ? ST_OK : ST_NO_MEMORY;
}

static void batch_close(struct machine_batch *batch)
{
    free(batch->token_ids);
    free(batch->sequences);
    free(batch->samples);
    free(batch->picks);
    free(batch->scores);
    free(batch->score_items);
    free(batch->score_results);
    free(batch->pooled);
    free(batch->sampling);
    free(batch->output_limits);
    free(batch->indices);
    free(batch->request_slots);
    free(batch->owners);
    free(batch->pushes);
    free(batch->finals);
}

enum status machine_batch_open(struct machine *m)
{
    m->batch_count = stage_plan_slot_count(&m->shape.plan);
    m->batches = calloc(m->batch_count, sizeof(m->batches[0]));
    enum status status = m->batches != NULL ? ST_OK : ST_NO_MEMORY;
    for (uint32_t i = 0; i < m->batch_count && status == ST_OK; i++)
        status = batch_open(m, &m->batches[i]);
    return status;
}

void machine_batch_close(struct machine *m)
{
    for (uint32_t i = 0; i < m->batch_count && m->batches != NULL; i++)
        batch_close(&m->batches[i]);
    free(m->batches);
}

void machine_batch_abandon(struct machine *m)
{
    uint32_t index;
    for (uint32_t path = 0; m->sched != NULL && path < m->shape.plan.paths.path_count; path++)
        while (sched_machine_batch_oldest(m->sched, path, &index))
            sched_machine_batch_done(m->sched, index);
}

bool machine_batch_in_flight(const struct machine *m)
{
    uint32_t index;
    bool any = false;
    for (uint32_t path = 0; path < m->shape.plan.paths.path_count; path++)
        any |= sched_machine_batch_oldest(m->sched, path, &index);
    return any;
}

/* The masks of one batch on a machine with stages travel in one message. */
#define MASKS_BYTES_MAX (LIMIT_MESSAGE_BYTES / 2)

/* Returns false if the batch has no room for the mask of another sample. Masks of samples that are
 * drawn after drafted tokens leave room for one mask of each item. */
static bool mask_fits(const struct machine *m, struct machine_batch *batch, bool drafted)
{
    const size_t bytes = GRAMMAR_MASK_WORDS(m->shape.hyper.vocab) * sizeof(uint32_t);
    const size_t kept = drafted ? batch->items.item_count * bytes : 0;
    if (m->executor->pushes_kv && batch->mask_bytes + bytes + kept > MASKS_BYTES_MAX)
        return false;
    batch->mask_bytes += bytes;
    return true;
}

/* Sets the tokens that the sample may give, if its answer has a constraint. drafted = the sample is
 * drawn after drafted tokens, and is not used if there is no mask for it: the next step draws it
 * again. Returns what happens with the token. */
static enum machine_pick_use constrain_sample(struct machine *m, struct machine_batch *batch,
                                              struct engine_sample *sample,
                                              struct grammar_answer *answer, bool drafted)
{
    enum status status;
    struct error error;
    if (answer == NULL)
        return MACHINE_PICK_SAMPLED;
    if (mask_fits(m, batch, drafted))
        status = grammar_answer_mask(answer, sample->choice.sampling.end_tokens,
                                     sample->choice.sampling.end_count, &sample->allowed, &error);
    else
        status = error_set(&error, ST_NO_RESOURCE, "too many constrained answers in one batch");
    if (status == ST_OK)
        return MACHINE_PICK_SAMPLED;
    sample->allowed = NULL;
    if (!drafted)
        log_warn("a constrained answer ends: %s", error.text);
    return drafted ? MACHINE_PICK_UNUSED : MACHINE_PICK_ENDS;
}

/* Returns true if the answer's constraint allows only *token_out, and nothing but the token is
 * wanted of its row: log-probabilities need the logits, and a draft layer needs the final vector.
 * Where the request has rules about tokens, sampling decides. */
static bool token_certain(const struct machine_batch *batch, const struct sampling *sampling,
                          const struct sample_context *context, struct grammar_answer *answer,
                          uint32_t *token_out)
{
    return answer != NULL && sampling->logprobs < 0 && batch->finals == NULL &&
           !logit_edits_wanted(context) &&
           grammar_answer_forced(answer, token_out) == GRAMMAR_FORCED_TOKEN &&
           !answer_token_ends(sampling, *token_out);
}

/* Adds the token that row `row` gives. `later` = tokens of the answer between the item's next one
 * and this one. */
static void add_pick(struct machine *m, struct machine_batch *batch, uint32_t item, uint32_t later,
                     uint32_t row, uint32_t position, const struct sample_context *context,
                     struct grammar_answer *answer)
{
    const struct sampling *sampling = batch->sampling[item];
    struct machine_pick *pick = &batch->picks[batch->pick_count++];
    *pick = (struct machine_pick){.item = item, .sample = batch->job.sample_count};
    if (token_certain(batch, sampling, context, answer, &pick->token)) {
        pick->use = MACHINE_PICK_CERTAIN;
        return;
    }
    struct engine_sample *sample = &batch->samples[batch->job.sample_count++];
    answer_sample_fill(sampling, m->shape.hyper.vocab, batch->indices[item] + later, row, position,
                       sample);
    sample->context = *context;
    pick->use = constrain_sample(m, batch, sample, answer, later > 0);
}

static void add_prompt(struct machine *m, struct machine_batch *batch, uint32_t index,
                       struct compute_sequence *sequence)
{
    const struct sched_batch_item *item = &batch->items.items[index];
    uint32_t row = sequence->first_row;
    struct prompt_chunk chunk;
    prompt_pool_chunk_begin(m->prompt_pool, item, m->now_us, &chunk);
    memcpy(batch->token_ids + row, chunk.token_ids, item->token_count * sizeof(uint32_t));
    sequence->first_position = chunk.first_token;
    sequence->adapter = chunk.sampling->adapter;
    sequence->blocks = chunk.blocks;
    sequence->group_stride = chunk.group_stride;
    batch->owners[index] = chunk.owner;
    batch_record_add(m->options.batch_record, batch->items.index, chunk.request);
    batch->pushes[index] = chunk.push;
    batch->sampling[index] = chunk.sampling;
    batch->output_limits[index] = chunk.output_limit;
    batch->indices[index] = 0;
    batch->job.report_layers |= chunk.layerwise;
    if (chunk.samples_token)
        add_pick(m, batch, index, 0, row + item->token_count - 1,
                 chunk.first_token + item->token_count, &chunk.context, chunk.answer);
    if (chunk.pooled_count > 0)
        batch->pooled[batch->job.pooled_count++] =
            (struct engine_pooled){.first_row = row + chunk.pooled_first,
                                   .row_count = chunk.pooled_count,
                                   .sum = chunk.pooled_sum};
    if (chunk.score_count == 0)
        return;
    uint32_t at = batch->job.score_count++;
    batch->score_items[at] = index;
    batch->scores[at] = (struct engine_score){
        .first_row = row,
        .row_count = chunk.score_count,
        .next_ids = chunk.token_ids + 1, /* the token after each row in the prompt */
        .logprobs = chunk.sampling->logprobs,
        .results = batch->score_results + row,
    };
}

/* Returns the final vector of the row of a pick; NULL = the machine has no draft layer. (With a
 * draft layer, pick i is sampled by sample i.) */
static float *final_of(const struct machine *m, const struct machine_batch *batch, uint32_t pick)
{
    return batch->finals != NULL ? batch->finals + (size_t)pick * machine_draft_final_floats(m)
                                 : NULL;
}

/* Adds a decode step. A step with drafted tokens has a row for each of them, and every row gives a
 * token; token_pool_decode_done knows which of them count. */
static void add_decode(struct machine *m, struct machine_batch *batch, uint32_t index,
                       struct compute_sequence *sequence)
{
    struct token_decode row;
    const uint32_t drafted = sequence->row_count - 1;
    token_pool_decode_begin(m->token_pool, batch->items.items[index].slot, m->now_us, &row);
    batch->token_ids[sequence->first_row] = row.input_id;
    if (drafted > 0)
        memcpy(batch->token_ids + sequence->first_row + 1, row.draft, drafted * sizeof(uint32_t));
    sequence->first_position = row.position;
    sequence->adapter = row.sampling->adapter;
    sequence->blocks = row.blocks;
    sequence->group_stride = row.group_stride;
    batch->owners[index] = row.owner;
    batch_record_add(m->options.batch_record, batch->items.index, row.request);
    batch->pushes[index].span_count = 0;
    batch->sampling[index] = row.sampling;
    batch->output_limits[index] = row.output_limit;
    batch->indices[index] = row.answer_index;
    bool allowed = true; /* The constraint allows the drafted tokens so far. */
    for (uint32_t i = 0; i <= drafted; i++) {
        if (row.answer != NULL && i > 0 && allowed)
            allowed = grammar_answer_draft_add(row.answer, row.draft[i - 1]);
        add_pick(m, batch, index, i, sequence->first_row + i, row.position + 1 + i, &row.context,
                 allowed ? row.answer : NULL);
        if (!allowed)
            batch->picks[batch->pick_count - 1].use = MACHINE_PICK_UNUSED;
        else if (batch->finals != NULL)
            batch->samples[batch->job.sample_count - 1].final =
                final_of(m, batch, batch->pick_count - 1);
        row.context.token_count += row.context.token_count > 0 ? 1 : 0;
    }
    if (row.answer != NULL)
        grammar_answer_draft_drop(row.answer);
}

uint32_t machine_turn_us(const struct machine *m, bool prompts)
{
    const struct config *config = m->options.config;
    if (config->scheduler.turn_ms != CONFIG_AUTO)
        return (prompts ? 1 : SCHED_DECODE_TURNS) * config->scheduler.turn_ms * 1000;
    const struct sched_pace_targets targets = sched_pace_targets_make(config);
    return sched_pace_turn_us(&m->pace, &targets, prompts,
                              (double)turns_other_steps_us(m->options.turns));
}

/* Notes the open prompts, and limits the prompts of batches that also decode (a machine with stages
 * has micro-batches instead). The pool gets the measured time of a prompt's token. */
static void pace_prompts(struct machine *m)
{
    struct sched_machine_load load;
    sched_machine_load(m->sched, &load);
    sched_pace_open_add(&m->pace, load.prompt_tokens_open, m->now_us);
    m->pace_limits =
        sched_pace_limits_apply(m->options.config, &m->pace, m->batch_count > 1, m->sched);
    prompt_pool_token_us_set(m->prompt_pool, m->pace.prompt_token_us);
}

/* Converts the scheduler's items to the engine's input. */
static void batch_fill(struct machine *m, struct machine_batch *batch)
{
    const struct sched_batch *items = &batch->items;
    assert(items->row_count <= m->shape.rows_max && items->item_count <= m->shape.sequences_max);
    batch->job = (struct engine_job){
        .token_ids = batch->token_ids,
        .batch = {.row_count = items->row_count,
                  .sequence_count = items->item_count,
                  .sequences = batch->sequences},
        .samples = batch->samples,
        .scores = batch->scores,
        .pooled = batch->pooled,
    };
    uint32_t row = 0;
    batch->has_prompts = false;
    batch->pick_count = 0;
    batch->mask_bytes = 0;
    for (uint32_t i = 0; i < items->item_count; i++) {
        const struct sched_batch_item *item = &items->items[i];
        struct compute_sequence *sequence = &batch->sequences[i];
        *sequence = (struct compute_sequence){.first_row = row, .row_count = item->token_count};
        batch->request_slots[i] = item->slot;
        if (item->is_prompt)
            add_prompt(m, batch, i, sequence);
        else
            add_decode(m, batch, i, sequence);
        batch->has_prompts |= item->is_prompt;
        row += item->token_count;
    }
    batch->job.turn_us = machine_turn_us(m, batch->has_prompts);
    if (batch->has_prompts)
        m->prompt_turn_us = batch->job.turn_us;
}

/* Returns the path's next batch; NULL = none. */
static struct machine_batch *batch_next(struct machine *m, uint32_t path)
{
    const struct config *config = m->options.config;
    pace_prompts(m);
    prompt_pool_prefixes_enter(m->prompt_pool, path, config->scheduler.prompt_batch_tokens);
    bool any = sched_machine_batch_next(m->sched, path, kv_pool_available(m->kv), &m->next_batch);
    prompt_pool_prefixes_leave(m->prompt_pool);
    if (!any)
        return NULL;
    struct machine_batch *batch = &m->batches[m->next_batch.index];
    const int64_t filled_from_us = clock_now_us(m->options.clock);
    batch->items = m->next_batch;
    grammar_cache_batch_begin(m->grammars);
    batch_fill(m, batch);
    batch->started_us = clock_now_us(m->options.clock);
    batch->fill_us = (uint64_t)(batch->started_us - filled_from_us);
    m->stats_changed = true;
    return batch;
}

/* Starts as many batches as the executor and the scheduler allow, on each path in turn. */
static void start_batches(struct machine *m)
{
    struct executor *executor = m->executor;
    struct machine_batch *batch;
    for (uint32_t path = 0; path < m->shape.plan.paths.path_count; path++) {
        while (executor->ops->can_start(executor) && (batch = batch_next(m, path)) != NULL) {
            const struct executor_batch job = {
                .slot = batch->items.index,
                .path = path,
                .job = &batch->job,
                .request_slots = batch->request_slots,
                .owners = batch->owners,
                .pushes = batch->pushes,
            };
            executor->ops->start(executor, &job);
            m->sends_queued |= executor->queues_messages;
            if (executor->ops->can_start(executor))
                token_pool_answers_grow(m->token_pool);
        }
    }
}

/* True if the batch has only prompts that are stopped. (The answer of a decode is kept in the
 * prefix cache even if the request is stopped, so it must be computed.) */
static bool is_unwanted(const struct machine *m, const struct machine_batch *batch)
{
    for (uint32_t i = 0; i < batch->items.item_count; i++)
        if (!batch->items.items[i].is_prompt ||
            !prompt_pool_is_stopped(m->prompt_pool, batch->items.items[i].slot))
            return false;
    return true;
}

void machine_batch_abandon_unwanted(struct machine *m)
{
    const struct executor_ops *ops = m->executor->ops;
    uint32_t index;
    if (!prompt_pool_stops_take(m->prompt_pool) || ops->abandon == NULL)
        return;
    for (uint32_t path = 0; path < m->shape.plan.paths.path_count; path++)
        if (sched_machine_batch_oldest(m->sched, path, &index) &&
            is_unwanted(m, &m->batches[index]))
            ops->abandon(m->executor, index);
}

void machine_batch_start(struct machine *m)
{
    sched_machine_time_set(m->sched, m->now_us);
    token_pool_answers_grow(m->token_pool);
    token_pool_waiting_grant(m->token_pool, m->now_us);
    if (!machine_batch_in_flight(m) && machine_draft_turn(m))
        return;
    start_batches(m);
    machine_draft_catch_up_allow(m);
    if (!machine_batch_in_flight(m) && machine_draft_turn(m))
        return;
    token_pool_deadlock_break(
        m->token_pool, prompt_pool_holder_count(m->prompt_pool) + machine_tiers_holder_count(m),
        m->now_us);
}

static void report_scores(struct machine *m, const struct machine_batch *batch)
{
    struct message_token token;
    for (uint32_t i = 0; i < batch->job.score_count; i++) {
        const struct engine_score *score = &batch->scores[i];
        const struct sched_batch_item *item = &batch->items.items[batch->score_items[i]];
        for (uint32_t row = 0; row < score->row_count; row++) {
            answer_score_fill(item->first_token + row + 1, &score->results[row], &token);
            token.id = score->next_ids[row];
            prompt_pool_score_add(m->prompt_pool, item->slot, &token);
        }
        /* Before the next request's scores: the request table collects the scores of one request at
         * a time. */
        prompt_pool_scores_end(m->prompt_pool, item->slot);
    }
}

/* `us`: time of the batch, used if the executor does not know the time of the job. */
static void pace_add(struct machine *m, const struct machine_batch *batch, uint64_t us)
{
    uint32_t decodes = 0; /* Rows of decodes. */
    if (batch->job.used_us > 0)
        us = batch->job.used_us;
    for (uint32_t i = 0; i < batch->items.item_count; i++)
        decodes += batch->items.items[i].is_prompt ? 0 : batch->items.items[i].token_count;
    sched_pace_batch_add(&m->pace, decodes, batch->items.row_count - decodes, us);
    if (batch->has_prompts)
        return;
    turns_step_us_set(m->options.turns, (uint32_t)m->pace.step_us);
    sched_drafts_step_add(&m->drafts.steps, batch->items.row_count, us + batch->fill_us);
}

static void stats_add(struct machine *m, const struct machine_batch *batch, uint64_t us)
{
    m->stats.prompt_batches += batch->has_prompts ? 1 : 0;
    m->stats.token_batches += batch->has_prompts ? 0 : 1;
    m->stats.prompt_batch_rows += batch->has_prompts ? batch->items.row_count : 0;
    m->stats.prompt_batch_us += batch->has_prompts ? us : 0;
    m->stats.token_batch_us += batch->has_prompts ? 0 : us;
}

/* A batch of stopped prompts (machine_batch_abandon_unwanted) that has ended early has no
 * results. */
static void abandoned_take(struct machine *m, const struct machine_batch *batch)
{
    sched_machine_batch_done(m->sched, batch->items.index);
    for (uint32_t i = 0; i < batch->items.item_count; i++)
        prompt_pool_chunk_abandoned(m->prompt_pool, &batch->items.items[i]);
}

/* Fills the tokens of item `index`, whose first pick is `first`, up to a pick that is not used.
 * Returns their number: 0 for a chunk of a long prompt, more than 1 for a decode with drafted
 * tokens. */
static uint32_t tokens_fill(const struct machine_batch *batch, uint32_t index, uint32_t first,
                            struct message_token tokens[1 + LIMIT_DRAFT_TOKENS])
{
    uint32_t count = 0;
    for (uint32_t at = first; at < batch->pick_count && batch->picks[at].item == index; at++) {
        const struct machine_pick *pick = &batch->picks[at];
        const struct sampled certain = {.id = pick->token};
        if (pick->use == MACHINE_PICK_UNUSED)
            break;
        answer_token_fill(
            batch->sampling[index], batch->output_limits[index], batch->indices[index] + count,
            pick->use == MACHINE_PICK_CERTAIN ? &certain : &batch->samples[pick->sample].result,
            &tokens[count]);
        if (pick->use == MACHINE_PICK_ENDS)
            tokens[count].finish = FINISH_CONSTRAINT;
        count++;
    }
    return count;
}

/* Hands the results to the request tables. The rest of the prompts' KV is pushed after the first
 * token has been sent (prompt_pool_results_send). The picks are in the order of the items; some items
 * (chunks of a long prompt) have none. */
void machine_batch_done(void *self, uint32_t slot)
{
    struct machine *m = self;
    struct machine_batch *batch = &m->batches[slot];
    uint32_t picked = 0, taken = 0;
    m->stats_changed = true;
    batch_record_end(m->options.batch_record, slot);
    if (batch->job.abandoned) {
        abandoned_take(m, batch);
        return;
    }
    uint64_t us = (uint64_t)(clock_now_us(m->options.clock) - batch->started_us);
    stats_add(m, batch, us);
    pace_add(m, batch, us);
    sched_machine_batch_done(m->sched, batch->items.index);
    report_scores(m, batch);
    for (uint32_t i = 0; i < batch->items.item_count; i++) {
        const struct sched_batch_item *item = &batch->items.items[i];
        struct message_token tokens[1 + LIMIT_DRAFT_TOKENS];
        const float *finals = final_of(m, batch, picked);
        uint32_t count = tokens_fill(batch, i, picked, tokens);
        while (picked < batch->pick_count && batch->picks[picked].item == i)
            picked++;
        if (item->is_prompt)
            prompt_pool_chunk_done(m->prompt_pool, item, count > 0 ? tokens : NULL, m->now_us);
        else
            taken +=
                token_pool_decode_done(m->token_pool, item->slot, tokens, finals, count, m->now_us);
    }
    m->stats.token_batch_rows += batch->has_prompts ? 0 : taken;
}

void machine_batch_layers(void *self, uint32_t layers)
{
    struct machine *m = self;
    prompt_pool_layers_done(m->prompt_pool, layers, m->now_us);
    m->sends_queued = true;
}
