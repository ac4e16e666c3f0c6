/* table: a Markdown table whose columns line up, to be read as it is and to be pasted into a page.
 * Filled cell by cell, row by row, the heads first; printed at the end. One thread. */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 12
#define TABLE_ROWS_MAX    96
#define TABLE_CELL_BYTES  48

struct table {
    uint32_t columns;
    uint32_t cells; /* filled so far */
    char text[TABLE_ROWS_MAX * TABLE_COLUMNS_MAX][TABLE_CELL_BYTES];
};

void table_init(struct table *table, uint32_t columns);

/* The next cell. A text that is too long is cut; a cell too many is dropped. */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The first column to the left, the others to the right. */
void table_print(const struct table *table, FILE *file);

#endif
