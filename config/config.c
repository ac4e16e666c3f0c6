/* config: texts of errors, the path of the model's file, and the config written as JSON, as
 * markdown and as help. */
#include "config/config.h"

#include "config/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define VALUE_SHOWN_BYTES 80

bool config_fault_set(struct config_fault *fault, const char *path, const char *format, ...)
{
    va_list arguments;
    snprintf(fault->path, sizeof(fault->path), "%s", path);
    va_start(arguments, format);
    vsnprintf(fault->message_end, sizeof(fault->message_end), format, arguments);
    va_end(arguments);
    fault->status = ST_INVALID;
    return false;
}

bool config_fault_no_memory(struct config_fault *fault, const char *path)
{
    config_fault_set(fault, path, ": no memory");
    fault->status = ST_NO_MEMORY;
    return false;
}

bool config_fault_value(struct config_fault *fault, const char *path, const json_t *value,
                        const char *format, ...)
{
    char want[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(want, sizeof(want), format, arguments);
    va_end(arguments);
    char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    bool cut = shown != NULL && strlen(shown) > VALUE_SHOWN_BYTES;
    config_fault_set(fault, path, " = %.*s%s: %s", VALUE_SHOWN_BYTES, shown != NULL ? shown : "?",
                     cut ? "…" : "", want);
    free(shown);
    return false;
}

enum status config_fault_error(const struct config_fault *fault, const char *source, unsigned line,
                               struct error *error)
{
    char where[32] = "";
    if (line > 0)
        snprintf(where, sizeof(where), ":%u", line);
    return error_set(error, fault->status, "%s%s: /%s%s", source, where, fault->path,
                     fault->message_end);
}

static bool file_is_there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static bool directory_is_there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Returns true if the path is a file, or a folder in the form of Hugging Face. */
static bool model_is_there(const char *path)
{
    char inside[LIMIT_PATH_BYTES + sizeof("/config.json")];
    snprintf(inside, sizeof(inside), "%s/config.json", path);
    return file_is_there(path) || file_is_there(inside);
}

/* Writes directory/inside. Returns false if there is no directory or the path would be too long. */
static bool path_in(const char *directory, const char *inside, const char *file,
                    char out[LIMIT_PATH_BYTES])
{
    if (directory == NULL || directory[0] == 0)
        return false;
    return snprintf(out, LIMIT_PATH_BYTES, "%s%s/%s", directory, inside, file) < LIMIT_PATH_BYTES;
}

/* Finds the model that the config names `name`, as config_model_path does. */
static enum status model_find(const struct config *config, const char *name,
                              char out[LIMIT_PATH_BYTES], struct error *error)
{
    char places[4][LIMIT_PATH_BYTES];
    char beside[LIMIT_PATH_BYTES];
    char looked[400] = "";
    unsigned count = 0;
    snprintf(places[count++], LIMIT_PATH_BYTES, "%s", name);
    if (name[0] != '/') {
        snprintf(beside, sizeof(beside), "%s", config->source);
        char *slash = strrchr(beside, '/');
        if (slash != NULL) {
            *slash = 0;
            count += path_in(beside[0] != 0 ? beside : "/", "", name, places[count]) ? 1 : 0;
        }
        if (path_in(getenv("XDG_CACHE_HOME"), "/cleave", name, places[count]) ||
            path_in(getenv("HOME"), "/.cache/cleave", name, places[count]))
            count++;
        count += path_in(CONFIG_MODELS_FOLDER, "", name, places[count]) ? 1 : 0;
    }
    for (unsigned i = 0; i < count; i++) {
        if (model_is_there(places[i])) {
            memcpy(out, places[i], LIMIT_PATH_BYTES);
            return ST_OK;
        }
        size_t used = strlen(looked);
        snprintf(looked + used, sizeof(looked) - used, "%s%s%s", i > 0 ? ", " : "", places[i],
                 directory_is_there(places[i]) ? " (a directory without config.json)" : "");
    }
    return error_set(error, ST_NOT_FOUND,
                     "no model file; looked at %s (cleave model fetch downloads models)", looked);
}

enum status config_model_path(const struct config *config, char out[LIMIT_PATH_BYTES],
                              struct error *error)
{
    return model_find(config, config->model, out, error);
}

const char *config_draft_key(const struct config *config)
{
    return config->scheduler.draft_layer           ? "scheduler/draft_layer"
           : config->scheduler.draft_model[0] != 0 ? "scheduler/draft_model"
                                                   : NULL;
}

enum status config_draft_path(const struct config *config, char out[LIMIT_PATH_BYTES],
                              struct error *error)
{
    const bool layer = config->scheduler.draft_layer;
    return model_find(config, layer ? config->model : config->scheduler.draft_model, out, error);
}

enum status config_file_path(const struct config *config, const char *file,
                             char out[LIMIT_PATH_BYTES], struct error *error)
{
    const char *slash = file[0] != '/' ? strrchr(config->source, '/') : NULL;
    int folder = slash != NULL ? (int)(slash - config->source) + 1 : 0;
    if (snprintf(out, LIMIT_PATH_BYTES, "%.*s%s", folder, config->source, file) < LIMIT_PATH_BYTES)
        return ST_OK;
    return error_set(error, ST_TOO_LARGE, "the path of %.200s is longer than %d bytes", file,
                     LIMIT_PATH_BYTES - 1);
}

/* Returns the object for the section of `path`, which is made if it is missing. */
static json_t *section_at(json_t *root, const char *path)
{
    char section[CONFIG_KEY_BYTES];
    json_t *object = root;
    if (strchr(path, '/') == NULL)
        return root;
    config_section_of(path, section);
    for (char *rest = section, *part; (part = strsep(&rest, "/")) != NULL;) {
        json_t *inside = json_object_get(object, part);
        if (inside == NULL && json_object_set_new(object, part, json_object()) != 0)
            return NULL;
        object = json_object_get(object, part);
    }
    return object;
}

static const char *name_of(const struct config_key *key)
{
    return strrchr(key->path, '/') != NULL ? strrchr(key->path, '/') + 1 : key->path;
}

static json_t *pool_json(const struct config *config, enum pool pool)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list != NULL && i < config->machine_count; i++) {
        if (config->machines[i].pool == pool && config_machine_present(config, i) &&
            json_array_append_new(list, json_string(config->machines[i].name)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static bool value_write(json_t *section, const struct config_key *key, const void *base)
{
    return config_value_absent(key, base) ||
           json_object_set_new(section, name_of(key), config_value_get(key, base)) == 0;
}

/* Writes one key. A machine's keys go into the object of that machine. */
static bool key_write(json_t *root, const struct config *config, const struct config_key *key)
{
    json_t *section = section_at(root, key->path);
    if (section == NULL)
        return false;
    if (key->type == CONFIG_POOL)
        return json_object_set_new(section, name_of(key),
                                   pool_json(config, (enum pool)key->offset)) == 0;
    if (!config_key_of_machine(key))
        return value_write(section, key, config);
    for (uint32_t i = 0; i < config->machine_count; i++) {
        const struct config_machine *machine = &config->machines[i];
        if (!config_machine_present(config, i))
            continue;
        json_t *object = json_object_get(section, machine->name);
        if (object == NULL) {
            object = json_object();
            if (json_object_set_new(section, machine->name, object) != 0)
                return false;
        }
        if (!value_write(object, key, machine))
            return false;
    }
    return true;
}

enum status config_write(const struct config *config, FILE *file)
{
    enum status status = ST_NO_MEMORY;
    json_t *root = json_object();
    if (root == NULL)
        return status;
    for (size_t i = 0; i < config_key_count; i++) {
        if (!key_write(root, config, &config_keys[i]))
            goto undo_root;
    }
    status = ST_IO;
    if (json_dumpf(root, file, JSON_INDENT(2)) == 0 && fputc('\n', file) != EOF &&
        fflush(file) == 0)
        status = ST_OK;

undo_root:
    json_decref(root);
    return status;
}

static void default_format(const struct config_key *key, char *out, size_t bytes)
{
    if (key->default_text == NULL)
        snprintf(out, bytes, "%s", key->default_words);
    else if (key->default_text[0] == 0)
        snprintf(out, bytes, "empty");
    else
        snprintf(out, bytes, "%s", key->default_text);
}

void config_print_reference(FILE *file)
{
    static const char *const reload_words[] = {[CONFIG_RELOAD_NEVER] = "no",
                                               [CONFIG_RELOAD_YES] = "yes",
                                               [CONFIG_RELOAD_MACHINES] = "machines"};
    /* Left out, because the page says what a range means. */
    static const char whole[] = "a whole number from ";
    char want[128];
    char standard[128];
    char section[CONFIG_KEY_BYTES] = "";
    fprintf(file, "# Configuration\n"
                  "\n"
                  "`cleave serve CONFIG` reads a JSON file that describes a cluster "
                  "([words](contributing/glossary.md)). Without a file,\n"
                  "it starts one prompt machine and one token machine on this host. An unknown "
                  "key, a key given twice, a wrong type or a\n"
                  "value out of range is an error that names file, line, key and value. "
                  "Comments (`//`, `/* */`) are allowed.\n"
                  "\n"
                  "- `--set http/listen=127.0.0.1:9000` overrides a key of the file, and can "
                  "be repeated. `--listen`, `--model`,\n"
                  "  `--threads` and `--pools` are short forms.\n"
                  "- `--check` checks the config and starts nothing.\n"
                  "- For editors, `cleave check --schema` prints a JSON Schema of this file, "
                  "and `--keys-schema` a schema of API key files.\n"
                  "  The key `$schema` is ignored.\n"
                  "\n"
                  "```json\n"
                  "{\n"
                  "  \"model\": \"SmolLM2-135M-Instruct.Q4_1.gguf\",\n"
                  "  \"http\": {\"listen\": \"127.0.0.1:8080\"},\n"
                  "  \"cluster\": {\"key_file\": \"cluster.key\"},\n"
                  "  \"pools\": {\"prompt\": 2, \"token\": [\"t0\", \"t1\"]},\n"
                  "  \"machines\": {\n"
                  "    \"t0\": {\"threads\": 2, \"kv_memory\": \"1GiB\"},\n"
                  "    \"t1\": {\"address\": \"node7:7400\"}\n"
                  "  }\n"
                  "}\n"
                  "```\n"
                  "\n"
                  "In the tables, a range such as *0 to 1024* means a whole number. A size is "
                  "a number of bytes, or a text with a unit:\n"
                  "KiB, MiB, GiB, TiB. A relative path starts at the folder of the config "
                  "file.\n"
                  "\n"
                  "*reload* says when a changed key takes effect after SIGHUP or `POST "
                  "/admin/reload`\n"
                  "([operation.md](operation.md#changing-it-while-it-serves)):\n"
                  "\n"
                  "| reload | takes effect |\n"
                  "|---|---|\n"
                  "| yes | at once |\n"
                  "| machines | for machines that start after the reload |\n"
                  "| no | at the next start of the gateway. Exception: a changed `model` "
                  "starts a [model update](operation.md#a-new-model-while-it-serves), which "
                  "also applies changes of `model_name`, `kv/*` and "
                  "`scheduler/context_tokens_max` |\n"
                  "\n"
                  "To change this page, change `config/table.c` and run\n"
                  "`build/tests/config/test_config --reference > docs/configuration.md`.\n");
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        char here[CONFIG_KEY_BYTES] = "top level";
        if (strchr(key->path, '/') != NULL)
            config_section_of(key->path, here);
        if (strcmp(here, section) != 0) {
            snprintf(section, sizeof(section), "%s", here);
            fprintf(file,
                    "\n## %s\n\n| key | value | default | reload | what it is |\n"
                    "|---|---|---|---|---|\n",
                    here);
        }
        config_value_describe(key, want, sizeof(want));
        if (key->type == CONFIG_STRING)
            snprintf(want, sizeof(want), "text");
        default_format(key, standard, sizeof(standard));
        size_t skip = strncmp(want, "a ", 2) == 0 ? 2 : 0;
        if (strncmp(want, whole, strlen(whole)) == 0)
            skip = strlen(whole);
        fprintf(file, "| `%s` | %s | %s | %s | %s |\n", key->path, want + skip, standard,
                reload_words[key->reload], key->help);
    }
}

void config_print_help(FILE *file)
{
    char want[128];
    char standard[128];
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        config_value_describe(key, want, sizeof(want));
        default_format(key, standard, sizeof(standard));
        fprintf(file, "  %s\n      %s\n      %s; default: %s\n", key->path, key->help, want,
                standard);
    }
}
