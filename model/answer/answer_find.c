/* answer_find: the format of a model, from the text of its chat template. */
#include "model/answer/answer_format.h"
#include "model/text/tokenizer.h"

#include <string.h>

static bool has(const char *text, size_t bytes, const char *part)
{
    return bytes > 0 && memmem(text, bytes, part, strlen(part)) != NULL;
}

static enum answer_tools tools_find(const char *text, size_t bytes)
{
    if (has(text, bytes, "<|channel|>"))
        return ANSWER_TOOLS_HARMONY;
    if (has(text, bytes, answer_marker_text(ANSWER_MARKER_DEEPSEEK_CALLS)))
        return ANSWER_TOOLS_DEEPSEEK;
    if (has(text, bytes, "[TOOL_CALLS]"))
        return ANSWER_TOOLS_MISTRAL;
    /* Calls in XML (Qwen3-Coder, GLM) have the same marker. */
    if (has(text, bytes, "<tool_call>"))
        return has(text, bytes, "<function=") || has(text, bytes, "<arg_key>")
                   ? ANSWER_TOOLS_NONE
                   : ANSWER_TOOLS_HERMES;
    if (has(text, bytes, "<|python_tag|>") ||
        (has(text, bytes, "<|start_header_id|>") && has(text, bytes, "\"parameters\"")))
        return ANSWER_TOOLS_LLAMA3;
    return has(text, bytes, "tools") ? ANSWER_TOOLS_JSON : ANSWER_TOOLS_NONE;
}

static enum answer_reasoning reasoning_find(const char *text, size_t bytes)
{
    if (has(text, bytes, "<|channel|>"))
        return ANSWER_REASONING_HARMONY;
    if (has(text, bytes, "[THINK]"))
        return ANSWER_REASONING_MISTRAL;
    return has(text, bytes, "<think>") || has(text, bytes, "</think>") ? ANSWER_REASONING_THINK
                                                                       : ANSWER_REASONING_NONE;
}

void answer_format_find(const char *tools, const char *reasoning, const char *template_text,
                        size_t template_bytes, const struct tokenizer *tokenizer,
                        struct answer_format *out)
{
    static const char *const tool_names[] = {"none",     "hermes",  "llama3", "mistral",
                                             "deepseek", "harmony", "json"};
    static const char *const reasoning_names[] = {"none", "think", "mistral", "harmony"};
    struct answer_format format = {.tools = tools_find(template_text, template_bytes),
                                   .reasoning = reasoning_find(template_text, template_bytes)};
    for (int i = 0; i < 7; i++)
        if (strcmp(tools, tool_names[i]) == 0)
            format.tools = (enum answer_tools)i;
    for (int i = 0; i < 4; i++)
        if (strcmp(reasoning, reasoning_names[i]) == 0)
            format.reasoning = (enum answer_reasoning)i;
    format.variant = format.tools == ANSWER_TOOLS_MISTRAL
                         ? has(template_text, template_bytes, "[ARGS]")
                         : has(template_text, template_bytes, "```json");
    for (uint32_t m = 1; m < ANSWER_MARKERS; m++) {
        uint32_t id = tokenizer_find(tokenizer, answer_marker_text((enum answer_marker)m));
        if (id != TOKENIZER_NO_TOKEN && tokenizer_is_special(tokenizer, id))
            format.control_markers |= 1u << m;
    }
    *out = format;
}
