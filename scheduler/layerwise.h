/* layerwise: whether a prompt's KV is sent layer by layer while the prompt is computed, or in one
 * piece afterwards. The prompt machine decides for each prompt, the simulator for its machines; the
 * gateway shows the length from which on prompts are sent layer by layer. Pure: no clock and no
 * I/O. It measures nothing: the links (push_meter.h) and the machines (pace.h) do.
 *
 * Let a link need S microseconds for the KV that is sent, after a latency l, and the prompt machine
 * C microseconds for the L layers of the prompt. From the first token until all KV has arrived pass
 *
 *     in one piece:    l + S
 *     layer by layer:  l + max(S / L, S - C (L - 1) / L),
 *
 * because the link works while the machine computes the layers after the first. The difference is
 * min(S, C) (L - 1) / L; the latency is the same. Layer by layer costs L - 1 notifications more, of
 * SCHED_LAYER_US each. So it pays if
 *
 *     min(S, C) >= L × SCHED_LAYER_US. */
#ifndef SCHEDULER_LAYERWISE_H
#define SCHEDULER_LAYERWISE_H

#include <stdbool.h>
#include <stdint.h>

/* Processor time of a layer's notification and of its writes, beside what one piece needs for the
 * same bytes (docs/transport.md, "Layer by layer or in one piece"). */
#define SCHED_LAYER_US 15

/* The number of sent tokens from which on layer by layer pays, while a speed is not measured. */
#define SCHED_LAYERWISE_TOKENS 16

struct sched_layerwise {
    double send_token_us;   /* The link's time for the KV of a token; 0 = not measured. */
    double prompt_token_us; /* The prompt machine's time for a token; 0 = not measured. */
    uint32_t layer_count;
};

/* sent_tokens: the tokens whose KV the token machine does not have yet (a part of a token's layers
 * counts as a part of a token). computed_tokens: those that the prompt machine has in no cache. */
bool sched_layerwise_pays(const struct sched_layerwise *speeds, double sent_tokens,
                          uint32_t computed_tokens);
/* Returns the length from which on sched_layerwise_pays, for a prompt of which all tokens are
 * computed and sent. */
uint32_t sched_layerwise_tokens(const struct sched_layerwise *speeds);

#endif
