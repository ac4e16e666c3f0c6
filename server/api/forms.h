/* api_forms: converts the bodies of POST /v1/responses (OpenAI) and /v1/messages (Anthropic) to the
 * body of a chat, which is then parsed like the body of any chat. request.c and tokenize.c call it
 * on the text threads. The function keeps no state and writes no answers (server/http/form.h
 * does). */
#ifndef SERVER_API_FORMS_H
#define SERVER_API_FORMS_H

#include "server/api/error.h"
#include "server/api/kind.h"

#include <jansson.h>

/* Converts `body`, which is not changed. Requires api_has_form(kind), and a body that
 * api_known_fields_check has accepted. Fields that are not in the form's own table
 * (api_form_fields) are copied. *chat_out is a new reference, and may share values with the body.
 * *echo_out: for API_RESPONSES, the fields of the request that its answer repeats, as JSON members
 * ("\"tools\":[],\"metadata\":{}"), malloc'ed; for API_MESSAGES, NULL. echo_out may be NULL.
 * Returns false with a 400, or with a 503 if there is no memory. */
bool api_form_convert(enum api_kind kind, json_t *body, json_t **chat_out, char **echo_out,
                      struct api_error *error);

#endif
