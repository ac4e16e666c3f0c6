/* fetch_folder: a model's folder in the form of Hugging Face. It is made as ".NAME.partial" and
 * gets its name when all its files are whole. The files of an earlier attempt stay in it. */
#include "tools/fetch/fetch.h"

#include "common/json.h"
#include "model/file/folder.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARDS_MAX 1024
#define SUM_LINE   1024

struct folder_fetch {
    struct fetch_options options; /* `folder` is the partial folder. */
    const char *url;
    const char *sums; /* NULL = none. */
    struct error *error;
};

/* Finds the checksum of a file in the list. *out = empty if there is no list. */
static enum status sum_find(const struct folder_fetch *f, const char *name,
                            char out[DIGEST_TEXT_BYTES])
{
    char line[SUM_LINE];
    out[0] = 0;
    if (f->sums == NULL)
        return ST_OK;
    FILE *file = fopen(f->sums, "r");
    if (file == NULL)
        return error_set(f->error, ST_IO, "%s: %s", f->sums, strerror(errno));
    while (out[0] == 0 && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\r\n")] = 0;
        const char *at = line + strspn(line, "0123456789abcdef");
        bool good = at == line + DIGEST_TEXT_BYTES - 1 && at[0] == ' ' &&
                    (at[1] == ' ' || at[1] == '*') &&
                    strcmp(at + 2 + (strncmp(at + 2, "./", 2) == 0 ? 2 : 0), name) == 0;
        if (good)
            snprintf(out, DIGEST_TEXT_BYTES, "%.64s", line);
    }
    fclose(file);
    return ST_OK;
}

/* Fetches a file, which may be in a folder of the folder. optional: ST_NOT_FOUND if the server does
 * not have it. */
static enum status file_fetch(const struct folder_fetch *f, const char *name, bool small,
                              bool optional)
{
    char url[FETCH_URL_BYTES], sum[DIGEST_TEXT_BYTES], folder[LIMIT_PATH_BYTES];
    const char *slash = strrchr(name, '/');
    struct fetch_options options = f->options;
    const struct fetch_file file = {
        .url = url,
        .name = slash != NULL ? slash + 1 : name,
        .sha256 = sum,
        .small = small,
        .optional = optional,
    };
    enum status status = sum_find(f, name, sum);
    if (status != ST_OK)
        return status;
    if (f->sums != NULL && sum[0] == 0 && optional)
        return ST_NOT_FOUND;
    if (f->sums != NULL && sum[0] == 0)
        return error_set(f->error, ST_INVALID, "%s has no line for %s", f->sums, name);
    if (snprintf(url, sizeof(url), "%s%s", f->url, name) >= (int)sizeof(url))
        return error_set(f->error, ST_TOO_LARGE, "%.200s…: the URL is too long", f->url);
    if (slash != NULL) {
        if (snprintf(folder, sizeof(folder), "%s/%.*s", f->options.folder, (int)(slash - name),
                     name) >= (int)sizeof(folder))
            return error_set(f->error, ST_TOO_LARGE, "%.200s: the path is too long",
                             f->options.folder);
        if (mkdir(folder, 0755) != 0 && errno != EEXIST)
            return error_set(f->error, ST_IO, "%s: %s", folder, strerror(errno));
        options.folder = folder;
    }
    struct fetch_file without = file;
    without.sha256 = f->sums != NULL ? sum : NULL;
    status = fetch_download(&options, &without, f->error);
    if (slash != NULL && status == ST_NOT_FOUND)
        rmdir(folder);
    return status;
}

/* True if an earlier attempt has made the file whole. */
static bool file_present(const struct folder_fetch *f, const char *name)
{
    char path[LIMIT_PATH_BYTES];
    struct error ignored;
    return f->sums == NULL &&
           fetch_path(f->options.folder, "", name, "", path, &ignored) == ST_OK &&
           access(path, F_OK) == 0;
}

static enum status file_want(const struct folder_fetch *f, const char *name, bool small,
                             bool optional)
{
    return file_present(f, name) ? ST_OK : file_fetch(f, name, small, optional);
}

/* Fetches the files that the index names, each once. */
static enum status shards_fetch(const struct folder_fetch *f)
{
    const char *index_name = folder_file_name(FOLDER_INDEX);
    char path[LIMIT_PATH_BYTES];
    json_error_t why;
    enum status status = fetch_path(f->options.folder, "", index_name, "", path, f->error);
    if (status != ST_OK)
        return status;
    json_t *root;
    status = json_file_load(path, JSON_REJECT_DUPLICATES, &root, &why);
    if (status != ST_OK && status != ST_INVALID)
        return error_set(f->error, status, "%s: %s", path, why.text);
    json_t *map = json_object_get(root, "weight_map");
    json_t *seen = json_object();
    const char *tensor;
    json_t *value;
    if (!json_is_object(map) || json_object_size(map) == 0)
        status =
            error_set(f->error, ST_INVALID, "%s%s: want a JSON object with weight_map (line %d)",
                      f->url, index_name, root == NULL ? why.line : 1);
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (status != ST_OK)
            break;
        if (name == NULL || !fetch_name_good(name) || json_object_size(seen) >= SHARDS_MAX) {
            status = error_set(f->error, ST_INVALID,
                               "%s%s: /weight_map/%.100s = \"%.100s\": want a plain file name",
                               f->url, index_name, tensor, name != NULL ? name : "");
        } else if (json_object_get(seen, name) == NULL) {
            json_object_set_new(seen, name, json_true());
            status = file_want(f, name, false, false);
        }
    }
    json_decref(seen);
    json_decref(root);
    return status;
}

/* The texts come first: they are small, and their absence shows that the URL is wrong. */
static enum status files_fetch(const struct folder_fetch *f)
{
    enum status status = file_want(f, folder_file_name(FOLDER_CONFIG), true, false);
    bool index = false;
    for (int i = 0; i < FOLDER_FILE_COUNT && status == ST_OK; i++) {
        if (i == FOLDER_CONFIG || i == FOLDER_WEIGHTS)
            continue;
        status = file_want(f, folder_file_name((enum folder_file)i), true, true);
        index = index || (i == FOLDER_INDEX && status == ST_OK);
        status = status == ST_NOT_FOUND ? ST_OK : status;
    }
    if (status != ST_OK)
        return status;
    return index ? shards_fetch(f) : file_want(f, folder_file_name(FOLDER_WEIGHTS), false, false);
}

enum status fetch_folder(const struct fetch_options *options, const char *url, const char *name,
                         const char *sums_path, struct error *error)
{
    char path[LIMIT_PATH_BYTES], partial[LIMIT_PATH_BYTES];
    struct folder_fetch f = {.options = *options, .url = url, .sums = sums_path, .error = error};
    enum status status = fetch_path(options->folder, "", name, "", path, error);
    if (status == ST_OK)
        status = fetch_path(options->folder, ".", name, ".partial", partial, error);
    if (status != ST_OK)
        return status;
    if (access(path, F_OK) == 0)
        return error_set(error, ST_INVALID, "%s exists: remove it, or give --name", path);
    if (mkdir(partial, 0755) != 0 && errno != EEXIST)
        return error_set(error, ST_IO, "%s: %s", partial, strerror(errno));
    f.options.folder = partial;
    status = files_fetch(&f);
    return status == ST_OK ? fetch_publish(options->folder, partial, path, error) : status;
}
