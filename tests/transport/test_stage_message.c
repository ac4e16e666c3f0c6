/* Goal: messages of stages and their head are decoded to the encoded values, for every kind, and no
 * bytes pass the decoder whose sums or ranges a reader could not rely on. Method: random messages,
 * now and then at the ends of the ranges, are encoded, decoded and compared; each is cut at many
 * lengths and overwritten at random places. Then every check has a message that breaks only this
 * check, which must be refused with a text that names it. */
#include "tests/check.h"
#include "tests/transport/stage_example.h"

#include <stddef.h>

static struct stage_draw draws;

#define SAME(field) CHECK(a->field == b->field)
#define SAME_ARRAY(array, count)                                                                   \
    CHECK(a->count == b->count && memcmp(a->array, b->array, a->count * sizeof(a->array[0])) == 0)

static void check_job(const struct stage_job *a, const struct stage_job *b)
{
    SAME(serial);
    SAME(slot);
    SAME(path);
    SAME(row_count);
    SAME(turn_us);
    SAME_ARRAY(pushes, push_count);
    SAME_ARRAY(samples, sample_count);
    SAME_ARRAY(sequences, sequence_count);
    SAME_ARRAY(scores, score_count);
    SAME_ARRAY(tokens, token_count);
    SAME_ARRAY(blocks, block_count);
    SAME_ARRAY(targets, target_count);
    SAME_ARRAY(score_ids, score_row_count);
}

static void check_open(const struct stage_open *a, const struct stage_open *b)
{
    SAME(stage);
    SAME(first_layer);
    SAME(last_layer);
    SAME(block_count);
    SAME(rows_max);
    SAME(slots);
    SAME(context_blocks);
    SAME(rank);
    SAME(ranks);
    SAME_ARRAY(next.stages, next.count);
}

static void check_target(const struct stage_target *a, const struct stage_target *b)
{
    SAME(target);
    SAME(serial);
    CHECK(strcmp(a->name, b->name) == 0);
    SAME_ARRAY(stages.stages, stages.count);
}

static void check_told(const struct stage_message *a, const struct stage_message *b)
{
    switch (a->kind) {
    case STAGE_STATE:
        SAME(state.ready);
        CHECK(strcmp(a->state.text, b->state.text) == 0);
        break;
    case STAGE_TARGET_LINK:
        SAME(target_link.target);
        SAME(target_link.serial);
        SAME(target_link.up);
        CHECK(strcmp(a->target_link.text, b->target_link.text) == 0);
        break;
    case STAGE_WRITER:
        SAME(writer.up);
        CHECK(strcmp(a->writer.name, b->writer.name) == 0);
        CHECK(strcmp(a->writer.text, b->writer.text) == 0);
        break;
    case STAGE_FLUSH:
        SAME(flush.cookie);
        SAME(flush.target);
        SAME(flush.path);
        break;
    case STAGE_FLUSHED:
        SAME(flushed.cookie);
        SAME(flushed.status);
        break;
    case STAGE_LOAD:
        CHECK(memcmp(&a->load, &b->load, sizeof(a->load)) == 0);
        break;
    case STAGE_GROUP:
        CHECK(memcmp(&a->group, &b->group, sizeof(a->group)) == 0);
        break;
    default:
        CHECK(!"a kind that is not compared");
    }
}

static void check_same(const struct stage_message *a, const struct stage_message *b)
{
    SAME(kind);
    if (a->kind == STAGE_JOB) {
        check_job(&a->job, &b->job);
    } else if (a->kind == STAGE_OPEN) {
        check_open(&a->open, &b->open);
    } else if (a->kind == STAGE_TARGET) {
        check_target(&a->target, &b->target);
    } else if (a->kind == STAGE_ACTIVATIONS) {
        SAME(activations.serial);
        SAME(activations.slot);
    } else if (a->kind == STAGE_DONE) {
        SAME(done.serial);
        SAME_ARRAY(done.results, done.result_count);
    } else {
        check_told(a, b);
    }
}

/* Cut short, with the length in the header as it was and as it is now. */
static void check_cuts(const struct message_buffer *whole)
{
    size_t step = whole->bytes > 600 ? 1 + whole->bytes / 300 : 1;
    struct stage_message out;
    struct error error;
    for (size_t bytes = 0; bytes < whole->bytes; bytes += step) {
        uint8_t *copy = malloc(bytes + 1);
        uint32_t claim = (uint32_t)bytes;
        memcpy(copy, whole->data, bytes);
        error.text[0] = 0;
        CHECK(stage_message_decode(copy, bytes, &out, &error) == ST_INVALID);
        CHECK(error.text[0] != 0);
        if (bytes >= 8) {
            memcpy(copy + 4, &claim, sizeof(claim));
            CHECK(stage_message_decode(copy, bytes, &out, &error) == ST_INVALID);
        }
        free(copy);
    }
}

/* What is decoded in spite of a change is the same after another trip. */
static void check_changes(const struct message_buffer *whole)
{
    struct message_buffer again = {0};
    struct stage_message out;
    struct stage_message other;
    struct error error;
    uint8_t *copy = malloc(whole->bytes);
    for (int i = 0; i < 60; i++) {
        memcpy(copy, whole->data, whole->bytes);
        for (uint32_t k = 1 + draw(&draws, 3); k > 0; k--)
            copy[draw(&draws, (uint32_t)whole->bytes)] = (uint8_t)draw(&draws, 256);
        if (stage_message_decode(copy, whole->bytes, &out, &error) != ST_OK)
            continue;
        CHECK(stage_message_encode(&out, &again) == ST_OK);
        CHECK(stage_message_decode(again.data, again.bytes, &other, &error) == ST_OK);
        check_same(&out, &other);
    }
    free(copy);
    message_buffer_done(&again);
}

static void test_round_trip(void)
{
    struct message_buffer buffer = {0};
    for (int round = 0; round < 300; round++) {
        for (enum stage_message_kind kind = STAGE_OPEN; kind < STAGE_KIND_END; kind++) {
            struct stage_message message;
            struct stage_message out;
            struct error error;
            stage_example(&draws, kind, &message);
            CHECK(stage_message_encode(&message, &buffer) == ST_OK);
            enum status status = stage_message_decode(buffer.data, buffer.bytes, &out, &error);
            CHECKF(status == ST_OK, "%s: %s", stage_message_name(kind), error.text);
            check_same(&message, &out);
            CHECK(stage_message_is(buffer.data, buffer.bytes));
            if (round < 40) {
                check_cuts(&buffer);
                check_changes(&buffer);
            }
        }
    }
    message_buffer_done(&buffer);
}

/* ---- what is refused ---- */

static void refuse(const struct stage_message *message, const char *word)
{
    struct message_buffer buffer = {0};
    struct stage_message out;
    struct error error = {.text = ""};
    CHECK(stage_message_encode(message, &buffer) == ST_OK); /* it checks nothing */
    CHECKF(stage_message_decode(buffer.data, buffer.bytes, &out, &error) == ST_INVALID, "%s", word);
    CHECKF(strstr(error.text, word) != NULL, "want \"%s\" in \"%s\"", word, error.text);
    CHECK(strstr(error.text, stage_message_name(message->kind)) != NULL);
    message_buffer_done(&buffer);
}

/* A job with all of it: two sequences, a push, samples of both and a score. */
static struct stage_message whole_job(void)
{
    struct stage_arrays *a = stage_arrays();
    struct stage_message message = {.kind = STAGE_JOB};
    memset(a, 0, sizeof(*a));
    a->sequences[0] = (struct stage_sequence){.row_count = 5, .block_count = 2};
    a->sequences[1] = (struct stage_sequence){.table = 1, .row_count = 3, .block_count = 1};
    a->samples[0] = (struct stage_sample){.row = 4};
    a->samples[1] = (struct stage_sample){.row = 7};
    a->scores[0] = (struct stage_score){.first_row = 5, .row_count = 3};
    a->pushes[0] = (struct stage_push){.sequence = 1, .count = 4};
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

/* A field of the fixed part, set to a value. */
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
        {"push's sequence", offsetof(struct stage_job, sequence_count), 1},
        {"sequence", offsetof(struct stage_job, sequence_count), 0},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct stage_message message = whole_job();
        memcpy((uint8_t *)&message.job + bad[i].offset, &bad[i].value, sizeof(bad[i].value));
        refuse(&message, bad[i].word);
    }
}

/* A field of an array's element, likewise. */
static void test_job_arrays(void)
{
    struct stage_arrays *a = stage_arrays();
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
        {"push's sequence", &a->pushes[0].sequence, 2},
        {"push's target", &a->pushes[0].target, LIMIT_MACHINES},
        {"target_count", &a->pushes[0].count, 5},
        {"sample's row", &a->samples[1].row, 8},
        {"sample's row", &a->samples[1].row, 4},
        {"masked_count", &a->samples[0].masked_count, 17},
        {"logprobs", &a->samples[0].logprobs, LIMIT_LOGPROBS + 1},
        {"logprobs", &a->samples[0].logprobs, (uint32_t)-2},
        {"score's rows", &a->scores[0].first_row, 6},
        {"score's rows", &a->scores[0].first_row, UINT32_MAX},
        {"score_row_count", &a->scores[0].row_count, 2},
        {"logprobs", &a->scores[0].logprobs, LIMIT_LOGPROBS + 1},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct stage_message message = whole_job();
        memcpy(bad[i].field, &bad[i].value, sizeof(bad[i].value));
        refuse(&message, bad[i].word);
    }
    struct stage_message message = whole_job();
    a->pushes[0].path = LIMIT_STAGE_PATHS;
    refuse(&message, "push's path");
}

static void refuse_open(size_t offset, uint32_t value, const char *word)
{
    struct stage_message message = {
        .kind = STAGE_OPEN,
        .open = {.rows_max = 1, .slots = 1, .context_blocks = 1, .rank = 1, .ranks = 2}};
    memcpy((uint8_t *)&message.open + offset, &value, sizeof(value));
    refuse(&message, word);
}

static void test_others(void)
{
    struct stage_message message = {.kind = STAGE_ACTIVATIONS};
    message.activations.slot = LIMIT_BATCHES_IN_FLIGHT;
    refuse(&message, "slot");
    message = (struct stage_message){.kind = STAGE_FLUSH, .flush = {.target = LIMIT_MACHINES}};
    refuse(&message, "target");
    message = (struct stage_message){.kind = STAGE_FLUSH, .flush = {.path = LIMIT_STAGE_PATHS}};
    refuse(&message, "path");
    message = (struct stage_message){.kind = STAGE_TARGET};
    message.target.target = LIMIT_MACHINES;
    refuse(&message, "target");
    message = (struct stage_message){.kind = STAGE_TARGET_LINK,
                                     .target_link = {.target = LIMIT_MACHINES}};
    refuse(&message, "target");
    message = (struct stage_message){.kind = STAGE_STATE};
    memset(message.state.text, 'x', sizeof(message.state.text));
    refuse(&message, "text");
    message = (struct stage_message){.kind = STAGE_WRITER};
    memset(message.writer.name, 'x', sizeof(message.writer.name));
    refuse(&message, "name");
    struct sampled result = {.top_count = LIMIT_LOGPROBS + 1};
    message =
        (struct stage_message){.kind = STAGE_DONE, .done = {.result_count = 1, .results = &result}};
    refuse(&message, "top_count");
    struct message_stage stage = {.first_layer = 3, .last_layer = 3, .last_head = 1};
    message = (struct stage_message){.kind = STAGE_TARGET, .target = {.stages = {1, &stage}}};
    refuse(&message, "first_layer");
    stage = (struct message_stage){.last_layer = 3, .first_head = 2, .last_head = 2};
    refuse(&message, "first_head");
    stage.last_head = LIMIT_HEADS + 1;
    refuse(&message, "last_head");
    stage.first_head = stage.last_head = 0;
    refuse(&message, "last_head");
    refuse_open(offsetof(struct stage_open, stage), LIMIT_STAGES, "stage");
    refuse_open(offsetof(struct stage_open, rows_max), 0, "rows_max");
    refuse_open(offsetof(struct stage_open, rows_max), LIMIT_BATCH_TOKENS + 1, "rows_max");
    refuse_open(offsetof(struct stage_open, slots), 0, "slots");
    refuse_open(offsetof(struct stage_open, slots), LIMIT_BATCHES_IN_FLIGHT + 1, "slots");
    refuse_open(offsetof(struct stage_open, context_blocks), 0, "context_blocks");
    refuse_open(offsetof(struct stage_open, ranks), 0, "ranks");
    refuse_open(offsetof(struct stage_open, ranks), LIMIT_RANKS + 1, "ranks");
    refuse_open(offsetof(struct stage_open, rank), 2, "rank");
    message = (struct stage_message){.kind = STAGE_GROUP};
    memset(message.group.device, 'x', sizeof(message.group.device));
    refuse(&message, "device");
}

/* Bytes that are no stage message, or one with something behind it. */
static void test_frames(void)
{
    struct message_buffer buffer = {0};
    struct stage_message message = {.kind = STAGE_LOAD};
    struct stage_message out;
    struct error error;
    uint64_t bytes[32];
    CHECK(stage_message_encode(&message, &buffer) == ST_OK);
    memset(bytes, 0, sizeof(bytes));
    memcpy(bytes, buffer.data, buffer.bytes);
    uint32_t claim = (uint32_t)buffer.bytes + 8;
    memcpy((uint8_t *)bytes + 4, &claim, sizeof(claim));
    CHECK(stage_message_decode((uint8_t *)bytes, claim, &out, &error) == ST_INVALID);
    CHECK(strstr(error.text, "8 bytes follow") != NULL);
    for (uint32_t kind = 0; kind < 100; kind++) {
        bool ours = kind >= STAGE_OPEN && kind < STAGE_KIND_END;
        memcpy(bytes, &kind, sizeof(kind));
        CHECK(stage_message_is((uint8_t *)bytes, 8) == ours);
        CHECK((strcmp(stage_message_name(kind), "unknown") != 0) == ours);
    }
    CHECK(!stage_message_is((uint8_t *)bytes, 3));
    message.kind = STAGE_KIND_END;
    CHECK(stage_message_encode(&message, &buffer) == ST_INVALID);
    /* Longer than any message may be: more results than any batch has. */
    static struct sampled results[30000];
    message = (struct stage_message){.kind = STAGE_DONE,
                                     .done = {.result_count = 30000, .results = results}};
    CHECK(stage_message_encode(&message, &buffer) == ST_TOO_LARGE);
    message_buffer_done(&buffer);
}

int main(void)
{
    draws.seed = test_seed();
    test_round_trip();
    test_job_fields();
    test_job_arrays();
    test_others();
    test_frames();
    return 0;
}
