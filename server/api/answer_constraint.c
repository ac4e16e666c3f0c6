/* api_answer_constraint: see the header. */
#include "server/api/answer_constraint.h"

#include "common/json.h"
#include "common/limits.h"
#include "common/text.h"
#include "model/answer/answer_calls.h"

#include <stdlib.h>
#include <string.h>

/* Returns ST_INVALID for a JSON schema that is not valid JSON: it stays as it was given, so that
 * the error of its compilation names the mistake. Else returns ST_OK or ST_NO_MEMORY. */
static enum status schema_check(const struct api_constraint *constraint)
{
    static const char schema[] = "json_schema:";
    const size_t head = sizeof(schema) - 1;
    if (constraint->text == NULL || constraint->bytes < head ||
        memcmp(constraint->text, schema, head) != 0)
        return ST_OK;
    json_error_t why;
    json_t *value;
    enum status status = json_text_load(constraint->text + head, constraint->bytes - head,
                                        JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &value, &why);
    json_decref(value);
    return status;
}

static bool text_take(struct text *text, const char *field, struct api_constraint *constraint,
                      struct api_error *error)
{
    if (text->broken) {
        text_done(text);
        return api_error_set(error, 503, NULL, "out of memory");
    }
    if (text->bytes > LIMIT_CONSTRAINT_BYTES) {
        api_error_set(error, 400, field,
                      "%s: the constraint of the answer has %zu bytes: want at most %u", field,
                      text->bytes, LIMIT_CONSTRAINT_BYTES);
        text_done(text);
        return false;
    }
    free(constraint->text);
    *constraint = (struct api_constraint){text->data, (uint32_t)text->bytes, field};
    return true;
}

bool api_answer_constraint(struct answer_format *format, enum answer_begin answer_begin,
                           const json_t *tools, const struct api_tools *tool_fields,
                           struct api_constraint *constraint, struct api_error *error)
{
    const bool named = tool_fields->choice == API_TOOLS_NAMED;
    const bool forced = named || tool_fields->choice == API_TOOLS_REQUIRED;
    const bool own = constraint->text != NULL;
    const bool reasons = format->reasoning != ANSWER_REASONING_NONE;
    if (forced && own)
        return api_error_set(error, 400, "tool_choice", "tool_choice and %s exclude each other",
                             constraint->field);
    if (forced && format->tools == ANSWER_TOOLS_NONE)
        format->tools = ANSWER_TOOLS_JSON;
    const bool calls = tool_fields->choice != API_TOOLS_NONE && format->tools != ANSWER_TOOLS_NONE;
    const bool bound = calls && (forced || own || tool_fields->strict || !tool_fields->parallel);
    if (!bound && !(own && reasons && answer_begin != ANSWER_BEGINS_AFTER_REASONING))
        return true;
    enum status status = schema_check(constraint);
    if (status == ST_NO_MEMORY)
        return api_error_set(error, 503, NULL, "out of memory");
    if (status != ST_OK)
        return true;
    const struct answer_wanted wanted = {
        .tools = calls ? tools : NULL,
        .only_tool = named ? tool_fields->named : UINT32_MAX,
        .calls_only = forced,
        .several_calls = tool_fields->parallel && !named,
        .all_schemas = forced,
        .content = constraint->text,
        .content_bytes = constraint->bytes,
        .start_place = answer_begin,
    };
    struct text text = {0};
    answer_calls_write(&text, format, &wanted);
    return text_take(&text, calls ? "tools" : constraint->field, constraint, error);
}
