/* folder: see folder.h. Files are opened by name, from a directory or from memory, so that tests
 * need no disk. Each file is mapped once, except model.safetensors: open_weights maps the file to
 * see that it exists, and unmaps it before the shard is mapped. A file that the index names is
 * searched for only in the folder. */
#include "model/file/folder.h"

#include "model/file/content_hash.h"
#include "model/file/json_read.h"
#include "model/file/mapping.h"
#include "model/file/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 256
#define SHARDS_MAX 4096

static const char *const file_names[FOLDER_FILE_COUNT] = {
    [FOLDER_CONFIG] = "config.json",
    [FOLDER_GENERATION_CONFIG] = "generation_config.json",
    [FOLDER_TOKENIZER] = "tokenizer.json",
    [FOLDER_TOKENIZER_CONFIG] = "tokenizer_config.json",
    [FOLDER_SENTENCEPIECE] = "tokenizer.model",
    [FOLDER_TEKKEN] = "tekken.json",
    [FOLDER_ADDED_TOKENS] = "added_tokens.json",
    [FOLDER_TEMPLATE] = "chat_template.jinja",
    [FOLDER_TEMPLATE_TOOLS] = "additional_chat_templates/tool_use.jinja",
    [FOLDER_POOLING] = "1_Pooling/config.json",
    [FOLDER_INDEX] = "model.safetensors.index.json",
    [FOLDER_WEIGHTS] = "model.safetensors",
};

struct file {
    const uint8_t *data; /* NULL = there is no such file. */
    size_t bytes;
    bool mapped;
};

struct shard {
    char name[NAME_BYTES];
    struct file file;
    struct safetensors tensors;
};

struct folder {
    char name[64];
    int directory; /* -1 = files are in memory. */
    const struct folder_part *parts;
    size_t part_count;
    struct file files[FOLDER_FILE_COUNT]; /* Without FOLDER_WEIGHTS, which is a shard. */
    json_t *config;
    struct shard *shards; /* Sorted by name. */
    size_t shard_count;
    const struct mapped_tensor **tensors; /* Tensors of all shards, sorted by name. */
    size_t tensor_count;
    struct mapped_tensor *added; /* Sorted by name after folder_tensors_sort. Owns the names. */
    size_t added_count;
    struct digest metadata_digest; /* None = not computed yet. */
    struct digest digest;
};

/* ---- files ---- */

static enum status map_file(int directory, const char *name, struct file *out, struct error *error)
{
    struct stat info;
    enum status status = ST_OK;
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT
                   ? ST_NOT_FOUND
                   : error_set(error, ST_IO, "%s: cannot open: %s", name, strerror(errno));
    if (fstat(fd, &info) != 0) {
        status = error_set(error, ST_IO, "%s: cannot read: %s", name, strerror(errno));
    } else if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        status = error_set(error, ST_INVALID, "%s: %s", name,
                           S_ISREG(info.st_mode) ? "is empty" : "is not a regular file");
    } else {
        const void *data = mapping_open(fd, (size_t)info.st_size, name);
        if (data == NULL)
            status = error_set(error, ST_IO, "%s: cannot map it: %s", name, strerror(errno));
        else
            *out = (struct file){data, (size_t)info.st_size, true};
    }
    close(fd);
    return status;
}

/* Returns ST_NOT_FOUND, without an error text, if there is no such file. */
static enum status file_take(const struct folder *f, const char *name, struct file *out,
                             struct error *error)
{
    if (f->directory >= 0)
        return map_file(f->directory, name, out, error);
    for (size_t i = 0; i < f->part_count; i++)
        if (strcmp(f->parts[i].name, name) == 0) {
            *out = (struct file){f->parts[i].data, f->parts[i].bytes, false};
            return ST_OK;
        }
    return ST_NOT_FOUND;
}

static void file_done(struct file *file)
{
    if (file->mapped)
        mapping_close(file->data, file->bytes);
}

static struct mapped_text text_of(const struct file *file)
{
    return (struct mapped_text){(const char *)file->data, file->bytes};
}

/* Opens all files except those with weights. */
static enum status take_files(struct folder *f, struct error *error)
{
    for (int i = 0; i < FOLDER_WEIGHTS; i++) {
        enum status status = file_take(f, file_names[i], &f->files[i], error);
        if (status != ST_OK && status != ST_NOT_FOUND)
            return status;
    }
    if (f->files[FOLDER_CONFIG].data == NULL)
        return error_set(error, ST_INVALID,
                         "there is no config.json: want a folder with "
                         "config.json, tokenizer.json and model.safetensors");
    return json_read(file_names[FOLDER_CONFIG], text_of(&f->files[FOLDER_CONFIG]), &f->config,
                     error);
}

/* ---- shards ---- */

static int by_shard_name(const void *a, const void *b)
{
    return strcmp(((const struct shard *)a)->name, ((const struct shard *)b)->name);
}

static enum status shard_add(struct folder *f, const char *name, struct error *error)
{
    for (size_t i = f->shard_count; i-- > 0;)
        if (strcmp(f->shards[i].name, name) == 0)
            return ST_OK;
    if (f->shard_count == SHARDS_MAX)
        return error_set(error, ST_TOO_LARGE, "%s names more than %d files",
                         file_names[FOLDER_INDEX], SHARDS_MAX);
    if (strlen(name) >= NAME_BYTES || name[0] == 0 || strchr(name, '/') != NULL)
        return error_set(error, ST_INVALID, "%s: weight_map: '%.100s' is no file of this folder",
                         file_names[FOLDER_INDEX], name);
    if (f->shard_count % 16 == 0) {
        struct shard *more = realloc(f->shards, (f->shard_count + 16) * sizeof(*more));
        if (more == NULL)
            return error_set(error, ST_NO_MEMORY, "no memory for %zu files", f->shard_count);
        f->shards = more;
    }
    struct shard *shard = &f->shards[f->shard_count++];
    memset(shard, 0, sizeof(*shard));
    snprintf(shard->name, sizeof(shard->name), "%s", name);
    return ST_OK;
}

static enum status open_shard(const struct folder *f, struct shard *shard, struct error *error)
{
    enum status status = file_take(f, shard->name, &shard->file, error);
    if (status == ST_NOT_FOUND)
        return error_set(error, ST_INVALID, "%s is missing, which %s names", shard->name,
                         file_names[FOLDER_INDEX]);
    if (status != ST_OK)
        return status;
    return safetensors_read(shard->name, shard->file.data, shard->file.bytes, &shard->tensors,
                            error);
}

static int by_tensor_name(const void *a, const void *b)
{
    const struct mapped_tensor *x = *(const struct mapped_tensor *const *)a;
    const struct mapped_tensor *y = *(const struct mapped_tensor *const *)b;
    return strcmp(x->name.text, y->name.text);
}

/* Puts all shards' tensors into one list. */
static enum status list_tensors(struct folder *f, struct error *error)
{
    size_t count = 0;
    for (size_t i = 0; i < f->shard_count; i++)
        count += f->shards[i].tensors.tensor_count;
    f->tensors = malloc((count + 1) * sizeof(*f->tensors));
    if (f->tensors == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for %zu tensors", count);
    for (size_t i = 0; i < f->shard_count; i++)
        for (size_t j = 0; j < f->shards[i].tensors.tensor_count; j++)
            f->tensors[f->tensor_count++] = &f->shards[i].tensors.tensors[j];
    qsort(f->tensors, count, sizeof(*f->tensors), by_tensor_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(f->tensors[i - 1]->name.text, f->tensors[i]->name.text) == 0)
            return error_set(error, ST_INVALID, "tensor '%.100s' is in two files",
                             f->tensors[i]->name.text);
    return ST_OK;
}

/* Checks that each tensor is in the file that the index names for it. */
static enum status check_map(const struct folder *f, const json_t *map, struct error *error)
{
    for (size_t i = 0; i < f->shard_count; i++) {
        const struct shard *shard = &f->shards[i];
        for (size_t j = 0; j < shard->tensors.tensor_count; j++) {
            const char *name = shard->tensors.tensors[j].name.text;
            const char *said = json_string_value(json_object_get(map, name));
            if (said == NULL || strcmp(said, shard->name) != 0)
                return error_set(error, ST_INVALID, "%s: tensor '%.100s' is not in %s's weight_map",
                                 shard->name, name, file_names[FOLDER_INDEX]);
        }
    }
    if (json_object_size(map) == f->tensor_count)
        return ST_OK;
    const char *name;
    json_t *file;
    json_object_foreach(
        (json_t *)map, name,
        file) if (folder_tensor_find_any(f, name) ==
                  NULL) return error_set(error, ST_INVALID, "%s: tensor '%.100s' is not in %.100s",
                                         file_names[FOLDER_INDEX], name, json_string_value(file));
    return ST_OK;
}

static enum status open_shards(struct folder *f, const json_t *map, struct error *error)
{
    enum status status = ST_OK;
    qsort(f->shards, f->shard_count, sizeof(*f->shards), by_shard_name);
    for (size_t i = 0; i < f->shard_count && status == ST_OK; i++)
        status = open_shard(f, &f->shards[i], error);
    if (status == ST_OK)
        status = list_tensors(f, error);
    return status == ST_OK && map != NULL ? check_map(f, map, error) : status;
}

static enum status open_index(struct folder *f, struct error *error)
{
    const char *index = file_names[FOLDER_INDEX], *name;
    json_t *root = NULL, *file;
    enum status status = json_read(index, text_of(&f->files[FOLDER_INDEX]), &root, error);
    if (status != ST_OK)
        return status;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        status = error_set(error, ST_INVALID, "%s: weight_map: want an object of tensors and files",
                           index);
    json_object_foreach(map, name, file)
    {
        if (status == ST_OK && !json_is_string(file))
            status = error_set(error, ST_INVALID, "%s: weight_map: '%.100s' is %s: want a file",
                               index, name, json_kind(file));
        if (status == ST_OK)
            status = shard_add(f, json_string_value(file), error);
    }
    if (status == ST_OK)
        status = open_shards(f, map, error);
    json_decref(root);
    return status;
}

static enum status open_weights(struct folder *f, struct error *error)
{
    struct file probe = {.data = NULL};
    enum status status = file_take(f, file_names[FOLDER_WEIGHTS], &probe, error);
    if (status == ST_NOT_FOUND && f->files[FOLDER_INDEX].data != NULL)
        return open_index(f, error);
    if (status == ST_NOT_FOUND)
        return error_set(error, ST_INVALID, "there is no %s, and no %s", file_names[FOLDER_WEIGHTS],
                         file_names[FOLDER_INDEX]);
    if (status != ST_OK)
        return status;
    file_done(&probe);
    status = shard_add(f, file_names[FOLDER_WEIGHTS], error);
    return status == ST_OK ? open_shards(f, NULL, error) : status;
}

/* ---- open and close ---- */

static enum status open_from(const char *path, int directory, const struct folder_part *parts,
                             size_t count, struct folder **out, struct error *error)
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    const char *slash = memrchr(path, '/', bytes);
    const char *base = slash != NULL && slash + 1 < path + bytes ? slash + 1 : path;
    struct folder *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: no memory to open it", path);
    snprintf(f->name, sizeof(f->name), "%.*s", (int)(path + bytes - base), base);
    f->directory = directory;
    f->parts = parts;
    f->part_count = count;
    enum status status = take_files(f, error);
    if (status == ST_OK)
        status = open_weights(f, error);
    f->directory = -1; /* The caller owns the directory. */
    if (status != ST_OK) {
        error_prefix(error, "%s", f->name);
        folder_close(f);
        return status;
    }
    *out = f;
    return ST_OK;
}

enum status folder_open(const char *path, struct folder **out, struct error *error)
{
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return error_set(error, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: cannot open: %s", path,
                         strerror(errno));
    enum status status = open_from(path, directory, NULL, 0, out, error);
    close(directory);
    return status;
}

enum status folder_open_memory(const char *name, const struct folder_part *parts, size_t count,
                               struct folder **out, struct error *error)
{
    return open_from(name, -1, parts, count, out, error);
}

void folder_close(struct folder *f)
{
    if (f == NULL)
        return;
    for (size_t i = 0; i < f->shard_count; i++) {
        safetensors_done(&f->shards[i].tensors);
        file_done(&f->shards[i].file);
    }
    for (int i = 0; i < FOLDER_FILE_COUNT; i++)
        file_done(&f->files[i]);
    for (size_t i = 0; i < f->added_count; i++)
        free((void *)(uintptr_t)f->added[i].name.text);
    free(f->added);
    json_decref(f->config);
    free(f->shards);
    free(f->tensors);
    free(f);
}

/* ---- look-ups ---- */

const char *folder_file_name(enum folder_file file)
{
    return file_names[file];
}

struct mapped_text folder_text(const struct folder *f, enum folder_file file)
{
    return text_of(&f->files[file]);
}

const json_t *folder_config(const struct folder *f)
{
    return f->config;
}

struct mapped_text folder_name(const struct folder *f)
{
    return mapped_text_of(f->name);
}

size_t folder_tensor_count(const struct folder *f)
{
    return f->tensor_count;
}

const struct mapped_tensor *folder_tensor_at(const struct folder *f, size_t index)
{
    if (index < f->tensor_count)
        return f->tensors[index];
    index -= f->tensor_count;
    return index < f->added_count ? &f->added[index] : NULL;
}

const struct mapped_tensor *folder_tensor_find_any(const struct folder *f, const char *name)
{
    const struct mapped_tensor wanted = {.name = mapped_text_of(name)};
    const struct mapped_tensor *key = &wanted;
    const struct mapped_tensor **found =
        f->tensor_count > 0
            ? bsearch(&key, f->tensors, f->tensor_count, sizeof(*f->tensors), by_tensor_name)
            : NULL;
    return found != NULL ? *found : NULL;
}

static int by_added_name(const void *a, const void *b)
{
    const struct mapped_tensor *x = a, *y = b;
    return strcmp(x->name.text, y->name.text);
}

const struct mapped_tensor *folder_tensor_find(const struct folder *f, const char *name)
{
    const struct mapped_tensor wanted = {.name = mapped_text_of(name)};
    const struct mapped_tensor *found = folder_tensor_find_any(f, name);
    if (found != NULL && found->integer == MAPPED_NO_INTEGER)
        return found;
    return f->added_count > 0
               ? bsearch(&wanted, f->added, f->added_count, sizeof(*f->added), by_added_name)
               : NULL;
}

/* ---- added tensors ---- */

enum status folder_tensor_add(struct folder *f, const char *name,
                              const struct mapped_tensor *tensor, struct error *error)
{
    char *copy = strdup(name);
    if (copy != NULL && f->added_count % 64 == 0) {
        struct mapped_tensor *more =
            realloc(f->added, (f->added_count + 64) * sizeof(struct mapped_tensor));
        if (more == NULL) {
            free(copy);
            copy = NULL;
        } else {
            f->added = more;
        }
    }
    if (copy == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for tensor '%.100s'", name);
    f->added[f->added_count] = *tensor;
    f->added[f->added_count++].name = mapped_text_of(copy);
    return ST_OK;
}

enum status folder_tensors_sort(struct folder *f, struct error *error)
{
    if (f->added_count == 0)
        return ST_OK;
    qsort(f->added, f->added_count, sizeof(*f->added), by_added_name);
    for (size_t i = 0; i < f->added_count; i++) {
        const char *name = f->added[i].name.text;
        const struct mapped_tensor *other = folder_tensor_find_any(f, name);
        if ((i > 0 && strcmp(f->added[i - 1].name.text, name) == 0) ||
            (other != NULL && other->integer == MAPPED_NO_INTEGER))
            return error_set(error, ST_INVALID, "tensor '%.100s' is there packed and not packed",
                             name);
    }
    return ST_OK;
}

/* ---- hashes ---- */

uint64_t folder_bytes(const struct folder *f)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < f->shard_count; i++)
        bytes += f->shards[i].file.bytes;
    return bytes;
}

const struct digest *folder_metadata_digest(struct folder *f)
{
    struct digest *d = &f->metadata_digest;
    if (!digest_is_none(d))
        return d;
    const uint64_t all = folder_bytes(f);
    digest_add(d, &all, sizeof(all));
    for (int i = 0; i < FOLDER_FILE_COUNT; i++)
        digest_add(d, f->files[i].data != NULL ? f->files[i].data : (const uint8_t *)"",
                   f->files[i].bytes);
    for (size_t i = 0; i < f->shard_count; i++)
        digest_add(d, f->shards[i].file.data, f->shards[i].tensors.data_start);
    return d;
}

/* Each shard's data gets its share of the bytes that are read. */
const struct digest *folder_digest(struct folder *f)
{
    const uint64_t all = folder_bytes(f);
    if (!digest_is_none(&f->digest))
        return &f->digest;
    f->digest = *folder_metadata_digest(f);
    for (size_t i = 0; i < f->shard_count; i++) {
        const struct shard *shard = &f->shards[i];
        size_t start = shard->tensors.data_start, bytes = shard->file.bytes - start;
        double share = (double)CONTENT_HASH_BYTES_MAX * (double)bytes / (double)all;
        content_hash_add(&f->digest, shard->file.data + start, bytes,
                         all <= CONTENT_HASH_BYTES_MAX ? bytes : (size_t)share, shard->file.mapped);
    }
    return &f->digest;
}
