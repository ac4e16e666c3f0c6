/* stage_costs: see the header. */
#include "scheduler/stage_costs.h"

/* The decode step for which a token machine's layers are measured: a typical number of sequences at
 * a typical context. */
#define STEP_SEQUENCES 16
#define STEP_CONTEXT   512

bool stage_costs_use_profile(const struct config *config, const struct config_stages *stages)
{
    bool ranks = false;
    for (uint32_t i = 0; i < stages->count; i++)
        ranks |= stages->stages[i].ranks > 1;
    return config->profile[0] != 0 && !ranks;
}

/* Decoding reads each weight once (of experts, those that the batch's rows choose: most of them),
 * and each row of a prompt is multiplied with each weight. In a stage that decodes, the vocabulary
 * costs as much as a few layers; for a prompt only the last row needs it. */
void stage_costs_by_weights(const struct config_machine *machine,
                            const struct config_stages *stages, uint32_t layer_count,
                            double vocabulary_layers, struct stage_costs *out)
{
    *out = (struct stage_costs){.first_extra = 0};
    for (uint32_t i = 0; i < layer_count; i++)
        out->layers[i] = 1;
    for (uint32_t i = 0; i < stages->count; i++)
        out->speeds[stages->stages[i].list_index] = stages->stages[i].ranks;
    if (machine->pool != POOL_PROMPT)
        out->last_extra = vocabulary_layers;
}

static double whole_us(const struct profile *p, const struct profile_device *d, bool prompt,
                       uint32_t micro)
{
    uint32_t layers = p->model.layer_count;
    return prompt ? profile_prompt_us(p, d, 0, layers, micro, micro)
                  : profile_token_us(p, d, 0, layers, STEP_SEQUENCES, STEP_CONTEXT);
}

/* Returns the micro-batch size with which a prompt of a whole batch passes the pipeline soonest:
 * smaller micro-batches fill the pipeline sooner, larger ones are computed faster (GPipe, section
 * 2.2). */
static uint32_t best_micro_batch(const struct config *config, const struct profile *p,
                                 const struct profile_device *d, uint32_t stages)
{
    uint32_t prompt = config->scheduler.prompt_batch_tokens;
    uint32_t best = prompt;
    double best_us = 0;
    for (uint32_t tokens = 16; tokens <= prompt; tokens += 16) {
        uint32_t pieces = (prompt + tokens - 1) / tokens;
        double piece_us = d->batch_us + whole_us(p, d, true, tokens) / stages;
        double us = (pieces + stages - 1) * piece_us;
        if (tokens > 16 && us >= best_us)
            continue;
        best_us = us;
        best = tokens;
    }
    return best;
}

/* The profile's device for a stage: of its kind, with its number of threads. */
static const struct profile_device *device_of(const struct profile *p,
                                              const struct config_stage *stage)
{
    return profile_device_find_default(p, stage->device, stage->threads, 1, "");
}

enum status stage_costs_by_profile(const struct config *config,
                                   const struct config_machine *machine,
                                   const struct config_stages *stages, const struct profile *p,
                                   const char *name, struct stage_costs *out, struct error *error)
{
    *out = (struct stage_costs){.first_extra = 0};
    bool prompt = machine->pool == POOL_PROMPT;
    const struct profile_device *first = device_of(p, &stages->stages[0]);
    for (uint32_t i = 0; i < stages->count; i++) {
        const struct config_stage *stage = &stages->stages[i];
        const struct profile_device *d = device_of(p, stage);
        if (d == NULL)
            return error_set(error, ST_NOT_FOUND,
                             "machines/%s/stages/%u: %s has no device \"%s\" with %u threads",
                             machine->name, i, name, stage->device, stage->threads);
        uint32_t micro = best_micro_batch(config, p, d, stages->count);
        out->speeds[i] = whole_us(p, first, prompt, micro) / whole_us(p, d, prompt, micro);
    }
    uint32_t micro = out->micro_batch_tokens = best_micro_batch(config, p, first, stages->count);
    for (uint32_t i = 0; i < p->model.layer_count; i++)
        out->layers[i] = prompt
                             ? profile_prompt_us(p, first, i, i + 1, micro, micro)
                             : profile_token_us(p, first, i, i + 1, STEP_SEQUENCES, STEP_CONTEXT);
    out->first_extra = profile_curve_us(&first->embedding, prompt ? micro : STEP_SEQUENCES);
    out->last_extra = profile_curve_us(&first->vocabulary, prompt ? 1 : STEP_SEQUENCES);
    return ST_OK;
}
