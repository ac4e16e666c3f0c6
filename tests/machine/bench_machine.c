/* Goal: measure the machine's overhead: the microseconds of a decode step outside forward pass and
 * sampler, and the part of a KV transfer that computing does not hide. Method: (1) one request
 * decodes 600 tokens of a tiny model on a mixed machine; the same tokens in a plain loop; the
 * difference is the overhead of engine thread, scheduler and messages, with the gateway. (2) The
 * default model, a prompt of 512 tokens (argument), sent layer-wise and in one piece over shared
 * memory and TCP; the figures of PREFILLED, median of 5. Gateway and machines share one loop
 * thread. */
#include "tests/check.h"
#include "tests/machine/cluster.h"

#include <stdlib.h>
#include <string.h>

#define RUNS 5

static uint32_t prompt[4096];

static struct cluster *open_one(const struct transport_ops *transport, const char *tls,
                                const char *model, uint32_t machine_count, uint32_t threads)
{
    const struct cluster_options options = {
        .transport = transport,
        .tls = tls,
        .model = model,
        .machine_count = machine_count,
        .kv_tokens = {8192, 8192},
        .pools = {POOL_PROMPT, POOL_TOKEN},
        .prompt_batch_tokens = 2048,
        .threads = threads,
    };
    return cluster_open(&options);
}

static double run_us(struct cluster *c, const struct sampling *sampling)
{
    int64_t began_us = clock_now_us(&clock_system);
    cluster_submit(c, prompt, 8, sampling, 0, 0, TRANSFER_AUTO, false);
    cluster_finish(c);
    return (double)(clock_now_us(&clock_system) - began_us);
}

static void bench_step(void)
{
    const char *model = cluster_synthetic_model();
    const struct sampling sampling = cluster_sampling(600);
    struct cluster *c = open_one(&transport_ucx, NULL, model, 1, 1);
    struct reference *reference = reference_open(model);
    double machine_us = 1e30;
    double plain_us = 1e30;
    for (int i = 0; i < RUNS; i++) {
        double us = run_us(c, &sampling);
        machine_us = us < machine_us ? us : machine_us;
        struct message_token *tokens, *scores;
        int64_t began_us = clock_now_us(&clock_system);
        reference_answer(reference, &c->requests[i], &tokens, &scores);
        us = (double)(clock_now_us(&clock_system) - began_us);
        plain_us = us < plain_us ? us : plain_us;
        free(tokens);
        free(scores);
    }
    printf("decode step of a tiny model: machine %.1f us, plain loop %.1f us, overhead %.1f us\n",
           machine_us / 600, plain_us / 600, (machine_us - plain_us) / 600);
    reference_close(reference);
    cluster_close(c);
}

static int compare_figures(const void *a, const void *b)
{
    uint32_t x = ((const struct message_prefilled *)a)->exposed_us;
    uint32_t y = ((const struct message_prefilled *)b)->exposed_us;
    return x < y ? -1 : x > y;
}

static void bench_transfer(const char *tls, uint32_t count, uint8_t transfer_mode)
{
    struct cluster *c = open_one(&transport_ucx, tls, test_model_path(), 2, 2);
    const struct sampling sampling = cluster_sampling(2);
    struct message_prefilled figures[RUNS + 1];
    for (int i = 0; i <= RUNS; i++) {
        struct cluster_request *request =
            cluster_submit(c, prompt, count, &sampling, 0, 1, transfer_mode, false);
        cluster_finish(c);
        figures[i] = request->figures;
    }
    qsort(figures + 1, RUNS, sizeof(figures[0]),
          compare_figures); /* The first transfer opens the endpoint, so it is left out. */
    const struct message_prefilled *median = &figures[1 + RUNS / 2];
    printf("%u tokens, %-18s %-10s prefill %6.1f ms, transfer %6.1f ms, exposed %5u us, %.1f MB\n",
           count, c->link_text, transfer_mode == TRANSFER_LAYERWISE ? "layer-wise" : "one piece",
           median->prefill_us / 1e3, median->transfer_us / 1e3, median->exposed_us,
           (double)median->bytes / 1e6);
    cluster_wait_free(c, 0);
    cluster_close(c);
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 512;
    CHECK(count >= 1 && count <= sizeof(prompt) / sizeof(prompt[0]));
    for (uint32_t i = 0; i < sizeof(prompt) / sizeof(prompt[0]); i++)
        prompt[i] = i * 13 % 299;
    bench_step();
    const char *const tls[] = {NULL, "tcp"};
    for (int i = 0; i < 2; i++) {
        bench_transfer(tls[i], count, TRANSFER_LAYERWISE);
        bench_transfer(tls[i], count, TRANSFER_ONE_PIECE);
    }
    return 0;
}
