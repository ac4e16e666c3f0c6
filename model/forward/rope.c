/* rope: see rope.h. */
#include "model/forward/rope.h"

#include "common/fixed_math.h"
#include "model/file/keys.h"

#include <inttypes.h>
#include <math.h>

static double base_power(const struct model_hyper *h, double exponent)
{
    return fixed_pow((double)h->rope_freq_base, exponent / h->rope_dim);
}

/* Returns where `value` lies between low (0) and high (1). */
static double place_between(double value, double low, double high)
{
    double place = (value - low) / (high - low);
    return place < 0 ? 0 : place > 1 ? 1 : place;
}

static void llama3_divisors(const struct model_hyper *h, float *out)
{
    const struct model_rope_scaling *s = &h->rope_scaling;
    for (uint32_t i = 0; i < h->rope_dim / 2; i++) {
        double wave = 2 * M_PI * base_power(h, 2.0 * i);
        double place = place_between(s->context_tokens / wave, (double)s->low, (double)s->high);
        out[i] = (float)(1 / ((1 - place) / (double)s->factor + place));
    }
}

/* Returns the dimension that turns this often within the context before the scaling. */
static double yarn_dim(const struct model_hyper *h, double turns)
{
    double wave = h->rope_scaling.context_tokens / (turns * 2 * M_PI);
    return h->rope_dim * fixed_log(wave) / (2 * fixed_log((double)h->rope_freq_base));
}

static void yarn_divisors(const struct model_hyper *h, float *out)
{
    const struct model_rope_scaling *s = &h->rope_scaling;
    double first = yarn_dim(h, (double)s->high), last = yarn_dim(h, (double)s->low);
    first = fmax(s->whole_dims ? floor(first) : first, 0);
    last = fmin(s->whole_dims ? ceil(last) : last, h->rope_dim - 1);
    if (first == last)
        last += 0.001; /* As transformers does. */
    for (uint32_t i = 0; i < h->rope_dim / 2; i++) {
        double scaled = place_between(i, first, last);
        out[i] = (float)(1 / (scaled / (double)s->factor + (1 - scaled)));
    }
}

/* Frequencies divided by infinity are 0: those dimensions are not rotated. */
static void proportional_divisors(const struct model_hyper *h, float *out)
{
    for (uint32_t i = 0; i < h->rope_dim / 2; i++)
        out[i] = i < h->rope_scaling.pairs ? 1 : INFINITY;
}

static enum status read_tensor(const struct loader *l, enum model_role role)
{
    const uint32_t count = l->m->hyper.rope_dim / 2;
    char name[ROLE_NAME_BYTES];
    enum status status = load_vector_to_host(l, role, 0, count);
    for (uint32_t i = 0; status == ST_OK && i < count; i++)
        if (!(l->host_vector[i] > 0.0f) || !isfinite(l->host_vector[i]))
            return error_set(
                l->error, ST_INVALID, "tensor %s: element %" PRIu32 " is %g, want a number above 0",
                model_file_tensor_name(l->file, role, 0, name), i, (double)l->host_vector[i]);
    return status;
}

static enum status read_list(const struct loader *l)
{
    const struct model_hyper *h = &l->m->hyper;
    const bool is_long = model_rope_is_long(h, l->m->context_tokens_max);
    if (!model_file_is_folder(l->file))
        return read_tensor(l, is_long ? ROLE_ROPE_LONG : ROLE_ROPE_SHORT);
    return key_f32_list(l->file, is_long ? KEY_ROPE_LONG : KEY_ROPE_SHORT, h->rope_dim / 2,
                        l->host_vector, l->error);
}

/* Writes the divisors of the frequencies to l->host_vector. *out NULL = no divisors. */
static enum status read_divisors(const struct loader *l, const float **out)
{
    const struct model_hyper *h = &l->m->hyper;
    enum status status = ST_OK;
    *out = l->host_vector;
    if (loader_has_tensor(l, ROLE_ROPE_FACTORS, 0))
        return read_tensor(l, ROLE_ROPE_FACTORS);
    switch (h->rope_scaling.kind) {
    case MODEL_ROPE_PLAIN:
        *out = NULL;
        break;
    case MODEL_ROPE_LLAMA3:
        llama3_divisors(h, l->host_vector);
        break;
    case MODEL_ROPE_YARN:
        yarn_divisors(h, l->host_vector);
        break;
    case MODEL_ROPE_LONG:
        status = read_list(l);
        break;
    case MODEL_ROPE_PROPORTIONAL:
        proportional_divisors(h, l->host_vector);
        break;
    }
    return status;
}

enum status rope_load(const struct loader *l)
{
    struct model *m = l->m;
    const struct model_hyper *h = &m->hyper;
    struct compute_rope rope = {
        .dim = h->rope_dim,
        .neox = h->rope_neox,
        .freq_base = h->rope_freq_base,
        .freq_scale = h->rope_freq_scale,
        .amplitude = h->rope_scaling.amplitude,
        .positions_max = m->context_tokens_max,
    };
    enum status status = read_divisors(l, &rope.factors);
    if (status != ST_OK)
        return status;
    status = m->ops->rope_open(m->compute, &rope, &m->rope);
    if (status == ST_OK && h->local_freq_base != 0) {
        rope.freq_base = h->local_freq_base;
        rope.freq_scale = 1;
        rope.factors = NULL;
        rope.amplitude = 1;
        status = m->ops->rope_open(m->compute, &rope, &m->local_rope);
    }
    if (status != ST_OK)
        return error_set(l->error, status, "rotary embedding of %" PRIu32 " positions: %s",
                         rope.positions_max, status_name(status));
    return ST_OK;
}
