/* protobuf: see protobuf.h. Encoding: protobuf.dev/programming-guides/encoding. */
#include "model/file/protobuf.h"

#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

#define VARINT_BYTES_MAX 10

static bool fail(struct protobuf *p)
{
    p->malformed = true;
    return false;
}

static bool take_varint(struct protobuf *p, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < VARINT_BYTES_MAX && i < p->unread.bytes; i++) {
        uint8_t byte = (uint8_t)p->unread.text[i];
        value |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80) {
            p->unread.text += i + 1;
            p->unread.bytes -= i + 1;
            *out = value;
            return true;
        }
    }
    return fail(p);
}

static bool take_bytes(struct protobuf *p, uint64_t bytes, struct mapped_text *out)
{
    if (bytes > p->unread.bytes)
        return fail(p);
    *out = (struct mapped_text){p->unread.text, (size_t)bytes};
    p->unread.text += bytes;
    p->unread.bytes -= (size_t)bytes;
    return true;
}

static bool take_fixed(struct protobuf *p, size_t bytes, uint64_t *out)
{
    struct mapped_text taken;
    if (!take_bytes(p, bytes, &taken))
        return false;
    *out = 0;
    for (size_t i = 0; i < bytes; i++)
        *out |= (uint64_t)(uint8_t)taken.text[i] << 8 * i;
    return true;
}

bool protobuf_next(struct protobuf *p, struct protobuf_field *out)
{
    uint64_t tag = 0, bytes = 0;
    struct protobuf_field field = {.bytes = {NULL, 0}};
    if (p->malformed || p->unread.bytes == 0 || !take_varint(p, &tag))
        return false;
    field.number = (uint32_t)(tag >> 3);
    if (tag >> 3 == 0 || tag >> 3 > UINT32_MAX)
        return fail(p);
    bool good = false;
    switch (tag & 7) {
    case WIRE_VARINT:
        good = take_varint(p, &field.value);
        break;
    case WIRE_FIXED64:
        good = take_fixed(p, 8, &field.value);
        break;
    case WIRE_FIXED32:
        good = take_fixed(p, 4, &field.value);
        break;
    case WIRE_BYTES:
        good = take_varint(p, &bytes) && take_bytes(p, bytes, &field.bytes);
        break;
    default:
        break;
    }
    if (!good)
        return fail(p);
    *out = field;
    return true;
}

float protobuf_float(const struct protobuf_field *field)
{
    const uint32_t bits = (uint32_t)field->value;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
