/* Goal: the decoder refuses every JOB whose sums or indices a reader could not rely on. Method:
 * every check of a JOB has a message that breaks only this check, which must be refused with a text
 * that names it. test_message.c has the tests of all kinds. */
#include "tests/transport/message_example.h"

#include <stddef.h>

static void check_refused(const struct stage_message *message, const char *word)
{
    struct message_buffer buffer = {0};
    struct stage_message out;
    struct error error = {.text = ""};
    CHECK(stage_message_encode(message, &buffer) == ST_OK); /* The encoder does not check fields. */
    CHECKF(stage_message_decode(buffer.data, buffer.bytes, &out, &error) == ST_INVALID, "%s", word);
    CHECKF(strstr(error.text, word) != NULL, "want \"%s\" in \"%s\"", word, error.text);
    CHECK(strstr(error.text, stage_message_name(message->kind)) != NULL);
    message_buffer_done(&buffer);
}

/* Makes a valid job with two sequences, a push, a sample of each sequence and a score. */
static struct stage_message whole_job(void)
{
    struct job_arrays *a = job_arrays();
    struct stage_message message = {.kind = STAGE_JOB};
    memset(a, 0, sizeof(*a));
    a->sequences[0] = (struct stage_sequence){.row_count = 5, .block_count = 2};
    a->sequences[1] = (struct stage_sequence){.table = 1, .row_count = 3, .block_count = 1};
    a->samples[0] = (struct stage_sample){.row = 4};
    a->samples[1] = (struct stage_sample){.row = 7};
    a->scores[0] = (struct stage_score){.first_row = 5, .row_count = 3};
    a->pushes[0] = (struct stage_push){.sequence = 1, .span_count = 4, .target_count = 4};
    message.job = (struct stage_job){
        .serial = 1,
        .row_count = 8,
        .sequence_count = 2,
        .push_count = 1,
        .sample_count = 2,
        .score_count = 1,
        .token_count = 8,
        .block_count = 3,
        .target_count = 4,
        .score_row_count = 3,
        .pushes = a->pushes,
        .samples = a->samples,
        .sequences = a->sequences,
        .scores = a->scores,
        .tokens = a->tokens,
        .blocks = a->blocks,
        .targets = a->targets,
        .score_ids = a->score_ids,
    };
    return message;
}

/* Sets one field of the job to a value that its arrays contradict. */
static void test_job_fields(void)
{
    static const struct {
        const char *word;
        size_t offset;
        uint32_t value;
    } bad[] = {
        {"row_count", offsetof(struct stage_job, row_count), 0},
        {"row_count", offsetof(struct stage_job, row_count), LIMIT_BATCH_TOKENS + 1},
        {"path", offsetof(struct stage_job, path), LIMIT_STAGE_PATHS},
        {"token_count", offsetof(struct stage_job, token_count), 7},
        {"block_count", offsetof(struct stage_job, block_count), 2},
        {"block_count", offsetof(struct stage_job, block_count), 4},
        {"target_count", offsetof(struct stage_job, target_count), 3},
        {"target_count", offsetof(struct stage_job, target_count), 5},
        {"score_row_count", offsetof(struct stage_job, score_row_count), 2},
        {"score_row_count", offsetof(struct stage_job, score_row_count), 4},
        {"score_row_count", offsetof(struct stage_job, score_count), 0},
        {"target_count", offsetof(struct stage_job, push_count), 0},
        {"pushes[0].sequence", offsetof(struct stage_job, sequence_count), 1},
        {"pushes[0].sequence", offsetof(struct stage_job, sequence_count), 0},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct stage_message message = whole_job();
        memcpy((uint8_t *)&message.job + bad[i].offset, &bad[i].value, sizeof(bad[i].value));
        check_refused(&message, bad[i].word);
    }
}

/* Sets one field of an array's element to a value that the job contradicts. */
static void test_job_arrays(void)
{
    struct job_arrays *a = job_arrays();
    const struct {
        const char *word;
        void *field;
        uint32_t value;
    } bad[] = {
        {"table", &a->sequences[1].table, LIMIT_MACHINE_REQUESTS},
        {"row_count", &a->sequences[0].row_count, 0},
        {"row_count", &a->sequences[0].row_count, 9},
        {"row_count", &a->sequences[0].row_count, 4},
        {"row_count", &a->sequences[0].row_count, 6},
        {"first_position", &a->sequences[0].first_position, LIMIT_CONTEXT_TOKENS - 4},
        {"first_position", &a->sequences[0].first_position, UINT32_MAX},
        {"block_count", &a->sequences[0].block_count, 1},
        {"block_count", &a->sequences[0].block_count, UINT32_MAX},
        {"pushes[0].sequence", &a->pushes[0].sequence, 2},
        {"pushes[0].target", &a->pushes[0].target, LIMIT_MACHINES},
        {"target_count", &a->pushes[0].target_count, 5},
        {"samples[1].row", &a->samples[1].row, 8},
        {"samples[1].row", &a->samples[1].row, 4},
        {"masked_count", &a->samples[0].masked_count, 17},
        {"logprobs", &a->samples[0].logprobs, LIMIT_LOGPROBS + 1},
        {"logprobs", &a->samples[0].logprobs, (uint32_t)-2},
        {"scores[0].first_row + row_count", &a->scores[0].first_row, 6},
        {"scores[0].first_row + row_count", &a->scores[0].first_row, UINT32_MAX},
        {"score_row_count", &a->scores[0].row_count, 2},
        {"logprobs", &a->scores[0].logprobs, LIMIT_LOGPROBS + 1},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct stage_message message = whole_job();
        memcpy(bad[i].field, &bad[i].value, sizeof(bad[i].value));
        check_refused(&message, bad[i].word);
    }
    struct stage_message message = whole_job();
    a->pushes[0].path = LIMIT_STAGE_PATHS;
    check_refused(&message, "pushes[0].path");
}

int main(void)
{
    test_job_fields();
    test_job_arrays();
    return 0;
}
