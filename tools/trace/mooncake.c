/* trace_mooncake: one request per line, as a JSON object with timestamp (ms), input_length,
 * output_length and hash_ids. hash_ids has an id for each block of 512 prompt tokens; the last
 * block can be shorter. Requests with the same id have the same tokens in that block (Mooncake,
 * FAST 2025). A row of cleave's own (trace_row_write) also has request_id, block_tokens, which
 * replaces 512, and tenant. Other members are ignored. */
#include "tools/trace/line.h"

#include "common/json.h"

#include <inttypes.h>
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
    const json_t *value = json_object_get(root, name);
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (value != NULL && text == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", line->path);
    enum status status =
        trace_line_wrong(line, name, text != NULL ? text : "nothing", wanted, error);
    free(text);
    return status;
}

/* Reads a number from 1 to TRACE_TOKENS_MAX. */
static enum status number_read(const struct trace_line *line, json_t *root, const char *name,
                               uint32_t *out, struct error *error)
{
    json_t *value = json_object_get(root, name);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 1 || number > TRACE_TOKENS_MAX)
        return value_wrong(line, root, name, "a whole number from 1 to 10000000", error);
    *out = (uint32_t)number;
    return ST_OK;
}

/* Leaves *out unchanged if there is no such member. */
static enum status number_read_if(const struct trace_line *line, json_t *root, const char *name,
                                  uint32_t *out, struct error *error)
{
    return json_object_get(root, name) != NULL ? number_read(line, root, name, out, error) : ST_OK;
}

static enum status blocks_read(struct trace_line *line, json_t *root, struct trace_raw *out,
                               struct error *error)
{
    json_t *ids = json_object_get(root, "hash_ids");
    out->block_count = 0;
    if (ids == NULL)
        return ST_OK;
    size_t count = json_array_size(ids);
    uint32_t block_tokens = out->block_tokens > 0 ? out->block_tokens : TRACE_BLOCK_TOKENS;
    uint32_t most = (out->prompt_tokens + block_tokens - 1) / block_tokens;
    if (!json_is_array(ids) || count > most) {
        char wanted[80];
        snprintf(wanted, sizeof(wanted), "an id for each %" PRIu32 " tokens of input_length",
                 block_tokens);
        return value_wrong(line, root, "hash_ids", wanted, error);
    }
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
    enum status status = number_read(line, root, "input_length", &out->prompt_tokens, error);
    if (status == ST_OK)
        status = number_read(line, root, "output_length", &out->output_tokens, error);
    if (status == ST_OK)
        status = number_read_if(line, root, "block_tokens", &out->block_tokens, error);
    if (status == ST_OK)
        status = number_read_if(line, root, "tenant", &out->tenant, error);
    json_t *id = json_object_get(root, "request_id");
    if (json_is_integer(id) && json_integer_value(id) >= 0) /* Others' ids may be texts. */
        out->id = (uint64_t)json_integer_value(id);
    return status == ST_OK ? blocks_read(line, root, out, error) : status;
}

enum status trace_mooncake_row(struct trace_line *line, struct trace_raw *out, struct error *error)
{
    json_error_t why;
    json_t *root;
    enum status status =
        json_text_load(line->text, strlen(line->text), JSON_REJECT_DUPLICATES, &root, &why);
    if (status == ST_NO_MEMORY)
        return error_set(error, status, "%s: out of memory", line->path);
    if (!json_is_object(root)) {
        json_decref(root);
        return error_set(error, ST_INVALID,
                         "%s:%llu: \"%.*s\": want an object of JSON with timestamp, input_length "
                         "and output_length",
                         line->path, (unsigned long long)line->number, TRACE_SHOWN_BYTES,
                         line->text);
    }
    status = members_read(line, root, out, error);
    json_decref(root);
    return status;
}

void trace_row_write(FILE *out, const struct trace_row *row)
{
    fprintf(out,
            "{\"request_id\":%" PRIu64 ",\"timestamp\":%.3f,\"input_length\":%" PRIu32
            ",\"output_length\":%" PRIu32,
            row->id, row->at_s * 1000, row->prompt_tokens, row->output_tokens);
    if (row->tenant > 0)
        fprintf(out, ",\"tenant\":%" PRIu32, row->tenant);
    if (row->block_count > 0)
        fprintf(out, ",\"block_tokens\":%" PRIu32 ",\"hash_ids\":[", row->block_tokens);
    for (uint32_t i = 0; i < row->block_count; i++)
        fprintf(out, "%s%" PRId64, i > 0 ? "," : "", row->blocks[i]);
    fputs(row->block_count > 0 ? "]}\n" : "}\n", out);
}
