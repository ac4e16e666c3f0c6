/* api_keys, the fields of a key file: one table of them, by which entries are read and the JSON
 * Schema for editors is written. It opens no files. */
#include "server/api/keys_internal.h"

#include "common/date.h"
#include "common/digest.h"

#include <stddef.h>
#include <string.h>

#define KEY_BYTES_MIN 16 /* Shorter keys can be guessed. */
#define IN_FLIGHT_MAX LIMIT_CLUSTER_REQUESTS
#define TOKENS_MAX    (1ll << 40)
#define REQUESTS_MAX  (1ll << 32)

enum field_type {
    FIELD_NAME,   /* A text at `offset`. */
    FIELD_KEY,    /* A secret, or a list of them. */
    FIELD_SHA256, /* The SHA-256 of a secret, or a list of them. */
    FIELD_DATE,   /* int64_t: seconds since 1970. */
    FIELD_WHOLE,  /* int32_t, uint32_t or uint64_t from `least` to `most`. */
    FIELD_BOOL
};

#define PLACE(member)                                                                              \
    offsetof(struct api_key_settings, member), sizeof(((struct api_key_settings *)0)->member)

static const struct key_field {
    const char *name;
    enum field_type type;
    const char *help;
    size_t offset; /* In struct api_key_settings, and the size there. */
    size_t bytes;
    int64_t least;
    int64_t most;
    int64_t standard; /* FIELD_WHOLE: the value without the field. */
} fields[] = {
    {"name", FIELD_NAME, "Unique; used in logs, errors and metrics.", PLACE(name), 0, 0, 0},
    {"key", FIELD_KEY, "The secret, or a list of an old and a new one.", 0, 0, 0, 0, 0},
    {"sha256", FIELD_SHA256, "The SHA-256 of the secret instead of the secret.", 0, 0, 0, 0, 0},
    {"expires", FIELD_DATE, "Date and time from which the key is refused.", PLACE(expires), 0, 0,
     0},
    {"weight", FIELD_WHOLE, "Share of tokens while several keys wait.", PLACE(weight), 1,
     LIMIT_KEY_WEIGHT, 1},
    {"requests_max", FIELD_WHOLE, "Most answers in flight; 0 = unlimited.",
     PLACE(answers_in_flight_max), 0, IN_FLIGHT_MAX, 0},
    {"requests_per_minute", FIELD_WHOLE, "Most answers begun in a minute; 0 = unlimited.",
     PLACE(requests_per_minute), 0, REQUESTS_MAX, 0},
    {"requests_per_day", FIELD_WHOLE, "Most answers begun in a day (UTC); 0 = unlimited.",
     PLACE(requests_per_day), 0, REQUESTS_MAX, 0},
    {"tokens_per_minute", FIELD_WHOLE, "Most prompt and answer tokens in a minute; 0 = unlimited.",
     PLACE(tokens_per_minute), 0, TOKENS_MAX, 0},
    {"tokens_per_day", FIELD_WHOLE, "Most prompt and answer tokens in a day (UTC); 0 = unlimited.",
     PLACE(tokens_per_day), 0, TOKENS_MAX, 0},
    {"priority_best", FIELD_WHOLE, "The lowest (most urgent) priority of its requests.",
     PLACE(priority_best), -LIMIT_PRIORITY, LIMIT_PRIORITY, 0},
    {"metrics", FIELD_BOOL, "May read /metrics.", PLACE(metrics), 0, 0, 0},
    {"admin", FIELD_BOOL, "May use /admin, and read /metrics.", PLACE(admin), 0, 0, 0},
    {"cache_group", FIELD_NAME,
     "With server/prefix_cache_scope \"group\", keys of one group share cached prefixes.",
     PLACE(cache_group), 0, 0, 0},
};

#undef PLACE

#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

/* ---- reading ---- */

bool key_entry_refuse(const struct key_file_entry *at, const char *field, const char *want)
{
    error_set(at->error, ST_INVALID, "%s: /keys/%zu/%s: want %s", at->path, at->index, field, want);
    return false;
}

static void whole_store(const struct key_field *field, int64_t number,
                        struct api_key_settings *settings)
{
    const int32_t four = (int32_t)number;
    memcpy((char *)settings + field->offset,
           field->bytes == sizeof(four) ? (const void *)&four : (const void *)&number,
           field->bytes);
}

static bool whole_read(const struct key_file_entry *at, const struct key_field *field,
                       const json_t *value, struct api_key_settings *settings)
{
    if (json_is_integer(value) && json_integer_value(value) >= field->least &&
        json_integer_value(value) <= field->most) {
        whole_store(field, json_integer_value(value), settings);
        return true;
    }
    char want[96];
    snprintf(want, sizeof(want), "a whole number from %lld to %lld", (long long)field->least,
             (long long)field->most);
    return key_entry_refuse(at, field->name, want);
}

static bool bool_read(const struct key_file_entry *at, const struct key_field *field,
                      const json_t *value, struct api_key_settings *settings)
{
    if (!json_is_boolean(value))
        return key_entry_refuse(at, field->name, "true or false");
    *(bool *)((char *)settings + field->offset) = json_is_true(value);
    return true;
}

/* NAME_PATTERN says the same. */
static bool name_read(const struct key_file_entry *at, const struct key_field *field,
                      const json_t *value, struct api_key_settings *settings)
{
    const char *text = json_string_value(value);
    size_t length = text != NULL ? strlen(text) : 0;
    bool good = length > 0 && length < field->bytes;
    for (size_t i = 0; good && i < length; i++)
        good = text[i] > ' ' && text[i] < 127 && text[i] != '"' && text[i] != '\\';
    if (!good)
        return key_entry_refuse(at, field->name,
                                "a name of 1 to 63 letters, digits and signs, without spaces");
    memcpy((char *)settings + field->offset, text, length + 1);
    return true;
}

/* KEY_PATTERN says the same. */
static bool key_read(const struct key_file_entry *at, const json_t *value, uint8_t *hash_out)
{
    const char *text = json_string_value(value);
    size_t length = text != NULL ? strlen(text) : 0;
    bool good = length >= KEY_BYTES_MIN && length <= KEY_BYTES_MAX;
    for (size_t i = 0; good && i < length; i++)
        good = text[i] > ' ' && text[i] < 127;
    if (!good)
        return key_entry_refuse(at, "key", "16 to 512 letters, digits and signs, without spaces");
    secret_hash(text, length, hash_out);
    return true;
}

static bool sha256_read(const struct key_file_entry *at, const json_t *value, uint8_t *hash_out)
{
    const char *text = json_string_value(value);
    bool good = text != NULL && strlen(text) == 2 * SECRET_HASH_BYTES;
    for (size_t i = 0; good && i < SECRET_HASH_BYTES; i++) {
        int high = hex_digit_value(text[2 * i]);
        int low = hex_digit_value(text[2 * i + 1]);
        good = high >= 0 && low >= 0;
        hash_out[i] = (uint8_t)(high * 16 + low);
    }
    return good || key_entry_refuse(at, "sha256", "64 hexadecimal digits");
}

/* Reads a secret or a list of secrets. */
static bool secrets_read(const struct key_file_entry *at, const json_t *value,
                         struct key_secrets *out,
                         bool (*read)(const struct key_file_entry *, const json_t *, uint8_t *))
{
    const json_t *const one[] = {value};
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count == 0 || count > API_KEY_SECRETS - out->count)
        return key_entry_refuse(at, "key", "one or two secrets, as key, sha256 or lists of them");
    for (size_t i = 0; i < count; i++) {
        const json_t *each = json_is_array(value) ? json_array_get(value, i) : one[i];
        if (!read(at, each, out->hashes[out->count]))
            return false;
        for (uint32_t k = 0; k < out->count; k++)
            if (secret_bytes_equal(out->hashes[k], out->hashes[out->count], SECRET_HASH_BYTES))
                return key_entry_refuse(at, "key", "two different secrets");
        out->count++;
    }
    return true;
}

static bool date_read(const struct key_file_entry *at, const struct key_field *field,
                      const json_t *value, struct api_key_settings *settings)
{
    const char *text = json_string_value(value);
    int64_t *out = (int64_t *)((char *)settings + field->offset);
    if (text != NULL && date_parse(text, out) && *out > 0)
        return true;
    return key_entry_refuse(at, field->name, "a date and time such as \"2027-01-31T18:00:00Z\"");
}

static bool field_refuse(const struct key_file_entry *at, const char *name)
{
    char shown[32], want[256] = "one of ";
    size_t used = strlen(want);
    snprintf(shown, sizeof(shown), "%.24s", name);
    for (size_t i = 0; i < FIELD_COUNT; i++)
        used += (size_t)snprintf(want + used, sizeof(want) - used, "%s%s", i > 0 ? ", " : "",
                                 fields[i].name);
    return key_entry_refuse(at, shown, want);
}

void key_settings_init(struct api_key_settings *settings)
{
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (fields[i].type == FIELD_WHOLE)
            whole_store(&fields[i], fields[i].standard, settings);
}

bool key_field_read(const struct key_file_entry *at, const char *name, const json_t *value,
                    struct api_key_settings *settings, struct key_secrets *secrets)
{
    const struct key_field *field = fields;
    while (field < fields + FIELD_COUNT && strcmp(field->name, name) != 0)
        field++;
    if (field == fields + FIELD_COUNT)
        return field_refuse(at, name);
    switch (field->type) {
    case FIELD_NAME:
        return name_read(at, field, value, settings);
    case FIELD_KEY:
        return secrets_read(at, value, secrets, key_read);
    case FIELD_SHA256:
        return secrets_read(at, value, secrets, sha256_read);
    case FIELD_DATE:
        return date_read(at, field, value, settings);
    case FIELD_WHOLE:
        return whole_read(at, field, value, settings);
    case FIELD_BOOL:
        break;
    }
    return bool_read(at, field, value, settings);
}

/* ---- the JSON Schema ---- */

#define NAME_PATTERN   "^[!#-\\[\\]-~]{1,63}$"
#define KEY_PATTERN    "^[!-~]{16,512}$"
#define SHA256_PATTERN "^[0-9a-fA-F]{64}$"
#define DATE_PATTERN                                                                               \
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?"                       \
    "([Zz]|[+-][0-9]{2}:[0-9]{2})$"
_Static_assert(LIMIT_KEY_NAME_BYTES == 64 && KEY_BYTES_MIN == 16 && KEY_BYTES_MAX == 512,
               "the patterns have these sizes");

static json_t *text_schema(const char *pattern)
{
    return json_pack("{s:s, s:s}", "type", "string", "pattern", pattern);
}

static json_t *secrets_schema(const char *pattern)
{
    return json_pack("{s:[o, {s:s, s:i, s:i, s:o}]}", "anyOf", text_schema(pattern), "type",
                     "array", "minItems", 1, "maxItems", API_KEY_SECRETS, "items",
                     text_schema(pattern));
}

static json_t *field_schema(const struct key_field *field)
{
    switch (field->type) {
    case FIELD_NAME:
        return text_schema(NAME_PATTERN);
    case FIELD_KEY:
        return secrets_schema(KEY_PATTERN);
    case FIELD_SHA256:
        return secrets_schema(SHA256_PATTERN);
    case FIELD_DATE:
        return text_schema(DATE_PATTERN);
    case FIELD_WHOLE:
        return json_pack("{s:s, s:I, s:I, s:I}", "type", "integer", "minimum",
                         (json_int_t)field->least, "maximum", (json_int_t)field->most, "default",
                         (json_int_t)field->standard);
    case FIELD_BOOL:
        break;
    }
    return json_pack("{s:s, s:b}", "type", "boolean", "default", 0);
}

bool api_keys_print_schema(FILE *file)
{
    json_t *properties = json_object();
    bool complete = true;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        json_t *schema = field_schema(&fields[i]);
        if (json_object_set_new(schema, "description", json_string(fields[i].help)) != 0 ||
            json_object_set(properties, fields[i].name, schema) != 0)
            complete = false;
        json_decref(schema);
    }
    json_t *entry = json_pack("{s:s, s:[s], s:[{s:[s]}, {s:[s]}], s:b, s:o}", "type", "object",
                              "required", "name", "anyOf", "required", "key", "required", "sha256",
                              "additionalProperties", 0, "properties", properties);
    json_t *root = json_pack(
        "{s:s, s:s, s:s, s:[s], s:b, s:{s:{s:s}, s:{s:s, s:i, s:i, s:o}}}", "$schema",
        "http://json-schema.org/draft-07/schema#", "title", "cleave: API keys", "type", "object",
        "required", "keys", "additionalProperties", 0, "properties", "$schema", "type", "string",
        "keys", "type", "array", "minItems", 1, "maxItems", LIMIT_API_KEYS, "items", entry);
    bool good = complete && root != NULL && json_dumpf(root, file, JSON_INDENT(1)) == 0 &&
                fputc('\n', file) != EOF;
    json_decref(root);
    return good;
}
