/* trace_mooncake: one request per line, as a JSON object with timestamp (ms), input_length,
 * output_length and hash_ids. hash_ids has an id for each block of 512 prompt tokens; the last
 * block can be shorter. Requests with the same id have the same tokens in that block (Mooncake,
 * FAST 2025). Other members are ignored. */
#include "tools/trace/line.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIME_MS_MAX  1e14
#define TICKS_PER_MS (TRACE_TICKS_PER_S / 1000)

/* Reports the wrong value as JSON text. */
static enum status value_wrong(const struct trace_line *line, json_t *root, const char *name,
                               const char *wanted, struct error *error)
{
    char *text = json_dumps(json_object_get(root, name), JSON_ENCODE_ANY | JSON_COMPACT);
    enum status status =
        trace_line_wrong(line, name, text != NULL ? text : "nothing", wanted, error);
    free(text);
    return status;
}

static enum status tokens_read(const struct trace_line *line, json_t *root, const char *name,
                               uint32_t *out, struct error *error)
{
    json_t *value = json_object_get(root, name);
    json_int_t tokens = json_integer_value(value);
    if (!json_is_integer(value) || tokens < 1 || tokens > TRACE_TOKENS_MAX)
        return value_wrong(line, root, name, "a whole number from 1 to 10000000", error);
    *out = (uint32_t)tokens;
    return ST_OK;
}

static enum status blocks_read(struct trace_line *line, json_t *root, struct trace_raw *out,
                               struct error *error)
{
    json_t *ids = json_object_get(root, "hash_ids");
    out->block_count = 0;
    if (ids == NULL)
        return ST_OK;
    size_t count = json_array_size(ids);
    uint32_t most = (out->prompt_tokens + TRACE_BLOCK_TOKENS - 1) / TRACE_BLOCK_TOKENS;
    if (!json_is_array(ids) || count > most)
        return value_wrong(line, root, "hash_ids", "an id for each 512 tokens of input_length",
                           error);
    if (count > line->block_room) {
        int64_t *grown = realloc(line->blocks, count * sizeof(*grown));
        if (grown == NULL)
            return error_set(error, ST_NO_MEMORY, "%s: out of memory", line->path);
        line->blocks = grown;
        line->block_room = (uint32_t)count;
    }
    for (size_t i = 0; i < count; i++) {
        json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id))
            return value_wrong(line, root, "hash_ids", "whole numbers", error);
        line->blocks[i] = json_integer_value(id);
    }
    out->block_count = (uint32_t)count;
    return ST_OK;
}

static enum status members_read(struct trace_line *line, json_t *root, struct trace_raw *out,
                                struct error *error)
{
    json_t *time = json_object_get(root, "timestamp");
    double at_ms = json_number_value(time);
    if (!json_is_number(time) || !(at_ms >= 0 && at_ms <= TIME_MS_MAX))
        return value_wrong(line, root, "timestamp", "milliseconds, 0 or more", error);
    out->ticks = llround(at_ms * TICKS_PER_MS);
    out->at_s = at_ms / 1000;
    enum status status = tokens_read(line, root, "input_length", &out->prompt_tokens, error);
    if (status == ST_OK)
        status = tokens_read(line, root, "output_length", &out->output_tokens, error);
    return status == ST_OK ? blocks_read(line, root, out, error) : status;
}

enum status trace_mooncake_row(struct trace_line *line, struct trace_raw *out, struct error *error)
{
    json_error_t why;
    json_t *root = json_loads(line->text, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        json_decref(root);
        return error_set(error, ST_INVALID,
                         "%s:%llu: \"%.*s\": want an object of JSON with timestamp, input_length "
                         "and output_length",
                         line->path, (unsigned long long)line->number, TRACE_SHOWN_BYTES,
                         line->text);
    }
    enum status status = members_read(line, root, out, error);
    json_decref(root);
    return status;
}
