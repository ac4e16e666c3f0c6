/* fuzz_answer_parser: the parts of an answer do not depend on where its text is cut, and nothing of
 * an answer without calls and reasoning is lost except blanks. An input is a format, where the
 * answer begins, how the text is cut, and the text, in which bytes above 0xDF stand for markers. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "tests/model/answer/parts.h"

#define TEXT_MAX 4096

static const char *const seeds[] = {
    "10a<think>x</think>\xE5{\"name\": \"f\", \"arguments\": {\"a\": [1, \"\\n\"]}}\xE6 b",
    "20b{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {}}",
    "30cx \xE8[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}] \xE8g\xEA{}",
    "40d\xEB\xED"
    "function\xEE"
    "f\n```json\n{}\n```\xEF\xEC y",
    "50e\xF1"
    "analysis\xF3h\xF4\xF0"
    "assistant\xF1"
    "commentary to=functions.f\xF3{}\xF5",
    "60f[{\"name\": \"f\", \"arguments\": {}}]",
};

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}

struct cuts {
    uint8_t rule;
};

/* rule 0 = one piece. */
static size_t cut(void *self, size_t at)
{
    const struct cuts *cuts = self;
    return cuts->rule == 0 ? SIZE_MAX : 1 + (at * 7 + cuts->rule) % cuts->rule;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Without calls, content and reasoning are the text, but for blanks and markers. */
static void check_given(const struct parts *parts, const char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (at < parts->given.bytes && parts->given.data[at] == text[i])
            at++;
        else
            CHECKF(is_blank(text[i]), "byte %zu is lost", i);
    }
    CHECK(at == parts->given.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    static char text[TEXT_MAX + 64];
    size_t bytes = 0;
    struct answer_options options = {.finds_calls = true, .tool_names = "\nf\ng\n"};
    options.format.tools = (enum answer_tools)fuzz_below(&in, 7);
    const uint8_t rest = fuzz_byte(&in);
    options.start_place = (enum answer_begin)(rest % 3);
    options.format.reasoning = (enum answer_reasoning)(rest / 3 % 4);
    struct cuts cuts = {.rule = (uint8_t)(1 + fuzz_below(&in, 20))}, whole = {.rule = 0};
    while (in.size > 0 && bytes < TEXT_MAX) {
        uint8_t byte = fuzz_byte(&in);
        const char *marker = byte > 0xE0 && byte < 0xE0 + ANSWER_MARKERS
                                 ? answer_marker_text((enum answer_marker)(byte - 0xE0))
                                 : NULL;
        if (marker == NULL)
            text[bytes++] = (char)byte;
        else
            bytes += (size_t)sprintf(text + bytes, "%s", marker);
    }
    struct parts one, pieces;
    parts_read(&options, text, bytes, cut, &whole, &one);
    parts_read(&options, text, bytes, cut, &cuts, &pieces);
    CHECKF(one.line.bytes == pieces.line.bytes &&
               memcmp(one.line.data, pieces.line.data, one.line.bytes) == 0,
           "%s\n%s", one.line.data, pieces.line.data);
    if (one.calls == 0 && options.format.reasoning == ANSWER_REASONING_NONE &&
        options.format.tools != ANSWER_TOOLS_HARMONY)
        check_given(&one, text, bytes);
    parts_done(&one);
    parts_done(&pieces);
    return 0;
}
