/* profile_print: a profile as tables. */
#include "tools/profile/profile.h"

#include "tools/report/table.h"

#include <inttypes.h>
#include <string.h>

static struct table table;

static void grid_print(const struct profile_grid *g, const char *title, const char *unit,
                       FILE *file)
{
    table_init(&table, g->context_count + 1);
    table_cell_add(&table, "%s", title);
    for (uint32_t c = 0; c < g->context_count; c++)
        table_cell_add(&table, "after %.0f", g->contexts[c]);
    for (uint32_t i = 0; i < g->row_count; i++) {
        table_cell_add(&table, "%.0f %s", g->rows[i], unit);
        for (uint32_t c = 0; c < g->context_count; c++)
            table_cell_add(&table, "%.1f", g->us[i][c]);
    }
    table_print_markdown(&table, file);
    fprintf(file, "\n(spread of whole steps: %.1f %%)\n\n", 100 * g->spread);
}

static void curve_row(const struct profile_curve *c, const char *title)
{
    char text[TABLE_CELL_BYTES];
    table_cell_add(&table, "%s", title);
    for (uint32_t i = 0; i < 4; i++) {
        static const double rows[] = {1, 16, 128, 1024};
        snprintf(text, sizeof(text), "%.1f", profile_curve_us(c, rows[i]));
        table_cell_add(&table, "%s", rows[i] <= c->rows[c->row_count - 1] ? text : "-");
    }
}

static void checks_print(const struct profile_device *d, FILE *file)
{
    table_init(&table, 4);
    table_cell_add(&table, "whole step");
    table_cell_add(&table, "measured, us");
    table_cell_add(&table, "predicted, us");
    table_cell_add(&table, "predicted / measured");
    for (uint32_t i = 0; i < d->check_count; i++) {
        const struct profile_check *c = &d->checks[i];
        char decodes[32] = "";
        if (c->decodes > 0)
            snprintf(decodes, sizeof(decodes), ", %" PRIu32 " decodes", c->decodes);
        table_cell_add(&table, "%s of %.0f after %.0f%s", c->prompt ? "prompt" : "step", c->rows,
                       c->context, decodes);
        table_cell_add(&table, "%.0f", c->measured_us);
        table_cell_add(&table, "%.0f", c->predicted_us);
        table_cell_add(&table, "%.3f", c->measured_us > 0 ? c->predicted_us / c->measured_us : 0);
    }
    table_print_markdown(&table, file);
}

#define DISTURBED_SHARE_FEW 0.1

static void disturbed_print(const struct profile_device *d, FILE *file)
{
    fprintf(file, "Other processes used the cores in %.0f %% of the measurements",
            100 * d->disturbed);
    if (d->disturbed <= DISTURBED_SHARE_FEW || strncmp(d->kind, "wait:", 5) == 0)
        fprintf(file, ".\n\n");
    else if (d->threads == 1)
        fprintf(file, ": the time spent waiting for a core is not counted.\n\n");
    else
        fprintf(file, ": THE COMPUTER IS BUSY, and these times are too long. Measure again.\n\n");
}

static void device_print(const struct profile *p, const struct profile_device *d, FILE *file)
{
    fprintf(file, "%s on %s: %s\n\n", d->name, d->host, d->description);
    const struct profile_layer *layer = &d->layers[0];
    const char *which = d->layer_count == 1 ? "each layer" : "layer 0";
    char title[TABLE_CELL_BYTES];
    snprintf(title, sizeof(title), "us of %s, prompt", which);
    grid_print(&layer->prompt, title, "tokens", file);
    snprintf(title, sizeof(title), "us of layer %" PRIu32 ", prompt", p->model.layer_count - 1);
    grid_print(&d->last_layer_prompt, title, "tokens", file);
    snprintf(title, sizeof(title), "us of %s, step", which);
    grid_print(&layer->token, title, "sequences", file);
    table_init(&table, 5);
    table_cell_add(&table, "us, by rows");
    table_cell_add(&table, "1");
    table_cell_add(&table, "16");
    table_cell_add(&table, "128");
    table_cell_add(&table, "1024");
    curve_row(&d->embedding, "embedding");
    curve_row(&d->vocabulary, "vocabulary, sampling");
    table_print_markdown(&table, file);
    fprintf(file, "\nEach batch besides: %.1f us. ", d->batch_us);
    disturbed_print(d, file);
    if (d->prompt_w > 0 && d->token_w > 0)
        fprintf(file,
                "Power (of the GPU, or of all CPU packages): %.0f W with prompts, %.0f W with "
                "steps.\n\n",
                d->prompt_w, d->token_w);
    checks_print(d, file);
    fprintf(file, "\n");
}

/* What decode steps read of a layer with experts. */
static void experts_print(const struct profile *p, FILE *file)
{
    const struct profile_experts *e = &p->model.experts;
    const uint32_t layer = p->model.layer_count - 1;
    fprintf(file,
            "%" PRIu32 " experts of %.2f MB in a layer, of which a row chooses %" PRIu32 "\n\n",
            e->count, (double)e->bytes * 1e-6, e->used);
    table_init(&table, 4);
    table_cell_add(&table, "experts of a step");
    table_cell_add(&table, "chosen");
    table_cell_add(&table, "if chosen at random");
    table_cell_add(&table, "MB read of layer %" PRIu32, layer);
    for (double rows = 1; rows <= 128; rows *= 2) {
        table_cell_add(&table, "%.0f sequences", rows);
        table_cell_add(&table, "%.1f", profile_experts_chosen(p, rows));
        table_cell_add(&table, "%.1f", profile_experts_expected(p, rows));
        table_cell_add(&table, "%.2f", profile_layer_read_bytes(p, layer, rows) * 1e-6);
    }
    table_print_markdown(&table, file);
    fprintf(file, "\n");
}

static void links_print(const struct profile *p, FILE *file)
{
    for (uint32_t i = 0; i < p->link_count; i++) {
        const struct profile_link *l = &p->links[i];
        fprintf(file, "%s to %s, %s: %.2f GB/s, %.1f us until a small write has arrived\n", l->from,
                l->to, l->path, l->bandwidth_bytes_per_s * 1e-9, l->latency_us);
        for (uint32_t k = 0; k < l->size_count; k++)
            fprintf(file, "%s%.0f B %.1f us", k > 0 ? ", " : "  ", l->sizes_bytes[k],
                    l->sizes_us[k]);
        fprintf(file, "\n");
    }
}

void profile_print(const struct profile *p, FILE *file)
{
    fprintf(file,
            "%s: %" PRIu32 " layers of %.2f MB, embedding %.1f MB, vocabulary %.1f MB%s; per token "
            "%" PRIu64 " B of KV a layer, %" PRIu64 " B between stages\n",
            p->model.name, p->model.layer_count, (double)p->model.layer_weight_bytes[0] * 1e-6,
            (double)p->model.embedding_bytes * 1e-6, (double)p->model.vocabulary_bytes * 1e-6,
            p->model.tied ? " (the same)" : "", p->model.kv_bytes_per_token,
            p->model.boundary_bytes_per_token);
    if (p->model.groups.windowed != 0)
        fprintf(file, "%" PRIu32 " layers have a window of %" PRIu32 " tokens\n",
                profile_windowed_layers(p), p->model.groups.window_tokens);
    fprintf(file, "\n");
    if (p->model.experts.count > 0)
        experts_print(p, file);
    for (uint32_t i = 0; i < p->device_count; i++)
        device_print(p, &p->devices[i], file);
    links_print(p, file);
}
