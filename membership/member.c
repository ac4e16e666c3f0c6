/* member: see the header. */
#include "membership/member.h"

#include "common/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void member_key(const char *prefix, const char *name, char out[MEMBER_KEY_BYTES])
{
    snprintf(out, MEMBER_KEY_BYTES, "%.256smachines/%s", prefix, name);
}

char *member_encode(const struct member *member)
{
    char metadata[17];
    char model[DIGEST_TEXT_BYTES];
    digest_write(&member->model_hash, model, sizeof(model));
    snprintf(metadata, sizeof(metadata), "%016" PRIx64, member->metadata_hash);
    json_t *value =
        json_pack("{s:s, s:s, s:s, s:s}", "address", member->address, "pool",
                  pool_name(member->pool), "metadata_hash", metadata, "model_hash", model);
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    return text;
}

static bool hash_read(const json_t *root, const char *key, uint64_t *out)
{
    char *end;
    const char *text = json_string_value(json_object_get(root, key));
    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *out = strtoull(text, &end, 16);
    return true;
}

static bool digest_read(const json_t *root, const char *key, struct digest *out)
{
    const char *text = json_string_value(json_object_get(root, key));
    size_t digits = 2 * sizeof(out->bytes);
    if (text == NULL || strlen(text) != digits || strspn(text, "0123456789abcdef") != digits)
        return false;
    for (size_t i = 0; i < sizeof(out->bytes); i++)
        sscanf(text + 2 * i, "%2hhx", &out->bytes[i]);
    return true;
}

static bool pool_read(const json_t *root, enum pool *out)
{
    return pool_by_name(json_string_value(json_object_get(root, "pool")), out);
}

static bool address_read(const json_t *root, char out[LIMIT_ADDRESS_BYTES])
{
    const char *text = json_string_value(json_object_get(root, "address"));
    const char *colon = text != NULL ? strrchr(text, ':') : NULL;
    if (colon == NULL || colon == text || strlen(text) >= LIMIT_ADDRESS_BYTES)
        return false;
    size_t digits = strspn(colon + 1, "0123456789");
    long port = digits > 0 && digits <= 5 ? strtol(colon + 1, NULL, 10) : 0;
    if (colon[1 + digits] != 0 || port < 1 || port > 65535)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static enum status fields_read(const json_t *root, struct member *out, struct error *error)
{
    if (!json_is_object(root))
        return error_set(error, ST_INVALID, "want a JSON object");
    if (!address_read(root, out->address))
        return error_set(error, ST_INVALID, "address: want HOST:PORT");
    if (!pool_read(root, &out->pool))
        return error_set(error, ST_INVALID, "pool: want prompt, token or mixed");
    if (!hash_read(root, "metadata_hash", &out->metadata_hash) ||
        !digest_read(root, "model_hash", &out->model_hash))
        return error_set(error, ST_INVALID,
                         "metadata_hash, model_hash: want 16 and 64 hexadecimal digits");
    return ST_OK;
}

enum status member_decode(const char *name, const char *value, struct member *out,
                          struct error *error)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    struct member member = {.pool = POOL_PROMPT};
    json_error_t json_error;
    size_t length = strlen(name);
    if (length == 0 || length >= LIMIT_NAME_BYTES || strspn(name, good) != length)
        return error_set(error, ST_INVALID,
                         "want a name of at most %d letters, digits, dots, "
                         "dashes at the end of the key",
                         LIMIT_NAME_BYTES - 1);
    memcpy(member.name, name, length + 1);
    json_t *root;
    enum status status = json_text_load(value, strlen(value), 0, &root, &json_error);
    if (status == ST_NO_MEMORY)
        return error_set(error, status, "out of memory");
    status = fields_read(root, &member, error);
    json_decref(root);
    if (status == ST_OK)
        *out = member;
    return status;
}
