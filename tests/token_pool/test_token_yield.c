/* Goal: a token machine gives up a reservation whose KV has not arrived when prompts on the same
 * machine could wait for it in a circle, and only then. Its gateway receives PREEMPTED with nothing
 * generated, and the blocks are not used again until the prompt machine has stopped writing.
 * Method: the pool alone with a real scheduler and block pool; prompts of others are given to the
 * scheduler as a prompt pool would. Cases by hand. (tests/scheduler/test_machine_yield.c checks
 * which reservation is chosen, and that no request waits for ever.) */
#include "tests/check.h"

#include "token_pool/token_pool.h"

#include <string.h>

#define BLOCKS 12

static struct kv_pool *kv;
static struct sched_machine *sched;
static struct token_pool *pool;
static struct transport_peer *gateway;
static struct message last;
static uint32_t preempted_count;

static void on_send(void *self, struct transport_peer *peer, const struct message *message)
{
    struct message_buffer buffer = {0};
    struct error error;
    (void)self;
    CHECK(peer == gateway);
    if (message->kind == MESSAGE_PREEMPTED) { /* The gateway gets this message. */
        preempted_count++;
        CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_OK);
        CHECKF(message_decode(buffer.data, buffer.bytes, &last, &error) == ST_OK, "%s", error.text);
        message_buffer_done(&buffer);
    }
}

static void on_send_tokens(void *self, struct transport_peer *peer,
                           const struct message_buffer *tokens)
{
    (void)self, (void)peer, (void)tokens;
}

static bool on_local_writes(void *self, const struct message_request *request)
{
    (void)self, (void)request;
    return false; /* Its PREFILL has not arrived. */
}

static void bed_open(void)
{
    static char mark;
    const struct sched_machine_options machine = {.slot_count = 32,
                                                  .prompt_batch_tokens = 64,
                                                  .mixed_prompt_tokens = 64,
                                                  .batch_sequences_max = 16};
    gateway = (struct transport_peer *)&mark; /* Used only as a name. */
    CHECK(kv_pool_open(BLOCKS, &kv) == ST_OK && sched_machine_open(&machine, &sched) == ST_OK);
    const struct token_pool_options options = {.name = "m0",
                                               .sched = sched,
                                               .kv = kv,
                                               .memory = {.block_count = BLOCKS,
                                                          .block_tokens = 16,
                                                          .context_tokens = 512,
                                                          .first_slot = 16,
                                                          .slot_count = 16,
                                                          .growth_tokens = 16,
                                                          .preemptions_max = 3},
                                               .vocab = 1000,
                                               .calls = {on_send, on_send_tokens, on_local_writes}};
    CHECK(token_pool_open(&options, &pool) == ST_OK);
    token_pool_writer_up(pool, (struct token_link){.number = 1}, "m1", NULL);
    preempted_count = 0;
}

static void bed_close(void)
{
    struct error error;
    CHECKF(kv_pool_check(kv, &error), "%s", error.text);
    token_pool_close(pool);
    CHECK(kv_pool_state_count(kv, KV_FREE) == BLOCKS);
    sched_machine_close(sched);
    kv_pool_close(kv);
}

/* Returns the name of the gateway's count-th request. */
static struct message_request name_of(uint64_t tag, uint64_t count)
{
    return (struct message_request){.id = tag << 32 | count, .generation = 1};
}

/* Reserves 4 blocks for the prompt and one for the answer. */
static void reserve(struct message_request name, const char *prompt_machine)
{
    struct message_reserve message = {
        .request = name,
        .prompt_tokens = 64,
        .sampling = {.top_p = 1, .logprobs = -1, .output_tokens_max = 16},
    };
    snprintf(message.prompt_machine, sizeof(message.prompt_machine), "%s", prompt_machine);
    token_pool_reserve(pool, gateway, &message, 1000);
    token_pool_waiting_grant(pool, 1000);
}

static void prompt_waits(sched_slot slot, uint32_t blocks, struct message_request name)
{
    const struct sched_rank rank = {.request_number = message_request_number(&name)};
    sched_machine_prompt_add(sched, slot, 0, 16 * blocks, blocks, &rank);
}

static bool yields(uint32_t prompt_holders)
{
    uint32_t before = preempted_count;
    token_pool_deadlock_break(pool, prompt_holders, 1000);
    return preempted_count > before;
}

/* Two requests wait for their KV, and hold 10 of 12 blocks. */
static void test_given_up(bool written)
{
    struct message_request young = name_of(1, 20);
    struct message_stats stats = {0};
    bed_open();
    reserve(young, "m1");
    reserve(name_of(2, 10), "m1");
    CHECK(kv_pool_available(kv) == 2 && !yields(0));
    prompt_waits(0, 4, name_of(3, 15));
    CHECK(!yields(1)); /* Another prompt will free its blocks. */
    CHECK(yields(0));
    CHECK(last.preempted.request.id == young.id && last.preempted.request.generation == 1);
    CHECK(last.preempted.generated == 0 && strstr(last.preempted.text, "m0") != NULL);
    CHECK(kv_pool_state_count(kv, KV_QUARANTINED) == 5 && kv_pool_available(kv) == 2);
    token_pool_stats_add(pool, &stats);
    CHECK(stats.preemptions == 1 && stats.transfers_awaited == 1);
    CHECK(!yields(0)); /* The prompt waits for these blocks. */
    token_pool_cancel(pool, &young, true, 1000);
    CHECK(kv_pool_state_count(kv, KV_QUARANTINED) == 5);
    if (written)
        token_pool_kv_ready(
            pool,
            &(struct message_kv_ready){.request = young, .prompt_tokens = 64, .first_token = 3},
            1000);
    else
        token_pool_kv_aborted(pool, &young, 1000);
    CHECK(kv_pool_available(kv) == 7 && token_pool_count(pool) == 1);
    CHECK(!yields(0)); /* The prompt fits. */
    prompt_waits(1, 9, name_of(1, 9));
    sched_machine_remove(sched, 0);
    CHECK(yields(0) && last.preempted.request.id == name_of(2, 10).id);
    sched_machine_remove(sched, 1);
    bed_close();
}

/* Requests that are decoded on the machine that computes them, and running answers, end by
 * themselves. */
static void test_kept(void)
{
    struct message_request other = name_of(1, 20);
    struct message_request local = name_of(1, 30);
    bed_open();
    reserve(other, "m1");
    reserve(local, "m0");
    prompt_waits(0, 12, name_of(1, 1));
    CHECK(!yields(0));
    token_pool_cancel(pool, &local, false, 1000);
    token_pool_kv_ready(
        pool, &(struct message_kv_ready){.request = other, .prompt_tokens = 64, .first_token = 3},
        1000);
    CHECK(kv_pool_available(kv) == 7 && !yields(0));
    token_pool_cancel(pool, &other, false, 1000);
    CHECK(!yields(0) && kv_pool_available(kv) == BLOCKS);
    sched_machine_remove(sched, 0);
    bed_close();
}

int main(void)
{
    test_given_up(false);
    test_given_up(true);
    test_kept();
    return 0;
}
