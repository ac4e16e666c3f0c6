/* pipeline_job: batches on their way through the stages. All stage processes of the path get the
 * job at once; token ids go to the first stage only, sampling rules to the last. A batch is done
 * when all processes that send their activations to no other process have reported DONE. Then every
 * process has finished the batch, and its batch slot is free. */
#include "machine/executor/pipeline_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status pipeline_jobs_open(struct pipeline *p)
{
    const struct machine_shape *shape = p->options.shape;
    uint32_t sequences = shape->sequences_max;
    for (uint32_t path = 0; path < p->plan->paths.path_count; path++) {
        p->path_processes[path] = stage_plan_processes(p->plan, path);
        p->path_done_senders[path] = stage_plan_done_senders(p->plan, path);
    }
    p->tables = calloc(LIMIT_MACHINE_REQUESTS, sizeof(p->tables[0]));
    p->sequences = calloc(sequences, sizeof(p->sequences[0]));
    p->samples = calloc(sequences, sizeof(p->samples[0]));
    p->scores = calloc(sequences, sizeof(p->scores[0]));
    p->pooled = calloc(sequences, sizeof(p->pooled[0]));
    p->pushes = calloc(sequences, sizeof(p->pushes[0]));
    p->score_ids = calloc(shape->rows_max, sizeof(p->score_ids[0]));
    bool good = p->tables != NULL && p->sequences != NULL && p->samples != NULL &&
                p->scores != NULL && p->pooled != NULL && p->pushes != NULL && p->score_ids != NULL;
    return good ? ST_OK : ST_NO_MEMORY;
}

void pipeline_jobs_close(struct pipeline *p)
{
    free(p->tables);
    free(p->sequences);
    free(p->samples);
    free(p->scores);
    free(p->pooled);
    free(p->pushes);
    free(p->score_ids);
    free(p->masks);
    free(p->blocks);
    free(p->target_blocks);
    free(p->words);
}

/* Grows the array to `count` numbers. Returns false when there is no memory. */
static bool numbers_grow(uint32_t **numbers, uint32_t *capacity, uint32_t count)
{
    if (count <= *capacity)
        return true;
    uint32_t larger = *capacity < 1024 ? 1024 : *capacity;
    while (larger < count)
        larger *= 2;
    uint32_t *moved = realloc(*numbers, larger * sizeof(uint32_t));
    if (moved == NULL)
        return false;
    *numbers = moved;
    *capacity = larger;
    return true;
}

/* Adds the sequences with the part of each block table that the stages do not know. */
static bool job_add_sequences(struct pipeline *p, const struct executor_batch *batch,
                              struct stage_job *job)
{
    const struct compute_batch *rows = &batch->job->batch;
    const struct kv_arena *arena = &p->options.shape->arena;
    const uint32_t groups = layer_groups_count(&arena->groups);
    for (uint32_t i = 0; i < rows->sequence_count; i++) {
        const struct compute_sequence *s = &rows->sequences[i];
        struct pipeline_table *table = &p->tables[batch->request_slots[i]];
        uint32_t needed = layer_groups_spans(s->first_position + s->row_count, arena->block_tokens);
        if (table->owner != batch->owners[i])
            *table = (struct pipeline_table){.owner = batch->owners[i]};
        uint32_t fresh = needed > table->known_spans ? needed - table->known_spans : 0;
        p->sequences[i] = (struct stage_sequence){
            .table = batch->request_slots[i],
            .row_count = s->row_count,
            .first_position = s->first_position,
            .known_spans = table->known_spans,
            .block_count = groups * fresh,
            .adapter = s->adapter,
        };
        if (!numbers_grow(&p->blocks, &p->block_capacity, job->block_count + groups * fresh))
            return false;
        for (uint32_t group = 0; group < groups && fresh > 0; group++)
            memcpy(p->blocks + job->block_count + group * fresh,
                   s->blocks + (size_t)group * s->group_stride + table->known_spans,
                   fresh * sizeof(uint32_t));
        job->block_count += groups * fresh;
        table->known_spans += fresh;
    }
    job->sequence_count = rows->sequence_count;
    job->sequences = p->sequences;
    job->blocks = p->blocks;
    return true;
}

static bool job_add_pushes(struct pipeline *p, const struct executor_batch *batch,
                           struct stage_job *job)
{
    const uint32_t groups = layer_groups_count(&p->options.shape->arena.groups);
    for (uint32_t i = 0; i < batch->job->batch.sequence_count; i++) {
        const struct prompt_push *push = &batch->pushes[i];
        const uint32_t ids = groups * push->span_count;
        if (push->span_count == 0)
            continue;
        if (!numbers_grow(&p->target_blocks, &p->target_capacity, job->target_count + ids))
            return false;
        p->pushes[job->push_count++] = (struct stage_push){
            .cookie = push->cookie,
            .request = push->request.id,
            .generation = push->request.generation,
            .target = push->target,
            .target_serial = p->targets[push->target].serial,
            .sequence = i,
            .first_span = push->first_span,
            .span_count = push->span_count,
            .full_first = push->full_first,
            .window_first = push->window_first,
            .target_count = ids,
            .path = (uint8_t)push->path,
            .layerwise = push->layerwise,
            .is_last = push->is_last,
        };
        for (uint32_t group = 0; group < groups; group++)
            memcpy(p->target_blocks + job->target_count + group * push->span_count,
                   push->blocks + (size_t)group * push->stride + push->first_span,
                   push->span_count * sizeof(uint32_t));
        job->target_count += ids;
    }
    job->pushes = p->pushes;
    job->targets = p->target_blocks;
    return true;
}

/* Returns the request slot of the sequence that has the row. */
static uint32_t slot_of_row(const struct executor_batch *batch, uint32_t row)
{
    const struct compute_batch *rows = &batch->job->batch;
    uint32_t i = 0;
    while (i + 1 < rows->sequence_count && rows->sequences[i + 1].first_row <= row)
        i++;
    return batch->request_slots[i];
}

/* Appends the mask of a sample. Returns false if memory runs out. */
static bool job_add_mask(struct pipeline *p, const uint32_t *allowed, struct stage_job *job)
{
    const uint32_t words = (p->options.shape->hyper.vocab + 31) / 32;
    if (!numbers_grow(&p->masks, &p->mask_capacity, job->mask_words + words))
        return false;
    memcpy(p->masks + job->mask_words, allowed, words * sizeof(uint32_t));
    job->mask_words += words;
    return true;
}

static bool job_add_samples(struct pipeline *p, const struct executor_batch *batch,
                            struct stage_job *job)
{
    const struct engine_job *from = batch->job;
    for (uint32_t i = 0; i < from->sample_count; i++) {
        const struct sample_context *context = &from->samples[i].context;
        const struct compute_sample *wanted = &from->samples[i].choice;
        const struct sampling *sampling = &wanted->sampling;
        p->samples[i] = (struct stage_sample){
            .seed = sampling->seed,
            .temperature = sampling->temperature,
            .top_p = sampling->top_p,
            .min_p = sampling->min_p,
            .top_k = sampling->top_k,
            .logprobs = sampling->logprobs,
            .row = from->samples[i].row,
            .position = wanted->position,
            .masked_count = wanted->masked_count,
            .presence_penalty = sampling->presence_penalty,
            .frequency_penalty = sampling->frequency_penalty,
            .repetition_penalty = sampling->repetition_penalty,
            .table = slot_of_row(batch, from->samples[i].row),
            .word_count = context->rule_count + context->token_count,
            .rule_count = context->rule_count,
            .prompt_count = context->prompt_count,
            .has_mask = from->samples[i].allowed != NULL,
        };
        if (p->samples[i].has_mask && !job_add_mask(p, from->samples[i].allowed, job))
            return false;
        memcpy(p->samples[i].masked, wanted->masked, sizeof(wanted->masked));
    }
    for (uint32_t i = 0; i < from->score_count; i++) {
        const struct engine_score *score = &from->scores[i];
        p->scores[i] = (struct stage_score){.first_row = score->first_row,
                                            .row_count = score->row_count,
                                            .logprobs = score->logprobs};
        memcpy(p->score_ids + job->score_row_count, score->next_ids,
               score->row_count * sizeof(uint32_t));
        job->score_row_count += score->row_count;
    }
    for (uint32_t i = 0; i < from->pooled_count; i++)
        p->pooled[i] = (struct stage_rows){from->pooled[i].first_row, from->pooled[i].row_count};
    job->pooled_count = from->pooled_count;
    job->pooled = p->pooled;
    job->sample_count = from->sample_count;
    job->samples = p->samples;
    job->score_count = from->score_count;
    job->scores = p->scores;
    job->score_ids = p->score_ids;
    job->masks = p->masks;
    return true;
}

/* Sends the words of a request's context that the last stage does not know to its processes on the
 * path: a message of their own, because contexts of many requests do not fit one message. */
static bool context_send(struct pipeline *p, uint64_t processes, uint32_t slot,
                         const struct sample_context *context)
{
    struct pipeline_table *table = &p->tables[slot];
    const uint32_t known = table->known_words;
    const uint32_t count = context->rule_count + context->token_count;
    if (known >= count)
        return true;
    if (!numbers_grow(&p->words, &p->word_capacity, count))
        return false;
    if (known < context->rule_count) /* The rules are sent as a whole, so none of them is known. */
        memcpy(p->words, context->rules, context->rule_count * sizeof(uint32_t));
    const uint32_t tokens = known > context->rule_count ? known - context->rule_count : 0;
    if (context->token_count > tokens)
        memcpy(p->words + context->rule_count + tokens, context->tokens + tokens,
               (context->token_count - tokens) * sizeof(uint32_t));
    const struct stage_message message = {.kind = STAGE_CONTEXT,
                                          .context = {.table = slot,
                                                      .known_words = known,
                                                      .new_words = count - known,
                                                      .words = p->words + known}};
    for (uint32_t i = 0; i < p->plan->process_count; i++)
        if ((processes >> i & 1) != 0 && p->plan->processes[i].stage + 1 == p->plan->stage_count)
            pipeline_send(p, &p->processes[i], &message);
    table->known_words = count;
    return true;
}

/* A step with drafted tokens has several samples of one request, in order. The context of the last
 * sample has the drafted tokens of all of them. They may be wrong, so they are sent again with the
 * next step: only the words of the first sample count as known. */
static bool contexts_send(struct pipeline *p, uint64_t processes,
                          const struct executor_batch *batch)
{
    const struct engine_job *job = batch->job;
    bool good = true;
    for (uint32_t i = 0, last; i < job->sample_count && good; i = last + 1) {
        const struct sample_context *context = &job->samples[i].context;
        const uint32_t slot = slot_of_row(batch, job->samples[i].row);
        last = i;
        while (last + 1 < job->sample_count &&
               slot_of_row(batch, job->samples[last + 1].row) == slot)
            last++;
        if (!logit_edits_wanted(context))
            continue;
        good = context_send(p, processes, slot, &job->samples[last].context);
        if (p->tables[slot].known_words > context->rule_count + context->token_count)
            p->tables[slot].known_words = context->rule_count + context->token_count;
    }
    return good;
}

void pipeline_batch_start(struct executor *e, const struct executor_batch *batch)
{
    struct pipeline *p = pipeline_of(e);
    const struct engine_job *job = batch->job;
    const uint64_t processes = p->path_processes[batch->path];
    struct pipeline_batch *flying = &p->batches[batch->slot];
    struct stage_message message = {.kind = STAGE_JOB};
    struct stage_job *out = &message.job;
    assert(flying->serial == 0);
    *out = (struct stage_job){.serial = ++p->serial,
                              .slot = batch->slot,
                              .path = batch->path,
                              .row_count = job->batch.row_count,
                              .turn_us = job->turn_us};
    if (!job_add_sequences(p, batch, out) || !job_add_pushes(p, batch, out) ||
        !contexts_send(p, processes, batch)) {
        pipeline_fail(p, "out of memory for a batch of %u rows", job->batch.row_count);
        return;
    }
    flying->serial = out->serial;
    flying->done_awaited = p->path_done_senders[batch->path];
    flying->job = job;
    bool sampled = false;
    for (uint32_t i = 0; i < p->plan->process_count; i++) { /* in the order of the stages */
        const uint32_t stage = p->plan->processes[i].stage;
        if ((processes >> i & 1) == 0)
            continue;
        out->token_count = stage == 0 ? job->batch.row_count : 0;
        out->tokens = job->token_ids;
        if (stage + 1 == p->plan->stage_count && !sampled) {
            if (!job_add_samples(p, batch, out)) {
                pipeline_fail(p, "out of memory for a batch of %u rows", job->batch.row_count);
                return;
            }
            sampled = true;
        }
        pipeline_send(p, &p->processes[i], &message);
    }
    flying->result_count = out->sample_count + out->score_row_count;
}

static struct pipeline_batch *batch_of(struct pipeline *p, uint64_t serial)
{
    for (uint32_t slot = 0; slot < stage_plan_slot_count(p->plan); slot++)
        if (serial != 0 && p->batches[slot].serial == serial)
            return &p->batches[slot];
    return NULL;
}

static void results_store(const struct engine_job *job, const struct sampled *result)
{
    for (uint32_t i = 0; i < job->sample_count; i++)
        job->samples[i].result = *result++;
    for (uint32_t i = 0; i < job->score_count; i++)
        for (uint32_t row = 0; row < job->scores[i].row_count; row++)
            job->scores[i].results[row] = *result++;
}

void pipeline_pooled_take(struct pipeline *p, const struct stage_process *process,
                          const struct stage_pooled *pooled)
{
    const struct pipeline_batch *batch = batch_of(p, pooled->serial);
    if (batch == NULL || (batch->done_awaited >> process->index & 1) == 0 ||
        !stage_plan_samples(p->plan, process->index) || pooled->index >= batch->job->pooled_count ||
        pooled->count != p->options.shape->hyper.hidden) {
        pipeline_fail(p, "stage %s: it sends an embedding that was not requested", process->name);
        return;
    }
    int64_t *sum = batch->job->pooled[pooled->index].sum;
    for (uint32_t i = 0; i < pooled->count; i++)
        sum[i] = (int64_t)((uint64_t)sum[i] + (uint64_t)pooled->values[i]);
}

void pipeline_done_take(struct pipeline *p, const struct stage_process *process,
                        const struct stage_done *done)
{
    struct pipeline_batch *batch = batch_of(p, done->serial);
    if (batch == NULL || (batch->done_awaited >> process->index & 1) == 0) {
        pipeline_fail(p, "stage %s: it reports the end of an unknown batch", process->name);
        return;
    }
    const bool samples = stage_plan_samples(p->plan, process->index);
    const uint32_t wanted = samples ? batch->result_count : 0;
    if (done->result_count != wanted) {
        pipeline_fail(p, "stage %s: %u results of a batch that has %u", process->name,
                      done->result_count, wanted);
        return;
    }
    batch->done_awaited &= ~(1ull << process->index);
    if (samples)
        results_store(batch->job, done->results);
    if (batch->done_awaited != 0)
        return;
    batch->serial = 0;
    p->options.calls.batch_done(p->options.self, (uint32_t)(batch - p->batches));
}
