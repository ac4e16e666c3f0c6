/* Goal: a command line sets the fields of its table, and an error names the option, the value and
 * the wanted value. Method: each type of option, both ways to write an option, and each mistake;
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
    struct option_wholes sizes;
    int level;
    const char *side;
    const char *target;
    bool checked;
};

#define FIELD(member) offsetof(struct fields, member)

static const struct option_entry entries[] = {
    /* name, value, type, field, lowest, highest, choices, default, help */
    {"name", "TEXT", OPTION_TEXT, FIELD(name), 0, 0, {NULL}, NULL, "of it"},
    {"kind", "KIND", OPTION_TEXTS, FIELD(kinds), 0, 2, {NULL}, NULL, "of them"},
    {"share", "X", OPTION_REAL, FIELD(share), 0, 1, {NULL}, "0.5", "of all"},
    {"count", "N", OPTION_WHOLE, FIELD(count), 1, 1e6, {NULL}, NULL, "how many"},
    {"colour",
     "COLOUR",
     OPTION_CHOICE,
     FIELD(colour),
     0,
     0,
     {"red", "green", "blue"},
     "green",
     "which"},
    {"quiet", NULL, OPTION_FLAG, FIELD(quiet), 0, 0, {NULL}, NULL, "no words"},
    {"size", "N", OPTION_WHOLES, FIELD(sizes), 1, 9, {NULL}, NULL, "of one of them"},
    {"level", "N", OPTION_INT, FIELD(level), -5, 5, {NULL}, NULL, "how high"},
    {"side", "SIDE", OPTION_TEXT, FIELD(side), 0, 0, {"left", "right"}, NULL, "where"},
};
#define ENTRIES .entries = entries, .count = sizeof(entries) / sizeof(entries[0])

static const struct option_table table = {.command = "x",
                                          .usage = "[FILE]",
                                          .about = "",
                                          ENTRIES,
                                          .operands = {{"FILE", FIELD(file), false}}};

static enum status check(void *out, struct error *error)
{
    struct fields *f = out;
    f->checked = true;
    return f->quiet ? error_set(error, ST_USAGE, "--quiet: not here") : ST_OK;
}

/* Two operands, the first of which is required, and a check. */
static const struct option_table two = {
    .command = "x",
    .usage = "FILE [TARGET]",
    .about = "",
    ENTRIES,
    .operands = {{"FILE", FIELD(file), true}, {"TARGET", FIELD(target), false}},
    .check = check};

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
    CHECK(options_read(of, argc, (char **)argv, &fields, &error) == ST_USAGE);
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

    CHECK(strcmp(f.kinds.names[0], "kind") == 0);
    CHECK(READ(&table, &f, &error, "--level", "-3", "--size=2", "--size", "9", "--side", "left",
               "--name", "-", "--name=--quiet") == ST_OK);
    CHECK(f.level == -3 && f.sizes.count == 2 && f.sizes.numbers[0] == 2 &&
          f.sizes.numbers[1] == 9);
    CHECK(strcmp(f.side, "left") == 0 && strcmp(f.name, "--quiet") == 0);

    struct fields ended = {.level = 0};
    CHECK(READ(&two, &ended, &error, "-", "--level=-5", "--", "--quiet") == ST_OK);
    CHECK(strcmp(ended.file, "-") == 0 && strcmp(ended.target, "--quiet") == 0);
    CHECK(ended.checked && !ended.quiet && ended.level == -5);
    refused(&two, "--level=1", NULL, NULL, "FILE is missing: cleave x FILE [TARGET]");
    refused(&two, "a", "b", "c", "\"c\": want no argument after TARGET \"b\"");
    refused(&two, "a", "--quiet", NULL, "--quiet: not here");

    const struct option_table bare = {.command = "x", .usage = "", .about = "", ENTRIES};
    refused(&table, "--names", NULL, NULL, "unknown option --names");
    refused(&table, "--nam=x", NULL, NULL, "unknown option --nam=x");
    refused(&table, "-q", NULL, NULL, "unknown option -q");
    refused(&table, "--name", NULL, NULL, "--name wants a value: --name TEXT");
    refused(&table, "--name", "--quiet", NULL, "--name wants a value: --name TEXT");
    refused(&table, "--name", "--", NULL, "--name wants a value: --name TEXT");
    refused(&table, "--quiet=1", NULL, NULL, "--quiet = \"1\": the option takes no value");
    refused(&table, "--level", "-6", NULL, "--level = \"-6\": want a whole number from -5 to 5");
    refused(&table, "--size=0", NULL, NULL, "--size = \"0\": want a whole number from 1 to 9");
    refused(&table, "--side", "up", NULL, "--side = \"up\": want left or right");
    refused(&table, "--share", "1.5", NULL, "--share = \"1.5\": want a number from 0 to 1");
    refused(&table, "--share", "nan", NULL, "--share = \"nan\": want a number from 0 to 1");
    refused(&table, "--share", "", NULL, "--share = \"\": want a number from 0 to 1");
    refused(&table, "--count=1.5", NULL, NULL,
            "--count = \"1.5\": want a whole number from 1 to 1000000");
    refused(&table, "--count", "5x", NULL,
            "--count = \"5x\": want a whole number from 1 to 1000000");
    refused(&table, "--colour", "pink", NULL, "--colour = \"pink\": want red, green or blue");
    refused(&table, "--kind=1", "--kind=2", "--kind=3",
            "--kind = \"3\": want the option at most 2 times");
    refused(&table, "a", "b", NULL, "\"b\": want no argument after FILE \"a\"");
    refused(&bare, "a", NULL, NULL, "\"a\": want --option value");
    refused(&bare, "", NULL, NULL, "\"\": want --option value");

    char text[2048] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");
    CHECK(out != NULL);
    options_help(&table, out);
    CHECK(fclose(out) == 0);
    CHECKF(strncmp(text, "usage: cleave x [FILE]\n", 23) == 0, "%s", text);
    CHECKF(
        strstr(text, "  --colour COLOUR           which: red, green or blue (default: green)\n") !=
            NULL,
        "%s", text);
    CHECKF(strstr(text, "  --quiet                   no words\n") != NULL, "%s", text);
    CHECKF(strstr(text, "  -h, --help                print") != NULL, "%s", text);
    return 0;
}
