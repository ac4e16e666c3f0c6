/* stage_message: the tables of the messages between the processes of one machine, and the sums that
 * a JOB must satisfy. See stage_message.h; message_layout.h explains the tables. */
#include "transport/stage_message.h"

#include "transport/message_layout.h"

#include <assert.h>

static const struct message_rule open_rules[] = {
    RANGE(stage_open, process_index, 0, LIMIT_STAGE_PROCESSES - 1),
    RANGE(stage_open, ranks, 1, LIMIT_RANKS),
    BELOW(stage_open, rank, ranks),
    RANGE(stage_open, rows_max, 1, LIMIT_BATCH_TOKENS),
    RANGE(stage_open, slots, 1, LIMIT_BATCHES_IN_FLIGHT),
    RANGE(stage_open, context_spans, 1, LIMIT_CONTEXT_TOKENS),
    RANGE(stage_open, next_count, 0, LIMIT_STAGE_PROCESSES),
};
static const struct message_array open_arrays[] = {
    ARRAY(stage_open, next_stages, next_count, &layout_of_message_stage)};

static const struct message_rule group_rules[] = {TEXT(stage_group, device)};

static const struct message_rule state_rules[] = {
    BOOL(stage_state, ready),
    PADDING(stage_state, padding),
    TEXT(stage_state, text),
};

/* ---- jobs ---- */

static const struct message_rule job_rules[] = {
    RANGE(stage_job, row_count, 1, LIMIT_BATCH_TOKENS),
    RANGE(stage_job, path, 0, LIMIT_STAGE_PATHS - 1),
};

static const struct message_rule sequence_rules[] = {
    RANGE(stage_sequence, table, 0, LIMIT_MACHINE_REQUESTS - 1),
    RANGE(stage_sequence, row_count, 1, LIMIT_BATCH_TOKENS),
    RANGE(stage_sequence, adapter, 0, LIMIT_ADAPTERS),
};
static const struct message_layout sequence_layout = {RULES(sequence_rules)};

static const struct message_rule push_rules[] = {
    RANGE(stage_push, target, 0, LIMIT_MACHINES - 1),
    RANGE(stage_push, path, 0, LIMIT_STAGE_PATHS - 1),
    PADDING(stage_push, padding),
};
static const struct message_layout push_layout = {RULES(push_rules)};

static const struct message_rule sample_rules[] = {
    RANGE(stage_sample, masked_count, 0, LENGTH(((struct stage_sample *)0)->masked)),
    RANGE(stage_sample, logprobs, -1, LIMIT_LOGPROBS),
    FINITE(stage_sample, presence_penalty),
    FINITE(stage_sample, frequency_penalty),
    RANGE(stage_sample, repetition_penalty, 0, LIMIT_REPETITION_PENALTY),
    RANGE(stage_sample, table, 0, LIMIT_MACHINE_REQUESTS - 1),
    RANGE(stage_sample, word_count, 0, LIMIT_CONTEXT_WORDS),
    RANGE(stage_sample, rule_count, 0, LIMIT_RULE_WORDS),
    BOOL(stage_sample, has_mask),
    PADDING(stage_sample, padding),
};
static const struct message_layout sample_layout = {RULES(sample_rules)};

static const struct message_rule score_rules[] = {
    RANGE(stage_score, logprobs, -1, LIMIT_LOGPROBS),
};
static const struct message_layout score_layout = {RULES(score_rules)};

static const struct message_array job_arrays[] = {
    ARRAY(stage_job, pushes, push_count, &push_layout),
    ARRAY(stage_job, samples, sample_count, &sample_layout),
    ARRAY(stage_job, sequences, sequence_count, &sequence_layout),
    ARRAY(stage_job, scores, score_count, &score_layout),
    ARRAY(stage_job, pooled, pooled_count, NULL),
    ARRAY(stage_job, tokens, token_count, NULL),
    ARRAY(stage_job, blocks, block_count, NULL),
    ARRAY(stage_job, targets, target_count, NULL),
    ARRAY(stage_job, score_ids, score_row_count, NULL),
    ARRAY(stage_job, masks, mask_words, NULL),
};

/* Like message_range_check, for a field of an array's element. */
static enum status element_check(const struct message_reader *reader, const char *array,
                                 uint32_t index, const char *field, int64_t value, int64_t low,
                                 int64_t high)
{
    if (value >= low && value <= high)
        return ST_OK;
    struct message_reader element = *reader;
    element.array = array;
    element.index = index;
    return message_range_check(&element, field, value, low, high);
}

/* Checks every sum and every index that a reader of the arrays relies on. */
static enum status job_check(const struct message_reader *reader, const void *message)
{
    const struct stage_job *job = message;
    const int64_t last_sequence = (int64_t)job->sequence_count - 1;
    const int64_t last_row = (int64_t)job->row_count - 1;
    uint64_t rows = 0, blocks = 0, targets = 0, scored = 0;
    enum status status = ST_OK;
    for (uint32_t i = 0; i < job->sequence_count && status == ST_OK; i++) {
        const struct stage_sequence *s = &job->sequences[i];
        rows += s->row_count;
        blocks += s->block_count;
        status = element_check(reader, "sequences", i, "first_position", s->first_position, 0,
                               LIMIT_CONTEXT_TOKENS - s->row_count);
    }
    for (uint32_t i = 0; i < job->push_count && status == ST_OK; i++) {
        targets += job->pushes[i].target_count;
        status = element_check(reader, "pushes", i, "sequence", job->pushes[i].sequence, 0,
                               last_sequence);
    }
    int64_t row_low = 0; /* The samples' rows ascend. */
    for (uint32_t i = 0; i < job->sample_count && status == ST_OK; i++) {
        status = element_check(reader, "samples", i, "row", job->samples[i].row, row_low, last_row);
        row_low = (int64_t)job->samples[i].row + 1;
    }
    for (uint32_t i = 0; i < job->score_count && status == ST_OK; i++) {
        const struct stage_score *s = &job->scores[i];
        scored += s->row_count;
        status = element_check(reader, "scores", i, "first_row + row_count",
                               (int64_t)s->first_row + s->row_count, 1, job->row_count);
    }
    for (uint32_t i = 0; i < job->pooled_count && status == ST_OK; i++) {
        const struct stage_rows *rows_of = &job->pooled[i];
        status = element_check(reader, "pooled", i, "first_row + row_count",
                               (int64_t)rows_of->first_row + rows_of->row_count, 1, job->row_count);
    }
    if (status != ST_OK)
        return status;
    const struct {
        const char *field;
        uint32_t count;
        uint64_t sum;
    } sums[] = {
        {"row_count", job->row_count, rows},
        {"token_count", job->token_count, job->token_count == 0 ? 0 : job->row_count},
        {"block_count", job->block_count, blocks},
        {"target_count", job->target_count, targets},
        {"score_row_count", job->score_row_count, scored},
    };
    for (size_t k = 0; k < LENGTH(sums) && status == ST_OK; k++)
        status = message_range_check(reader, sums[k].field, sums[k].count, (int64_t)sums[k].sum,
                                     (int64_t)sums[k].sum);
    return status;
}

static const struct message_rule activations_rules[] = {
    RANGE(stage_activations, slot, 0, LIMIT_BATCHES_IN_FLIGHT - 1),
    PADDING(stage_activations, padding),
};

static_assert(sizeof(struct sampled) == 12 + 8 * LIMIT_LOGPROBS, "no hidden padding");
static const struct message_rule result_rules[] = {
    RANGE(sampled, top_count, 0, LIMIT_LOGPROBS),
};
static const struct message_layout result_layout = {RULES(result_rules)};

static const struct message_rule pooled_rules[] = {
    RANGE(stage_pooled, count, 1, LIMIT_EMBEDDING_ELEMENTS)};
static const struct message_array pooled_arrays[] = {ARRAY(stage_pooled, values, count, NULL)};

static const struct message_rule done_rules[] = {PADDING(stage_done, padding)};
static const struct message_array done_arrays[] = {
    ARRAY(stage_done, results, result_count, &result_layout)};

/* ---- targets ---- */

static const struct message_rule target_rules[] = {
    RANGE(stage_target, target, 0, LIMIT_MACHINES - 1),
    TEXT(stage_target, name),
    RANGE(stage_target, stages.count, 0, LIMIT_STAGE_PROCESSES),
    PADDING(stage_target, stages.padding),
};
static const struct message_array target_arrays[] = {
    ARRAY(stage_target, stages.stages, stages.count, &layout_of_message_stage)};

static const struct message_rule target_link_rules[] = {
    RANGE(stage_target_link, target, 0, LIMIT_MACHINES - 1),
    BOOL(stage_target_link, up),
    PADDING(stage_target_link, padding),
    TEXT(stage_target_link, text),
};

static const struct message_rule copy_rules[] = {
    RANGE(stage_copy, target, 0, LIMIT_MACHINES - 1),
    RANGE(stage_copy, path, 0, LIMIT_STAGE_PATHS - 1),
    RANGE(stage_copy, span_count, 1, LIMIT_CONTEXT_TOKENS),
    RANGE(stage_copy, block_count, 1, LIMIT_CONTEXT_TOKENS),
};
static const struct message_array copy_arrays[] = {
    ARRAY(stage_copy, sources, block_count, NULL),
    ARRAY(stage_copy, targets, block_count, NULL),
};

static const struct message_rule fetch_rules[] = {
    RANGE(stage_fetch, span_count, 1, LIMIT_CONTEXT_TOKENS),
    RANGE(stage_fetch, block_count, 1, LIMIT_CONTEXT_TOKENS),
};
static const struct message_array fetch_arrays[] = {ARRAY(stage_fetch, blocks, block_count, NULL)};

static const struct message_rule flush_rules[] = {
    RANGE(stage_flush, target, 0, LIMIT_MACHINES - 1),
    RANGE(stage_flush, path, 0, LIMIT_STAGE_PATHS - 1),
};

static const struct message_rule flushed_rules[] = {PADDING(stage_flushed, padding)};

static const struct message_rule writer_rules[] = {
    TEXT(stage_writer, name),
    RANGE(stage_writer, event, 0, STAGE_WRITER_EVENTS - 1),
    PADDING(stage_writer, padding),
    TEXT(stage_writer, text),
};

static const struct message_rule await_rules[] = {
    RANGE(stage_await, table, 0, LIMIT_MACHINE_REQUESTS - 1),
    TEXT(stage_await, writer),
    RANGE(stage_await, ends, 0, 1),
    RANGE(stage_await, block_count, 0, LIMIT_CONTEXT_TOKENS),
};
static const struct message_array await_arrays[] = {ARRAY(stage_await, blocks, block_count, NULL)};

static const struct message_rule context_rules[] = {
    RANGE(stage_context, table, 0, LIMIT_MACHINE_REQUESTS - 1),
    RANGE(stage_context, known_words, 0, LIMIT_CONTEXT_WORDS),
    RANGE(stage_context, new_words, 0, LIMIT_CONTEXT_WORDS),
    PADDING(stage_context, padding),
};
static const struct message_array context_arrays[] = {ARRAY(stage_context, words, new_words, NULL)};

static const struct message_rule load_rules[] = {
    STRUCT(message_process, device_copies, layout_of_message_copies)};

/* ---- all kinds ---- */

static const struct message_layout layouts[STAGE_KIND_END - STAGE_OPEN] = {
    [STAGE_OPEN - STAGE_OPEN] = {"OPEN", UP_TO(stage_open, next_stages), RULES(open_rules),
                                 ARRAYS(open_arrays)},
    [STAGE_STATE - STAGE_OPEN] = {"STATE", SIZE(stage_state), RULES(state_rules)},
    [STAGE_JOB - STAGE_OPEN] = {"JOB", UP_TO(stage_job, pushes), RULES(job_rules),
                                ARRAYS(job_arrays), .check = job_check},
    [STAGE_ACTIVATIONS -
        STAGE_OPEN] = {"ACTIVATIONS", SIZE(stage_activations), RULES(activations_rules)},
    [STAGE_DONE -
        STAGE_OPEN] = {"DONE", UP_TO(stage_done, results), RULES(done_rules), ARRAYS(done_arrays)},
    [STAGE_TARGET - STAGE_OPEN] = {"TARGET", UP_TO(stage_target, stages.stages),
                                   RULES(target_rules), ARRAYS(target_arrays)},
    [STAGE_TARGET_LINK -
        STAGE_OPEN] = {"TARGET_LINK", SIZE(stage_target_link), RULES(target_link_rules)},
    [STAGE_COPY -
        STAGE_OPEN] = {"COPY", UP_TO(stage_copy, sources), RULES(copy_rules), ARRAYS(copy_arrays)},
    [STAGE_FETCH - STAGE_OPEN] = {"FETCH", UP_TO(stage_fetch, blocks), RULES(fetch_rules),
                                  ARRAYS(fetch_arrays)},
    [STAGE_FETCHED - STAGE_OPEN] = {"FETCHED", SIZE(stage_fetched)},
    [STAGE_FLUSH - STAGE_OPEN] = {"FLUSH", SIZE(stage_flush), RULES(flush_rules)},
    [STAGE_FLUSHED - STAGE_OPEN] = {"FLUSHED", SIZE(stage_flushed), RULES(flushed_rules)},
    [STAGE_WRITER - STAGE_OPEN] = {"WRITER", SIZE(stage_writer), RULES(writer_rules)},
    [STAGE_LOAD - STAGE_OPEN] = {"LOAD", SIZE(message_process), RULES(load_rules)},
    [STAGE_GROUP - STAGE_OPEN] = {"GROUP", SIZE(stage_group), RULES(group_rules)},
    [STAGE_AWAIT - STAGE_OPEN] = {"AWAIT", UP_TO(stage_await, blocks), RULES(await_rules),
                                  ARRAYS(await_arrays)},
    [STAGE_AWAITED - STAGE_OPEN] = {"AWAITED", SIZE(stage_awaited)},
    [STAGE_CONTEXT - STAGE_OPEN] = {"CONTEXT", UP_TO(stage_context, words), RULES(context_rules),
                                    ARRAYS(context_arrays)},
    [STAGE_POOLED - STAGE_OPEN] = {"POOLED", UP_TO(stage_pooled, values), RULES(pooled_rules),
                                   ARRAYS(pooled_arrays)},
};

const struct message_layout *stage_message_layout_of_kind(uint32_t kind)
{
    return kind >= STAGE_OPEN && kind < STAGE_KIND_END ? &layouts[kind - STAGE_OPEN] : NULL;
}

const char *stage_message_name(enum stage_message_kind kind)
{
    const struct message_layout *layout = stage_message_layout_of_kind(kind);
    return layout != NULL ? layout->name : "unknown";
}

enum status stage_message_encode(const struct stage_message *message, struct message_buffer *buffer)
{
    const struct message_layout *layout = stage_message_layout_of_kind(message->kind);
    return layout == NULL ? ST_INVALID
                          : message_write(layout, message->kind, TRANSPORT_PROTOCOL_VERSION,
                                          &message->open, buffer);
}

enum status stage_message_decode(const uint8_t *data, size_t bytes, struct stage_message *out,
                                 struct error *error)
{
    enum status status = message_read(stage_message_layout_of_kind, data, bytes, &out->open, error);
    if (status == ST_OK)
        out->kind = ((const struct wire_header *)data)->kind;
    return status;
}
