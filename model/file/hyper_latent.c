/* hyper_latent: reads the sizes of latent attention. */
#include "model/file/hyper_internal.h"

#include "common/fixed_math.h"

#include <inttypes.h>

#define LATENT_RANK_MAX 8192
#define LATENT_DIM_MAX  1024
/* Sizes of matrices of a head are multiples of this (COMPUTE_LATENT_ROWS). */
#define LATENT_UNIT 32

static enum status check_unit(const struct hyper_reader *r, enum model_key key, uint32_t value)
{
    if (value % LATENT_UNIT == 0)
        return ST_OK;
    return error_set(r->error, ST_UNSUPPORTED,
                     "key %s is %" PRIu32 ", supported are multiples of %d",
                     hyper_key_name(r, key).text, value, LATENT_UNIT);
}

/* Reads the dimensions of a head's query and value. GGUF files have the sum of a query's two parts.
 */
static enum status read_dims(const struct hyper_reader *r, struct model_latent *latent)
{
    uint32_t key = 0;
    enum status status =
        hyper_read_u32_range(r, KEY_LATENT_ROTATED, true, 2, LATENT_DIM_MAX, &latent->rotated);
    if (status == ST_OK)
        status = hyper_read_u32_range(r, KEY_LATENT_VALUE, true, 1, LATENT_DIM_MAX, &latent->value);
    if (status != ST_OK || model_file_is_folder(r->file))
        return status != ST_OK ? status
                               : hyper_read_u32_range(r, KEY_LATENT_PLAIN, true, 1, LATENT_DIM_MAX,
                                                      &latent->plain);
    status = hyper_read_u32_range(r, KEY_HEAD_DIM, true, latent->rotated + 1, LATENT_DIM_MAX, &key);
    if (status == ST_OK)
        status = hyper_read_u32_range(r, KEY_LATENT_HEAD_DIM, false, latent->rotated + 1,
                                      LATENT_DIM_MAX, &key);
    if (status == ST_OK)
        status = hyper_read_u32_range(r, KEY_LATENT_HEAD_VALUE, false, 1, LATENT_DIM_MAX,
                                      &latent->value);
    latent->plain = key - latent->rotated;
    return status;
}

enum status hyper_read_latent(const struct hyper_reader *r, struct model_hyper *h)
{
    struct model_latent *latent = &h->latent;
    enum status status = hyper_read_u32_range(r, KEY_HEADS, true, 1, LIMIT_HEADS, &h->head_count);
    if (status == ST_OK)
        status = hyper_read_u32_range(r, KEY_LATENT_RANK, true, 1, LATENT_RANK_MAX, &latent->rank);
    if (status == ST_OK)
        status =
            hyper_read_u32_range(r, KEY_LATENT_Q_RANK, false, 0, LATENT_RANK_MAX, &latent->q_rank);
    if (status == ST_OK)
        status = read_dims(r, latent);
    if (status == ST_OK)
        status = check_unit(r, KEY_LATENT_RANK, latent->rank);
    if (status == ST_OK)
        status = check_unit(r, KEY_LATENT_VALUE, latent->value);
    if (status == ST_OK && latent->rotated % 4 != 0)
        status = error_set(r->error, ST_UNSUPPORTED,
                           "key %s is %" PRIu32 ", supported are multiples of 4",
                           hyper_key_name(r, KEY_LATENT_ROTATED).text, latent->rotated);
    h->kv_head_count = 1;
    h->head_dim = (latent->rank + latent->rotated) / 2;
    return status;
}

/* With YaRN, attention scores are multiplied by the square of a factor for scores. */
static enum status scale_yarn(const struct hyper_reader *r, struct model_hyper *h)
{
    const float factor = h->rope_scaling.factor;
    float all = 0;
    enum status status = hyper_read_mscale_all(r, h, &all);
    if (status == ST_OK && all != 0 && factor > 1) {
        const float own = 0.1f * all * (float)fixed_log((double)factor) + 1;
        h->attention_scale *= own * own;
    }
    return status;
}

enum status hyper_finish_latent(const struct hyper_reader *r, struct model_hyper *h)
{
    bool pairs = true;
    if (h->latent.rank == 0)
        return ST_OK;
    enum status status = key_bool(r->file, KEY_LATENT_PAIRS, &pairs, r->error);
    if (status != ST_OK && status != ST_NOT_FOUND)
        return status;
    h->rope_neox = !pairs;
    return h->rope_scaling.kind == MODEL_ROPE_YARN ? scale_yarn(r, h) : ST_OK;
}
