/* json: see the header. */
#include "common/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Fills *why_out with a reason that no line of the text is to blame for. */
static enum status fail(enum status status, const char *reason, json_error_t *why_out)
{
    *why_out = (json_error_t){.line = -1, .column = -1};
    snprintf(why_out->text, sizeof(why_out->text) - 1, "%s", reason);
    return status;
}

/* Says why jansson has returned NULL. errno was 0 before. jansson has an error code for a lack of
 * memory, but often reports another error: a string that it cannot store is an invalid token, and
 * for a value that it cannot store there is no text at all. */
static enum status fault_of(json_error_t *why_out)
{
    const enum json_error_code code = json_error_code(why_out);
    if (errno == ENOMEM || code == json_error_out_of_memory || why_out->text[0] == 0)
        return fail(ST_NO_MEMORY, "out of memory", why_out);
    return ST_INVALID;
}

enum status json_text_load(const char *text, size_t bytes, size_t flags, json_t **out,
                           json_error_t *why_out)
{
    errno = 0;
    *out = json_loadb(text != NULL ? text : "", bytes, flags, why_out);
    return *out != NULL ? ST_OK : fault_of(why_out);
}

enum status json_stream_load(FILE *file, size_t flags, json_t **out, json_error_t *why_out)
{
    errno = 0;
    *out = json_loadf(file, flags, why_out);
    if (*out != NULL)
        return ST_OK;
    if (ferror(file)) /* Such as a folder. For jansson, the text ends there. */
        return fail(ST_IO, errno != 0 ? strerror(errno) : "cannot be read", why_out);
    return fault_of(why_out);
}

enum status json_file_load(const char *path, size_t flags, json_t **out, json_error_t *why_out)
{
    FILE *file = fopen(path, "rbe");
    *out = NULL;
    if (file == NULL)
        return errno == ENOMEM ? fail(ST_NO_MEMORY, "out of memory", why_out)
                               : fail(ST_IO, strerror(errno), why_out);
    enum status status = json_stream_load(file, flags, out, why_out);
    fclose(file);
    return status;
}

json_t *json_value_copy(const json_t *value)
{
    json_t *copy = json_copy((json_t *)value); /* jansson does not change the value. */
    if (json_object_size(copy) == json_object_size(value) &&
        json_array_size(copy) == json_array_size(value))
        return copy;
    json_decref(copy);
    return NULL;
}

static void *memory_take(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) { /* jansson never asks for 0 bytes. */
        fprintf(stderr, "cleave: out of memory\n");
        exit(1);
    }
    return memory;
}

void json_exit_without_memory(void)
{
    json_set_alloc_funcs(memory_take, free);
}
