/* protobuf: reads the fields of one Protocol Buffers message, one after the other, without a
 * schema. A struct protobuf is a plain value that one thread uses; it points into the message and
 * allocates nothing. vocabulary_sentencepiece.c calls it, on the thread that uses the model_file.
 * It does not know what the fields mean. Every length is checked against the end of the message.
 * Groups (wire types 3 and 4), which SentencePiece's messages do not have, are errors. */
#ifndef MODEL_FILE_PROTOBUF_H
#define MODEL_FILE_PROTOBUF_H

#include "model/file/mapped.h"

#include <stdbool.h>
#include <stdint.h>

/* The state of reading one message. */
struct protobuf {
    struct mapped_text unread; /* The part of the message that is not read yet. */
    bool malformed;            /* The message is cut or malformed; no further field is read. */
};

/* One field of a message. */
struct protobuf_field {
    uint32_t number; /* Number of the field in the message's schema. */
    uint64_t value;  /* Value of a varint, or the bits of a field of 4 or 8 bytes. */
    /* Content of a string or of a message inside this one; text NULL = the field has `value`. */
    struct mapped_text bytes;
};

/* Begins to read a message, which must stay in memory. */
static inline struct protobuf protobuf_begin(struct mapped_text message)
{
    return (struct protobuf){.unread = message};
}

/* Stores the next field. Returns false, and stores nothing, at the end of the message or if the
 * message is malformed (p->malformed). */
bool protobuf_next(struct protobuf *p, struct protobuf_field *out);

/* Returns the value of a field of 4 bytes as a float. */
float protobuf_float(const struct protobuf_field *field);

#endif
