/* hyper_rope: reads the hyper-parameters of the rotary embedding. */
#include "model/file/hyper_internal.h"

#include "common/fixed_math.h"

#include <inttypes.h>
#include <math.h>

/* Reads the factor of linear scaling. In GGUF the newer form is rope.scaling.type with .factor, the
 * older one rope.scale_linear. */
static enum status read_factor(const struct hyper_reader *r, struct model_hyper *h)
{
    float factor = 1.0f;
    enum status status = hyper_read_f32(r, KEY_ROPE_FACTOR_OLD, false, &factor);
    if (status == ST_OK)
        status = hyper_read_f32(r, KEY_ROPE_FACTOR, false, &factor);
    if (status != ST_OK)
        return status;
    if (factor == 0.0f)
        factor = 1.0f; /* Some converters write 0 for "none". */
    if (!(factor > 0.0f) || !isfinite(factor))
        return error_set(r->error, ST_INVALID, "the factor %s is %g, want a number above 0",
                         hyper_key_name(r, KEY_ROPE_FACTOR).text, (double)factor);
    h->rope_freq_scale = 1.0f / factor;
    return ST_OK;
}

static enum status read_context(const struct hyper_reader *r, struct model_hyper *h, bool required)
{
    struct model_rope_scaling *s = &h->rope_scaling;
    s->context_tokens = h->context_tokens;
    return hyper_read_u32_range(r, KEY_ROPE_CONTEXT, required, 1, UINT32_MAX, &s->context_tokens);
}

static enum status check_low_high(const struct hyper_reader *r, const struct model_rope_scaling *s,
                                  enum model_key low, enum model_key high)
{
    if (s->high > s->low)
        return ST_OK;
    return error_set(r->error, ST_INVALID, "key %s is %g, want more than %s, which is %g",
                     hyper_key_name(r, high).text, (double)s->high, hyper_key_name(r, low).text,
                     (double)s->low);
}

/* GGUF files have the result as a tensor instead. */
static enum status read_llama3(const struct hyper_reader *r, struct model_hyper *h)
{
    struct model_rope_scaling *s = &h->rope_scaling;
    s->kind = MODEL_ROPE_LLAMA3;
    enum status status = hyper_read_f32_positive(r, KEY_ROPE_FACTOR, true, &s->factor);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_ROPE_LOW, true, &s->low);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_ROPE_HIGH, true, &s->high);
    if (status == ST_OK)
        status = read_context(r, h, true);
    return status == ST_OK ? check_low_high(r, s, KEY_ROPE_LOW, KEY_ROPE_HIGH) : status;
}

static float yarn_amplitude(float factor, float mscale)
{
    return factor <= 1 ? 1 : 0.1f * mscale * (float)fixed_log((double)factor) + 1;
}

enum status hyper_read_mscale_all(const struct hyper_reader *r, const struct model_hyper *h,
                                  float *mscale_all_dim_out)
{
    *mscale_all_dim_out = 0;
    enum status status = hyper_read_f32(r, KEY_ROPE_MSCALE_ALL, false, mscale_all_dim_out);
    if (h->latent.rank != 0 && !model_file_is_folder(r->file))
        *mscale_all_dim_out /= 0.1f;
    return status;
}

/* Reads YaRN's factor of cos and sin. In a folder the key has the factor itself; in a GGUF file the
 * key multiplies YaRN's usual factor. GGUF files have no mscale: with latent attention it is
 * mscale_all_dim, as in DeepSeek's models, otherwise 1. */
static enum status read_yarn_amplitude(const struct hyper_reader *r, struct model_hyper *h)
{
    struct model_rope_scaling *s = &h->rope_scaling;
    const bool folder = model_file_is_folder(r->file);
    float given = 0, mscale = folder ? 0 : 1, mscale_all = 0;
    enum status status = hyper_read_f32(r, KEY_ROPE_AMPLITUDE, false, &given);
    if (status == ST_OK)
        status = hyper_read_f32(r, KEY_ROPE_MSCALE, false, &mscale);
    if (status == ST_OK)
        status = hyper_read_mscale_all(r, h, &mscale_all);
    if (status != ST_OK)
        return status;
    if (h->latent.rank != 0 && !folder && mscale_all != 0)
        mscale = mscale_all;
    float own = mscale != 0 && mscale_all != 0
                    ? yarn_amplitude(s->factor, mscale) / yarn_amplitude(s->factor, mscale_all)
                    : yarn_amplitude(s->factor, 1);
    s->amplitude = given == 0 ? own : folder ? given : given * own;
    if (s->amplitude > 0 && isfinite(s->amplitude))
        return ST_OK;
    return error_set(r->error, ST_INVALID, "key %s: cos and sin get the factor %g, want above 0",
                     hyper_key_name(r, KEY_ROPE_AMPLITUDE).text, (double)s->amplitude);
}

/* The context of a model with YaRN is at least `factor` times the context before the scaling; some
 * files give only the context before the scaling. */
static enum status read_yarn(const struct hyper_reader *r, const struct family *family,
                             struct model_hyper *h)
{
    struct model_rope_scaling *s = &h->rope_scaling;
    const bool folder = model_file_is_folder(r->file);
    *s = (struct model_rope_scaling){.kind = MODEL_ROPE_YARN,
                                     .low = 1,
                                     .high = 32,
                                     .whole_dims = folder || !family->yarn_fractions,
                                     .amplitude = 1};
    enum status status = read_context(r, h, false);
    s->factor = (float)h->context_tokens / (float)s->context_tokens;
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_ROPE_FACTOR, false, &s->factor);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_ROPE_BETA_SLOW, false, &s->low);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_ROPE_BETA_FAST, false, &s->high);
    if (status == ST_OK)
        status = check_low_high(r, s, KEY_ROPE_BETA_SLOW, KEY_ROPE_BETA_FAST);
    if (status == ST_OK)
        status = key_bool(r->file, KEY_ROPE_TRUNCATE, &s->whole_dims, r->error);
    if (status == ST_OK || status == ST_NOT_FOUND)
        status = read_yarn_amplitude(r, h);
    if (status == ST_OK && h->rope_freq_base <= 1)
        return error_set(r->error, ST_INVALID, "key %s is %g, want more than 1 with YaRN",
                         hyper_key_name(r, KEY_ROPE_BASE).text, (double)h->rope_freq_base);
    const double context = (double)s->factor * s->context_tokens;
    if (context > h->context_tokens && context < UINT32_MAX)
        h->context_tokens = (uint32_t)context;
    return status;
}

/* Checks LongRoPE's lists of config.json. */
static enum status check_lists(const struct hyper_reader *r, const struct model_hyper *h)
{
    static const enum model_key keys[] = {KEY_ROPE_LONG, KEY_ROPE_SHORT};
    float values[HYPER_HEAD_DIM_MAX / 2];
    const uint32_t dim = h->rope_dim;
    if (dim > HYPER_HEAD_DIM_MAX)
        return error_set(r->error, ST_UNSUPPORTED,
                         "LongRoPE rotates %" PRIu32 " dimensions, at most %d are supported", dim,
                         HYPER_HEAD_DIM_MAX);
    for (int i = 0; i < 2; i++) {
        enum status status = key_f32_list(r->file, keys[i], dim / 2, values, r->error);
        if (status == ST_NOT_FOUND)
            return error_set(r->error, ST_INVALID, "key %s is missing",
                             hyper_key_name(r, keys[i]).text);
        for (uint32_t j = 0; status == ST_OK && j < dim / 2; j++)
            if (!(values[j] > 0) || !isfinite(values[j]))
                return error_set(r->error, ST_INVALID,
                                 "key %s: entry %" PRIu32 " is %g, want a number above 0",
                                 hyper_key_name(r, keys[i]).text, j, (double)values[j]);
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

static enum status read_longrope(const struct hyper_reader *r, struct model_hyper *h)
{
    const bool folder = model_file_is_folder(r->file);
    struct model_rope_scaling *s = &h->rope_scaling;
    *s = (struct model_rope_scaling){.kind = MODEL_ROPE_LONG, .amplitude = 1};
    enum status status = read_context(r, h, !folder);
    s->factor = (float)h->context_tokens / (float)s->context_tokens;
    if (status == ST_OK && folder)
        status = hyper_read_f32_positive(r, KEY_ROPE_FACTOR, false, &s->factor);
    if (status == ST_OK && folder && s->factor > 1)
        s->amplitude = sqrtf(1 + (float)fixed_log((double)s->factor) /
                                     (float)fixed_log((double)s->context_tokens));
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_ROPE_AMPLITUDE, false, &s->amplitude);
    return status == ST_OK && folder ? check_lists(r, h) : status;
}

/* Dynamic NTK changes the base with the length of a context, beyond the length that the model was
 * made for. The K of earlier tokens would have to change too, so contexts end there (h->
 * context_tokens), where nothing is scaled. */
static enum status read_dynamic(const struct hyper_reader *r, struct model_hyper *h)
{
    float factor = 1;
    enum status status = read_context(r, h, false);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_ROPE_FACTOR, false, &factor);
    if (h->rope_scaling.context_tokens < h->context_tokens)
        h->context_tokens = h->rope_scaling.context_tokens;
    return status;
}

/* Reads which share of the dimensions is rotated. The share does not change the frequencies;
 * read_dim has computed rope_dim from it. */
static enum status read_proportional(const struct hyper_reader *r, struct model_hyper *h)
{
    h->rope_scaling.kind = MODEL_ROPE_PROPORTIONAL;
    h->rope_scaling.pairs = h->rope_dim / 2;
    if (h->latent.rank == 0)
        h->rope_dim = h->head_dim;
    return read_factor(r, h);
}

static enum status read_kind(const struct hyper_reader *r, const struct family *family,
                             struct model_hyper *h, struct mapped_text type)
{
    const bool folder = model_file_is_folder(r->file);
    if (mapped_text_equals(type, folder ? "default" : "none"))
        return ST_OK;
    if (mapped_text_equals(type, "linear"))
        return read_factor(r, h);
    if (mapped_text_equals(type, "yarn"))
        return read_yarn(r, family, h);
    if (mapped_text_equals(type, "longrope") || (folder && mapped_text_equals(type, "su")))
        return read_longrope(r, h);
    if (folder && mapped_text_equals(type, "llama3"))
        return read_llama3(r, h);
    if (folder && mapped_text_equals(type, "dynamic"))
        return read_dynamic(r, h);
    if (folder && mapped_text_equals(type, "proportional"))
        return read_proportional(r, h);
    return hyper_refuse_text(r, KEY_ROPE_SCALING, type,
                             folder ? "are \"default\", \"linear\", \"dynamic\", \"yarn\", "
                                      "\"longrope\", \"llama3\" and \"proportional\""
                                    : "are \"none\", \"linear\", \"yarn\" and \"longrope\"");
}

static enum status read_scaling(const struct hyper_reader *r, const struct family *family,
                                struct model_hyper *h)
{
    struct mapped_text type;
    h->rope_freq_scale = 1.0f;
    h->rope_scaling = (struct model_rope_scaling){.amplitude = 1};
    /* GGUF files with LongRoPE's lists need not name it. */
    if (model_file_tensor_find(r->file, ROLE_ROPE_LONG, 0) != NULL)
        return read_longrope(r, h);
    enum status status = key_text(r->file, KEY_ROPE_SCALING, &type, r->error);
    if (status == ST_NOT_FOUND)
        return read_factor(r, h);
    return status == ST_OK ? read_kind(r, family, h, type) : status;
}

static enum status read_dim(const struct hyper_reader *r, const struct family *family,
                            struct model_hyper *h)
{
    if (h->latent.rank != 0) { /* hyper_read_latent has read and checked the number. */
        h->rope_dim = h->latent.rotated;
        return ST_OK;
    }
    float share = family->rope_share > 0 ? family->rope_share : 1.0f;
    enum status status = hyper_read_f32_positive(r, KEY_ROPE_SHARE, false, &share);
    if (status != ST_OK)
        return status;
    if (share > 1.0f)
        return error_set(r->error, ST_INVALID, "key %s is %g, want at most 1",
                         hyper_key_name(r, KEY_ROPE_SHARE).text, (double)share);
    h->rope_dim = (uint32_t)((float)h->head_dim * share);
    status = hyper_read_u32_range(r, KEY_ROPE_DIM, false, 2, h->head_dim, &h->rope_dim);
    if (status == ST_OK && (h->rope_dim == 0 || h->rope_dim % 2 != 0))
        return error_set(r->error, ST_INVALID,
                         "key %s gives %" PRIu32 " rotated dimensions, want an even number",
                         hyper_key_name(r, KEY_ROPE_DIM).text, h->rope_dim);
    return status;
}

enum status hyper_read_rope(const struct hyper_reader *r, const struct family *family,
                            struct model_hyper *h)
{
    enum status status = read_dim(r, family, h);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_ROPE_BASE, false, &h->rope_freq_base);
    return status == ST_OK ? read_scaling(r, family, h) : status;
}
