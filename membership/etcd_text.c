/* etcd_text_decode: the texts and numbers in etcd's JSON; see etcd.h. */
#include "membership/etcd.h"

#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>

json_t *etcd_text_encode(const char *text, size_t bytes)
{
    gnutls_datum_t from = {.data = (unsigned char *)text, .size = (unsigned)bytes};
    gnutls_datum_t to;
    if (gnutls_base64_encode2(&from, &to) != 0)
        return NULL;
    json_t *value = json_stringn((const char *)to.data, to.size);
    gnutls_free(to.data);
    return value;
}

char *etcd_text_decode(const json_t *value)
{
    if (!json_is_string(value))
        return NULL;
    gnutls_datum_t from = {.data = (unsigned char *)json_string_value(value),
                           .size = (unsigned)json_string_length(value)};
    gnutls_datum_t to = {0};
    if (from.size > 0 && gnutls_base64_decode2(&from, &to) != 0)
        return NULL;
    char *text = malloc(to.size + 1u);
    if (text != NULL && to.size > 0)
        memcpy(text, to.data, to.size);
    if (text != NULL)
        text[to.size] = 0;
    gnutls_free(to.data);
    return text;
}

int64_t etcd_number_read(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value))
        return json_integer_value(value);
    return json_is_string(value) ? strtoll(json_string_value(value), NULL, 10) : 0;
}
