/* Goal: the bytes of messages on the wire change only together with TRANSPORT_PROTOCOL_VERSION.
 * This program sends to peers of older versions what these versions have sent, and reads it.
 * Method: one message of each kind, with another value in every field, is encoded as each version
 * has it, and compared with its line in tests/data/message_bytes/VERSION.txt: the kind's name, then
 * the bytes in hex, where "zN" stands for N zero bytes. `test_message_bytes print` prints the file
 * of the present version, which a release never changes again. Messages between the processes of
 * one machine are compared in the present version only. */
#include "tests/check.h"
#include "transport/stage_message.h"

#include <string.h>

/* A bias of 1 for token 7, and an allowed token. */
static const uint32_t rules[] = {1, 1, 0, 7, 0x3f800000, 9};
static const uint32_t numbers[] = {0x0b0b0001, 0x0b0b0002, 0x0b0b0003, 0x0b0b0004, 0x0b0b0005};
static const uint64_t hashes[] = {0x1122334455667788, 0x99aabbccddeeff00};
static const struct message_stage stages[] = {
    {.paths = 0x0f01,
     .first_layer = 1,
     .end_layer = 3,
     .first_head = 4,
     .end_head = 9,
     .address = "10.1.2.3:4567"},
    {.paths = 0x0f02, .first_layer = 3, .end_layer = 7, .first_head = 2, .end_head = 5},
};
static const struct message_request request = {.id = 0xa1a2a3a4a5a6a7a8, .generation = 0xb1b2b3b4};
static const struct message_rank rank = {.key = 0xc1c2c3c4c5c6c7c8,
                                         .weight = 999,
                                         .priority = -998,
                                         .waited_ms = 0xc9cacbcc,
                                         .preemptions = 0xcdcecfd0};
static const struct sampling sampling = {
    .temperature = 0.75f,
    .top_p = 0.5f,
    .min_p = 0.125f,
    .top_k = 0xd1d2d3d4,
    .seed = 0xd5d6d7d8d9dadbdc,
    .logprobs = 17,
    .output_tokens_max = 0x1234,
    .output_tokens_min = 0x234,
    .adapter = 0x21,
    .presence_penalty = -1.5f,
    .frequency_penalty = 0.25f,
    .repetition_penalty = 1.25f,
    .answer_tokens = 2,
    .end_count = 3,
    .end_tokens = {0xe1e2e3e4, 0xe5e6e7e8, 0xe9eaebec,
                   0xedeeeff0 /* Not one of the three: not sent. */},
};
/* The bytes after a text's end are not sent. */
#define TEXT(text) text "\0garbage"

static const struct message messages[] = {
    {.kind = MESSAGE_RESERVE,
     .reserve = {.request = request,
                 .prompt_machine = TEXT("prompt-7"),
                 .prompt_tokens = 5,
                 .prefix_salt = 0xf1f2f3f4f5f6f7f8,
                 .rank = rank,
                 .sampling = sampling,
                 .prompt_count = 5,
                 .rule_count = 6,
                 .prefix_cache = true,
                 .copy = true,
                 .prompt = numbers,
                 .rules = rules,
                 .answer_count = 2,
                 .client_id = TEXT("chatcmpl-7"),
                 .answer = numbers + 3,
                 .constraint_bytes = 7,
                 .constraint = "regex:a"}},
    {.kind = MESSAGE_RESERVED,
     .reserved = {.request = request,
                  .path = 13,
                  .held_span_count = 257,
                  .block_count = 3,
                  .window_first = 259,
                  .blocks = numbers}},
    {.kind = MESSAGE_PREFILL,
     .prefill = {.request = request,
                 .token_machine = TEXT("token-8"),
                 .score_prompt = true,
                 .pooling = 2,
                 .transfer_mode = TRANSFER_ONE_PIECE,
                 .prefix_salt = 0xf1f2f3f4f5f6f7f8,
                 .rank = rank,
                 .sampling = sampling,
                 .path = 14,
                 .copied_generation = 0x41424344,
                 .held_span_count = 258,
                 .window_first = 260,
                 .block_count = 2,
                 .blocks = numbers,
                 .prompt_count = 4,
                 .rule_count = 6,
                 .prompt = numbers + 1,
                 .rules = rules,
                 .answer_count = 3,
                 .client_id = TEXT("chatcmpl-8"),
                 .constraint_bytes = 12,
                 .constraint = "json_object:"}},
    {.kind = MESSAGE_PREFILLED,
     .prefilled = {.request = request,
                   .queue_us = 0x11111111,
                   .prefill_us = 0x22222222,
                   .exposed_us = 0x33333333,
                   .transfer_us = 0x44444444,
                   .layers = 0x55,
                   .layerwise = true,
                   .bytes = 0x6666666677777777,
                   .layer_count = 3,
                   .layer_us = numbers + 2}},
    {.kind = MESSAGE_KV_READY,
     .kv_ready = {.request = request, .prompt_tokens = 0x1111, .first_token = 0x22222222}},
    {.kind = MESSAGE_KV_ABORTED, .kv_aborted = request},
    {.kind = MESSAGE_CANCEL, .cancel = {.request = request, .writes_pending = true}},
    {.kind = MESSAGE_FAILED,
     .failed = {.request = request, .status = -3, .text = TEXT("the disk is gone")}},
    {.kind = MESSAGE_PEER, .peer = {.name = TEXT("token-9"), .address = TEXT("host:1234")}},
    {.kind = MESSAGE_LINK,
     .link = {.name = TEXT("token-10"),
              .up = true,
              .latency_us = 0x11111111,
              .bytes_per_s = 0x2222222233333333,
              .error_percent = 0x44444444,
              .text = TEXT("ucx put over posix")}},
    {.kind = MESSAGE_SHUTDOWN},
    {.kind = MESSAGE_LEAVING},
    {.kind = MESSAGE_ROLE,
     .role = {.pool = POOL_TOKEN, .home = POOL_MIXED, .serial = 0x123456789abcdef0}},
    {.kind = MESSAGE_OTHERS,
     .others = {.gateways = 0x11111111,
                .leader = TEXT("gateway-1"),
                .prompts = 0x22222222,
                .decodes = 0x33333333,
                .prompt_tokens = 0x4444444444444444,
                .kv_tokens = 0x5555555555555555,
                .is_in_mixed_pool = true,
                .home_pool = POOL_MIXED,
                .home_serial = 0x6666666666666666,
                .prompt_tokens_taken = 0x7777777777777777,
                .answers_taken = 0x8888888888888888}},
    {.kind = MESSAGE_PREEMPTED,
     .preempted = {.request = request, .generated = 0x1111, .text = TEXT("no block is free")}},
    {.kind = MESSAGE_PREFIXES,
     .prefixes = {.replaces_all = true, .count = 2, .hashes = hashes, .held = numbers}},
    {.kind = MESSAGE_STAGES, .stages = {.count = 2, .stages = stages}},
    {.kind = MESSAGE_PROGRESS, .progress = {.request = request, .tokens = 0x1111}},
    {.kind = MESSAGE_EMBEDDING,
     .embedding = {.request = request, .count = 2, .values = (const int64_t[]){1, -1}}},
    {.kind = MESSAGE_ABOUT,
     .about = {.device = TEXT("cpu, 4 threads"),
               .host = TEXT("node7"),
               .build = TEXT("0.1.0 (0123456789ab)"),
               .fell_back = true}},
    {.kind = MESSAGE_PROBE, .probe = {.number = 0x123456789abcdef0}},
};

static const struct message_token tokens[] = {
    {.request = 0x1111111111111111,
     .generation = 0x22222222,
     .index = 0x33333333,
     .id = 0x44444444,
     .finish = FINISH_LENGTH,
     .scored = true,
     .wait_us = 0x55555555,
     .run_us = 0x66666666,
     .cached_tokens = 0x77777777,
     .has_logprob = true,
     .logprob = -1.25f,
     .top_count = 2,
     .top_ids = {0x88888888, 0x99999999, 0xaaaaaaaa},
     .top_logprobs = {-2.5f, -3.5f, -4.5f}},
    {.request = 0xbbbbbbbbbbbbbbbb, .id = 0xcc},
};

static const struct stage_message stage_messages[] = {
    {.kind = STAGE_OPEN,
     .open = {.process_index = 1,
              .first_layer = 2,
              .end_layer = 3,
              .block_count = 4,
              .rows_max = 5,
              .slots = 6,
              .context_spans = 7,
              .rank = 8,
              .ranks = 9,
              .next_count = 2,
              .next_stages = stages}},
    {.kind = STAGE_STATE, .state = {.ready = true, .text = TEXT("device memory")}},
    {.kind = STAGE_JOB,
     .job = {.serial = 0x1111111111111111,
             .slot = 2,
             .path = 3,
             .row_count = 3,
             .turn_us = 0x44444444,
             .sequence_count = 2,
             .push_count = 1,
             .sample_count = 1,
             .score_count = 1,
             .token_count = 3,
             .block_count = 5,
             .target_count = 4,
             .score_row_count = 2,
             .pushes = (const struct stage_push[]){{.cookie = 0x5555555555555555,
                                                    .request = 0x4545454545454545,
                                                    .generation = 0x46464646,
                                                    .target = 6,
                                                    .target_serial = 7,
                                                    .sequence = 1,
                                                    .first_span = 9,
                                                    .span_count = 4,
                                                    .full_first = 12,
                                                    .window_first = 10,
                                                    .target_count = 4,
                                                    .path = 11,
                                                    .layerwise = 1,
                                                    .is_last = 1}},
             .samples = (const struct stage_sample[]){{.seed = 0x6666666666666666,
                                                       .has_mask = true,
                                                       .temperature = 0.5f,
                                                       .top_p = 0.25f,
                                                       .min_p = 0.125f,
                                                       .top_k = 0x77777777,
                                                       .logprobs = 12,
                                                       .row = 2,
                                                       .position = 0x88888888,
                                                       .masked_count = 2,
                                                       .masked = {0x99, 0xaa, 0xbb},
                                                       .presence_penalty = -1.5f,
                                                       .frequency_penalty = 0.25f,
                                                       .repetition_penalty = 1.25f,
                                                       .table = 2,
                                                       .word_count = 0x1000,
                                                       .rule_count = 0x100,
                                                       .prompt_count = 0x22222222}},
             .sequences = (const struct stage_sequence[]){{.table = 1,
                                                           .row_count = 1,
                                                           .first_position = 0xaa,
                                                           .known_spans = 0xbbbbbbbb,
                                                           .block_count = 2},
                                                          {.table = 2,
                                                           .row_count = 2,
                                                           .first_position = 0xcc,
                                                           .known_spans = 0xdddddddd,
                                                           .block_count = 3}},
             .scores =
                 (const struct stage_score[]){{.first_row = 1, .row_count = 2, .logprobs = 5}},
             .tokens = numbers,
             .blocks = numbers,
             .targets = numbers + 1,
             .score_ids = numbers + 2,
             .mask_words = 2,
             .masks = numbers + 1}},
    {.kind = STAGE_ACTIVATIONS, .activations = {.serial = 0x1111111111111111, .slot = 22}},
    {.kind = STAGE_DONE,
     .done = {.serial = 0x2222222222222222,
              .result_count = 1,
              .results = (const struct sampled[]){{.id = 0x33333333,
                                                   .logprob = -1.5f,
                                                   .top_count = 2,
                                                   .top_ids = {4, 5},
                                                   .top_logprobs = {-2.5f, -3.5f}}}}},
    {.kind = STAGE_TARGET,
     .target = {.target = 1,
                .serial = 2,
                .name = TEXT("token-3"),
                .stages = {.count = 1, .stages = stages}}},
    {.kind = STAGE_TARGET_LINK,
     .target_link = {.target = 1, .serial = 2, .up = true, .text = TEXT("ucx put over posix")}},
    {.kind = STAGE_COPY,
     .copy = {.cookie = 0x1111111111111111,
              .request = 0x2222222222222222,
              .generation = 0x33333333,
              .target = 4,
              .target_serial = 5,
              .path = 6,
              .span_count = 3,
              .full_first = 1,
              .window_first = 2,
              .block_count = 3,
              .sources = numbers,
              .targets = numbers + 1}},
    {.kind = STAGE_FETCH,
     .fetch = {.slot = 1, .span_count = 3, .window_first = 2, .block_count = 3, .blocks = numbers}},
    {.kind = STAGE_FETCHED, .fetched = {.slot = 1, .status = -2}},
    {.kind = STAGE_FLUSH, .flush = {.cookie = 0x1111111111111111, .target = 2, .path = 3}},
    {.kind = STAGE_FLUSHED, .flushed = {.cookie = 0x1111111111111111, .status = -2}},
    {.kind = STAGE_WRITER,
     .writer = {.number = 0x4444444444444444,
                .name = TEXT("prompt-1"),
                .event = STAGE_WRITER_LINGERS,
                .text = TEXT("silent")}},
    {.kind = STAGE_GROUP, .group = {.device = "cpu", .id = {1, 2, 3, [127] = 0xff}}},
    {.kind = STAGE_AWAIT,
     .await = {.cookie = 0x1111111111111111,
               .request = 0x2222222222222222,
               .generation = 0x33333333,
               .table = 0x444,
               .writer = TEXT("prompt-1"),
               .ends = 1,
               .block_count = 3,
               .blocks = numbers}},
    {.kind = STAGE_AWAITED, .awaited = {.cookie = 0x1111111111111111}},
    {.kind = STAGE_CONTEXT,
     .context = {.table = 3, .known_words = 4, .new_words = 5, .words = numbers}},
    {.kind = STAGE_POOLED,
     .pooled = {.serial = 0x1111111111111111,
                .index = 2,
                .count = 2,
                .values = (const int64_t[]){1, -1}}},
};

/* The counters have other values in every byte. */
static struct message_stats stats;
static struct message_load loads[2];

static void bytes_number(void *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)to)[i] = (uint8_t)(i % 251 + 1);
}

static char *text_of(const char *name, const struct message_buffer *bytes)
{
    char *text = malloc(bytes->bytes * 2 + 64);
    CHECK(text != NULL);
    char *at = text + sprintf(text, "%s", name);
    for (size_t i = 0; i < bytes->bytes;) {
        size_t zeros = 0;
        while (i + zeros < bytes->bytes && bytes->data[i + zeros] == 0)
            zeros++;
        if (zeros > 0)
            at += sprintf(at, " z%zu", zeros);
        i += zeros;
        if (i < bytes->bytes)
            *at++ = ' ';
        for (; i < bytes->bytes && bytes->data[i] != 0; i++)
            at += sprintf(at, "%02x", bytes->data[i]);
    }
    *at++ = '\n';
    *at = 0;
    return text;
}

/* Prints the message's line, or compares it with the next line of the file. */
static void line_check(FILE *file, const char *name, const struct message_buffer *bytes)
{
    static char want[8192];
    char *have = text_of(name, bytes);
    if (file == NULL) {
        printf("%s", have);
    } else {
        CHECKF(fgets(want, sizeof(want), file) != NULL, "%s is not in the file", name);
        CHECKF(strcmp(have, want) == 0, "have %swant %s", have, want);
    }
    free(have);
}

static void message_line(FILE *file, uint32_t version, const struct message *message)
{
    struct message_buffer buffer = {0}, again = {0};
    struct message out;
    struct error error;
    CHECK(message_encode(message, version, &buffer) == ST_OK);
    line_check(file, message_kind_name(message->kind), &buffer);
    CHECKF(message_decode(buffer.data, buffer.bytes, &out, &error) == ST_OK, "%s", error.text);
    CHECK(message_encode(&out, version, &again) == ST_OK);
    CHECK(again.bytes == buffer.bytes && memcmp(again.data, buffer.data, again.bytes) == 0);
    message_buffer_done(&buffer);
    message_buffer_done(&again);
}

static void version_check(uint32_t version, bool prints)
{
    struct message_buffer buffer = {0};
    char name[64];
    snprintf(name, sizeof(name), "message_bytes/%u.txt", version);
    FILE *file = prints ? NULL : fopen(test_data_path(name), "r");
    CHECKF(prints || file != NULL, "%s: make it by `test_message_bytes print`", name);
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
        message_line(file, version, &messages[i]);
    message_line(file, version, &(struct message){.kind = MESSAGE_STATS, .stats = stats});
    message_line(file, version,
                 &(struct message){.kind = MESSAGE_LOADS, .loads = {.count = 2, .loads = loads}});
    message_tokens_begin(&buffer);
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
        CHECK(message_tokens_add(&buffer, &tokens[i]) == ST_OK);
    line_check(file, message_kind_name(MESSAGE_TOKENS), &buffer);
    const size_t stage_count = sizeof(stage_messages) / sizeof(stage_messages[0]);
    for (size_t i = 0; i < stage_count && version == TRANSPORT_PROTOCOL_VERSION; i++) {
        CHECK(stage_message_encode(&stage_messages[i], &buffer) == ST_OK);
        line_check(file, stage_message_name(stage_messages[i].kind), &buffer);
    }
    if (file != NULL)
        fclose(file);
    message_buffer_done(&buffer);
}

int main(int argc, char **argv)
{
    const bool prints = argc > 1 && strcmp(argv[1], "print") == 0;
    bytes_number(&stats, sizeof(stats));
    bytes_number(loads, sizeof(loads));
    if (prints) {
        version_check(TRANSPORT_PROTOCOL_VERSION, true);
        return 0;
    }
    for (uint32_t version = TRANSPORT_PROTOCOL_LOWEST; version <= TRANSPORT_PROTOCOL_VERSION;
         version++)
        version_check(version, false);
    return 0;
}
