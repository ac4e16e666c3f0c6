/* Goal: messages of every kind are decoded to the encoded values, and no changed bytes pass the
 * decoder with a value out of range. Method: random messages of each kind, now and then at the ends
 * of the ranges, are encoded, decoded and compared field by field. Each is then cut at every length
 * and overwritten at random places: the decoder must refuse it, or return a message that encodes
 * again (the encoder checks every range). */
#include "common/random.h"
#include "tests/check.h"
#include "transport/message.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static uint64_t seed, draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static uint64_t draw64(void)
{
    return random_at(seed, draws++);
}

static void draw_text(char *text, size_t capacity)
{
    size_t length = draw(4) == 0 ? capacity - 1 : draw((uint32_t)capacity);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)(1 + draw(255));
    text[length] = 0;
}

static struct message_request draw_request(void)
{
    return (struct message_request){.id = draw64(), .generation = (uint32_t)draw64()};
}

static struct sampling draw_sampling(uint32_t tokens_low)
{
    struct sampling sampling = {
        .temperature = (float)draw(2000) / 1000,
        .top_p = (float)draw(1001) / 1000,
        .min_p = (float)draw(1001) / 1000,
        .top_k = (uint32_t)draw64(),
        .seed = draw64(),
        .logprobs = (int32_t)draw(LIMIT_LOGPROBS + 2) - 1,
        .output_tokens_max = tokens_low + draw(LIMIT_CONTEXT_TOKENS),
        .output_tokens_min = draw(LIMIT_CONTEXT_TOKENS + 1),
        .ignore_end = draw(2),
        .end_count = draw(17),
    };
    for (uint32_t i = 0; i < sampling.end_count; i++)
        sampling.ends[i] = (uint32_t)draw64();
    return sampling;
}

static struct message_rank draw_rank(void)
{
    return (struct message_rank){
        .key = draw64(),
        .weight = draw(LIMIT_WEIGHT + 1),
        .priority = (int32_t)draw(2 * LIMIT_PRIORITY + 1) - LIMIT_PRIORITY,
        .waited_ms = (uint32_t)draw64(),
        .preemptions = (uint32_t)draw64(),
    };
}

static uint32_t numbers[2][LIMIT_CONTEXT_TOKENS];

static uint64_t hashes[LIMIT_PREFIXES];
static struct message_stage stages[LIMIT_STAGES];
static struct message_load loads[LIMIT_STAGES];

static struct message_process draw_process(void)
{
    struct message_process process;
    for (size_t i = 0; i < sizeof(process) / sizeof(uint64_t); i++)
        ((uint64_t *)&process)[i] = draw64();
    return process;
}

static uint32_t draw_count(uint32_t low)
{
    return draw(200) == 0 ? LIMIT_CONTEXT_TOKENS : low + draw(100);
}

static struct message draw_message(enum message_kind kind)
{
    struct message message;
    memset(&message, 0, sizeof(message));
    message.kind = kind;
    switch (kind) {
    case MESSAGE_RESERVE:
        message.reserve.request = draw_request();
        draw_text(message.reserve.prompt_machine, LIMIT_NAME_BYTES);
        message.reserve.prompt_tokens = draw_count(1);
        message.reserve.prompt_count = draw(2) * message.reserve.prompt_tokens;
        message.reserve.prompt = numbers[1];
        message.reserve.rank = draw_rank();
        message.reserve.sampling = draw_sampling(1);
        break;
    case MESSAGE_RESERVED:
        message.reserved.request = draw_request();
        message.reserved.path = draw(LIMIT_STAGE_PATHS);
        message.reserved.held_count = draw_count(0);
        message.reserved.block_count = draw_count(0);
        message.reserved.blocks = numbers[0];
        break;
    case MESSAGE_PREFILL:
        message.prefill.request = draw_request();
        draw_text(message.prefill.token_machine, LIMIT_NAME_BYTES);
        message.prefill.score_prompt = draw(2);
        message.prefill.kv_path = (uint8_t)draw(KV_PATH_ONE_PIECE + 1);
        message.prefill.rank = draw_rank();
        message.prefill.sampling = draw_sampling(message.prefill.score_prompt ? 0 : 1);
        message.prefill.path = draw(LIMIT_STAGE_PATHS);
        message.prefill.held_count = draw_count(0);
        message.prefill.block_count = draw_count(0);
        message.prefill.blocks = numbers[0];
        message.prefill.prompt_count = draw_count(1);
        message.prefill.prompt = numbers[1];
        break;
    case MESSAGE_PREFILLED:
        message.prefilled.request = draw_request();
        message.prefilled.queue_us = (uint32_t)draw64();
        message.prefilled.prefill_us = (uint32_t)draw64();
        message.prefilled.exposed_us = (uint32_t)draw64();
        message.prefilled.transfer_us = (uint32_t)draw64();
        message.prefilled.layers = draw(LIMIT_LAYERS + 1);
        message.prefilled.layerwise = draw(2);
        message.prefilled.bytes = draw64();
        break;
    case MESSAGE_KV_READY:
        message.kv_ready.request = draw_request();
        message.kv_ready.prompt_tokens = 1 + draw(LIMIT_CONTEXT_TOKENS);
        message.kv_ready.first_token = (uint32_t)draw64();
        break;
    case MESSAGE_KV_ABORTED:
        message.kv_aborted = draw_request();
        break;
    case MESSAGE_CANCEL:
        message.cancel.request = draw_request();
        message.cancel.writer = draw(2);
        break;
    case MESSAGE_FAILED:
        message.failed.request = draw_request();
        message.failed.status = -1 - (int32_t)draw(11);
        draw_text(message.failed.text, sizeof(message.failed.text));
        break;
    case MESSAGE_PREEMPTED:
        message.preempted.request = draw_request();
        message.preempted.generated = draw(LIMIT_CONTEXT_TOKENS + 1);
        draw_text(message.preempted.text, sizeof(message.preempted.text));
        break;
    case MESSAGE_STATS:
        for (size_t i = 0; i < sizeof(message.stats) / sizeof(uint64_t); i++)
            ((uint64_t *)&message.stats)[i] = draw64();
        break;
    case MESSAGE_PEER:
        draw_text(message.peer.name, sizeof(message.peer.name));
        draw_text(message.peer.address, sizeof(message.peer.address));
        break;
    case MESSAGE_PREFIXES:
        message.prefixes.all = draw(2);
        message.prefixes.count = draw(100) == 0 ? LIMIT_PREFIXES : draw(40);
        message.prefixes.hashes = hashes;
        message.prefixes.held = numbers[0];
        break;
    case MESSAGE_LOADS:
        message.loads.count = draw(LIMIT_STAGES + 1);
        message.loads.loads = loads;
        for (uint32_t i = 0; i < message.loads.count; i++)
            loads[i] = (struct message_load){draw(64), draw(64), draw(16), 0, draw_process()};
        break;
    case MESSAGE_STAGES:
        message.stages.count = 1 + draw(LIMIT_STAGES);
        message.stages.stages = stages;
        for (uint32_t i = 0; i < message.stages.count; i++) {
            stages[i] = (struct message_stage){.paths = draw64()};
            stages[i].first_layer = draw(LIMIT_LAYERS);
            stages[i].last_layer =
                stages[i].first_layer + 1 + draw(LIMIT_LAYERS - stages[i].first_layer);
            stages[i].first_head = draw(LIMIT_HEADS);
            stages[i].last_head =
                stages[i].first_head + 1 + draw(LIMIT_HEADS - stages[i].first_head);
            draw_text(stages[i].address, sizeof(stages[i].address));
        }
        break;
    case MESSAGE_ROLE:
        message.role.role = (uint8_t)draw(POOL_MIXED + 1);
        message.role.home = (uint8_t)draw(POOL_MIXED + 1);
        message.role.serial = draw64();
        break;
    case MESSAGE_OTHERS:
        message.others = (struct message_others){.gateways = (uint32_t)draw64(),
                                                 .prompts = (uint32_t)draw64(),
                                                 .decodes = (uint32_t)draw64(),
                                                 .prompt_tokens = draw64(),
                                                 .kv_tokens = draw64(),
                                                 .mixed = draw(2),
                                                 .home = (uint8_t)draw(POOL_MIXED + 1),
                                                 .home_serial = draw64(),
                                                 .prompt_tokens_taken = draw64(),
                                                 .answers_taken = draw64()};
        draw_text(message.others.leader, sizeof(message.others.leader));
        break;
    case MESSAGE_LINK:
        draw_text(message.link.name, sizeof(message.link.name));
        message.link.up = draw(2);
        draw_text(message.link.text, sizeof(message.link.text));
        break;
    default:
        break;
    }
    return message;
}

static void check_request(const struct message_request *a, const struct message_request *b)
{
    CHECK(a->id == b->id && a->generation == b->generation);
}

static void check_sampling(const struct sampling *a, const struct sampling *b)
{
    CHECK(a->temperature == b->temperature && a->top_p == b->top_p && a->min_p == b->min_p);
    CHECK(a->top_k == b->top_k && a->seed == b->seed && a->logprobs == b->logprobs);
    CHECK(a->output_tokens_max == b->output_tokens_max);
    CHECK(a->output_tokens_min == b->output_tokens_min);
    CHECK(a->ignore_end == b->ignore_end && a->end_count == b->end_count);
    CHECK(memcmp(a->ends, b->ends, sizeof(a->ends)) == 0);
}

static void check_rank(const struct message_rank *a, const struct message_rank *b)
{
    CHECK(a->key == b->key && a->weight == b->weight && a->priority == b->priority);
    CHECK(a->waited_ms == b->waited_ms && a->preemptions == b->preemptions);
}

static void check_numbers(const uint32_t *a, const uint32_t *b, uint32_t count)
{
    CHECK(memcmp(a, b, count * sizeof(*a)) == 0);
}

static void check_others(const struct message_others *a, const struct message_others *b)
{
    CHECK(strcmp(a->leader, b->leader) == 0 && a->gateways == b->gateways);
    CHECK(a->prompts == b->prompts && a->decodes == b->decodes);
    CHECK(a->prompt_tokens == b->prompt_tokens && a->kv_tokens == b->kv_tokens);
    CHECK(a->mixed == b->mixed && a->home == b->home && a->home_serial == b->home_serial);
    CHECK(a->prompt_tokens_taken == b->prompt_tokens_taken);
    CHECK(a->answers_taken == b->answers_taken);
}

static void check_same(const struct message *a, const struct message *b)
{
    CHECK(a->kind == b->kind);
    switch (a->kind) {
    case MESSAGE_RESERVE:
        check_request(&a->reserve.request, &b->reserve.request);
        CHECK(strcmp(a->reserve.prompt_machine, b->reserve.prompt_machine) == 0);
        CHECK(a->reserve.prompt_tokens == b->reserve.prompt_tokens);
        CHECK(a->reserve.prompt_count == b->reserve.prompt_count);
        check_numbers(a->reserve.prompt, b->reserve.prompt, a->reserve.prompt_count);
        check_rank(&a->reserve.rank, &b->reserve.rank);
        check_sampling(&a->reserve.sampling, &b->reserve.sampling);
        break;
    case MESSAGE_RESERVED:
        check_request(&a->reserved.request, &b->reserved.request);
        CHECK(a->reserved.path == b->reserved.path &&
              a->reserved.held_count == b->reserved.held_count);
        CHECK(a->reserved.block_count == b->reserved.block_count);
        check_numbers(a->reserved.blocks, b->reserved.blocks, a->reserved.block_count);
        break;
    case MESSAGE_PREFILL:
        check_request(&a->prefill.request, &b->prefill.request);
        CHECK(strcmp(a->prefill.token_machine, b->prefill.token_machine) == 0);
        CHECK(a->prefill.score_prompt == b->prefill.score_prompt);
        CHECK(a->prefill.kv_path == b->prefill.kv_path);
        check_rank(&a->prefill.rank, &b->prefill.rank);
        check_sampling(&a->prefill.sampling, &b->prefill.sampling);
        CHECK(a->prefill.path == b->prefill.path && a->prefill.held_count == b->prefill.held_count);
        CHECK(a->prefill.block_count == b->prefill.block_count);
        check_numbers(a->prefill.blocks, b->prefill.blocks, a->prefill.block_count);
        CHECK(a->prefill.prompt_count == b->prefill.prompt_count);
        check_numbers(a->prefill.prompt, b->prefill.prompt, a->prefill.prompt_count);
        break;
    case MESSAGE_PREFILLED:
        check_request(&a->prefilled.request, &b->prefilled.request);
        CHECK(a->prefilled.queue_us == b->prefilled.queue_us);
        CHECK(a->prefilled.prefill_us == b->prefilled.prefill_us);
        CHECK(a->prefilled.exposed_us == b->prefilled.exposed_us);
        CHECK(a->prefilled.transfer_us == b->prefilled.transfer_us);
        CHECK(a->prefilled.layers == b->prefilled.layers);
        CHECK(a->prefilled.layerwise == b->prefilled.layerwise);
        CHECK(a->prefilled.bytes == b->prefilled.bytes);
        break;
    case MESSAGE_KV_READY:
        check_request(&a->kv_ready.request, &b->kv_ready.request);
        CHECK(a->kv_ready.prompt_tokens == b->kv_ready.prompt_tokens);
        CHECK(a->kv_ready.first_token == b->kv_ready.first_token);
        break;
    case MESSAGE_KV_ABORTED:
        check_request(&a->kv_aborted, &b->kv_aborted);
        break;
    case MESSAGE_CANCEL:
        check_request(&a->cancel.request, &b->cancel.request);
        CHECK(a->cancel.writer == b->cancel.writer);
        break;
    case MESSAGE_FAILED:
        check_request(&a->failed.request, &b->failed.request);
        CHECK(a->failed.status == b->failed.status);
        CHECK(strcmp(a->failed.text, b->failed.text) == 0);
        break;
    case MESSAGE_PREEMPTED:
        check_request(&a->preempted.request, &b->preempted.request);
        CHECK(a->preempted.generated == b->preempted.generated);
        CHECK(strcmp(a->preempted.text, b->preempted.text) == 0);
        break;
    case MESSAGE_STATS:
        CHECK(memcmp(&a->stats, &b->stats, sizeof(a->stats)) == 0);
        break;
    case MESSAGE_PEER:
        CHECK(strcmp(a->peer.name, b->peer.name) == 0);
        CHECK(strcmp(a->peer.address, b->peer.address) == 0);
        break;
    case MESSAGE_PREFIXES:
        CHECK(a->prefixes.all == b->prefixes.all && a->prefixes.count == b->prefixes.count);
        CHECK(memcmp(a->prefixes.hashes, b->prefixes.hashes,
                     a->prefixes.count * sizeof(uint64_t)) == 0);
        check_numbers(a->prefixes.held, b->prefixes.held, a->prefixes.count);
        break;
    case MESSAGE_LOADS:
        CHECK(a->loads.count == b->loads.count);
        CHECK(memcmp(a->loads.loads, b->loads.loads, a->loads.count * sizeof(a->loads.loads[0])) ==
              0);
        break;
    case MESSAGE_STAGES:
        CHECK(a->stages.count == b->stages.count);
        CHECK(memcmp(a->stages.stages, b->stages.stages,
                     a->stages.count * sizeof(a->stages.stages[0])) == 0);
        break;
    case MESSAGE_ROLE:
        CHECK(a->role.role == b->role.role && a->role.home == b->role.home);
        CHECK(a->role.serial == b->role.serial);
        break;
    case MESSAGE_OTHERS:
        check_others(&a->others, &b->others);
        break;
    case MESSAGE_LINK:
        CHECK(strcmp(a->link.name, b->link.name) == 0 && a->link.up == b->link.up);
        CHECK(strcmp(a->link.text, b->link.text) == 0);
        break;
    default:
        break;
    }
}

/* Cuts and overwrites an encoded message. */
static void damage(const struct message_buffer *whole)
{
    size_t step = whole->bytes > 600 ? 1 + whole->bytes / 300 : 1;
    struct message out;
    struct error error;
    for (size_t bytes = 0; bytes < whole->bytes; bytes += step) {
        uint8_t *copy = malloc(bytes + 1);
        memcpy(copy, whole->data, bytes);
        error.text[0] = 0;
        CHECK(message_decode(copy, bytes, &out, &error) == ST_INVALID);
        CHECK(error.text[0] != 0);
        if (bytes >= 8) { /* a cut that the length in the header hides */
            uint32_t claim = (uint32_t)bytes;
            memcpy(copy + 4, &claim, sizeof(claim));
            CHECK(message_decode(copy, bytes, &out, &error) == ST_INVALID);
        }
        free(copy);
    }
    struct message_buffer again = {0};
    uint8_t *copy = malloc(whole->bytes);
    for (int i = 0; i < 60; i++) {
        memcpy(copy, whole->data, whole->bytes);
        for (uint32_t k = 1 + draw(3); k > 0; k--)
            copy[draw((uint32_t)whole->bytes)] = (uint8_t)draw(256);
        if (message_decode(copy, whole->bytes, &out, &error) != ST_OK)
            continue;
        if (out.kind == MESSAGE_TOKENS) {
            struct message_token token;
            uint32_t count = 0;
            message_tokens_begin(&again);
            for (; message_tokens_next(&out.tokens, &token); count++)
                CHECK(message_tokens_add(&again, &token) == ST_OK);
            CHECK(count == out.tokens.count);
        } else {
            CHECK(message_encode(&out, &again) == ST_OK);
        }
    }
    free(copy);
    message_buffer_done(&again);
}

static void test_round_trip(void)
{
    struct message_buffer buffer = {0};
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 200; k++)
                numbers[i][draw(LIMIT_CONTEXT_TOKENS)] = (uint32_t)draw64();
        hashes[draw(LIMIT_PREFIXES)] = draw64();
        for (enum message_kind kind = MESSAGE_RESERVE; kind < MESSAGE_KIND_COUNT; kind++) {
            if (kind == MESSAGE_TOKENS)
                continue;
            struct message in = draw_message(kind);
            struct message out;
            struct error error;
            CHECK(message_encode(&in, &buffer) == ST_OK);
            CHECK(buffer.bytes <= LIMIT_MESSAGE_BYTES);
            CHECKF(message_decode(buffer.data, buffer.bytes, &out, &error) == ST_OK, "%s",
                   error.text);
            check_same(&in, &out);
            damage(&buffer);
        }
    }
    message_buffer_done(&buffer);
}

static struct message_token draw_token(void)
{
    struct message_token token = {
        .request = draw64(),
        .generation = (uint32_t)draw64(),
        .index = (uint32_t)draw64(),
        .id = (uint32_t)draw64(),
        .finish = (uint8_t)draw(FINISH_LENGTH + 1),
        .scored = draw(2),
        .wait_us = (uint32_t)draw64(),
        .run_us = (uint32_t)draw64(),
        .cached_tokens = (uint32_t)draw64(),
        .has_logprob = draw(2),
        .logprob = -(float)draw(100000) / 1000,
        .top_count = (uint8_t)draw(LIMIT_LOGPROBS + 1),
    };
    for (uint32_t i = 0; i < token.top_count; i++) {
        token.top_ids[i] = (uint32_t)draw64();
        token.top_logprobs[i] = -(float)draw(100000) / 1000;
    }
    return token;
}

static void test_tokens(void)
{
    struct message_buffer buffer = {0};
    for (int round = 0; round < 300; round++) {
        struct message_token in[40];
        uint32_t count = 1 + draw(40);
        message_tokens_begin(&buffer);
        for (uint32_t i = 0; i < count; i++) {
            in[i] = draw_token();
            CHECK(message_tokens_add(&buffer, &in[i]) == ST_OK);
        }
        struct message message;
        struct error error;
        CHECKF(message_decode(buffer.data, buffer.bytes, &message, &error) == ST_OK, "%s",
               error.text);
        CHECK(message.kind == MESSAGE_TOKENS && message.tokens.count == count);
        struct message_token out;
        for (uint32_t i = 0; i < count; i++) {
            CHECK(message_tokens_next(&message.tokens, &out));
            CHECK(out.request == in[i].request && out.generation == in[i].generation);
            CHECK(out.index == in[i].index && out.id == in[i].id && out.finish == in[i].finish);
            CHECK(out.scored == in[i].scored && out.has_logprob == in[i].has_logprob);
            CHECK(out.wait_us == in[i].wait_us && out.run_us == in[i].run_us);
            CHECK(out.cached_tokens == in[i].cached_tokens);
            CHECK(out.logprob == in[i].logprob && out.top_count == in[i].top_count);
            check_numbers(out.top_ids, in[i].top_ids, out.top_count);
            CHECK(memcmp(out.top_logprobs, in[i].top_logprobs, out.top_count * sizeof(float)) == 0);
        }
        CHECK(!message_tokens_next(&message.tokens, &out));
        damage(&buffer);
    }

    /* A full buffer refuses the next token and is still a message. */
    message_tokens_begin(&buffer);
    struct message_token token = draw_token();
    token.top_count = LIMIT_LOGPROBS;
    memset(token.top_logprobs, 0, sizeof(token.top_logprobs));
    uint32_t added = 0;
    while (message_tokens_add(&buffer, &token) == ST_OK)
        added++;
    CHECK(message_tokens_add(&buffer, &token) == ST_TOO_LARGE);
    struct message message;
    CHECK(message_decode(buffer.data, buffer.bytes, &message, NULL) == ST_OK);
    CHECK(message.tokens.count == added && added > 10000);
    message_buffer_done(&buffer);
}

/* The encoder refuses what a peer would refuse, and the texts name kind, field and value. */
static void test_refusals(void)
{
    struct message_buffer buffer = {0};
    struct message message = draw_message(MESSAGE_RESERVE);
    message.reserve.sampling.temperature = NAN;
    CHECK(message_encode(&message, &buffer) == ST_INVALID);
    message.reserve.sampling.temperature = 1;
    message.reserve.sampling.end_count = 17;
    CHECK(message_encode(&message, &buffer) == ST_INVALID);
    message = draw_message(MESSAGE_RESERVE);
    message.reserve.prompt_tokens = 20;
    message.reserve.prompt_count = 19;
    CHECK(message_encode(&message, &buffer) == ST_INVALID);
    message = draw_message(MESSAGE_PEER);
    memset(message.peer.name, 'x', sizeof(message.peer.name));
    CHECK(message_encode(&message, &buffer) == ST_INVALID);
    message = draw_message(MESSAGE_STAGES);
    stages[message.stages.count - 1].last_head = LIMIT_HEADS + 1;
    CHECK(message_encode(&message, &buffer) == ST_INVALID);
    message = draw_message(MESSAGE_STAGES);
    stages[0].first_head = stages[0].last_head;
    CHECK(message_encode(&message, &buffer) == ST_INVALID);
    message = draw_message(MESSAGE_PREFILL);
    message.prefill.prompt_count = LIMIT_CONTEXT_TOKENS + 1;
    CHECK(message_encode(&message, &buffer) == ST_TOO_LARGE);
    message.kind = MESSAGE_TOKENS;
    CHECK(message_encode(&message, &buffer) == ST_INVALID);
    struct message_token token = draw_token();
    token.logprob = INFINITY;
    message_tokens_begin(&buffer);
    CHECK(message_tokens_add(&buffer, &token) == ST_INVALID);
    token = draw_token();
    token.top_count = LIMIT_LOGPROBS + 1;
    CHECK(message_tokens_add(&buffer, &token) == ST_TOO_LARGE);

    message = draw_message(MESSAGE_FAILED);
    CHECK(message_encode(&message, &buffer) == ST_OK);
    int32_t wrong = 7;
    memcpy(buffer.data + 8 + 16, &wrong, sizeof(wrong));
    struct error error;
    CHECK(message_decode(buffer.data, buffer.bytes, &message, &error) == ST_INVALID);
    CHECKF(strcmp(error.text, "FAILED message: status = 7: want -100 to -1") == 0, "%s",
           error.text);
    uint32_t kind = 99;
    memcpy(buffer.data, &kind, sizeof(kind));
    CHECK(message_decode(buffer.data, buffer.bytes, &message, &error) == ST_INVALID);
    CHECKF(strcmp(error.text, "message of unknown kind 99") == 0, "%s", error.text);
    message_buffer_done(&buffer);
}

int main(void)
{
    seed = test_seed();
    test_round_trip();
    test_tokens();
    test_refusals();
    return 0;
}
