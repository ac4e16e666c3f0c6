/* Goal: no bytes from a stage or a head make the decoder read outside them, or return a value that
 * a reader could not use: sums of arrays, rows, counts. Method: fuzzed changes of messages of each
 * kind; a decoded message is read to its last element, as stage_jobs.c and pipeline.c do, and is
 * the same after encoding and decoding again. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/transport/stage_example.h"

static volatile uint64_t reads; /* so that they are made */

static uint64_t sum(const uint32_t *numbers, uint32_t count)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += numbers[i];
    return total;
}

/* By what its elements say, not by the counts of the arrays that they point into. */
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
        reads += sum(targets, job->pushes[i].count) + job->sequences[job->pushes[i].sequence].table;
        targets += job->pushes[i].count;
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

static void read_stages(const struct message_stages *stages)
{
    for (uint32_t i = 0; i < stages->count; i++) {
        const struct message_stage *stage = &stages->stages[i];
        CHECK(stage->first_layer < stage->last_layer && stage->last_layer <= LIMIT_LAYERS);
        CHECK(stage->first_head < stage->last_head && stage->last_head <= LIMIT_HEADS);
        reads += strlen(stage->address);
    }
}

static void read_all(const struct stage_message *message)
{
    if (message->kind == STAGE_JOB)
        read_job(&message->job);
    if (message->kind == STAGE_OPEN)
        read_stages(&message->open.next);
    if (message->kind == STAGE_TARGET)
        read_stages(&message->target.stages);
    for (uint32_t i = 0; message->kind == STAGE_DONE && i < message->done.result_count; i++)
        reads += sum(message->done.results[i].top_ids, message->done.results[i].top_count);
    if (message->kind == STAGE_GROUP)
        reads += strlen(message->group.device) + message->group.id[STAGE_GROUP_ID_BYTES - 1];
    if (message->kind == STAGE_STATE)
        reads += strlen(message->state.text);
    if (message->kind == STAGE_TARGET_LINK)
        reads += strlen(message->target_link.text);
    if (message->kind == STAGE_WRITER)
        reads += strlen(message->writer.name) + strlen(message->writer.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct message_buffer again;
    struct stage_message message;
    struct error error;
    uint8_t *copy = malloc(size > 0 ? size : 1); /* aligned, and exact for the sanitizer */
    CHECK(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    error.text[0] = 0;
    if (stage_message_decode(copy, size, &message, &error) == ST_OK) {
        read_all(&message);
        CHECK(stage_message_encode(&message, &again) == ST_OK);
        CHECK(again.bytes == size);
        CHECK(stage_message_decode(again.data, again.bytes, &message, &error) == ST_OK);
    } else {
        CHECK(error.text[0] != 0);
    }
    free(copy);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    struct stage_draw draws = {.seed = index};
    struct message_buffer encoded = {0};
    struct stage_message message;
    unsigned kinds = STAGE_KIND_END - STAGE_OPEN;
    if (index >= 3 * kinds)
        return 0;
    stage_example(&draws, (enum stage_message_kind)(STAGE_OPEN + index % kinds), &message);
    CHECK(stage_message_encode(&message, &encoded) == ST_OK);
    size_t bytes = encoded.bytes < capacity ? encoded.bytes : capacity;
    memcpy(buffer, encoded.data, bytes);
    message_buffer_done(&encoded);
    return bytes;
}
