/* completion_embeddings: the answers of POST /v1/embeddings. A machine sends the sum of the
 * vectors of a prompt's tokens; here it is scaled to length 1, as OpenAI's are, so a mean needs no
 * division by the number of tokens. */
#include "server/http/completion_internal.h"

#include "common/pooling.h"

#include <gnutls/gnutls.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool completion_pooling_find(const struct completion *c, uint8_t *out, struct api_error *error)
{
    const char *wanted = c->server->config->server.embeddings;
    *out = strcmp(wanted, "last") == 0   ? POOLING_LAST
           : strcmp(wanted, "mean") == 0 ? POOLING_MEAN
           : strcmp(wanted, "auto") == 0 ? c->model->pooling
                                         : POOLING_NONE;
    if (*out != POOLING_NONE)
        return true;
    api_error_set(
        error, 400, "model",
        "%s makes no embeddings: %s; to have some, set the config's server/embeddings to last "
        "or mean",
        c->model->name, strcmp(wanted, "off") == 0 ? "they are off" : "its files name no pooling");
    error->code = "unsupported_parameter";
    return false;
}

void completion_on_embedding(void *self, const int64_t *sums, uint32_t count)
{
    struct choice *choice = self;
    struct completion *c = choice->completion;
    uint32_t wanted = c->request.dimensions;
    double squares = 0;
    if (choice->ended)
        return;
    if (wanted == 0 || wanted > count)
        wanted = count;
    choice_prompt_count(choice, 0);
    free(choice->vector);
    choice->vector = malloc(wanted * sizeof(float));
    choice->vector_count = count;
    c->output.broken |= choice->vector == NULL;
    if (choice->vector == NULL)
        return;
    for (uint32_t i = 0; i < wanted; i++)
        squares += (double)sums[i] * (double)sums[i];
    const double scale = squares > 0 ? 1 / sqrt(squares) : 0;
    for (uint32_t i = 0; i < wanted; i++)
        choice->vector[i] = (float)((double)sums[i] * scale);
}

static void write_base64(struct text *out, const void *data, size_t bytes)
{
    const gnutls_datum_t from = {(void *)data, (unsigned)bytes}; /* GnuTLS only reads it. */
    gnutls_datum_t to;
    if (gnutls_base64_encode2(&from, &to) != 0) {
        out->broken = true;
        return;
    }
    text_add_json_string(out, (const char *)to.data, to.size);
    gnutls_free(to.data);
}

static void write_vector(struct text *out, const struct completion *c, const float *vector,
                         uint32_t count)
{
    if (c->request.base64) {
        write_base64(out, vector, count * sizeof(*vector));
        return;
    }
    text_string_add(out, "[");
    for (uint32_t i = 0; i < count; i++)
        text_format_add(out, i > 0 ? ",%.9g" : "%.9g", (double)vector[i]);
    text_string_add(out, "]");
}

void completion_write_embeddings(struct completion *c)
{
    struct text *out = &c->output;
    const struct completion_usage usage = completion_usage(c);
    const uint32_t length = c->choices[0].vector_count;
    if (c->request.dimensions > length) {
        api_error_set(&c->error, 400, "dimensions",
                      "dimensions is %u: this model's vectors have %u elements",
                      c->request.dimensions, length);
        return;
    }
    const uint32_t count = c->request.dimensions > 0 ? c->request.dimensions : length;
    text_string_add(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < c->choice_count; i++) {
        out->broken |= c->choices[i].vector == NULL || c->choices[i].vector_count != length;
        text_format_add(
            out, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i > 0 ? "," : "", i);
        if (!out->broken)
            write_vector(out, c, c->choices[i].vector, count);
        text_string_add(out, "}");
    }
    text_string_add(out, "],\"model\":");
    const char *name = served_model_name(c->model, c->request.sampling.adapter);
    text_add_json_string(out, name, strlen(name));
    text_format_add(out, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}\n",
                    (unsigned long long)usage.prompt, (unsigned long long)usage.prompt);
}
