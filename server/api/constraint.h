/* api_constraint: converts the fields of a body that constrain the answer (response_format,
 * structured_outputs, guided_json and others) to one text as model/grammar/grammar.h reads it.
 * request.c calls the function on the gateway's text threads (server/http/text_jobs.h). The
 * function keeps no state and does not compile the text. */
#ifndef SERVER_API_CONSTRAINT_H
#define SERVER_API_CONSTRAINT_H

#include "server/api/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct api_constraint {
    char *text;        /* malloc'ed, without a NUL at its end; NULL = no constraint. */
    uint32_t bytes;    /* Bytes of `text`. */
    const char *field; /* Static name of the body's field with the constraint, for errors. */
};

/* Stores the body's constraint, if there is one. An empty text, list or schema is no constraint,
 * except in response_format and structured_outputs. *out must be all zeros. The caller frees
 * out->text, also after a failure. Returns false with a 400 for a wrong or unsupported value, for
 * two constraints in one body, and for a constraint of more than LIMIT_CONSTRAINT_BYTES. Returns
 * false with a 503 if there is no memory. */
bool api_constraint_parse(json_t *body, struct api_constraint *out, struct api_error *error);

#endif
