/* table: a table with aligned columns, as Markdown for a page, or plain for a terminal. The caller
 * adds the cells row by row, the heads of the columns first, and then prints the table. Commands of
 * tools/ and bench/ use this part. The caller owns the struct, which one thread at a time may use.
 * The size is fixed: text that does not fit is cut, and cells that do not fit are dropped. Texts
 * are not escaped. */
#ifndef TOOLS_REPORT_TABLE_H
#define TOOLS_REPORT_TABLE_H

#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 12
#define TABLE_ROWS_MAX    96 /* Including the row of heads. */
#define TABLE_CELL_BYTES  48

struct table {
    uint32_t columns; /* Columns of the table. */
    uint32_t cells;   /* Cells that are filled. */
    /* The cells, row by row; each row has `columns` cells. */
    char text[TABLE_ROWS_MAX * TABLE_COLUMNS_MAX][TABLE_CELL_BYTES];
};

/* Empties the table. columns: 1 to TABLE_COLUMNS_MAX. */
void table_init(struct table *table, uint32_t columns);

/* Fills the next cell, with at most TABLE_CELL_BYTES - 1 bytes of the text. */
void table_cell_add(struct table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the table for a terminal, with two blanks between columns and all cells left-aligned. */
void table_print_plain(const struct table *table, FILE *file);

/* Prints the table as Markdown; the first column is left-aligned, the others right-aligned. */
void table_print_markdown(const struct table *table, FILE *file);

#endif
