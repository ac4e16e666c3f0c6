/* replay_sse: see the header. Two growing buffers, for the line and for the event's data, are kept
 * between streams. */
#include "tools/replay/sse.h"

#include <stdlib.h>
#include <string.h>

void replay_sse_init(struct replay_sse *sse, replay_sse_event_fn on_event, void *self)
{
    memset(sse, 0, sizeof(*sse));
    sse->on_event = on_event;
    sse->self = self;
}

void replay_sse_done(struct replay_sse *sse)
{
    free(sse->data);
    free(sse->line);
    sse->data = sse->line = NULL;
}

void replay_sse_reset(struct replay_sse *sse)
{
    sse->data_size = sse->line_size = 0;
    sse->has_data = sse->last_was_cr = false;
}

/* Appends bytes and keeps room for a NUL. */
static enum status append(char **buffer, size_t *size, size_t *capacity, const char *bytes,
                          size_t count)
{
    if (*size + count + 1 > REPLAY_SSE_EVENT_BYTES)
        return ST_TOO_LARGE;
    if (*size + count + 1 > *capacity) {
        size_t wanted = *capacity < 256 ? 512 : *capacity * 2;
        if (wanted < *size + count + 1)
            wanted = *size + count + 1;
        char *grown = realloc(*buffer, wanted);
        if (grown == NULL)
            return ST_NO_MEMORY;
        *buffer = grown;
        *capacity = wanted;
    }
    memcpy(*buffer + *size, bytes, count);
    *size += count;
    return ST_OK;
}

static enum status event_give(struct replay_sse *sse)
{
    if (!sse->has_data)
        return ST_OK;
    size_t size = sse->data_size - 1; /* Without the last LF. */
    sse->data[size] = 0;
    sse->has_data = false;
    sse->data_size = 0;
    return sse->on_event(sse->self, sse->data, size) ? ST_OK : ST_CANCELLED;
}

static enum status line_end(struct replay_sse *sse)
{
    const char *line = sse->line;
    size_t size = sse->line_size;
    sse->line_size = 0;
    if (size == 0)
        return event_give(sse);
    if (size < 4 || memcmp(line, "data", 4) != 0 || (size > 4 && line[4] != ':'))
        return ST_OK; /* A comment (":…") or a field that is ignored. */
    size_t start = size > 4 ? 5 : 4;
    if (size > start && line[start] == ' ')
        start++;
    sse->has_data = true;
    enum status status =
        append(&sse->data, &sse->data_size, &sse->data_capacity, line + start, size - start);
    if (status != ST_OK)
        return status;
    return append(&sse->data, &sse->data_size, &sse->data_capacity, "\n", 1);
}

enum status replay_sse_feed(struct replay_sse *sse, const char *bytes, size_t size)
{
    size_t at = 0;
    while (at < size) {
        if (sse->last_was_cr && bytes[at] == '\n') { /* The second half of CRLF. */
            sse->last_was_cr = false;
            at++;
            continue;
        }
        sse->last_was_cr = false;
        size_t end = at;
        while (end < size && bytes[end] != '\n' && bytes[end] != '\r')
            end++;
        enum status status =
            append(&sse->line, &sse->line_size, &sse->line_capacity, bytes + at, end - at);
        if (status != ST_OK)
            return status;
        if (end == size)
            return ST_OK;
        sse->last_was_cr = bytes[end] == '\r';
        status = line_end(sse);
        if (status != ST_OK)
            return status;
        at = end + 1;
    }
    return ST_OK;
}

enum status replay_sse_finish(struct replay_sse *sse)
{
    if (sse->line_size > 0) {
        enum status status = line_end(sse);
        if (status != ST_OK)
            return status;
    }
    return event_give(sse);
}
