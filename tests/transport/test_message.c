/* Goal: messages of every kind are decoded to the encoded values, and no bytes pass a decoder with
 * a field out of its range. Method: random messages of every kind, made from the tables and often
 * at the ends of the ranges, are encoded, decoded and compared. Each is cut at many lengths and
 * overwritten at random places: the decoder must refuse it, or return a message that encodes again.
 * Each is also sent as every version of the protocol has it, and with more fields and arrays, as a
 * later version could send it.
 * Then every rule of every table has a message that breaks only this rule, which must be refused
 * with a text that names message and field. */
#include "common/pooling.h"
#include "tests/transport/message_example.h"

#include <math.h>
#include <stddef.h>

static struct draws draws;

static bool bytes_equal(const void *a, const void *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

static const uint8_t *elements_of(const struct message_array *array, const uint8_t *fields)
{
    const uint8_t *elements;
    memcpy(&elements, fields + array->pointer, sizeof(elements));
    return elements;
}

static size_t array_bytes(const struct message_array *array, const uint8_t *fields)
{
    return (size_t)number_at(fields + array->count) * array->element_bytes;
}

static void check_same(union any_message *a, union any_message *b, uint32_t kind)
{
    const struct message_layout *layout = any_layout(kind);
    const uint8_t *from = any_fields(a, kind), *to = any_fields(b, kind);
    CHECK(kind < STAGE_OPEN ? b->control.kind == kind : b->stage.kind == kind);
    CHECK(bytes_equal(from, to, layout->bytes));
    for (uint32_t i = 0; i < layout->array_count; i++)
        CHECK(bytes_equal(elements_of(&layout->arrays[i], from),
                          elements_of(&layout->arrays[i], to),
                          array_bytes(&layout->arrays[i], from)));
}

/* Cuts a message, with the old and with the new length in the header. */
static void check_cuts(const struct message_buffer *whole, uint32_t kind)
{
    size_t step = whole->bytes > 600 ? 1 + whole->bytes / 300 : 1;
    union any_message out;
    struct error error;
    for (size_t bytes = 0; bytes < whole->bytes; bytes += step) {
        uint8_t *copy = malloc(bytes + 1);
        uint32_t claim = (uint32_t)bytes;
        memcpy(copy, whole->data, bytes);
        error.text[0] = 0;
        CHECK(any_decode(copy, bytes, kind, &out, &error) == ST_INVALID);
        CHECK(error.text[0] != 0);
        if (bytes >= 8) {
            memcpy(copy + 4, &claim, sizeof(claim));
            CHECK(any_decode(copy, bytes, kind, &out, &error) == ST_INVALID);
        }
        free(copy);
    }
}

/* Overwrites a message. If the decoder accepts the change, encoding and decoding it again gives the
 * same message. */
static void check_changes(const struct message_buffer *whole, uint32_t kind)
{
    struct message_buffer again = {0};
    union any_message out, other;
    struct message_token token;
    struct error error;
    uint8_t *copy = malloc(whole->bytes);
    for (int i = 0; i < 60; i++) {
        memcpy(copy, whole->data, whole->bytes);
        for (uint32_t k = 1 + draw(&draws, 3); k > 0; k--)
            copy[draw(&draws, (uint32_t)whole->bytes)] = (uint8_t)draw(&draws, 256);
        const uint32_t now = kind_at(copy);
        if (any_decode(copy, whole->bytes, kind, &out, &error) != ST_OK)
            continue;
        if (now == MESSAGE_TOKENS) {
            uint32_t count = 0;
            message_tokens_begin(&again);
            for (; message_tokens_next(&out.control.tokens, &token); count++)
                CHECK(message_tokens_add(&again, &token) == ST_OK);
            CHECK(count == out.control.tokens.count);
            continue;
        }
        CHECK(any_encode(&out, now, &again) == ST_OK);
        /* More fields than this version knows are not encoded again. */
        CHECK(again.bytes == whole->bytes ||
              ((const struct wire_header *)copy)->struct_bytes > any_layout(now)->bytes);
        CHECK(any_decode(again.data, again.bytes, now, &other, &error) == ST_OK);
    }
    free(copy);
    message_buffer_done(&again);
}

/* ---- other versions ---- */

/* What a peer of an older version gets and sends. */
static void check_older(uint32_t kind)
{
    const struct message_layout *layout = any_layout(kind);
    struct message_buffer buffer = {0}, again = {0};
    for (uint32_t version = TRANSPORT_PROTOCOL_LOWEST; version <= TRANSPORT_PROTOCOL_VERSION;
         version++) {
        union any_message in, out;
        struct error error;
        uint32_t arrays;
        const size_t bytes = message_bytes_in(layout, version, &arrays);
        message_example(&draws, kind, &in);
        CHECK(message_encode(&in.control, version, &buffer) == ST_OK);
        CHECK(((const struct wire_header *)buffer.data)->struct_bytes == bytes);
        CHECKF(any_decode(buffer.data, buffer.bytes, kind, &out, &error) == ST_OK, "%s",
               error.text);
        const uint8_t *from = any_fields(&in, kind), *to = any_fields(&out, kind);
        CHECK(bytes <= layout->bytes && memcmp(from, to, bytes) == 0);
        for (size_t i = bytes; i < layout->bytes; i++)
            CHECKF(to[i] == 0, "%s byte %zu is not in version %u", layout->name, i, version);
        for (uint32_t i = 0; i < layout->array_count; i++)
            CHECK(i < arrays ? bytes_equal(elements_of(&layout->arrays[i], from),
                                           elements_of(&layout->arrays[i], to),
                                           array_bytes(&layout->arrays[i], from))
                             : array_bytes(&layout->arrays[i], to) == 0);
        CHECK(message_encode(&out.control, version, &again) == ST_OK);
        CHECK(again.bytes == buffer.bytes && memcmp(again.data, buffer.data, again.bytes) == 0);
    }
    message_buffer_done(&buffer);
    message_buffer_done(&again);
}

/* Decodes a message whose struct has another size, in a copy of exactly its bytes. */
static enum status decode_sized(const uint8_t *data, size_t bytes, uint32_t struct_bytes,
                                uint32_t kind, union any_message *out, uint8_t **copy_out)
{
    struct error error = {.text = ""};
    struct wire_header header;
    uint8_t *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    memcpy(&header, copy, sizeof(header));
    header.struct_bytes = (uint16_t)struct_bytes;
    header.bytes = (uint32_t)bytes;
    memcpy(copy, &header, sizeof(header));
    const enum status status = any_decode(copy, bytes, kind, out, &error);
    CHECK((status == ST_OK) == (error.text[0] == 0));
    *copy_out = copy;
    return status;
}

/* What a peer of a later version may send. */
static void check_newer(const struct message_buffer *whole, uint32_t kind, union any_message *in)
{
    const struct message_layout *layout = any_layout(kind);
    const uint32_t fields = 8 * (1 + draw(&draws, 40)), rest = draw(&draws, 100);
    uint8_t *longer = malloc(whole->bytes + fields + rest), *copy;
    union any_message out;
    uint32_t arrays;
    const size_t bytes = message_extend(whole->data, whole->bytes, fields, rest, &draws, longer);
    const uint32_t least = (uint32_t)message_bytes_in(layout, TRANSPORT_PROTOCOL_LOWEST, &arrays);
    CHECK(layout->bytes % 8 == 0 && least % 8 == 0);
    CHECK(decode_sized(longer, bytes, layout->bytes + fields, kind, &out, &copy) == ST_OK);
    check_same(in, &out, kind);
    free(copy);
    /* Cut within what this version knows. */
    const size_t known = whole->bytes + fields;
    CHECK(decode_sized(longer, known - 1 - draw(&draws, (uint32_t)known - 8),
                       layout->bytes + fields, kind, &out, &copy) == ST_INVALID);
    free(copy);
    /* Fewer fields than the lowest version has, and a size that is no multiple of 8. */
    if (least > 0) {
        CHECK(decode_sized(longer, bytes, least - 8, kind, &out, &copy) == ST_INVALID);
        free(copy);
    }
    CHECK(decode_sized(longer, bytes, layout->bytes + 4, kind, &out, &copy) == ST_INVALID);
    free(copy);
    /* More bytes at the end, but no more fields. */
    memcpy(longer, whole->data, whole->bytes);
    memset(longer + whole->bytes, 0, 1);
    CHECK(decode_sized(longer, whole->bytes + 1, layout->bytes, kind, &out, &copy) == ST_INVALID);
    free(copy);
    free(longer);
}

static void check_round_trip(uint32_t kind, struct message_buffer *buffer)
{
    union any_message in, out;
    struct error error;
    message_example(&draws, kind, &in);
    CHECKF(any_encode(&in, kind, buffer) == ST_OK, "%s", any_layout(kind)->name);
    enum status status = any_decode(buffer->data, buffer->bytes, kind, &out, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    check_same(&in, &out, kind);
    check_newer(buffer, kind, &in);
}

/* ---- rules ---- */

/* Writes the next value that breaks the rule; returns false after the last one. */
static bool break_rule(const struct message_rule *rule, uint8_t *fields, uint32_t variant)
{
    static const float floats[] = {NAN, INFINITY, -INFINITY};
    uint8_t *at = fields + rule->offset;
    int64_t value = variant == 0 ? rule->high + 1 : rule->low - 1;
    float real;
    uint32_t number;
    switch (rule->kind) {
    case RULE_U8:
    case RULE_U32:
    case RULE_I32:
        if (variant == 1 && value < 0 && rule->kind != RULE_I32)
            return false; /* An unsigned number cannot be lower. */
        number = (uint32_t)value;
        memcpy(at, &number, rule->kind == RULE_U8 ? 1 : sizeof(number));
        return variant < 2;
    case RULE_FLOAT:
        real = variant < 3    ? floats[variant]
               : variant == 3 ? (float)rule->high * 1.01f + 0.01f
                              : (float)rule->low - 0.01f;
        memcpy(at, &real, sizeof(real));
        return variant < 5;
    case RULE_FINITE:
        real = floats[variant % 3];
        memcpy(at, &real, sizeof(real));
        return variant < 3;
    case RULE_BELOW:
        number = variant == 0 ? number_at(fields + rule->limit_offset) : UINT32_MAX;
        memcpy(at, &number, sizeof(number));
        return variant < 2;
    case RULE_TEXT:
        memset(at, 'x', rule->bytes);
        return variant < 1;
    default:
        return false;
    }
}

/* Breaks the rules of a struct at data + at, one after the other. Returns the number of cases. */
static uint32_t check_rules(const struct message_layout *layout, size_t at, uint32_t kind,
                            const struct message_buffer *whole)
{
    uint32_t cases = 0;
    uint8_t *copy = malloc(whole->bytes);
    for (uint32_t i = 0; i < layout->rule_count; i++) {
        const struct message_rule *rule = &layout->rules[i];
        if (rule->kind == RULE_STRUCT)
            cases += check_rules(rule->inner, at + rule->offset, kind, whole);
        for (uint32_t variant = 0;; variant++, cases++) {
            union any_message out;
            struct error error = {.text = ""};
            memcpy(copy, whole->data, whole->bytes);
            if (!break_rule(rule, copy + at, variant))
                break;
            CHECKF(any_decode(copy, whole->bytes, kind, &out, &error) == ST_INVALID, "%s %s",
                   any_layout(kind)->name, rule->field);
            CHECKF(strstr(error.text, rule->field) != NULL &&
                       strncmp(error.text, any_layout(kind)->name,
                               strlen(any_layout(kind)->name)) == 0,
                   "want %s in \"%s\"", rule->field, error.text);
        }
    }
    free(copy);
    return cases;
}

/* The encoder of control messages refuses what a peer would refuse. */
static void check_encoder(uint32_t kind)
{
    const struct message_layout *layout = any_layout(kind);
    struct message_buffer buffer = {0};
    for (uint32_t i = 0; i < layout->rule_count; i++)
        for (uint32_t variant = 0;; variant++) {
            union any_message message;
            message_example(&draws, kind, &message);
            if (!break_rule(&layout->rules[i], any_fields(&message, kind), variant))
                break;
            CHECKF(any_encode(&message, kind, &buffer) == ST_INVALID, "%s %s", layout->name,
                   layout->rules[i].field);
        }
    message_buffer_done(&buffer);
}

/* Breaks every rule of the kind: of its fields, and of an element of each array. */
static uint32_t check_refusals(uint32_t kind)
{
    const struct message_layout *layout = any_layout(kind);
    struct message_buffer buffer = {0};
    union any_message message;
    const uint8_t *fields = any_fields(&message, kind);
    bool full;
    do { /* Until all arrays have elements. */
        message_example(&draws, kind, &message);
        full = true;
        for (uint32_t i = 0; i < layout->array_count; i++)
            full = full && number_at(fields + layout->arrays[i].count) > 0;
    } while (!full);
    CHECK(any_encode(&message, kind, &buffer) == ST_OK);
    uint32_t cases = check_rules(layout, sizeof(struct wire_header), kind, &buffer);
    size_t at = sizeof(struct wire_header) + layout->bytes;
    for (uint32_t i = 0; i < layout->array_count; i++) {
        const struct message_array *array = &layout->arrays[i];
        at = (at + 7) / 8 * 8;
        const uint32_t index = draw(&draws, number_at(fields + array->count));
        if (array->element != NULL)
            cases += check_rules(array->element, at + index * array->element_bytes, kind, &buffer);
        at += array_bytes(array, fields);
    }
    CHECK(at == buffer.bytes);
    if (kind < STAGE_OPEN)
        check_encoder(kind);
    message_buffer_done(&buffer);
    return cases;
}

static void test_kinds(void)
{
    struct message_buffer buffer = {0};
    uint32_t cases = 0;
    for (int round = 0; round < (TEST_SANITIZED ? 60 : 300); round++)
        for (uint32_t kind = 1; kind < STAGE_KIND_END; kind++) {
            if (any_layout(kind) == NULL || kind == MESSAGE_TOKENS)
                continue;
            check_round_trip(kind, &buffer);
            if (round < 40) {
                check_cuts(&buffer, kind);
                check_changes(&buffer, kind);
            }
            if (round < 10)
                cases += check_refusals(kind);
            if (kind < STAGE_OPEN)
                check_older(kind);
        }
    printf("%u broken rules\n", cases);
    message_buffer_done(&buffer);
}

/* ---- tokens ---- */

static struct message_token draw_token(void)
{
    struct message_token token = {
        .request = draw64(&draws),
        .generation = (uint32_t)draw64(&draws),
        .index = (uint32_t)draw64(&draws),
        .id = (uint32_t)draw64(&draws),
        .finish = (uint8_t)draw(&draws, FINISH_LENGTH + 1),
        .scored = draw(&draws, 2),
        .wait_us = (uint32_t)draw64(&draws),
        .run_us = (uint32_t)draw64(&draws),
        .cached_tokens = (uint32_t)draw64(&draws),
        .has_logprob = draw(&draws, 2),
        .logprob = -(float)draw(&draws, 100000) / 1000,
        .top_count = (uint8_t)draw(&draws, LIMIT_LOGPROBS + 1),
    };
    for (uint32_t i = 0; i < token.top_count; i++) {
        token.top_ids[i] = (uint32_t)draw64(&draws);
        token.top_logprobs[i] = -(float)draw(&draws, 100000) / 1000;
    }
    return token;
}

/* A later version sends `more` further bytes of each token, in front of its top_ids. */
static void check_longer_tokens(const struct message_token *in, uint32_t count)
{
    static uint64_t frame[4096];
    const uint32_t known = offsetof(struct message_token, top_ids);
    const uint32_t more = 8 * draw(&draws, 4), wrong = draw(&draws, 8);
    struct wire_header *header = (struct wire_header *)frame;
    struct message_token out;
    struct message message;
    struct error error;
    uint8_t *at = (uint8_t *)&frame[2];
    uint32_t *fields = (uint32_t *)&frame[1];
    for (uint32_t i = 0; i < count; i++) {
        const size_t top = in[i].top_count * sizeof(uint32_t);
        CHECK((size_t)(at - (uint8_t *)frame) + known + more + 2 * top <= sizeof(frame));
        memcpy(at, &in[i], known);
        draw_bytes(&draws, at + known, more);
        memcpy(at + known + more, in[i].top_ids, top);
        memcpy(at + known + more + top, in[i].top_logprobs, top);
        at += known + more + 2 * top;
    }
    const size_t bytes = (size_t)(at - (uint8_t *)frame);
    *header = (struct wire_header){MESSAGE_TOKENS, 8, (uint32_t)bytes};
    fields[0] = count;
    fields[1] = known + more;
    CHECKF(message_decode((uint8_t *)frame, bytes, &message, &error) == ST_OK, "%s", error.text);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(message_tokens_next(&message.tokens, &out));
        CHECK(memcmp(&out, &in[i], known) == 0);
        CHECK(memcmp(out.top_ids, in[i].top_ids, out.top_count * sizeof(uint32_t)) == 0);
    }
    CHECK(!message_tokens_next(&message.tokens, &out));
    /* A size that is no multiple of 8, or less than in the lowest version. */
    fields[1] = wrong == 0 ? known - 8 : known + more + wrong;
    CHECK(message_decode((uint8_t *)frame, bytes, &message, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "token_bytes") != NULL, "%s", error.text);
}

static void test_tokens(void)
{
    struct message_buffer buffer = {0};
    for (int round = 0; round < 300; round++) {
        struct message_token in[40];
        uint32_t count = 1 + draw(&draws, 40);
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
            CHECK(memcmp(out.top_ids, in[i].top_ids, out.top_count * sizeof(uint32_t)) == 0);
            CHECK(memcmp(out.top_logprobs, in[i].top_logprobs, out.top_count * sizeof(float)) == 0);
        }
        CHECK(!message_tokens_next(&message.tokens, &out));
        check_cuts(&buffer, MESSAGE_TOKENS);
        check_changes(&buffer, MESSAGE_TOKENS);
        check_longer_tokens(in, count);
    }

    /* A full buffer refuses the next token and still contains a valid message. */
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

/* ---- the rest ---- */

/* Relations between fields, which are not in the tables. */
static void test_relations(void)
{
    struct message_buffer buffer = {0};
    union any_message any;
    struct message *message = &any.control;
    message_example(&draws, MESSAGE_RESERVE, &any);
    message->reserve.prompt_tokens = 20;
    message->reserve.prompt_count = 19;
    CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_INVALID);
    message_example(&draws, MESSAGE_RESERVE, &any);
    message->reserve.sampling.output_tokens_max = 0;
    CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_INVALID);
    message_example(&draws, MESSAGE_PREFILL, &any);
    message->prefill.sampling.output_tokens_max = 0;
    message->prefill.score_prompt = true;
    CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_OK);
    message->prefill.score_prompt = false;
    message->prefill.pooling = POOLING_LAST;
    CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_OK);
    message->prefill.pooling = POOLING_NONE;
    CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_INVALID);
    message->kind = MESSAGE_TOKENS;
    CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_INVALID);

    struct message_token token = draw_token();
    token.logprob = INFINITY;
    message_tokens_begin(&buffer);
    CHECK(message_tokens_add(&buffer, &token) == ST_INVALID);
    token = draw_token();
    token.top_count = 1;
    token.top_logprobs[0] = NAN;
    CHECK(message_tokens_add(&buffer, &token) == ST_INVALID);
    token.finish = FINISH_LENGTH + 1;
    CHECK(message_tokens_add(&buffer, &token) == ST_INVALID);
    token = draw_token();
    token.top_count = LIMIT_LOGPROBS + 1;
    CHECK(message_tokens_add(&buffer, &token) == ST_INVALID);
    message_buffer_done(&buffer);
}

static void refuse_bytes(const void *bytes, size_t count, uint32_t kind, const char *text)
{
    union any_message out;
    struct error error = {.text = ""};
    CHECK(any_decode(bytes, count, kind, &out, &error) == ST_INVALID);
    CHECKF(strcmp(error.text, text) == 0, "%s", error.text);
}

/* The texts of errors, unknown kinds, and bytes after the end. */
static void test_frames(void)
{
    uint64_t frame[64] = {0};
    struct wire_header *header = (struct wire_header *)frame;
    uint32_t *words = (uint32_t *)frame; /* The header; then FAILED: id, generation, status. */
    *header = (struct wire_header){MESSAGE_FAILED, sizeof(struct message_failed),
                                   8 + sizeof(struct message_failed)};
    words[6] = 7;
    refuse_bytes(frame, words[1], 0, "FAILED message: status = 7: want -100 to -1");
    header->struct_bytes -= 8;
    refuse_bytes(frame, words[1], 0,
                 "FAILED message: fields: want at least 280 bytes, the message says 272");
    header->struct_bytes += 9;
    refuse_bytes(frame, words[1], 0,
                 "FAILED message: fields: want a multiple of 8 bytes, the message says 281");
    *header = (struct wire_header){MESSAGE_SHUTDOWN, 0, 16};
    refuse_bytes(frame, 16, 0, "SHUTDOWN message: 8 bytes follow its end");
    refuse_bytes(frame, 24, 0, "SHUTDOWN message: bytes = 16: 24 have arrived");
    refuse_bytes(frame, 4, 0, "a message: header: want 8 bytes, 4 are left");
    header->kind = MESSAGE_STAGES;
    header->struct_bytes = 8;
    words[1] = 16 + sizeof(struct message_stage);
    words[2] = 1;
    refuse_bytes(frame, words[1], 0, "STAGES message: stages[0].end_layer = 0: want 1 to 256");
    words[2] = 2;
    refuse_bytes(frame, words[1], 0, "STAGES message: stages: want 304 bytes, 152 are left");
    words[1] = 8;
    for (uint32_t kind = 0; kind < 100; kind++) {
        char text[64];
        snprintf(text, sizeof(text), "message of unknown kind %u", kind);
        header->kind = (uint16_t)kind;
        if (message_layout_of_kind(kind) == NULL)
            refuse_bytes(frame, 8, 0, text);
        if (stage_message_layout_of_kind(kind) == NULL)
            refuse_bytes(frame, 8, STAGE_OPEN, text);
        CHECK((strcmp(message_kind_name(kind), "unknown") == 0) ==
              (message_layout_of_kind(kind) == NULL));
        CHECK((strcmp(stage_message_name(kind), "unknown") == 0) ==
              (stage_message_layout_of_kind(kind) == NULL));
    }
    struct message_buffer buffer = {0};
    CHECK(message_encode(&(struct message){.kind = MESSAGE_KIND_COUNT}, TRANSPORT_PROTOCOL_VERSION,
                         &buffer) == ST_INVALID);
    CHECK(stage_message_encode(&(struct stage_message){.kind = STAGE_KIND_END}, &buffer) ==
          ST_INVALID);
    /* Longer than any message may be: more results than a batch has. */
    static struct sampled results[120000];
    struct stage_message done = {.kind = STAGE_DONE,
                                 .done = {.result_count = 120000, .results = results}};
    CHECK(stage_message_encode(&done, &buffer) == ST_TOO_LARGE);
    message_buffer_done(&buffer);
}

int main(void)
{
    draws.seed = test_seed();
    test_kinds();
    test_tokens();
    test_relations();
    test_frames();
    return 0;
}
