/* fuzz_secret_keys: a key file with any bytes gives keys that all differ, or an error that names
 * the file and does not show the file's content. */
#include "common/secret_keys.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct secret_keys keys = {.count = 99};
    struct error error = {""};
    char text[SECRET_KEYS_TEXT_BYTES];
    char *copy = fuzz_copy(data, size);
    enum status status = secret_keys_parse(copy, size, "the-file", &keys, &error);
    if (status == ST_OK) {
        CHECK(keys.count >= 1 && keys.count <= SECRET_KEYS_MAX);
        for (uint32_t i = 0; i < keys.count; i++)
            CHECK(secret_keys_find(&keys, keys.keys[i].id) == &keys.keys[i]);
        CHECK(secret_keys_equal(&keys, &keys));
        secret_keys_text(&keys, text);
        CHECK(strnlen(text, sizeof(text)) < sizeof(text));
    } else {
        CHECK(status == ST_INVALID || status == ST_TOO_LARGE);
        CHECK(strncmp(error.text, "the-file", 8) == 0);
    }
    free(copy);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
#define HEX32 "0123456789abcdef0123456789ABCDEF"
    static const char *const seeds[] = {
        HEX32 HEX32 "\n",
        "f" HEX32 HEX32 "0\r\n\n" HEX32 HEX32 " \n",
        "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789+/-_AbC=\n" HEX32 HEX32 HEX32,
        "any bytes, if there are at least thirty-two of them\n",
        "too short",
        HEX32 HEX32 "\nno key\n",
    };
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}
