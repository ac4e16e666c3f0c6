/* served_model: see the header. */
#include "server/api/served_model.h"

#include <stdio.h>
#include <stdlib.h>

static void model_close(struct served_model *model)
{
    chat_template_close(model->chat);
    tokenizer_close(model->tokenizer);
    free(model);
}

enum status served_model_open(struct model_file *file, uint32_t version, const char *name,
                              struct served_model **out, struct error *error)
{
    struct served_model *model = calloc(1, sizeof(*model));
    if (model == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    model->references = 1;
    model->version = version;
    model->close = model_close;
    snprintf(model->name, sizeof(model->name), "%s", name);
    enum status status = tokenizer_open(file, &model->tokenizer, error);
    if (status == ST_OK)
        status = chat_template_open(file, &model->chat, error);
    if (status == ST_OK)
        status = sampling_defaults_read(file, &model->defaults, error);
    if (status != ST_OK) {
        served_model_unref(model);
        return status;
    }
    *out = model;
    return ST_OK;
}
