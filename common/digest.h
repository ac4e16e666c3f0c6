/* digest: a SHA-256 as a value, such as the digest of a model's files. Any folder may call the
 * functions, on any thread; they keep no state and read no files. They are not for secrets: the
 * time of digest_equal depends on the bytes. */
#ifndef COMMON_DIGEST_H
#define COMMON_DIGEST_H

#include "common/secret.h"

#include <string.h>

/* A SHA-256. All zeros = no digest. */
struct digest {
    uint8_t bytes[SECRET_HASH_BYTES];
};

#define DIGEST_TEXT_BYTES  (2 * SECRET_HASH_BYTES + 1) /* All digits, with a NUL. */
#define DIGEST_SHORT_BYTES 17                          /* 16 digits for messages, with a NUL. */

static inline bool digest_equal(const struct digest *a, const struct digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* Returns true if the digest is all zeros. */
static inline bool digest_is_none(const struct digest *d)
{
    static const struct digest none;
    return digest_equal(d, &none);
}

/* Writes the digest as hexadecimal digits with a NUL at the end, or as many of the first digits as
 * out[0..capacity) has room for. Requires an odd capacity. Returns `out`. */
static inline char *digest_write(const struct digest *d, char *out, size_t capacity)
{
    static const char digits[] = "0123456789abcdef";
    size_t count = capacity / 2 < sizeof(d->bytes) ? capacity / 2 : sizeof(d->bytes);
    for (size_t i = 0; i < count; i++) {
        out[2 * i] = digits[d->bytes[i] >> 4];
        out[2 * i + 1] = digits[d->bytes[i] & 15];
    }
    out[2 * count] = 0;
    return out;
}

/* Returns the value of the hexadecimal digit `c`, in lower case or upper case; -1 = `c` is no
 * hexadecimal digit. */
static inline int hex_digit_value(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != 0 ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* Adds data to *d. The new digest is the SHA-256 of 64 bytes: the old digest, followed by the
 * SHA-256 of the data. */
static inline void digest_add(struct digest *d, const void *data, size_t size)
{
    uint8_t pair[2 * SECRET_HASH_BYTES];
    memcpy(pair, d->bytes, SECRET_HASH_BYTES);
    secret_hash(data, size, pair + SECRET_HASH_BYTES);
    secret_hash(pair, sizeof(pair), d->bytes);
}

#endif
