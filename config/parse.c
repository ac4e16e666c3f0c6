/* config_parse: reads JSON into a struct config, or returns one error. Keys that others depend on
 * are read first: the defaults for machines, then the pools, which name the machines, then
 * `machines`. */
#include "config/table.h"

#include "common/json.h"
#include "common/text.h"

#include <assert.h>
#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX (1u << 20) /* 64 machines with every key need a tenth of it. */

enum part { PART_PLAIN, PART_POOLS, PART_MACHINES };

struct reader {
    struct config *config;
    struct config_fault *fault;
    enum part part; /* The keys that this pass reads. */
};

/* name: the key as the file has it; the last part of the path. */
static bool key_unknown(const char *path, const char *name, struct config_fault *fault)
{
    char nearest[CONFIG_KEY_BYTES];
    if (strchr(name, '/') != NULL)
        return config_fault_set(fault, path,
                                ": unknown key \"%.64s\": want objects without \"/\", such as "
                                "{\"http\": {\"listen\": …}}",
                                name);
    if (config_key_nearest(path, nearest))
        return config_fault_set(fault, path, ": unknown key; did you mean /%s?", nearest);
    return config_fault_set(fault, path, ": unknown key");
}

/* Joins section and key to a path. Returns false if no key in the table can have that name;
 * otherwise {"http/listen": …} would be accepted for {"http": {"listen": …}}. */
static bool path_join(const char *section, const char *name, char out[CONFIG_KEY_BYTES])
{
    snprintf(out, CONFIG_KEY_BYTES, "%.100s%s%.64s", section, section[0] != 0 ? "/" : "", name);
    return strchr(name, '/') == NULL && strlen(name) <= 64;
}

static bool machine_key_apply(struct reader *reader, struct config_machine *machine,
                              const char *section, const char *name, const json_t *value)
{
    char path[CONFIG_KEY_BYTES];
    bool plain = path_join(section, name, path);
    const struct config_key *key = plain ? config_key_find(path) : NULL;
    if (key == NULL)
        return key_unknown(path, name, reader->fault);
    return config_machine_set(machine, key, path, value, reader->fault);
}

static bool machine_apply(struct reader *reader, const char *name, json_t *object)
{
    char section[CONFIG_KEY_BYTES];
    const char *key;
    json_t *value;
    bool plain = path_join("machines", name, section);
    int index = plain ? config_machine_find(reader->config, name) : -1;
    if (index < 0)
        return config_fault_set(reader->fault, section, ": no pool names this machine");
    if (!json_is_object(object))
        return config_fault_value(reader->fault, section, object, "want an object");
    struct config_machine *machine = &reader->config->machines[index];
    json_object_foreach(object, key, value)
    {
        if (strcmp(key, "local") != 0 && !machine_key_apply(reader, machine, section, key, value))
            return false;
    }
    value = json_object_get(object, "local");
    return value == NULL || machine_key_apply(reader, machine, section, "local", value);
}

static bool machines_apply(struct reader *reader, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        if (!machine_apply(reader, name, value))
            return false;
    }
    return true;
}

static bool value_apply(struct reader *reader, const struct config_key *key, const json_t *value)
{
    if (key->type == CONFIG_POOL)
        return config_pool_set(reader->config, (enum pool)key->offset, value, reader->fault);
    return config_value_set(key, reader->config, key->path, value, reader->fault);
}

/* Adds to config->renamed_warning that `path` is a key's old name. */
static void renamed_note(struct config *config, const struct config_key *key, const char *path)
{
    size_t used = strlen(config->renamed_warning);
    if (key->old_path != NULL && strcmp(key->old_path, path) == 0)
        snprintf(config->renamed_warning + used, sizeof(config->renamed_warning) - used,
                 "%s/%s is now /%s", used > 0 ? "; " : "", path, key->path);
}

static bool section_apply(struct reader *reader, const char *section, json_t *object);

static bool member_apply(struct reader *reader, const char *section, const char *name,
                         json_t *value)
{
    char path[CONFIG_KEY_BYTES];
    bool plain = path_join(section, name, path);
    if (strcmp(path, "$schema") == 0 && json_is_string(value))
        return true; /* For editors. */
    bool machines = plain && strcmp(path, "machines") == 0;
    bool pools = plain && strncmp(path, "pools", 5) == 0 && (path[5] == 0 || path[5] == '/');
    if ((machines ? PART_MACHINES : pools ? PART_POOLS : PART_PLAIN) != reader->part)
        return true;
    const struct config_key *key = plain ? config_key_find(path) : NULL;
    if (key != NULL) {
        renamed_note(reader->config, key, path);
        return value_apply(reader, key, value);
    }
    if (!plain || !config_section_known(path))
        return key_unknown(path, name, reader->fault);
    if (!json_is_object(value))
        return config_fault_value(reader->fault, path, value, "want an object");
    return machines ? machines_apply(reader, value) : section_apply(reader, path, value);
}

static bool section_apply(struct reader *reader, const char *section, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        if (!member_apply(reader, section, name, value))
            return false;
    }
    return true;
}

static bool pools_default(struct config *config, struct config_fault *fault)
{
    json_t *one = json_integer(1);
    bool good = one != NULL && config_pool_set(config, POOL_PROMPT, one, fault) &&
                config_pool_set(config, POOL_TOKEN, one, fault);
    json_decref(one);
    return good;
}

static bool plain_defaults(struct config *config, struct config_fault *fault)
{
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        if (key->default_text == NULL)
            continue;
        json_t *value = config_value_from_text(key, key->default_text);
        bool good = value != NULL && config_value_set(key, config, key->path, value, fault);
        json_decref(value);
        if (!good)
            return false;
    }
    return true;
}

void config_default(struct config *out)
{
    struct config_fault fault = {.status = ST_OK};
    memset(out, 0, sizeof(*out));
    snprintf(out->source, sizeof(out->source), "embedded");
    bool good = plain_defaults(out, &fault) && pools_default(out, &fault);
    /* The table's defaults are within the table's ranges (tests/config/test_config.c). */
    assert(good);
}

bool config_address_is_loopback(const char *address)
{
    size_t host = strcspn(address, ":");
    if (strncmp(address, "[::1]:", 6) == 0)
        return true;
    if (host == strlen("localhost") && strncmp(address, "localhost", host) == 0)
        return true;
    return strncmp(address, "127.", 4) == 0 && strspn(address, "0123456789.") == host;
}

/* Prevents access by mistake: an address that other hosts can reach requires keys, or the
 * operator's permission. */
static bool openness_check(const struct config *config, struct config_fault *fault)
{
    char path[CONFIG_KEY_BYTES];
    bool guarded =
        config->server.api_keys_file[0] != 0 && config->server.tls_certificate_file[0] != 0;
    if (!guarded && !config->server.allow_insecure &&
        !config_address_is_loopback(config->http.listen))
        return config_fault_set(
            fault, "http/listen",
            " = \"%s\": other computers reach it: want server/api_keys_file and "
            "server/tls_certificate_file, or server/allow_insecure: true",
            config->http.listen);
    bool machines_guarded = config->cluster.key_file[0] != 0 || config->cluster.allow_insecure;
    for (uint32_t i = 0; !machines_guarded && i < config->machine_count; i++) {
        const struct config_machine *machine = &config->machines[i];
        if (!config_stages_loopback(machine))
            return config_fault_set(fault, "machines",
                                    "/%s/stages: stages on other computers: want "
                                    "cluster/key_file, or cluster/allow_insecure: true",
                                    machine->name);
        if (machine->address[0] == 0 || config_address_is_loopback(machine->address))
            continue;
        snprintf(path, sizeof(path), "machines/%s/address", machine->name);
        return config_fault_set(fault, path,
                                " = \"%s\": other computers reach it: want cluster/key_file, or "
                                "cluster/allow_insecure: true",
                                machine->address);
    }
    return true;
}

/* An origin that no browser sends would never match. */
static bool web_origins_check(const struct config *config, struct config_fault *fault)
{
    const char *origins = config->http.web_origins;
    bool all = strcmp(origins, "*") == 0, good = true;
    for (const char *at = origins; *at != 0 && !all && good;) {
        size_t length = strcspn(at, " ");
        size_t scheme = strncmp(at, "http://", 7) == 0    ? 7
                        : strncmp(at, "https://", 8) == 0 ? 8
                                                          : 0;
        good = scheme > 0 && length > scheme && memchr(at + scheme, '/', length - scheme) == NULL;
        at += length;
        at += strspn(at, " ");
    }
    if (!good)
        return config_fault_set(fault, "http/web_origins",
                                " = \"%s\": want \"*\", or sites such as https://chat.example, "
                                "without a path, with a blank between",
                                origins);
    if (all && config->server.api_keys_file[0] == 0)
        return config_fault_set(fault, "http/web_origins",
                                " = \"*\": every web page could use this server: want "
                                "server/api_keys_file, or a list of sites");
    return true;
}

bool config_has_etcd(const struct config *config)
{
    return strcmp(config->cluster.membership, "etcd") == 0;
}

bool config_has_tiers(const struct config *config)
{
    return config->kv.tiers.memory.bytes > 0 || config->kv.tiers.file.path[0] != 0 ||
           config->kv.tiers.store.servers[0] != 0;
}

bool config_address_next(const char **at, char out[LIMIT_ADDRESS_BYTES])
{
    *at += strspn(*at, ", ");
    size_t bytes = strcspn(*at, ", ");
    snprintf(out, LIMIT_ADDRESS_BYTES, "%.*s", (int)bytes, *at);
    *at += bytes;
    return bytes > 0;
}

/* KV and passwords must not travel in the clear to another host. */
static bool store_check(const struct config *config, struct config_fault *fault)
{
    static const char key[] = "kv/tiers/store/servers";
    const char *at = config->kv.tiers.store.servers;
    char address[LIMIT_ADDRESS_BYTES];
    const bool has_password = config->kv.tiers.store.password_file[0] != 0;
    if (at[0] != 0 && !config->kv.prefix_cache)
        return config_fault_set(fault, key, " = \"%.200s\": want kv/prefix_cache", at);
    if (config->kv.tiers.store.user[0] != 0 && !has_password)
        return config_fault_set(fault, "kv/tiers/store/user", ": want password_file, too");
    if (config->kv.tiers.store.ca_file[0] != 0 && !config->kv.tiers.store.tls)
        return config_fault_set(fault, "kv/tiers/store/ca_file", ": want kv/tiers/store/tls, too");
    for (uint32_t count = 1; config_address_next(&at, address); count++) {
        const char *colon = strrchr(address, ':');
        if (count > CONFIG_STORE_SERVERS_MAX || colon == NULL || colon == address ||
            colon[1] == 0 || colon[1 + strspn(colon + 1, "0123456789")] != 0)
            return config_fault_set(fault, key,
                                    " = \"%.200s\": want up to %d addresses HOST:PORT, separated "
                                    "by commas",
                                    config->kv.tiers.store.servers, CONFIG_STORE_SERVERS_MAX);
        if (config->kv.tiers.store.tls || config->cluster.allow_insecure ||
            config_address_is_loopback(address))
            continue;
        if (has_password || config->kv.tiers.key_file[0] == 0)
            return config_fault_set(fault, key,
                                    ": %s: %s can be read on the way: want kv/tiers/store/tls, or "
                                    "cluster/allow_insecure: true",
                                    address, has_password ? "the password" : "KV");
    }
    return true;
}

/* A password must not travel in the clear to another host, and certificates need TLS. */
static bool etcd_address_check(const struct config *config, const char *at, bool tls,
                               struct config_fault *fault)
{
    char address[512];
    if (tls)
        return true;
    snprintf(address, sizeof(address), "%.*s", (int)strcspn(at + 7, ",/ "), at + 7);
    if (config->cluster.etcd_ca_file[0] != 0 || config->cluster.etcd_certificate_file[0] != 0)
        return config_fault_set(fault, "cluster/etcd_endpoints",
                                ": http://%.200s: etcd_ca_file and etcd_certificate_file need "
                                "https://",
                                address);
    if (config->cluster.etcd_user[0] != 0 && !config->cluster.allow_insecure &&
        !config_address_is_loopback(address))
        return config_fault_set(fault, "cluster/etcd_endpoints",
                                ": http://%.200s: the password of etcd_user can be read on the "
                                "way: want https://, or cluster/allow_insecure: true",
                                address);
    return true;
}

static bool etcd_pairs_check(const struct config *config, struct config_fault *fault)
{
    if ((config->cluster.etcd_user[0] != 0) != (config->cluster.etcd_password_file[0] != 0))
        return config_fault_set(fault, "cluster/etcd_user",
                                ": want etcd_user and etcd_password_file, or neither");
    if ((config->cluster.etcd_certificate_file[0] != 0) != (config->cluster.etcd_key_file[0] != 0))
        return config_fault_set(fault, "cluster/etcd_certificate_file",
                                ": want etcd_certificate_file and etcd_key_file, or neither");
    return true;
}

static bool etcd_check(const struct config *config, struct config_fault *fault)
{
    const char *at = config->cluster.etcd_endpoints;
    uint32_t count = 0;
    if (!config_has_etcd(config))
        return true;
    do {
        size_t scheme = strncmp(at, "http://", 7) == 0    ? 7
                        : strncmp(at, "https://", 8) == 0 ? 8
                                                          : 0;
        if (scheme == 0 || strcspn(at, ",") <= scheme || ++count > 8)
            return config_fault_set(fault, "cluster/etcd_endpoints",
                                    " = \"%.200s\": want up to 8 addresses, http://HOST:PORT or "
                                    "https://HOST:PORT, separated by commas",
                                    config->cluster.etcd_endpoints);
        if (!etcd_address_check(config, at, scheme == 8, fault))
            return false;
        at += strcspn(at, ",");
        at += strspn(at, ", ");
    } while (*at != 0);
    return etcd_pairs_check(config, fault);
}

/* Returns true if the names lead to one file. A file that does not exist is known by its folder and
 * its name there. */
static bool is_one_file(const struct config *config, const char *name, const char *other)
{
    char paths[2][LIMIT_PATH_BYTES];
    struct stat found[2];
    struct error error;
    if (strcmp(name, other) == 0)
        return true;
    if (config_file_path(config, name, paths[0], &error) != ST_OK ||
        config_file_path(config, other, paths[1], &error) != ST_OK)
        return false;
    const bool exist = stat(paths[0], &found[0]) == 0 && stat(paths[1], &found[1]) == 0;
    if (!exist &&
        (strcmp(basename(paths[0]), basename(paths[1])) != 0 ||
         stat(dirname(paths[0]), &found[0]) != 0 || stat(dirname(paths[1]), &found[1]) != 0))
        return false;
    return (!exist || S_ISREG(found[0].st_mode)) && found[0].st_dev == found[1].st_dev &&
           found[0].st_ino == found[1].st_ino;
}

static bool file_differs(const struct config *config, const char *key, const char *file,
                         const char *other_key, const char *other, struct config_fault *fault)
{
    if (file[0] == 0 || other[0] == 0 || strcmp(file, "-") == 0 ||
        !is_one_file(config, file, other))
        return true;
    return config_fault_set(fault, key, " = \"%.200s\": want another file than %s", file,
                            other_key);
}

/* Two logs in one file would mix their lines, and a restart could not read the ledger. */
static bool logs_check(const struct config *config, struct config_fault *fault)
{
    static const char events[] = "log/events_file", ledger[] = "log/ledger_file",
                      access[] = "log/access_file";
    const char *endpoint = config->log.otlp_endpoint;
    if (endpoint[0] != 0 && strncmp(endpoint, "http://", 7) != 0 &&
        strncmp(endpoint, "https://", 8) != 0)
        return config_fault_set(fault, "log/otlp_endpoint",
                                " = \"%.200s\": want http://HOST:PORT/v1/traces", endpoint);
    return file_differs(config, events, config->log.events_file, ledger, config->log.ledger_file,
                        fault) &&
           file_differs(config, access, config->log.access_file, ledger, config->log.ledger_file,
                        fault) &&
           file_differs(config, access, config->log.access_file, events, config->log.events_file,
                        fault);
}

static bool values_check(const struct config *config, struct config_fault *fault)
{
    if (config->transport.silence_ms < 2 * config->transport.heartbeat_ms)
        return config_fault_set(fault, "transport/silence_ms",
                                " = %u: want at least two heartbeats (heartbeat_ms = %u)",
                                config->transport.silence_ms, config->transport.heartbeat_ms);
    if ((config->server.tls_certificate_file[0] != 0) != (config->server.tls_key_file[0] != 0))
        return config_fault_set(fault, "server/tls_certificate_file",
                                ": want tls_certificate_file and tls_key_file, or neither");
    if (config->scheduler.micro_batch_tokens > 0 &&
        config->scheduler.micro_batch_tokens < LIMIT_CHUNK_TOKENS_MIN)
        return config_fault_set(fault, "scheduler/micro_batch_tokens",
                                " = %u: want 0 or at least %d",
                                config->scheduler.micro_batch_tokens, LIMIT_CHUNK_TOKENS_MIN);
    if (config->kv.checkpoint[0] != 0 && strcmp(config->kv.checkpoint, "off") != 0 &&
        !config->kv.prefix_cache)
        return config_fault_set(fault, "kv/checkpoint", " = \"%s\": want kv/prefix_cache, or off",
                                config->kv.checkpoint);
    if (config->kv.tiers.memory.bytes > 0 && !config->kv.prefix_cache)
        return config_fault_set(fault, "kv/tiers/memory/size", ": want kv/prefix_cache, or 0");
    if (config->kv.tiers.file.path[0] != 0 && !config->kv.prefix_cache)
        return config_fault_set(fault, "kv/tiers/file/path", " = \"%.200s\": want kv/prefix_cache",
                                config->kv.tiers.file.path);
    if (config->scheduler.draft_layer && config->scheduler.draft_model[0] != 0)
        return config_fault_set(fault, "scheduler/draft_layer",
                                " = true: want draft_layer or draft_model, not both");
    return etcd_check(config, fault) && store_check(config, fault) &&
           config_adapters_check(config, fault) && config_machines_check(config, fault) &&
           openness_check(config, fault) && web_origins_check(config, fault) &&
           logs_check(config, fault);
}

enum status config_check(const struct config *config, const char *source, struct error *error)
{
    struct config_fault fault;
    if (values_check(config, &fault))
        return ST_OK;
    return config_fault_error(&fault, source, 0, error);
}

static bool root_apply(struct config *config, json_t *root, struct config_fault *fault)
{
    struct reader reader = {.config = config, .fault = fault, .part = PART_PLAIN};
    if (!json_is_object(root))
        return config_fault_value(fault, "", root, "want an object");
    if (!section_apply(&reader, "", root))
        return false;
    reader.part = PART_POOLS;
    if (json_object_get(root, "pools") == NULL) {
        if (!pools_default(config, fault))
            return false;
    } else if (!section_apply(&reader, "", root)) {
        return false;
    }
    reader.part = PART_MACHINES;
    return section_apply(&reader, "", root) && values_check(config, fault);
}

/* Reads the JSON of a config. *plain_out: the text without comments, which the caller frees, also
 * after an error. */
static enum status root_read(const char *text, size_t bytes, const char *name, char **plain_out,
                             json_t **root_out, struct error *error)
{
    json_error_t json_error;
    unsigned line;
    *plain_out = NULL;
    *root_out = NULL;
    if (bytes > FILE_BYTES_MAX)
        return error_set(error, ST_TOO_LARGE, "%s: %zu bytes: want at most %u", name, bytes,
                         FILE_BYTES_MAX);
    char *plain = malloc(bytes + 1);
    if (plain == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: no memory", name);
    memcpy(plain, text, bytes);
    *plain_out = plain;
    if (!config_comments_blank(plain, bytes, &line))
        return error_set(error, ST_INVALID, "%s:%u: the comment that begins here has no end", name,
                         line);
    enum status status = json_text_load(plain, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
                                        root_out, &json_error);
    if (status == ST_NO_MEMORY)
        error_set(error, status, "%s: no memory", name);
    else if (status != ST_OK)
        error_set(error, status, "%s:%d: not JSON: %s", name, json_error.line, json_error.text);
    return status;
}

enum status config_parse(const char *text, size_t text_bytes, const char *source_name,
                         struct config *out, struct error *error)
{
    struct config_fault fault;
    char *plain;
    json_t *root;
    enum status status = root_read(text, text_bytes, source_name, &plain, &root, error);
    if (status != ST_OK) {
        free(plain);
        return status;
    }
    status = ST_NO_MEMORY;
    struct config *config = calloc(1, sizeof(*config));
    if (config == NULL) {
        error_set(error, status, "%s: no memory", source_name);
        goto undo_root;
    }
    snprintf(config->source, sizeof(config->source), "%s", source_name);
    bool good = plain_defaults(config, &fault);
    assert(good);
    if (!root_apply(config, root, &fault)) {
        unsigned line = config_locate(plain, text_bytes, fault.path);
        status = config_fault_error(&fault, source_name, line, error);
        goto undo_config;
    }
    *out = *config;
    status = ST_OK;

undo_config:
    free(config);
undo_root:
    json_decref(root);
    free(plain);
    return status;
}

/* Reads a whole file; the caller frees *text_out. */
static enum status file_read(const char *path, char **text_out, size_t *bytes_out,
                             struct error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return error_set(error, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path,
                         strerror(errno));
    enum status status = ST_OK;
    char *text = malloc(FILE_BYTES_MAX + 1);
    if (text == NULL) {
        status = error_set(error, ST_NO_MEMORY, "%s: no memory", path);
        goto undo_file;
    }
    *bytes_out = fread(text, 1, FILE_BYTES_MAX + 1, file);
    if (ferror(file)) {
        status = error_set(error, ST_IO, "%s: %s", path, strerror(errno));
        free(text);
        goto undo_file;
    }
    *text_out = text;

undo_file:
    fclose(file);
    return status;
}

enum status config_load(const char *path, struct config *out, struct error *error)
{
    char *text;
    size_t bytes;
    enum status status = file_read(path, &text, &bytes, error);
    if (status != ST_OK)
        return status;
    status = config_parse(text, bytes, path, out, error);
    free(text);
    return status;
}

/* ---- all mistakes of a file ---- */

/* Removes the key `path`, or the deepest object above it that there is. Returns false if nothing of
 * the path is there. */
static bool key_remove(json_t *root, const char *path)
{
    char part[CONFIG_KEY_BYTES], last[CONFIG_KEY_BYTES] = "";
    json_t *inside = NULL, *object = root;
    while (json_is_object(object) && *path != 0) {
        /* A mistaken key may hold "/": then the object has the rest of the path as one key. */
        bool whole = json_object_get(object, path) != NULL;
        size_t length = whole ? strlen(path) : strcspn(path, "/");
        snprintf(part, sizeof(part), "%.*s", (int)length, path);
        json_t *member = json_object_get(object, part);
        if (member == NULL)
            break;
        inside = object;
        memcpy(last, part, sizeof(last));
        object = member;
        path += length + (path[length] == '/');
    }
    if (inside == NULL)
        return false;
    if (inside == root && strcmp(last, "pools") == 0)
        json_object_del(root, "machines");
    return json_object_del(inside, last) == 0;
}

static bool mistakes_find(const char *text, size_t bytes, const char *path,
                          config_mistake_call on_mistake, void *self, struct config *config)
{
    struct config_fault fault;
    struct error error;
    char *plain;
    json_t *root;
    bool read = false;
    bool goes_on = root_read(text, bytes, path, &plain, &root, &error) == ST_OK;
    if (!goes_on)
        on_mistake(self, error.text);
    while (goes_on && !read) {
        memset(config, 0, sizeof(*config));
        snprintf(config->source, sizeof(config->source), "%s", path);
        bool good = plain_defaults(config, &fault);
        assert(good);
        read = root_apply(config, root, &fault);
        if (read)
            break;
        config_fault_error(&fault, path, config_locate(plain, bytes, fault.path), &error);
        on_mistake(self, error.text);
        if (strncmp(fault.path, "pools", 5) == 0) /* It may be about a machine's pool. */
            goes_on = key_remove(root, "pools");
        else
            goes_on = key_remove(root, fault.path);
    }
    json_decref(root);
    free(plain);
    return read;
}

bool config_load_all(const char *path, config_mistake_call on_mistake, void *self,
                     struct config *out)
{
    char *text;
    size_t bytes;
    struct error error;
    struct config *config = calloc(1, sizeof(*config));
    enum status status = config != NULL ? file_read(path, &text, &bytes, &error)
                                        : error_set(&error, ST_NO_MEMORY, "%s: no memory", path);
    bool read = false;
    if (status == ST_OK) {
        read = mistakes_find(text, bytes, path, on_mistake, self, config);
        free(text);
    } else {
        on_mistake(self, error.text);
    }
    if (read)
        *out = *config;
    free(config);
    return read;
}

/* Applies a changed shared default to the machines that still have the old value. */
static void defaults_share(struct config *config, uint32_t threads, uint64_t memory_bytes)
{
    for (uint32_t i = 0; i < config->machine_count; i++) {
        struct config_machine *machine = &config->machines[i];
        if (machine->threads == threads)
            machine->threads = config->threads;
        if (machine->kv_memory_bytes == memory_bytes)
            machine->kv_memory_bytes = config->kv.memory_bytes;
    }
}

static bool set_machine(struct reader *reader, const struct config_key *key, const char *path,
                        const json_t *value)
{
    char name[CONFIG_KEY_BYTES];
    const char *begin = path + strlen("machines/");
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(begin, "/"), begin);
    int index = config_machine_find(reader->config, name);
    if (index < 0)
        return config_fault_set(reader->fault, path, ": no pool names machine %s", name);
    return config_machine_set(&reader->config->machines[index], key, path, value, reader->fault);
}

enum status config_set(struct config *config, const char *source, const char *key_path,
                       const char *value, struct error *error)
{
    struct config_fault fault;
    struct config *next = malloc(sizeof(*next)); /* Setting a pool may fail half-way. */
    if (next == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: no memory", source);
    *next = *config;
    struct reader reader = {.config = next, .fault = &fault};
    bool good = strlen(key_path) < CONFIG_KEY_BYTES;
    const struct config_key *key = good ? config_key_find(key_path) : NULL;
    json_t *json = key != NULL ? config_value_from_text(key, value) : NULL;
    if (key == NULL)
        good = key_unknown(good ? key_path : "", "", &fault);
    else if (json == NULL)
        good = text_utf8_check(value, strlen(value)) == strlen(value)
                   ? config_fault_no_memory(&fault, key_path)
                   : config_fault_set(&fault, key_path, ": want UTF-8 text");
    else if (config_key_of_machine(key))
        good = set_machine(&reader, key, key_path, json);
    else
        good = value_apply(&reader, key, json);
    enum status status = ST_OK;
    if (good) {
        defaults_share(next, config->threads, config->kv.memory_bytes);
        renamed_note(next, key, key_path);
        *config = *next;
    } else {
        status = config_fault_error(&fault, source, 0, error);
    }
    json_decref(json);
    free(next);
    return status;
}

enum status config_set_pair(struct config *config, const char *key_and_value, struct error *error)
{
    char key[256];
    size_t bytes = strcspn(key_and_value, "=");
    if (bytes == 0 || key_and_value[bytes] == 0 || bytes >= sizeof(key))
        return error_set(error, ST_INVALID, "--set = \"%.200s\": want KEY=VALUE", key_and_value);
    memcpy(key, key_and_value, bytes);
    key[bytes] = 0;
    return config_set(config, "--set", key, key_and_value + bytes + 1, error);
}
