/* gguf_parse: one pass over the bytes with a cursor that checks what is left before each read. A
 * count in the file is compared with the fewest bytes that this many entries need before anything
 * is allocated, so memory stays proportional to the file. Errors name the offset of the wrong
 * field. */
#include "model/file/gguf_internal.h"

#include "common/siphash.h"
#include "model/file/lfs_pointer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT_DEFAULT 32u
#define ALIGNMENT_MIN     8u /* The format's rule; it also lets fp32 tensors be read in place. */
#define ALIGNMENT_MAX     (1u << 20)
#define KEY_BYTES_MAX     65535u      /* The format's rule. */
#define KEY_BYTES_LEAST   (8 + 4 + 1) /* Length, type, one byte of value. */
/* Length, dimensions, one dimension, type, offset. */
#define TENSOR_BYTES_LEAST (8 + 4 + 8 + 4 + 8)

struct cursor {
    const struct gguf *g;
    struct error *error;
    size_t at;
};

static const struct {
    const char *name;
    size_t bytes; /* Bytes of a scalar; 0 for other types. */
} values[GGUF_VALUE_COUNT] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

/* Tensor types by their number in the file; `type` is valid only if `known` is set. */
static const struct {
    const char *name;
    bool known;
    enum compute_type type;
} tensor_types[] = {
    [0] = {"F32", true, COMPUTE_F32},
    [1] = {"F16", true, COMPUTE_F16},
    [2] = {"Q4_0", true, COMPUTE_Q4_0},
    [3] = {"Q4_1", true, COMPUTE_Q4_1},
    [6] = {"Q5_0", true, COMPUTE_Q5_0},
    [7] = {"Q5_1", true, COMPUTE_Q5_1},
    [8] = {"Q8_0", true, COMPUTE_Q8_0},
    [9] = {"Q8_1", false, 0},
    [10] = {"Q2_K", true, COMPUTE_Q2_K},
    [11] = {"Q3_K", true, COMPUTE_Q3_K},
    [12] = {"Q4_K", true, COMPUTE_Q4_K},
    [13] = {"Q5_K", true, COMPUTE_Q5_K},
    [14] = {"Q6_K", true, COMPUTE_Q6_K},
    [15] = {"Q8_K", false, 0},
    [16] = {"IQ2_XXS", true, COMPUTE_IQ2_XXS},
    [17] = {"IQ2_XS", true, COMPUTE_IQ2_XS},
    [18] = {"IQ3_XXS", true, COMPUTE_IQ3_XXS},
    [19] = {"IQ1_S", true, COMPUTE_IQ1_S},
    [20] = {"IQ4_NL", true, COMPUTE_IQ4_NL},
    [21] = {"IQ3_S", true, COMPUTE_IQ3_S},
    [22] = {"IQ2_S", true, COMPUTE_IQ2_S},
    [23] = {"IQ4_XS", true, COMPUTE_IQ4_XS},
    [24] = {"I8", false, 0},
    [25] = {"I16", false, 0},
    [26] = {"I32", false, 0},
    [27] = {"I64", false, 0},
    [28] = {"F64", false, 0},
    [29] = {"IQ1_M", true, COMPUTE_IQ1_M},
    [30] = {"BF16", true, COMPUTE_BF16},
    [34] = {"TQ1_0", true, COMPUTE_TQ1_0},
    [35] = {"TQ2_0", true, COMPUTE_TQ2_0},
    [39] = {"MXFP4", true, COMPUTE_MXFP4},
};

const char *gguf_value_name(enum gguf_value type)
{
    return (unsigned)type < GGUF_VALUE_COUNT ? values[type].name : "unknown";
}

static size_t bytes_left(const struct cursor *c)
{
    return c->g->bytes - c->at;
}

static enum status read_bytes(struct cursor *c, const char *what, size_t bytes, const uint8_t **out)
{
    if (bytes > bytes_left(c))
        return error_set(c->error, ST_INVALID, "%s at byte %zu takes %zu bytes, the file has %zu",
                         what, c->at, bytes, c->g->bytes);
    *out = c->g->data + c->at;
    c->at += bytes;
    return ST_OK;
}

static enum status read_u32(struct cursor *c, const char *what, uint32_t *out)
{
    const uint8_t *bytes = NULL;
    enum status status = read_bytes(c, what, sizeof(*out), &bytes);
    if (status == ST_OK)
        memcpy(out, bytes, sizeof(*out));
    return status;
}

static enum status read_u64(struct cursor *c, const char *what, uint64_t *out)
{
    const uint8_t *bytes = NULL;
    enum status status = read_bytes(c, what, sizeof(*out), &bytes);
    if (status == ST_OK)
        memcpy(out, bytes, sizeof(*out));
    return status;
}

/* Reads a count of entries that need at least entry_bytes each. */
static enum status read_count(struct cursor *c, const char *what, size_t entry_bytes, size_t *out)
{
    size_t start = c->at;
    uint64_t count = 0;
    enum status status = read_u64(c, what, &count);
    if (status != ST_OK)
        return status;
    if (count > bytes_left(c) / entry_bytes)
        return error_set(c->error, ST_INVALID,
                         "%s at byte %zu is %" PRIu64 ", the rest of the file holds at most %zu",
                         what, start, count, bytes_left(c) / entry_bytes);
    *out = (size_t)count;
    return ST_OK;
}

static enum status read_string(struct cursor *c, const char *what, struct mapped_text *out)
{
    size_t start = c->at;
    uint64_t length = 0;
    enum status status = read_u64(c, what, &length);
    if (status != ST_OK)
        return status;
    if (length > bytes_left(c))
        return error_set(c->error, ST_INVALID,
                         "%s at byte %zu has length %" PRIu64 ", %zu bytes are left", what, start,
                         length, bytes_left(c));
    *out = (struct mapped_text){(const char *)c->g->data + c->at, (size_t)length};
    c->at += (size_t)length;
    return ST_OK;
}

/* ---- index of names ---- */

static bool index_open(struct gguf_index *index, size_t count)
{
    size_t slots = 4;
    while (slots < count * 2)
        slots *= 2;
    index->slots = calloc(slots, sizeof(*index->slots));
    index->mask = slots - 1;
    return index->slots != NULL;
}

/* Returns the slot that has the name, or the empty slot where it would be. */
static uint32_t *key_slot(const struct gguf *g, const char *name, size_t bytes)
{
    size_t at = siphash(g->index_key, name, bytes) & g->key_index.mask;
    for (;; at = (at + 1) & g->key_index.mask) {
        uint32_t *slot = &g->key_index.slots[at];
        if (*slot == 0)
            return slot;
        const struct mapped_text *found = &g->keys[*slot - 1].name;
        if (found->bytes == bytes && memcmp(found->text, name, bytes) == 0)
            return slot;
    }
}

static uint32_t *tensor_slot(const struct gguf *g, const char *name, size_t bytes)
{
    size_t at = siphash(g->index_key, name, bytes) & g->tensor_index.mask;
    for (;; at = (at + 1) & g->tensor_index.mask) {
        uint32_t *slot = &g->tensor_index.slots[at];
        if (*slot == 0)
            return slot;
        const struct mapped_text *found = &g->tensors[*slot - 1].name;
        if (found->bytes == bytes && memcmp(found->text, name, bytes) == 0)
            return slot;
    }
}

const struct gguf_key *gguf_key_find(const struct gguf *g, const char *name, size_t bytes)
{
    uint32_t slot = *key_slot(g, name, bytes);
    return slot == 0 ? NULL : &g->keys[slot - 1];
}

const struct mapped_tensor *gguf_tensor_find_bytes(const struct gguf *g, const char *name,
                                                   size_t bytes)
{
    uint32_t slot = *tensor_slot(g, name, bytes);
    return slot == 0 ? NULL : &g->tensors[slot - 1];
}

/* ---- metadata ---- */

static enum status read_array(struct cursor *c, struct gguf_key *key, const char *shown)
{
    size_t start = c->at;
    uint32_t element = 0;
    enum status status = read_u32(c, "an array's type", &element);
    if (status != ST_OK)
        goto named;
    if (element >= GGUF_VALUE_COUNT || element == GGUF_ARRAY)
        return error_set(c->error, ST_INVALID,
                         "key '%s': array of type %u at byte %zu: want a scalar or a string type",
                         shown, element, start);
    key->element = (enum gguf_value)element;
    size_t size = element == GGUF_STRING ? 8 : values[element].bytes;
    size_t count = 0;
    status = read_count(c, "an array's length", size, &count);
    if (status != ST_OK)
        goto named;

    if (element == GGUF_STRING) {
        key->strings = malloc((count + 1) * sizeof(*key->strings));
        if (key->strings == NULL)
            return error_set(c->error, ST_NO_MEMORY, "key '%s': no memory for %zu strings", shown,
                             count);
        for (size_t i = 0; i < count; i++) {
            status = read_string(c, "an array's string", &key->strings[i]);
            if (status != ST_OK)
                goto named;
        }
    } else {
        status = read_bytes(c, "an array", count * size, &key->value);
        if (status != ST_OK)
            goto named;
        if (element == GGUF_I32 || element == GGUF_U32) {
            key->numbers = malloc((count + 1) * sizeof(*key->numbers));
            if (key->numbers == NULL)
                return error_set(c->error, ST_NO_MEMORY, "key '%s': no memory for %zu numbers",
                                 shown, count);
            memcpy(key->numbers, key->value, count * sizeof(*key->numbers));
        }
    }
    key->count = count;
    return ST_OK;

named:
    error_prefix(c->error, "key '%s'", shown);
    return status;
}

static enum status read_value(struct cursor *c, struct gguf_key *key, const char *shown)
{
    size_t start = c->at;
    uint32_t type = 0;
    enum status status = read_u32(c, "a value's type", &type);
    if (status != ST_OK)
        goto named;
    if (type >= GGUF_VALUE_COUNT)
        return error_set(c->error, ST_INVALID, "key '%s': value type %u at byte %zu: want 0 to %d",
                         shown, type, start, GGUF_VALUE_COUNT - 1);
    key->type = (enum gguf_value)type;
    if (type == GGUF_ARRAY)
        return read_array(c, key, shown);
    if (type == GGUF_STRING)
        status = read_string(c, "a string", &key->string);
    else
        status = read_bytes(c, "a value", values[type].bytes, &key->value);
    if (status != ST_OK)
        goto named;
    if (type == GGUF_BOOL && *key->value > 1)
        return error_set(c->error, ST_INVALID, "key '%s': bool at byte %zu is %u: want 0 or 1",
                         shown, start + 4, *key->value);
    return ST_OK;

named:
    error_prefix(c->error, "key '%s'", shown);
    return status;
}

static enum status read_keys(struct cursor *c, struct gguf *g, size_t count)
{
    /* A hostile file could otherwise choose names whose hashes are equal. */
    secret_random(g->index_key, sizeof(g->index_key));
    g->keys = calloc(count + 1, sizeof(*g->keys));
    if (g->keys == NULL || !index_open(&g->key_index, count))
        return error_set(c->error, ST_NO_MEMORY, "no memory for %zu keys", count);
    for (size_t i = 0; i < count; i++) {
        struct gguf_key *key = &g->keys[i];
        char shown[GGUF_PRINTABLE_BYTES];
        size_t start = c->at;
        enum status status = read_string(c, "a key's name", &key->name);
        if (status != ST_OK)
            return status;
        if (key->name.bytes == 0 || key->name.bytes > KEY_BYTES_MAX)
            return error_set(c->error, ST_INVALID,
                             "a key's name at byte %zu has length %zu: want 1 to %u", start,
                             key->name.bytes, KEY_BYTES_MAX);
        gguf_name_printable(key->name, shown);
        uint32_t *slot = key_slot(g, key->name.text, key->name.bytes);
        if (*slot != 0)
            return error_set(c->error, ST_INVALID, "key '%s' at byte %zu is there twice", shown,
                             start);
        g->key_count = i + 1; /* From now on gguf_close frees what the key allocates. */
        *slot = (uint32_t)i + 1;
        status = read_value(c, key, shown);
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

static enum status read_alignment(struct cursor *c, size_t *out)
{
    static const char name[] = "general.alignment";
    const struct gguf_key *key = gguf_key_find(c->g, name, sizeof(name) - 1);
    int64_t value = ALIGNMENT_DEFAULT;
    if (key != NULL && !gguf_key_integer(key, &value))
        return error_set(c->error, ST_INVALID, "key '%s' is of type %s: want u32", name,
                         gguf_value_name(key->type));
    if (value < ALIGNMENT_MIN || value > ALIGNMENT_MAX || (value & (value - 1)) != 0)
        return error_set(c->error, ST_INVALID,
                         "key '%s' is %" PRId64 ": want a power of two from %u to %u", name, value,
                         ALIGNMENT_MIN, ALIGNMENT_MAX);
    *out = (size_t)value;
    return ST_OK;
}

/* ---- tensors ---- */

static enum status read_dims(struct cursor *c, struct mapped_tensor *t, const char *shown,
                             uint64_t *elements_out)
{
    uint32_t count = 0;
    uint64_t elements = 1;
    enum status status = read_u32(c, "the number of dimensions", &count);
    if (status != ST_OK)
        goto named;
    if (count < 1 || count > 4)
        return error_set(c->error, ST_INVALID, "tensor '%s': %u dimensions: want 1 to 4", shown,
                         count);
    t->dim_count = count;
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i >= count)
            continue;
        status = read_u64(c, "a dimension", &t->dims[i]);
        if (status != ST_OK)
            goto named;
        if (t->dims[i] == 0 || __builtin_mul_overflow(elements, t->dims[i], &elements))
            return error_set(c->error, ST_INVALID,
                             "tensor '%s': dimension %u is %" PRIu64
                             ": want 1 or more, and a product below 2^64",
                             shown, i, t->dims[i]);
    }
    *elements_out = elements;
    return ST_OK;

named:
    error_prefix(c->error, "tensor '%s'", shown);
    return status;
}

static enum status read_type(struct cursor *c, struct mapped_tensor *t, const char *shown)
{
    uint32_t type = 0;
    enum status status = read_u32(c, "the type", &type);
    if (status != ST_OK) {
        error_prefix(c->error, "tensor '%s'", shown);
        return status;
    }
    bool named =
        type < sizeof(tensor_types) / sizeof(tensor_types[0]) && tensor_types[type].name != NULL;
    if (!named || !tensor_types[type].known)
        return error_set(
            c->error, ST_UNSUPPORTED,
            "tensor '%s' is of type %u (%s): supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1, "
            "Q5_0, Q5_1, Q2_K to Q6_K, IQ1 to IQ4, TQ1_0, TQ2_0 and MXFP4",
            shown, type, named ? tensor_types[type].name : "unknown");
    t->type = tensor_types[type].type;
    return ST_OK;
}

/* Reads one entry of the tensor table. The data's offset is returned in *offset_out, because the
 * start of the data is known only after the last entry. */
static enum status read_tensor(struct cursor *c, struct gguf *g, struct mapped_tensor *t,
                               uint64_t *offset_out)
{
    char shown[GGUF_PRINTABLE_BYTES];
    size_t start = c->at;
    uint64_t elements = 0;
    enum status status = read_string(c, "a tensor's name", &t->name);
    if (status != ST_OK)
        return status;
    gguf_name_printable(t->name, shown);
    if (t->name.bytes == 0 || t->name.bytes > KEY_BYTES_MAX)
        return error_set(c->error, ST_INVALID,
                         "a tensor's name at byte %zu has length %zu: want 1 to %u", start,
                         t->name.bytes, KEY_BYTES_MAX);
    if (*tensor_slot(g, t->name.text, t->name.bytes) != 0)
        return error_set(c->error, ST_INVALID, "tensor '%s' at byte %zu is there twice", shown,
                         start);
    status = read_dims(c, t, shown, &elements);
    if (status == ST_OK)
        status = read_type(c, t, shown);
    if (status != ST_OK)
        return status;
    uint32_t block = compute_type_block_elements(t->type);
    if (t->dims[0] % block != 0)
        return error_set(c->error, ST_INVALID,
                         "tensor '%s': %" PRIu64 " columns of type %s: want a multiple of %u",
                         shown, t->dims[0], compute_type_name(t->type), block);
    if (__builtin_mul_overflow(elements / block, compute_type_block_bytes(t->type), &t->bytes))
        return error_set(c->error, ST_INVALID, "tensor '%s': %" PRIu64 " elements are too many",
                         shown, elements);
    status = read_u64(c, "the offset", offset_out);
    if (status != ST_OK)
        error_prefix(c->error, "tensor '%s'", shown);
    return status;
}

static enum status place_tensor(struct cursor *c, struct mapped_tensor *t, size_t alignment,
                                uint64_t offset)
{
    char shown[GGUF_PRINTABLE_BYTES];
    uint64_t end;
    gguf_name_printable(t->name, shown);
    if (offset % alignment != 0)
        return error_set(c->error, ST_INVALID,
                         "tensor '%s': offset %" PRIu64 " is no multiple of the alignment %zu",
                         shown, offset, alignment);
    if (__builtin_add_overflow(offset, (uint64_t)c->g->data_start, &offset) ||
        __builtin_add_overflow(offset, (uint64_t)t->bytes, &end))
        return error_set(c->error, ST_INVALID, "tensor '%s': offset %" PRIu64 " is too large",
                         shown, offset);
    if (end > c->g->bytes)
        return error_set(c->error, ST_INVALID, "tensor '%s': data ends at byte %" PRIu64 " of %zu",
                         shown, end, c->g->bytes);
    t->data = c->g->data + offset;
    return ST_OK;
}

static enum status read_tensors(struct cursor *c, struct gguf *g, size_t count)
{
    size_t alignment = 0;
    uint64_t *offsets = malloc((count + 1) * sizeof(*offsets));
    g->tensors = calloc(count + 1, sizeof(*g->tensors));
    enum status status = ST_OK;
    if (offsets == NULL || g->tensors == NULL || !index_open(&g->tensor_index, count)) {
        status = error_set(c->error, ST_NO_MEMORY, "no memory for %zu tensors", count);
        goto undo_offsets;
    }
    for (size_t i = 0; i < count; i++) {
        struct mapped_tensor *t = &g->tensors[i];
        status = read_tensor(c, g, t, &offsets[i]);
        if (status != ST_OK)
            goto undo_offsets;
        *tensor_slot(g, t->name.text, t->name.bytes) = (uint32_t)i + 1;
    }
    g->tensor_count = count;

    status = read_alignment(c, &alignment);
    if (status != ST_OK)
        goto undo_offsets;
    size_t gap = (alignment - c->at % alignment) % alignment;
    /* A file without tensors may end without padding. */
    g->data_start = gap <= bytes_left(c) ? c->at + gap : g->bytes;
    for (size_t i = 0; i < count && status == ST_OK; i++)
        status = place_tensor(c, &g->tensors[i], alignment, offsets[i]);

undo_offsets:
    free(offsets);
    return status;
}

size_t gguf_tensors_index(struct gguf *g, struct error *error)
{
    free(g->tensor_index.slots);
    if (!index_open(&g->tensor_index, g->tensor_count)) {
        (void)error_set(error, ST_NO_MEMORY, "no memory for %zu tensors", g->tensor_count);
        return SIZE_MAX;
    }
    for (size_t i = 0; i < g->tensor_count; i++) {
        uint32_t *slot = tensor_slot(g, g->tensors[i].name.text, g->tensors[i].name.bytes);
        if (*slot != 0)
            return i;
        *slot = (uint32_t)i + 1;
    }
    return g->tensor_count;
}

static enum status read_header(struct cursor *c, size_t *tensor_count_out, uint64_t *key_count_out)
{
    const uint8_t *magic = NULL;
    uint32_t version = 0;
    enum status status = read_bytes(c, "the magic", 4, &magic);
    if (status != ST_OK)
        return status;
    if (is_lfs_pointer(magic, 4 + bytes_left(c)))
        return error_set(c->error, ST_INVALID, LFS_POINTER_TEXT);
    if (memcmp(magic, "GGUF", 4) != 0)
        return error_set(c->error, ST_INVALID,
                         "not a GGUF file: begins with %02x %02x %02x %02x, want \"GGUF\"",
                         magic[0], magic[1], magic[2], magic[3]);
    status = read_u32(c, "the version", &version);
    if (status != ST_OK)
        return status;
    if (version != 0 && (version & 0xffffu) == 0)
        return error_set(c->error, ST_UNSUPPORTED,
                         "a big-endian GGUF file: want a little-endian one");
    if (version != 2 && version != 3)
        return error_set(c->error, ST_UNSUPPORTED, "GGUF version %u: want 2 or 3", version);
    status = read_count(c, "the number of tensors", TENSOR_BYTES_LEAST, tensor_count_out);
    return status != ST_OK ? status : read_u64(c, "the number of keys", key_count_out);
}

enum status gguf_parse(struct gguf *g, struct error *error)
{
    struct cursor c = {.g = g, .error = error, .at = 0};
    size_t tensor_count = 0;
    uint64_t key_count = 0;
    enum status status = read_header(&c, &tensor_count, &key_count);
    if (status != ST_OK)
        return status;
    /* The index holds 32-bit numbers. */
    if (key_count > bytes_left(&c) / KEY_BYTES_LEAST || key_count >= UINT32_MAX ||
        tensor_count >= UINT32_MAX)
        return error_set(error, ST_INVALID,
                         "%" PRIu64 " keys and %zu tensors: more than %zu bytes hold", key_count,
                         tensor_count, g->bytes);
    status = read_keys(&c, g, (size_t)key_count);
    if (status != ST_OK)
        return status;
    return read_tensors(&c, g, tensor_count);
}
