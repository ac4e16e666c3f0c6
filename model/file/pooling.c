/* pooling: see the header. */
#include "model/file/pooling.h"

#include "model/file/gguf.h"
#include "model/file/json_read.h"
#include "model/file/model_file_internal.h"

#include <jansson.h>
#include <stdio.h>

/* Values of pooling_type. */
enum { GGUF_MEAN = 1, GGUF_LAST = 3 };

static enum status read_gguf(const struct gguf *gguf, enum pooling *out, struct error *error)
{
    struct mapped_text architecture;
    char key[96];
    uint32_t type = 0;
    enum status status = gguf_get_string(gguf, "general.architecture", &architecture, error);
    if (status == ST_OK) {
        snprintf(key, sizeof(key), "%.*s.pooling_type", (int)architecture.bytes, architecture.text);
        status = gguf_get_u32(gguf, key, &type, error);
    }
    *out = type == GGUF_MEAN ? POOLING_MEAN : type == GGUF_LAST ? POOLING_LAST : POOLING_NONE;
    return status == ST_NOT_FOUND ? ST_OK : status;
}

static enum status read_folder(const struct folder *folder, enum pooling *out, struct error *error)
{
    const struct mapped_text text = folder_text(folder, FOLDER_POOLING);
    json_t *root = NULL;
    if (text.text == NULL)
        return ST_OK;
    enum status status = json_read(folder_file_name(FOLDER_POOLING), text, &root, error);
    if (json_is_true(json_object_get(root, "pooling_mode_lasttoken")))
        *out = POOLING_LAST;
    else if (json_is_true(json_object_get(root, "pooling_mode_mean_tokens")))
        *out = POOLING_MEAN;
    json_decref(root);
    return status;
}

enum status model_pooling_read(const struct model_file *file, enum pooling *out,
                               struct error *error)
{
    *out = POOLING_NONE;
    return file->gguf != NULL ? read_gguf(file->gguf, out, error)
                              : read_folder(file->folder, out, error);
}
