/* fuzz_address: any text is an address with host and port, or an error. An accepted address is
 * read again from its parts; a numeric one has a socket address. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "transport/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct address address, again;
    struct address_found found;
    struct error error = {""};
    size_t bytes = size < 600 ? size : 600;
    char *text = malloc(bytes + 1); /* Of the exact size, for ASan. */
    CHECK(text != NULL);
    memcpy(text, data, bytes);
    text[bytes] = 0;
    if (address_parse(text, &address, &error) == ST_OK) {
        char joined[LIMIT_ADDRESS_BYTES + 16];
        bool v6 = strchr(address.host, ':') != NULL;
        CHECK(strlen(address.port) >= 1 && atoi(address.port) <= 65535);
        snprintf(joined, sizeof(joined), v6 ? "[%s]:%s" : "%s:%s", address.host, address.port);
        CHECKF(address_parse(joined, &again, &error) == ST_OK, "%s from %s", joined, text);
        CHECK(strcmp(again.host, address.host) == 0 && strcmp(again.port, address.port) == 0);
        if (address_numeric(&address, false, &found)) {
            char bound[LIMIT_ADDRESS_BYTES];
            CHECK(found.count >= 1 && found.count <= ADDRESS_FOUND_MAX);
            address_format((struct sockaddr *)&found.list[0].address, found.list[0].bytes, bound);
            CHECK(address_parse(bound, &again, &error) == ST_OK);
        }
    } else {
        CHECK(error.text[0] != 0);
    }
    free(text);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {"127.0.0.1:7400",  "[::1]:0", "host.example:65535",
                                        "[fe80::1%lo]:80", ":1",      "[::]",
                                        "a:b:80",          "x:65536"};
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}
