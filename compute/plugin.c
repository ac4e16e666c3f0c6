/* plugin: see plugin.h. dlopen counts references: opening a plugin again returns the same library.
 */
#include "compute/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "libcleave-cuda.so"

static bool beside_executable(char out[PATH_MAX])
{
    ssize_t bytes = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (bytes <= 0)
        return false;
    out[bytes] = 0;
    char *folder_end = strrchr(out, '/');
    if (folder_end == NULL || folder_end + 1 + sizeof(FILE_NAME) > out + PATH_MAX)
        return false;
    memcpy(folder_end + 1, FILE_NAME, sizeof(FILE_NAME));
    return true;
}

static enum status plugin_find(char out[PATH_MAX], struct error *error)
{
    const char *named = getenv("CLEAVE_CUDA_PLUGIN");
    if (named != NULL && named[0] != 0) {
        if (snprintf(out, PATH_MAX, "%s", named) < PATH_MAX && access(out, R_OK) == 0)
            return ST_OK;
        return error_set(error, ST_NOT_FOUND, "no plugin: CLEAVE_CUDA_PLUGIN names %.300s", named);
    }
    if (beside_executable(out) && access(out, R_OK) == 0)
        return ST_OK;
    snprintf(out, PATH_MAX, "%s/%s", CLEAVE_PLUGIN_FOLDER, FILE_NAME);
    if (access(out, R_OK) == 0)
        return ST_OK;
    return error_set(error, ST_NOT_FOUND,
                     "no plugin: %s is neither beside the executable nor in %s", FILE_NAME,
                     CLEAVE_PLUGIN_FOLDER);
}

static bool same_build(const struct compute_plugin *plugin)
{
    return plugin->abi == COMPUTE_PLUGIN_ABI && plugin->ops_bytes == COMPUTE_PLUGIN_OPS_BYTES &&
           plugin->options_bytes == sizeof(struct compute_options);
}

/* True if no function of a table of `bytes` bytes is NULL. */
static bool table_complete(const void *table, size_t bytes)
{
    void (*function)(void);
    for (size_t at = 0; at < bytes; at += sizeof(function)) {
        memcpy(&function, (const char *)table + at, sizeof(function));
        if (function == NULL)
            return false;
    }
    return true;
}

bool compute_ops_complete(const struct compute_ops *ops)
{
    /* low_rank may be NULL. */
    return table_complete(ops, offsetof(struct compute_ops, low_rank)) &&
           table_complete(&ops->rope_store, offsetof(struct compute_ops, lanes) -
                                                offsetof(struct compute_ops, rope_store)) &&
           (ops->lanes == NULL || table_complete(ops->lanes, sizeof(*ops->lanes))) &&
           (ops->latent == NULL || table_complete(ops->latent, sizeof(*ops->latent))) &&
           (ops->group == NULL || table_complete(ops->group, sizeof(*ops->group))) &&
           (ops->experts == NULL || table_complete(ops->experts, sizeof(*ops->experts))) &&
           (ops->steps == NULL || table_complete(ops->steps, sizeof(*ops->steps))) &&
           (ops->sampling == NULL || table_complete(ops->sampling, sizeof(*ops->sampling)));
}

enum status compute_plugin_open(const struct compute_ops **ops_out, struct error *error)
{
    char path[PATH_MAX];
    enum status status = plugin_find(path, error);
    if (status != ST_OK)
        return status;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL)
        return error_set(error, ST_UNSUPPORTED, "the plugin cannot be loaded: %.400s", dlerror());
    const struct compute_plugin *plugin = dlsym(library, COMPUTE_PLUGIN_SYMBOL);
    if (plugin == NULL)
        return error_set(error, ST_MISMATCH, "%.300s is not a plugin of cleave", path);
    if (!same_build(plugin))
        return error_set(
            error, ST_MISMATCH,
            "the plugin %.300s is of another version: interface %u of %u, cleave %.32s", path,
            plugin->abi, COMPUTE_PLUGIN_ABI, plugin->abi != 0 ? plugin->version : "?");
    if (!compute_ops_complete(plugin->ops))
        return error_set(error, ST_MISMATCH, "the plugin %.300s lacks functions of a backend",
                         path);
    *ops_out = plugin->ops;
    return ST_OK;
}
