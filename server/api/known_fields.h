/* api_known_fields: the tables of the request fields that cleave or other servers (OpenAI, vLLM,
 * llama-server) know, and the check that refuses a body with a field that would change the answer
 * but that cleave does not use. The tables do not have the fields that only /tokenize and
 * /detokenize know. request.c and tokenize.c check bodies, and forms.c looks fields up, on the text
 * threads. openapi.c writes the fields in /openapi.json from the tables, and a test compares
 * docs/api.md with the tables. The functions keep no state, and any thread may call them. The check
 * does not parse the values of fields that cleave uses.
 *
 * /v1/responses and /v1/messages each have a table with the fields that they do not share with
 * chats. A field that is not in the endpoint's table means the same as in a chat. /v1/embeddings
 * uses only the fields of its own table. */
#ifndef SERVER_API_KNOWN_FIELDS_H
#define SERVER_API_KNOWN_FIELDS_H

#include "server/api/error.h"
#include "server/api/kind.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The neutral values of a field: the values that change nothing, so that a server that does not use
 * the field may accept them. null is always neutral. */
enum api_neutral {
    API_NEUTRAL_ANY, /* The field never changes the answer. */
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
    /* Bit k is set: cleave uses the field in requests of the enum api_kind with the value k. */
    uint32_t used_by_kinds;
    enum api_neutral neutral;
    /* One letter each for OpenAI, vLLM and llama-server: y = supports the field, p = partly or
     * deprecated, i = ignores it, n = no. Empty in the tables of api_form_fields. */
    char peer_support[4];
    /* The JSON types of the field other than null, separated by blanks; empty if `used_by_kinds` is
     * 0. */
    const char *types;
    /* The values, as a text for docs/api.md and /openapi.json; empty if `used_by_kinds` is 0. */
    const char *values;
};

/* The table of the fields of completions and chats, ordered by name (strcmp). */
extern const struct api_known_field api_known_fields[];
extern const size_t api_known_fields_count;

/* Returns the own table of /v1/responses, /v1/messages or /v1/embeddings, ordered by name.
 * *count_out is 0 for the other kinds, which have no own table. */
const struct api_known_field *api_form_fields(enum api_kind kind, size_t *count_out);
/* Returns the field of the table of api_form_fields; NULL = the table does not have it. */
const struct api_known_field *api_form_field_find(enum api_kind kind, const char *name);
/* Returns the field with this name in bodies of this kind; NULL = the field is not known.
 * *used_out: cleave uses the field. */
const struct api_known_field *api_known_field_find(enum api_kind kind, const char *name,
                                                   bool *used_out);

/* Returns the neutral values as a text for people: "false", "\"none\" or \"auto\"". */
const char *api_neutral_text(enum api_neutral neutral);

/* Checks that each known field that cleave does not use in requests of this kind has a neutral
 * value in the body. Otherwise returns false, with a 400 "unsupported_parameter" that names the
 * first field with another value. Unknown fields are accepted; on success *unknown_count_out is
 * their number. */
bool api_known_fields_check(json_t *body, enum api_kind kind, uint32_t *unknown_count_out,
                            struct api_error *error);

#endif
