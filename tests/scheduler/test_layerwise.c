/* Goal: KV is sent layer by layer where that delays the second token less, its notifications
 * included, on links and machines of any speed; from sched_layerwise_tokens on, and not before.
 * Method: known cases; random speeds against a link that takes one layer after the other. */
#include "scheduler/layerwise.h"

#include "common/random.h"
#include "tests/check.h"

#include <math.h>
#include <stdio.h>

static uint64_t seed;
static uint64_t draws;

/* Returns a number from 10^least to 10^most, each power of ten with equal probability. */
static double draw(double least, double most)
{
    double part = (double)(random_at(seed, draws++) % 1000000) / 1e6;
    return pow(10, least + part * (most - least));
}

/* Microseconds from the end of the prompt's computing until the last layer has arrived. A layer is
 * sent when it is computed (layer by layer: else when all are) and the layer before it is sent. */
static double exposed_us(uint32_t layers, double send_us, double compute_us, bool layerwise)
{
    double free_us = 0;
    for (uint32_t layer = 0; layer < layers; layer++) {
        double ready_us = layerwise ? (layer + 1) * compute_us / layers : compute_us;
        free_us = fmax(free_us, ready_us) + send_us / layers;
    }
    return free_us - compute_us;
}

static void check_random(void)
{
    uint32_t paid = 0, count = 20000;
    for (uint32_t i = 0; i < count; i++) {
        const struct sched_layerwise speeds = {.send_token_us = draw(-2, 3),
                                               .prompt_token_us = draw(0, 3),
                                               .layer_count = (uint32_t)draw(0.5, 2)};
        double sent = draw(0, 4);
        uint32_t computed = (uint32_t)draw(0, 4), layers = speeds.layer_count;
        double send_us = sent * speeds.send_token_us;
        double compute_us = computed * speeds.prompt_token_us;
        double saved_us = exposed_us(layers, send_us, compute_us, false) -
                          exposed_us(layers, send_us, compute_us, true);
        double costs_us = (layers - 1) * SCHED_LAYER_US;
        bool pays = sched_layerwise_pays(&speeds, sent, computed);
        CHECKF(pays ? saved_us >= costs_us * 0.999999 : saved_us <= costs_us * 1.000001,
               "draw %u: saves %g us of %g, pays %d", i, saved_us, costs_us, pays);
        paid += pays;
        uint32_t tokens = sched_layerwise_tokens(&speeds);
        CHECK(sched_layerwise_pays(&speeds, tokens, tokens));
        CHECK(!sched_layerwise_pays(&speeds, tokens - 1, tokens - 1));
    }
    CHECK(paid > count / 10 && paid < count * 9 / 10);
}

int main(void)
{
    seed = test_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    struct sched_layerwise speeds = {.layer_count = 30};
    CHECK(sched_layerwise_tokens(&speeds) == SCHED_LAYERWISE_TOKENS);
    CHECK(sched_layerwise_pays(&speeds, SCHED_LAYERWISE_TOKENS, 1));
    CHECK(!sched_layerwise_pays(&speeds, SCHED_LAYERWISE_TOKENS - 1, 1000));

    speeds.prompt_token_us = 100;
    speeds.send_token_us = SCHED_LAYER_US; /* A link so fast that it has to send many tokens. */
    CHECK(sched_layerwise_tokens(&speeds) == 30);
    CHECK(!sched_layerwise_pays(&speeds, 29, 1000)); /* The token machine has the others. */
    CHECK(sched_layerwise_pays(&speeds, 30, 1000));

    speeds.send_token_us = 1000; /* A slow link: computing must take long enough. */
    CHECK(sched_layerwise_tokens(&speeds) == (30 * SCHED_LAYER_US + 99) / 100);
    CHECK(!sched_layerwise_pays(&speeds, 1000, 1)); /* The others are in the prompt's cache. */

    speeds.send_token_us = 1e-12; /* A copy that takes no time. */
    CHECK(sched_layerwise_tokens(&speeds) == UINT32_MAX);
    check_random();
    return 0;
}
