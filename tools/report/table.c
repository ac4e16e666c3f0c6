/* table: see the header. */
#include "tools/report/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

void table_init(struct table *table, uint32_t columns)
{
    assert(columns > 0 && columns <= TABLE_COLUMNS_MAX);
    table->columns = columns;
    table->cells = 0;
}

void table_cell_add(struct table *table, const char *format, ...)
{
    va_list arguments;
    if (table->cells == table->columns * TABLE_ROWS_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(table->text[table->cells++], TABLE_CELL_BYTES, format, arguments);
    va_end(arguments);
}

/* Columns that a text takes on a terminal: UTF-8 without its continuation bytes. */
static size_t text_columns(const char *text)
{
    size_t columns = 0;
    for (; *text != 0; text++)
        columns += ((unsigned char)*text & 0xC0) != 0x80;
    return columns;
}

void table_print_plain(const struct table *table, FILE *file)
{
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    for (uint32_t i = 0; i < table->cells; i++) {
        size_t size = text_columns(table->text[i]), *width = &widths[i % table->columns];
        *width = size > *width ? size : *width;
    }
    for (uint32_t i = 0; i < table->cells; i++) {
        uint32_t column = i % table->columns;
        bool last = column + 1 == table->columns;
        fputs(table->text[i], file);
        if (!last)
            fprintf(file, "%*s", (int)(widths[column] - text_columns(table->text[i]) + 2), "");
        else
            fputc('\n', file);
    }
}

void table_print_markdown(const struct table *table, FILE *file)
{
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    for (uint32_t i = 0; i < table->cells; i++) {
        size_t size = text_columns(table->text[i]), *width = &widths[i % table->columns];
        *width = size > *width ? size : *width;
    }
    for (uint32_t i = 0; i < table->cells; i++) {
        uint32_t column = i % table->columns;
        const char *text = table->text[i];
        const int blanks = (int)(widths[column] - text_columns(text));
        if (column == 0)
            fprintf(file, "| %s%*s |", text, blanks, "");
        else
            fprintf(file, " %*s%s |", blanks, "", text);
        if (column + 1 < table->columns)
            continue;
        fprintf(file, "\n");
        for (uint32_t k = 0; i + 1 == table->columns && k < table->columns; k++)
            fprintf(file, k == 0 ? "|%.*s|" : "%.*s:|", (int)widths[k] + (k == 0 ? 2 : 1),
                    "------------------------------------------------------");
        if (i + 1 == table->columns)
            fprintf(file, "\n");
    }
}
