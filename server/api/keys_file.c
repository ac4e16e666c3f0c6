/* api_keys, the file: reads a key file into a set of keys. It writes no log and knows no request. */
#include "server/api/keys_internal.h"

#include "common/date.h"
#include "common/digest.h"
#include "common/random.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (8u << 20)
#define KEY_BYTES_MIN  16 /* shorter keys can be guessed */
#define IN_FLIGHT_MAX  LIMIT_CLUSTER_REQUESTS
#define TOKENS_MAX     (1ll << 40)
#define REQUESTS_MAX   (1ll << 32)

/* ---- fields ---- */

struct file_entry {
    const char *path;
    size_t index;
    struct error *error;
};

/* Errors never quote a value: it might be a key in the wrong field. */
static bool entry_refuse(const struct file_entry *at, const char *field, const char *want)
{
    error_set(at->error, ST_INVALID, "%s: /keys/%zu/%s: want %s", at->path, at->index, field, want);
    return false;
}

static bool read_whole(const struct file_entry *at, const json_t *value, const char *field,
                       int64_t least, int64_t most, int64_t *out)
{
    if (json_is_integer(value) && json_integer_value(value) >= least &&
        json_integer_value(value) <= most) {
        *out = json_integer_value(value);
        return true;
    }
    char want[96];
    snprintf(want, sizeof(want), "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    return entry_refuse(at, field, want);
}

static bool read_bool(const struct file_entry *at, const json_t *value, const char *field,
                      bool *out)
{
    if (!json_is_boolean(value))
        return entry_refuse(at, field, "true or false");
    *out = json_is_true(value);
    return true;
}

static bool read_name(const struct file_entry *at, const char *field, const json_t *value,
                      char *out)
{
    const char *text = json_string_value(value);
    size_t length = text != NULL ? strlen(text) : 0;
    bool good = length > 0 && length < LIMIT_KEY_NAME_BYTES;
    for (size_t i = 0; good && i < length; i++)
        good = text[i] > ' ' && text[i] < 127 && text[i] != '"' && text[i] != '\\';
    if (!good)
        return entry_refuse(at, field,
                            "a name of 1 to 63 letters, digits and signs, without spaces");
    memcpy(out, text, length + 1);
    return true;
}

static bool read_key(const struct file_entry *at, const json_t *value, uint8_t *hash_out)
{
    const char *text = json_string_value(value);
    size_t length = text != NULL ? strlen(text) : 0;
    bool good = length >= KEY_BYTES_MIN && length <= KEY_BYTES_MAX;
    for (size_t i = 0; good && i < length; i++)
        good = text[i] > ' ' && text[i] < 127;
    if (!good)
        return entry_refuse(at, "key", "16 to 512 letters, digits and signs, without spaces");
    secret_hash(text, length, hash_out);
    return true;
}

static bool read_sha256(const struct file_entry *at, const json_t *value, uint8_t *hash_out)
{
    const char *text = json_string_value(value);
    bool good = text != NULL && strlen(text) == 2 * SECRET_HASH_BYTES;
    for (size_t i = 0; good && i < SECRET_HASH_BYTES; i++) {
        int high = digest_digit(text[2 * i]);
        int low = digest_digit(text[2 * i + 1]);
        good = high >= 0 && low >= 0;
        hash_out[i] = (uint8_t)(high * 16 + low);
    }
    return good || entry_refuse(at, "sha256", "64 hexadecimal digits");
}

/* Reads a secret or a list of secrets. */
static bool read_secrets(const struct file_entry *at, const json_t *value, struct key_secrets *out,
                         bool (*read)(const struct file_entry *, const json_t *, uint8_t *))
{
    const json_t *const one[] = {value};
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count == 0 || count > API_KEY_SECRETS - out->count)
        return entry_refuse(at, "key", "one or two secrets, as key, sha256 or lists of them");
    for (size_t i = 0; i < count; i++) {
        const json_t *each = json_is_array(value) ? json_array_get(value, i) : one[i];
        if (!read(at, each, out->hashes[out->count]))
            return false;
        for (uint32_t k = 0; k < out->count; k++)
            if (secret_equal(out->hashes[k], out->hashes[out->count], SECRET_HASH_BYTES))
                return entry_refuse(at, "key", "two different secrets");
        out->count++;
    }
    return true;
}

static bool read_expires(const struct file_entry *at, const json_t *value, int64_t *out)
{
    const char *text = json_string_value(value);
    if (text != NULL && date_parse(text, out) && *out > 0)
        return true;
    return entry_refuse(at, "expires", "a date and time such as \"2027-01-31T18:00:00Z\"");
}

/* Fields that are whole numbers. */
static const struct number_field {
    const char *name;
    size_t offset; /* In struct api_key_rules. */
    size_t bytes;
    int64_t least;
    int64_t most;
} numbers[] = {
#define NUMBER(name, least, most)                                                                  \
    {                                                                                              \
#name, offsetof(struct api_key_rules, name), sizeof(((struct api_key_rules *)0)->name),    \
            least, most                                                                            \
    }
    NUMBER(weight, 1, LIMIT_KEY_WEIGHT),
    NUMBER(requests_max, 0, IN_FLIGHT_MAX),
    NUMBER(requests_per_minute, 0, REQUESTS_MAX),
    NUMBER(requests_per_day, 0, REQUESTS_MAX),
    NUMBER(tokens_per_minute, 0, TOKENS_MAX),
    NUMBER(tokens_per_day, 0, TOKENS_MAX),
    NUMBER(priority_best, -LIMIT_PRIORITY, LIMIT_PRIORITY),
#undef NUMBER
};

static bool read_number(const struct file_entry *at, const struct number_field *field,
                        const json_t *value, struct api_key_rules *rules)
{
    int64_t number;
    if (!read_whole(at, value, field->name, field->least, field->most, &number))
        return false;
    const int32_t four = (int32_t)number;
    memcpy((char *)rules + field->offset,
           field->bytes == sizeof(four) ? (const void *)&four : (const void *)&number,
           field->bytes);
    return true;
}

static bool read_field(const struct file_entry *at, const char *field, const json_t *value,
                       struct api_key_rules *rules, struct key_secrets *secrets)
{
    char shown[32];
    if (strcmp(field, "name") == 0)
        return read_name(at, field, value, rules->name);
    if (strcmp(field, "cache_group") == 0)
        return read_name(at, field, value, rules->cache_group);
    if (strcmp(field, "key") == 0)
        return read_secrets(at, value, secrets, read_key);
    if (strcmp(field, "sha256") == 0)
        return read_secrets(at, value, secrets, read_sha256);
    if (strcmp(field, "expires") == 0)
        return read_expires(at, value, &rules->expires);
    if (strcmp(field, "admin") == 0)
        return read_bool(at, value, field, &rules->admin);
    if (strcmp(field, "metrics") == 0)
        return read_bool(at, value, field, &rules->metrics);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(field, numbers[i].name) == 0)
            return read_number(at, &numbers[i], value, rules);
    snprintf(shown, sizeof(shown), "%.24s", field);
    return entry_refuse(at, shown,
                        "one of name, key, sha256, expires, weight, requests_max, "
                        "requests_per_minute, requests_per_day, tokens_per_minute, "
                        "tokens_per_day, priority_best, metrics, admin, cache_group");
}

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

static bool name_is_new(const struct reading *r, const struct api_key_rules *rules)
{
    uint32_t found;
    for (uint32_t at = key_index_first(&r->names, rules->name_hash, &found);
         found != KEY_INDEX_NONE; at = key_index_next(&r->names, at, &found))
        if (strcmp(r->set->keys[found].rules.name, rules->name) == 0)
            return false;
    return true;
}

static bool secret_is_new(const struct reading *r, const uint8_t *hash)
{
    uint32_t found;
    for (uint32_t at = key_index_first(&r->secrets, key_secret_hash(hash), &found);
         found != KEY_INDEX_NONE; at = key_index_next(&r->secrets, at, &found))
        if (secret_equal(
                r->set->keys[found / API_KEY_SECRETS].secrets.hashes[found % API_KEY_SECRETS], hash,
                SECRET_HASH_BYTES))
            return false;
    return true;
}

static bool read_entry(const struct file_entry *at, json_t *object, struct reading *r)
{
    struct api_key_set *set = r->set;
    struct api_key_rules rules = {.weight = 1};
    struct key_secrets secrets = {0};
    const char *field;
    json_t *value;
    if (!json_is_object(object))
        return entry_refuse(at, "", "an object");
    json_object_foreach(object, field, value)
    {
        if (!read_field(at, field, value, &rules, &secrets))
            return false;
    }
    if (rules.name[0] == 0)
        return entry_refuse(at, "name", "one: it stands in logs and metrics");
    if (secrets.count == 0)
        return entry_refuse(at, "key", "either key or sha256");
    rules.name_hash = api_key_name_hash(rules.name);
    if (!name_is_new(r, &rules))
        return entry_refuse(at, "name", "another one: an earlier key has it");
    for (uint32_t i = 0; i < secrets.count; i++) {
        if (!secret_is_new(r, secrets.hashes[i]))
            return entry_refuse(at, "key", "another one: an earlier entry has it");
        key_index_add(&r->secrets, key_secret_hash(secrets.hashes[i]),
                      set->count * API_KEY_SECRETS + i);
    }
    key_index_add(&r->names, rules.name_hash, set->count);
    set->keys[set->count++] = (struct key_set_entry){secrets, rules};
    return true;
}

static enum status read_entries(const char *path, json_t *root, struct api_key_set *set,
                                struct error *error)
{
    json_t *list = json_object_get(root, "keys");
    if (!json_is_object(root) || json_object_size(root) != 1 || !json_is_array(list))
        return error_set(error, ST_INVALID, "%s: want {\"keys\": [{\"name\": …, \"key\": …}, …]}",
                         path);
    if (json_array_size(list) == 0 || json_array_size(list) > LIMIT_API_KEYS)
        return error_set(error, ST_INVALID, "%s: /keys has %zu entries: want 1 to %d", path,
                         json_array_size(list), LIMIT_API_KEYS);
    struct reading *r = malloc(sizeof(*r));
    if (r == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
    bool good = true;
    r->set = set;
    key_index_clear(&r->names);
    key_index_clear(&r->secrets);
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        struct file_entry at = {path, i, error};
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
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (set == NULL)
        status = error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
    else if (root == NULL) /* jansson's messages quote the text, which might be a key */
        status = error_set(error, ST_INVALID, "%s:%d: not JSON (column %d)", path, where.line,
                           where.column);
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

const struct api_key_rules *api_key_set_rules(const struct api_key_set *set, uint32_t index)
{
    return &set->keys[index].rules;
}
