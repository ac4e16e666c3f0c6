/* profile_write: writes a profile as JSON with each row of a grid on one line, so that a person can
 * read it. Numbers have nine digits. */
#include "profile/profile.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

static void text(FILE *file, const char *key, const char *value)
{
    json_t *string = json_string(value);
    char *quoted = string != NULL ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    fprintf(file, "\"%s\": %s", key, quoted != NULL ? quoted : "\"\"");
    free(quoted);
    json_decref(string);
}

static void numbers(FILE *file, const double *values, uint32_t count)
{
    fputc('[', file);
    for (uint32_t i = 0; i < count; i++)
        fprintf(file, "%s%.9g", i > 0 ? ", " : "", values[i]);
    fputc(']', file);
}

static void grid(FILE *file, const char *key, const char *rows_key, const struct profile_grid *g)
{
    fprintf(file, "\"%s\": {\"%s\": ", key, rows_key);
    numbers(file, g->rows, g->row_count);
    fprintf(file, ",\n     \"contexts\": ");
    numbers(file, g->contexts, g->context_count);
    fprintf(file, ",\n     \"us\": [");
    for (uint32_t i = 0; i < g->row_count; i++) {
        fprintf(file, "%s\n      ", i > 0 ? "," : "");
        numbers(file, g->us[i], g->context_count);
    }
    fprintf(file, "],\n     \"spread\": %.3g}", g->spread);
}

static void curve(FILE *file, const char *key, const struct profile_curve *c)
{
    fprintf(file, ",\n   \"%s\": {\"rows\": ", key);
    numbers(file, c->rows, c->row_count);
    fprintf(file, ", \"us\": ");
    numbers(file, c->us, c->row_count);
    fprintf(file, "}");
}

static void checks(FILE *file, const struct profile_device *d)
{
    fprintf(file, ",\n   \"checks\": [");
    for (uint32_t i = 0; i < d->check_count; i++) {
        const struct profile_check *c = &d->checks[i];
        fprintf(file,
                "%s\n    {\"phase\": \"%s\", \"rows\": %.9g, \"context\": %.9g, "
                "\"decodes\": %" PRIu32 ", \"measured_us\": %.9g, \"sum_us\": %.9g}",
                i > 0 ? "," : "", c->prompt ? "prompt" : "token", c->rows, c->context, c->decodes,
                c->measured_us, c->predicted_us);
    }
    fprintf(file, "]");
}

static void device(FILE *file, const struct profile_device *d)
{
    fprintf(file, "\n  {");
    text(file, "name", d->name);
    fprintf(file, ", ");
    text(file, "kind", d->kind);
    fprintf(file, ", ");
    text(file, "host", d->host);
    fprintf(file, ",\n   ");
    text(file, "description", d->description);
    fprintf(file, ", \"threads\": %" PRIu32, d->threads);
    if (d->ranks > 1)
        fprintf(file, ", \"ranks\": %" PRIu32, d->ranks);
    if (d->busy_devices > 0)
        fprintf(file, ", \"beside\": %" PRIu32, d->busy_devices);
    fprintf(file, ", \"memory_bytes\": %" PRIu64 ",\n", d->memory_bytes);
    fprintf(file, "   \"layers_alike\": %s,\n   \"layers\": [",
            d->layer_count == 1 ? "true" : "false");
    for (uint32_t i = 0; i < d->layer_count; i++) {
        fprintf(file, "%s\n    {", i > 0 ? "," : "");
        grid(file, "prompt", "tokens", &d->layers[i].prompt);
        fprintf(file, ",\n     ");
        grid(file, "token", "batches", &d->layers[i].token);
        fprintf(file, "}");
    }
    fprintf(file, "],\n   ");
    grid(file, "last_layer_prompt", "tokens", &d->last_layer_prompt);
    curve(file, "first", &d->embedding);
    curve(file, "last", &d->vocabulary);
    fprintf(file, ",\n   \"batch_us\": %.9g, \"disturbed\": %.3g", d->batch_us, d->disturbed);
    if (d->prompt_w > 0 && d->token_w > 0)
        fprintf(file, ", \"prompt_w\": %.4g, \"token_w\": %.4g", d->prompt_w, d->token_w);
    checks(file, d);
    fprintf(file, "}");
}

static void link_write(FILE *file, const struct profile_link *l)
{
    fprintf(file, "\n  {");
    text(file, "from", l->from);
    fprintf(file, ", ");
    text(file, "to", l->to);
    fprintf(file, ", ");
    text(file, "transport", l->transport);
    fprintf(file, ", ");
    text(file, "path", l->path);
    fprintf(file, ",\n   \"bandwidth_bytes_per_s\": %.9g, \"latency_us\": %.9g,\n   \"writes\": [",
            l->bandwidth_bytes_per_s, l->latency_us);
    for (uint32_t i = 0; i < l->size_count; i++)
        fprintf(file, "%s{\"bytes\": %.9g, \"us\": %.9g}", i > 0 ? ", " : "", l->sizes_bytes[i],
                l->sizes_us[i]);
    fprintf(file, "]}");
}

static void layer_weights(FILE *file, const struct profile *p)
{
    const uint64_t *bytes = p->model.layer_weight_bytes;
    bool alike = true;
    for (uint32_t i = 1; i < p->model.layer_count; i++)
        alike = alike && bytes[i] == bytes[0];
    fprintf(file, "\"layer_weight_bytes\": ");
    if (alike) {
        fprintf(file, "%" PRIu64, bytes[0]);
        return;
    }
    for (uint32_t i = 0; i < p->model.layer_count; i++)
        fprintf(file, "%s%" PRIu64, i > 0 ? ", " : "[", bytes[i]);
    fprintf(file, "]");
}

static void layer_groups(FILE *file, const struct layer_groups *groups)
{
    const char *comma = "";
    if (groups->windowed == 0)
        return;
    fprintf(file, ",\n  \"layer_groups\": {\"count\": %" PRIu32 ", \"windowed\": [",
            layer_groups_count(groups));
    for (uint32_t i = 0; i < layer_groups_count(groups); i++)
        if (layer_groups_windowed(groups, i)) {
            fprintf(file, "%s%" PRIu32, comma, i);
            comma = ", ";
        }
    fprintf(file, "], \"window_tokens\": %" PRIu32 "}", groups->window_tokens);
}

/* Only for models with experts. */
static void experts(FILE *file, const struct profile_experts *e)
{
    if (e->count == 0)
        return;
    fprintf(file,
            ",\n  \"experts\": {\"count\": %" PRIu32 ", \"used\": %" PRIu32 ", \"bytes\": %" PRIu64,
            e->count, e->used, e->bytes);
    for (uint32_t i = 0; i < e->row_count; i++)
        fprintf(file, "%s%.9g", i > 0 ? ", " : ",\n   \"rows\": [", e->rows[i]);
    for (uint32_t i = 0; i < e->row_count; i++)
        fprintf(file, "%s%.9g", i > 0 ? ", " : "], \"chosen\": [", e->chosen[i]);
    fprintf(file, e->row_count > 0 ? "]}" : "}");
}

static void model(FILE *file, const struct profile *p)
{
    fprintf(file, " \"model\": {");
    text(file, "name", p->model.name);
    fprintf(file,
            ", \"metadata_hash\": \"%016" PRIx64 "\",\n  \"layer_count\": %" PRIu32
            ", \"hidden\": %" PRIu32 ", \"vocab\": %" PRIu32 ",\n  ",
            p->model.metadata_hash, p->model.layer_count, p->model.hidden, p->model.vocab);
    layer_weights(file, p);
    fprintf(file,
            ",\n  \"embedding_bytes\": %" PRIu64 ", \"vocabulary_bytes\": %" PRIu64
            ", \"vocabulary_layers\": %.9g, \"tied\": %s,\n  \"kv_bytes_per_token\": %" PRIu64,
            p->model.embedding_bytes, p->model.vocabulary_bytes, p->model.vocabulary_layers,
            p->model.tied ? "true" : "false", p->model.kv_bytes_per_token);
    if (p->model.kv_copied)
        fprintf(file, ", \"kv_copied\": true");
    layer_groups(file, &p->model.groups);
    experts(file, &p->model.experts);
    fprintf(file, ", \"boundary_bytes_per_token\": %" PRIu64 "}",
            p->model.boundary_bytes_per_token);
}

enum status profile_write(const struct profile *p, FILE *file, struct error *error)
{
    fprintf(file, "{\"version\": %d,\n", PROFILE_VERSION);
    model(file, p);
    fprintf(file, ",\n \"devices\": [");
    for (uint32_t i = 0; i < p->device_count; i++) {
        if (i > 0)
            fputc(',', file);
        device(file, &p->devices[i]);
    }
    fprintf(file, "],\n \"links\": [");
    for (uint32_t i = 0; i < p->link_count; i++) {
        if (i > 0)
            fputc(',', file);
        link_write(file, &p->links[i]);
    }
    fprintf(file, "]}\n");
    return fflush(file) == 0 && ferror(file) == 0
               ? ST_OK
               : error_set(error, ST_IO, "a profile cannot be written");
}
