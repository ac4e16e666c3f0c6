/* Goal: a request never asks for something that is silently not done. Method: for each field of the
 * table that cleave does not use, bodies with null and every neutral value are accepted, and bodies
 * with other values get a 400 "unsupported_parameter" that names the field; unknown fields are
 * counted. docs/api.md is compared with the tables: `test_known_fields --reference` prints it. */
#include "server/api/known_fields.h"
#include "server/api/request.h"
#include "tests/check.h"
#include "tests/page.h"

#include <string.h>

static const char *const values[] = {"null",       "\"\"",       "[]",
                                     "{}",         "false",      "true",
                                     "0",          "0.0",        "1",
                                     "1.0",        "-1",         "\"none\"",
                                     "\"auto\"",   "\"medium\"", "{\"type\": \"text\"}",
                                     "[\"text\"]", "2",          "\"x\"",
                                     "[1]",        "{\"a\": 1}", "{\"type\": \"json_object\"}"};
#define VALUES (sizeof(values) / sizeof(values[0]))

/* The neutral values of each kind, besides null, as positions in `values`. */
static const char *neutral_of(enum api_neutral neutral)
{
    static const char *const lists[] = {
        [API_NEUTRAL_NULL] = "",
        [API_NEUTRAL_EMPTY] = "|\"\"|[]|{}|",
        [API_NEUTRAL_FALSE] = "|false|",
        [API_NEUTRAL_TRUE] = "|true|",
        [API_NEUTRAL_ZERO] = "|0|0.0|",
        [API_NEUTRAL_ONE] = "|1|1.0|",
        [API_NEUTRAL_MINUS_ONE] = "|-1|",
        [API_NEUTRAL_NONE] = "|\"none\"|",
        [API_NEUTRAL_NONE_OR_AUTO] = "|\"none\"|\"auto\"|",
        [API_NEUTRAL_MEDIUM] = "|\"medium\"|",
        [API_NEUTRAL_DISABLED] = "|\"disabled\"|",
        [API_NEUTRAL_TEXT] = "|{\"type\": \"text\"}|",
        [API_NEUTRAL_TEXT_LIST] = "|[\"text\"]|",
    };
    return neutral == API_NEUTRAL_EVERY ? NULL : lists[neutral];
}

static bool is_neutral(enum api_neutral neutral, const char *value)
{
    char entry[64];
    const char *list = neutral_of(neutral);
    snprintf(entry, sizeof(entry), "|%s|", value);
    return list == NULL || strcmp(value, "null") == 0 || strstr(list, entry) != NULL;
}

static bool parse(enum api_kind kind, const char *fields, struct api_request *request,
                  struct api_error *error)
{
    char body[512];
    static const char *const bodies[API_KINDS] = {
        "{\"prompt\": \"a\", %s}", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], %s}",
        "{\"input\": \"a\", %s}",
        "{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}], %s}"};
    snprintf(body, sizeof(body), bodies[kind == API_EMBEDDINGS ? API_RESPONSES : kind], fields);
    return api_request_parse(kind, body, strlen(body), request, error);
}

static uint32_t check_field(const struct api_known_field *field, enum api_kind kind)
{
    uint32_t refused = 0;
    for (size_t i = 0; i < VALUES; i++) {
        struct api_request request;
        struct api_error error = {0};
        char text[160];
        snprintf(text, sizeof(text), "\"%s\": %s", field->name, values[i]);
        bool good = parse(kind, text, &request, &error);
        CHECKF(good == is_neutral(field->neutral, values[i]), "%s: %s", text, error.message);
        if (good) {
            CHECK(request.unknown_fields == 0);
            api_request_done(&request);
            continue;
        }
        refused++;
        CHECKF(error.status == 400 && strcmp(error.param, field->name) == 0, "%s", text);
        CHECKF(strcmp(error.code, "unsupported_parameter") == 0, "%s", text);
        CHECKF(strstr(error.message, api_neutral_text(field->neutral)) != NULL, "%s",
               error.message);
    }
    return refused;
}

static void check_fields(void)
{
    const struct api_known_field *fields = api_known_fields;
    size_t count = api_known_fields_count;
    uint32_t refused = 0;
    for (size_t i = 0; i < count; i++) {
        CHECKF(i == 0 || strcmp(fields[i - 1].name, fields[i].name) < 0, "%s", fields[i].name);
        CHECKF(strlen(fields[i].peer_support) == 3 && strspn(fields[i].peer_support, "ypin") == 3,
               "%s", fields[i].name);
        CHECKF((fields[i].used_by_kinds == 0) == (fields[i].values[0] == 0), "%s", fields[i].name);
        for (int kind = API_COMPLETION; kind <= API_CHAT; kind++)
            if ((fields[i].used_by_kinds & (1u << kind)) == 0)
                refused += check_field(&fields[i], (enum api_kind)kind);
    }
    CHECK(refused > 500);
    printf("%zu fields; %u bodies refused\n", count, refused);
}

/* The fields that only /v1/responses or /v1/messages have, or do not have. */
static void check_form_fields(enum api_kind kind)
{
    size_t count;
    uint32_t refused = 0;
    const struct api_known_field *fields = api_form_fields(kind, &count);
    for (size_t i = 0; i < count; i++) {
        CHECKF(i == 0 || strcmp(fields[i - 1].name, fields[i].name) < 0, "%s", fields[i].name);
        CHECKF((fields[i].used_by_kinds == 0) == (fields[i].values[0] == 0), "%s", fields[i].name);
        if (fields[i].used_by_kinds == 0)
            refused += check_field(&fields[i], kind);
    }
    CHECK(count > 8 && refused > 50);
    printf("%zu fields of a form; %u bodies refused\n", count, refused);
}

static void check_unknown(void)
{
    struct api_request request;
    struct api_error error = {0};
    CHECK(parse(API_CHAT, "\"x\": [{}], \"\": 1, \"tool\": true", &request, &error));
    CHECK(request.unknown_fields == 3);
    api_request_done(&request);
}

/* Prints which other servers know the field. */
static void peers_print(FILE *out, const struct api_known_field *field)
{
    static const char *const names[] = {"OpenAI", "vLLM", "llama-server"};
    const char *before = " | ";
    for (int i = 0; i < 3; i++) {
        if (field->peer_support[i] != 'y' && field->peer_support[i] != 'p')
            continue;
        fprintf(out, "%s%s%s", before, names[i], field->peer_support[i] == 'p' ? " in part" : "");
        before = ", ";
    }
    fprintf(out, "%s |\n", before[0] == ' ' ? " | –" : "");
}

static void row_print(FILE *out, const struct api_known_field *field)
{
    fprintf(out, "| `%s` | %s%s", field->name, field->values,
            field->used_by_kinds == 1u << API_CHAT         ? "; chat only"
            : field->used_by_kinds == 1u << API_COMPLETION ? "; completions only"
                                                           : "");
    peers_print(out, field);
}

/* Prints the unused fields as one paragraph with lines of up to 120 columns: those that have no
 * effect (`any`), or those that are refused, with the value that is accepted in brackets. */
static void unused_print(FILE *out, const struct api_known_field *fields, size_t count, bool any)
{
    const char *head = any ? "No effect:" : "Refused, except with the value in brackets:";
    size_t column = strlen(head);
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        char word[128];
        if (fields[i].used_by_kinds != 0 || (fields[i].neutral == API_NEUTRAL_EVERY) != any)
            continue;
        snprintf(word, sizeof(word), "`%s`%s%s%s", fields[i].name, any ? "" : " (",
                 any ? "" : api_neutral_text(fields[i].neutral), any ? "" : ")");
        bool wraps = column + strlen(word) + 2 > 119;
        fprintf(out, "%s%s%s", first ? "\n" : ",", first ? head : "", wraps ? "\n" : " ");
        fputs(word, out);
        column = (wraps ? 0 : column + 2) + strlen(word);
        first = false;
    }
    if (!first)
        fprintf(out, ".\n");
}

static void form_print(FILE *out, const char *path, enum api_kind kind, const char *about)
{
    size_t count;
    const struct api_known_field *fields = api_form_fields(kind, &count);
    fprintf(out, "\n## %s\n\n%s\n\n| field | cleave |\n|---|---|\n", path, about);
    for (size_t i = 0; i < count; i++)
        if (fields[i].used_by_kinds != 0)
            fprintf(out, "| `%s` | %s |\n", fields[i].name, fields[i].values);
    unused_print(out, fields, count, true);
    unused_print(out, fields, count, false);
}

static void page_print(FILE *out)
{
    const struct api_known_field *fields = api_known_fields;
    size_t count = api_known_fields_count;
    fprintf(out,
            "# Fields of requests\n\n"
            "All fields of `POST /v1/completions` and `/v1/chat/completions` that cleave, OpenAI, "
            "vLLM or llama-server know. A field\nwith the value `null` counts as absent. A refused "
            "field gets a 400 with the code `unsupported_parameter`. Fields that\nthis page does "
            "not name are accepted without effect, and counted (`cleave_unknown_fields_total`). "
            "The model's files may\nset [other defaults](models.md#tokens) for sampling "
            "(`temperature` …).\n\n"
            "`build/tests/server/api/test_known_fields --reference` prints this page from "
            "`server/api/known_fields.c`.\n\n"
            "| field | cleave | also known to |\n|---|---|---|\n");
    for (size_t i = 0; i < count; i++)
        if (fields[i].used_by_kinds != 0)
            row_print(out, &fields[i]);
    unused_print(out, fields, count, true);
    unused_print(out, fields, count, false);
    form_print(
        out, "POST /v1/responses", API_RESPONSES,
        "cleave converts the body to that of a chat ([other APIs](other-apis.md)). Fields that "
        "this section does not name mean\nthe same as in a chat.");
    form_print(out, "POST /v1/messages", API_MESSAGES,
               "This body is converted to that of a chat, too. `/v1/messages/count_tokens` has the "
               "same fields, but does not need\n`max_tokens`.");
    form_print(out, "POST /v1/embeddings", API_EMBEDDINGS,
               "[How a text becomes one vector](models.md#embeddings). Other fields of the first "
               "table have no effect (such as\n`temperature`) or are refused (such as `tools`).");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--reference") == 0) {
        page_print(stdout);
        return 0;
    }
    check_fields();
    check_form_fields(API_RESPONSES);
    check_form_fields(API_MESSAGES);
    check_form_fields(API_EMBEDDINGS);
    check_unknown();
    page_check("docs/api.md", "build/tests/server/api/test_known_fields --reference", page_print);
    return 0;
}
