/* message_cursor: reads a message piece by piece, for message_decode.c and stage_message.c only.
 * The cursor cannot pass the message's end. Every count, enum and text is checked before it is
 * used. It has no state besides the cursor: any thread may use it. */
#ifndef TRANSPORT_MESSAGE_CURSOR_H
#define TRANSPORT_MESSAGE_CURSOR_H

#include "transport/message.h"

#include <string.h>

struct cursor {
    const uint8_t *at;
    const uint8_t *end;
    const char *kind;
    struct error *error;
};

/* Returns the next `bytes` bytes, or NULL with cursor->error set; the caller then returns
 * ST_INVALID. */
static inline const void *cursor_take(struct cursor *cursor, size_t bytes, const char *what)
{
    size_t left = (size_t)(cursor->end - cursor->at);
    if (bytes > left) {
        error_set(cursor->error, ST_INVALID, "%s message: %s: want %zu bytes, %zu are left",
                  cursor->kind, what, bytes, left);
        return NULL;
    }
    const void *taken = cursor->at;
    cursor->at += bytes;
    return taken;
}

static inline enum status check_range(struct cursor *cursor, const char *field, int64_t value,
                                      int64_t low, int64_t high)
{
    if (value >= low && value <= high)
        return ST_OK;
    return error_set(cursor->error, ST_INVALID, "%s message: %s = %lld: want %lld to %lld",
                     cursor->kind, field, (long long)value, (long long)low, (long long)high);
}

static inline enum status check_text(struct cursor *cursor, const char *field, const char *text,
                                     size_t capacity)
{
    if (memchr(text, 0, capacity) != NULL)
        return ST_OK;
    return error_set(cursor->error, ST_INVALID, "%s message: %s has no end within %zu bytes",
                     cursor->kind, field, capacity);
}

/* Reads and checks an array of `count` stages. */
static inline enum status cursor_stages(struct cursor *cursor, uint32_t count,
                                        struct message_stages *to)
{
    const struct message_stage *stages =
        cursor_take(cursor, count * sizeof(struct message_stage), "stages");
    if (stages == NULL)
        return ST_INVALID;
    *to = (struct message_stages){.count = count, .stages = stages};
    for (uint32_t i = 0; i < count; i++) {
        enum status status =
            check_text(cursor, "address", stages[i].address, sizeof(stages[i].address));
        if (status == ST_OK)
            status = check_range(cursor, "last_layer", stages[i].last_layer, 1, LIMIT_LAYERS);
        if (status == ST_OK)
            status = check_range(cursor, "first_layer", stages[i].first_layer, 0,
                                 stages[i].last_layer - 1);
        if (status == ST_OK)
            status = check_range(cursor, "last_head", stages[i].last_head, 1, LIMIT_HEADS);
        if (status == ST_OK)
            status =
                check_range(cursor, "first_head", stages[i].first_head, 0, stages[i].last_head - 1);
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

#endif
