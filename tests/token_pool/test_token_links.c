/* Goal: the blocks of a request that has ended stay in quarantine for as long as a process of its
 * prompt machine may write, which can be long after its connection has ended; and a machine with
 * stages sends RESERVED when its stage processes know the request. Method: the pool alone with a
 * real scheduler and block pool; the test sets the time. fuzz_token_pool tests random orders. */
#include "tests/token_pool/token_bed.h"

static void on_preempted(const struct message_preempted *preempted)
{
    CHECKF(false, "preempted: %s", preempted->text);
}

static void on_token(const struct message_token *token)
{
    CHECKF(false, "token %u", token->id);
}

/* A connection ends before its writes have ended: the writer may be stopped during a write for
 * hours. No message of its machine over another connection frees the blocks. */
static void check_lingering(void)
{
    struct bed bed = bed_open(&whole_answers);
    const struct message_request name = {.id = 1, .generation = 1};
    const struct message_kv_ready ready = {.request = name, .prompt_tokens = 20, .first_token = 5};
    const int64_t hours_us = 20000000000;
    for (int order = 0; order < 4; order++) {
        uint64_t number = 10 + 2 * (uint64_t)order;
        token_pool_writer_up(bed.pool, link_at(0, number), "p0", NULL);
        reserve(&bed, 1);
        if (order == 1) /* Cancelled before the writer becomes silent. */
            token_pool_cancel(bed.pool, &name, true, bed.now_us);
        token_pool_writer_down(bed.pool, link_at(0, number), true, "silent", bed.now_us);
        CHECK(last.kind == (order == 1 ? MESSAGE_RESERVED : MESSAGE_FAILED));
        CHECK(kv_pool_state_count(bed.kv, KV_QUARANTINED) == 3);
        if (order >= 2) { /* The machine has connected again, and is asked to cancel. */
            token_pool_writer_up(bed.pool, link_at(0, number + 1), "p0", bed.gateways[1]);
            token_pool_leases_check(bed.pool, bed.now_us + 61000000);
            CHECK(last.kind == MESSAGE_CANCEL && last.cancel.request.id == 1);
        }
        if (order == 2)
            token_pool_kv_aborted(bed.pool, &name, bed.now_us);
        if (order == 3)
            token_pool_kv_ready(bed.pool, &ready, bed.now_us);
        for (int64_t at_us = bed.now_us; at_us < bed.now_us + hours_us; at_us += 500000)
            token_pool_leases_check(bed.pool, at_us);
        CHECK(kv_pool_state_count(bed.kv, KV_QUARANTINED) == 3);
        bed.now_us += hours_us;
        token_pool_writes_ended(bed.pool, link_at(0, number), bed.now_us);
        /* Writes may still be in the network. */
        token_pool_leases_check(bed.pool, bed.now_us + 900000);
        CHECK(held(&bed) == 3);
        token_pool_leases_check(bed.pool, bed.now_us + 1100000);
        if (order >= 2) { /* The new connection began after the quarantine. */
            CHECK(held(&bed) == 0);
            token_pool_writer_down(bed.pool, link_at(0, number + 1), false, "gone", bed.now_us);
        }
        CHECK(held(&bed) == 0);
        bed.now_us += 2000000;
    }
    /* The head has connected again. It does not know whether its process still writes. */
    token_pool_writer_up(bed.pool, link_at(0, 30), "p0", NULL);
    token_pool_writer_up(bed.pool, link_at(1, 30), "p0/0", NULL);
    reserve(&bed, 1);
    token_pool_writer_down(bed.pool, link_at(0, 30), false, "gone", bed.now_us);
    token_pool_writer_up(bed.pool, link_at(0, 31), "p0", NULL);
    token_pool_kv_aborted(bed.pool, &name, bed.now_us);
    CHECK(kv_pool_state_count(bed.kv, KV_QUARANTINED) == 3);
    token_pool_writer_down(bed.pool, link_at(1, 30), false, "gone", bed.now_us);
    token_pool_kv_aborted(bed.pool, &name, bed.now_us);
    CHECK(held(&bed) == 0);
    token_pool_writer_down(bed.pool, link_at(0, 31), false, "gone", bed.now_us);
    /* A request is reserved while an old connection lingers: KV_ABORTED does not free its
     * blocks. */
    token_pool_writer_up(bed.pool, link_at(0, 1), "p0", NULL);
    token_pool_writer_down(bed.pool, link_at(0, 1), true, "silent", bed.now_us);
    token_pool_writer_up(bed.pool, link_at(0, 2), "p0", NULL);
    reserve(&bed, 1);
    token_pool_kv_aborted(bed.pool, &name, bed.now_us);
    CHECK(kv_pool_state_count(bed.kv, KV_QUARANTINED) == 3);
    token_pool_writes_ended(bed.pool, link_at(0, 1), bed.now_us);
    token_pool_kv_aborted(bed.pool, &name, bed.now_us);
    CHECK(held(&bed) == 0);
    reserve(&bed, 1); /* KV_READY is trusted, because the KV came over the new connection. */
    token_pool_kv_ready(bed.pool, &ready, bed.now_us);
    CHECK(kv_pool_state_count(bed.kv, KV_LIVE) == 3);
    token_pool_gateway_gone(bed.pool, bed.gateways[0], bed.now_us);
    token_pool_writes_ended(bed.pool, link_at(3, 3), bed.now_us); /* A link that no writer has. */
    bed_close(&bed);
}

/* A machine with stages sends RESERVED when its stage processes know the request. */
static struct token_await awaits[8];
static bool await_ends[8];
static uint32_t await_count;

static void on_await(void *self, const struct token_await *await, bool ends)
{
    (void)self;
    CHECK(await_count < 8);
    awaits[await_count] = *await;
    await_ends[await_count++] = ends;
}

static void check_stages(void)
{
    struct bed bed = bed_open(&whole_answers);
    const struct message_request name = {.id = 1, .generation = 1};
    const struct message_reserve message = reserve_of(1, 20, 20);
    bed.pool->options.calls.await_changed = on_await;
    token_pool_writer_up(bed.pool, link_at(0, 1), "p0", NULL);
    token_pool_writer_up(bed.pool, link_at(1, 1), "p0/0", NULL);
    for (int end = 0; end < 4; end++) {
        uint32_t sent = sent_count;
        await_count = 0;
        token_pool_reserve(bed.pool, bed.gateways[0], &message, bed.now_us);
        token_pool_waiting_grant(bed.pool, bed.now_us);
        CHECK(await_count == 1 && !await_ends[0] && awaits[0].block_count == 2);
        CHECK(awaits[0].request.id == 1 && strcmp(awaits[0].writer, "p0") == 0);
        /* The prompt machine does not know the request yet. */
        CHECK(sent_count == sent && held(&bed) == 3);
        if (end == 0) { /* The request ends before the processes have answered. */
            token_pool_cancel(bed.pool, &name, false, bed.now_us);
            CHECK(await_count == 2 && await_ends[1]);
            token_pool_await_known(bed.pool, awaits[0].owner);
            CHECK(sent_count == sent && held(&bed) == 0);
            continue;
        }
        token_pool_await_known(bed.pool, awaits[0].owner + 65536); /* An earlier use of the slot. */
        CHECK(sent_count == sent);
        token_pool_await_known(bed.pool, awaits[0].owner);
        CHECK(sent_count == sent + 1 && last.kind == MESSAGE_RESERVED && await_count == 1);
        CHECK(reserved_blocks[0] == awaits[0].blocks[0] && reserved_block_count == 2);
        if (end == 1)
            token_pool_kv_aborted(bed.pool, &name, bed.now_us);
        else if (end == 2)
            token_pool_cancel(bed.pool, &name, true, bed.now_us);
        else
            token_pool_kv_ready(
                bed.pool,
                &(struct message_kv_ready){.request = name, .prompt_tokens = 20, .first_token = 5},
                bed.now_us);
        CHECK(await_count == 2 && await_ends[1] && awaits[1].block_count == 2);
        token_pool_kv_aborted(bed.pool, &name, bed.now_us);
        token_pool_gateway_gone(bed.pool, bed.gateways[0], bed.now_us);
        CHECK(await_count == 2 && held(&bed) == 0);
    }
    bed_close(&bed);
}

/* The head has two open links, of which it is about to end the later one: it is asked over both. */
static void check_asked(void)
{
    struct bed bed = bed_open(&whole_answers);
    const struct message_request name = {.id = 1, .generation = 1};
    token_pool_writer_up(bed.pool, link_at(0, 1), "p0", bed.gateways[0]);
    reserve(&bed, 1);
    token_pool_cancel(bed.pool, &name, true, bed.now_us);
    token_pool_writer_up(bed.pool, link_at(0, 2), "p0", bed.gateways[1]);
    uint32_t sent = sent_count;
    token_pool_leases_check(bed.pool, bed.now_us + 61000000);
    CHECKF(sent_count == sent + 2 && last.kind == MESSAGE_CANCEL, "asked %u times",
           sent_count - sent);
    token_pool_writer_down(bed.pool, link_at(0, 2), false, "gone", bed.now_us);
    token_pool_kv_aborted(bed.pool, &name, bed.now_us);
    CHECK(held(&bed) == 0);
    bed_close(&bed);
}

int main(void)
{
    check_lingering();
    check_asked();
    check_stages();
    return 0;
}
