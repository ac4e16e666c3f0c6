/* Goal: the finished chunks of a cancelled prompt stay in the prefix cache, where the same prompt
 * finds them again, and cost no memory: any other prompt takes their blocks. Method: the pool with
 * a real scheduler, block pool and prefix cache. The memory holds one prompt of eight blocks, which
 * is computed in chunks of two blocks and cancelled after each number of chunks, between two
 * batches or while a batch runs. */
#include "prompt_pool/prompt_pool.h"
#include "prompt_pool/prompt_state.h"
#include "tests/check.h"

#define BLOCK  16
#define BLOCKS 8
#define CHUNK  (2 * BLOCK)
#define PROMPT (BLOCKS * BLOCK)
#define CHUNKS (PROMPT / CHUNK)

static struct prompt_pool *pool;
static struct sched_machine *sched;
static struct kv_pool *kv;
static struct kv_prefix *prefix;
static struct sched_batch batch;
static uint32_t prefilled;
static char gateway;

static void on_send(void *self, struct transport_peer *peer, const struct message *message)
{
    (void)self, (void)peer;
    CHECK(message->kind == MESSAGE_PREFILLED || message->kind == MESSAGE_PROGRESS);
    prefilled += message->kind == MESSAGE_PREFILLED ? 1 : 0;
}

static void on_tokens(void *self, struct transport_peer *peer, const struct message_buffer *buffer)
{
    (void)self, (void)peer, (void)buffer;
}

static void bed_open(void)
{
    static const struct layer_groups groups;
    const struct sched_machine_options machine = {.slot_count = 8,
                                                  .prompt_batch_tokens = CHUNK,
                                                  .mixed_prompt_tokens = CHUNK,
                                                  .batch_sequences_max = 4,
                                                  .batches_in_flight = 1};
    CHECK(kv_pool_open(BLOCKS, &kv) == ST_OK && sched_machine_open(&machine, &sched) == ST_OK);
    CHECK(kv_prefix_open(kv, &groups, BLOCK, &prefix) == ST_OK);
    const struct prompt_pool_options options = {
        .name = "p0",
        .sched = sched,
        .kv = kv,
        .prefix = prefix,
        .arena = {.block_tokens = BLOCK,
                  .layer_count = 1,
                  .block_count = BLOCKS,
                  .block_bytes = 16},
        .blocks_max = BLOCKS,
        .kept_spans = UINT32_MAX,
        .slot_count = 8,
        .vocab = 1000,
        .context_tokens = 512,
        .calls = {.send = on_send, .send_tokens = on_tokens},
    };
    CHECK(prompt_pool_open(&options, &pool) == ST_OK);
}

static void check_all(uint32_t cached)
{
    struct error error;
    CHECKF(kv_pool_check(kv, &error) && kv_prefix_check(prefix, &error), "%s", error.text);
    CHECK(prompt_pool_count(pool) == 0 && prompt_pool_holder_count(pool) == 0);
    CHECKF(kv_pool_state_count(kv, KV_CACHED) == cached, "%u blocks are cached, want %u",
           kv_pool_state_count(kv, KV_CACHED), cached);
    CHECK(kv_pool_available(kv) == BLOCKS);
}

/* Sends a prompt whose tokens depend on `key`. Returns its id. */
static uint64_t prompt_send(uint32_t key)
{
    static uint64_t id;
    uint32_t tokens[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++)
        tokens[i] = (key * 131 + i * 7) % 1000;
    const struct message_prefill prefill = {
        .request = {.id = ++id},
        .sampling = {.top_p = 1, .logprobs = -1, .output_tokens_max = 1},
        .prompt_count = PROMPT,
        .prompt = tokens};
    prompt_pool_prefill(pool, (struct transport_peer *)&gateway, &prefill, 1000, 1000);
    return id;
}

/* Begins the next batch. Returns the position of its first token. */
static uint32_t batch_begin(void)
{
    struct prompt_chunk chunk;
    prompt_pool_prefixes_enter(pool, 0, CHUNK);
    CHECK(sched_machine_batch_next(sched, 0, kv_pool_available(kv), &batch));
    prompt_pool_prefixes_leave(pool);
    CHECK(batch.item_count == 1);
    prompt_pool_chunk_begin(pool, &batch.items[0], 1000, &chunk);
    return chunk.first_token;
}

static void batch_end(void)
{
    struct message_token token = {.id = 1, .finish = FINISH_LENGTH};
    sched_machine_batch_done(sched, batch.index);
    prompt_pool_chunk_done(pool, &batch.items[0], &token, 2000);
    prompt_pool_results_send(pool, 2000);
}

/* Computes `chunks` chunks of a prompt that is not cached, and cancels it. */
static void cancel_after(uint32_t key, uint32_t chunks, bool in_batch)
{
    const struct message_request name = {.id = prompt_send(key)};
    for (uint32_t i = 0; i < chunks; i++) {
        CHECK(batch_begin() == i * CHUNK);
        if (in_batch && i + 1 == chunks)
            prompt_pool_cancel(pool, &name);
        batch_end();
    }
    prompt_pool_cancel(pool, &name);
}

/* Computes a whole prompt, of which `cached` tokens are found. */
static void compute(uint32_t key, uint32_t cached)
{
    const uint32_t before = prefilled;
    prompt_send(key);
    for (uint32_t first = cached; first < PROMPT; first += CHUNK) {
        CHECK(batch_begin() == first);
        batch_end();
    }
    CHECK(prefilled == before + 1);
}

int main(void)
{
    bed_open();
    uint32_t key = 0;
    for (uint32_t chunks = 0; chunks < CHUNKS; chunks++)
        for (int in_batch = 0; in_batch < 2; in_batch++) {
            /* An earlier prompt has filled the cache. */
            compute(++key, 0);
            cancel_after(++key, chunks, in_batch != 0);
            check_all(chunks > 0 ? chunks * CHUNK / BLOCK : BLOCKS);
            compute(key, chunks * CHUNK); /* The same prompt returns. */
            check_all(BLOCKS);
            cancel_after(++key, chunks, in_batch != 0);
            compute(++key, 0); /* Another prompt needs the whole memory. */
            check_all(BLOCKS);
        }
    for (uint32_t i = 0; i < 50; i++) {
        const uint32_t chunks = 1 + i % (CHUNKS - 1);
        cancel_after(++key, chunks, i % 2 != 0);
        check_all(chunks * CHUNK / BLOCK);
    }
    prompt_pool_close(pool);
    kv_prefix_close(prefix);
    CHECK(kv_pool_available(kv) == BLOCKS && kv_pool_state_count(kv, KV_FREE) == BLOCKS);
    sched_machine_close(sched);
    kv_pool_close(kv);
    return 0;
}
