/* Goal: no bytes from a peer make a decoder read outside them, or return a message that a reader
 * could not use. Method: fuzzed changes of messages of every kind; a decoded message is read to its
 * last element, and is the same after encoding and decoding again. */
#include "tests/fuzz.h"
#include "tests/transport/message_example.h"

static volatile uint64_t reads; /* So that the compiler keeps the reads. */

static uint64_t sum(const uint32_t *numbers, uint32_t count)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += numbers[i];
    return total;
}

/* Reads a job as stage_jobs.c does: by the counts in the elements, not by the sizes of the
 * arrays. */
static void read_job(const struct stage_job *job)
{
    const uint32_t *blocks = job->blocks;
    const uint32_t *targets = job->targets;
    const uint32_t *ids = job->score_ids;
    uint32_t row = 0;
    for (uint32_t i = 0; i < job->sequence_count; i++) {
        reads += sum(blocks, job->sequences[i].block_count);
        blocks += job->sequences[i].block_count;
        row += job->sequences[i].row_count;
        CHECK(job->sequences[i].table < LIMIT_MACHINE_REQUESTS);
        CHECK(job->sequences[i].first_position + job->sequences[i].row_count <=
              LIMIT_CONTEXT_TOKENS);
    }
    CHECK(row == job->row_count);
    for (uint32_t i = 0; i < job->push_count; i++) {
        reads += sum(targets, job->pushes[i].target_count) +
                 job->sequences[job->pushes[i].sequence].table;
        targets += job->pushes[i].target_count;
    }
    for (uint32_t i = 0; i < job->score_count; i++) {
        CHECK(job->scores[i].first_row + job->scores[i].row_count <= job->row_count);
        reads += sum(ids, job->scores[i].row_count);
        ids += job->scores[i].row_count;
    }
    for (uint32_t i = 0; i < job->sample_count; i++) {
        CHECK(job->samples[i].row < job->row_count);
        reads += sum(job->samples[i].masked, job->samples[i].masked_count);
    }
    reads += sum(job->tokens, job->token_count);
}

static void read_texts(const struct message_layout *layout, const uint8_t *from)
{
    for (uint32_t i = 0; i < layout->rule_count; i++)
        if (layout->rules[i].kind == RULE_TEXT)
            reads += strlen((const char *)from + layout->rules[i].offset);
}

static void read_all(const struct message_layout *layout, const uint8_t *fields)
{
    read_texts(layout, fields);
    for (uint32_t i = 0; i < layout->array_count; i++) {
        const struct message_array *array = &layout->arrays[i];
        const uint8_t *element;
        memcpy(&element, fields + array->pointer, sizeof(element));
        for (uint32_t left = number_at(fields + array->count); left > 0; left--) {
            reads += element[0] + element[array->element_bytes - 1];
            if (array->element != NULL)
                read_texts(array->element, element);
            element += array->element_bytes;
        }
    }
}

static void read_stages(const struct message_stage *stages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        CHECK(stages[i].first_layer < stages[i].end_layer);
        CHECK(stages[i].end_layer <= LIMIT_LAYERS);
        CHECK(stages[i].first_head < stages[i].end_head && stages[i].end_head <= LIMIT_HEADS);
    }
}

/* `bytes`: size of the message; 0 = it has fields that this version does not know. */
static void read_again(union any_message *message, uint32_t kind, size_t bytes)
{
    static struct message_buffer again;
    struct error error;
    struct message_token token;
    if (kind == MESSAGE_TOKENS) {
        message_tokens_begin(&again);
        while (message_tokens_next(&message->control.tokens, &token))
            CHECK(message_tokens_add(&again, &token) == ST_OK);
        return;
    }
    read_all(any_layout(kind), any_fields(message, kind));
    if (kind == STAGE_JOB)
        read_job(&message->stage.job);
    if (kind == MESSAGE_STAGES)
        read_stages(message->control.stages.stages, message->control.stages.count);
    if (kind == STAGE_TARGET)
        read_stages(message->stage.target.stages.stages, message->stage.target.stages.count);
    if (kind == STAGE_OPEN)
        read_stages(message->stage.open.next_stages, message->stage.open.next_count);
    CHECK(any_encode(message, kind, &again) == ST_OK);
    CHECK(again.bytes == bytes || bytes == 0);
    CHECK(any_decode(again.data, again.bytes, kind, message, &error) == ST_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Aligned, and of exact size, so that the sanitizer finds reads beyond it. */
    uint8_t *copy = malloc(size > 0 ? size : 1);
    CHECK(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    union any_message message;
    struct error error = {.text = ""};
    const struct wire_header *header = (const struct wire_header *)copy;
    const uint32_t kind = size >= sizeof(*header) ? header->kind : 0;
    if (any_decode(copy, size, kind, &message, &error) == ST_OK)
        read_again(&message, kind, header->struct_bytes > any_layout(kind)->bytes ? 0 : size);
    else
        CHECK(error.text[0] != 0);
    free(copy);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    struct draws draws = {.seed = index};
    struct message_buffer encoded = {0};
    union any_message message;
    const uint32_t controls = MESSAGE_KIND_COUNT - 1,
                   kinds = controls + STAGE_KIND_END - STAGE_OPEN;
    const uint32_t number = index % kinds;
    const uint32_t kind = number < controls ? 1 + number : STAGE_OPEN + number - controls;
    if (index >= 4 * kinds)
        return 0;
    if (kind == MESSAGE_TOKENS) {
        struct message_token token = {.index = 3, .id = 9, .has_logprob = true, .top_count = 2};
        message_tokens_begin(&encoded);
        for (int i = 0; i < 3; i++)
            CHECK(message_tokens_add(&encoded, &token) == ST_OK);
    } else {
        message_example(&draws, kind, &message);
        CHECK(any_encode(&message, kind, &encoded) == ST_OK);
    }
    size_t bytes = encoded.bytes < capacity ? encoded.bytes : capacity;
    if (index >= 3 * kinds && bytes + 40 <= capacity) /* As a later version could send it. */
        bytes = message_extend(encoded.data, bytes, 24, 16, &draws, buffer);
    else
        memcpy(buffer, encoded.data, bytes);
    message_buffer_done(&encoded);
    return bytes;
}
