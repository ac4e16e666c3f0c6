/* secret_keys: see the header. */
#include "common/secret_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES_MIN      32
#define HEX_DIGITS_MIN     64 /* 32 bytes. */
#define BASE64_CHARACTERS  44 /* 32 bytes. Tools that wrap base64 make no such first line. */
#define KEY_FILE_BYTES_MAX 4096
#define ID_LABEL           "cleave cluster key id, 1"

struct line {
    const char *text;
    size_t bytes; /* Without white space at its end. */
    uint32_t number;
};

static void key_make(const char *text, size_t bytes, struct secret_key *out)
{
    uint8_t id[SECRET_HASH_BYTES];
    const struct secret_piece label = {ID_LABEL, sizeof(ID_LABEL)};
    if (text != NULL)
        secret_hash(text, bytes, out->bytes);
    secret_mac(out->bytes, sizeof(out->bytes), &label, 1, id);
    memcpy(out->id, id, sizeof(out->id));
}

void secret_keys_set(struct secret_keys *out, const uint8_t key[SECRET_HASH_BYTES])
{
    memset(out, 0, sizeof(*out));
    out->count = 1;
    memcpy(out->keys[0].bytes, key, SECRET_HASH_BYTES);
    key_make(NULL, 0, &out->keys[0]);
}

static size_t trimmed(const char *text, size_t bytes)
{
    while (bytes > 0 && text[bytes - 1] != 0 && strchr(" \t\r\n", text[bytes - 1]) != NULL)
        bytes--;
    return bytes;
}

/* Finds the next line that is not empty. Returns false at the end. */
static bool line_next(const char **at, const char *end, struct line *line)
{
    while (*at < end) {
        const char *newline = memchr(*at, '\n', (size_t)(end - *at));
        const char *stop = newline != NULL ? newline : end;
        line->text = *at;
        line->bytes = trimmed(*at, (size_t)(stop - *at));
        line->number++;
        *at = newline != NULL ? newline + 1 : end;
        if (line->bytes > 0)
            return true;
    }
    return false;
}

static size_t span(const struct line *line, const char *characters)
{
    size_t length = 0;
    while (length < line->bytes && line->text[length] != 0 &&
           strchr(characters, line->text[length]) != NULL)
        length++;
    return length;
}

static bool is_key(const struct line *line)
{
    static const char base64[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/-_";
    if (line->bytes >= HEX_DIGITS_MIN && line->bytes % 2 == 0 &&
        span(line, "0123456789abcdefABCDEF") == line->bytes)
        return true;
    return line->bytes == BASE64_CHARACTERS && span(line, base64) == BASE64_CHARACTERS - 1 &&
           line->text[BASE64_CHARACTERS - 1] == '=';
}

static enum status line_add(const struct line *line, const char *path, struct secret_keys *out,
                            struct error *error)
{
    if (!is_key(line))
        return error_set(error, ST_INVALID,
                         "%s:%u: not a key as in the first line: want %d or more hexadecimal "
                         "digits (openssl rand -hex 32), or %d characters of base64",
                         path, line->number, HEX_DIGITS_MIN, BASE64_CHARACTERS);
    if (out->count == SECRET_KEYS_MAX)
        return error_set(error, ST_TOO_LARGE, "%s:%u: more than %d keys", path, line->number,
                         SECRET_KEYS_MAX);
    struct secret_key *key = &out->keys[out->count];
    key_make(line->text, line->bytes, key);
    if (secret_keys_find(out, key->id) != NULL)
        return error_set(error, ST_INVALID, "%s:%u: this key is there twice", path, line->number);
    out->count++;
    return ST_OK;
}

enum status secret_keys_parse(const char *text, size_t bytes, const char *path,
                              struct secret_keys *out, struct error *error)
{
    struct secret_keys found = {.count = 0};
    struct line line = {.number = 0};
    const char *at = text;
    enum status status = ST_OK;
    bool more = line_next(&at, text + bytes, &line);
    if (more && is_key(&line)) {
        for (; more && status == ST_OK; more = line_next(&at, text + bytes, &line))
            status = line_add(&line, path, &found, error);
    } else {
        size_t used = trimmed(text, bytes);
        if (used < KEY_BYTES_MIN)
            return error_set(error, ST_INVALID,
                             "%s: %zu bytes: want a key of at least %d (openssl rand -hex 32 > %s)",
                             path, used, KEY_BYTES_MIN, path);
        key_make(text, used, &found.keys[0]);
        found.count = 1;
    }
    if (status == ST_OK)
        *out = found;
    secret_wipe(&found, sizeof(found));
    return status;
}

enum status secret_keys_read(const char *path, struct secret_keys *out, struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    enum status status = secret_file_read(path, KEY_FILE_BYTES_MAX, &text, &bytes, error);
    if (status != ST_OK)
        return status;
    status = secret_keys_parse(text, bytes, path, out, error);
    secret_wipe(text, bytes);
    free(text);
    return status;
}

enum status secret_keys_read_again(const char *path, const struct secret_keys *present,
                                   struct secret_keys *out, struct error *error)
{
    char ids[SECRET_KEYS_TEXT_BYTES];
    struct secret_keys found;
    enum status status = secret_keys_read(path, &found, error);
    if (status != ST_OK)
        return status;
    bool common = false;
    for (uint32_t i = 0; i < found.count; i++)
        common |= secret_keys_find(present, found.keys[i].id) != NULL;
    if (common) {
        *out = found;
    } else {
        secret_keys_text(present, ids);
        status = error_set(error, ST_INVALID,
                           "%s: none of the keys in use (%s) is there: want one of them beside a "
                           "new key until every process has the new key, or restart all processes",
                           path, ids);
    }
    secret_wipe(&found, sizeof(found));
    return status;
}

const struct secret_key *secret_keys_find(const struct secret_keys *keys,
                                          const uint8_t id[SECRET_KEY_ID_BYTES])
{
    const struct secret_key *found = NULL;
    /* All keys are compared, so that the time does not show which one matches. */
    for (uint32_t i = 0; i < keys->count; i++)
        if (secret_bytes_equal(keys->keys[i].id, id, SECRET_KEY_ID_BYTES))
            found = &keys->keys[i];
    return found;
}

bool secret_keys_equal(const struct secret_keys *a, const struct secret_keys *b)
{
    bool equal = a->count == b->count;
    for (uint32_t i = 0; i < a->count && equal; i++)
        equal = secret_bytes_equal(a->keys[i].id, b->keys[i].id, SECRET_KEY_ID_BYTES);
    return equal;
}

void secret_keys_text(const struct secret_keys *keys, char out[SECRET_KEYS_TEXT_BYTES])
{
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < keys->count; i++) {
        used += (size_t)snprintf(out + used, SECRET_KEYS_TEXT_BYTES - used, "%s",
                                 i == 0   ? ""
                                 : i == 1 ? ", also "
                                          : ", ");
        for (size_t b = 0; b < SECRET_KEY_ID_BYTES; b++)
            used += (size_t)snprintf(out + used, SECRET_KEYS_TEXT_BYTES - used, "%02x",
                                     keys->keys[i].id[b]);
    }
}
