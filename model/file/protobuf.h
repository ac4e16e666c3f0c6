/* protobuf: reads the fields of one Protocol Buffers message, one after the other, without a
 * schema. vocabulary_sentencepiece.c uses it. A struct protobuf is a plain value that one thread
 * uses; it points into the message and allocates nothing. Every length is checked against the end
 * of the message. Groups (wire types 3 and 4), which SentencePiece does not have, are errors. */
#ifndef MODEL_FILE_PROTOBUF_H
#define MODEL_FILE_PROTOBUF_H

#include "model/file/mapped.h"

#include <stdbool.h>
#include <stdint.h>

struct protobuf {
    struct mapped_text unread; /* The unread part. */
    bool malformed;            /* The message is cut or malformed; no further field is read. */
};

struct protobuf_field {
    uint32_t number;
    uint64_t value; /* Value of a varint, or the bits of a field of 4 or 8 bytes. */
    /* Content of a string or of a message inside this one; text NULL = the field has `value`. */
    struct mapped_text bytes;
};

static inline struct protobuf protobuf_begin(struct mapped_text message)
{
    return (struct protobuf){.unread = message};
}

/* Reads the next field. Returns false at the end, or if the message is malformed (p->malformed). */
bool protobuf_next(struct protobuf *p, struct protobuf_field *out);

/* Returns the value of a fixed 32-bit field as a float. */
float protobuf_float(const struct protobuf_field *field);

#endif
