/* layerwise: decides whether a prompt's KV is sent layer by layer while the prompt is computed, or
 * in one piece afterwards. prompt_pool/ and the simulator call sched_layerwise_pays; machine/ and
 * the gateway show sched_layerwise_tokens. The functions keep no state; any thread may call them.
 * Pure: no clock and no I/O. They measure nothing.
 *
 * Let the link take l microseconds of latency and S microseconds for the bytes of the KV. Let the
 * prompt machine take C microseconds for the L layers of the prompt. The time from the first token
 * until all KV has arrived is
 *
 *     in one piece:    l + S
 *     layer by layer:  l + max(S / L, S - C (L - 1) / L),
 *
 * because the link sends while the machine computes the layers after the first. The difference is
 * min(S, C) (L - 1) / L. Sending layer by layer costs L - 1 notifications more, of SCHED_LAYER_US
 * each. So sending layer by layer pays if
 *
 *     min(S, C) >= L × SCHED_LAYER_US. */
#ifndef SCHEDULER_LAYERWISE_H
#define SCHEDULER_LAYERWISE_H

#include <stdbool.h>
#include <stdint.h>

/* Additional processor time for each layer that is sent by itself (docs/transport.md). */
#define SCHED_LAYER_US 15

/* While a speed is not measured, sending layer by layer pays from this number of tokens on. */
#define SCHED_LAYERWISE_TOKENS 16

struct sched_layerwise {
    double send_token_us;   /* The link's time for the KV of a token; 0 = not measured. */
    double prompt_token_us; /* The prompt machine's time for a token; 0 = not measured. */
    uint32_t layer_count;   /* Layers of the model. */
};

/* Returns true if the KV should be sent layer by layer. sent_tokens: the prompt's tokens whose KV
 * is sent; a token of which only some layers are sent counts as a part of a token. computed_tokens:
 * the prompt's tokens that the prompt machine computes. */
bool sched_layerwise_pays(const struct sched_layerwise *speeds, double sent_tokens,
                          uint32_t computed_tokens);
/* Returns the least number of tokens, all computed and sent, for which sched_layerwise_pays is
 * true. */
uint32_t sched_layerwise_tokens(const struct sched_layerwise *speeds);

#endif
