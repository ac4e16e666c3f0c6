/* api_known_fields: tables of the request fields that cleave or other servers (OpenAI, vLLM,
 * llama-server) know, and a check of a body's fields. The check refuses a field that cleave does
 * not use, if the field would change the answer. The parsers in server/api/ check bodies on the
 * text threads, and openapi.c writes /openapi.json from the tables. The functions keep no state,
 * and any thread may call them.
 * The tables do not have the fields that only /tokenize and /detokenize know, and the check does
 * not parse the values of fields that cleave uses.
 *
 * /v1/responses and /v1/messages have tables of their own, with the fields that they do not share
 * with chats. Their other fields mean the same as in a chat. /v1/embeddings uses only the fields of
 * its own table. */
#ifndef SERVER_API_KNOWN_FIELDS_H
#define SERVER_API_KNOWN_FIELDS_H

#include "server/api/error.h"
#include "server/api/kind.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The neutral values of a field: values that change nothing, so the check accepts them in a field
 * that cleave does not use. null is neutral in every field. */
enum api_neutral {
    API_NEUTRAL_EVERY, /* Every value is neutral. */
    API_NEUTRAL_NULL,
    API_NEUTRAL_EMPTY, /* "", [] and {} */
    API_NEUTRAL_FALSE,
    API_NEUTRAL_TRUE,
    API_NEUTRAL_ZERO,
    API_NEUTRAL_ONE,
    API_NEUTRAL_MINUS_ONE,
    API_NEUTRAL_NONE,         /* "none" */
    API_NEUTRAL_NONE_OR_AUTO, /* "none" and "auto" */
    API_NEUTRAL_MEDIUM,       /* "medium" */
    API_NEUTRAL_DISABLED,     /* "disabled" */
    API_NEUTRAL_TEXT,         /* {"type": "text"} */
    API_NEUTRAL_TEXT_LIST,    /* ["text"] */
};

struct api_known_field {
    const char *name;
    /* Bit k is set: cleave uses the field in requests of the enum api_kind with the value k. In
     * api_known_fields, the bit of API_CHAT also counts for the kinds of api_has_form. */
    uint32_t used_by_kinds;
    enum api_neutral neutral;
    /* A letter each for OpenAI, vLLM and llama-server: y = supports the field, p = partly or
     * deprecated, i = ignores the field, n = no. Empty in the tables of api_form_fields. */
    char peer_support[4];
    /* JSON types of the field except null, separated by blanks; empty if `used_by_kinds` is 0. */
    const char *types;
    /* The values, as a text for docs/api.md and /openapi.json; empty if `used_by_kinds` is 0. */
    const char *values;
};

/* The table of the fields of completions and chats, ordered by name (strcmp). */
extern const struct api_known_field api_known_fields[];
extern const size_t api_known_fields_count;

/* Returns the table of /v1/responses, /v1/messages or /v1/embeddings, ordered by name. *count_out
 * is 0 for kinds that have no table of their own. */
const struct api_known_field *api_form_fields(enum api_kind kind, size_t *count_out);
/* Finds a field in the table of api_form_fields(kind). NULL = the table does not have the field. */
const struct api_known_field *api_form_field_find(enum api_kind kind, const char *name);
/* Finds a field of bodies of this kind. NULL = no table that applies to the kind has the field.
 * *used_out: cleave uses the field in bodies of this kind. */
const struct api_known_field *api_known_field_find(enum api_kind kind, const char *name,
                                                   bool *used_out);

/* Returns the neutral values as a text for people: "false", "\"none\" or \"auto\"". */
const char *api_neutral_text(enum api_neutral neutral);

/* Returns false, with a 400 "unsupported_parameter", if the body has a known field that cleave does
 * not use in requests of this kind, and its value is not neutral. Unknown fields are accepted; on
 * success *unknown_count_out is their number. */
bool api_known_fields_check(json_t *body, enum api_kind kind, uint32_t *unknown_count_out,
                            struct api_error *error);

#endif
