/* api_keys, the file: reads a key file into a set of keys. It writes no log and knows no
 * request. */
#include "server/api/keys_internal.h"

#include "common/json.h"
#include "common/random.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (8u << 20)

/* Identifies the key on machines: equal at every gateway that reads the same file. */
uint64_t api_key_name_hash(const char *name)
{
    uint64_t hash = 0;
    for (; *name != 0; name++)
        hash = random_at(hash, (unsigned char)*name);
    return hash != 0 ? hash : 1;
}

/* What is known of the entries before the one that is read. */
struct reading {
    struct api_key_set *set;
    struct key_index names;
    struct key_index secrets;
};

static bool name_is_new(const struct reading *r, const struct api_key_settings *settings)
{
    uint32_t found;
    for (uint32_t at = key_index_first(&r->names, settings->name_hash, &found);
         found != KEY_INDEX_NONE; at = key_index_next(&r->names, at, &found))
        if (strcmp(r->set->keys[found].settings.name, settings->name) == 0)
            return false;
    return true;
}

static bool secret_is_new(const struct reading *r, const uint8_t *hash)
{
    uint32_t found;
    for (uint32_t at = key_index_first(&r->secrets, key_secret_hash(hash), &found);
         found != KEY_INDEX_NONE; at = key_index_next(&r->secrets, at, &found))
        if (secret_bytes_equal(
                r->set->keys[found / API_KEY_SECRETS].secrets.hashes[found % API_KEY_SECRETS], hash,
                SECRET_HASH_BYTES))
            return false;
    return true;
}

static bool read_entry(const struct key_file_entry *at, json_t *object, struct reading *r)
{
    struct api_key_set *set = r->set;
    struct api_key_settings settings = {0};
    struct key_secrets secrets = {0};
    const char *field;
    json_t *value;
    if (!json_is_object(object))
        return key_entry_refuse(at, "", "an object");
    key_settings_init(&settings);
    json_object_foreach(object, field, value)
    {
        if (!key_field_read(at, field, value, &settings, &secrets))
            return false;
    }
    if (settings.name[0] == 0)
        return key_entry_refuse(at, "name", "one: it stands in logs and metrics");
    if (secrets.count == 0)
        return key_entry_refuse(at, "key", "either key or sha256");
    settings.name_hash = api_key_name_hash(settings.name);
    if (!name_is_new(r, &settings))
        return key_entry_refuse(at, "name", "another one: an earlier key has it");
    for (uint32_t i = 0; i < secrets.count; i++) {
        if (!secret_is_new(r, secrets.hashes[i]))
            return key_entry_refuse(at, "key", "another one: an earlier entry has it");
        key_index_add(&r->secrets, key_secret_hash(secrets.hashes[i]),
                      set->count * API_KEY_SECRETS + i);
    }
    key_index_add(&r->names, settings.name_hash, set->count);
    set->keys[set->count++] = (struct key_set_entry){secrets, settings};
    return true;
}

static enum status read_entries(const char *path, json_t *root, struct api_key_set *set,
                                struct error *error)
{
    const json_t *list = json_object_get(root, "keys"), *schema = json_object_get(root, "$schema");
    const size_t known = schema != NULL ? 2 : 1; /* Editors read "$schema". */
    if (!json_is_object(root) || json_object_size(root) != known || !json_is_array(list) ||
        (schema != NULL && !json_is_string(schema)))
        return error_set(error, ST_INVALID, "%s: want {\"keys\": [{\"name\": …, \"key\": …}, …]}",
                         path);
    if (json_array_size(list) == 0 || json_array_size(list) > LIMIT_API_KEYS)
        return error_set(error, ST_INVALID, "%s: /keys has %zu entries: want 1 to %d", path,
                         json_array_size(list), LIMIT_API_KEYS);
    struct reading *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
    bool good = true;
    r->set = set;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        struct key_file_entry at = {path, i, error};
        good = read_entry(&at, json_array_get(list, i), r);
    }
    free(r);
    return good ? ST_OK : ST_INVALID;
}

enum status api_key_set_read(const char *path, struct api_key_set **out, struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    enum status status = secret_file_read(path, FILE_BYTES_MAX, &text, &bytes, error);
    if (status != ST_OK)
        return status;
    json_error_t where;
    struct api_key_set *set = calloc(1, sizeof(*set));
    json_t *root;
    status = json_text_load(text, bytes, JSON_REJECT_DUPLICATES, &root, &where);
    if (set == NULL || status == ST_NO_MEMORY)
        status = error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
    else if (status != ST_OK) /* jansson's messages quote the text, which might be a key */
        status =
            error_set(error, status, "%s:%d: not JSON (column %d)", path, where.line, where.column);
    else
        status = read_entries(path, root, set, error);
    json_decref(root);
    secret_wipe(text, bytes);
    free(text);
    if (status != ST_OK) {
        api_key_set_free(set);
        return status;
    }
    *out = set;
    return ST_OK;
}

void api_key_set_free(struct api_key_set *set)
{
    free(set);
}

uint32_t api_key_set_count(const struct api_key_set *set)
{
    return set != NULL ? set->count : 0;
}

const struct api_key_settings *api_key_set_settings(const struct api_key_set *set, uint32_t index)
{
    return &set->keys[index].settings;
}
