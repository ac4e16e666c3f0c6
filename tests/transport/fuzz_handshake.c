/* Goal: no first frame of an unknown peer makes the decoder of the handshake read outside the
 * frame. Method: fuzzed changes of greetings; an accepted one is read to its last byte and encodes
 * to the same bytes again, except the name, whose odd characters are replaced. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "transport/handshake.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t again[HANDSHAKE_BYTES_MAX];
    struct handshake handshake;
    struct error error;
    error.text[0] = 0;
    if (handshake_decode(data, size, &handshake, &error) != ST_OK) {
        CHECK(error.text[0] != 0);
        return 0;
    }
    CHECK(memchr(handshake.identity.name, 0, LIMIT_NAME_BYTES) != NULL);
    if (handshake.version != TRANSPORT_PROTOCOL_VERSION || size > sizeof(again))
        return 0;
    CHECK(handshake_encode(&handshake, again, sizeof(again)) == size);
    CHECK(memcmp(again + 40, data + 40, size - 40) == 0);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    struct handshake handshake = {
        .version = TRANSPORT_PROTOCOL_VERSION + (index == 2),
        .identity = {.name = "p0",
                     .role = TRANSPORT_MACHINE,
                     .metadata_hash = 7,
                     .model_hash = {{77}},
                     .layer_count = 30},
        .token = 5,
    };
    if (index == 1) {
        handshake.region = (struct transport_region_info){4096, 1, 4096};
        handshake.address = (struct fabric_address){.worker = "worker address",
                                                    .worker_bytes = 14,
                                                    .rkey = "key",
                                                    .rkey_bytes = 3,
                                                    .region = 0x7f0000,
                                                    .memory = FABRIC_MEMORY_CUDA};
        memcpy(handshake.identity.kv_dtype, "i16", 4);
        handshake.identity.rope_list = TRANSPORT_ROPE_LIST_LONG;
    }
    if (index == 3) { /* The memory of a device that only its owner writes has no key. */
        handshake.region = (struct transport_region_info){4096, 1, 4096};
        handshake.address = (struct fabric_address){.worker = "worker address",
                                                    .worker_bytes = 14,
                                                    .region = 0x7f0000,
                                                    .memory = FABRIC_MEMORY_DEVICE,
                                                    .host = "a computer",
                                                    .handle = "a handle",
                                                    .handle_bytes = 8};
    }
    return index < 4 ? handshake_encode(&handshake, buffer, capacity) : 0;
}
