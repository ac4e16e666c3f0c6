/* draft_file: see the header. */
#include "model/file/draft_file.h"

#include "model/file/vocabulary.h"

#include <string.h>

/* Vocabularies may differ by this number of tokens at their ends. */
#define PADDING_TOKENS_MAX 1024

static bool texts_equal(const struct mapped_text *a, const struct mapped_text *b)
{
    return a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0;
}

static enum status vocabularies_compare(struct model_file *main_model, struct model_file *draft,
                                        struct error *error)
{
    const struct vocabulary *own, *other;
    enum status status = model_file_vocabulary(main_model, &own, error);
    if (status == ST_OK)
        status = model_file_vocabulary(draft, &other, error);
    if (status != ST_OK)
        return status;
    const uint32_t fewer = own->count < other->count ? own->count : other->count;
    const uint32_t more = own->count < other->count ? other->count : own->count;
    if (more - fewer > PADDING_TOKENS_MAX)
        return error_set(error, ST_INVALID,
                         "its vocabulary has %u tokens, that of the model has %u: the draft model "
                         "must have the model's vocabulary",
                         other->count, own->count);
    for (uint32_t id = 0; id < fewer; id++)
        if (!texts_equal(&own->tokens[id], &other->tokens[id]))
            return error_set(error, ST_INVALID,
                             "its token %u is \"%.*s\", that of the model is \"%.*s\": the draft "
                             "model must have the model's vocabulary",
                             id, (int)(other->tokens[id].bytes < 40 ? other->tokens[id].bytes : 40),
                             other->tokens[id].text,
                             (int)(own->tokens[id].bytes < 40 ? own->tokens[id].bytes : 40),
                             own->tokens[id].text);
    return ST_OK;
}

enum status draft_file_open(const char *path, struct model_file *main_model,
                            struct model_file **out, struct error *error)
{
    struct model_file *file = NULL;
    enum status status = model_file_open(path, &file, error);
    if (status == ST_OK && main_model != NULL)
        status = vocabularies_compare(main_model, file, error);
    if (status != ST_OK) {
        model_file_close(file);
        return status;
    }
    *out = file;
    return ST_OK;
}
