/* served_model: see the header. */
#include "server/api/served_model.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)

static void model_close(struct served_model *model)
{
    chat_template_close(model->chat);
    tokenizer_close(model->tokenizer);
    free(model);
}

/* Reads a file of at most TEMPLATE_BYTES_MAX bytes. The caller frees *out. */
static enum status template_read(const char *path, char **out, struct error *error)
{
    FILE *file = fopen(path, "re");
    char *text = malloc(TEMPLATE_BYTES_MAX + 1);
    if (file == NULL || text == NULL) {
        int code = errno;
        free(text);
        if (file != NULL)
            fclose(file);
        return error_set(error, ST_INVALID, "chat_template_file: %s: %s", path, strerror(code));
    }
    size_t bytes = fread(text, 1, TEMPLATE_BYTES_MAX + 1, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed || bytes > TEMPLATE_BYTES_MAX || memchr(text, 0, bytes) != NULL) {
        free(text);
        return error_set(error, ST_INVALID,
                         "chat_template_file: %s: want a text file of up to 1 MiB", path);
    }
    text[bytes] = 0;
    *out = text;
    return ST_OK;
}

static enum status chat_open(struct model_file *file, const char *template_path,
                             struct chat_template **out, struct error *error)
{
    char *instead = NULL;
    enum status status = ST_OK;
    if (template_path[0] != 0)
        status = template_read(template_path, &instead, error);
    if (status == ST_OK)
        status = chat_template_open(file, instead, out, error);
    if (status != ST_OK && instead != NULL)
        error_prefix(error, "chat_template_file: %s", template_path);
    free(instead);
    return status;
}

enum status served_model_open(struct model_file *file, const struct served_model_options *options,
                              struct served_model **out, struct error *error)
{
    struct served_model *model = calloc(1, sizeof(*model));
    if (model == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    model->references = 1;
    model->version = options->version;
    model->close = model_close;
    snprintf(model->name, sizeof(model->name), "%s", options->name);
    model->adapter_count = model_file_adapter_count(file);
    for (uint32_t i = 0; i < model->adapter_count; i++)
        snprintf(model->adapters[i], sizeof(model->adapters[i]), "%s",
                 model_file_adapter_name(file, i));
    enum status status = tokenizer_open(file, &model->tokenizer, error);
    if (status == ST_OK)
        status = chat_open(file, options->template_path, &model->chat, error);
    if (status == ST_OK)
        status = sampling_defaults_read(file, &model->defaults, error);
    enum pooling pooling = POOLING_NONE;
    if (status == ST_OK)
        status = model_pooling_read(file, &pooling, error);
    model->pooling = (uint8_t)pooling;
    if (status != ST_OK) {
        served_model_unref(model);
        return status;
    }
    size_t bytes;
    const char *text = chat_template_text(model->chat, &bytes);
    answer_format_find(options->tool_parser, options->reasoning_parser, text, bytes,
                       model->tokenizer, &model->format);
    *out = model;
    return ST_OK;
}
