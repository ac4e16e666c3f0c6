/* model_file: see model_file.h. */
#include "model/file/model_file_internal.h"

#include "model/file/family.h"
#include "model/file/gguf.h"
#include "model/file/json_read.h"
#include "model/file/vocabulary_read.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const struct family *folder_family(const json_t *config)
{
    struct mapped_text type;
    bool known = json_get_text("config.json", config, "model_type", &type, NULL) == ST_OK;
    return known ? family_find(type, true) : NULL;
}

/* Reads from config.json how tensors are named and shared. Unknown families are refused later
 * (hyper.c). */
static enum status folder_begin(struct model_file *file, struct error *error)
{
    const json_t *config = folder_config(file->folder);
    bool own = folder_tensor_find(file->folder, "lm_head.weight") != NULL;
    const struct family *family = folder_family(config);
    file->naming =
        family != NULL && family->hub_post_norms ? ROLE_NAMES_HUB_POST_NORMS : ROLE_NAMES_HUB;
    file->tied = !own;
    enum status status =
        json_get_bool("config.json", config, "tie_word_embeddings", &file->tied, error);
    if (status == ST_OK || status == ST_NOT_FOUND)
        status = quantization_read(file->folder, &file->quantization, error);
    if (status == ST_OK && !file->tied && !own)
        return error_set(error, ST_INVALID,
                         "tensor lm_head.weight is missing, and config.json/tie_word_embeddings is "
                         "false");
    return status;
}

static bool gguf_norm_after(const struct gguf *gguf)
{
    struct mapped_text name;
    if (gguf_get_string(gguf, "general.architecture", &name, NULL) != ST_OK)
        return false;
    const struct family *family = family_find(name, false);
    return family != NULL && family->gguf_norm_after;
}

/* Takes ownership of `gguf` or `folder`, also if it fails. */
static enum status file_take(struct gguf *gguf, struct folder *folder, struct model_file **out,
                             struct error *error)
{
    struct model_file *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        gguf_close(gguf);
        folder_close(folder);
        return error_set(error, ST_NO_MEMORY, "no memory to open a model");
    }
    file->gguf = gguf;
    file->folder = folder;
    if (gguf != NULL && gguf_norm_after(gguf))
        file->naming = ROLE_NAMES_GGUF_NORM_AFTER;
    enum status status = folder != NULL ? folder_begin(file, error) : ST_OK;
    if (status != ST_OK) {
        model_file_close(file);
        return status;
    }
    *out = file;
    return ST_OK;
}

enum status model_file_open(const char *path, struct model_file **out, struct error *error)
{
    struct gguf *gguf = NULL;
    struct folder *folder = NULL;
    struct stat info;
    bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    enum status status =
        is_folder ? folder_open(path, &folder, error) : gguf_open(path, &gguf, error);
    return status != ST_OK ? status : file_take(gguf, folder, out, error);
}

enum status model_file_open_memory(const void *data, size_t bytes, const char *name,
                                   struct model_file **out, struct error *error)
{
    struct gguf *gguf = NULL;
    enum status status = gguf_open_memory(data, bytes, name, &gguf, error);
    return status != ST_OK ? status : file_take(gguf, NULL, out, error);
}

enum status model_file_open_parts(const char *name, const struct folder_part *parts, size_t count,
                                  struct model_file **out, struct error *error)
{
    struct folder *folder = NULL;
    enum status status = folder_open_memory(name, parts, count, &folder, error);
    return status != ST_OK ? status : file_take(NULL, folder, out, error);
}

void model_file_close(struct model_file *file)
{
    if (file == NULL)
        return;
    vocabulary_done(&file->vocabulary);
    for (uint32_t i = 0; i < file->adapter_count; i++)
        adapter_close(file->adapters[i].adapter);
    gguf_close(file->gguf);
    folder_close(file->folder);
    free(file);
}

/* Returns the digest of the files, or *with: the digest of the files and of the adapters. */
static const struct digest *digest_with(const struct model_file *file, const struct digest *of,
                                        struct digest *with)
{
    if (file->adapter_count == 0 || !digest_is_none(with))
        return file->adapter_count == 0 ? of : with;
    digest_add(with, of->bytes, sizeof(of->bytes));
    for (uint32_t i = 0; i < file->adapter_count; i++) {
        digest_add(with, file->adapters[i].name, strlen(file->adapters[i].name));
        adapter_digest_add(file->adapters[i].adapter, with);
    }
    return with;
}

const struct digest *model_file_digest(struct model_file *file)
{
    const struct digest *of =
        file->folder != NULL ? folder_digest(file->folder) : gguf_digest(file->gguf);
    return digest_with(file, of, &file->digest);
}

bool model_file_has_kv_scheme(const struct model_file *file)
{
    return file->quantization.has_kv_scheme;
}

uint64_t model_file_metadata_hash(const struct model_file *file)
{
    const struct digest *of = file->folder != NULL ? folder_metadata_digest(file->folder)
                                                   : gguf_metadata_digest(file->gguf);
    struct digest with = {{0}};
    uint64_t hash;
    memcpy(&hash, digest_with(file, of, &with)->bytes, sizeof(hash));
    return hash;
}

static bool has_adapter(const struct model_file *file, const char *name)
{
    for (uint32_t i = 0; i < file->adapter_count; i++)
        if (strcmp(file->adapters[i].name, name) == 0)
            return true;
    return false;
}

enum status model_file_adapter_add(struct model_file *file, const char *name, const char *path,
                                   struct error *error)
{
    assert(strlen(name) < ADAPTER_NAME_BYTES && !has_adapter(file, name));
    if (file->adapter_count == LIMIT_ADAPTERS)
        return error_set(error, ST_TOO_LARGE, "more than %d adapters", LIMIT_ADAPTERS);
    enum status status = adapter_open(path, &file->adapters[file->adapter_count].adapter, error);
    if (status != ST_OK) {
        error_prefix(error, "adapter %s", name);
        return status;
    }
    snprintf(file->adapters[file->adapter_count++].name, ADAPTER_NAME_BYTES, "%s", name);
    return ST_OK;
}

uint32_t model_file_adapter_count(const struct model_file *file)
{
    return file->adapter_count;
}

const struct adapter *model_file_adapter(const struct model_file *file, uint32_t index)
{
    return file->adapters[index].adapter;
}

const char *model_file_adapter_name(const struct model_file *file, uint32_t index)
{
    return file->adapters[index].name;
}

uint64_t model_file_bytes(const struct model_file *file)
{
    return file->folder != NULL ? folder_bytes(file->folder) : gguf_bytes(file->gguf);
}

const struct mapped_tensor *model_file_tensor_find_expert(const struct model_file *file,
                                                          enum model_role role, uint32_t layer,
                                                          uint32_t expert)
{
    char name[ROLE_NAME_BYTES];
    const struct mapped_tensor *t = NULL;
    for (uint32_t i = 0; t == NULL && role_spelling(file->naming, role, layer, expert, i, name);
         i++)
        t = file->folder != NULL ? folder_tensor_find(file->folder, name)
                                 : gguf_tensor_find(file->gguf, name);
    return t;
}

const struct mapped_tensor *model_file_tensor_find(const struct model_file *file,
                                                   enum model_role role, uint32_t layer)
{
    if (role == ROLE_OUTPUT && file->tied)
        return NULL;
    return model_file_tensor_find_expert(file, role, layer, 0);
}

const char *model_file_tensor_name(const struct model_file *file, enum model_role role,
                                   uint32_t layer, char out[ROLE_NAME_BYTES])
{
    return role_name(file->naming, role, layer, out);
}

const struct mapped_tensor *model_file_tensor_at(const struct model_file *file, size_t index,
                                                 enum model_role *role_out, uint32_t *layer_out,
                                                 bool *has_role_out)
{
    const struct mapped_tensor *t = file->folder != NULL ? folder_tensor_at(file->folder, index)
                                                         : gguf_tensor_at(file->gguf, index);
    char name[256];
    if (t == NULL)
        return NULL;
    *has_role_out = role_find(file->naming, t->name, role_out, layer_out);
    if (!*has_role_out && quantization_weights_name(t->name, name, sizeof(name)))
        *has_role_out = role_find(file->naming, mapped_text_of(name), role_out, layer_out);
    return t;
}

/* Describes rows [first, first + count) of a tensor whose data is in the files as it is. */
static enum status whole_source(const struct model_file *file, const struct mapped_tensor *t,
                                uint32_t first, uint32_t count, struct compute_source *out,
                                void **memory_out, struct error *error)
{
    struct compute_source source = {
        .type = t->type, .rows = first + count, .cols = (uint32_t)t->dims[0], .data = t->data};
    float *scales = NULL;
    enum status status = ST_OK;
    if (file->folder != NULL)
        status = quantization_scales_read(&file->quantization, file->folder, t, &source.scales,
                                          &scales, error);
    if (status != ST_OK)
        return status;
    (void)compute_source_slice(&source, first, count, 0, source.cols, out); /* Whole rows fit. */
    *memory_out = scales;
    return ST_OK;
}

enum status model_file_source(const struct model_file *file, const struct mapped_tensor *t,
                              uint32_t first, uint32_t count, struct compute_source *out,
                              void **memory_out, struct error *error)
{
    void *rows;
    if (t->data != NULL)
        return whole_source(file, t, first, count, out, memory_out, error);
    enum status status =
        packed_read(&file->quantization.packed, file->folder, t, first, count, &rows, error);
    if (status != ST_OK)
        return status;
    *out = (struct compute_source){
        .type = t->type, .rows = count, .cols = (uint32_t)t->dims[0], .data = rows};
    *memory_out = rows;
    return ST_OK;
}

bool model_file_is_folder(const struct model_file *file)
{
    return file->folder != NULL;
}

struct mapped_text model_file_name(const struct model_file *file)
{
    struct mapped_text name = {NULL, 0};
    if (file->folder != NULL)
        return folder_name(file->folder);
    (void)gguf_get_string(file->gguf, "general.name", &name, NULL); /* No such key: no name. */
    return name;
}

enum status model_file_vocabulary(struct model_file *file, const struct vocabulary **out,
                                  struct error *error)
{
    enum status status = ST_OK;
    if (!file->vocabulary_read && file->folder != NULL)
        status =
            vocabulary_read_folder(file->folder, model_file_tensor_find(file, ROLE_EMBEDDING, 0),
                                   &file->vocabulary, error);
    else if (!file->vocabulary_read)
        status = vocabulary_read_gguf(file->gguf, &file->vocabulary, error);
    if (status != ST_OK)
        return status;
    file->vocabulary_read = true;
    *out = &file->vocabulary;
    return ST_OK;
}
