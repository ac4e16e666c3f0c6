/* gguf_split: models in several GGUF files. The first file has the metadata; all files have
 * split.no (counted from 0), split.count and split.tensors.count. A file may be in the place of
 * another (an interrupted download, a wrong copy), so the keys, the tensors' number and their names
 * are compared. */
#include "model/file/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_MAX 4096 /* More files are not mapped (mapping.c). */

struct split {
    uint32_t number; /* Of the part, counted from 0. */
    uint32_t count;  /* Number of parts; 1 = the model is one file. */
    bool has_tensors;
    uint32_t tensors; /* Of all parts; set only if has_tensors. */
};

/* Reads a key that may be missing: then *out stays as it is. */
static enum status key_read(const struct gguf *g, const char *key, uint32_t *out, bool *found_out,
                            struct error *error)
{
    enum status status = gguf_get_u32(g, key, out, error);
    *found_out = status == ST_OK;
    return status == ST_NOT_FOUND ? ST_OK : status;
}

static enum status split_read(const struct gguf *g, struct split *out, struct error *error)
{
    struct split s = {.count = 1};
    bool found;
    enum status status = key_read(g, "split.count", &s.count, &found, error);
    if (status == ST_OK)
        status = key_read(g, "split.no", &s.number, &found, error);
    if (status == ST_OK)
        status = key_read(g, "split.tensors.count", &s.tensors, &s.has_tensors, error);
    if (status != ST_OK)
        return status;
    if (s.count == 0 && s.number == 0)
        s.count = 1;
    if (s.count > PARTS_MAX || s.number >= s.count)
        return error_set(error, ST_INVALID,
                         "%s: keys 'split.no' and 'split.count' are %" PRIu32 " and %" PRIu32
                         ": want a number below the count, and at most %d parts",
                         g->name, s.number, s.count, PARTS_MAX);
    *out = s;
    return ST_OK;
}

/* Writes the ending of the name of part `number`, counted from 0. */
static void ending_of(uint32_t number, uint32_t count, char out[40])
{
    snprintf(out, 40, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", number + 1, count);
}

/* Compares a part's keys with those of the first part. */
static enum status part_check(const struct gguf *first, const struct split *of,
                              const struct gguf *part, uint32_t number, struct error *error)
{
    struct split s;
    struct mapped_text here, there;
    struct error ignored;
    enum status status = split_read(part, &s, error);
    if (status != ST_OK)
        return status;
    if (s.number != number || s.count != of->count)
        return error_set(error, ST_INVALID,
                         "%s: its keys say part %" PRIu32 " of %" PRIu32 ": want part %" PRIu32
                         " of %" PRIu32,
                         part->name, s.number + 1, s.count, number + 1, of->count);
    const bool same_tensors = s.has_tensors == of->has_tensors && s.tensors == of->tensors;
    const bool named = gguf_get_string(part, "general.name", &here, &ignored) == ST_OK &&
                       gguf_get_string(first, "general.name", &there, &ignored) == ST_OK;
    if (!same_tensors ||
        (named && (here.bytes != there.bytes || memcmp(here.text, there.text, here.bytes) != 0)))
        return error_set(error, ST_INVALID,
                         "%s is a part of another model than %s: key '%s' differs", part->name,
                         first->name, same_tensors ? "general.name" : "split.tensors.count");
    return ST_OK;
}

static enum status part_open(struct gguf *first, const struct split *of, const char *path,
                             uint32_t number, struct error *error)
{
    struct gguf *part;
    enum status status = gguf_open_file(path, &part, error);
    if (status == ST_NOT_FOUND)
        return error_set(error, ST_INVALID, "%s is missing: part %" PRIu32 " of %" PRIu32 " of %s",
                         path, number + 1, of->count, first->name);
    if (status != ST_OK)
        return status;
    first->parts[first->part_count++] = part;
    return part_check(first, of, part, number, error);
}

/* Moves the tensors of all parts into the first part's list. */
static enum status tensors_join(struct gguf *first, const struct split *of, struct error *error)
{
    char shown[GGUF_PRINTABLE_BYTES];
    size_t count = first->tensor_count, at = first->tensor_count;
    for (size_t i = 0; i < first->part_count; i++)
        count += first->parts[i]->tensor_count;
    if (of->has_tensors && count != of->tensors)
        return error_set(error, ST_INVALID,
                         "%s: its %" PRIu32 " parts have %zu tensors: want the %" PRIu32
                         " of key 'split.tensors.count'",
                         first->name, of->count, count, of->tensors);
    struct mapped_tensor *tensors = realloc(first->tensors, (count + 1) * sizeof(*tensors));
    if (tensors == NULL || count >= UINT32_MAX)
        return error_set(error, ST_NO_MEMORY, "%s: no memory for %zu tensors", first->name, count);
    first->tensors = tensors;
    for (size_t i = 0; i < first->part_count; i++) {
        const struct gguf *part = first->parts[i];
        memcpy(tensors + at, part->tensors, part->tensor_count * sizeof(*tensors));
        at += part->tensor_count;
    }
    first->tensor_count = count;
    const size_t twice = gguf_tensors_index(first, error);
    if (twice == SIZE_MAX)
        return ST_NO_MEMORY;
    return twice == count ? ST_OK
                          : error_set(error, ST_INVALID, "%s: tensor '%s' is in two parts",
                                      first->name, gguf_name_printable(tensors[twice].name, shown));
}

enum status gguf_split_open(struct gguf *first, const char *path, struct error *error)
{
    struct split s;
    char ending[40], part_path[4096];
    enum status status = split_read(first, &s, error);
    if (status != ST_OK || s.count == 1)
        return status;
    ending_of(s.number, s.count, ending);
    const size_t bytes = strlen(path), end = strlen(ending);
    if (s.number != 0)
        return error_set(error, ST_INVALID,
                         "%s is part %" PRIu32 " of %" PRIu32 " of a model: name the first part",
                         first->name, s.number + 1, s.count);
    if (bytes < end || strcmp(path + bytes - end, ending) != 0 || bytes >= sizeof(part_path))
        return error_set(error, ST_INVALID,
                         "%s is part 1 of %" PRIu32 " of a model: want a name that ends with %s, "
                         "and the other parts beside it",
                         first->name, s.count, ending);
    first->parts = calloc(s.count, sizeof(struct gguf *));
    if (first->parts == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: no memory for its parts", first->name);
    for (uint32_t i = 1; i < s.count && status == ST_OK; i++) {
        ending_of(i, s.count, ending);
        snprintf(part_path, sizeof(part_path), "%.*s%s", (int)(bytes - end), path, ending);
        status = part_open(first, &s, part_path, i, error);
    }
    return status == ST_OK ? tensors_join(first, &s, error) : status;
}
