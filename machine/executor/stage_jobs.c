/* stage_jobs: batches on their way through a stage process: received, computed when their
 * activations have arrived, their KV pushed layer by layer, and passed on. The oldest batch that
 * can run runs first; batches of one path arrive in order from the stage before. Ranks compute a
 * batch together, so they run all batches in the head's order. */
#include "machine/executor/stage_state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_last_stage(const struct stage *s)
{
    return s->process->end_layer == s->shape.hyper.layer_count;
}

/* A batch's activations: the input, and in the same memory the output. */
static float *activations_of(const struct stage *s, const struct stage_slot *slot)
{
    uint64_t kv_bytes = (kv_arena_bytes(&s->arena) + 4095) / 4096 * 4096;
    uint8_t *base = transport_region(s->transport);
    return (float *)(void *)(base + kv_bytes + (uint64_t)(slot - s->slots) * s->slot_bytes);
}

static enum status slot_open(const struct stage *s, struct stage_slot *slot)
{
    uint32_t sequences = s->shape.sequences_max;
    slot->sequences = calloc(sequences, sizeof(slot->sequences[0]));
    slot->samples = calloc(sequences, sizeof(slot->samples[0]));
    slot->scores = calloc(sequences, sizeof(slot->scores[0]));
    slot->score_results = calloc(s->shape.rows_max, sizeof(slot->score_results[0]));
    slot->pooled = calloc(sequences, sizeof(slot->pooled[0]));
    bool good = slot->sequences != NULL && slot->samples != NULL && slot->scores != NULL &&
                slot->score_results != NULL && slot->pooled != NULL;
    return good ? ST_OK : ST_NO_MEMORY;
}

enum status stage_jobs_open(struct stage *s)
{
    enum status status = ST_OK;
    s->slots = calloc(s->slot_count, sizeof(s->slots[0]));
    s->requests = calloc(LIMIT_MACHINE_REQUESTS, sizeof(s->requests[0]));
    s->results = calloc(s->shape.sequences_max + s->shape.rows_max, sizeof(s->results[0]));
    if (s->slots == NULL || s->requests == NULL || s->results == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < s->slot_count && status == ST_OK; i++)
        status = slot_open(s, &s->slots[i]);
    return status;
}

void stage_jobs_close(struct stage *s)
{
    for (uint32_t i = 0; i < s->slot_count && s->slots != NULL; i++) {
        free(s->slots[i].message);
        free(s->slots[i].sequences);
        free(s->slots[i].samples);
        free(s->slots[i].scores);
        free(s->slots[i].score_results);
        free(s->slots[i].pooled);
        free(s->slots[i].pooled_sums);
    }
    for (uint32_t i = 0; i < LIMIT_MACHINE_REQUESTS; i++)
        free(s->tables[i]);
    free(s->slots);
    free(s->requests);
    free(s->results);
    stage_contexts_close(s->contexts);
    stage_contexts_close(s->abandoned_contexts);
}

void stage_jobs_forget(struct stage *s)
{
    if (s->running != NULL && !s->running_abandoned) /* the engine may read them */
        s->abandoned_contexts = s->contexts;
    else
        stage_contexts_close(s->contexts);
    s->contexts = NULL;
    for (uint32_t i = 0; i < s->slot_count; i++) {
        if (&s->slots[i] != s->running)
            s->slots[i].state = SLOT_EMPTY;
        s->slots[i].activations_serial = 0;
    }
    memset(s->table_counts, 0, sizeof(s->table_counts));
    memset(s->requests, 0, LIMIT_MACHINE_REQUESTS * sizeof(s->requests[0]));
    s->running_abandoned = s->running != NULL;
}

/* ---- receiving ---- */

/* Appends the new part of a sequence's block tables, and moves *at past it. */
static enum status take_table(struct stage *s, const struct stage_sequence *from,
                              const uint32_t **at, struct compute_sequence *to, struct error *error)
{
    const uint32_t groups = layer_groups_count(&s->arena.groups);
    uint32_t room = machine_shape_context_spans(&s->shape);
    uint32_t rows_end = from->first_position + from->row_count;
    uint32_t needed = layer_groups_spans(rows_end, s->arena.block_tokens);
    uint32_t fresh = from->block_count / groups;
    uint32_t *table = s->tables[from->table];
    if (from->known_spans > s->table_counts[from->table] || from->known_spans > room ||
        from->block_count % groups != 0 || fresh > room - from->known_spans ||
        needed > from->known_spans + fresh || rows_end > s->shape.context_tokens)
        return error_set(error, ST_INVALID,
                         "JOB: %u known spans and %u new blocks of table %u for positions up to "
                         "%u: %u spans are here, of %u at most",
                         from->known_spans, from->block_count, from->table, rows_end,
                         s->table_counts[from->table], room);
    if (table == NULL)
        table = s->tables[from->table] = calloc((size_t)groups * room, sizeof(table[0]));
    if (table == NULL)
        return error_set(error, ST_NO_MEMORY, "JOB: no memory for a block table");
    for (uint32_t i = 0; i < from->block_count; i++) {
        if ((*at)[i] >= s->arena.block_count)
            return error_set(error, ST_INVALID, "JOB: block %u, there are %u", (*at)[i],
                             s->arena.block_count);
        table[(size_t)(i / fresh) * room + from->known_spans + i % fresh] = (*at)[i];
    }
    *at += from->block_count;
    s->table_counts[from->table] = from->known_spans + fresh;
    if (from->adapter > s->shape.adapter_count)
        return error_set(error, ST_INVALID, "JOB: adapter %u, there are %u", from->adapter,
                         s->shape.adapter_count);
    to->adapter = from->adapter;
    to->first_position = from->first_position;
    to->row_count = from->row_count;
    to->blocks = table;
    to->group_stride = room;
    return ST_OK;
}

static enum status take_sequences(struct stage *s, struct stage_slot *slot, struct error *error)
{
    const struct stage_job *job = &slot->job;
    const uint32_t *at = job->blocks;
    uint32_t row = 0;
    for (uint32_t i = 0; i < job->sequence_count; i++) {
        struct compute_sequence *to = &slot->sequences[i];
        enum status status = take_table(s, &job->sequences[i], &at, to, error);
        if (status != ST_OK)
            return status;
        to->first_row = row;
        row += to->row_count;
    }
    for (uint32_t i = 0; i < job->push_count; i++) {
        const struct stage_push *push = &job->pushes[i];
        uint32_t count = s->table_counts[job->sequences[push->sequence].table];
        uint32_t groups = layer_groups_count(&s->arena.groups);
        if (push->first_span > count || push->span_count > count - push->first_span ||
            (uint64_t)groups * push->span_count != push->target_count)
            return error_set(
                error, ST_INVALID, "JOB: spans %u to %u are to be pushed to %u blocks, of %u spans",
                push->first_span, push->first_span + push->span_count, push->target_count, count);
    }
    return ST_OK;
}

static enum status take_samples(struct stage *s, struct stage_slot *slot, struct error *error)
{
    const struct stage_job *job = &slot->job;
    const uint32_t *mask = job->masks;
    const uint32_t mask_words = (s->shape.hyper.vocab + 31) / 32;
    for (uint32_t i = 0; i < job->sample_count; i++) {
        const struct stage_sample *from = &job->samples[i];
        enum status status =
            stage_contexts_words(s->contexts, from, &slot->samples[i].context, error);
        if (status != ST_OK)
            return status;
        slot->samples[i].row = from->row;
        struct compute_sample *to = &slot->samples[i].choice;
        *to = (struct compute_sample){
            .sampling = {.temperature = from->temperature,
                         .top_p = from->top_p,
                         .min_p = from->min_p,
                         .top_k = from->top_k,
                         .seed = from->seed,
                         .logprobs = from->logprobs,
                         .presence_penalty = from->presence_penalty,
                         .frequency_penalty = from->frequency_penalty,
                         .repetition_penalty = from->repetition_penalty},
            .position = from->position,
            .forced_token = COMPUTE_SAMPLE_DRAW,
            .masked_count = from->masked_count,
        };
        memcpy(to->masked, from->masked, sizeof(to->masked));
        slot->samples[i].allowed = from->has_mask ? mask : NULL;
        mask += from->has_mask ? mask_words : 0;
    }
    return ST_OK;
}

static void take_scores(struct stage_slot *slot)
{
    const struct stage_job *job = &slot->job;
    const uint32_t *ids = job->score_ids;
    struct sampled *results = slot->score_results;
    for (uint32_t i = 0; i < job->score_count; i++) {
        const struct stage_score *from = &job->scores[i];
        slot->scores[i] = (struct engine_score){.first_row = from->first_row,
                                                .row_count = from->row_count,
                                                .next_ids = ids,
                                                .logprobs = from->logprobs,
                                                .results = results};
        ids += from->row_count;
        results += from->row_count;
    }
}

static enum status take_pooled(const struct stage *s, struct stage_slot *slot, struct error *error)
{
    const struct stage_job *job = &slot->job;
    const size_t hidden = s->shape.hyper.hidden, wanted = job->pooled_count * hidden;
    if (wanted > slot->pooled_sums_capacity) {
        free(slot->pooled_sums);
        slot->pooled_sums_capacity = 0;
        slot->pooled_sums = malloc(wanted * sizeof(*slot->pooled_sums));
        if (slot->pooled_sums == NULL)
            return error_set(error, ST_NO_MEMORY, "JOB: no memory for %u embeddings",
                             job->pooled_count);
        slot->pooled_sums_capacity = wanted;
    }
    if (wanted > 0)
        memset(slot->pooled_sums, 0, wanted * sizeof(*slot->pooled_sums));
    for (uint32_t i = 0; i < job->pooled_count; i++)
        slot->pooled[i] = (struct engine_pooled){.first_row = job->pooled[i].first_row,
                                                 .row_count = job->pooled[i].row_count,
                                                 .sum = slot->pooled_sums + i * hidden};
    return ST_OK;
}

static enum status job_check(const struct stage *s, const struct stage_job *job,
                             struct error *error)
{
    bool first = s->process->first_layer == 0;
    if (job->row_count > s->shape.rows_max || job->sequence_count > s->shape.sequences_max)
        return error_set(error, ST_INVALID, "JOB: %u rows of %u sequences: want at most %u of %u",
                         job->row_count, job->sequence_count, s->shape.rows_max,
                         s->shape.sequences_max);
    if (job->sample_count > s->shape.sequences_max || job->score_count > s->shape.sequences_max ||
        job->score_row_count > s->shape.rows_max || job->pooled_count > s->shape.sequences_max ||
        (!is_last_stage(s) && job->sample_count + job->score_count + job->pooled_count > 0))
        return error_set(error, ST_INVALID, "JOB: %u samples and %u scores of %u rows",
                         job->sample_count, job->score_count, job->score_row_count);
    uint64_t masks = 0;
    for (uint32_t i = 0; i < job->sample_count; i++)
        masks += job->samples[i].has_mask;
    if (job->mask_words != masks * ((s->shape.hyper.vocab + 31) / 32))
        return error_set(error, ST_INVALID, "JOB: %u words of masks for %u samples with masks",
                         job->mask_words, (uint32_t)masks);
    if (first && job->token_count == 0)
        return error_set(error, ST_INVALID, "JOB: no token ids for the first stage");
    for (uint32_t i = 0; i < job->token_count; i++)
        if (job->tokens[i] >= s->shape.hyper.vocab)
            return error_set(error, ST_INVALID, "JOB: token %u, the vocabulary has %u",
                             job->tokens[i], s->shape.hyper.vocab);
    for (uint32_t i = 0; i < job->score_row_count; i++)
        if (job->score_ids[i] >= s->shape.hyper.vocab)
            return error_set(error, ST_INVALID, "JOB: scored token %u, the vocabulary has %u",
                             job->score_ids[i], s->shape.hyper.vocab);
    return ST_OK;
}

static bool any_layerwise(const struct stage_job *job)
{
    bool any = false;
    for (uint32_t i = 0; i < job->push_count; i++)
        any |= job->pushes[i].layerwise != 0;
    return any;
}

enum status stage_job_take(struct stage *s, const uint8_t *data, size_t bytes, struct error *error)
{
    struct stage_message message;
    enum status status = stage_message_decode(data, bytes, &message, error);
    if (status != ST_OK)
        return status;
    if (message.job.slot >= s->slot_count || s->slots[message.job.slot].state != SLOT_EMPTY)
        return error_set(error, ST_INVALID, "JOB: slot %u is taken, or none of %u",
                         message.job.slot, s->slot_count);
    struct stage_slot *slot = &s->slots[message.job.slot];
    if (bytes > slot->message_capacity) {
        free(slot->message);
        slot->message_capacity = 0;
        slot->message = malloc(2 * bytes);
        if (slot->message == NULL)
            return error_set(error, ST_NO_MEMORY, "JOB: no memory for %zu bytes", bytes);
        slot->message_capacity = 2 * bytes;
    }
    memcpy(slot->message, data, bytes); /* aligned by malloc */
    status = stage_message_decode(slot->message, bytes, &message, error);
    assert(status == ST_OK); /* it decoded before */
    slot->job = message.job;
    status = job_check(s, &slot->job, error);
    if (status == ST_OK)
        status = take_sequences(s, slot, error);
    if (status == ST_OK)
        status = take_samples(s, slot, error);
    if (status == ST_OK)
        status = take_pooled(s, slot, error);
    if (status != ST_OK)
        return status;
    take_scores(slot);
    slot->engine_job = (struct engine_job){
        .token_ids = slot->job.tokens,
        .activations = activations_of(s, slot),
        .batch = {.row_count = slot->job.row_count,
                  .sequence_count = slot->job.sequence_count,
                  .sequences = slot->sequences},
        .sample_count = slot->job.sample_count,
        .samples = slot->samples,
        .score_count = slot->job.score_count,
        .scores = slot->scores,
        .pooled_count = slot->job.pooled_count,
        .pooled = slot->pooled,
        .report_layers = any_layerwise(&slot->job),
        .turn_us = slot->job.turn_us,
    };
    slot->state = SLOT_WAITING;
    slot->arrival_number = ++s->job_count;
    return ST_OK;
}

enum status stage_activations_take(struct stage *s, const struct stage_activations *activations,
                                   struct error *error)
{
    if (activations->slot >= s->slot_count || s->process->first_layer == 0)
        return error_set(error, ST_INVALID, "ACTIVATIONS for slot %u of %u, from layer %u on",
                         activations->slot, s->slot_count, s->process->first_layer);
    s->slots[activations->slot].activations_serial = activations->serial;
    return ST_OK;
}

/* ---- KV ---- */

/* Returns the request's entry, which begins with the first call; NULL = a later request uses it. */
static struct stage_request *request_of(struct stage *s, uint64_t cookie)
{
    struct stage_request *request = &s->requests[cookie % LIMIT_MACHINE_REQUESTS];
    if (cookie < request->cookie)
        return NULL;
    if (cookie > request->cookie)
        *request = (struct stage_request){.cookie = cookie};
    return request;
}

static void flushed_send(struct stage *s, const struct stage_request *request, enum status status)
{
    const struct stage_message message = {
        .kind = STAGE_FLUSHED,
        .flushed = {.cookie = request->cookie, .status = status},
    };
    stage_send(s, s->head, &message);
}

void stage_flushed(void *self, uint64_t cookie, enum status status)
{
    struct stage *s = self;
    struct stage_request *request = request_of(s, cookie);
    if (request == NULL || !request->flushing)
        return;
    request->flushing = false;
    flushed_send(s, request, status != ST_OK ? status : request->status);
}

static void flush(struct stage *s, struct stage_request *request, uint32_t target, uint32_t path)
{
    if (request->flushing)
        return;
    if (!kv_targets_up(s->targets, target, path)) {
        flushed_send(s, request, ST_UNREACHABLE);
        return;
    }
    request->flushing = true;
    s->sends_queued = true;
    kv_targets_flush(s->targets, target, path, request->cookie);
}

void stage_flush_take(struct stage *s, const struct stage_flush *take)
{
    struct stage_request *request = request_of(s, take->cookie);
    if (request != NULL)
        flush(s, request, take->target, take->path);
}

/* Writes layers of this process, unless an earlier write of the request has failed. target_serial:
 * that of the TARGET which gave push->target its meaning. */
static void push_kv(struct stage *s, struct stage_request *request, struct kv_push *push,
                    uint32_t target_serial, uint32_t end)
{
    if (request->status < 0)
        return;
    if (target_serial != s->target_serials[push->target]) {
        request->status = ST_UNREACHABLE; /* the target was another machine when this was sent */
        return;
    }
    request->status = kv_targets_push(s->targets, push, end);
    s->sends_queued = true;
}

/* True if this process has the source blocks of the copy that are read. */
static bool copy_blocks_good(const struct stage *s, const struct stage_copy *copy)
{
    const struct layer_groups *groups = &s->arena.groups;
    for (uint32_t i = 0; i < copy->block_count; i++) {
        const bool windowed = layer_groups_windowed(groups, i / copy->span_count);
        const uint32_t first = windowed ? copy->window_first : copy->full_first;
        if (i % copy->span_count >= first && copy->sources[i] >= s->arena.block_count)
            return false;
    }
    return true;
}

enum status stage_copy_take(struct stage *s, const struct stage_copy *copy, struct error *error)
{
    const uint64_t wanted = (uint64_t)layer_groups_count(&s->arena.groups) * copy->span_count;
    if (!s->opened || copy->span_count > machine_shape_context_spans(&s->shape) ||
        copy->block_count != wanted || !copy_blocks_good(s, copy))
        return error_set(error, ST_INVALID, "COPY: %u spans in %u blocks", copy->span_count,
                         copy->block_count);
    struct stage_request *request = request_of(s, copy->cookie);
    struct kv_push push = {.request = {.id = copy->request, .generation = copy->generation},
                           .target = copy->target,
                           .path = copy->path,
                           .source_blocks = copy->sources,
                           .target_blocks = copy->targets,
                           .source_stride = copy->span_count,
                           .target_stride = copy->span_count,
                           .count = copy->span_count,
                           .full_first = copy->full_first,
                           .window_first = copy->window_first,
                           .layer = s->process->first_layer};
    if (request != NULL)
        push_kv(s, request, &push, copy->target_serial, s->process->end_layer);
    return ST_OK;
}

/* True if this process and the head agree on the staging memory, and this process has the
 * blocks. */
static bool fetch_is_good(const struct stage *s, const struct stage_fetch *fetch)
{
    const uint64_t wanted = (uint64_t)layer_groups_count(&s->arena.groups) * fetch->span_count;
    if (!s->opened || s->staging.block_count == 0 || fetch->slot >= STAGING_SLOTS ||
        transport_peer_region(s->head)->bytes < kv_arena_bytes(&s->staging) ||
        fetch->span_count > staging_slot_spans(&s->staging) ||
        fetch->window_first > fetch->span_count || fetch->block_count != wanted)
        return false;
    for (uint32_t i = 0; i < fetch->block_count; i++)
        if (fetch->blocks[i] >= s->arena.block_count)
            return false;
    return true;
}

enum status stage_fetch_take(struct stage *s, const struct stage_fetch *fetch, struct error *error)
{
    kv_block_id ids[LAYER_GROUPS_MAX * STAGING_SPANS_MAX];
    if (!fetch_is_good(s, fetch))
        return error_set(error, ST_INVALID, "FETCH: %u spans in %u blocks, for slot %u",
                         fetch->span_count, fetch->block_count, fetch->slot);
    staging_slot_blocks(&s->staging, fetch->slot, ids);
    const struct staging_side own = {
        .arena = &s->arena, .blocks = fetch->blocks, .stride = fetch->span_count};
    const struct staging_side heads = {
        .arena = &s->staging, .blocks = ids, .stride = STAGING_SPANS_MAX};
    const enum status status =
        staging_write(s->transport, s->head, &own, &heads, fetch->window_first, fetch->span_count);
    s->sends_queued = true;
    if (status < 0)
        stage_fetched(s, fetch->slot, status);
    else
        transport_flush(s->transport, s->head, fetch->slot);
    return ST_OK;
}

void stage_fetched(struct stage *s, uint32_t slot, enum status status)
{
    const struct stage_message message = {.kind = STAGE_FETCHED,
                                          .fetched = {.slot = slot, .status = status}};
    stage_send(s, s->head, &message);
}

static void push_layers(struct stage *s, const struct stage_slot *slot,
                        const struct stage_push *push, const uint32_t *targets, uint32_t first,
                        uint32_t end)
{
    struct stage_request *request = request_of(s, push->cookie);
    if (request == NULL || first >= end)
        return;
    const struct compute_sequence *sequence = &slot->sequences[push->sequence];
    struct kv_push writes = {
        .request = {.id = push->request, .generation = push->generation},
        .target = push->target,
        .path = push->path,
        /* Both tables begin at the push's first span. */
        .source_blocks = sequence->blocks + push->first_span,
        .target_blocks = targets,
        .source_stride = sequence->group_stride,
        .target_stride = push->span_count,
        .count = push->span_count,
        .full_first = push->full_first > push->first_span ? push->full_first - push->first_span : 0,
        .window_first =
            push->window_first > push->first_span ? push->window_first - push->first_span : 0,
        .layer = first};
    push_kv(s, request, &writes, push->target_serial, end);
}

/* Pushes layers first … end - 1 of the layer-wise pushes; with `all`, also all layers of the
 * one-piece pushes. */
static void push_job(struct stage *s, const struct stage_slot *slot, uint32_t first, uint32_t end,
                     bool all)
{
    const struct stage_job *job = &slot->job;
    const uint32_t *targets = job->targets;
    for (uint32_t i = 0; i < job->push_count; i++) {
        const struct stage_push *push = &job->pushes[i];
        if (push->layerwise)
            push_layers(s, slot, push, targets, first, end);
        else if (all)
            push_layers(s, slot, push, targets, s->process->first_layer, end);
        targets += push->target_count;
    }
}

static void flush_job(struct stage *s, const struct stage_job *job)
{
    for (uint32_t i = 0; i < job->push_count; i++) {
        const struct stage_push *push = &job->pushes[i];
        struct stage_request *request = request_of(s, push->cookie);
        if (push->is_last && request != NULL)
            flush(s, request, push->target, push->path);
    }
}

/* ---- running ---- */

static bool activations_arrived(const struct stage *s, const struct stage_slot *slot)
{
    return s->process->first_layer == 0 || slot->activations_serial == slot->job.serial;
}

static struct stage_slot *next_slot(struct stage *s)
{
    const bool in_order = stage_is_rank(s);
    struct stage_slot *best = NULL;
    for (uint32_t i = 0; i < s->slot_count; i++) {
        struct stage_slot *slot = &s->slots[i];
        if (slot->state == SLOT_WAITING && (in_order || activations_arrived(s, slot)) &&
            (best == NULL || slot->arrival_number < best->arrival_number))
            best = slot;
    }
    return best != NULL && activations_arrived(s, best) ? best : NULL;
}

void stage_jobs_start(struct stage *s)
{
    if (s->running != NULL)
        return;
    struct stage_slot *slot = next_slot(s);
    if (slot == NULL)
        return;
    s->running_since_us = clock_now_us(s->options.clock);
    s->running = slot;
    s->pushed_layers = s->process->first_layer;
    slot->state = SLOT_RUNNING;
    engine_start(s->device.engine, &slot->engine_job);
}

/* Writes the activations to the same batch slot of the next process: its activations are at the end
 * of its region, behind its KV. */
static void activations_write(struct stage *s, const struct stage_slot *slot,
                              const struct stage_next *next)
{
    if (!next->connected)
        return; /* next_down has reported it to the head */
    uint32_t index = (uint32_t)(slot - s->slots);
    uint64_t end = transport_peer_region(next->peer)->bytes;
    uint64_t offset = end - (s->slot_count - index) * s->slot_bytes;
    size_t bytes = (size_t)slot->job.row_count * s->shape.hyper.hidden * sizeof(float);
    s->sends_queued = true;
    enum status status =
        transport_write(s->transport, next->peer, activations_of(s, slot), bytes, offset);
    if (status >= 0) /* on an error the link is going down */
        transport_flush(s->transport, next->peer, slot->job.serial << 8 | index);
}

/* Passes the activations to the processes of the next stage that get them from this one. Returns
 * false if there are none. */
static bool activations_pass_on(struct stage *s, const struct stage_slot *slot)
{
    bool given = false;
    for (uint32_t i = 0; i < s->next_count; i++) {
        if ((s->next_processes[i].paths >> slot->job.path & 1) == 0)
            continue;
        given = true;
        activations_write(s, slot, &s->next_processes[i]);
    }
    return given;
}

void stage_activations_sent(struct stage *s, struct transport_peer *peer, uint64_t cookie,
                            enum status status)
{
    const struct stage_message message = {
        .kind = STAGE_ACTIVATIONS,
        .activations = {.serial = cookie >> 8, .slot = (uint32_t)(cookie & 0xff)}};
    if (status == ST_OK)
        stage_send(s, peer, &message);
}

static void pooled_send(struct stage *s, const struct stage_slot *slot)
{
    for (uint32_t i = 0; i < slot->job.pooled_count; i++) {
        const struct stage_message message = {.kind = STAGE_POOLED,
                                              .pooled = {.serial = slot->job.serial,
                                                         .index = i,
                                                         .count = s->shape.hyper.hidden,
                                                         .values = slot->pooled[i].sum}};
        stage_send(s, s->head, &message);
    }
}

static void done_send(struct stage *s, const struct stage_slot *slot)
{
    uint32_t count = 0;
    const bool samples = stage_plan_samples(&s->shape.plan, s->options.process_index);
    if (samples)
        pooled_send(s, slot);
    for (uint32_t i = 0; samples && i < slot->job.sample_count; i++)
        s->results[count++] = slot->samples[i].result;
    for (uint32_t i = 0; samples && i < slot->job.score_row_count; i++)
        s->results[count++] = slot->score_results[i];
    const struct stage_message message = {
        .kind = STAGE_DONE,
        .done = {.serial = slot->job.serial, .result_count = count, .results = s->results}};
    stage_send(s, s->head, &message);
}

/* Starts the next batch first, then passes on the results, activations and KV of this one. */
static void job_end(struct stage *s, struct stage_slot *slot)
{
    uint32_t pushed = s->pushed_layers;
    s->load.batches++;
    s->load.rows += slot->job.row_count;
    s->load.busy_us += (uint64_t)(clock_now_us(s->options.clock) - s->running_since_us);
    s->load_changed = true;
    s->running = NULL;
    slot->state = SLOT_EMPTY;
    if (s->running_abandoned) {
        s->running_abandoned = false;
        stage_contexts_close(s->abandoned_contexts);
        s->abandoned_contexts = NULL;
        return;
    }
    stage_jobs_start(s);
    if (!activations_pass_on(s, slot))
        done_send(s, slot);
    push_job(s, slot, pushed, s->process->end_layer, true);
    flush_job(s, &slot->job);
}

void stage_jobs_progress(struct stage *s, struct engine_progress progress)
{
    struct stage_slot *slot = s->running;
    if (slot == NULL)
        return;
    if (progress.done) {
        s->event_count++;
        job_end(s, slot);
    } else if (progress.stored_layers > s->pushed_layers && !s->running_abandoned) {
        push_job(s, slot, s->pushed_layers, progress.stored_layers, false);
        s->pushed_layers = progress.stored_layers;
    }
}
