/* served_model: what turns text into tokens of one model and back, and what clients are told of it.
 * Counted: the server has a reference to what new requests get, each completion one to what it
 * began with; the last one frees it. The loop thread owns all of them. */
#ifndef SERVER_SERVED_MODEL_H
#define SERVER_SERVED_MODEL_H

#include "common/status.h"
#include "model/chat.h"
#include "model/model_file.h"
#include "model/tokenizer.h"

#include <assert.h>
#include <stdint.h>

struct served_model {
    uint32_t references;
    uint32_t version; /* of gateway.h */
    char name[64];    /* what /v1/models says */
    struct tokenizer *tokenizer;
    struct chat_template *chat;
    void (*close)(struct served_model *model); /* after the last reference */
};

/* With one reference. Nothing of `file` is kept. */
enum status served_model_open(struct model_file *file, uint32_t version, const char *name,
                              struct served_model **out, struct error *error);

static inline struct served_model *served_model_ref(struct served_model *model)
{
    model->references++;
    return model;
}

/* NULL is fine. */
static inline void served_model_unref(struct served_model *model)
{
    if (model == NULL)
        return;
    assert(model->references > 0);
    if (--model->references == 0)
        model->close(model);
}

#endif
