/* Goal: no first frame of an unknown peer makes the decoder of the handshake read outside the
 * frame. Method: fuzzed changes of greetings; an accepted one is read to its last byte and encodes
 * to the same bytes again, except the name, whose odd characters are replaced. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "transport/handshake.h"

#include <string.h>

#define FIXED_BYTES 208 /* The fixed part of the frame in this version. */

static volatile uint64_t reads; /* So that the compiler keeps the reads. */

static uint64_t sum(const void *data, size_t bytes)
{
    uint64_t total = 0;
    for (size_t i = 0; i < bytes; i++)
        total += ((const uint8_t *)data)[i];
    return total;
}

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
    CHECK(handshake.version_lowest <= handshake.version);
    if (handshake.version_lowest > TRANSPORT_PROTOCOL_VERSION ||
        handshake.version < TRANSPORT_PROTOCOL_LOWEST)
        return 0;
    const struct fabric_address *address = &handshake.address;
    reads += sum(address->worker, address->worker_bytes) + sum(address->rkey, address->rkey_bytes) +
             sum(address->handle, address->handle_bytes);
    if (handshake.version != TRANSPORT_PROTOCOL_VERSION || size > sizeof(again) ||
        memcmp(data + 44, &(uint32_t){FIXED_BYTES}, sizeof(uint32_t)) != 0)
        return 0;
    CHECK(handshake_encode(&handshake, again, sizeof(again)) == size);
    memcpy(again + FIXED_BYTES - 4, data + FIXED_BYTES - 4, 4); /* Padding. */
    CHECK(memcmp(again + 40, data + 40, size - 40) == 0);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    struct handshake handshake;
    handshake_init(&handshake, TRANSPORT_PROTOCOL_VERSION + (index == 2));
    handshake.version_lowest += 2 * (index == 4); /* No range. */
    handshake.identity = (struct transport_identity){.name = "p0",
                                                     .role = TRANSPORT_MACHINE,
                                                     .metadata_hash = 7,
                                                     .model_hash = {{77}},
                                                     .layer_count = 30};
    handshake.token = 5;
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
    size_t bytes = index < 6 ? handshake_encode(&handshake, buffer, capacity) : 0;
    if (index == 5 && bytes + 8 <= capacity) { /* A later version, with a further field. */
        const uint32_t version = TRANSPORT_PROTOCOL_VERSION + 1, fixed = (uint32_t)bytes + 8;
        memcpy(buffer + 4, &version, sizeof(version));
        memcpy(buffer + 44, &fixed, sizeof(fixed));
        memset(buffer + bytes, 7, 8);
        bytes += 8;
    }
    return bytes;
}
