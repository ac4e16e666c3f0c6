/* stage_costs: see the header. */
#include "machine/executor/stage_costs.h"

#include "profile/profile.h"

#include <unistd.h>

/* The decode step for which a token machine's layers are measured: a typical number of sequences at
 * a typical context. */
#define STEP_SEQUENCES 16
#define STEP_CONTEXT   512

/* Decoding reads each weight once (of experts, those that the batch's rows choose: most of them),
 * and each row of a prompt is multiplied with each weight. In a stage that decodes, the vocabulary
 * costs as much as a few layers; for a prompt only the last row needs it. */
static void costs_by_weights(const struct config_machine *entry, const struct config_stages *stages,
                             const struct model_hyper *h, struct stage_costs *out)
{
    double layer =
        (double)h->hidden * h->head_dim * (2.0 * h->head_count + 2.0 * h->kv_head_count) +
        3.0 * h->hidden * model_ffn_rows_all(h);
    for (uint32_t i = 0; i < h->layer_count; i++)
        out->layers[i] = 1;
    for (uint32_t i = 0; i < stages->count; i++)
        out->speeds[stages->stages[i].list_index] = stages->stages[i].ranks;
    if (entry->pool != POOL_PROMPT)
        out->last_extra = (double)h->vocab * h->hidden / layer;
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
    uint32_t threads = stage->threads;
    if (threads == 0)
        threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    return profile_device_find(p, stage->device, threads);
}

static enum status costs_by_profile(const struct config *config, const struct config_machine *entry,
                                    const struct config_stages *stages, const struct profile *p,
                                    const char *path, struct stage_costs *out, struct error *error)
{
    bool prompt = entry->pool == POOL_PROMPT;
    const struct profile_device *first = device_of(p, &stages->stages[0]);
    for (uint32_t i = 0; i < stages->count; i++) {
        const struct config_stage *stage = &stages->stages[i];
        const struct profile_device *d = device_of(p, stage);
        if (d == NULL)
            return error_set(error, ST_NOT_FOUND,
                             "machines/%s/stages/%u: %s has no device \"%s\" with %u threads",
                             entry->name, i, path, stage->device, stage->threads);
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

enum status stage_costs_read(const struct config *config, const struct config_machine *entry,
                             const struct config_stages *stages, const struct model_hyper *hyper,
                             uint64_t metadata_hash, struct stage_costs *out, struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    struct profile *profile;
    bool ranks = false;
    for (uint32_t i = 0; i < stages->count; i++)
        ranks |= stages->stages[i].ranks > 1;
    *out = (struct stage_costs){.first_extra = 0};
    if (config->profile[0] == 0 || ranks) {
        costs_by_weights(entry, stages, hyper, out);
        return ST_OK;
    }
    enum status status = config_file_path(config, config->profile, path, error);
    if (status == ST_OK)
        status = profile_load(path, &profile, error);
    if (status != ST_OK)
        return status;
    if (profile->model.layer_count != hyper->layer_count ||
        (profile->model.metadata_hash != 0 && profile->model.metadata_hash != metadata_hash))
        status = error_set(error, ST_MISMATCH, "%s is of another model, %s; the config's is %s",
                           path, profile->model.name, hyper->name);
    else
        status = costs_by_profile(config, entry, stages, profile, path, out, error);
    profile_close(profile);
    return status;
}
