/* served_model: the text side of a model, as the gateway knows it: tokenizer, chat template, format
 * of answers, defaults from the model's files, and its name for clients. server/serve*.c open
 * models; server/http/ uses them. Models are reference-counted, and the last release frees the
 * model. The counts are not atomic: only the gateway's event loop thread may add and release
 * references. Any thread may read a model while a reference is held. A served_model has no weights.
 * */
#ifndef SERVER_API_SERVED_MODEL_H
#define SERVER_API_SERVED_MODEL_H

#include "common/limits.h"
#include "common/status.h"
#include "model/answer/answer_format.h"
#include "model/file/model_file.h"
#include "model/file/pooling.h"
#include "model/file/sampling_defaults.h"
#include "model/text/chat.h"
#include "model/text/tokenizer.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

struct served_model {
    uint32_t references;
    uint32_t version; /* Version number as in gateway.h. */
    char name[64];    /* Name in /v1/models. */
    uint32_t adapter_count;
    char adapters[LIMIT_ADAPTERS][ADAPTER_NAME_BYTES]; /* Names of the low-rank adapters. */
    struct tokenizer *tokenizer;
    struct chat_template *chat;
    struct answer_format format;               /* How the model writes the answers of chats. */
    struct sampling_defaults defaults;         /* Defaults from the model's files. */
    uint8_t pooling;                           /* enum pooling, from the model's files. */
    void (*close)(struct served_model *model); /* Called after the last release. */
};

struct served_model_options {
    uint32_t version;
    const char *name;
    /* A file with a chat template; empty = the chat template of the model. */
    const char *template_path;
    const char *tool_parser;      /* Value of the config's key tool_parser. */
    const char *reasoning_parser; /* Value of the config's key reasoning_parser. */
};

/* Opens a model with one reference. `file` and the options are used only during the call. On
 * failure returns a negative status, with the reason in *error. */
enum status served_model_open(struct model_file *file, const struct served_model_options *options,
                              struct served_model **out, struct error *error);

/* Adds a reference and returns the model. */
static inline struct served_model *served_model_ref(struct served_model *model)
{
    model->references++;
    return model;
}

/* Finds the model or one of its adapters by name. *adapter_out = 1 + the adapter's index; 0 = the
 * model alone. Returns false if neither the model nor an adapter has the name. */
static inline bool served_model_find(const struct served_model *model, const char *name,
                                     uint32_t *adapter_out)
{
    uint32_t found = strcmp(name, model->name) == 0 ? 0 : 1;
    while (found > 0 && found <= model->adapter_count &&
           strcmp(name, model->adapters[found - 1]) != 0)
        found++;
    if (found > model->adapter_count)
        return false;
    *adapter_out = found;
    return true;
}

/* Returns the name of the model with this adapter (a number from served_model_find); the model's
 * own name if there is no such adapter. */
static inline const char *served_model_name(const struct served_model *model, uint32_t adapter)
{
    return adapter == 0 || adapter > model->adapter_count ? model->name
                                                          : model->adapters[adapter - 1];
}

/* Releases a reference. NULL is fine. */
static inline void served_model_unref(struct served_model *model)
{
    if (model == NULL)
        return;
    assert(model->references > 0);
    if (--model->references == 0)
        model->close(model);
}

#endif
