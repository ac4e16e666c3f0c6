/* hyper_rope: reads the hyper-parameters of the rotary embedding. */
#include "model/file/hyper_internal.h"

#include "common/limits.h"

#include <inttypes.h>
#include <math.h>

/* Reads the factor of linear scaling. In GGUF the newer form is rope.scaling.type with .factor, the
 * older one rope.scale_linear. */
static enum status read_factor(const struct hyper_reader *r, struct model_hyper *h)
{
    float factor = 1.0f;
    enum status status = hyper_f32(r, KEY_ROPE_FACTOR_OLD, false, &factor);
    if (status == ST_OK)
        status = hyper_f32(r, KEY_ROPE_FACTOR, false, &factor);
    if (status != ST_OK)
        return status;
    if (factor == 0.0f)
        factor = 1.0f; /* Some converters write 0 for "none". */
    if (!(factor > 0.0f) || !isfinite(factor))
        return error_set(r->error, ST_INVALID, "the factor %s is %g, want a number above 0",
                         hyper_shown(r, KEY_ROPE_FACTOR).text, (double)factor);
    h->rope_freq_scale = 1.0f / factor;
    return ST_OK;
}

/* Llama 3.1: low frequencies are divided, high ones are not, and between them the scaling is
 * interpolated (struct model_rope_ramp). GGUF files have the result as a tensor instead. */
static enum status read_llama3(const struct hyper_reader *r, struct model_rope_ramp *ramp)
{
    enum status status = hyper_above_0(r, KEY_ROPE_FACTOR, true, &ramp->factor);
    if (status == ST_OK)
        status = hyper_above_0(r, KEY_ROPE_LOW, true, &ramp->low);
    if (status == ST_OK)
        status = hyper_above_0(r, KEY_ROPE_HIGH, true, &ramp->high);
    if (status == ST_OK)
        status = hyper_u32_in(r, KEY_ROPE_CONTEXT, true, 1, UINT32_MAX, &ramp->context_tokens);
    if (status == ST_OK && ramp->high <= ramp->low)
        return error_set(r->error, ST_INVALID, "key %s is %g, want more than %s, which is %g",
                         hyper_shown(r, KEY_ROPE_HIGH).text, (double)ramp->high,
                         hyper_shown(r, KEY_ROPE_LOW).text, (double)ramp->low);
    return status;
}

static enum status read_scaling(const struct hyper_reader *r, struct model_hyper *h)
{
    const bool folder = model_file_is_folder(r->file);
    struct mapped_text type;
    enum status status = key_text(r->file, KEY_ROPE_SCALING, &type, r->error);
    h->rope_freq_scale = 1.0f;
    if (status == ST_NOT_FOUND)
        return read_factor(r, h);
    if (status != ST_OK || mapped_text_is(type, folder ? "default" : "none"))
        return status;
    if (mapped_text_is(type, "linear"))
        return read_factor(r, h);
    if (folder && mapped_text_is(type, "llama3"))
        return read_llama3(r, &h->rope_ramp);
    return hyper_refuse_text(r, KEY_ROPE_SCALING, type,
                             folder ? "are \"default\", \"linear\" and \"llama3\""
                                    : "are \"none\" and \"linear\"");
}

static enum status read_dim(const struct hyper_reader *r, struct model_hyper *h)
{
    float share = 1.0f;
    enum status status = hyper_above_0(r, KEY_ROPE_SHARE, false, &share);
    if (status == ST_OK && share > 1.0f)
        return error_set(r->error, ST_INVALID, "key %s is %g, want at most 1",
                         hyper_shown(r, KEY_ROPE_SHARE).text, (double)share);
    h->rope_dim = (uint32_t)((float)h->head_dim * share);
    if (status == ST_OK)
        status = hyper_u32_in(r, KEY_ROPE_DIM, false, 2, h->head_dim, &h->rope_dim);
    if (status == ST_OK && (h->rope_dim == 0 || h->rope_dim % 2 != 0))
        return error_set(r->error, ST_INVALID,
                         "key %s gives %" PRIu32 " rotated dimensions, want an even number",
                         hyper_shown(r, KEY_ROPE_DIM).text, h->rope_dim);
    return status;
}

/* Gemma 3: five of six layers have a window (hyper.c limits the context to it) and rotate with a
 * base of their own, unscaled. */
static enum status read_local(const struct hyper_reader *r, struct model_hyper *h)
{
    if (h->local_period == 0)
        return ST_OK;
    h->local_freq_base = 10000.0f;
    enum status status = hyper_above_0(r, KEY_ROPE_BASE_LOCAL, false, &h->local_freq_base);
    if (status == ST_OK)
        status = hyper_u32_in(r, KEY_LOCAL_PERIOD, false, 1, LIMIT_LAYERS, &h->local_period);
    return status;
}

/* If the file lists its layers' kinds, checks that they are those that this engine assumes. A model
 * with windows in all layers is computed within its window. */
static enum status check_layers(const struct hyper_reader *r, const struct model_hyper *h)
{
    for (uint32_t i = 0; i < h->layer_count; i++) {
        struct mapped_text type;
        bool local = h->local_period != 0 && (i + 1) % h->local_period != 0;
        enum status status = key_layer_type(r->file, i, &type, r->error);
        if (status != ST_OK)
            return status == ST_NOT_FOUND ? ST_OK : status;
        bool sliding = mapped_text_is(type, "sliding_attention");
        if (h->local_period != 0
                ? sliding == local && (sliding || mapped_text_is(type, "full_attention"))
                : sliding || mapped_text_is(type, "full_attention"))
            continue;
        return error_set(r->error, ST_UNSUPPORTED,
                         "key config.json/layer_types: layer %" PRIu32
                         " is \"%.40s\", supported is \"%s\"",
                         i, type.text, local ? "sliding_attention" : "full_attention");
    }
    return ST_OK;
}

enum status hyper_read_rope(const struct hyper_reader *r, struct model_hyper *h)
{
    enum status status = read_dim(r, h);
    if (status == ST_OK)
        status = hyper_above_0(r, KEY_ROPE_BASE, false, &h->rope_freq_base);
    if (status == ST_OK)
        status = read_scaling(r, h);
    if (status == ST_OK)
        status = read_local(r, h);
    return status == ST_OK ? check_layers(r, h) : status;
}
