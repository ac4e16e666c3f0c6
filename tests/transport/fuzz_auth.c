/* Goal: no frame of an unknown peer makes the decoders of the key's proof read outside the frame,
 * or accept a name that is not printable. Method: fuzzed changes of the frames; an accepted frame
 * encodes to the same bytes again. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "transport/auth.h"

#include <string.h>

static void check_side(const struct auth_side *side)
{
    size_t length = strnlen(side->name, LIMIT_NAME_BYTES);
    CHECK(length < LIMIT_NAME_BYTES);
    for (size_t i = 0; i < length; i++)
        CHECK(side->name[i] > ' ' && side->name[i] < 127);
    CHECK(side->role == TRANSPORT_GATEWAY || side->role == TRANSPORT_MACHINE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct auth_side side;
    struct error error = {""};
    uint8_t proof[SECRET_HASH_BYTES];
    uint8_t again[AUTH_BYTES_MAX];
    if (auth_decode(data, size, &side, &error) == ST_OK) {
        check_side(&side);
        CHECK(auth_encode(&side, again) == size);
        CHECK(memcmp(again, data, 12) == 0 && memcmp(again + 16, data + 16, size - 16) == 0);
    } else {
        CHECK(error.text[0] != 0);
    }
    error.text[0] = 0;
    if (auth_reply_decode(data, size, &side, proof, &error) == ST_OK) {
        check_side(&side);
        CHECK(auth_reply_encode(&side, proof, again) == size);
        CHECK(memcmp(again, data, 12) == 0 && memcmp(again + 16, data + 16, size - 16) == 0);
    } else {
        CHECK(error.text[0] != 0);
    }
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const uint8_t proof[SECRET_HASH_BYTES] = "a proof";
    struct transport_identity identity = {.name = "p0", .role = TRANSPORT_MACHINE};
    struct auth_side side;
    auth_side_init(&side, &identity);
    if (capacity < AUTH_BYTES_MAX)
        return 0;
    if (index == 0)
        return auth_encode(&side, buffer);
    return index == 1 ? auth_reply_encode(&side, proof, buffer) : 0;
}
