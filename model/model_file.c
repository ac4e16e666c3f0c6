/* model_file: see the header. */
#include "model/model_file_internal.h"

#include "model/gguf.h"
#include "model/vocabulary_read.h"

#include <stdlib.h>

static enum status file_take(struct gguf *gguf, struct model_file **out, struct error *error)
{
    struct model_file *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        gguf_close(gguf);
        return error_set(error, ST_NO_MEMORY, "no memory to open a model");
    }
    file->gguf = gguf;
    *out = file;
    return ST_OK;
}

enum status model_file_open(const char *path, struct model_file **out, struct error *error)
{
    struct gguf *gguf = NULL;
    enum status status = gguf_open(path, &gguf, error);
    return status != ST_OK ? status : file_take(gguf, out, error);
}

enum status model_file_open_memory(const void *data, size_t bytes, const char *name,
                                   struct model_file **out, struct error *error)
{
    struct gguf *gguf = NULL;
    enum status status = gguf_open_memory(data, bytes, name, &gguf, error);
    return status != ST_OK ? status : file_take(gguf, out, error);
}

void model_file_close(struct model_file *file)
{
    if (file == NULL)
        return;
    vocabulary_done(&file->vocabulary);
    gguf_close(file->gguf);
    free(file);
}

uint64_t model_file_hash(struct model_file *file)
{
    return gguf_hash(file->gguf);
}

uint64_t model_file_metadata_hash(const struct model_file *file)
{
    return gguf_metadata_hash(file->gguf);
}

uint64_t model_file_bytes(const struct model_file *file)
{
    return gguf_bytes(file->gguf);
}

const struct mapped_tensor *model_file_find(const struct model_file *file, enum model_role role,
                                            uint32_t layer)
{
    char name[ROLE_NAME_BYTES];
    role_name(ROLE_NAMES_GGUF, role, layer, name);
    return gguf_tensor_find(file->gguf, name);
}

const char *model_file_tensor_name(const struct model_file *file, enum model_role role,
                                   uint32_t layer, char out[ROLE_NAME_BYTES])
{
    (void)file;
    return role_name(ROLE_NAMES_GGUF, role, layer, out);
}

const struct mapped_tensor *model_file_tensor_at(const struct model_file *file, size_t index,
                                                 enum model_role *role_out, uint32_t *layer_out,
                                                 bool *known_out)
{
    const struct mapped_tensor *t = gguf_tensor_at(file->gguf, index);
    if (t != NULL)
        *known_out = role_find(ROLE_NAMES_GGUF, t->name, role_out, layer_out);
    return t;
}

bool model_file_is_folder(const struct model_file *file)
{
    (void)file;
    return false;
}

struct mapped_text model_file_name(const struct model_file *file)
{
    struct mapped_text name = {NULL, 0};
    (void)gguf_get_string(file->gguf, "general.name", &name, NULL); /* not there: no name */
    return name;
}

enum status model_file_vocabulary(struct model_file *file, const struct vocabulary **out,
                                  struct error *error)
{
    enum status status = ST_OK;
    if (!file->vocabulary_read)
        status = vocabulary_read_gguf(file->gguf, &file->vocabulary, error);
    if (status != ST_OK)
        return status;
    file->vocabulary_read = true;
    *out = &file->vocabulary;
    return ST_OK;
}

struct gguf *model_file_gguf(const struct model_file *file)
{
    return file->gguf;
}
