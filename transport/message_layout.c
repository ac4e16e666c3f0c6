/* message_layout: the encoder, the decoder and the checker of all messages. See
 * message_layout.h. */
#include "transport/message_layout.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are little-endian memory");

void message_buffer_done(struct message_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct message_buffer){0};
}

void *message_buffer_add(struct message_buffer *buffer, size_t bytes)
{
    if (bytes > buffer->capacity - buffer->bytes) {
        size_t capacity = buffer->capacity < 512 ? 512 : buffer->capacity;
        while (capacity - buffer->bytes < bytes)
            capacity *= 2;
        uint8_t *data = realloc(buffer->data, capacity);
        if (data == NULL)
            return NULL;
        buffer->data = data;
        buffer->capacity = capacity;
    }
    void *room = buffer->data + buffer->bytes;
    buffer->bytes += bytes;
    return room;
}

/* ---- checking ---- */

const void *message_take(struct message_reader *reader, size_t bytes, const char *what)
{
    size_t left = (size_t)(reader->end - reader->next);
    if (bytes > left) {
        error_set(reader->error, ST_INVALID, "%s message: %s: want %zu bytes, %zu are left",
                  reader->message, what, bytes, left);
        return NULL;
    }
    const void *taken = reader->next;
    reader->next += bytes;
    return taken;
}

/* Returns ST_INVALID with a text that names the message, the field and what is wrong with it. */
__attribute__((format(printf, 3, 4))) static enum status
refuse_field(const struct message_reader *reader, const char *field, const char *format, ...)
{
    char element[64] = "", reason[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    if (reader->array != NULL)
        snprintf(element, sizeof(element), "%s[%u].", reader->array, reader->index);
    return error_set(reader->error, ST_INVALID, "%s message: %s%s%s", reader->message, element,
                     field, reason);
}

enum status message_range_check(const struct message_reader *reader, const char *field,
                                int64_t value, int64_t low, int64_t high)
{
    if (value >= low && value <= high)
        return ST_OK;
    return refuse_field(reader, field, " = %lld: want %lld to %lld", (long long)value,
                        (long long)low, (long long)high);
}

static uint32_t read_u32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof(value));
    return value;
}

static enum status float_check(const struct message_reader *reader, const struct message_rule *rule,
                               const uint8_t *from)
{
    float value;
    memcpy(&value, from, sizeof(value));
    if (rule->kind == RULE_FINITE)
        return isfinite(value) ? ST_OK
                               : refuse_field(reader, rule->field, " = %g: want a finite number",
                                              (double)value);
    if (value >= (float)rule->low && value <= (float)rule->high)
        return ST_OK;
    return refuse_field(reader, rule->field, " = %g: want %lld to %lld", (double)value,
                        (long long)rule->low, (long long)rule->high);
}

static inline int64_t read_number(enum message_rule_kind kind, const uint8_t *from)
{
    if (kind == RULE_U8)
        return *from;
    return kind == RULE_U32 ? (int64_t)read_u32(from) : (int64_t)(int32_t)read_u32(from);
}

/* Checks whole numbers of `count` structs at a distance of `stride` bytes. Inlined for a constant
 * `kind`, because the arrays of a JOB and of its results are long. */
static inline enum status numbers_check(struct message_reader *reader,
                                        const struct message_rule *rule,
                                        enum message_rule_kind kind, const uint8_t *from,
                                        size_t stride, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, from += stride) {
        const int64_t value = read_number(kind, from);
        if (value >= rule->low && value <= rule->high)
            continue;
        reader->index = i;
        return message_range_check(reader, rule->field, value, rule->low, rule->high);
    }
    return ST_OK;
}

/* Checks one field that is not a whole number with a fixed range. */
static enum status field_check(const struct message_reader *reader, const struct message_rule *rule,
                               const uint8_t *from)
{
    const uint8_t *at = from + rule->offset;
    switch (rule->kind) {
    case RULE_BELOW:
        return message_range_check(reader, rule->field, read_u32(at), 0,
                                   (int64_t)read_u32(from + rule->limit_offset) - 1);
    case RULE_TEXT:
        if (memchr(at, 0, rule->bytes) != NULL)
            return ST_OK;
        return refuse_field(reader, rule->field, " has no end within %u bytes", rule->bytes);
    case RULE_PADDING:
    case RULE_COUNTED:
        return ST_OK;
    default:
        return float_check(reader, rule, at);
    }
}

/* Checks the rules of `count` structs at a distance of `stride` bytes. */
static enum status rules_check(struct message_reader *reader, const struct message_layout *layout,
                               const uint8_t *from, size_t stride, uint32_t count)
{
    enum status status = ST_OK;
    for (uint32_t i = 0; i < layout->rule_count && status == ST_OK; i++) {
        const struct message_rule *rule = &layout->rules[i];
        const uint8_t *at = from + rule->offset;
        if (rule->kind == RULE_U8)
            status = numbers_check(reader, rule, RULE_U8, at, stride, count);
        else if (rule->kind == RULE_U32)
            status = numbers_check(reader, rule, RULE_U32, at, stride, count);
        else if (rule->kind == RULE_I32)
            status = numbers_check(reader, rule, RULE_I32, at, stride, count);
        else if (rule->kind == RULE_STRUCT)
            status = rules_check(reader, rule->inner, at, stride, count);
        else
            for (reader->index = 0; reader->index < count && status == ST_OK; reader->index++)
                status = field_check(reader, rule, from + reader->index * stride);
    }
    return status;
}

enum status message_rules_check(struct message_reader *reader, const struct message_layout *layout,
                                const void *from)
{
    return rules_check(reader, layout, from, 0, 1);
}

static uint32_t array_count(const struct message_array *array, const uint8_t *message)
{
    return read_u32(message + array->count);
}

static const uint8_t *array_elements(const struct message_array *array, const uint8_t *message)
{
    const uint8_t *elements;
    memcpy(&elements, message + array->pointer, sizeof(elements));
    return elements;
}

/* Checks what follows the rules of the message's own fields: elements of arrays, then relations. */
static enum status arrays_check(struct message_reader *reader, const struct message_layout *layout,
                                const void *message)
{
    for (uint32_t i = 0; i < layout->array_count; i++) {
        const struct message_array *array = &layout->arrays[i];
        const uint32_t count = array_count(array, message);
        if (array->element == NULL || count == 0) /* The sender's pointer may then be NULL. */
            continue;
        reader->array = array->field;
        enum status status = rules_check(reader, array->element, array_elements(array, message),
                                         array->element_bytes, count);
        if (status != ST_OK)
            return status;
    }
    reader->array = NULL;
    return layout->check != NULL ? layout->check(reader, message) : ST_OK;
}

enum status message_check(const struct message_layout *layout, const void *message)
{
    struct message_reader reader = {.message = layout->name};
    enum status status = message_rules_check(&reader, layout, message);
    return status != ST_OK ? status : arrays_check(&reader, layout, message);
}

/* ---- encoding ---- */

/* Sets the bytes of a struct that have no meaning to 0: padding, and what follows the end of a text
 * or of a counted array. */
static void clean_struct(const struct message_layout *layout, uint8_t *to)
{
    for (uint32_t i = 0; i < layout->rule_count; i++) {
        const struct message_rule *rule = &layout->rules[i];
        size_t used = rule->bytes;
        if (rule->kind == RULE_PADDING)
            used = 0;
        else if (rule->kind == RULE_TEXT)
            used = strnlen((const char *)to + rule->offset, rule->bytes);
        else if (rule->kind == RULE_COUNTED)
            used = read_u32(to + rule->limit_offset) * sizeof(uint32_t);
        else if (rule->kind == RULE_STRUCT)
            clean_struct(rule->inner, to + rule->offset);
        if (used < rule->bytes)
            memset(to + rule->offset + used, 0, rule->bytes - used);
    }
}

/* Rounds a position in a message up to where an array may begin. */
static size_t array_begin(size_t position)
{
    return (position + 7) & ~(size_t)7;
}

static size_t array_bytes(const struct message_array *array, const void *message)
{
    return (size_t)array_count(array, message) * array->element_bytes;
}

size_t message_bytes_in(const struct message_layout *layout, uint32_t version,
                        uint32_t *array_count_out)
{
    for (uint32_t i = 0; i < layout->growth_count; i++)
        if (version < layout->growth[i].version) {
            *array_count_out = layout->growth[i].array_count;
            return layout->growth[i].bytes;
        }
    *array_count_out = layout->array_count;
    return layout->bytes;
}

enum status message_write(const struct message_layout *layout, uint32_t kind, uint32_t version,
                          const void *message, struct message_buffer *buffer)
{
    uint32_t arrays;
    const size_t struct_bytes = message_bytes_in(layout, version, &arrays);
    size_t bytes = sizeof(struct wire_header) + struct_bytes;
    for (uint32_t i = 0; i < arrays; i++)
        if (array_count(&layout->arrays[i], message) > 0)
            bytes = array_begin(bytes) + array_bytes(&layout->arrays[i], message);
    if (bytes > LIMIT_MESSAGE_BYTES)
        return ST_TOO_LARGE;
    buffer->bytes = 0;
    /* The whole struct is cleaned, so there must be room for it. */
    const size_t room = sizeof(struct wire_header) + layout->bytes;
    uint8_t *to = message_buffer_add(buffer, bytes > room ? bytes : room);
    if (to == NULL)
        return ST_NO_MEMORY;
    buffer->bytes = bytes;
    const struct wire_header header = {
        .kind = (uint16_t)kind, .struct_bytes = (uint16_t)struct_bytes, .bytes = (uint32_t)bytes};
    memcpy(to, &header, sizeof(header));
    memcpy(to + sizeof(header), message, layout->bytes);
    clean_struct(layout, to + sizeof(header));
    size_t at = sizeof(header) + struct_bytes;
    for (uint32_t i = 0; i < arrays; i++) {
        const struct message_array *array = &layout->arrays[i];
        const size_t size = array_bytes(array, message);
        if (size == 0)
            continue;
        memset(to + at, 0, array_begin(at) - at);
        at = array_begin(at);
        memcpy(to + at, array_elements(array, message), size);
        at += size;
    }
    return ST_OK;
}

/* ---- decoding ---- */

/* Takes the elements of an array, in front of which there may be padding. The message begins at a
 * multiple of 8 bytes. */
static const void *take_array(struct message_reader *reader, const struct message_array *array,
                              const void *message)
{
    const uintptr_t position = (uintptr_t)reader->next;
    if (array_count(array, message) == 0)
        return reader->next;
    if (message_take(reader, array_begin(position) - position, array->field) == NULL)
        return NULL;
    return message_take(reader, array_bytes(array, message), array->field);
}

/* Reads the struct of the message. bytes: size of the struct in the version for which the message
 * was encoded. */
static enum status read_struct(struct message_reader *reader, const struct message_layout *layout,
                               size_t bytes, uint8_t *message)
{
    uint32_t arrays;
    const size_t least = message_bytes_in(layout, TRANSPORT_PROTOCOL_LOWEST, &arrays);
    if (bytes < least)
        return error_set(reader->error, ST_INVALID,
                         "%s message: fields: want at least %zu bytes, the message says %zu",
                         reader->message, least, bytes);
    if (bytes % 8 != 0) /* What follows is read in place. */
        return error_set(reader->error, ST_INVALID,
                         "%s message: fields: want a multiple of 8 bytes, the message says %zu",
                         reader->message, bytes);
    const void *from = message_take(reader, bytes, "fields");
    if (from == NULL)
        return ST_INVALID;
    const size_t known = bytes < layout->bytes ? bytes : layout->bytes;
    memcpy(message, from, known);
    memset(message + known, 0, layout->bytes - known);
    return message_rules_check(reader, layout, message);
}

/* Reads the message after its header. */
static enum status read_body(struct message_reader *reader, const struct message_layout *layout,
                             size_t struct_bytes, uint8_t *message)
{
    enum status status = read_struct(reader, layout, struct_bytes, message);
    if (status != ST_OK)
        return status;
    for (uint32_t i = 0; i < layout->array_count; i++) {
        const struct message_array *array = &layout->arrays[i];
        const void *elements = take_array(reader, array, message);
        if (elements == NULL)
            return ST_INVALID;
        memcpy(message + array->pointer, &elements, sizeof(elements));
    }
    status = arrays_check(reader, layout, message);
    return status == ST_OK && layout->read_rest != NULL ? layout->read_rest(reader, message)
                                                        : status;
}

enum status message_read(const struct message_layout *(*layout_of)(uint32_t kind),
                         const uint8_t *data, size_t bytes, void *message, struct error *error)
{
    assert((uintptr_t)data % 8 == 0);
    struct message_reader reader = {
        .next = data, .end = data + bytes, .message = "a", .error = error};
    if (bytes > LIMIT_MESSAGE_BYTES)
        return error_set(error, ST_INVALID, "message of %zu bytes: want at most %u", bytes,
                         LIMIT_MESSAGE_BYTES);
    const struct wire_header *header = message_take(&reader, sizeof(*header), "header");
    if (header == NULL)
        return ST_INVALID;
    const struct message_layout *layout = layout_of(header->kind);
    if (layout == NULL)
        return error_set(error, ST_INVALID, "message of unknown kind %u", header->kind);
    reader.message = layout->name;
    if (header->bytes != bytes)
        return error_set(error, ST_INVALID, "%s message: bytes = %u: %zu have arrived",
                         layout->name, header->bytes, bytes);
    enum status status = read_body(&reader, layout, header->struct_bytes, message);
    /* Only a later version, which has more fields, may have more arrays. */
    if (status == ST_OK && reader.next != reader.end && header->struct_bytes <= layout->bytes)
        status = error_set(error, ST_INVALID, "%s message: %zu bytes follow its end", layout->name,
                           (size_t)(reader.end - reader.next));
    return status;
}
