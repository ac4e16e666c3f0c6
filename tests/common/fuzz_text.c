/* fuzz_text: any bytes become a JSON string that a JSON parser reads, with every valid character
 * unchanged; the check of UTF-8 agrees with the parser's own. Numbers are written as by printf. */
#include "common/text.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"

#include <jansson.h>

static void number_check(uint64_t number)
{
    struct text text = {0};
    char want[32];
    int bytes = snprintf(want, sizeof(want), "%llu", (unsigned long long)number);
    text_number_add(&text, number);
    CHECK(text.bytes == (size_t)bytes && memcmp(text.data, want, text.bytes) == 0);
    text_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text text = {0};
    char *copy = fuzz_copy(data, size);
    size_t valid = text_utf8_check(copy, size);
    CHECK(valid <= size);
    text_add_json_string(&text, copy, size);
    CHECK(!text.broken);
    json_error_t error;
    json_t *json = json_loadb(text.data, text.bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    CHECKF(json_is_string(json), "%.*s: %s", (int)text.bytes, text.data, error.text);
    CHECK(json_string_length(json) >= valid);
    CHECK(memcmp(json_string_value(json), copy, valid) == 0);
    if (valid == size)
        CHECK(json_string_length(json) == size);
    json_t *plain = json_stringn(copy, size);
    CHECK((plain != NULL) == (valid == size));
    json_decref(plain);
    json_decref(json);
    text_done(&text);
    uint64_t number = UINT64_MAX;
    number_check(number);
    memcpy(&number, copy, size < sizeof(number) ? size : sizeof(number));
    number_check(number);
    number_check(number >> (number % 64));
    number_check(0);
    free(copy);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {
        "plain \"quoted\" \\ \x01\x1f\x7f\n\t", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
        "\xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xf8\x88", "\xe2\x82", "\xef\xbf\xbd\xf0\x9f\x98"};
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}
