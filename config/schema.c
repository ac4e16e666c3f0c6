/* config_schema: the table of keys as a JSON Schema (draft 7), for editors that complete and
 * check config files. It describes single values: what depends on several keys, only the parser
 * checks. */
#include "config/table.h"

#include <assert.h>
#include <string.h>

/* All functions return a new reference, or NULL if there is no memory, which the functions of
 * jansson that take the reference pass on. */

static json_t *integer_schema(const struct config_key *key)
{
    json_t *schema = json_pack("{s:s, s:I, s:I}", "type", "integer", "minimum",
                               (json_int_t)key->minimum, "maximum", (json_int_t)key->maximum);
    if (key->step == 0 || json_object_set_new(schema, "multipleOf", json_integer(key->step)) == 0)
        return schema;
    json_decref(schema);
    return NULL;
}

static json_t *choices_schema(const char *choices)
{
    json_t *list = json_array();
    for (const char *at = choices; *at != 0;) {
        size_t length = strcspn(at, " ");
        if (json_array_append_new(list, json_stringn(at, length)) != 0) {
            json_decref(list);
            return NULL;
        }
        at += length + (at[length] == ' ');
    }
    return json_pack("{s:o}", "enum", list);
}

static json_t *either(json_t *one, json_t *other)
{
    return json_pack("{s:[o, o]}", "anyOf", one, other);
}

static json_t *value_schema(const struct config_key *key)
{
    switch (key->type) {
    case CONFIG_STRING:
        return json_pack("{s:s, s:I, s:I}", "type", "string", "minLength", (json_int_t)key->minimum,
                         "maxLength", (json_int_t)key->maximum);
    case CONFIG_ADDRESS:
        return json_pack("{s:s, s:s}", "type", "string", "pattern", "^(.+:[0-9]+)?$");
    case CONFIG_CHOICE:
        return choices_schema(key->choices);
    case CONFIG_WHOLE:
        return key->accepts_auto ? either(choices_schema("auto"), integer_schema(key))
                                 : integer_schema(key);
    case CONFIG_BYTES:
        return either(integer_schema(key),
                      json_pack("{s:s, s:s}", "type", "string", "pattern", "^[0-9]+([KMGT]iB)?$"));
    case CONFIG_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case CONFIG_DEVICE:
        return json_pack("{s:s, s:s}", "type", "string", "pattern", "^(cpu|cuda:[0-9]+|wait:.*)$");
    case CONFIG_STAGES:
        return either(json_pack("{s:s, s:i, s:i}", "type", "integer", "minimum", 1, "maximum",
                                LIMIT_STAGE_PROCESSES),
                      json_pack("{s:s}", "type", "array"));
    case CONFIG_POOL:
        return either(integer_schema(key),
                      json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "string"));
    }
    assert(false && "a type of the table");
    return NULL;
}

/* Returns the object of properties for a section below `root`, a schema of an object; NULL = no
 * memory. */
static json_t *section_of(json_t *root, const char *path)
{
    char section[CONFIG_KEY_BYTES];
    json_t *properties = json_object_get(root, "properties");
    if (strchr(path, '/') == NULL)
        return properties;
    config_section_of(path, section);
    const bool machine = strcmp(section, "machines") == 0;
    for (char *rest = section, *part; (part = strsep(&rest, "/")) != NULL;) {
        json_t *object = json_object_get(properties, part);
        if (object == NULL) {
            object = json_pack("{s:s, s:{}, s:b}", "type", "object", "properties",
                               "additionalProperties", 0);
            if (machine)
                object = json_pack("{s:s, s:o}", "type", "object", "additionalProperties", object);
            if (json_object_set_new(properties, part, object) != 0)
                return NULL;
        }
        if (machine)
            object = json_object_get(object, "additionalProperties");
        properties = json_object_get(object, "properties");
    }
    return properties;
}

static bool key_add(json_t *root, const struct config_key *key, const char *path,
                    const char *description)
{
    const char *slash = strrchr(path, '/');
    json_t *schema = value_schema(key);
    bool good =
        json_object_set_new(schema, "description", json_string(description)) == 0 &&
        (key->default_text == NULL ||
         json_object_set_new(schema, "default", config_value_from_text(key, key->default_text)) ==
             0) &&
        json_object_set(section_of(root, path), slash != NULL ? slash + 1 : path, schema) == 0;
    json_decref(schema);
    return good;
}

bool config_print_schema(FILE *file)
{
    char renamed[CONFIG_KEY_BYTES + 32];
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:{s:{s:s}}, s:b}", "$schema",
                  "http://json-schema.org/draft-07/schema#", "title", "cleave: a cluster", "type",
                  "object", "properties", "$schema", "type", "string", "additionalProperties", 0);
    bool good = root != NULL;
    for (size_t i = 0; good && i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        good = key_add(root, key, key->path, key->help);
        if (good && key->old_path != NULL) {
            snprintf(renamed, sizeof(renamed), "Older name of %s.", key->path);
            good = key_add(root, key, key->old_path, renamed);
        }
    }
    good = good && json_dumpf(root, file, JSON_INDENT(1)) == 0 && fputc('\n', file) != EOF;
    json_decref(root);
    return good;
}
