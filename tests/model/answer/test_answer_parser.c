/* Goal: the parts of an answer are those that its family means, wherever the text is cut; nothing
 * of a text that is no call is lost. Method: a table of texts with their parts for each family,
 * right and malformed ones. Each text is read in one piece, byte by byte, and cut into two pieces
 * at every byte. */
#include "model/answer/json_scan.h"
#include "tests/check.h"
#include "tests/model/answer/parts.h"

#include <string.h>

#define HERMES                                                                                     \
    {                                                                                              \
        .tools = ANSWER_TOOLS_HERMES                                                               \
    }
#define QWEN                                                                                       \
    {                                                                                              \
        .tools = ANSWER_TOOLS_HERMES, .reasoning = ANSWER_REASONING_THINK                          \
    }
#define LLAMA                                                                                      \
    {                                                                                              \
        .tools = ANSWER_TOOLS_LLAMA3                                                               \
    }
#define MISTRAL                                                                                    \
    {                                                                                              \
        .tools = ANSWER_TOOLS_MISTRAL, .reasoning = ANSWER_REASONING_MISTRAL                       \
    }
#define DEEPSEEK                                                                                   \
    {                                                                                              \
        .tools = ANSWER_TOOLS_DEEPSEEK, .reasoning = ANSWER_REASONING_THINK                        \
    }
#define HARMONY                                                                                    \
    {                                                                                              \
        .tools = ANSWER_TOOLS_HARMONY, .reasoning = ANSWER_REASONING_HARMONY                       \
    }
#define JSON                                                                                       \
    {                                                                                              \
        .tools = ANSWER_TOOLS_JSON                                                                 \
    }
#define CALLS   "<｜tool▁calls▁begin｜>"
#define CALLEND "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
#define CALL    "<｜tool▁call▁begin｜>"
#define SEP     "<｜tool▁sep｜>"

static const struct {
    struct answer_format format;
    enum answer_begin begin;
    bool no_calls;
    const char *text;
    const char *parts;
} cases[] = {
    {HERMES, 0, 0, "", ""},
    {HERMES, 0, 0, " plain <tool text\n", "C( plain <tool text\n)"},
    {HERMES, 0, 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
     "f({\"a\": 1})"},
    {HERMES, 0, 0,
     "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": "
     "\"g\", \"arguments\": {\"x\": [\"}\", \"\\\"\"]}}\n</tool_call>\n Done. ",
     "C(I look.)f({})g({\"x\": [\"}\", \"\\\"\"]})C(Done. )"},
    {HERMES, 0, 0, "<tool_call>{\"arguments\": {\"a\": {}}, \"name\": \"f\"}</tool_call>",
     "f({\"a\": {}})"},
    {HERMES, 0, 0, "<tool_call>{\"name\": \"f\"}</tool_call>", "f({})"},
    {HERMES, 0, 0, "<tool_call>{\"id\": [1, {\"name\": 3}], \"name\": \"f\", \"parameters\": {}}",
     "f({})"},
    {HERMES, 0, 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\t\1\"}}</tool_call>",
     "f({\"a\": \"x\\ny\\t\\u0001\"})"},
    /* malformed */
    {HERMES, 0, 0, "a <tool_call>{bad}</tool_call> b", "C(a <tool_call>{bad}</tool_call> b)"},
    {HERMES, 0, 0, "<tool_call>f(1)</tool_call>", "C(<tool_call>f(1)</tool_call>)"},
    {HERMES, 0, 0, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
     "C(<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>)"},
    {HERMES, 0, 0, "<tool_call>{\"name\": \"f\", \"arguments\"",
     "C(<tool_call>{\"name\": \"f\", "
     "\"arguments\")"},
    {HERMES, 0, 0, "<tool_call>{\"arguments\": {}}</tool_call>",
     "C(<tool_call>{\"arguments\": {}}</tool_call>)"},
    {HERMES, 0, 0, "<tool_call>{\"name\": 1}<tool_call>{\"name\": \"f\", \"arguments\": {}}",
     "C(<tool_call>{\"name\": 1})f({})"},
    {HERMES, 0, 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": x}}</tool_call> y",
     "f({\"a\": )C(x}}</tool_call> y)"},
    {HERMES, 0, 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>\n!",
     "f({\"a\": 1})C(!)"},
    {HERMES, 0, 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1,", "f({\"a\": [1,)"},
    {HERMES, 0, 0, "<tool_call>{\"name\": \"\", \"arguments\": {}}",
     "C(<tool_call>{\"name\": \"\", \"arguments\": {}})"},
    {HERMES, 0, 0, "x <tool_call>", "C(x <tool_call>)"},
    {HERMES, 0, true, "<tool_call>{\"name\": \"f\"}", "C(<tool_call>{\"name\": \"f\"})"},
    /* reasoning */
    {QWEN, 0, 0, "<think>\nWell, a < b.\n</think>\n\nYes", "R(Well, a < b.)C(Yes)"},
    {QWEN, 0, 0, "\n<think></think>Yes", "C(Yes)"},
    {QWEN, 0, 0, "No <think>x</think>", "C(No <think>x</think>)"},
    {QWEN, 0, 0, " <thin", "C( <thin)"},
    {QWEN, 0, 0, "<think>cut </th", "R(cut </th)"},
    {QWEN, ANSWER_BEGINS_IN_REASONING, 0, "Hm\n</think>\n\nYes\n", "R(Hm)C(Yes\n)"},
    {QWEN, ANSWER_BEGINS_AFTER_REASONING, 0, "<think>x", "C(<think>x)"},
    {QWEN, 0, 0,
     "<think>call <tool_call></think>\n\n<tool_call>{\"name\": \"f\", \"arguments\": {}}"
     "</tool_call>",
     "R(call <tool_call>)f({})"},
    {QWEN, 0, true, "<think>x</think> <tool_call>", "R(x)C(<tool_call>)"},
    {MISTRAL, 0, 0, "[THINK]a [b][/THINK]c", "R(a [b])C(c)"},
    /* llama 3 */
    {LLAMA, 0, 0, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "f({\"a\": \"b\"})"},
    {LLAMA, 0, 0,
     " {\"type\": \"function\", \"function\": \"f\", \"parameters\": {}}; {\"name\": \"g\", "
     "\"parameters\": {\"q\": null}}\n",
     "f({})g({\"q\": null})"},
    {LLAMA, 0, 0, "<|python_tag|>{\"name\": \"other\", \"parameters\": {}} and", "other({})C(and)"},
    {LLAMA, 0, 0, "So: <|python_tag|>print(1)", "C(So: <|python_tag|>print(1))"},
    {LLAMA, 0, 0, "{\"name\": \"Bob\", \"parameters\": {}}",
     "C({\"name\": \"Bob\", \"parameters\": {}})"},
    {LLAMA, 0, 0, "{\"a\": 1, \"b\": [true, false, -1.5e+3, 0, 01]} x",
     "C({\"a\": 1, \"b\": [true, false, -1.5e+3, 0, 01]} x)"},
    {LLAMA, 0, 0, "Hi {\"name\": \"f\", \"parameters\": {}}",
     "C(Hi {\"name\": \"f\", \"parameters\": {}})"},
    {LLAMA, 0, 0, "{\"name\": \"f\", \"parameters\": {}}; then", "f({})C(; then)"},
    /* mistral */
    {MISTRAL, 0, 0,
     "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}]",
     "f({\"a\": 1})"},
    {MISTRAL, 0, 0,
     "Now [TOOL_CALLS] [ {\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": "
     "{}} ] "
     "ok",
     "C(Now)f({})g({})C(ok)"},
    {MISTRAL, 0, 0, "[TOOL_CALLS]f[ARGS]{\"a\": {}}[TOOL_CALLS]g[CALL_ID]ab3[ARGS]{}",
     "f({\"a\": {}})g({})"},
    {MISTRAL, 0, 0, "[TOOL_CALLS]f{\"a\": 2}", "f({\"a\": 2})"},
    {MISTRAL, 0, 0, "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}", "f({})"},
    {MISTRAL, 0, 0, "[TOOL_CALLS]f[ARG", "C([TOOL_CALLS]f[ARG)"},
    {MISTRAL, 0, 0, "[TOOL_CALLS]f[x]{}", "C([TOOL_CALLS]f[x]{})"},
    {MISTRAL, 0, 0, "[TOOL_CALLS][1]", "C([TOOL_CALLS][1])"},
    {MISTRAL, 0, 0, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, 3]", "f({})C(, 3])"},
    {MISTRAL, 0, 0, "[TOOL] [TOOL_CALLS", "C([TOOL] [TOOL_CALLS)"},
    /* deepseek */
    {DEEPSEEK, 0, 0,
     "Ok.\n\n" CALLS CALL "function" SEP "f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>\n" CALL
     "function" SEP "g\n```json\n{}\n```" CALLEND,
     "C(Ok.)f({\"a\": 1})g({})"},
    {DEEPSEEK, 0, 0, CALLS CALL "f" SEP "{\"a\": \"日本\"}" CALLEND "日",
     "f({\"a\": \"日本\"})C(日)"},
    {DEEPSEEK, ANSWER_BEGINS_IN_REASONING, 0, "Hm</think>" CALLS CALL "f" SEP "{}" CALLEND,
     "R(Hm)f({})"},
    {DEEPSEEK, 0, 0, CALLS " none", "C(" CALLS " none)"},
    {DEEPSEEK, 0, 0, CALLS CALL "f" SEP "x {}", "C(" CALLS CALL "f" SEP "x {})"},
    {DEEPSEEK, 0, 0, CALLS CALL "f", "C(" CALLS CALL "f)"},
    {DEEPSEEK, 0, 0, "日本<｜tool▁cal", "C(日本<｜tool▁cal)"},
    /* harmony */
    {HARMONY, 0, 0,
     "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hi. ",
     "R(Think.)C(Hi. )"},
    {HARMONY, 0, 0,
     "<|channel|>analysis<|message|>I <|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "R(I )f({\"a\": 1})"},
    {HARMONY, 0, 0, " to=functions.f<|channel|>commentary json<|message|>{}", "f({})"},
    {HARMONY, 0, 0,
     "<|channel|>commentary<|message|>Plan<|end|><|start|>assistant<|channel|>final"
     "<|message|>x",
     "C(Planx)"},
    {HARMONY, 0, true, "<|channel|>commentary to=functions.f<|message|>{}", "C({})"},
    {HARMONY, 0, 0, "plain", "C(plain)"},
    {HARMONY, 0, 0, "\n <|channel|>analysis<|message|>Hm<|end|>", "R(Hm)"},
    {HARMONY, 0, 0, "\n to=functions.f<|message|>{}", "f({})"},
    {HARMONY, 0, 0, " plain", "C( plain)"},
    {HARMONY, 0, 0, "<|channel|>ana", ""},
    {HARMONY, 0, 0, "<|channel|>commentary to=functions.f<|message|>oops",
     "C(<|channel|>commentary to=functions.f<|message|>oops)"},
    /* json */
    {JSON, 0, 0, "{\"name\": \"f\", \"arguments\": {}}", "f({})"},
    {JSON, 0, 0,
     "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {\"a\":1}}]",
     "f({})g({\"a\":1})"},
    {JSON, 0, 0, "[1, 2]", "C([1, 2])"},
    {JSON, 0, 0, "{\"name\": \"x\", \"arguments\": {}}", "C({\"name\": \"x\", \"arguments\": {}})"},
    {JSON, 0, 0, "text", "C(text)"},
    {{0}, 0, 0, "<tool_call>{}", "C(<tool_call>{})"},
};

/* One piece up to the offset *self, one behind it. */
static size_t cut_once(void *self, size_t at)
{
    const size_t where = *(const size_t *)self;
    return at < where ? where - at : SIZE_MAX;
}

static size_t cut_all(void *self, size_t at)
{
    (void)self, (void)at;
    return 1;
}

static void check(size_t index, size_t (*cut)(void *self, size_t at), size_t where)
{
    struct answer_options options = {.format = cases[index].format,
                                     .start_place = cases[index].begin,
                                     .finds_calls = !cases[index].no_calls,
                                     .tool_names = "\nf\ng\n"};
    struct parts parts;
    const char *text = cases[index].text;
    parts_read(&options, text, strlen(text), cut, &where, &parts);
    CHECKF(strcmp(parts.line.data, cases[index].parts) == 0, "%s, cut at %zu: %s, want %s", text,
           where, parts.line.data, cases[index].parts);
    parts_done(&parts);
}

/* Long runs: blanks before a marker, a call that is never complete, heads that are too long. */
static void check_bounds(void)
{
    static char text[200000];
    const struct answer_format formats[] = {HERMES, MISTRAL, DEEPSEEK, HARMONY, LLAMA, JSON};
    const char *const begins[] = {
        "<tool_call>", "[TOOL_CALLS]", CALLS CALL, "<|channel|>", "", "["};
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        for (int fill = 0; fill < 3; fill++) {
            struct answer_options options = {
                .format = formats[i], .finds_calls = true, .tool_names = "\nf\n"};
            struct parts whole, pieces;
            size_t used = (size_t)sprintf(text, "%s", begins[i]);
            memset(text + used, "x {"[fill], 150000);
            used += 150000;
            if (fill == 1)
                used += (size_t)sprintf(text + used, "{\"name\": \"f\", \"arguments\": {}}");
            size_t half = used / 2;
            parts_read(&options, text, used, cut_once, &half, &whole);
            parts_read(&options, text, used, cut_all, NULL, &pieces);
            CHECKF(strcmp(whole.line.data, pieces.line.data) == 0, "format %zu, fill %d", i, fill);
            CHECK(whole.calls > 0 || whole.given.bytes == used || i == 3);
            parts_done(&whole);
            parts_done(&pieces);
        }
}

static void check_many_calls(void)
{
    struct answer_options options = {.format = HERMES, .finds_calls = true};
    struct text text = {0};
    struct parts parts;
    size_t where = 0;
    for (int i = 0; i < ANSWER_CALLS_MAX + 2; i++)
        text_string_add(&text, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
    parts_read(&options, text.data, text.bytes, cut_once, &where, &parts);
    CHECK(parts.calls == ANSWER_CALLS_MAX && parts.given.bytes > 80);
    parts_done(&parts);
    text_done(&text);
}

static bool scans(const char *text)
{
    struct json_scan scan = {0};
    while (*text != 0)
        if (json_scan_byte(&scan, *text++) == SCAN_WRONG)
            return false;
    return scan.state == SCAN_DONE;
}

static void check_json(void)
{
    static const char *const good[] = {"{}", " {\"a\": [1, -0.5e-7, [], {}, \"\\u00e9\\n\"]}",
                                       "{\"a\":true,\"b\":null,\"c\":{\"d\":false}}"};
    static const char *const bad[] = {"[]",
                                      "{\"a\"}",
                                      "{\"a\": 01}",
                                      "{\"a\": 1.}",
                                      "{\"a\": tru}",
                                      "{\"a\": \"\\x\"}",
                                      "{\"a\": \"\\u12g4\"}",
                                      "{\"a\": [1,]}",
                                      "{\"a\": 1,}",
                                      "{\"a\": 1]",
                                      "{} {}",
                                      "{'a': 1}"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        CHECKF(scans(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECKF(!scans(bad[i]), "%s", bad[i]);
}

int main(void)
{
    size_t count = sizeof(cases) / sizeof(cases[0]), cuts = 0;
    check_json();
    for (size_t i = 0; i < count; i++) {
        check(i, cut_all, 0);
        for (size_t where = 0; where <= strlen(cases[i].text); where++, cuts++)
            check(i, cut_once, where);
    }
    check_bounds();
    check_many_calls();
    printf("%zu answers of all families, %zu cuts\n", count, cuts);
    return 0;
}
