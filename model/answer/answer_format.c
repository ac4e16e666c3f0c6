/* answer_format: the texts of markers, and the state in which a prompt leaves an answer. */
#include "model/answer/answer_format.h"

#include <string.h>

static const char *const texts[ANSWER_MARKERS] = {
    [ANSWER_MARKER_NONE] = "",
    [ANSWER_MARKER_THINK] = "<think>",
    [ANSWER_MARKER_THINK_END] = "</think>",
    [ANSWER_MARKER_MISTRAL_THINK] = "[THINK]",
    [ANSWER_MARKER_MISTRAL_THINK_END] = "[/THINK]",
    [ANSWER_MARKER_TOOL_CALL] = "<tool_call>",
    [ANSWER_MARKER_TOOL_CALL_END] = "</tool_call>",
    [ANSWER_MARKER_PYTHON] = "<|python_tag|>",
    [ANSWER_MARKER_TOOL_CALLS] = "[TOOL_CALLS]",
    [ANSWER_MARKER_CALL_ID] = "[CALL_ID]",
    [ANSWER_MARKER_ARGS] = "[ARGS]",
    [ANSWER_MARKER_DEEPSEEK_CALLS] = "<｜tool▁calls▁begin｜>",
    [ANSWER_MARKER_DEEPSEEK_CALLS_END] = "<｜tool▁calls▁end｜>",
    [ANSWER_MARKER_DEEPSEEK_CALL] = "<｜tool▁call▁begin｜>",
    [ANSWER_MARKER_DEEPSEEK_SEPARATOR] = "<｜tool▁sep｜>",
    [ANSWER_MARKER_DEEPSEEK_CALL_END] = "<｜tool▁call▁end｜>",
    [ANSWER_MARKER_START] = "<|start|>",
    [ANSWER_MARKER_CHANNEL] = "<|channel|>",
    [ANSWER_MARKER_CONSTRAIN] = "<|constrain|>",
    [ANSWER_MARKER_MESSAGE] = "<|message|>",
    [ANSWER_MARKER_END] = "<|end|>",
    [ANSWER_MARKER_CALL] = "<|call|>",
    [ANSWER_MARKER_RETURN] = "<|return|>",
};

const char *answer_marker_text(enum answer_marker marker)
{
    return texts[marker];
}

static bool ends_with(const char *text, size_t bytes, enum answer_marker marker)
{
    size_t count = strlen(texts[marker]);
    return bytes >= count && memcmp(text + bytes - count, texts[marker], count) == 0;
}

enum answer_begin answer_begin_find(const struct answer_format *format, const char *prompt,
                                    size_t prompt_bytes)
{
    size_t bytes = prompt_bytes;
    const bool mistral = format->reasoning == ANSWER_REASONING_MISTRAL;
    if (format->reasoning != ANSWER_REASONING_THINK && !mistral)
        return ANSWER_BEGINS;
    while (bytes > 0 && strchr(" \t\r\n", prompt[bytes - 1]) != NULL && prompt[bytes - 1] != 0)
        bytes--;
    if (ends_with(prompt, bytes, mistral ? ANSWER_MARKER_MISTRAL_THINK : ANSWER_MARKER_THINK))
        return ANSWER_BEGINS_IN_REASONING;
    if (ends_with(prompt, bytes,
                  mistral ? ANSWER_MARKER_MISTRAL_THINK_END : ANSWER_MARKER_THINK_END))
        return ANSWER_BEGINS_AFTER_REASONING;
    return ANSWER_BEGINS;
}
