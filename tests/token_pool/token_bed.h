/* token_bed: a test bed for the token pool, with a real scheduler and block pool, which it owns. It
 * records the messages that the pool sends. A test includes it, defines on_preempted and on_token,
 * and calls it on its main thread. It has no prompt machines, no connections and no engine: the
 * test makes the calls that these would make. */
#ifndef TESTS_TOKEN_POOL_TOKEN_BED_H
#define TESTS_TOKEN_POOL_TOKEN_BED_H

#include "tests/check.h"
#include "token_pool/token_state.h"

#include <string.h>

#define BLOCKS 60

static void on_preempted(const struct message_preempted *preempted);
static void on_token(const struct message_token *token);

/* The last message of the pool. */
static struct message last;
static uint32_t reserved_block_count;
static uint32_t reserved_blocks[2]; /* The first two blocks of the last RESERVED. */
static uint32_t sent_count;
static uint32_t token_messages;

static void on_send(void *self, struct transport_peer *peer, const struct message *message)
{
    (void)self;
    CHECK(peer != NULL);
    last = *message;
    if (message->kind == MESSAGE_PREEMPTED) {
        on_preempted(&message->preempted);
        return;
    }
    sent_count++;
    if (message->kind != MESSAGE_RESERVED)
        return;
    reserved_block_count = message->reserved.block_count;
    for (uint32_t i = 0; i < 2 && i < reserved_block_count; i++)
        reserved_blocks[i] = message->reserved.blocks[i];
}

/* Gateways whose connections have ended: nothing may be sent to them. */
static const struct transport_peer *gone_gateways[2];

static void on_send_tokens(void *self, struct transport_peer *peer,
                           const struct message_buffer *tokens)
{
    struct message message;
    struct error error;
    (void)self;
    CHECK(peer != NULL && peer != gone_gateways[0] && peer != gone_gateways[1]);
    CHECK(message_decode(tokens->data, tokens->bytes, &message, &error) == ST_OK);
    token_messages++;
    struct message_token token;
    while (message_tokens_next(&message.tokens, &token))
        on_token(&token);
}

/* Answer of calls.local_writes: the prompt pool of this machine may still write. */
static bool local_writing;

static bool on_local_writes(void *self, const struct message_request *request)
{
    (void)self, (void)request;
    return local_writing;
}

struct rules {
    uint32_t preemptions_max; /* 0 = whole answers are reserved. */
    uint32_t growth_tokens;
    uint32_t reserve_percent;
    uint32_t batches_in_flight; /* sched_machine_options.batches_in_flight. */
};

static const struct rules whole_answers = {
    .growth_tokens = 20, .reserve_percent = 10, .batches_in_flight = 1};

struct bed {
    struct kv_pool *kv;
    struct sched_machine *sched;
    struct token_pool *pool;
    struct transport_peer *gateways[2];
    int64_t now_us;
};

/* Addresses that serve as connections of gateways: two for each gateway. The pool never reads a
 * connection. */
static char marks[4];

/* Connects a gateway again after its end, with another connection. */
static inline void gateway_again(struct bed *bed, uint32_t gateway)
{
    gone_gateways[gateway] = bed->gateways[gateway];
    char *mark = &marks[gateway];
    if (bed->gateways[gateway] == (struct transport_peer *)mark)
        mark += 2;
    bed->gateways[gateway] = (struct transport_peer *)mark;
}

static struct bed bed_open(const struct rules *rules)
{
    struct bed bed = {.now_us = 1000};
    const struct sched_machine_options sched = {.slot_count = 128,
                                                .prompt_batch_tokens = 64,
                                                .mixed_prompt_tokens = 64,
                                                .batch_sequences_max = 16,
                                                .batches_in_flight = rules->batches_in_flight};
    CHECK(kv_pool_open(BLOCKS, &bed.kv) == ST_OK &&
          sched_machine_open(&sched, &bed.sched) == ST_OK);
    const struct token_pool_options options = {
        .name = "t0",
        .sched = bed.sched,
        .kv = bed.kv,
        .memory = {.block_count = BLOCKS,
                   .block_tokens = 16,
                   .context_tokens = 512,
                   .first_slot = 64,
                   .slot_count = 64,
                   .growth_tokens = rules->growth_tokens,
                   .growth_reserve_percent = rules->reserve_percent,
                   .preemptions_max = rules->preemptions_max},
        .vocab = 1000,
        .calls = {on_send, on_send_tokens, on_local_writes, NULL},
    };
    CHECK(token_pool_open(&options, &bed.pool) == ST_OK);
    bed.gateways[0] = (struct transport_peer *)&marks[0];
    bed.gateways[1] = (struct transport_peer *)&marks[1];
    gone_gateways[0] = gone_gateways[1] = NULL;
    return bed;
}

static void bed_close(struct bed *bed)
{
    struct error error;
    CHECKF(kv_pool_check(bed->kv, &error), "%s", error.text);
    token_pool_close(bed->pool);
    CHECK(kv_pool_state_count(bed->kv, KV_FREE) == BLOCKS);
    sched_machine_close(bed->sched);
    kv_pool_close(bed->kv);
}

static uint32_t held(const struct bed *bed)
{
    return BLOCKS - kv_pool_state_count(bed->kv, KV_FREE);
}

static struct message_reserve reserve_of(uint64_t id, uint32_t prompt_tokens,
                                         uint32_t output_tokens)
{
    return (struct message_reserve){
        .request = {.id = id, .generation = 1},
        .prompt_machine = "p0",
        .prompt_tokens = prompt_tokens,
        .sampling = {.top_p = 1, .logprobs = -1, .output_tokens_max = output_tokens},
    };
}

static struct token_link link_at(uint32_t process, uint64_t number)
{
    return (struct token_link){.process = process, .number = number};
}

static void reserve(struct bed *bed, uint64_t id)
{
    const struct message_reserve message =
        reserve_of(id, 20, 20); /* 3 blocks, 2 of them for the prompt. */
    token_pool_reserve(bed->pool, bed->gateways[0], &message, bed->now_us);
    token_pool_waiting_grant(bed->pool, bed->now_us);
    CHECK(last.kind == MESSAGE_RESERVED && last.reserved.request.id == id &&
          reserved_block_count == 2);
}

#endif
