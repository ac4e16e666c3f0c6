/* handshake: see the header. */
#include "transport/handshake.h"

#include "common/formats.h"
#include "transport/transport_internal.h"

#include <assert.h>
#include <string.h>

#define HANDSHAKE_MAGIC 0x76616c63u /* "clav" */

struct wire_hello { /* Followed by the worker address, the packed key and the handle. */
    uint32_t magic;
    uint32_t version;
    char name[LIMIT_NAME_BYTES];
    uint32_t version_lowest; /* Versions before TRANSPORT_PROTOCOL_RANGES had the role here. */
    /* The fields before this one are the same in every version. */
    uint32_t fixed_bytes; /* Size of this struct in the sender's version. */
    uint32_t role;
    uint32_t memory; /* enum fabric_memory. */
    char kv_dtype[8];
    uint64_t metadata_hash;
    uint8_t model_hash[SECRET_HASH_BYTES];
    uint32_t layer_count;
    uint32_t block_tokens;
    uint64_t block_bytes;
    uint64_t region_bytes;
    uint64_t layer_stride_bytes;
    uint32_t block_count;
    uint32_t rope_list; /* enum transport_rope_list. */
    uint64_t region_address;
    uint64_t token;
    uint32_t worker_bytes;
    uint32_t rkey_bytes;
    uint8_t host[FABRIC_HOST_BYTES];
    uint64_t handle_bytes;
    struct handshake_formats formats;
    uint32_t padding;
};
static_assert(sizeof(struct wire_hello) == 208, "wire size");
static_assert(offsetof(struct wire_hello, version_lowest) == 40 &&
                  offsetof(struct wire_hello, fixed_bytes) == 44,
              "the first fields are the same in every version");
/* The fixed part in the lowest version that this program speaks: fields after it may be missing. */
#define FIXED_BYTES_MIN 208
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "wire structs are little-endian memory");

void handshake_init(struct handshake *out, uint32_t version)
{
    *out = (struct handshake){
        .version_lowest = TRANSPORT_PROTOCOL_LOWEST,
        .version = version,
        .formats = {.kv = FORMAT_KV,
                    .prefix_hash = FORMAT_PREFIX_HASH,
                    .model_hash = FORMAT_MODEL_HASH},
    };
}

size_t handshake_encode(const struct handshake *handshake, uint8_t *out, size_t capacity)
{
    const struct transport_identity *identity = &handshake->identity;
    const struct fabric_address *address = &handshake->address;
    struct wire_hello hello = {
        .magic = HANDSHAKE_MAGIC,
        .version = handshake->version,
        .version_lowest = handshake->version_lowest,
        .fixed_bytes = sizeof(hello),
        .formats = handshake->formats,
        .role = identity->role,
        .memory = address->memory,
        .metadata_hash = identity->metadata_hash,
        .layer_count = identity->layer_count,
        .block_tokens = identity->block_tokens,
        .block_bytes = identity->block_bytes,
        .region_bytes = handshake->region.bytes,
        .layer_stride_bytes = handshake->region.layer_stride_bytes,
        .block_count = handshake->region.block_count,
        .rope_list = identity->rope_list,
        .region_address = address->region,
        .token = handshake->token,
        .worker_bytes = (uint32_t)address->worker_bytes,
        .rkey_bytes = (uint32_t)address->rkey_bytes,
        .handle_bytes = address->handle_bytes,
    };
    size_t bytes =
        sizeof(hello) + address->worker_bytes + address->rkey_bytes + address->handle_bytes;
    if (bytes > capacity || bytes > HANDSHAKE_BYTES_MAX)
        return 0;
    memcpy(hello.name, identity->name, sizeof(hello.name));
    memcpy(hello.kv_dtype, identity->kv_dtype, sizeof(hello.kv_dtype));
    memcpy(hello.model_hash, identity->model_hash.bytes, sizeof(hello.model_hash));
    memcpy(hello.host, address->host, sizeof(hello.host));
    memcpy(out, &hello, sizeof(hello));
    if (address->worker_bytes > 0)
        memcpy(out + sizeof(hello), address->worker, address->worker_bytes);
    if (address->rkey_bytes > 0)
        memcpy(out + sizeof(hello) + address->worker_bytes, address->rkey, address->rkey_bytes);
    if (address->handle_bytes > 0)
        memcpy(out + bytes - address->handle_bytes, address->handle, address->handle_bytes);
    return bytes;
}

bool handshake_name_copy(const char *from, char *to)
{
    size_t length = strnlen(from, LIMIT_NAME_BYTES);
    if (length == LIMIT_NAME_BYTES)
        return false;
    memset(to, 0, LIMIT_NAME_BYTES);
    for (size_t i = 0; i < length; i++)
        to[i] = from[i] > ' ' && from[i] < 127 ? from[i] : '?';
    return true;
}

/* True if the word consists of at least one lower-case letter or digit, padded with NULs. */
static bool word_good(const char *word, size_t capacity)
{
    size_t length = 0;
    while (length < capacity && ((word[length] >= 'a' && word[length] <= 'z') ||
                                 (word[length] >= '0' && word[length] <= '9')))
        length++;
    for (size_t i = length; i < capacity; i++)
        if (word[i] != 0)
            return false;
    return length < capacity;
}

enum status handshake_decode(const uint8_t *data, size_t bytes, struct handshake *out,
                             struct error *error)
{
    struct wire_hello hello = {0};
    struct handshake handshake = {0};
    memcpy(&hello, data, bytes < sizeof(hello) ? bytes : sizeof(hello));
    if (bytes < offsetof(struct wire_hello, version_lowest) || hello.magic != HANDSHAKE_MAGIC)
        return error_set(error, ST_INVALID, "not a peer of this kind (it sent no hand-shake)");
    if (!handshake_name_copy(hello.name, handshake.identity.name))
        return error_set(error, ST_INVALID, "hand-shake: name has no end within %u bytes",
                         LIMIT_NAME_BYTES);
    handshake.version = handshake.version_lowest = hello.version;
    if (hello.version >= TRANSPORT_PROTOCOL_RANGES)
        handshake.version_lowest = hello.version_lowest;
    if (handshake.version_lowest > hello.version)
        return error_set(error, ST_INVALID, "hand-shake: protocol versions %u to %u",
                         handshake.version_lowest, hello.version);
    if (handshake.version_lowest > TRANSPORT_PROTOCOL_VERSION ||
        hello.version < TRANSPORT_PROTOCOL_LOWEST) {
        *out = handshake;
        return ST_OK;
    }
    if (bytes < FIXED_BYTES_MIN)
        return error_set(error, ST_INVALID, "hand-shake: %zu bytes: want at least %d", bytes,
                         FIXED_BYTES_MIN);
    const size_t fixed = hello.fixed_bytes;
    if (fixed < FIXED_BYTES_MIN || fixed > bytes)
        return error_set(error, ST_INVALID, "hand-shake: fixed_bytes = %zu: want %d to %zu", fixed,
                         FIXED_BYTES_MIN, bytes);
    if (fixed < sizeof(hello)) /* What was copied behind the fixed part is not a field. */
        memset((uint8_t *)&hello + fixed, 0, sizeof(hello) - fixed);
    if (hello.role != TRANSPORT_GATEWAY && hello.role != TRANSPORT_MACHINE)
        return error_set(error, ST_INVALID, "hand-shake: role = %u: want 1 or 2", hello.role);
    if (hello.handle_bytes > DEVICE_HANDLE_BYTES_MAX ||
        (hello.handle_bytes > 0 && hello.memory == FABRIC_MEMORY_HOST))
        return error_set(error, ST_INVALID,
                         "hand-shake: a handle of %llu bytes: want a device's handle of at most %d",
                         (unsigned long long)hello.handle_bytes, DEVICE_HANDLE_BYTES_MAX);
    uint64_t want = (uint64_t)fixed + hello.worker_bytes + hello.rkey_bytes + hello.handle_bytes;
    /* A later version may send more. */
    if (want > bytes || (want < bytes && hello.version <= TRANSPORT_PROTOCOL_VERSION))
        return error_set(error, ST_INVALID, "hand-shake: %zu bytes: want %llu", bytes,
                         (unsigned long long)want);
    if (!word_good(hello.kv_dtype, sizeof(hello.kv_dtype)))
        return error_set(error, ST_INVALID, "hand-shake: kv_dtype is not a word");
    if (hello.rope_list >= TRANSPORT_ROPE_LIST_COUNT)
        return error_set(error, ST_INVALID, "hand-shake: rope_list = %u: want 0 to %d",
                         hello.rope_list, TRANSPORT_ROPE_LIST_COUNT - 1);
    if (hello.memory > FABRIC_MEMORY_CUDA)
        return error_set(error, ST_INVALID, "hand-shake: memory = %u: want 0 to 2", hello.memory);
    /* Only its owner writes this memory directly, so it has no key. */
    bool keyless = hello.memory == FABRIC_MEMORY_DEVICE;
    bool addressed = hello.worker_bytes > 0; /* A process that does not use UCX has no address. */
    if (hello.region_bytes > 0 && (hello.rkey_bytes > 0) != (addressed && !keyless))
        return error_set(error, ST_INVALID, "hand-shake: a region without an address");
    handshake.identity.role = hello.role;
    handshake.identity.metadata_hash = hello.metadata_hash;
    memcpy(handshake.identity.model_hash.bytes, hello.model_hash, sizeof(hello.model_hash));
    handshake.identity.layer_count = hello.layer_count;
    handshake.identity.block_tokens = hello.block_tokens;
    handshake.identity.block_bytes = hello.block_bytes;
    memcpy(handshake.identity.kv_dtype, hello.kv_dtype, sizeof(hello.kv_dtype));
    handshake.identity.rope_list = hello.rope_list;
    handshake.region.bytes = hello.region_bytes;
    handshake.region.block_count = hello.block_count;
    handshake.region.layer_stride_bytes = hello.layer_stride_bytes;
    handshake.token = hello.token;
    handshake.formats = hello.formats;
    handshake.address.worker = data + fixed;
    handshake.address.worker_bytes = hello.worker_bytes;
    handshake.address.rkey = data + fixed + hello.worker_bytes;
    handshake.address.rkey_bytes = hello.rkey_bytes;
    handshake.address.region = hello.region_address;
    handshake.address.memory = hello.memory;
    handshake.address.region_bytes = hello.region_bytes;
    memcpy(handshake.address.host, hello.host, sizeof(hello.host));
    handshake.address.handle = data + fixed + hello.worker_bytes + hello.rkey_bytes;
    handshake.address.handle_bytes = hello.handle_bytes;
    *out = handshake;
    return ST_OK;
}

uint32_t handshake_version(const struct handshake *first, const struct handshake *second)
{
    const struct handshake *older = first->version < second->version ? first : second;
    const struct handshake *newer = older == first ? second : first;
    return older->version >= newer->version_lowest ? older->version : 0;
}

static enum status formats_check(const struct handshake *first, const struct handshake *second,
                                 struct error *error)
{
    const bool machines =
        first->identity.role == TRANSPORT_MACHINE && second->identity.role == TRANSPORT_MACHINE;
    const struct {
        const char *name;
        uint32_t first, second;
        bool compared;
    } formats[] = {
        {"model hashes", first->formats.model_hash, second->formats.model_hash, true},
        {"prefix hashes", first->formats.prefix_hash, second->formats.prefix_hash, true},
        {"KV", first->formats.kv, second->formats.kv, machines},
    };
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (formats[i].compared && formats[i].first != formats[i].second)
            return error_set(
                error, ST_MISMATCH,
                "%s and %s do not match: the format of %s is %u and %u: their releases "
                "cannot work together",
                first->identity.name, second->identity.name, formats[i].name, formats[i].first,
                formats[i].second);
    return ST_OK;
}

enum status handshake_check(const struct handshake *first, const struct handshake *second,
                            struct error *error)
{
    if (handshake_version(first, second) == 0)
        return error_set(error, ST_MISMATCH,
                         "%s and %s do not match: they speak protocol versions %u to %u and %u to "
                         "%u: their releases cannot work together",
                         first->identity.name, second->identity.name, first->version_lowest,
                         first->version, second->version_lowest, second->version);
    enum status status = formats_check(first, second, error);
    if (status != ST_OK)
        return status;
    return transport_identity_check(&first->identity, &second->identity, error);
}
