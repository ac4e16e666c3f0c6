/* api_constraint: the fields of a body that constrain the answer (response_format,
 * structured_outputs, guided_json and others), as one text of model/grammar/grammar.h. request.c of
 * this folder calls the parser for every body; completion.c compiles the text to check it. No
 * state: any thread. */
#ifndef SERVER_API_CONSTRAINT_H
#define SERVER_API_CONSTRAINT_H

#include "server/api/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct api_constraint {
    char *text; /* malloc'ed; NULL = the answer is free. */
    uint32_t bytes;
    const char *field; /* The body's field, for errors. */
};

/* Returns false with a 400 for a wrong value, for two constraints in one body, and for one of more
 * than LIMIT_CONSTRAINT_BYTES; 503 without memory. The caller frees out->text. */
bool api_constraint_parse(json_t *body, struct api_constraint *out, struct api_error *error);

#endif
