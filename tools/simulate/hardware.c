/* hardware: see the header. */
#include "tools/simulate/hardware.h"

#include "common/json.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FIELD_LIST and FIELD_OBJECT record only that the key exists; tools/partition/cluster.c reads
 * them. */
enum field_type { FIELD_TEXT, FIELD_WHOLE, FIELD_COUNT, FIELD_REAL, FIELD_LIST, FIELD_OBJECT };

struct field {
    const char *name;
    enum field_type type;
    size_t offset;
    size_t bytes; /* Size of a text. */
};

#define TEXT(key, member)                                                                          \
    {                                                                                              \
        key, FIELD_TEXT, offsetof(struct hardware, member), sizeof(((struct hardware *)0)->member) \
    }
#define NUMBER(key, type, member)                                                                  \
    {                                                                                              \
        key, type, offsetof(struct hardware, member), 0                                            \
    }

static const struct field fields[] = {
    TEXT("name", name),
    TEXT("description", description),
    NUMBER("memory_bytes", FIELD_WHOLE, memory_bytes),
    NUMBER("kv_memory_bytes", FIELD_WHOLE, kv_memory_bytes),
    NUMBER("cost_per_hour", FIELD_REAL, cost_per_hour),
    NUMBER("power", FIELD_REAL, power),
    NUMBER("link_bytes_per_s", FIELD_REAL, link_bytes_per_s),
    TEXT("table", table_hardware),
    NUMBER("tensor_parallel", FIELD_COUNT, tensor_parallel),
    TEXT("device", device),
    NUMBER("threads", FIELD_COUNT, threads),
    TEXT("host", host),
    NUMBER("devices", FIELD_LIST, has_devices),
    NUMBER("links", FIELD_OBJECT, has_links),
    NUMBER("workspace_bytes", FIELD_WHOLE, workspace_bytes),
};

/* Returns NULL, or what was wanted if the value is wrong. */
static const char *field_set(const struct field *field, const json_t *value, struct hardware *out)
{
    char *at = (char *)out + field->offset;
    if (field->type == FIELD_TEXT) {
        if (!json_is_string(value) || json_string_length(value) >= field->bytes)
            return "a short text";
        memcpy(at, json_string_value(value), json_string_length(value) + 1);
        return NULL;
    }
    if (field->type == FIELD_LIST || field->type == FIELD_OBJECT) {
        if (field->type == FIELD_LIST ? !json_is_array(value) : !json_is_object(value))
            return field->type == FIELD_LIST ? "a list" : "an object";
        *(bool *)at = true;
        return NULL;
    }
    double number = json_number_value(value);
    if (!json_is_number(value) || !isfinite(number) || number < 0 || number > 1e18)
        return "a number from 0 on";
    if (field->type == FIELD_REAL) {
        memcpy(at, &number, sizeof(number));
        return NULL;
    }
    uint64_t whole = (uint64_t)json_integer_value(value);
    uint32_t count = (uint32_t)whole;
    if (!json_is_integer(value) || (field->type == FIELD_COUNT && count != whole))
        return "a whole number";
    if (field->type == FIELD_WHOLE)
        memcpy(at, &whole, sizeof(whole));
    else
        memcpy(at, &count, sizeof(count));
    return NULL;
}

/* The message quotes the value as JSON, at most 60 bytes of it. */
static enum status fault(const char *path, const char *key, const json_t *value, const char *wanted,
                         struct error *error)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    error_set(error, ST_INVALID, "%s: \"%s\" = %.60s: want %s", path, key,
              text != NULL ? text : "?", wanted);
    free(text);
    return ST_INVALID;
}

/* Returns true if the name can be used in the names of machines, i.e. follows the rules of a
 * config. */
static bool name_good(const char *name)
{
    return name[0] != 0 &&
           name[strspn(name,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")] == 0;
}

static enum status object_read(const char *path, json_t *object, struct hardware *out,
                               struct error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        size_t i = 0;
        while (i < sizeof(fields) / sizeof(fields[0]) && strcmp(fields[i].name, key) != 0)
            i++;
        if (i == sizeof(fields) / sizeof(fields[0]))
            return error_set(error, ST_INVALID, "%s: unknown key \"%s\"", path, key);
        const char *wanted = field_set(&fields[i], value, out);
        if (wanted != NULL)
            return fault(path, key, value, wanted, error);
    }
    if (out->name[0] == 0)
        return error_set(error, ST_INVALID, "%s: no \"name\"", path);
    if (!name_good(out->name))
        return fault(path, "name", json_object_get(object, "name"),
                     "letters, digits, dots, dashes and underscores", error);
    if ((out->table_hardware[0] != 0) + (out->device[0] != 0) + out->has_devices != 1)
        return error_set(error, ST_INVALID, "%s: want \"table\", \"device\" or \"devices\"", path);
    if (out->has_devices && (out->memory_bytes > 0 || out->threads > 0))
        return error_set(error, ST_INVALID,
                         "%s: \"%s\" beside \"devices\": each device has its own", path,
                         out->memory_bytes > 0 ? "memory_bytes" : "threads");
    if (out->has_devices && out->tensor_parallel > 0)
        return error_set(
            error, ST_INVALID,
            "%s: \"tensor_parallel\" beside \"devices\": the planner chooses the ranks", path);
    if (out->host[0] != 0 && out->device[0] == 0)
        return error_set(error, ST_INVALID, "%s: \"host\" without \"device\"", path);
    if (!out->has_devices && (out->has_links || out->workspace_bytes > 0))
        return error_set(error, ST_INVALID, "%s: \"%s\" without \"devices\"", path,
                         out->has_links ? "links" : "workspace_bytes");
    if (out->table_hardware[0] != 0 && (out->tensor_parallel == 0 || out->memory_bytes == 0))
        return error_set(error, ST_INVALID,
                         "%s: \"table\" wants \"tensor_parallel\" and \"memory_bytes\"", path);
    return ST_OK;
}

/* Writes the folder share/cleave/hardware of the installed program: that of <prefix>/bin/cleave is
 * <prefix>/share/cleave/hardware. Returns false if the program's path is unknown. */
static bool installed_folder(char out[LIMIT_PATH_BYTES])
{
    static const char inside[] = "/share/cleave/hardware";
    ssize_t bytes = readlink("/proc/self/exe", out, LIMIT_PATH_BYTES - sizeof(inside));
    for (int up = 0; up < 2 && bytes > 0; up++)
        while (bytes > 0 && out[--bytes] != '/')
            continue;
    if (bytes < 0)
        return false;
    memcpy(out + bytes, inside, sizeof(inside));
    return true;
}

void hardware_find(const char *path, char out[LIMIT_PATH_BYTES])
{
    char folder[LIMIT_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t bytes = strlen(name);
    const char *ending = bytes > 5 && strcmp(name + bytes - 5, ".json") == 0 ? "" : ".json";
    int length = -1;
    if (path[0] != '/' && access(path, F_OK) != 0 && installed_folder(folder))
        length = snprintf(out, LIMIT_PATH_BYTES, "%s/%s%s", folder, name, ending);
    if (length < 0 || length >= LIMIT_PATH_BYTES || access(out, F_OK) != 0)
        snprintf(out, LIMIT_PATH_BYTES, "%s", path);
}

enum status hardware_read(const char *path, struct hardware *out, struct error *error)
{
    json_error_t why;
    json_t *object;
    struct hardware read = {.name = ""};
    enum status status = json_file_load(path, JSON_REJECT_DUPLICATES, &object, &why);
    if (status == ST_INVALID)
        error_set(error, status, "%s:%d: %s", path, why.line, why.text);
    else if (status != ST_OK)
        error_set(error, status, "%s: %s", path, why.text);
    else if (!json_is_object(object))
        status = error_set(error, ST_INVALID, "%s: want an object", path);
    else
        status = object_read(path, object, &read, error);
    json_decref(object);
    if (status == ST_OK)
        *out = read;
    return status;
}
