/* hyper_layers: reads which layers of a model have an attention window, and which rotate with a
 * base of their own. */
#include "model/file/hyper_internal.h"

#include <inttypes.h>

/* Reads the window; 0 = the model has none. */
static enum status read_window(const struct hyper_reader *r, struct model_hyper *h)
{
    bool used = true;
    enum status status = key_bool(r->file, KEY_WINDOW_USED, &used, r->error);
    if ((status != ST_OK && status != ST_NOT_FOUND) || !used)
        return status;
    return hyper_read_u32_range(r, KEY_WINDOW, false, 0, UINT32_MAX, &h->window);
}

static enum status read_local_base(const struct hyper_reader *r, struct model_hyper *h)
{
    struct mapped_text type;
    if (h->local_freq_base == FAMILY_LOCAL_SAME)
        h->local_freq_base = h->rope_freq_base;
    enum status status =
        hyper_read_f32_positive(r, KEY_ROPE_BASE_LOCAL, false, &h->local_freq_base);
    if (status == ST_OK)
        status = key_text(r->file, KEY_ROPE_LOCAL_SCALING, &type, r->error);
    if (status == ST_OK && !mapped_text_equals(type, "default"))
        return hyper_refuse_text(r, KEY_ROPE_LOCAL_SCALING, type, "is \"default\"");
    return status == ST_NOT_FOUND ? ST_OK : status;
}

/* Reads what makes windowed layers different from the others; *first_out is the first layer that
 * may have a window. */
static enum status read_pattern(const struct hyper_reader *r, struct model_hyper *h,
                                uint32_t *period, uint32_t *first_out)
{
    enum status status = ST_OK;
    if (h->local_freq_base != 0)
        status = read_local_base(r, h);
    /* A GGUF file has either the period or, by the same key, a list. */
    struct mapped_text listed;
    if (status == ST_OK && *period != 0 &&
        key_layer_type(r->file, 0, &listed, NULL) == ST_NOT_FOUND)
        status = hyper_read_u32_range(r, KEY_LOCAL_PERIOD, false, 1, LIMIT_LAYERS, period);
    *first_out = 0;
    if (status == ST_OK && h->window != 0)
        status = hyper_read_u32_range(r, KEY_WINDOW_FIRST, false, 0, UINT32_MAX, first_out);
    return status;
}

/* Finds whether layer `layer` has a window: `usual`, unless config.json lists the kinds of layers.
 */
static enum status read_kind(const struct hyper_reader *r, uint32_t layer, bool usual,
                             bool *window_out)
{
    struct mapped_text type;
    enum status status = key_layer_type(r->file, layer, &type, r->error);
    *window_out = status == ST_OK ? mapped_text_equals(type, "sliding_attention") : usual;
    if (status == ST_NOT_FOUND || (status == ST_OK && *window_out) ||
        (status == ST_OK && mapped_text_equals(type, "full_attention")))
        return ST_OK;
    return status != ST_OK
               ? status
               : error_set(r->error, ST_UNSUPPORTED,
                           "key config.json/layer_types: layer %" PRIu32 " is \"%.*s\", supported "
                           "are \"full_attention\" and \"sliding_attention\"",
                           layer, type.bytes < 40 ? (int)type.bytes : 40, type.text);
}

/* Finds whether layer `layer` rotates: by the family's pattern, unless config.json lists it. */
static enum status read_rotates(const struct hyper_reader *r, const struct family *family,
                                uint32_t layer, bool window, bool *rotates_out)
{
    *rotates_out = family->no_rope_period == 0 || (family->no_rope_period == FAMILY_NO_ROPE_FULL
                                                       ? window
                                                       : (layer + 1) % family->no_rope_period != 0);
    if (family->no_rope_period == 0)
        return ST_OK;
    enum status status = key_layer_rotates(r->file, layer, rotates_out, r->error);
    return status == ST_NOT_FOUND ? ST_OK : status;
}

enum status hyper_read_layers(const struct hyper_reader *r, const struct family *family,
                              struct model_hyper *h)
{
    uint32_t first, period = family->full_period;
    enum status status = read_window(r, h);
    if (status == ST_OK || status == ST_NOT_FOUND)
        status = read_pattern(r, h, &period, &first);
    for (uint32_t i = 0; i < h->layer_count && status == ST_OK; i++) {
        const bool usual = h->window != 0 && (period != 0 ? (i + 1) % period != 0 : i >= first);
        bool window = false, rotates = true;
        status = read_kind(r, i, usual, &window);
        if (status == ST_OK)
            status = read_rotates(r, family, i, window, &rotates);
        if (status == ST_OK && window && h->window == 0)
            return error_set(r->error, ST_INVALID,
                             "key %s is 0 or missing, want the window of layer %" PRIu32,
                             hyper_key_name(r, KEY_WINDOW).text, i);
        if (window)
            h->layer_bits[i] |= MODEL_LAYER_WINDOW;
        if (window && h->local_freq_base != 0)
            h->layer_bits[i] |= MODEL_LAYER_LOCAL_BASE;
        if (!rotates)
            h->layer_bits[i] |= MODEL_LAYER_UNROTATED;
    }
    return status;
}
