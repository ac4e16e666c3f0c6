/* answer_calls: see the header. The files of the families write the text around the arguments. */
#include "model/answer/answer_calls.h"

#include "model/answer/internal.h"

#include <stdlib.h>
#include <string.h>

void answer_marker_write(struct text *out, const struct answer_format *format,
                         enum answer_marker marker)
{
    const char *text = answer_marker_text(marker);
    const bool control = (format->control_markers >> marker & 1) != 0;
    text_string_add(out, control ? "{\"token\":" : "");
    text_add_json_string(out, text, strlen(text));
    text_string_add(out, control ? "}" : "");
}

static void schema_write(struct text *out, const json_t *tool, uint32_t index, bool all)
{
    const json_t *function = json_object_get(tool, "function");
    const json_t *parameters = json_object_get(function, "parameters");
    if (!all && !json_is_true(json_object_get(function, "strict"))) {
        text_string_add(out, "{\"schema\":{\"type\":\"object\"}}");
        return;
    }
    char *schema = json_dumps(parameters, JSON_COMPACT);
    out->broken |= schema == NULL;
    text_format_add(out, "{\"place\":\"tools[%u].function.parameters#\",\"schema\":", index);
    text_string_add(out, schema != NULL ? schema : "");
    text_string_add(out, "}");
    free(schema);
}

/* Calls, as the answer's parser takes them. */
static void calls_write(struct text *out, const struct answer_format *format,
                        const struct answer_wanted *wanted)
{
    const struct answer_family *family = answer_family_of(format);
    const bool several = wanted->several_calls && family != &answer_family_harmony;
    bool first = true;
    text_string_add(out, "[");
    family->write(out, format, CALL_BEFORE_FIRST, NULL, several);
    text_string_add(out, ",{\"repeat\":{\"any\":[");
    for (uint32_t i = 0; i < json_array_size(wanted->tools); i++) {
        const json_t *tool = json_array_get(wanted->tools, i);
        const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
        if (wanted->only_tool != UINT32_MAX && wanted->only_tool != i)
            continue;
        text_string_add(out, first ? "[" : ",[");
        family->write(out, format, CALL_HEAD, json_string_value(name), several);
        text_string_add(out, ",");
        schema_write(out, tool, i, wanted->all_schemas);
        text_string_add(out, ",");
        family->write(out, format, CALL_TAIL, json_string_value(name), several);
        text_string_add(out, "]");
        first = false;
    }
    text_string_add(out, "]},\"between\":[");
    family->write(out, format, CALL_BETWEEN, NULL, several);
    text_format_add(out, "],\"most\":%d},", several ? ANSWER_CALLS_FORCED_MAX : 1);
    family->write(out, format, CALL_AFTER_LAST, NULL, several);
    text_string_add(out, "]");
}

/* Content that follows a constraint, or free text. */
static void content_write(struct text *out, const struct answer_format *format,
                          const struct answer_wanted *wanted)
{
    static const char schema[] = "json_schema:";
    const size_t head = sizeof(schema) - 1;
    text_string_add(out, "[");
    if (format->reasoning == ANSWER_REASONING_HARMONY) {
        answer_marker_write(out, format, ANSWER_MARKER_CHANNEL);
        text_string_add(out, ",\"final\",");
        answer_marker_write(out, format, ANSWER_MARKER_MESSAGE);
        text_string_add(out, ",");
    }
    if (wanted->content == NULL) {
        text_string_add(out, "{\"without\":{\"token\":\"\"}}");
    } else if (wanted->content_bytes > head && memcmp(wanted->content, schema, head) == 0) {
        text_string_add(out, "{\"schema\":");
        text_add(out, wanted->content + head, wanted->content_bytes - head);
        text_string_add(out, "}");
    } else {
        text_string_add(out, "{\"constraint\":");
        text_add_json_string(out, wanted->content, wanted->content_bytes);
        text_string_add(out, "}");
    }
    text_string_add(out, "]");
}

/* Free text that becomes calls where their marker appears; without a marker, an answer that begins
 * as calls do. */
static void triggered_write(struct text *out, const struct answer_format *format,
                            const struct answer_wanted *wanted)
{
    const struct answer_family *family = answer_family_of(format);
    const bool harmony = family == &answer_family_harmony;
    if (!harmony && family->trigger != ANSWER_MARKER_NONE) {
        text_string_add(out, "[{\"without\":");
        answer_marker_write(out, format, family->trigger);
        text_string_add(out, "},{\"optional\":");
        calls_write(out, format, wanted);
        text_string_add(out, "}]");
        return;
    }
    text_string_add(out, "{\"any\":[");
    calls_write(out, format, wanted);
    text_string_add(out, ",");
    if (harmony)
        content_write(out, format, wanted);
    else
        text_string_add(out, "{\"plain\":\"{[\"}");
    text_string_add(out, "]}");
}

static void body_write(struct text *out, const struct answer_format *format,
                       const struct answer_wanted *wanted)
{
    if (wanted->tools != NULL && wanted->calls_only) {
        calls_write(out, format, wanted);
    } else if (wanted->tools == NULL) {
        content_write(out, format, wanted);
    } else if (wanted->content == NULL) {
        triggered_write(out, format, wanted);
    } else {
        text_string_add(out, "{\"any\":[");
        calls_write(out, format, wanted);
        text_string_add(out, ",");
        content_write(out, format, wanted);
        text_string_add(out, "]}");
    }
}

/* Text up to a marker, and the marker. */
static void until_write(struct text *out, const struct answer_format *format,
                        enum answer_marker marker)
{
    text_string_add(out, "{\"without\":");
    answer_marker_write(out, format, marker);
    text_string_add(out, "},");
    answer_marker_write(out, format, marker);
}

/* Reasoning between two markers; the prompt may have opened it. */
static void reasoning_write(struct text *out, const struct answer_format *format,
                            enum answer_begin begin)
{
    const bool mistral = format->reasoning == ANSWER_REASONING_MISTRAL;
    const bool inside = begin == ANSWER_BEGINS_IN_REASONING;
    if (begin == ANSWER_BEGINS_AFTER_REASONING)
        return;
    text_string_add(out, inside ? "[" : "{\"optional\":[");
    if (!inside) {
        answer_marker_write(out, format,
                            mistral ? ANSWER_MARKER_MISTRAL_THINK : ANSWER_MARKER_THINK);
        text_string_add(out, ",");
    }
    until_write(out, format, mistral ? ANSWER_MARKER_MISTRAL_THINK_END : ANSWER_MARKER_THINK_END);
    text_string_add(out, ",{\"any\":[\"\",\"\\n\",\"\\n\\n\"]}");
    text_string_add(out, inside ? "]," : "]},");
}

/* A message of reasoning, before another message. */
static void analysis_write(struct text *out, const struct answer_format *format)
{
    text_string_add(out, "{\"optional\":[");
    answer_marker_write(out, format, ANSWER_MARKER_CHANNEL);
    text_string_add(out, ",\"analysis\",");
    answer_marker_write(out, format, ANSWER_MARKER_MESSAGE);
    text_string_add(out, ",");
    until_write(out, format, ANSWER_MARKER_END);
    text_string_add(out, ",");
    answer_marker_write(out, format, ANSWER_MARKER_START);
    text_string_add(out, ",\"assistant\"]},");
}

void answer_calls_write(struct text *out, const struct answer_format *format,
                        const struct answer_wanted *wanted)
{
    text_string_add(out, "format:[");
    if (format->reasoning == ANSWER_REASONING_HARMONY)
        analysis_write(out, format);
    else if (format->reasoning != ANSWER_REASONING_NONE)
        reasoning_write(out, format, wanted->start_place);
    body_write(out, format, wanted);
    text_string_add(out, "]");
}
