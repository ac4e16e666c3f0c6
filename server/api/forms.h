/* api_forms: turns the bodies of POST /v1/responses (OpenAI) and /v1/messages (Anthropic) into the
 * body of a chat, which request.c then parses like any other. So all that chats can do, these
 * endpoints can do. request.c and tokenize.c of this folder call it. No state: any thread. It
 * writes no answers: server/http/form_responses.c and form_messages.c do.
 *
 * The fields that only a form has are in its own table (known_fields.h). All other fields of a body
 * are copied and mean the same as in a chat. */
#ifndef SERVER_API_FORMS_H
#define SERVER_API_FORMS_H

#include "server/api/error.h"
#include "server/api/kind.h"

#include <jansson.h>

/* Converts `body`, an object that is not changed. Requires api_has_form(kind), and a body that
 * api_known_fields_check accepted. *chat_out is a new reference, and may share values with the
 * body. echo_out: for API_RESPONSES the fields of the request that its answer repeats, as JSON
 * members ("\"tools\":[],\"metadata\":{}"), malloc'ed; else NULL. NULL = not wanted. Returns false
 * with a 400 that names the field of the body, or a 503 without memory. */
bool api_form_convert(enum api_kind kind, json_t *body, json_t **chat_out, char **echo_out,
                      struct api_error *error);

#endif
