/* config_value: checks one value against its key (type, range, syntax), and converts it back to
 * JSON. */
#include "common/device_name.h"
#include "common/json.h"
#include "config/table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *unit;
    unsigned shift;
} units[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};

/* Writes 1048576 as "1MiB": in the largest unit without a remainder. */
static void bytes_format(uint64_t bytes, char *out, size_t size)
{
    for (size_t i = 0; bytes > 0 && i < sizeof(units) / sizeof(units[0]); i++) {
        if (bytes % (1ull << units[i].shift) == 0) {
            snprintf(out, size, "%" PRIu64 "%s", bytes >> units[i].shift, units[i].unit);
            return;
        }
    }
    snprintf(out, size, "%" PRIu64, bytes);
}

/* Accepts digits, optionally followed by a unit. */
static bool bytes_parse(const char *text, uint64_t *out)
{
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (number > UINT64_MAX / 10 - 1)
            return false;
        number = number * 10 + (uint64_t)(*at - '0');
    }
    if (at == text)
        return false;
    unsigned shift = 0;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(at, units[i].unit) == 0)
            shift = units[i].shift;
    }
    if ((*at != 0 && shift == 0) || number > UINT64_MAX >> shift)
        return false;
    *out = number << shift;
    return true;
}

static bool port_good(const char *text, uint64_t minimum)
{
    unsigned port = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits] != 0)
        return false;
    for (size_t i = 0; i < digits; i++)
        port = port * 10 + (unsigned)(text[i] - '0');
    return port >= minimum && port <= 65535;
}

#define HOST_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

/* Accepts HOST:PORT or [IPv6]:PORT. Whether the host exists is not checked. */
static bool address_good(const char *text, uint64_t port_minimum)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text || strlen(text) >= LIMIT_ADDRESS_BYTES)
        return false;
    size_t host = (size_t)(colon - text);
    if (!port_good(colon + 1, port_minimum))
        return false;
    if (text[0] != '[')
        return strspn(text, HOST_CHARACTERS) == host;
    size_t inside = strspn(text + 1, HOST_CHARACTERS ":%");
    return inside > 1 && inside + 2 == host && text[host - 1] == ']';
}

static bool choice_good(const char *choices, const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || strchr(text, ' ') != NULL)
        return false;
    for (const char *at = choices; *at != 0; at += strspn(at, " ")) {
        size_t one = strcspn(at, " ");
        if (one == length && strncmp(at, text, length) == 0)
            return true;
        at += one;
    }
    return false;
}

/* Formats `i16 f16 f32 i8` as `"i16" or "f16" or …`. */
static void choices_format(const char *choices, char *out, size_t size)
{
    size_t used = 0;
    for (const char *at = choices; *at != 0; at += strspn(at, " ")) {
        int one = (int)strcspn(at, " ");
        used += (size_t)snprintf(out + used, size - used, "%s\"%.*s\"", at == choices ? "" : " or ",
                                 one, at);
        assert(used < size);
        at += one;
    }
}

void config_value_describe(const struct config_key *key, char *out, size_t bytes)
{
    char low[32];
    char high[32];
    switch (key->type) {
    case CONFIG_STRING:
        snprintf(out, bytes, "a text of %s %" PRIu64 " bytes",
                 key->minimum > 0 ? "1 to" : "at most", key->maximum);
        return;
    case CONFIG_ADDRESS:
        snprintf(out, bytes, "HOST:PORT, such as \"127.0.0.1:8080\"");
        return;
    case CONFIG_CHOICE:
        choices_format(key->choices, out, bytes);
        return;
    case CONFIG_DEVICE:
        snprintf(out, bytes, "\"cpu\", \"cuda:N\" or \"wait:LAYER_US+ROW_US\"");
        return;
    case CONFIG_STAGES:
        snprintf(out, bytes, "a whole number from 1 to %d, or a list of stages",
                 LIMIT_STAGE_PROCESSES);
        return;
    case CONFIG_WHOLE:
        if (key->step > 0)
            snprintf(out, bytes, "a whole number from %" PRIu64 " to %" PRIu64 ", a multiple of %u",
                     key->minimum, key->maximum, key->step);
        else
            snprintf(out, bytes, "%sa whole number from %" PRIu64 " to %" PRIu64,
                     key->accepts_auto ? "\"auto\" or " : "", key->minimum, key->maximum);
        return;
    case CONFIG_BYTES:
        bytes_format(key->minimum, low, sizeof(low));
        bytes_format(key->maximum, high, sizeof(high));
        snprintf(out, bytes, "a size from %s to %s, such as \"512MiB\"", low, high);
        return;
    case CONFIG_BOOL:
        snprintf(out, bytes, "true or false");
        return;
    case CONFIG_POOL:
        snprintf(out, bytes, "a whole number from %" PRIu64 " to %" PRIu64 ", or a list of names",
                 key->minimum, key->maximum);
        return;
    }
}

static bool value_refuse(const struct config_key *key, const char *path, const json_t *value,
                         struct config_fault *fault)
{
    char want[128];
    config_value_describe(key, want, sizeof(want));
    return config_fault_value(fault, path, value, "want %s", want);
}

static bool text_printable(const char *text)
{
    for (; *text != 0; text++) {
        if ((unsigned char)*text < ' ' || *text == 127)
            return false;
    }
    return true;
}

static bool text_good(const struct config_key *key, const char *text)
{
    if (!text_printable(text))
        return false;
    if (key->type == CONFIG_ADDRESS)
        return address_good(text, key->minimum);
    if (key->type == CONFIG_CHOICE)
        return choice_good(key->choices, text);
    if (key->type == CONFIG_DEVICE)
        return strcmp(text, "cpu") == 0 || device_name_gpu(text, NULL) ||
               (strncmp(text, "wait:", 5) == 0 && strlen(text) < 32);
    return strlen(text) >= key->minimum && strlen(text) <= key->maximum;
}

static bool number_good(const struct config_key *key, uint64_t number)
{
    return number >= key->minimum && number <= key->maximum &&
           (key->step == 0 || number % key->step == 0);
}

bool config_value_set(const struct config_key *key, void *base, const char *path,
                      const json_t *value, struct config_fault *fault)
{
    char *field = (char *)base + key->offset;
    const char *text = json_string_value(value); /* NULL if it is not a string. */
    uint64_t number = 0;
    bool is_number = json_is_integer(value) && json_integer_value(value) >= 0;
    if (is_number)
        number = (uint64_t)json_integer_value(value);
    switch (key->type) {
    case CONFIG_STRING:
    case CONFIG_ADDRESS:
    case CONFIG_CHOICE:
    case CONFIG_DEVICE:
        if (text == NULL || !text_good(key, text))
            return value_refuse(key, path, value, fault);
        memcpy(field, text, strlen(text) + 1); /* text_good has checked that it fits. */
        return true;
    case CONFIG_BYTES:
        if (!is_number && (text == NULL || !bytes_parse(text, &number)))
            return value_refuse(key, path, value, fault);
        if (!number_good(key, number))
            return value_refuse(key, path, value, fault);
        *(uint64_t *)(void *)field = number;
        return true;
    case CONFIG_WHOLE:
        if (key->accepts_auto && json_is_string(value) &&
            strcmp(json_string_value(value), "auto") == 0) {
            *(uint32_t *)(void *)field = CONFIG_AUTO;
            return true;
        }
        if (!is_number || !number_good(key, number))
            return value_refuse(key, path, value, fault);
        *(uint32_t *)(void *)field = (uint32_t)number;
        return true;
    case CONFIG_BOOL:
        if (!json_is_boolean(value))
            return value_refuse(key, path, value, fault);
        *(bool *)(void *)field = json_is_true(value);
        return true;
    case CONFIG_STAGES:
        return config_stages_set(base, path, value, fault);
    case CONFIG_POOL:
        break; /* config_pool_set sets pools. */
    }
    assert(false && "a pool is not a field");
    return false;
}

bool config_value_absent(const struct config_key *key, const void *base)
{
    const char *field = (const char *)base + key->offset;
    switch (key->type) {
    case CONFIG_STRING:
    case CONFIG_ADDRESS:
    case CONFIG_CHOICE:
    case CONFIG_DEVICE:
        return field[0] == 0 && (key->type != CONFIG_STRING || key->minimum > 0);
    case CONFIG_STAGES:
        return ((const struct config_machine *)base)->stages[0] == 0;
    case CONFIG_WHOLE:
    case CONFIG_BYTES:
    case CONFIG_BOOL:
        return false;
    case CONFIG_POOL:
        break;
    }
    return true;
}

json_t *config_value_get(const struct config_key *key, const void *base)
{
    const char *field = (const char *)base + key->offset;
    char text[32];
    if (config_value_absent(key, base))
        return NULL;
    switch (key->type) {
    case CONFIG_STRING:
    case CONFIG_ADDRESS:
    case CONFIG_CHOICE:
    case CONFIG_DEVICE:
        return json_string(field);
    case CONFIG_BYTES:
        bytes_format(*(const uint64_t *)(const void *)field, text, sizeof(text));
        return json_string(text);
    case CONFIG_WHOLE:
        if (key->accepts_auto && *(const uint32_t *)(const void *)field == CONFIG_AUTO)
            return json_string("auto");
        return json_integer(*(const uint32_t *)(const void *)field);
    case CONFIG_BOOL:
        return json_boolean(*(const bool *)(const void *)field);
    case CONFIG_STAGES:
        return config_stages_json(base);
    case CONFIG_POOL:
        break;
    }
    return NULL;
}

/* "p0,p1" as a JSON list. */
static json_t *list_from_text(const char *text)
{
    json_t *list = json_array();
    if (list == NULL)
        return NULL;
    for (;;) {
        size_t length = strcspn(text, ",");
        if (json_array_append_new(list, json_stringn(text, length)) != 0) {
            json_decref(list);
            return NULL;
        }
        if (text[length] == 0)
            return list;
        text += length + 1;
    }
}

json_t *config_value_from_text(const struct config_key *key, const char *text)
{
    bool takes_number =
        key->type == CONFIG_WHOLE || key->type == CONFIG_POOL || key->type == CONFIG_STAGES;
    size_t digits = strspn(text, "0123456789");
    if (takes_number && digits > 0 && digits < 18 && text[digits] == 0)
        return json_integer(strtoll(text, NULL, 10));
    if (key->type == CONFIG_POOL)
        return list_from_text(text);
    if (key->type == CONFIG_STAGES) {
        json_error_t why;
        json_t *list;
        enum status status = json_text_load(text, strlen(text), 0, &list, &why);
        return status == ST_INVALID ? json_string(text) : list;
    }
    if (key->type == CONFIG_BOOL && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0))
        return json_boolean(text[0] == 't');
    return json_string(text);
}
