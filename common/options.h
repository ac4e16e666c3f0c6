/* options: parses the command line of a subcommand with a table of options (name, type, field,
 * help), and prints the help from this table. The subcommands of cleave call the functions on their
 * main threads; the functions keep no state. They do not know the keys of the config: `--set` is an
 * ordinary option, whose texts the subcommand passes to config/config.h.
 *
 * An option is `--name value`, `--name=value`, or `--name` for a flag. The value "-h", and a value
 * that begins with "--", need the form with "=". An argument "-" is an operand. After the argument
 * `--`, all arguments are operands. If an option is repeated, the last value counts; options of the
 * types OPTION_TEXTS and OPTION_WHOLES keep all values. Texts are not copied: they point into argv
 * or to the table's default values. */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTION_CHOICES_MAX  5   /* Choices of one option. */
#define OPTION_OPERANDS_MAX 2   /* Operands of one subcommand. */
#define OPTION_TEXTS_MAX    128 /* Texts in one field of type OPTION_TEXTS. */
#define OPTION_WHOLES_MAX   8   /* Numbers in one field of type OPTION_WHOLES. */

/* The C type of the field that an option sets. */
enum option_type {
    OPTION_TEXT,   /* const char *. If the entry has `choices`, the text is one of the choices. */
    OPTION_TEXTS,  /* struct option_texts. Repeatable; several options may share a field. */
    OPTION_REAL,   /* double. */
    OPTION_WHOLE,  /* uint64_t, up to 2^53. */
    OPTION_WHOLES, /* struct option_wholes. Repeatable. */
    OPTION_INT,    /* int. */
    OPTION_CHOICE, /* An enum or unsigned int: the index of the text in `choices`. */
    OPTION_FLAG,   /* bool. */
};

/* Texts in the order of the command line. */
struct option_texts {
    uint32_t count;
    const char *names[OPTION_TEXTS_MAX]; /* Name of the option that gave the text. */
    const char *texts[OPTION_TEXTS_MAX];
};

/* Whole numbers in the order of the command line. */
struct option_wholes {
    uint32_t count;
    uint64_t numbers[OPTION_WHOLES_MAX];
};

/* One option of a subcommand. */
struct option_entry {
    const char *name;       /* Without "--". */
    const char *value_name; /* Name of the value in the help, such as "FILE"; NULL = a flag. */
    enum option_type type;
    size_t offset;    /* Offset of the field in the caller's struct. */
    double low, high; /* Range of a number; OPTION_TEXTS: `high` = most texts in the field. */
    const char *choices[OPTION_CHOICES_MAX + 1]; /* Allowed texts, then NULL; none = any text. */
    const char *default_value;                   /* NULL = the field keeps its value. */
    const char *help; /* The help's text; choices and default value are printed after it. */
};

/* An argument that is not an option. Its field is a const char *. */
struct option_operand {
    const char *name; /* Name in error messages; NULL = there is no such operand. */
    size_t offset;    /* Offset of the field in the caller's struct. */
    bool required;
};

/* The command line of one subcommand. In the functions below, `out` is the subcommand's own struct.
 * The offsets of entries and operands are offsets in this struct. */
struct option_table {
    const char *command; /* The subcommand, such as "serve". */
    const char *usage;   /* Text after "usage: cleave COMMAND " in the help. */
    const char *about;   /* Paragraphs of the help; each ends with a newline. */
    const struct option_entry *entries;
    size_t count;                                        /* Number of entries. */
    struct option_operand operands[OPTION_OPERANDS_MAX]; /* In the order of the command line. */
    /* Checks options that depend on each other, and sets fields whose values follow from other
     * fields. Returns ST_USAGE if the options are wrong. NULL = there is nothing to check. */
    enum status (*check)(void *out, struct error *error);
    void (*help_more)(FILE *file); /* Prints further text at the end of the help; NULL = none. */
};

/* Handles -h, --help, --help=json and --version: the first of them before the argument `--` makes
 * this function print the help, the table as JSON, or the release on standard output. Without these
 * arguments, calls options_read, and options_fail after an error. Returns -1 if the subcommand must
 * continue; else the exit status of the process. */
int options_start(const struct option_table *table, int argc, char **argv, void *out);

/* Sets the fields of *out to the default values, then to the values in argv[1] to argv[argc - 1].
 * Then calls the table's check. Requires that the fields of operands are NULL and that the counts
 * of OPTION_TEXTS and OPTION_WHOLES are 0. Returns ST_USAGE if an argument is wrong or a required
 * operand is missing, or an error of the check. After an error, some fields may have been set. */
enum status options_read(const struct option_table *table, int argc, char **argv, void *out,
                         struct error *error);

/* Prints the error of a subcommand as one line on standard error. Returns the exit status: 2 for
 * ST_USAGE (the line then names --help), 1 for every other status. */
int options_fail(const struct option_table *table, enum status status, const struct error *error);

/* Prints the help to `file`. */
void options_help(const struct option_table *table, FILE *file);

#endif
