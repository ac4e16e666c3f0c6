/* Goal: prompts of several batches in flight can end before the pool handles the ends, more than
 * one batch can have. Each prompt's first token is sent once, and its blocks are freed. A prompt
 * waits since its PREFILL reached the machine. The load that other gateways are told does not count
 * blocks of the token pool. Method: the pool alone with a real scheduler and block pool, prompts of
 * one block that are not decoded, and all batches done at once. */
#include "tests/check.h"

#include "prompt_pool/prompt_pool.h"
#include "prompt_pool/prompt_state.h"

#define FLIGHT  3
#define PROMPTS (FLIGHT * LIMIT_BATCH_SEQUENCES)

static struct prompt_pool *pool;
static struct sched_machine *sched;
static struct kv_pool *kv;
static struct sched_batch batches[FLIGHT];
static uint32_t tokens[PROMPTS];
static uint32_t prefilled[PROMPTS];

static void on_send(void *self, struct transport_peer *peer, const struct message *message)
{
    (void)self, (void)peer;
    CHECK(message->kind == MESSAGE_PREFILLED && message->prefilled.request.id < PROMPTS);
    CHECK(tokens[message->prefilled.request.id] == 1);
    prefilled[message->prefilled.request.id]++;
}

static void on_tokens(void *self, struct transport_peer *peer, const struct message_buffer *buffer)
{
    struct message message;
    struct message_token token;
    struct error error;
    (void)self, (void)peer;
    CHECK(message_decode(buffer->data, buffer->bytes, &message, &error) == ST_OK);
    while (message_tokens_next(&message.tokens, &token)) {
        CHECK(token.request < PROMPTS && token.id == token.request % 100);
        tokens[token.request]++;
    }
}

/* The token pool has reserved block 0 for the request. */
static enum status on_local_blocks(void *self, const struct message_request *request,
                                   struct prompt_local *out)
{
    static uint32_t ids[] = {0};
    (void)self, (void)request;
    *out = (struct prompt_local){.tables = {.ids = ids, .stride = 1}, .span_count = 1};
    return ST_OK;
}

static void on_local_ready(void *self, const struct message_kv_ready *ready, int64_t now_us)
{
    (void)self, (void)ready, (void)now_us;
}

static void bed_open(void)
{
    const struct sched_machine_options machine = {.slot_count = PROMPTS,
                                                  .prompt_batch_tokens = LIMIT_BATCH_TOKENS,
                                                  .mixed_prompt_tokens = 64,
                                                  .batch_sequences_max = LIMIT_BATCH_SEQUENCES,
                                                  .batches_in_flight = FLIGHT};
    CHECK(kv_pool_open(PROMPTS, &kv) == ST_OK && sched_machine_open(&machine, &sched) == ST_OK);
    const struct prompt_pool_options options = {
        .name = "p0",
        .sched = sched,
        .kv = kv,
        .arena = {.block_tokens = 16, .layer_count = 1, .block_count = PROMPTS, .block_bytes = 16},
        .blocks_max = PROMPTS,
        .slot_count = PROMPTS,
        .vocab = 1000,
        .context_tokens = 512,
        .stages_push = true, /* The pool itself writes no KV. */
        .calls = {.send = on_send,
                  .send_tokens = on_tokens,
                  .local_blocks = on_local_blocks,
                  .local_ready = on_local_ready},
    };
    CHECK(prompt_pool_open(&options, &pool) == ST_OK);
}

static void bed_close(void)
{
    prompt_pool_close(pool);
    sched_machine_close(sched);
    kv_pool_close(kv);
}

static uint64_t load_kv_tokens(void)
{
    struct message_others load = {0};
    prompt_pool_load_add(pool, NULL, &load);
    return load.kv_tokens;
}

/* The wait of a prompt begins when PREFILL reaches the machine. The KV memory of a prompt in blocks
 * of the token pool counts there, also when the prompt is computed. */
static void check_wait_and_load(void)
{
    static char gateway;
    const uint32_t prompt[] = {7, 0};
    struct message_prefill prefill = {.sampling = {.top_p = 1, .logprobs = -1},
                                      .token_machine = "p0",
                                      .prompt_count = 2,
                                      .prompt = prompt};
    struct message_token token = {0};
    struct prompt_chunk chunk;
    prefill.sampling.output_tokens_max = 2;
    bed_open();
    prompt_pool_prefill(pool, (struct transport_peer *)&gateway, &prefill, 500, 1000);
    CHECK(prompt_pool_count(pool) == 1 && load_kv_tokens() == 0);
    CHECK(sched_machine_batch_next(sched, 0, kv_pool_available(kv), &batches[0]));
    prompt_pool_chunk_begin(pool, &batches[0].items[0], 1200, &chunk);
    sched_machine_batch_done(sched, batches[0].index);
    prompt_pool_chunk_done(pool, &batches[0].items[0], &token, 2000);
    CHECK(token.wait_us == 700 && token.run_us == 800);
    CHECK(prompt_pool_count(pool) == 1 && load_kv_tokens() == 0);
    prefill.request.id = 1;
    prefill.token_machine[0] = 0;
    prompt_pool_prefill(pool, (struct transport_peer *)&gateway, &prefill, 2000, 2000);
    CHECK(prompt_pool_count(pool) == 2 && load_kv_tokens() == 3);
    bed_close();
}

int main(void)
{
    static char gateway;
    struct prompt_chunk chunk;
    check_wait_and_load();
    bed_open();
    for (uint32_t i = 0; i < PROMPTS; i++) {
        const uint32_t prompt[] = {7, i % 100};
        const struct message_prefill prefill = {
            .request = {.id = i},
            .sampling = {.top_p = 1, .logprobs = -1, .output_tokens_max = 1},
            .prompt_count = 2,
            .prompt = prompt};
        prompt_pool_prefill(pool, (struct transport_peer *)&gateway, &prefill, 1000, 1000);
    }
    for (uint32_t i = 0; i < FLIGHT; i++) {
        CHECK(sched_machine_batch_next(sched, 0, kv_pool_available(kv), &batches[i]));
        CHECK(batches[i].item_count == LIMIT_BATCH_SEQUENCES);
        for (uint32_t item = 0; item < batches[i].item_count; item++)
            prompt_pool_chunk_begin(pool, &batches[i].items[item], 1000, &chunk);
    }
    CHECK(kv_pool_available(kv) == 0 && prompt_pool_holder_count(pool) == PROMPTS);
    for (uint32_t i = 0; i < FLIGHT; i++) {
        sched_machine_batch_done(sched, batches[i].index);
        for (uint32_t item = 0; item < batches[i].item_count; item++) {
            const struct sched_batch_item *done = &batches[i].items[item];
            uint64_t id = prompt_request_of(pool, done->slot)->attempt.id;
            struct message_token token = {.id = (uint32_t)(id % 100), .finish = FINISH_LENGTH};
            prompt_pool_chunk_done(pool, done, &token, 2000);
        }
    }
    CHECK(prompt_pool_count(pool) == LIMIT_BATCH_SEQUENCES); /* Those of the last batch. */
    prompt_pool_results_send(pool, 2000);
    for (uint32_t i = 0; i < PROMPTS; i++)
        CHECKF(tokens[i] == 1 && prefilled[i] == 1, "prompt %u: %u tokens", i, tokens[i]);
    CHECK(prompt_pool_count(pool) == 0 && prompt_pool_holder_count(pool) == 0);
    CHECK(kv_pool_available(kv) == PROMPTS);
    bed_close();
    return 0;
}
