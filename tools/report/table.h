/* table: a table with aligned columns, as Markdown for a page, or plain for a terminal. It is
 * filled cell by cell and row by row, beginning with the heads of the columns, and printed at the
 * end. Commands that print tables (tools/, bench/) call it; one thread at a time uses a table. A
 * table has a fixed size: text that does not fit is cut, and cells that do not fit are dropped. It
 * does not interpret the texts. */
#ifndef TOOLS_REPORT_TABLE_H
#define TOOLS_REPORT_TABLE_H

#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 12
#define TABLE_ROWS_MAX    96 /* With the row of heads. */
#define TABLE_CELL_BYTES  48

struct table {
    uint32_t columns; /* Columns of the table. */
    uint32_t cells;   /* Cells filled so far. */
    /* The cells, row by row; each row has `columns` cells. */
    char text[TABLE_ROWS_MAX * TABLE_COLUMNS_MAX][TABLE_CELL_BYTES];
};

/* Empties the table. columns: 1 to TABLE_COLUMNS_MAX. */
void table_init(struct table *table, uint32_t columns);

/* Fills the next cell, with at most TABLE_CELL_BYTES - 1 bytes of the text. */
void table_cell_add(struct table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the cells with two blanks between columns, for a terminal; all cells are left-aligned. */
void table_print_plain(const struct table *table, FILE *file);

/* Prints the table as Markdown; the first column is left-aligned, the others right-aligned. */
void table_print(const struct table *table, FILE *file);

#endif
