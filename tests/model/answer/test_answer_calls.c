/* Goal: a constraint of calls takes the answers that the family's parser reads as these calls, and
 * no others, with markers that are text and with markers that are control tokens. Method: a table
 * of what is wanted of an answer, with texts that the constraint must take and refuse; each taken
 * text is then parsed. In the table, control tokens stand between "«" and "»". */
#include "model/answer/answer_calls.h"
#include "model/grammar/grammar.h"
#include "tests/check.h"
#include "tests/model/answer/parts.h"

#include <string.h>

#define TOOLS                                                                                      \
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{"   \
    "\"type\":\"integer\"}},\"required\":[\"a\"],\"additionalProperties\":false},\"strict\":true}" \
    "},{\"function\":{\"name\":\"g\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{"  \
    "\"type\":\"array\"}}}}}]"
#define ALL    UINT32_MAX
#define F      "{\"name\": \"f\", \"arguments\": {\"a\":1}}"
#define G      "{\"name\": \"g\", \"arguments\": {\"x\":[]}}"
#define SCHEMA "json_schema:{\"type\":\"integer\"}"

enum { FORCED = 1, SEVERAL = 2, NAMED_G = 4, NO_TOOLS = 8 };

static const struct {
    struct answer_format format;
    int wanted;
    enum answer_begin begin;
    const char *content;
    const char *good[4]; /* Each followed by its parts. */
    const char *bad[5];
} cases[] = {
    {{.tools = ANSWER_TOOLS_HERMES},
     FORCED | SEVERAL,
     0,
     NULL,
     {"<tool_call>\n" F "\n</tool_call>\n<tool_call>\n" G "\n</tool_call>",
      "f({\"a\":1})g({\"x\":[]})"},
     {"", "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\":1}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":\"1\"}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>", "<tool_call>\n" F}},
    {{.tools = ANSWER_TOOLS_HERMES, .reasoning = ANSWER_REASONING_THINK},
     FORCED | NAMED_G,
     0,
     NULL,
     {"<think>a <b></think>\n\n<tool_call>\n" G "\n</tool_call>", "R(a <b>)g({\"x\":[]})",
      "<tool_call>\n" G "\n</tool_call>", "g({\"x\":[]})"},
     {"<think>a", "<tool_call>\n" F "\n</tool_call>",
      "<tool_call>\n" G "\n</tool_call>\n<tool_call>\n" G "\n</tool_call>"}},
    {{.tools = ANSWER_TOOLS_HERMES},
     SEVERAL,
     0,
     NULL,
     {"Hm <tool", "C(Hm <tool)", "Look:\n<tool_call>\n" F "\n</tool_call>", "C(Look:)f({\"a\":1})"},
     {"x <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "<tool_call>",
      "<tool_call>x"}},
    {{.tools = ANSWER_TOOLS_HERMES}, /* g is not strict */
     0,
     0,
     NULL,
     {"<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\":1}}\n</tool_call>", "g({\"x\":1})"},
     {"<tool_call>\n" G "\n</tool_call>\n<tool_call>\n" G "\n</tool_call>"}},
    {{.tools = ANSWER_TOOLS_HERMES},
     SEVERAL,
     0,
     SCHEMA,
     {"12", "C(12)", "<tool_call>\n" G "\n</tool_call>", "g({\"x\":[]})"},
     {"x", "12<tool_call>\n" G "\n</tool_call>"}},
    {{.tools = ANSWER_TOOLS_HERMES, .reasoning = ANSWER_REASONING_THINK},
     NO_TOOLS,
     ANSWER_BEGINS_IN_REASONING,
     "regex:[ab]+",
     {"x</think>ab", "R(x)C(ab)", "</think>\n\nb", "C(b)"},
     {"ab", "x</think>", "x</think>c"}},
    {{.reasoning = ANSWER_REASONING_MISTRAL},
     NO_TOOLS,
     0,
     SCHEMA,
     {"7", "C(7)", "[THINK]so[/THINK]7", "R(so)C(7)"},
     {"[THINK]so", "so"}},
    {{.tools = ANSWER_TOOLS_LLAMA3},
     FORCED | SEVERAL,
     0,
     NULL,
     {"{\"name\": \"g\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {\"a\": 2}}",
      "g({})f({\"a\": 2})"},
     {"{\"name\": \"f\", \"parameters\": {}}", "x"}},
    {{.tools = ANSWER_TOOLS_LLAMA3},
     0,
     0,
     NULL,
     {" text {", "C( text {)", "{\"name\": \"g\", \"parameters\": {}}", "g({})"},
     {"{\"a\": 1}", "[1]"}},
    {{.tools = ANSWER_TOOLS_JSON},
     FORCED | SEVERAL,
     0,
     NULL,
     {"[" F ", " G "]", "f({\"a\":1})g({\"x\":[]})"},
     {F, "[]"}},
    {{.tools = ANSWER_TOOLS_MISTRAL},
     FORCED | SEVERAL,
     0,
     NULL,
     {"[TOOL_CALLS][" F ", " G "]", "f({\"a\":1})g({\"x\":[]})"},
     {"[" F "]"}},
    {{.tools = ANSWER_TOOLS_MISTRAL,
      .variant = true,
      .control_markers = 1u << ANSWER_MARKER_TOOL_CALLS | 1u << ANSWER_MARKER_ARGS},
     SEVERAL,
     0,
     NULL,
     {"«[TOOL_CALLS]»f«[ARGS]»{\"a\":1}«[TOOL_CALLS]»g«[ARGS]»{}", "f({\"a\":1})g({})",
      "a [TOOL_CALLS", "C(a [TOOL_CALLS)"},
     {"«[TOOL_CALLS]»f{\"a\":1}", "«[ARGS]»"}},
    {{.tools = ANSWER_TOOLS_DEEPSEEK, .variant = true, .control_markers = ~0u},
     FORCED | SEVERAL,
     0,
     NULL,
     {"«<｜tool▁calls▁begin｜>»«<｜tool▁call▁begin｜>»function«<｜tool▁sep｜>»f\n```json\n{\"a\":1}"
      "\n```"
      "«<｜tool▁call▁end｜>»\n«<｜tool▁call▁begin｜>»function«<｜tool▁sep｜>»g\n```json\n{}\n```"
      "«<｜tool▁call▁end｜>»«<｜tool▁calls▁end｜>»",
      "f({\"a\":1})g({})"},
     {"<｜tool▁calls▁begin｜>"}},
    {{.tools = ANSWER_TOOLS_DEEPSEEK},
     FORCED,
     0,
     NULL,
     {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
      "｜tool▁calls▁end｜>",
      "g({})"},
     {""}},
    {{.tools = ANSWER_TOOLS_HARMONY, .reasoning = ANSWER_REASONING_HARMONY, .control_markers = ~0u},
     FORCED | SEVERAL,
     0,
     NULL,
     {"«<|channel|>»analysis«<|message|>»x«<|end|>»«<|start|>»assistant«<|channel|>»commentary "
      "to=functions.g «<|constrain|>»json«<|message|>»{}",
      "R(x)g({})"},
     {"«<|channel|>»final«<|message|>»x", "«<|channel|>»analysis«<|message|>»x«<|call|>»"}},
    {{.tools = ANSWER_TOOLS_HARMONY, .reasoning = ANSWER_REASONING_HARMONY, .control_markers = ~0u},
     0,
     0,
     NULL,
     {"«<|channel|>»final«<|message|>»Hi <", "C(Hi <)",
      "«<|channel|>»commentary to=functions.f «<|constrain|>»json«<|message|>»{\"a\":1}",
      "f({\"a\":1})"},
     {"Hi", "«<|channel|>»commentary to=functions.f «<|constrain|>»json«<|message|>»{}"}},
    {{.tools = ANSWER_TOOLS_HARMONY, .reasoning = ANSWER_REASONING_HARMONY, .control_markers = ~0u},
     NO_TOOLS,
     0,
     SCHEMA,
     {"«<|channel|>»analysis«<|message|>»x«<|end|>»«<|start|>»assistant«<|channel|>»final«<|"
      "message|>»3",
      "R(x)C(3)"},
     {"3"}},
};

/* Copies a text with other bytes for "«" and "»"; NUL = none. Returns its bytes. */
static size_t spell(const char *text, const char *begin, const char *end, char *out)
{
    char *at = out;
    for (; *text != 0; text++) {
        const bool opens = strncmp(text, "«", 2) == 0, closes = strncmp(text, "»", 2) == 0;
        if (!opens && !closes) {
            *at++ = *text;
            continue;
        }
        at = stpcpy(at, opens ? begin : end);
        text++;
    }
    *at = 0;
    return (size_t)(at - out);
}

static bool takes(struct grammar *g, const char *text)
{
    char bytes[1024];
    struct grammar_run *run;
    size_t count = spell(text, "\xFF", "\xFE", bytes);
    CHECK(grammar_run_open(g, &run, NULL) == ST_OK);
    bool good = grammar_run_bytes(run, bytes, count, NULL) == ST_OK && grammar_run_may_end(run);
    grammar_run_close(run);
    return good;
}

static size_t whole(void *self, size_t at)
{
    (void)self, (void)at;
    return SIZE_MAX;
}

static void check_parts(size_t index, const char *text, const char *want)
{
    char bytes[1024];
    struct parts parts;
    struct answer_options options = {.format = cases[index].format,
                                     .start_place = cases[index].begin,
                                     .finds_calls = (cases[index].wanted & NO_TOOLS) == 0,
                                     .tool_names = "\nf\ng\n"};
    parts_read(&options, bytes, spell(text, "", "", bytes), whole, NULL, &parts);
    CHECKF(strcmp(parts.line.data, want) == 0, "%s: %s, want %s", text, parts.line.data, want);
    parts_done(&parts);
}

static void check(size_t index, const json_t *tools)
{
    const int wanted = cases[index].wanted;
    const struct answer_wanted w = {
        .tools = (wanted & NO_TOOLS) != 0 ? NULL : tools,
        .only_tool = (wanted & NAMED_G) != 0 ? 1 : ALL,
        .calls_only = (wanted & FORCED) != 0,
        .several_calls = (wanted & SEVERAL) != 0,
        .all_schemas = (wanted & FORCED) != 0,
        .content = cases[index].content,
        .content_bytes = cases[index].content != NULL ? strlen(cases[index].content) : 0,
        .start_place = cases[index].begin,
    };
    struct text text = {0};
    struct grammar *g;
    struct error error;
    answer_calls_write(&text, &cases[index].format, &w);
    CHECKF(grammar_open(text.data, text.bytes, NULL, &g, &error) == ST_OK, "%.*s: %s",
           (int)text.bytes, text.data, error.text);
    for (int i = 0; i < 4 && cases[index].good[i] != NULL; i += 2) {
        CHECKF(takes(g, cases[index].good[i]), "%.*s\n%s", (int)text.bytes, text.data,
               cases[index].good[i]);
        check_parts(index, cases[index].good[i], cases[index].good[i + 1]);
    }
    for (int i = 0; i < 5 && cases[index].bad[i] != NULL; i++)
        CHECKF(!takes(g, cases[index].bad[i]), "%.*s\n%s", (int)text.bytes, text.data,
               cases[index].bad[i]);
    grammar_close(g);
    text_done(&text);
}

int main(void)
{
    json_t *tools = json_loads(TOOLS, 0, NULL);
    CHECK(tools != NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check(i, tools);
    json_decref(tools);
    return 0;
}
