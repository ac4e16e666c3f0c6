/* message_wire: the wire structs of control messages, for message_encode.c, message_decode.c and
 * stage_message.c only.
 *
 * A message is a struct wire_header, the fixed struct of its kind, then its arrays. Every struct
 * has explicit padding and a checked size, a multiple of eight. Arrays of 32-bit numbers follow at
 * multiples of four, so that a decoded message can point into the received bytes. Any change here
 * needs a new TRANSPORT_PROTOCOL_VERSION. */
#ifndef TRANSPORT_MESSAGE_WIRE_H
#define TRANSPORT_MESSAGE_WIRE_H

#include "transport/message.h"

#include <assert.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "wire structs are little-endian memory");

struct wire_header {
    uint32_t kind;
    uint32_t bytes; /* Size of the whole message. A truncated message does not match it. */
};
static_assert(sizeof(struct wire_header) == 8, "wire size");

struct wire_request {
    uint64_t id;
    uint32_t generation;
    uint32_t padding;
};
static_assert(sizeof(struct wire_request) == 16, "wire size");

struct wire_sampling {
    float temperature;
    float top_p;
    float min_p;
    uint32_t top_k;
    uint64_t seed;
    int32_t logprobs;
    uint32_t output_tokens_max;
    uint32_t output_tokens_min;
    uint32_t end_count;
    uint8_t ignore_end;
    uint8_t padding[7];
    uint32_t ends[16];
};
static_assert(sizeof(struct wire_sampling) == 112, "wire size");

struct wire_rank {
    uint64_t key;
    uint32_t weight;
    int32_t priority;
    uint32_t waited_ms;
    uint32_t preemptions;
};
static_assert(sizeof(struct wire_rank) == 24, "wire size");

struct wire_reserve {
    struct wire_request request;
    char prompt_machine[LIMIT_NAME_BYTES];
    uint32_t prompt_tokens;
    uint32_t prompt_count;
    struct wire_rank rank;
    struct wire_sampling sampling;
};
static_assert(sizeof(struct wire_reserve) == 192, "wire size");

struct wire_reserved {
    struct wire_request request;
    uint32_t held_count;
    uint32_t block_count;
    uint32_t path;
    uint32_t padding;
};
static_assert(sizeof(struct wire_reserved) == 32, "wire size");

struct wire_prefill {
    struct wire_request request;
    char token_machine[LIMIT_NAME_BYTES];
    uint8_t score_prompt;
    uint8_t kv_path;
    uint8_t path;
    uint8_t padding[1];
    uint32_t held_count;
    struct wire_rank rank;
    struct wire_sampling sampling;
    uint32_t block_count;
    uint32_t prompt_count;
};
static_assert(sizeof(struct wire_prefill) == 200, "wire size");

struct wire_tokens {
    uint32_t count;
    uint32_t padding;
};
static_assert(sizeof(struct wire_tokens) == 8, "wire size");

struct wire_token { /* Followed by top_count ids and top_count floats. */
    uint64_t request;
    uint32_t generation;
    uint32_t index;
    uint32_t id;
    uint32_t wait_us;
    uint32_t run_us;
    float logprob;
    uint8_t finish;
    uint8_t scored;
    uint8_t has_logprob;
    uint8_t top_count;
    uint32_t cached_tokens;
};
static_assert(sizeof(struct wire_token) == 40, "wire size");

struct wire_prefilled {
    struct wire_request request;
    uint32_t queue_us;
    uint32_t prefill_us;
    uint32_t exposed_us;
    uint32_t transfer_us;
    uint32_t layers;
    uint8_t layerwise;
    uint8_t padding[3];
    uint64_t bytes;
};
static_assert(sizeof(struct wire_prefilled) == 48, "wire size");

struct wire_kv_ready {
    struct wire_request request;
    uint32_t prompt_tokens;
    uint32_t first_token;
};
static_assert(sizeof(struct wire_kv_ready) == 24, "wire size");

struct wire_cancel {
    struct wire_request request;
    uint8_t writer;
    uint8_t padding[7];
};
static_assert(sizeof(struct wire_cancel) == 24, "wire size");

struct wire_failed {
    struct wire_request request;
    int32_t status;
    uint32_t padding;
    char text[256];
};
static_assert(sizeof(struct wire_failed) == 280, "wire size");

struct wire_preempted {
    struct wire_request request;
    uint32_t generated;
    uint32_t padding;
    char text[256];
};
static_assert(sizeof(struct wire_preempted) == 280, "wire size");

/* STATS and LOADS carry the structs of message.h, which have no implicit padding. */
#define COUNTER_BYTES(bits, ...) +bits / 8
static_assert(sizeof(struct message_staged) == 4 COPY_COUNTERS(COUNTER_BYTES), "wire size");
static_assert(sizeof(struct message_stats) == 28 + sizeof(struct message_staged)
                                                       MACHINE_COUNTERS(COUNTER_BYTES),
              "wire size");
static_assert(sizeof(struct message_load) == 16 + sizeof(struct message_staged)
                                                      PROCESS_COUNTERS(COUNTER_BYTES),
              "wire size");

struct wire_peer {
    char name[LIMIT_NAME_BYTES];
    char address[LIMIT_ADDRESS_BYTES];
};
static_assert(sizeof(struct wire_peer) == 160, "wire size");

struct wire_role {
    uint64_t serial;
    uint8_t role;
    uint8_t home;
    uint8_t padding[6];
};
static_assert(sizeof(struct wire_role) == 16, "wire size");

struct wire_others {
    char leader[LIMIT_NAME_BYTES];
    uint32_t gateways;
    uint32_t prompts;
    uint32_t decodes;
    uint8_t mixed;
    uint8_t home;
    uint8_t padding[2];
    uint64_t prompt_tokens;
    uint64_t kv_tokens;
    uint64_t home_serial;
    uint64_t prompt_tokens_taken;
    uint64_t answers_taken;
};
static_assert(sizeof(struct wire_others) == 88, "wire size");

struct wire_prefixes { /* Followed by `count` 64-bit hashes and `count` 32-bit flags `held`. */
    uint32_t count;
    uint8_t all;
    uint8_t padding[3];
};
static_assert(sizeof(struct wire_prefixes) == 8, "wire size");

/* Followed by `count` struct message_stage (STAGES) or struct message_load (LOADS). */
struct wire_stages {
    uint32_t count;
    uint32_t padding;
};
static_assert(sizeof(struct wire_stages) == 8, "wire size");
static_assert(sizeof(struct message_stage) == 24 + LIMIT_ADDRESS_BYTES, "wire size");

struct wire_link {
    char name[LIMIT_NAME_BYTES];
    uint8_t up;
    uint8_t padding[7];
    char text[256];
};
static_assert(sizeof(struct wire_link) == 296, "wire size");

/* Appends `bytes` zeroed bytes and returns their address, or NULL if there is no memory. malloc's
 * alignment is enough for the decoders. */
void *message_buffer_add(struct message_buffer *buffer, size_t bytes);
enum status message_buffer_put(struct message_buffer *buffer, const void *data, size_t bytes);

/* Copies a text and its NUL. If there is no NUL within `capacity`, copies all bytes; the check of
 * the encoded message then refuses the message. */
static inline void encode_text(char *to, const char *from, size_t capacity)
{
    memcpy(to, from, strnlen(from, capacity));
}

/* Checks the ranges of a token's fields. `logprobs` has top_count values. */
enum status message_token_check(const struct wire_token *token, const float *logprobs,
                                struct error *error);

#endif
