/* Goal: templates render as jinja2 renders them, and a hostile template ends in one clear error.
 * Method: the cases of template_cases.jsonl, whose results jinja2 made (cases.py); templates that
 * take much time, memory, output or nesting; texts of errors; the ranges of the output that come
 * from the input; every beginning of some templates (ASan). */
#include "model/template/template.h"
#include "tests/check.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct template_limits limits = {
    .steps = 1000000, .depth = 400, .memory_bytes = 64 << 20, .output_bytes = 4 << 20};

static enum status render(const char *text, size_t bytes, const json_t *inputs,
                          const json_t *settings, time_t now, struct template_output *out,
                          struct error *error)
{
    struct template *t = NULL;
    enum status status = template_compile(text, bytes, &t, error);
    if (status == ST_OK)
        status = template_render(t, inputs, settings, now, &limits, out, error);
    template_close(t);
    return status;
}

static void check_case(const json_t *line, const json_t *variables, time_t now)
{
    const json_t *template = json_object_get(line, "template");
    const char *text = json_string_value(template);
    const json_t *want = json_object_get(line, "text");
    struct template_output out = {0};
    struct error error = {""};
    enum status status =
        render(text, json_string_length(template), variables, NULL, now, &out, &error);
    if (want == NULL) {
        CHECKF(status == ST_INVALID, "%s: want the error \"%s\" instead of \"%s\"", text,
               json_string_value(json_object_get(line, "error")), out.text);
        CHECKF(strncmp(error.text, "chat template, line ", 20) == 0, "%s: %s", text, error.text);
    } else {
        CHECKF(status == ST_OK, "%s: %s", text, error.text);
        CHECKF(out.bytes == json_string_length(want) &&
                   memcmp(out.text, json_string_value(want), out.bytes) == 0,
               "%s: got \"%s\", want \"%s\"", text, out.text, json_string_value(want));
    }
    template_output_done(&out);
}

static void test_cases(void)
{
    FILE *file = fopen(test_data_path("template_cases.jsonl"), "r");
    char *text = NULL;
    size_t capacity = 0;
    unsigned cases = 0;
    CHECK(file != NULL && getline(&text, &capacity, file) > 0);
    json_t *first = json_loads(text, 0, NULL);
    const json_t *variables = json_object_get(first, "variables");
    CHECK(json_is_object(variables));
    while (getline(&text, &capacity, file) > 0) {
        json_t *line = json_loads(text, JSON_ALLOW_NUL, NULL);
        CHECKF(line != NULL, "%s", text);
        check_case(line, variables, (time_t)json_integer_value(json_object_get(first, "now")));
        json_decref(line);
        cases++;
    }
    CHECK(cases > 300);
    json_decref(first);
    free(text);
    fclose(file);
}

static void expect_error(const char *template, enum status status, const char *expected)
{
    struct template_output out = {0};
    struct error error = {""};
    enum status got = render(template, strlen(template), NULL, NULL, 0, &out, &error);
    CHECKF(got == status, "%.60s: status %d: %s", template, got, error.text);
    CHECKF(strstr(error.text, expected) != NULL, "\"%s\" lacks \"%s\"", error.text, expected);
}

static void test_errors(void)
{
    static const struct {
        const char *template;
        const char *expected;
    } cases[] = {
        {"a\nb {{ x.y }}", "line 2: 'x' is undefined"},
        {"{{ {}['name'[:2]] in 'text' }}", "'in <string>': 'na' is undefined"},
        {"{{ raise_exception('want a\nuser') }}", "line 1: want a user"},
        {"\n\n{{ 1 +\n }}", "line 4: want an expression instead of '}}'"},
        {"{% for x in y %}", "line 1: want else instead of 'end of template'"},
        {"{{ 'a' | nope }}", "line 1: no filter named 'nope'"},
        {"{{ 1 is nope }}", "line 1: no test named 'nope'"},
        {"{{ 'x' + 1 }}", "unsupported operand types for +: 'str' and 'int'"},
        {"{{ 9223372036854775807 + 1 }}", "line 1: "},
        {"{{ 4611686018427387904 * 2 }}", "an integer of more than 64 bits"},
        {"{{ (4611686018427387904 + 4611686018427387903) | round(-1) }}",
         "an integer of more than 64 bits"},
        {"{% include 'etc' %}", "want a statement instead of 'include'"},
        {"{{ strftime_now('%999d') }}", "a width is not supported"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_error(cases[i].template, ST_INVALID, cases[i].expected);
}

/* Powers have the bits of the exact results, rounded: those of the C library depend on the CPU. */
static void test_powers(void)
{
    static const struct {
        const char *template;
        const char *expected;
    } cases[] = {
        {"{{ 144.3 ** 15.74 }}", "9.70179405538613e+33"},
        {"{{ 172.08 ** 15.99 }}", "5.61473229171679e+35"},
        {"{{ 331.9 ** 10.35 }}", "1.2371576997904055e+26"},
        {"{{ 2.0 ** 10 }} {{ 10 ** -2 }} {{ 0.5 ** 3 }}", "1024.0 0.01 0.125"},
        {"{{ (-2.0) ** 3 }} {{ (-2.0) ** 4 }} {{ (-2) ** -1 }}", "-8.0 16.0 -0.5"},
        {"{{ 0.0 ** 2 }} {{ 0.0 ** 0 }} {{ 7.5 ** 0.0 }} {{ 1.0 ** 1e308 }}", "0.0 1.0 1.0 1.0"},
        {"{{ 2.0 ** 1022 }} {{ 2.0 ** -1074 }}", "4.49423283715579e+307 5e-324"},
        {"{{ 2.0 ** 1024 }} {{ 0.5 ** 1e300 }}", "inf 0.0"},
        {"{{ 1250 | round(-2) }} {{ 50 | round(-2) }} {{ 0.25 | round(1, 'ceil') }}", "1200 0 0.3"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *template = cases[i].template;
        struct template_output out = {0};
        struct error error = {""};
        CHECKF(render(template, strlen(template), NULL, NULL, 0, &out, &error) == ST_OK, "%s: %s",
               template, error.text);
        CHECKF(strcmp(out.text, cases[i].expected) == 0, "%s: %s, want %s", template, out.text,
               cases[i].expected);
        template_output_done(&out);
    }
    expect_error("{{ 0.0 ** -1 }}", ST_INVALID, "a power without a real value");
    expect_error("{{ (-8.0) ** 0.5 }}", ST_INVALID, "a power without a real value");
    expect_error("{{ 1e999 ** 2 }}", ST_INVALID, "not finite");
}

/* Templates that would take hours, terabytes, or the whole stack. */
static void test_limits(void)
{
    static const char *const endless[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}",
        "{% set n = namespace(s='abcdefgh') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}"
        "{% endfor %}",
        "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}{% endfor "
        "%}",
        "{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = [n.l] %}{% endfor %}"
        "{{ n.l }}",
        "{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = [n.l] %}{% endfor %}"
        "{{ n.l | tojson }}",
        "{% set n = namespace(l=[]) %}{% set m = namespace(l=[]) %}{% for i in range(99999) %}"
        "{% set n.l = [n.l] %}{% set m.l = [m.l] %}{% endfor %}{{ n.l == m.l }}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ [1] * 10 ** 12 }}",
        "{{ 'a'.center(10 ** 10) }}",
        "{{ 'a'.ljust(10 ** 9) }}",
        "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{% set t = s.replace('x', 'y') %}"
        "{% endfor %}",
        "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{{ s }}{% endfor %}",
        "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{% if s.find('yx') > 0 %}{% endif %}"
        "{% endfor %}",
        "{% set s = 'x' * 100000 %}{% for i in range(99999) %}{{ s | tojson | length }}{% endfor "
        "%}",
        "{% set s = ('x' * 100000) | list %}{% for i in range(99999) %}{{ s | sort | first }}"
        "{% endfor %}",
        "{% set s = 'x' * 100000 %}{% for i in range(9999) %}{% if s.isascii() %}{% endif %}"
        "{% endfor %}",
        "{% set a = range(9999) | list %}{% set b = range(9999) | list %}{% for i in range(9999) %}"
        "{% if a == b %}{% endif %}{% endfor %}",
        "{% set a = range(9999) | list %}{% set b = range(9999) | list %}{% for i in range(9999) %}"
        "{% if a < b %}{% endif %}{% endfor %}",
        "{% set a = range(9999) | list %}{% for i in range(9999) %}{% if -1 in a %}{% endif %}"
        "{% endfor %}",
        "{% set a = range(9999) | list %}{% for i in range(9999) %}{% if a | sum %}{% endif %}"
        "{% endfor %}",
        "{% for i in range(20000) %}{% set s = 1.2345678901234567e300 ~ '' %}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof(endless) / sizeof(endless[0]); i++)
        expect_error(endless[i], ST_TOO_LARGE, "chat template, line 1: ");
    expect_error("{{ range(10 ** 9) }}", ST_INVALID, "range: want up to 100000 items");
    expect_error("{{ 2 ** 10 ** 9 }}", ST_INVALID, "64 bits");
    expect_error("{{ '%9999999d' % 1 }}", ST_INVALID, "unsupported format character");
}

/* Writes `count` times `part`, between begin and end. */
static char *repeated(const char *begin, const char *part, size_t count, const char *end)
{
    size_t bytes = strlen(part), used = strlen(begin);
    char *text = malloc(used + count * bytes + strlen(end) + 1);
    CHECK(text != NULL);
    memcpy(text, begin, used);
    for (size_t i = 0; i < count; i++, used += bytes)
        memcpy(text + used, part, bytes);
    strcpy(text + used, end);
    return text;
}

static void test_nesting(void)
{
    static const struct {
        const char *begin, *part, *end;
    } cases[] = {
        {"{{ ", "(", "1 }}"},           {"{{ ", "[", " }}"},        {"{{ ", "{1:", " }}"},
        {"{{ ", "not ", "1 }}"},        {"{{ ", "-", "1 }}"},       {"", "{% if 1 %}", ""},
        {"", "{% for x in [1] %}", ""}, {"{{ x", "[x", " }}"},      {"{{ ", "1 if 1 else ", "1 }}"},
        {"{{ x", ".y", " }}"},          {"{{ x", "|upper", " }}"},  {"{{ 1 ", "and 1 ", " }}"},
        {"{{ x", "(x", " }}"},          {"{{ 1 ", "** 1 ", "+ }}"}, {"{{ 1 ", "is eq 1 ", "+ }}"},
        {"", "{% macro m() %}", ""},    {"{% set ", "(", "x %}"},   {"{{ '' ", "~ '' ", "~ }}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct template_output out = {0};
        struct error error = {""};
        char *text = repeated(cases[i].begin, cases[i].part, 100000, cases[i].end);
        enum status status = render(text, strlen(text), NULL, NULL, 0, &out, &error);
        CHECKF(status == ST_TOO_LARGE || status == ST_INVALID, "%s: %d", cases[i].part, status);
        free(text);
    }
    /* A chain without nesting may be long. */
    char *chain = repeated("{{ 0 ", "+ 1 ", 20000, "}}");
    struct template_output out = {0};
    struct error error = {""};
    CHECKF(render(chain, strlen(chain), NULL, NULL, 0, &out, &error) == ST_OK, "%s", error.text);
    CHECK(strcmp(out.text, "20000") == 0);
    template_output_done(&out);
    free(chain);
}

/* The ranges, as a text in which bytes of the input are in upper case. */
static void check_ranges(const char *template, const char *expected)
{
    json_t *inputs =
        json_pack("{s:s, s:{s:s}, s:[s, s]}", "x", "abc", "m", "key", "v\"w", "l", "p", "q");
    json_t *settings = json_pack("{s:s}", "bos", "<s>");
    struct template_output out = {0};
    struct error error = {""};
    CHECKF(render(template, strlen(template), inputs, settings, 0, &out, &error) == ST_OK, "%s: %s",
           template, error.text);
    for (size_t i = 0; i < out.input_count; i++) {
        CHECK(out.inputs[i].begin < out.inputs[i].end && out.inputs[i].end <= out.bytes);
        CHECK(i == 0 || out.inputs[i - 1].end < out.inputs[i].begin);
        for (size_t k = out.inputs[i].begin; k < out.inputs[i].end; k++)
            out.text[k] = (char)(out.text[k] >= 'a' && out.text[k] <= 'z'    ? out.text[k] - 32
                                 : out.text[k] == '"' || out.text[k] == '\\' ? '#'
                                                                             : out.text[k]);
    }
    CHECKF(strcmp(out.text, expected) == 0, "%s: \"%s\", want \"%s\"", template, out.text,
           expected);
    template_output_done(&out);
    json_decref(settings);
    json_decref(inputs);
}

static void test_ranges(void)
{
    check_ranges("{{ bos }}a{{ x }}b", "<s>aABCb");
    check_ranges("{{ '<' + x + '>' + bos }}", "<ABC><s>");
    check_ranges("{% set s = '<' ~ x %}{{ s ~ 'y' }}{{ x ~ s }}", "<ABCyABC<ABC");
    check_ranges("{{ (' ' + x + 'd').strip()[1:4] }}", "BCd");
    check_ranges("{{ ('d' + x).split('a')[1] }}{{ x.split('b') | join('-') }}", "BCA-C");
    check_ranges("{% for c in ('z' + x) | reverse %}{{ c }}{% endfor %}", "CBAz");
    check_ranges("{{ x | replace('b', 'zz') }}", "AzzC");
    check_ranges("{{ ('z' + x) | upper | lower | title }}", "ZABC");
    check_ranges("{{ m.key }} {{ m | tojson }}", "V#W {#KEY#: #V##W#}");
    check_ranges("{% for k in m %}{{ k }}{% endfor %}{{ l | join(', ') }}", "KEYP, Q");
    check_ranges("{{ '%s-%s' | format(x, 'y') }}{{ '{}'.format(x) }}", "ABC-yABC");
    check_ranges("{% filter trim %} {{ x }}y {% endfilter %}", "ABCy");
    check_ranges("{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(x) }}{{ f('x') }}", "<ABC><x>");
    check_ranges("{% set s = '' %}{% set ns = namespace(s='') %}{% for i in range(300) %}"
                 "{% set ns.s = ns.s ~ 'tt' %}{% endfor %}{% set a = ns.s ~ x %}"
                 "{% set b = ns.s ~ 'yyy' %}{{ a[-4:] }}{{ b[-4:] }}",
                 "tABCtyyy");
}

static void test_cut_templates(void)
{
    static const char *const whole[] = {
        "{%- for m in messages if m['role'] != \"s\\n\\x41\\u00e4\" recursive -%} {{- m.a[1:2:-1] "
        "| "
        "trim ~ 1.5e3 -}} {# c -#} {% raw -%} {{ {%- endraw %} {%- else %} {%+ set a, b = (1, 2) "
        "%} "
        "{%- endfor %}",
        "{% macro m(a, b={'x': [1, 0x1f]}) %}{{ caller(*a, **b) }}{% endmacro %}{% call(x) m(1) %}"
        "{{ x is not divisibleby 3 if x else none }}{% endcall %}{% set ns.x %}{% endset %}",
    };
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
        for (size_t bytes = 0; bytes <= strlen(whole[i]); bytes++) {
            struct template_output out = {0};
            struct error error = {""};
            char *cut = malloc(bytes + 1); /* ASan sees a read behind it. */
            CHECK(cut != NULL);
            memcpy(cut, whole[i], bytes);
            if (render(cut, bytes, NULL, NULL, 0, &out, &error) == ST_OK)
                template_output_done(&out);
            free(cut);
        }
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    test_cases();
    test_errors();
    test_powers();
    test_limits();
    test_nesting();
    test_ranges();
    test_cut_templates();
    return 0;
}
