/* Goal: with full memory requests wait in order and never fail; a request that can never fit is
 * refused at once with both sizes; so are other requests that a machine must not run. Method: many
 * more requests than blocks, on two machines and on one; the order of the RESERVED messages; then
 * one bad request of each kind, after which everything still works. */
#include "tests/check.h"
#include "tests/machine/cluster.h"
#include "tests/transport/loopback.h"

#include <string.h>

static uint32_t prompt[1100];

static void check_queueing(struct cluster *c, struct reference *reference, uint32_t prompt_machine)
{
    const struct sampling sampling = cluster_sampling(20);
    uint32_t first = c->request_count;
    uint64_t order = c->reserved_count;
    for (uint32_t i = 0; i < 40; i++) /* 6 blocks each; 1 in 5 is larger: 13 of 20 blocks. */
        cluster_submit(c, prompt + i, i % 5 == 4 ? 180 : 70, &sampling, prompt_machine, 1,
                       TRANSFER_AUTO, false);
    cluster_finish(c);
    for (uint32_t i = first; i < c->request_count; i++) {
        CHECKF(c->requests[i].reserved_order == ++order, "request %u was served as number %d",
               i + 1, (int)c->requests[i].reserved_order);
        reference_check(reference, &c->requests[i]);
    }
    CHECK(c->stats_count > 0);
    cluster_wait_free(c, 0);
}

static void check_refused(struct cluster *c, struct cluster_request *request, const char *part1,
                          const char *part2)
{
    cluster_finish(c);
    CHECKF(request->failed && strstr(request->failed_text, part1) != NULL &&
               strstr(request->failed_text, part2) != NULL,
           "request %d says \"%s\"", (int)request->attempt.id, request->failed_text);
    printf("refused: %s\n", request->failed_text);
    cluster_cancel(c, request);
    request->cancelled = true;
    /* Does what a gateway does with a failed request: cancels it on all machines. */
    struct message message = {.kind = MESSAGE_CANCEL,
                              .cancel = {.request = request->attempt, .writes_pending = true}};
    cluster_send(c, 1, &message);
    cluster_wait_free(c, 2);
}

int main(void)
{
    const char *model = cluster_synthetic_model();
    const struct cluster_options options = {
        .transport = &transport_loopback,
        .model = model,
        .machine_count = 2,
        .kv_tokens = {320, 320},
        .pools = {POOL_PROMPT, POOL_TOKEN},
        .prompt_batch_tokens = 256,
        .threads = 1,
    };
    struct reference *reference = reference_open(model);
    struct cluster *c = cluster_open(&options);
    struct sampling sampling = cluster_sampling(20);
    for (uint32_t i = 0; i < sizeof(prompt) / sizeof(prompt[0]); i++)
        prompt[i] = i * 7 % reference_vocab(reference);
    check_queueing(c, reference, 0);
    check_queueing(c, reference, 1);

    check_refused(c, cluster_submit(c, prompt, 310, &sampling, 0, 1, TRANSFER_AUTO, false),
                  "need 21 KV blocks", "has 20");
    check_refused(c, cluster_submit(c, prompt, 1024, &sampling, 0, 1, TRANSFER_AUTO, false),
                  "prompt of 1024 tokens", "context holds 1024");
    prompt[5] = reference_vocab(reference);
    check_refused(c, cluster_submit(c, prompt, 10, &sampling, 0, 1, TRANSFER_AUTO, false),
                  "prompt token 300", "vocabulary has 300");
    prompt[5] = 0;
    sampling.output_tokens_max = 1;
    check_refused(c,
                  cluster_submit(c, prompt, 900, &sampling, 0, CLUSTER_NONE, TRANSFER_AUTO, false),
                  "needs 57 KV blocks", "has 20");
    check_queueing(c, reference, 0);

    /* The context limits this answer. */
    sampling.output_tokens_max = 5000;
    cluster_cancel(c, cluster_submit(c, prompt, 1, &sampling, 0, 1, TRANSFER_AUTO, false));
    cluster_finish(c);
    cluster_wait_free(c, 2);
    cluster_close(c);
    reference_close(reference);
    return 0;
}
