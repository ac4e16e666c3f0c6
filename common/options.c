/* options: see the header. */
#include "common/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHOICES_BYTES 120

static const struct option_entry *entry_find(const struct option_table *table, const char *name,
                                             size_t bytes)
{
    for (size_t i = 0; i < table->count; i++)
        if (strlen(table->entries[i].name) == bytes &&
            memcmp(table->entries[i].name, name, bytes) == 0)
            return &table->entries[i];
    return NULL;
}

static enum status number_set(const struct option_entry *entry, const char *value, void *field,
                              struct error *error)
{
    char *end;
    bool whole = entry->type == OPTION_WHOLE;
    errno = 0;
    double number = strtod(value, &end);
    if (errno != 0 || end == value || *end != 0 ||
        !(number >= entry->low && number <= entry->high) || (whole && number != floor(number)))
        return error_set(error, ST_INVALID, "--%s = \"%.60s\": want a %snumber from %g to %g",
                         entry->name, value, whole ? "whole " : "", entry->low, entry->high);
    if (whole)
        *(uint64_t *)field = (uint64_t)number;
    else
        *(double *)field = number;
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

static enum status choice_set(const struct option_entry *entry, const char *value, void *field,
                              struct error *error)
{
    char wanted[CHOICES_BYTES];
    for (unsigned choice = 0; entry->choices[choice] != NULL; choice++)
        if (strcmp(entry->choices[choice], value) == 0) {
            memcpy(field, &choice, sizeof(choice)); /* Our enums have the size of unsigned int. */
            return ST_OK;
        }
    choices_list(entry, wanted);
    return error_set(error, ST_INVALID, "--%s = \"%.60s\": want %s", entry->name, value, wanted);
}

static enum status text_add(const struct option_entry *entry, const char *value,
                            struct option_texts *texts, struct error *error)
{
    uint32_t most = (uint32_t)entry->high;
    if (texts->count == most || texts->count == OPTION_TEXTS_MAX)
        return error_set(error, ST_TOO_LARGE, "--%s = \"%.60s\": want at most %u of them",
                         entry->name, value, texts->count);
    texts->texts[texts->count++] = value;
    return ST_OK;
}

static enum status value_set(const struct option_entry *entry, const char *value, void *out,
                             struct error *error)
{
    void *field = (char *)out + entry->offset;
    switch (entry->type) {
    case OPTION_TEXT:
        *(const char **)field = value;
        return ST_OK;
    case OPTION_TEXTS:
        return text_add(entry, value, field, error);
    case OPTION_REAL:
    case OPTION_WHOLE:
        return number_set(entry, value, field, error);
    case OPTION_CHOICE:
        return choice_set(entry, value, field, error);
    case OPTION_FLAG:
        break;
    }
    *(bool *)field = true;
    return ST_OK;
}

static enum status operand_set(const struct option_table *table, const char *text, void *out,
                               struct error *error)
{
    if (table->operand == NULL)
        return error_set(error, ST_INVALID, "\"%.60s\": want --option value", text);
    const char **field = (void *)((char *)out + table->operand_offset);
    if (*field != NULL)
        return error_set(error, ST_INVALID, "two %ss given: \"%.60s\" and \"%.60s\"",
                         table->operand, *field, text);
    *field = text;
    return ST_OK;
}

enum status options_read(const struct option_table *table, int argc, char **argv, void *out,
                         struct error *error)
{
    enum status status = ST_OK;
    for (size_t i = 0; i < table->count && status == ST_OK; i++)
        if (table->entries[i].default_value != NULL)
            status = value_set(&table->entries[i], table->entries[i].default_value, out, error);
    for (int i = 1; i < argc && status == ST_OK; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            status = operand_set(table, argv[i], out, error);
            continue;
        }
        const char *name = argv[i] + 2;
        size_t bytes = strcspn(name, "=");
        const struct option_entry *entry = entry_find(table, name, bytes);
        if (entry == NULL)
            return error_set(error, ST_INVALID, "unknown option %.80s: --help lists them", argv[i]);
        const char *value = name[bytes] == '=' ? name + bytes + 1 : NULL;
        bool flag = entry->type == OPTION_FLAG;
        if (flag ? value != NULL : value == NULL && i + 1 == argc)
            return error_set(error, ST_INVALID, "--%s %s", entry->name,
                             flag ? "takes no value" : "wants a value");
        if (!flag && value == NULL)
            value = argv[++i];
        status = value_set(entry, value, out, error);
    }
    return status;
}

void options_help(const struct option_table *table, FILE *out)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct option_entry *entry = &table->entries[i];
        fprintf(out, "  --%-14s %s", entry->name, entry->help);
        if (entry->type == OPTION_CHOICE) {
            char choices[CHOICES_BYTES];
            choices_list(entry, choices);
            fprintf(out, ": %s", choices);
        }
        if (entry->default_value != NULL)
            fprintf(out, " (default: %s)", entry->default_value);
        fputc('\n', out);
    }
}
