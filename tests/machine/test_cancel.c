/* Goal: a cancel at any moment frees every block in both pools and does not damage the KV of other
 * requests. Method: hundreds of requests over three machines with little memory, about half of them
 * cancelled at a random moment. Afterwards all blocks are free, the pools' invariants hold, and the
 * other requests' tokens are those of the plain loop. A second round ends with the gateway's death
 * instead. Before that, cancels in the middle of a batch, which ends at once if it has no other
 * request. With the argument "stages", "replicas" or "ranks", two of the machines have these
 * (cluster.h), and cancelled batches are in their pipelines. */
#include "tests/check.h"
#include "tests/machine/cluster.h"
#include "tests/transport/loopback.h"

#include "common/random.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#define REQUESTS 150
#else
#define REQUESTS 400
#endif
#define KINDS 12 /* Number of different prompts. The reference is computed once per prompt. */

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, ++draws) % below);
}

struct kind {
    uint32_t prompt[400];
    uint32_t count;
};

static struct kind kinds[KINDS];

static void submit_one(struct cluster *c)
{
    const struct kind *kind = &kinds[draw(KINDS)];
    const struct sampling sampling = cluster_sampling(1 + draw(30));
    cluster_submit(c, kind->prompt, kind->count, &sampling, draw(3), draw(3), (uint8_t)draw(3),
                   false);
}

static void cancel_some(struct cluster *c)
{
    for (uint32_t i = draw(3); i > 0 && c->request_count > 0; i--) {
        uint32_t recent = c->request_count < 30 ? c->request_count : 30;
        struct cluster_request *request = &c->requests[c->request_count - 1 - draw(recent)];
        if (draw(16) == 0) /* This request is cancelled during its answer. */
            while (!cluster_request_over(request) && request->token_count == 0)
                cluster_turn(c, 1);
        cluster_cancel(c, request);
    }
}

static void check_others(struct cluster *c, struct reference *reference)
{
    uint32_t cancelled = 0;
    uint32_t failed = 0;
    uint32_t begun = 0; /* Cancelled requests that had a token. */
    for (uint32_t i = 0; i < c->request_count; i++) {
        struct cluster_request *request = &c->requests[i];
        cancelled += request->cancelled;
        failed += request->failed;
        begun += request->cancelled && request->token_count > 0;
        if (!request->cancelled && reference != NULL)
            reference_check(reference, request);
    }
    printf("%u requests, %u cancelled (%u of them with tokens), %u failed\n", c->request_count,
           cancelled, begun, failed);
    CHECK(failed == 0 && cancelled > REQUESTS / 8 && cancelled < REQUESTS && begun > 0);
}

/* ---- batches of which a request is not wanted ---- */

static atomic_uint layers;    /* Layers that the device has begun. */
static atomic_uint hold_rows; /* The device stops in a layer with this number of rows; 0 = never. */
static atomic_bool held;

static void holding_layer_begin(struct compute *c, uint32_t row_count)
{
    compute_cpu.layer_begin(c, row_count);
    atomic_fetch_add(&layers, 1);
    while (row_count == hold_rows) {
        held = true;
        sched_yield();
    }
}

/* Submits the same prompt for the same number of tokens. */
static struct cluster_request *submit_numbered(struct cluster *c, uint32_t count)
{
    static uint32_t ids[64];
    const struct sampling sampling = cluster_sampling(4);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (i * count + 7) % 60;
    return cluster_submit(c, ids, count, &sampling, 0, 1, TRANSFER_LAYERWISE, false);
}

static void wait_held(struct cluster *c)
{
    for (int turn = 0; turn < 30000 && !held; turn++)
        cluster_turn(c, 1);
    CHECK(held);
    held = false;
}

/* Cancels the request; returns when its machines know. */
static void cancel(struct cluster *c, struct cluster_request *request)
{
    cluster_cancel(c, request);
    for (int turn = 0; turn < 20; turn++)
        cluster_turn(c, 1);
}

/* Opens a prompt and a token machine. compute: see struct cluster_options. */
static struct cluster *two_machines_open(const char *model, const struct compute_ops *compute)
{
    return cluster_open(&(struct cluster_options){
        .transport = &transport_loopback,
        .model = model,
        .machine_count = 2,
        .kv_tokens = {1024, 1024},
        .pools = {POOL_PROMPT, POOL_TOKEN},
        .prompt_batch_tokens = 128,
        .threads = 1,
        .compute = compute,
    });
}

/* The only prompt of a batch is cancelled in the first layer: the device computes no further layer.
 * One of two prompts of a batch is cancelled: the other one gets its answer. The cancelled prompts
 * leave nothing wrong in the prefix cache. */
static void check_unwanted_batches(const char *model, struct reference *reference)
{
    struct compute_ops ops = compute_cpu;
    ops.layer_begin = holding_layer_begin;
    struct cluster *c = two_machines_open(model, &ops);
    hold_rows = 40;
    struct cluster_request *first = submit_numbered(c, 40);
    wait_held(c);
    cancel(c, first);
    uint32_t begun = layers;
    hold_rows = 50 + 60;
    cluster_wait_free(c, 2);
    CHECKF(layers == begun, "%u layers were computed after the cancel", layers - begun);

    struct cluster_request *second = submit_numbered(c, 50), *third = submit_numbered(c, 60);
    wait_held(c);
    cancel(c, second);
    hold_rows = 0;
    cluster_finish(c);
    CHECK(layers > begun + 1);
    reference_check(reference, third);
    for (uint32_t count = 40; count <= 50; count += 10) {
        struct cluster_request *again = submit_numbered(c, count);
        cluster_finish(c);
        reference_check(reference, again);
    }
    cluster_close(c);
}

/* A copy of a request's KV is on its way to its prompt machine. PREFILL waits until it ends. */
static void check_copy_awaited(const char *model, struct reference *reference)
{
    static const uint32_t copied[32];
    const struct message_request copy = {.id = 1, .generation = CLUSTER_COPY_GENERATION};
    struct cluster *c = two_machines_open(model, NULL);
    cluster_send(c, 0,
                 &(struct message){.kind = MESSAGE_RESERVE,
                                   .reserve = {.request = copy,
                                               .prompt_machine = "m1",
                                               .prompt_tokens = 32,
                                               .prompt_count = 32,
                                               .prompt = copied,
                                               .prefix_cache = true,
                                               .copy = true,
                                               .sampling = cluster_sampling(1)}});
    struct cluster_request *request = submit_numbered(c, 40);
    for (int turn = 0; turn < 30000 && !request->prefill_sent; turn++)
        cluster_turn(c, 1);
    for (int turn = 0; turn < 100; turn++)
        cluster_turn(c, 1);
    CHECK(request->prefill_sent && request->token_count == 0 && !request->failed);
    cluster_send(c, 0, &(struct message){.kind = MESSAGE_CANCEL, .cancel = {.request = copy}});
    cluster_finish(c);
    reference_check(reference, request);
    cluster_close(c);
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    seed = test_seed();
    const char *model = cluster_synthetic_model();
    const struct cluster_options options = {
        .transport = &transport_loopback,
        .model = model,
        .machine_count = 3,
        .kv_tokens = {1024, 1024, 1024},
        .pools = {POOL_MIXED, POOL_MIXED, POOL_MIXED},
        .prompt_batch_tokens = 128,
        .threads = 1,
        .stages = {cluster_stages(which, 0), cluster_stages(which, 1)},
    };
    struct reference *reference = reference_open(model);
    for (uint32_t i = 0; i < KINDS; i++) {
        kinds[i].count = 1 + draw(i < 6 ? 60 : 400);
        for (uint32_t j = 0; j < kinds[i].count; j++)
            kinds[i].prompt[j] = draw(reference_vocab(reference));
    }
    if (which[0] == 0 && getenv("CLEAVE_TEST_DEVICES") == NULL)
        check_unwanted_batches(model, reference);
    if (which[0] == 0)
        check_copy_awaited(model, reference);
    struct cluster *c = cluster_open(&options);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        submit_one(c);
        for (uint32_t turns = draw(6); turns > 0; turns--)
            cluster_turn(c, (int)draw(2));
        cancel_some(c);
    }
    cluster_finish(c);
    cluster_wait_free(c, 2);
    /* Ranks add up in another order, so their results are checked by the tests of tests/cluster. */
    check_others(c, strcmp(which, "ranks") == 0 ? NULL : reference);
    for (uint32_t i = 0; i < 40; i++)
        submit_one(c);
    for (uint32_t turns = draw(60); turns > 0; turns--)
        cluster_turn(c, 1);
    for (uint32_t i = 0; i < 3; i++) { /* The gateway is disconnected. */
        transport_disconnect(c->gateway, c->peers[i]);
        c->peers[i] = NULL;
    }
    /* Reservations whose prompt machine knows nothing of them end with their lease. */
    cluster_wait_free(c, 70);
    cluster_close(c);
    reference_close(reference);
    return 0;
}
