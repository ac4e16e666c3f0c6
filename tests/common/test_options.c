/* Goal: a command line sets the fields of its table, and an error names the option, the value and
 * what was wanted. Method: each type of option, both ways to write an option, and each mistake;
 * every error text is compared in full. */
#include "common/options.h"
#include "tests/check.h"

#include <string.h>

struct fields {
    const char *file;
    const char *name;
    struct option_texts kinds;
    double share;
    uint64_t count;
    enum { COLOUR_RED, COLOUR_GREEN, COLOUR_BLUE } colour;
    bool quiet;
};

#define FIELD(member) offsetof(struct fields, member)

static const struct option_entry entries[] = {
    {"name", OPTION_TEXT, FIELD(name), 0, 0, {NULL}, NULL, "of it"},
    {"kind", OPTION_TEXTS, FIELD(kinds), 0, 2, {NULL}, NULL, "of them"},
    {"share", OPTION_REAL, FIELD(share), 0, 1, {NULL}, "0.5", "of all"},
    {"count", OPTION_WHOLE, FIELD(count), 1, 1e6, {NULL}, NULL, "how many"},
    {"colour", OPTION_CHOICE, FIELD(colour), 0, 0, {"red", "green", "blue"}, "green", "which"},
    {"quiet", OPTION_FLAG, FIELD(quiet), 0, 0, {NULL}, NULL, "no words"},
};
static const struct option_table table = {.entries = entries,
                                          .count = sizeof(entries) / sizeof(entries[0]),
                                          .operand = "file",
                                          .operand_offset = FIELD(file)};

#define READ(table, fields, error, ...)                                                            \
    options_read(table, sizeof((const char *[]){"x", __VA_ARGS__}) / sizeof(char *),               \
                 (char **)(const char *[]){"x", __VA_ARGS__}, fields, error)

static void refused(const struct option_table *of, const char *first, const char *second,
                    const char *third, const char *want)
{
    const char *argv[] = {"x", first, second, third, NULL};
    struct fields fields = {.count = 7};
    struct error error = {""};
    int argc = third != NULL ? 4 : second != NULL ? 3 : 2;
    CHECK(options_read(of, argc, (char **)argv, &fields, &error) != ST_OK);
    CHECKF(strcmp(error.text, want) == 0, "\ngot  %s\nwant %s", error.text, want);
}

int main(void)
{
    struct fields f = {.count = 7};
    struct error error = {""};
    CHECK(READ(&table, &f, &error, "--name", "a=b") == ST_OK);
    CHECK(strcmp(f.name, "a=b") == 0 && f.count == 7 && f.share == 0.5 && !f.quiet);
    CHECK(f.colour == COLOUR_GREEN && f.kinds.count == 0 && f.file == NULL);
    CHECK(READ(&table, &f, &error, "in.csv", "--kind=one", "--quiet", "--kind", "two",
               "--count=1e3", "--count", "12", "--share=1", "--colour=blue", "--name=") == ST_OK);
    CHECK(strcmp(f.file, "in.csv") == 0 && f.name[0] == 0 && f.quiet && f.share == 1);
    CHECK(f.count == 12 && f.colour == COLOUR_BLUE && f.kinds.count == 2);
    CHECK(strcmp(f.kinds.texts[0], "one") == 0 && strcmp(f.kinds.texts[1], "two") == 0);

    const struct option_table bare = {.entries = entries, .count = table.count};
    refused(&table, "--names", NULL, NULL, "unknown option --names: --help lists them");
    refused(&table, "--nam=x", NULL, NULL, "unknown option --nam=x: --help lists them");
    refused(&table, "--name", NULL, NULL, "--name wants a value");
    refused(&table, "--quiet=1", NULL, NULL, "--quiet takes no value");
    refused(&table, "--share", "1.5", NULL, "--share = \"1.5\": want a number from 0 to 1");
    refused(&table, "--share", "nan", NULL, "--share = \"nan\": want a number from 0 to 1");
    refused(&table, "--share", "", NULL, "--share = \"\": want a number from 0 to 1");
    refused(&table, "--count=1.5", NULL, NULL,
            "--count = \"1.5\": want a whole number from 1 to 1e+06");
    refused(&table, "--count", "5x", NULL, "--count = \"5x\": want a whole number from 1 to 1e+06");
    refused(&table, "--colour", "pink", NULL, "--colour = \"pink\": want red, green or blue");
    refused(&table, "--kind=1", "--kind=2", "--kind=3", "--kind = \"3\": want at most 2 of them");
    refused(&table, "a", "b", NULL, "two files given: \"a\" and \"b\"");
    refused(&bare, "a", NULL, NULL, "\"a\": want --option value");
    refused(&bare, "", NULL, NULL, "\"\": want --option value");

    char text[512] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");
    CHECK(out != NULL);
    options_help(&table, out);
    CHECK(fclose(out) == 0);
    CHECKF(strstr(text, "  --colour         which: red, green or blue (default: green)\n") != NULL,
           "%s", text);
    return 0;
}
