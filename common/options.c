/* options: see the header. */
#include "common/options.h"

#include "common/build_info.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHOICES_BYTES 120
#define HELP_BYTES    700
#define HELP_COLUMN   28 /* Column where the texts of the help begin. */
#define HELP_WIDTH    100

/* ---- values ---- */

static enum status number_read(const struct option_entry *entry, const char *value, bool whole,
                               double *out, struct error *error)
{
    char *end;
    errno = 0;
    double number = strtod(value, &end);
    if (errno != 0 || end == value || *end != 0 ||
        !(number >= entry->low && number <= entry->high) || (whole && number != floor(number)))
        return error_set(error, ST_USAGE, "--%s = \"%.60s\": want a %snumber from %.10g to %.10g",
                         entry->name, value, whole ? "whole " : "", entry->low, entry->high);
    *out = number;
    return ST_OK;
}

/* Writes "a, b or c". */
static void choices_list(const struct option_entry *entry, char out[CHOICES_BYTES])
{
    size_t used = 0;
    out[0] = 0;
    for (unsigned i = 0; entry->choices[i] != NULL && used < CHOICES_BYTES; i++) {
        const char *before = i == 0 ? "" : entry->choices[i + 1] == NULL ? " or " : ", ";
        used +=
            (size_t)snprintf(out + used, CHOICES_BYTES - used, "%s%s", before, entry->choices[i]);
    }
}

static enum status choice_find(const struct option_entry *entry, const char *value,
                               unsigned *choice_out, struct error *error)
{
    char wanted[CHOICES_BYTES];
    for (unsigned choice = 0; entry->choices[choice] != NULL; choice++)
        if (strcmp(entry->choices[choice], value) == 0) {
            *choice_out = choice;
            return ST_OK;
        }
    choices_list(entry, wanted);
    return error_set(error, ST_USAGE, "--%s = \"%.60s\": want %s", entry->name, value, wanted);
}

static enum status text_set(const struct option_entry *entry, const char *value, const char **field,
                            struct error *error)
{
    unsigned choice;
    enum status status =
        entry->choices[0] != NULL ? choice_find(entry, value, &choice, error) : ST_OK;
    if (status == ST_OK)
        *field = value;
    return status;
}

static enum status too_many(const struct option_entry *entry, const char *value, uint32_t most,
                            struct error *error)
{
    return error_set(error, ST_USAGE, "--%s = \"%.60s\": want the option at most %u times",
                     entry->name, value, most);
}

static enum status text_add(const struct option_entry *entry, const char *value,
                            struct option_texts *texts, struct error *error)
{
    uint32_t most = entry->high < OPTION_TEXTS_MAX ? (uint32_t)entry->high : OPTION_TEXTS_MAX;
    if (texts->count == most)
        return too_many(entry, value, most, error);
    texts->names[texts->count] = entry->name;
    texts->texts[texts->count++] = value;
    return ST_OK;
}

static enum status whole_add(const struct option_entry *entry, const char *value,
                             struct option_wholes *wholes, struct error *error)
{
    double number;
    if (wholes->count == OPTION_WHOLES_MAX)
        return too_many(entry, value, OPTION_WHOLES_MAX, error);
    enum status status = number_read(entry, value, true, &number, error);
    if (status == ST_OK)
        wholes->numbers[wholes->count++] = (uint64_t)number;
    return status;
}

static enum status value_set(const struct option_entry *entry, const char *value, void *out,
                             struct error *error)
{
    void *field = (char *)out + entry->offset;
    enum status status = ST_OK;
    double number = 0;
    unsigned choice = 0;
    switch (entry->type) {
    case OPTION_TEXT:
        return text_set(entry, value, field, error);
    case OPTION_TEXTS:
        return text_add(entry, value, field, error);
    case OPTION_WHOLES:
        return whole_add(entry, value, field, error);
    case OPTION_REAL:
        return number_read(entry, value, false, field, error);
    case OPTION_WHOLE:
        status = number_read(entry, value, true, &number, error);
        if (status == ST_OK)
            *(uint64_t *)field = (uint64_t)number;
        return status;
    case OPTION_INT:
        status = number_read(entry, value, true, &number, error);
        if (status == ST_OK)
            *(int *)field = (int)number;
        return status;
    case OPTION_CHOICE:
        status = choice_find(entry, value, &choice, error);
        if (status == ST_OK)
            memcpy(field, &choice, sizeof(choice)); /* Our enums have the size of unsigned int. */
        return status;
    case OPTION_FLAG:
        break;
    }
    *(bool *)field = true;
    return ST_OK;
}

/* ---- arguments ---- */

static const struct option_entry *entry_find(const struct option_table *table, const char *name,
                                             size_t bytes)
{
    for (size_t i = 0; i < table->count; i++)
        if (strlen(table->entries[i].name) == bytes &&
            memcmp(table->entries[i].name, name, bytes) == 0)
            return &table->entries[i];
    return NULL;
}

static const char **operand_field(const struct option_operand *operand, void *out)
{
    return (const char **)(void *)((char *)out + operand->offset);
}

static enum status operand_set(const struct option_table *table, const char *text, void *out,
                               struct error *error)
{
    for (size_t i = 0; i < OPTION_OPERANDS_MAX && table->operands[i].name != NULL; i++) {
        const char **field = operand_field(&table->operands[i], out);
        if (*field == NULL) {
            *field = text;
            return ST_OK;
        }
    }
    if (table->operands[0].name == NULL)
        return error_set(error, ST_USAGE, "\"%.60s\": want --option value", text);
    return error_set(error, ST_USAGE, "\"%.60s\": want no argument after %s \"%.60s\"", text,
                     table->operands[table->operands[1].name != NULL].name,
                     *operand_field(&table->operands[table->operands[1].name != NULL], out));
}

/* Reads the option at argv[*at], and moves *at to its value if the value is an argument of its own.
 */
static enum status option_set(const struct option_table *table, int argc, char **argv, int *at,
                              void *out, struct error *error)
{
    const char *name = argv[*at] + 2;
    size_t bytes = strcspn(name, "=");
    const struct option_entry *entry =
        strncmp(argv[*at], "--", 2) == 0 ? entry_find(table, name, bytes) : NULL;
    if (entry == NULL)
        return error_set(error, ST_USAGE, "unknown option %.80s", argv[*at]);
    const char *value = name[bytes] == '=' ? name + bytes + 1 : NULL;
    if (entry->type == OPTION_FLAG)
        return value == NULL
                   ? value_set(entry, NULL, out, error)
                   : error_set(error, ST_USAGE, "--%s = \"%.60s\": the option takes no value",
                               entry->name, value);
    if (value == NULL && (*at + 1 == argc || strncmp(argv[*at + 1], "--", 2) == 0))
        return error_set(error, ST_USAGE, "--%s wants a value: --%s %s", entry->name, entry->name,
                         entry->value_name);
    if (value == NULL)
        value = argv[++*at];
    return value_set(entry, value, out, error);
}

static enum status arguments_read(const struct option_table *table, int argc, char **argv,
                                  void *out, struct error *error)
{
    enum status status = ST_OK;
    bool options_ended = false;
    for (int i = 1; i < argc && status == ST_OK; i++) {
        if (!options_ended && strcmp(argv[i], "--") == 0)
            options_ended = true;
        else if (options_ended || argv[i][0] != '-' || argv[i][1] == 0)
            status = operand_set(table, argv[i], out, error);
        else
            status = option_set(table, argc, argv, &i, out, error);
    }
    return status;
}

enum status options_read(const struct option_table *table, int argc, char **argv, void *out,
                         struct error *error)
{
    enum status status = ST_OK;
    for (size_t i = 0; i < table->count && status == ST_OK; i++)
        if (table->entries[i].default_value != NULL)
            status = value_set(&table->entries[i], table->entries[i].default_value, out, error);
    if (status == ST_OK)
        status = arguments_read(table, argc, argv, out, error);
    for (size_t i = 0; i < OPTION_OPERANDS_MAX && status == ST_OK; i++)
        if (table->operands[i].required && *operand_field(&table->operands[i], out) == NULL)
            status = error_set(error, ST_USAGE, "%s is missing: cleave %s %s",
                               table->operands[i].name, table->command, table->usage);
    return status == ST_OK && table->check != NULL ? table->check(out, error) : status;
}

int options_fail(const struct option_table *table, enum status status, const struct error *error)
{
    fflush(stdout);
    fprintf(stderr, "cleave %s: %s", table->command,
            error->text[0] != 0 ? error->text : status_name(status));
    if (status == ST_USAGE)
        fprintf(stderr, " (cleave %s --help lists the options)", table->command);
    fputc('\n', stderr);
    return status == ST_USAGE ? 2 : 1;
}

/* ---- the table as JSON ---- */

static json_t *choices_json(const struct option_entry *entry)
{
    json_t *list = json_array();
    for (unsigned i = 0; entry->choices[i] != NULL; i++)
        if (json_array_append_new(list, json_string(entry->choices[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *entries_json(const struct option_table *table)
{
    json_t *list = json_array();
    for (size_t i = 0; i < table->count; i++) {
        const struct option_entry *entry = &table->entries[i];
        json_t *row = json_pack("{s:s, s:s?, s:o, s:s?, s:s}", "name", entry->name, "value",
                                entry->value_name, "choices", choices_json(entry), "default",
                                entry->default_value, "help", entry->help);
        if (json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Prints the table as a JSON object. */
static int table_print(const struct option_table *table)
{
    char *more = NULL;
    size_t bytes;
    FILE *file = open_memstream(&more, &bytes);
    if (file != NULL && table->help_more != NULL)
        table->help_more(file);
    if (file != NULL)
        fclose(file);
    json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:o}", "command", table->command, "usage",
                             table->usage, "about", table->about, "more", more != NULL ? more : "",
                             "options", entries_json(table));
    int failed = root == NULL || json_dumpf(root, stdout, JSON_INDENT(1)) != 0;
    fputc('\n', stdout);
    json_decref(root);
    free(more);
    return failed;
}

int options_start(const struct option_table *table, int argc, char **argv, void *out)
{
    struct error error = {""};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            options_help(table, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--help=json") == 0)
            return table_print(table);
        if (strcmp(argv[i], "--version") == 0) {
            build_info_print(stdout);
            return 0;
        }
    }
    enum status status = options_read(table, argc, argv, out, &error);
    return status == ST_OK ? -1 : options_fail(table, status, &error);
}

/* ---- help ---- */

static int columns_count(const char *text, size_t bytes)
{
    int columns = 0;
    for (size_t i = 0; i < bytes; i++)
        columns += ((unsigned char)text[i] & 0xC0) != 0x80; /* UTF-8: not a continuation byte. */
    return columns;
}

/* Prints the words of a text from HELP_COLUMN to HELP_WIDTH. `column` is the present column. */
static void words_print(const char *text, int column, FILE *out)
{
    const char *gap = "";
    if (column + 2 > HELP_COLUMN)
        fputc('\n', out);
    fprintf(out, "%*s", column + 2 > HELP_COLUMN ? HELP_COLUMN : HELP_COLUMN - column, "");
    column = HELP_COLUMN;
    for (size_t bytes; *text != 0; text += bytes + (text[bytes] == ' ')) {
        bytes = strcspn(text, " ");
        int columns = columns_count(text, bytes);
        if (*gap != 0 && column + 1 + columns > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            gap = "";
        }
        fprintf(out, "%s%.*s", gap, (int)bytes, text);
        column += columns + (*gap != 0);
        gap = " ";
    }
    fputc('\n', out);
}

static void entry_help(const struct option_entry *entry, FILE *out)
{
    char text[HELP_BYTES], choices[CHOICES_BYTES];
    choices_list(entry, choices);
    const char *value = entry->default_value;
    snprintf(text, sizeof(text), "%s%s%s%s%s%s", entry->help, choices[0] != 0 ? ": " : "", choices,
             value != NULL ? " (default: " : "", value != NULL ? value : "",
             value != NULL ? ")" : "");
    int column = fprintf(out, "  --%s%s%s", entry->name, entry->value_name != NULL ? " " : "",
                         entry->value_name != NULL ? entry->value_name : "");
    words_print(text, column, out);
}

void options_help(const struct option_table *table, FILE *file)
{
    fprintf(file, "usage: cleave %s %s\n\n%s\n", table->command, table->usage, table->about);
    for (size_t i = 0; i < table->count; i++)
        entry_help(&table->entries[i], file);
    words_print("print this text and exit", fprintf(file, "  -h, --help"), file);
    words_print("print the release and exit", fprintf(file, "  --version"), file);
    if (table->help_more != NULL)
        table->help_more(file);
}
