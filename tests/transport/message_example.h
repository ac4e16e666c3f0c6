/* message_example: random valid messages of every kind, made from the tables of message_layout.h.
 * The tests and the fuzz target of messages use it, on one thread. The arrays that a message points
 * to are static, so making a message invalidates the previous one. It does not encode or check
 * messages; TOKENS messages are made by message_tokens_add instead. */
#ifndef TESTS_TRANSPORT_MESSAGE_EXAMPLE_H
#define TESTS_TRANSPORT_MESSAGE_EXAMPLE_H

#include "common/random.h"
#include "tests/check.h"
#include "transport/message_layout.h"
#include "transport/stage_message.h"

#include <string.h>

/* A message of message.h or of stage_message.h. */
union any_message {
    struct message control;
    struct stage_message stage;
};

static inline const struct message_layout *any_layout(uint32_t kind)
{
    return kind < STAGE_OPEN ? message_layout_of_kind(kind) : stage_message_layout_of_kind(kind);
}

/* Returns the struct of the message's kind. */
static inline uint8_t *any_fields(union any_message *message, uint32_t kind)
{
    return kind < STAGE_OPEN ? (uint8_t *)&message->control.reserve
                             : (uint8_t *)&message->stage.open;
}

static inline enum status any_encode(const union any_message *message, uint32_t kind,
                                     struct message_buffer *buffer)
{
    return kind < STAGE_OPEN ? message_encode(&message->control, TRANSPORT_PROTOCOL_VERSION, buffer)
                             : stage_message_encode(&message->stage, buffer);
}

static inline enum status any_decode(const uint8_t *data, size_t bytes, uint32_t kind,
                                     union any_message *out, struct error *error)
{
    return kind < STAGE_OPEN ? message_decode(data, bytes, &out->control, error)
                             : stage_message_decode(data, bytes, &out->stage, error);
}

/* Random numbers that depend only on the seed. */
struct draws {
    uint64_t seed;
    uint64_t count;
};

static inline uint64_t draw64(struct draws *draws)
{
    return random_at(draws->seed, draws->count++);
}

static inline uint32_t draw(struct draws *draws, uint32_t below)
{
    return (uint32_t)(draw64(draws) % below);
}

static inline void draw_bytes(struct draws *draws, void *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = draw64(draws);
        memcpy((uint8_t *)to + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
    }
}

/* Returns a number of the range, often one of its two ends. */
static inline int64_t draw_between(struct draws *draws, int64_t low, int64_t high)
{
    uint32_t choice = draw(draws, 10);
    return choice == 0 ? low : choice == 1 ? high : low + draw(draws, (uint32_t)(high - low + 1));
}

static inline uint32_t number_at(const uint8_t *at)
{
    uint32_t number;
    memcpy(&number, at, sizeof(number));
    return number;
}

/* Returns the kind of an encoded message. */
static inline uint32_t kind_at(const uint8_t *data)
{
    return ((const struct wire_header *)data)->kind;
}

/* Copies an encoded message as a later version could send it: with `fields` more bytes at the end
 * of its struct, and `rest` more bytes at its end. Returns the number of bytes; `out` has room for
 * them. */
static inline size_t message_extend(const uint8_t *data, size_t bytes, uint32_t fields,
                                    uint32_t rest, struct draws *draws, uint8_t *out)
{
    struct wire_header header = *(const struct wire_header *)data;
    const size_t split = sizeof(header) + header.struct_bytes;
    const size_t after = split + fields + bytes - split;
    memcpy(out, data, split);
    draw_bytes(draws, out + split, fields);
    memcpy(out + split + fields, data + split, bytes - split);
    draw_bytes(draws, out + after, rest);
    header.struct_bytes += (uint16_t)fields;
    header.bytes = (uint32_t)(after + rest);
    memcpy(out, &header, sizeof(header));
    return header.bytes;
}

/* Sets the fields of the struct at `to`, which holds random bytes, to values that pass the rules of
 * the table. */
static inline void draw_rules(struct draws *draws, const struct message_layout *layout, uint8_t *to)
{
    for (uint32_t i = 0; i < layout->rule_count; i++) {
        const struct message_rule *rule = &layout->rules[i];
        uint8_t *at = to + rule->offset;
        uint32_t number = 0;
        float real = (float)draw(draws, 2001) / 1000 - 1;
        size_t used = 0;
        switch (rule->kind) {
        case RULE_U8:
            *at = (uint8_t)draw_between(draws, rule->low, rule->high);
            break;
        case RULE_U32:
        case RULE_I32:
            number = (uint32_t)draw_between(draws, rule->low, rule->high);
            memcpy(at, &number, sizeof(number));
            break;
        case RULE_BELOW:
            number =
                (uint32_t)draw_between(draws, 0, (int64_t)number_at(to + rule->limit_offset) - 1);
            memcpy(at, &number, sizeof(number));
            break;
        case RULE_FLOAT:
            real = (float)draw_between(draws, 0, 1000) / 1000 * (float)(rule->high - rule->low) +
                   (float)rule->low;
            memcpy(at, &real, sizeof(real));
            break;
        case RULE_FINITE:
            memcpy(at, &real, sizeof(real));
            break;
        case RULE_TEXT:
            used = (size_t)draw_between(draws, 0, rule->bytes - 1);
            for (size_t k = 0; k < used; k++)
                at[k] = (uint8_t)(1 + draw(draws, 255));
            memset(at + used, 0, rule->bytes - used);
            break;
        case RULE_PADDING:
            memset(at, 0, rule->bytes);
            break;
        case RULE_COUNTED:
            used = number_at(to + rule->limit_offset) * sizeof(uint32_t);
            memset(at + used, 0, rule->bytes - used);
            break;
        case RULE_STRUCT:
            draw_rules(draws, rule->inner, at);
            break;
        }
    }
}

/* ---- jobs: many fields of a job depend on others, so that the tables do not suffice ---- */

#define EXAMPLE_SEQUENCES 6
#define EXAMPLE_ROWS      40 /* Most tokens of one sequence. */
#define EXAMPLE_BLOCKS    30 /* Most blocks of one array of one sequence or push. */

struct job_arrays {
    struct stage_push pushes[EXAMPLE_SEQUENCES];
    struct stage_sample samples[EXAMPLE_SEQUENCES];
    struct stage_sequence sequences[EXAMPLE_SEQUENCES];
    struct stage_score scores[EXAMPLE_SEQUENCES];
    uint32_t tokens[EXAMPLE_SEQUENCES * EXAMPLE_ROWS];
    uint32_t blocks[EXAMPLE_SEQUENCES * EXAMPLE_BLOCKS];
    uint32_t targets[EXAMPLE_SEQUENCES * EXAMPLE_BLOCKS];
    struct stage_rows pooled[EXAMPLE_SEQUENCES];
    uint32_t score_ids[EXAMPLE_SEQUENCES * EXAMPLE_ROWS];
    uint32_t masks[EXAMPLE_ROWS];
};

/* Returns the arrays that every job uses. Tests change them. */
static inline struct job_arrays *job_arrays(void)
{
    static struct job_arrays arrays;
    return &arrays;
}

static inline void draw_sequence(struct draws *draws, struct stage_job *job)
{
    struct job_arrays *a = job_arrays();
    uint32_t rows = 1 + draw(draws, EXAMPLE_ROWS);
    uint32_t index = job->sequence_count++;
    a->sequences[index] = (struct stage_sequence){
        .table = draw(draws, LIMIT_MACHINE_REQUESTS),
        .row_count = rows,
        .first_position = draw(draws, LIMIT_CONTEXT_TOKENS - rows + 1),
        .known_spans = (uint32_t)draw64(draws),
        .block_count = draw(draws, EXAMPLE_BLOCKS + 1),
    };
    if (draw(draws, 2) == 0) {
        struct stage_sample *sample = &a->samples[job->sample_count++];
        memset(sample, 0, sizeof(*sample));
        sample->seed = draw64(draws);
        sample->temperature = (float)draw(draws, 2000) / 1000;
        sample->top_p = (float)draw(draws, 1001) / 1000;
        sample->min_p = (float)draw(draws, 1001) / 1000;
        sample->top_k = (uint32_t)draw64(draws);
        sample->logprobs = (int32_t)draw(draws, LIMIT_LOGPROBS + 2) - 1;
        sample->row = job->row_count + rows - 1;
        sample->position = (uint32_t)draw64(draws);
        sample->masked_count = draw(draws, 17);
        for (uint32_t i = 0; i < 16; i++)
            sample->masked[i] = (uint32_t)draw64(draws);
        sample->presence_penalty = (float)draw(draws, 401) / 100 - 2;
        sample->frequency_penalty = (float)draw(draws, 401) / 100 - 2;
        sample->repetition_penalty = (float)draw(draws, 201) / 100;
        sample->table = a->sequences[index].table;
        sample->word_count = draw(draws, LIMIT_CONTEXT_WORDS + 1);
        sample->rule_count = draw(draws, LIMIT_RULE_WORDS + 1);
        sample->prompt_count = (uint32_t)draw64(draws);
        sample->has_mask = draw(draws, 2);
    }
    if (draw(draws, 3) == 0) {
        uint32_t count = 1 + draw(draws, rows);
        a->scores[job->score_count++] =
            (struct stage_score){.first_row = job->row_count,
                                 .row_count = count,
                                 .logprobs = (int32_t)draw(draws, LIMIT_LOGPROBS + 2) - 1};
        job->score_row_count += count;
    }
    if (draw(draws, 3) == 0)
        a->pooled[job->pooled_count++] =
            (struct stage_rows){.first_row = job->row_count, .row_count = 1 + draw(draws, rows)};
    if (draw(draws, 2) == 0) {
        struct stage_push *push = &a->pushes[job->push_count++];
        memset(push, 0, sizeof(*push));
        push->cookie = draw64(draws);
        push->target = draw(draws, LIMIT_MACHINES);
        push->target_serial = (uint32_t)draw64(draws);
        push->sequence = index;
        push->first_span = (uint32_t)draw64(draws);
        push->span_count = draw(draws, EXAMPLE_BLOCKS + 1);
        push->path = (uint8_t)draw(draws, LIMIT_STAGE_PATHS);
        push->layerwise = (uint8_t)draw(draws, 2);
        push->is_last = (uint8_t)draw(draws, 2);
        push->target_count = draw(draws, EXAMPLE_BLOCKS + 1);
        job->target_count += push->target_count;
    }
    job->row_count += rows;
    job->block_count += a->sequences[index].block_count;
}

static inline struct stage_job draw_job(struct draws *draws)
{
    struct job_arrays *a = job_arrays();
    struct stage_job job = {
        .serial = draw64(draws),
        .slot = (uint32_t)draw64(draws),
        .path = draw(draws, LIMIT_STAGE_PATHS),
        .turn_us = (uint32_t)draw64(draws),
        .pushes = a->pushes,
        .samples = a->samples,
        .sequences = a->sequences,
        .scores = a->scores,
        .pooled = a->pooled,
        .tokens = a->tokens,
        .blocks = a->blocks,
        .targets = a->targets,
        .score_ids = a->score_ids,
        .mask_words = draw(draws, EXAMPLE_ROWS),
        .masks = a->masks,
    };
    for (uint32_t left = 1 + draw(draws, EXAMPLE_SEQUENCES); left > 0; left--)
        draw_sequence(draws, &job);
    job.token_count = draw(draws, 2) * job.row_count;
    draw_bytes(draws, a->tokens, sizeof(a->tokens));
    draw_bytes(draws, a->blocks, sizeof(a->blocks));
    draw_bytes(draws, a->targets, sizeof(a->targets));
    draw_bytes(draws, a->score_ids, sizeof(a->score_ids));
    draw_bytes(draws, a->masks, sizeof(a->masks));
    return job;
}

/* ---- all kinds ---- */

/* Makes most arrays short, so that many messages can be tested. */
static inline void draw_counts(struct draws *draws, const struct message_layout *layout,
                               uint8_t *fields)
{
    if (draw(draws, 200) == 0 && layout->array_count > 0 && layout->arrays[0].element == NULL)
        return;
    for (uint32_t i = 0; i < layout->array_count; i++) {
        const uint32_t count_at = layout->arrays[i].count;
        uint32_t low = 0;
        for (uint32_t k = 0; k < layout->rule_count; k++)
            if (layout->rules[k].offset == count_at)
                low = (uint32_t)layout->rules[k].low;
        uint32_t count = number_at(fields + count_at);
        if (count > 40)
            count = low + count % 40;
        memcpy(fields + count_at, &count, sizeof(count));
    }
}

static inline void draw_arrays(struct draws *draws, const struct message_layout *layout,
                               uint8_t *fields)
{
    static uint64_t room[4][LIMIT_CONTEXT_TOKENS / 2 + LIMIT_RULE_WORDS];
    CHECK(layout->array_count <= 4);
    for (uint32_t i = 0; i < layout->array_count; i++) {
        const struct message_array *array = &layout->arrays[i];
        const uint32_t count = number_at(fields + array->count);
        uint8_t *elements = (uint8_t *)room[i];
        CHECK((size_t)count * array->element_bytes <= sizeof(room[i]));
        draw_bytes(draws, elements, (size_t)count * array->element_bytes);
        for (uint32_t k = 0; array->element != NULL && k < count; k++)
            draw_rules(draws, array->element, elements + (size_t)k * array->element_bytes);
        memcpy(fields + array->pointer, &elements, sizeof(elements));
    }
}

/* Returns the words of token rules that need no prompt, or no words. */
static inline const uint32_t *example_rules(struct draws *draws, uint32_t *count_out)
{
    static uint32_t words[] = {1, 2, 4, 17, 0, 5, 0x7fffffff, 1, 7, 1, 8};
    const float bias = (float)draw(draws, 201) - 100;
    memcpy(&words[4], &bias, sizeof(bias));
    *count_out = draw(draws, 2) * (sizeof(words) / sizeof(words[0]));
    return words;
}

/* Satisfies the relations between fields that are not in the tables. */
static inline void draw_relations(struct draws *draws, uint32_t kind, union any_message *message)
{
    struct message_reserve *reserve = &message->control.reserve;
    struct message_prefill *prefill = &message->control.prefill;
    if (kind == MESSAGE_RESERVE) {
        reserve->sampling.output_tokens_max += reserve->sampling.output_tokens_max == 0;
        if (draw(draws, 100) != 0)
            reserve->prompt_tokens = 1 + reserve->prompt_tokens % 40;
        reserve->prompt_count = draw(draws, 2) * reserve->prompt_tokens;
        reserve->answer_count %= reserve->prompt_tokens;
        reserve->sampling.answer_tokens %= reserve->prompt_tokens;
        if (reserve->prompt_count == 0) { /* Penalties need the prompt. */
            reserve->sampling.presence_penalty = reserve->sampling.frequency_penalty = 0;
            reserve->sampling.repetition_penalty = (float)draw(draws, 2);
        }
    } else if (kind == MESSAGE_PREFILL) {
        prefill->sampling.answer_tokens %= prefill->prompt_count;
        prefill->answer_count %= prefill->prompt_count;
        if (prefill->sampling.output_tokens_max == 0 && !prefill->score_prompt &&
            prefill->pooling == 0)
            prefill->sampling.output_tokens_max = 1;
    }
}

/* Makes a message of any kind except TOKENS. Bytes without meaning are 0, so that equal messages
 * have equal bytes. */
static inline void message_example(struct draws *draws, uint32_t kind, union any_message *out)
{
    const struct message_layout *layout = any_layout(kind);
    uint8_t *fields = any_fields(out, kind);
    memset(out, 0, sizeof(*out));
    if (kind < STAGE_OPEN)
        out->control.kind = kind;
    else
        out->stage.kind = kind;
    if (kind == STAGE_JOB) {
        out->stage.job = draw_job(draws);
        return;
    }
    draw_bytes(draws, fields, layout->bytes);
    draw_rules(draws, layout, fields);
    draw_counts(draws, layout, fields);
    draw_relations(draws, kind, out);
    draw_arrays(draws, layout, fields);
    if (kind == MESSAGE_RESERVE)
        out->control.reserve.rules = example_rules(draws, &out->control.reserve.rule_count);
    if (kind == MESSAGE_PREFILL)
        out->control.prefill.rules = example_rules(draws, &out->control.prefill.rule_count);
}

#endif
