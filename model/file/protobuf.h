/* protobuf: reads the fields of a Protocol Buffers message, one after the other, without a schema.
 * A struct protobuf is a plain value that points into the message; this part allocates no memory.
 * vocabulary_sentencepiece.c calls the functions, on the thread that uses the struct model_file.
 * This part does not know the meaning of fields, and supports no groups (wire types 3 and 4). */
#ifndef MODEL_FILE_PROTOBUF_H
#define MODEL_FILE_PROTOBUF_H

#include "model/file/mapped.h"

#include <stdbool.h>
#include <stdint.h>

/* A message that is being read. */
struct protobuf {
    struct mapped_text unread; /* The part of the message that has not been read yet. */
    bool malformed;            /* The message is cut or malformed, or has a group. */
};

/* One field of a message. */
struct protobuf_field {
    uint32_t number; /* Number of the field in the message's schema. */
    uint64_t value;  /* Value of a varint, or the bits of a field of 4 or 8 bytes. */
    /* Content of a string or of an inner message; text NULL = the field has `value` instead. */
    struct mapped_text bytes;
};

/* Returns a reader that starts at the first field of `message`. The message must stay in memory
 * while the caller uses the reader or the `bytes` of a field. */
static inline struct protobuf protobuf_begin(struct mapped_text message)
{
    return (struct protobuf){.unread = message};
}

/* Reads the next field into *out. Returns false, and leaves *out unchanged, at the end of the
 * message and if the rest of the message is malformed; p->malformed tells which of the two. */
bool protobuf_next(struct protobuf *p, struct protobuf_field *out);

/* Returns the value of a field of 4 bytes, read as a float. */
float protobuf_float(const struct protobuf_field *field);

#endif
