/* forms_internal: the state of converting one body, the two converters (form_responses.c and
 * form_messages.c), and the functions of forms.c that the converters call. The functions run on the
 * thread that calls api_form_convert. Functions that return bool return false, with form->error
 * filled, on failure. The functions of this header write no answers. */
#ifndef SERVER_API_FORMS_INTERNAL_H
#define SERVER_API_FORMS_INTERNAL_H

#include "common/text.h"
#include "server/api/forms.h"

/* Size of a `place`: the text that names a value in errors, such as "input[3].content". */
#define FORM_PLACE_BYTES 96

/* The state of converting one body. */
struct form {
    json_t *body;
    json_t *chat;        /* The body of the chat, which is the result. */
    json_t *messages;    /* The list of messages of `chat`. */
    uint32_t item_count; /* Number of messages, parts, calls and tools so far. */
    struct api_error *error;
};

/* Most messages, parts, calls and tools of a body. */
#define FORM_ITEMS_MAX 65536

/* Each function converts the fields that are in the table of its API (api_form_fields) to fields of
 * form->chat. */
bool form_responses_convert(struct form *form);
bool form_messages_convert(struct form *form);
/* Returns a new object with the fields of the request that the answer repeats; NULL = no memory. */
json_t *form_responses_echo(json_t *body);

/* Sets object[name], and takes over `value`. Fails with a 503 if `value` is NULL or memory is
 * short. */
bool form_member_set(struct form *form, json_t *object, const char *name, json_t *value);
/* Copies the body's field `name`, if there is one, to the chat's field chat_name. */
bool form_field_copy(struct form *form, const char *name, const char *chat_name);
/* Adds a message with this role and returns the message, which the chat owns. NULL = failure, with
 * form->error filled. */
json_t *form_message_add(struct form *form, const char *role);
/* Returns the last message if its role is `role`, else NULL. */
json_t *form_message_last(const struct form *form, const char *role);
/* Adds `content` (a text, or a list of parts with texts) to the content of a message. place: names
 * `content` in errors. */
bool form_content_add(struct form *form, json_t *message, json_t *content, const char *place);
/* Appends a piece of an assistant's reasoning to the collected reasoning. */
void form_reasoning_add(struct text *reasoning, const json_t *piece);
/* Moves the collected reasoning, if there is any, to a message, and frees *reasoning. If the
 * message has reasoning already, replaces that reasoning. */
bool form_reasoning_end(struct form *form, json_t *message, struct text *reasoning);
/* Adds a text to a message's content. With more than one text, the content is a list of parts. */
bool form_text_add(struct form *form, json_t *message, json_t *text);
/* Adds a call to a message of an assistant. `arguments`: a text or an object. */
bool form_call_add(struct form *form, json_t *message, json_t *id, json_t *name, json_t *arguments);
/* Adds the result of the call `id` as a message. content: see form_content_add; NULL = "". */
bool form_result_add(struct form *form, json_t *id, json_t *content, const char *place);
/* Converts the body's `tools`, which must be functions of the client. type: the wanted value of the
 * field "type" of a tool. type_optional: the field may be missing. schema: name of the tool's field
 * with the schema of the arguments. */
bool form_tools_convert(struct form *form, const char *type, bool type_optional,
                        const char *schema);
/* Sets the chat's tool_choice to the function with this name. */
bool form_tool_choice_set(struct form *form, json_t *name);
/* Sets the chat's response_format to a JSON schema. */
bool form_schema_set(struct form *form, json_t *schema);
/* Sets a variable of the chat template, unless chat_template_kwargs has it already or is no object.
 * Takes over `value`. */
bool form_variable_set(struct form *form, const char *name, json_t *value);

/* Stores the value of the object's field, which must be a string; otherwise the error names
 * "`place`.`field`". The object owns *out. */
bool form_field_string(struct form *form, json_t *object, const char *place, const char *field,
                       json_t **out);
/* Returns the value of the field "type"; "" = the field is missing or is not a text. */
const char *form_type(const json_t *object);
/* Fills form->error with a 400: `object` at `place` is no object, or its type is not `wanted`.
 * Returns false. */
bool form_type_wrong(struct form *form, const char *place, const json_t *object,
                     const char *wanted);

#endif
