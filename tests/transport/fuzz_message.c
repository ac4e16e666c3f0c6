/* Goal: no bytes from a peer make the message decoder read outside them, or return a value out of
 * range. Method: fuzzed changes of one message of each kind; a decoded message is read to its last
 * element and encoded again (the encoder checks every range). */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "transport/message.h"

#include <string.h>

static volatile uint32_t reads; /* so that they are made */

static uint32_t sum(const uint32_t *numbers, uint32_t count)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += numbers[i];
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct message_buffer again;
    uint8_t *copy = malloc(size > 0 ? size : 1); /* aligned, and exact for the sanitizer */
    CHECK(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    struct message message;
    struct error error;
    if (message_decode(copy, size, &message, &error) == ST_OK) {
        if (message.kind == MESSAGE_RESERVE)
            reads += sum(message.reserve.prompt, message.reserve.prompt_count);
        if (message.kind == MESSAGE_RESERVED)
            reads += sum(message.reserved.blocks, message.reserved.block_count);
        if (message.kind == MESSAGE_PREFILL)
            reads += sum(message.prefill.blocks, message.prefill.block_count) +
                     sum(message.prefill.prompt, message.prefill.prompt_count);
        for (uint32_t i = 0; message.kind == MESSAGE_PREFIXES && i < message.prefixes.count; i++)
            reads += (uint32_t)message.prefixes.hashes[i] + message.prefixes.held[i];
        for (uint32_t i = 0; message.kind == MESSAGE_STAGES && i < message.stages.count; i++) {
            const struct message_stage *stage = &message.stages.stages[i];
            CHECK(stage->first_layer < stage->last_layer && stage->last_layer <= LIMIT_LAYERS);
            CHECK(stage->first_head < stage->last_head && stage->last_head <= LIMIT_HEADS);
            reads += (uint32_t)strlen(stage->address);
        }
        if (message.kind == MESSAGE_TOKENS) {
            struct message_token token;
            message_tokens_begin(&again);
            while (message_tokens_next(&message.tokens, &token))
                CHECK(message_tokens_add(&again, &token) == ST_OK);
        } else {
            CHECK(message_encode(&message, &again) == ST_OK);
        }
    } else {
        CHECK(error.text[0] != 0);
    }
    free(copy);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const uint32_t numbers[] = {3, 1, 4, 1, 5, 9, 2, 6};
    static const uint64_t hashes[] = {1ull << 40, 2, 3};
    static const struct message_stage stages[] = {
        {.paths = 1, .last_layer = 3, .last_head = 2, .address = "a:1"},
        {.paths = 1, .first_layer = 3, .last_layer = 9, .first_head = 2, .last_head = 8}};
    struct message message;
    struct message_buffer encoded = {0};
    enum message_kind kind = (enum message_kind)(index + 1);
    if (kind >= MESSAGE_KIND_COUNT)
        return 0;
    memset(&message, 0, sizeof(message));
    message.kind = kind;
    if (kind == MESSAGE_RESERVE) {
        message.reserve.prompt_tokens = 5;
        message.reserve.prompt_count = 5;
        message.reserve.prompt = numbers;
        message.reserve.sampling.output_tokens_max = 7;
    } else if (kind == MESSAGE_RESERVED) {
        message.reserved.block_count = 8;
        message.reserved.blocks = numbers;
    } else if (kind == MESSAGE_PREFILL) {
        message.prefill.block_count = 2;
        message.prefill.blocks = numbers;
        message.prefill.prompt_count = 8;
        message.prefill.prompt = numbers;
        message.prefill.sampling.output_tokens_max = 7;
        strcpy(message.prefill.token_machine, "t0");
    } else if (kind == MESSAGE_PREFIXES) {
        message.prefixes.count = 3;
        message.prefixes.hashes = hashes;
        message.prefixes.held = numbers;
    } else if (kind == MESSAGE_STAGES) {
        message.stages.count = 2;
        message.stages.stages = stages;
    } else if (kind == MESSAGE_KV_READY) {
        message.kv_ready.prompt_tokens = 5;
    } else if (kind == MESSAGE_PREEMPTED) {
        message.preempted.generated = 5;
        strcpy(message.preempted.text, "no block is free");
    } else if (kind == MESSAGE_FAILED) {
        message.failed.status = ST_IO;
        strcpy(message.failed.text, "the disk is gone");
    }
    if (kind == MESSAGE_TOKENS) {
        struct message_token token = {.index = 3, .id = 9, .has_logprob = true, .top_count = 2};
        message_tokens_begin(&encoded);
        for (int i = 0; i < 3; i++)
            CHECK(message_tokens_add(&encoded, &token) == ST_OK);
    } else {
        CHECK(message_encode(&message, &encoded) == ST_OK);
    }
    CHECK(encoded.bytes <= capacity);
    memcpy(buffer, encoded.data, encoded.bytes);
    size_t bytes = encoded.bytes;
    message_buffer_done(&encoded);
    return bytes;
}
