/* api_constraint: converts the fields of a body that constrain the answer (response_format,
 * structured_outputs, guided_json and others) to one text in the form of model/grammar/grammar.h.
 * request.c calls it on the text threads; it keeps no state, and any thread may call it. It does
 * not compile the text. */
#ifndef SERVER_API_CONSTRAINT_H
#define SERVER_API_CONSTRAINT_H

#include "server/api/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct api_constraint {
    char *text;     /* malloc'ed, without a NUL at its end; NULL = no constraint. */
    uint32_t bytes; /* Bytes of `text`. */
    /* Name of the body's field that has the constraint, for errors; a static text. */
    const char *field;
};

/* Stores the body's constraint, if there is one. An empty text, list or schema is no constraint,
 * except in response_format and structured_outputs. *out must be all zeros. Returns false with a
 * 400 for a wrong or unsupported value, for two constraints in one body, and for a constraint of
 * more than LIMIT_CONSTRAINT_BYTES. Returns false with a 503 if there is no memory. The caller
 * frees out->text, also after a failure. */
bool api_constraint_parse(json_t *body, struct api_constraint *out, struct api_error *error);

#endif
