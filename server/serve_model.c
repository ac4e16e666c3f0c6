/* serve_model: the model file, read as far as the gateway needs it, and the parts of the config
 * that belong to a model. */
#include "server/serve_internal.h"

#include "model/file/draft_file.h"
#include "model/file/hyper_groups.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void serve_model_config_get(const struct config *config, struct serve_model_config *out)
{
    *out = (struct serve_model_config){.context_tokens_max = config->scheduler.context_tokens_max,
                                       .kv = config->kv};
    memcpy(out->model, config->model, sizeof(out->model));
    memcpy(out->model_name, config->model_name, sizeof(out->model_name));
    memcpy(out->chat_template_file, config->chat_template_file, sizeof(out->chat_template_file));
    memcpy(out->tool_parser, config->tool_parser, sizeof(out->tool_parser));
    memcpy(out->reasoning_parser, config->reasoning_parser, sizeof(out->reasoning_parser));
}

void serve_model_config_put(const struct serve_model_config *from, struct config *config)
{
    memcpy(config->model, from->model, sizeof(config->model));
    memcpy(config->model_name, from->model_name, sizeof(config->model_name));
    memcpy(config->chat_template_file, from->chat_template_file,
           sizeof(config->chat_template_file));
    memcpy(config->tool_parser, from->tool_parser, sizeof(config->tool_parser));
    memcpy(config->reasoning_parser, from->reasoning_parser, sizeof(config->reasoning_parser));
    config->scheduler.context_tokens_max = from->context_tokens_max;
    config->kv = from->kv;
}

/* Makes the path in the config absolute, so that it is valid for child processes. */
enum status serve_model_path(const struct config *config, char out[LIMIT_PATH_BYTES],
                             struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    char here[LIMIT_PATH_BYTES];
    enum status status = config_model_path(config, path, error);
    if (status != ST_OK)
        return status;
    if (path[0] == '/' || getcwd(here, sizeof(here)) == NULL)
        snprintf(out, LIMIT_PATH_BYTES, "%s", path);
    else if (snprintf(out, LIMIT_PATH_BYTES, "%s/%s", here, path) >= LIMIT_PATH_BYTES)
        return error_set(error, ST_TOO_LARGE, "model: the path %s is too long", path);
    return ST_OK;
}

static void name_set(const struct config *config, const char *path, char out[64])
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') /* of a folder */
        bytes--;
    const char *slash = memrchr(path, '/', bytes), *base = slash != NULL ? slash + 1 : path;
    if (config->model_name[0] != 0)
        snprintf(out, 64, "%s", config->model_name);
    else
        snprintf(out, 64, "%.*s", (int)(path + bytes - base), base);
    char *end = strstr(out, ".gguf");
    if (config->model_name[0] == 0 && end != NULL)
        *end = 0;
    char *part = strstr(out, "-00001-of-"); /* The first of a model's several files. */
    if (config->model_name[0] == 0 && part != NULL && strlen(part) == strlen("-00001-of-00001"))
        *part = 0;
}

enum status serve_version_open(const struct config *config, uint32_t number,
                               struct serve_version *out, struct model_file **file_out,
                               struct error *error)
{
    struct serve_version version = {.number = number};
    struct model_hyper hyper;
    serve_model_config_get(config, &version.from_file);
    version.config = version.from_file;
    enum status status = serve_model_path(config, version.config.model, error);
    if (status == ST_OK && config->chat_template_file[0] != 0)
        status = config_file_path(config, config->chat_template_file, version.template_path, error);
    if (status != ST_OK)
        return status;
    const char *path = version.config.model;
    struct model_file *file = NULL;
    status = model_file_open(path, &file, error);
    if (status != ST_OK)
        return status;
    struct config_adapter adapter;
    for (uint32_t i = 0; status == ST_OK && config_adapter_at(config, i, &adapter); i++)
        status = model_file_adapter_add(file, adapter.name, adapter.path, error);
    if (status == ST_OK)
        status = model_hyper_read(file, &hyper, error);
    if (status != ST_OK)
        error_prefix(error, "%s", path);
    if (status != ST_OK) {
        model_file_close(file);
        return status;
    }
    uint32_t wanted = config->scheduler.context_tokens_max;
    version.file_bytes.model = model_file_bytes(file);
    version.metadata_hash = model_file_metadata_hash(file);
    version.context_tokens =
        wanted > 0 && wanted < hyper.context_tokens ? wanted : hyper.context_tokens;
    version.groups = model_layer_groups(&hyper);
    name_set(config, path, version.name);
    *out = version;
    *file_out = file;
    return ST_OK;
}

static bool drafts_here(const struct config *config, int machine_index)
{
    for (uint32_t i = 0; i < config->machine_count; i++)
        if ((machine_index >= 0 ? (int)i == machine_index : config->machines[i].local) &&
            config_machine_drafts(config, &config->machines[i]))
            return true;
    return false;
}

enum status serve_version_draft_read(const struct config *config, int machine_index,
                                     struct model_file *file, struct serve_version *version,
                                     struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    struct model_file *draft;
    if (!drafts_here(config, machine_index))
        return ST_OK;
    if (config->scheduler.draft_layer) {
        struct model_hyper hyper;
        return model_hyper_read_draft_layer(file, &hyper, error);
    }
    enum status status = config_draft_path(config, path, error);
    if (status != ST_OK)
        return status;
    status = draft_file_open(path, file, &draft, error);
    if (status != ST_OK)
        return status;
    version->file_bytes.draft = model_file_bytes(draft);
    model_file_close(draft);
    return ST_OK;
}

enum status serve_version_draft_check(const struct config *config, int machine_index,
                                      struct model_file *file, struct serve_version *version,
                                      struct error *error)
{
    const enum status status =
        serve_version_draft_read(config, machine_index, file, version, error);
    if (status != ST_OK)
        error_prefix(error, "%s", config_draft_key(config));
    return status;
}

enum status serve_version_text_read(struct serve_version *version, struct model_file *file,
                                    struct error *error)
{
    const struct served_model_options options = {
        .version = version->number,
        .name = version->name,
        .template_path = version->template_path,
        .tool_parser = version->config.tool_parser,
        .reasoning_parser = version->config.reasoning_parser,
    };
    enum status status = served_model_open(file, &options, &version->served, error);
    if (status != ST_OK)
        error_prefix(error, "%s", version->config.model);
    return status;
}

void serve_version_done(struct serve_version *version)
{
    served_model_unref(version->served);
    *version = (struct serve_version){.number = 0};
}
