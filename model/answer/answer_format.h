/* answer_format: how a model writes reasoning and tool calls in its answers. When the gateway opens
 * a model, it finds the model's format. When it has rendered a chat, it finds where the answer
 * begins (enum answer_begin). Any thread; no state. This part renders no templates
 * (model/text/chat.h) and reads no answers (answer_parser.h). */
#ifndef MODEL_ANSWER_ANSWER_FORMAT_H
#define MODEL_ANSWER_ANSWER_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer; /* model/text/tokenizer.h */

/* How calls are written; docs/tools.md shows each way. */
enum answer_tools {
    ANSWER_TOOLS_NONE,
    ANSWER_TOOLS_HERMES,
    ANSWER_TOOLS_LLAMA3,
    ANSWER_TOOLS_MISTRAL,
    ANSWER_TOOLS_DEEPSEEK,
    ANSWER_TOOLS_HARMONY,
    ANSWER_TOOLS_JSON,
};

/* How reasoning is written. */
enum answer_reasoning {
    ANSWER_REASONING_NONE,
    ANSWER_REASONING_THINK,   /* <think>…</think> */
    ANSWER_REASONING_MISTRAL, /* [THINK]…[/THINK] */
    ANSWER_REASONING_HARMONY, /* The channel `analysis`. */
};

/* Texts that separate the parts of an answer. In some models a marker is one control token. */
enum answer_marker {
    ANSWER_MARKER_NONE,
    ANSWER_MARKER_THINK,
    ANSWER_MARKER_THINK_END,
    ANSWER_MARKER_MISTRAL_THINK,
    ANSWER_MARKER_MISTRAL_THINK_END,
    ANSWER_MARKER_TOOL_CALL,
    ANSWER_MARKER_TOOL_CALL_END,
    ANSWER_MARKER_PYTHON,
    ANSWER_MARKER_TOOL_CALLS,
    ANSWER_MARKER_CALL_ID,
    ANSWER_MARKER_ARGS,
    ANSWER_MARKER_DEEPSEEK_CALLS,
    ANSWER_MARKER_DEEPSEEK_CALLS_END,
    ANSWER_MARKER_DEEPSEEK_CALL,
    ANSWER_MARKER_DEEPSEEK_SEPARATOR,
    ANSWER_MARKER_DEEPSEEK_CALL_END,
    ANSWER_MARKER_START,
    ANSWER_MARKER_CHANNEL,
    ANSWER_MARKER_CONSTRAIN,
    ANSWER_MARKER_MESSAGE,
    ANSWER_MARKER_END,
    ANSWER_MARKER_CALL,
    ANSWER_MARKER_RETURN,
    ANSWER_MARKERS, /* Number of markers. */
};

/* All zeros = answers have content only. */
struct answer_format {
    enum answer_tools tools;
    enum answer_reasoning reasoning;
    /* ANSWER_TOOLS_MISTRAL: true = a call is `name[ARGS]{…}`, false = calls are a list of objects.
     * ANSWER_TOOLS_DEEPSEEK: true = arguments are in a fenced block (V3, R1), false = no block. For
     * other `tools` the value has no meaning. */
    bool variant;
    uint32_t control_markers; /* Bit m: enum answer_marker m is a control token of the model. */
};

/* Stores the format of a model. `tools` and `reasoning` are names from the config, such as "none",
 * "hermes" or "think"; "auto" = found from the text of the chat template. control_markers is found
 * from the tokens of `tokenizer`. */
void answer_format_find(const char *tools, const char *reasoning, const char *template_text,
                        size_t template_bytes, const struct tokenizer *tokenizer,
                        struct answer_format *out);

const char *answer_marker_text(enum answer_marker marker); /* Returns a text such as "<think>". */

/* Where the answer begins: before, inside or after the reasoning. */
enum answer_begin {
    ANSWER_BEGINS,                 /* The prompt ends with no marker of reasoning. */
    ANSWER_BEGINS_IN_REASONING,    /* The prompt opens the reasoning. */
    ANSWER_BEGINS_AFTER_REASONING, /* The prompt closes the reasoning. */
};

/* Finds out from the end of the prompt's text where the answer begins; ANSWER_BEGINS if the
 * format's reasoning is not between two markers. */
enum answer_begin answer_begin_find(const struct answer_format *format, const char *prompt,
                                    size_t prompt_bytes);

#endif
