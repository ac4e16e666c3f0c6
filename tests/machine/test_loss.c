/* Goal: a machine that is lost during a transfer causes a FAILED for its requests, but no lost
 * block; unfinished reservations end with their lease. Method: the loopback transport holds the
 * writes of one link and then drops the connection (the other process died) or cuts it until it
 * times out (the network failed). The test controls the clock where time decides the result.
 * Afterwards the machines connect again and serve. */
#include "tests/check.h"
#include "tests/machine/cluster.h"

#include "machine/state.h"
#include "tests/transport/loopback.h"

#include <string.h>

static uint32_t prompt[512];

static struct transport_peer *link_of(struct cluster *c, uint32_t from, uint32_t to)
{
    const char *why;
    uint32_t target;
    char name[8];
    snprintf(name, sizeof(name), "m%u", to);
    struct transport_peer *peer = prompt_links_find(c->machines[from]->links, name, &target, &why);
    CHECK(peer != NULL);
    return peer;
}

static uint32_t blocks_free(const struct cluster *c, uint32_t machine)
{
    return kv_pool_available(c->machines[machine]->kv);
}

static void serve(struct cluster *c, struct reference *reference, uint32_t count)
{
    const struct sampling sampling = cluster_sampling(10);
    uint32_t first = c->request_count;
    for (uint32_t i = 0; i < count; i++)
        cluster_submit(c, prompt + i, 50 + 20 * i, &sampling, 0, 1, TRANSFER_AUTO, false);
    cluster_finish(c);
    for (uint32_t i = first; i < c->request_count; i++)
        reference_check(reference, &c->requests[i]);
    cluster_wait_free(c, 0);
}

/* Starts requests that have their first token and whose KV is held back, and one request that waits
 * for memory. */
static void begin_transfers(struct cluster *c, uint32_t count)
{
    const struct sampling sampling = cluster_sampling(10);
    uint32_t first = c->request_count;
    transport_loopback_hold(c->machines[0]->transport, link_of(c, 0, 1), true);
    for (uint32_t i = 0; i < count; i++)
        cluster_submit(c, prompt + i, 100, &sampling, 0, 1, (uint8_t)(1 + i % 2), false);
    for (uint32_t i = first; i < first + count; i++)
        while (c->requests[i].token_count == 0)
            cluster_turn(c, 1);
    for (uint32_t turns = 0; turns < 20; turns++)
        cluster_turn(c, 1);
    for (uint32_t i = first; i < first + count; i++)
        CHECK(c->requests[i].token_count == 1 && !c->requests[i].prefilled);
}

/* Returns how many of the token machine's blocks for 100 tokens and an answer of 10 a writer
 * knows. */
static uint32_t blocks_to_write(const struct cluster *c, uint32_t first)
{
    uint32_t blocks = 0;
    for (uint32_t i = first; i < c->request_count; i++)
        blocks += 7 - c->requests[i].held_count;
    return blocks;
}

static void check_loss(struct cluster *c, struct reference *reference, bool dark)
{
    struct transport *transport = c->machines[0]->transport;
    uint32_t first = c->request_count;
    begin_transfers(c, 4);
    cluster_clock_stop(c, true);
    if (dark) {
        struct transport_peer *peer = link_of(c, 0, 1);
        transport_loopback_cut(transport, peer);
        transport_loopback_hold(transport, peer, false);
        for (uint32_t turns = 0; turns < 50; turns++)
            cluster_turn(c, 1);
        CHECK(!c->requests[first].failed); /* No process can know this yet. */
        transport_loopback_time_out(transport, peer);
    } else {
        transport_loopback_drop(transport, link_of(c, 0, 1));
    }
    cluster_finish(c);
    for (uint32_t i = first; i < c->request_count; i++) {
        CHECK(c->requests[i].failed && c->requests[i].token_count == 1);
        CHECK(strstr(c->requests[i].failed_text, "transfer of its KV to machine m1") != NULL ||
              strstr(c->requests[i].failed_text, "m0 is gone") != NULL);
    }
    printf("failed: %s\n", c->requests[first].failed_text);
    CHECK(blocks_free(c, 0) == kv_pool_block_count(c->machines[0]->kv));
    /* A late write may still land on the token machine: its blocks are held for a moment. */
    CHECK(kv_pool_state_count(c->machines[1]->kv, KV_QUARANTINED) == blocks_to_write(c, first));
    cluster_clock_skip(c, 900000);
    cluster_turn(c, 0);
    CHECK(kv_pool_state_count(c->machines[1]->kv, KV_QUARANTINED) == blocks_to_write(c, first));
    cluster_wait_free(c, 2);
    cluster_clock_stop(c, false);
    while (!c->links[0][1])
        cluster_turn(c, 1); /* The machine has connected again. */
    serve(c, reference, 6);
}

static void check_unlinked(struct cluster *c)
{
    const struct sampling sampling = cluster_sampling(10);
    transport_loopback_drop(c->machines[0]->transport, link_of(c, 0, 1));
    while (c->links[0][1])
        cluster_turn(c, 0);
    uint32_t first = c->request_count;
    cluster_submit(c, prompt, 100, &sampling, 0, 1, TRANSFER_AUTO, false);
    while (!c->requests[first].failed && c->requests[first].token_count == 0)
        cluster_turn(c, 0);
    if (c->requests[first].failed) {
        printf("refused: %s\n", c->requests[first].failed_text);
        CHECK(strstr(c->requests[first].failed_text, "no link to token machine m1") != NULL);
    }
    cluster_send(c, 1,
                 &(struct message){
                     .kind = MESSAGE_CANCEL,
                     .cancel = {.request = c->requests[first].attempt, .writes_pending = true}});
    cluster_finish(c);
    cluster_wait_free(c, 70);
    while (!c->links[0][1])
        cluster_turn(c, 1);
}

/* A RESERVE whose prompt machine never connects: the lease ends the reservation, even without other
 * work. */
static void check_lease(struct cluster *c)
{
    const struct sampling sampling = cluster_sampling(10);
    struct message message = {.kind = MESSAGE_RESERVE,
                              .reserve = {.request = {.id = 0, .generation = 1},
                                          .prompt_machine = "m9",
                                          .prompt_tokens = 100,
                                          .sampling = sampling}};
    struct cluster_request *request = &c->requests[c->request_count++];
    *request = (struct cluster_request){.attempt = {.id = c->request_count, .generation = 1},
                                        .sampling = sampling,
                                        .prompt_machine = CLUSTER_NONE,
                                        /* Stops the cluster from sending PREFILL. */
                                        .cancelled = true};
    message.reserve.request = request->attempt;
    cluster_clock_stop(c, true);
    cluster_send(c, 1, &message);
    while (!request->reserved)
        cluster_turn(c, 1);
    cluster_clock_skip(c, 59000000);
    cluster_turn(c, 0);
    cluster_turn(c, 0);
    CHECK(!request->failed && blocks_free(c, 1) < kv_pool_block_count(c->machines[1]->kv));
    cluster_clock_skip(c, 1100000);
    for (uint32_t turns = 0; turns < 5; turns++)
        cluster_turn(c, 1);
    CHECK(request->failed && strstr(request->failed_text, "m9") != NULL);
    printf("failed: %s\n", request->failed_text);
    cluster_clock_stop(c, false);
    cluster_wait_free(c, 0);
}

/* A gateway that breaks the protocol is disconnected, and its requests are cancelled; other
 * gateways are not affected. */
static void check_garbage(struct cluster *c, struct reference *reference)
{
    static const uint64_t garbage[4] = {0x1234567890abcdef, 77, 1, 2};
    const struct message not_yours = {
        .kind = MESSAGE_KV_READY,
        .kv_ready = {.request = {.id = 1, .generation = 1}, .prompt_tokens = 5}};
    const struct sampling sampling = cluster_sampling(10);
    for (uint32_t kind = 0; kind < 2; kind++) {
        struct cluster_request *request =
            cluster_submit(c, prompt, 300, &sampling, 0, 1, TRANSFER_AUTO, false);
        for (uint32_t turns = 0; turns < 5; turns++)
            cluster_turn(c, 0);
        if (kind == 0)
            transport_send(c->gateway, c->peers[1], garbage, sizeof(garbage));
        else
            cluster_send(c, 1, &not_yours);
        while (c->up[1])
            cluster_turn(c, 1);
        cluster_cancel(c, request);
        request->cancelled = true;
        cluster_reconnect(c, 1);
        cluster_finish(c);
        cluster_wait_free(c, 2);
        serve(c, reference, 3);
    }
}

/* SHUTDOWN arrives while requests run: new requests are refused, and running ones end soon. */
static void check_shutdown(struct cluster *c)
{
    const struct sampling sampling = cluster_sampling(200);
    const struct message shutdown = {.kind = MESSAGE_SHUTDOWN};
    uint32_t first = c->request_count;
    for (uint32_t i = 0; i < 6; i++)
        cluster_submit(c, prompt, 100 + i, &sampling, 0, 1, TRANSFER_AUTO, false);
    while (c->requests[first].token_count < 5)
        cluster_turn(c, 1);
    cluster_send(c, 1, &shutdown);
    struct cluster_request *late =
        cluster_submit(c, prompt, 100, &sampling, 0, 1, TRANSFER_AUTO, false);
    while (!late->failed)
        cluster_turn(c, 1);
    CHECK(strstr(late->failed_text, "m1 is stopping") != NULL);
    cluster_send(c, 0, &shutdown);
    for (uint32_t turns = 0; !machine_stopped(c->machines[0]) || !machine_stopped(c->machines[1]);
         turns++) {
        CHECK(turns < 60000);
        cluster_turn(c, 1);
    }
    cluster_wait_free(c, 2);
}

int main(void)
{
    const char *model = cluster_synthetic_model();
    const struct cluster_options options = {
        .transport = &transport_loopback,
        .model = model,
        .machine_count = 2,
        .kv_tokens = {1024, 1024},
        .pools = {POOL_PROMPT, POOL_TOKEN},
        .prompt_batch_tokens = 256,
        .threads = 1,
    };
    struct reference *reference = reference_open(model);
    struct cluster *c = cluster_open(&options);
    for (uint32_t i = 0; i < sizeof(prompt) / sizeof(prompt[0]); i++)
        prompt[i] = i * 11 % reference_vocab(reference);
    serve(c, reference, 3);
    check_loss(c, reference, false);
    check_loss(c, reference, true);
    check_unlinked(c);
    check_lease(c);
    check_garbage(c, reference);
    serve(c, reference, 3);
    check_shutdown(c);
    cluster_close(c);
    reference_close(reference);
    return 0;
}
